//! One GPU: context, stream, libraries, compiled kernels, memory.

use super::arena::Arena;
use super::backend::check;
use super::compile::Kernels;
use super::failure::{call, driver};
use super::matrix::Library;
use crate::DeviceError;
use crate::launch::{Address, Argument, KernelLaunch};
use crate::runner::Identity;
use crate::streaming::Limits;
use cudarc::cudnn::sys as cudnn;
use cudarc::driver::{CudaContext, CudaEvent, CudaFunction, CudaStream, result, sys};
use cudarc::nvrtc;
use joulecast_model::base::units::Bytes;
use std::ffi::c_void;
use std::sync::Arc;

/// Share of the free memory taken, and the most.
const ARENA_SHARE: f64 = 0.85;
const ARENA_MOST: u64 = 96 << 30;

/// A GPU that is ready to run layers.
pub struct Gpu {
    // Fields are dropped in this order: what refers to the context goes first.
    kernels: Kernels,
    dnn: Dnn,
    matrices: Library,
    arena: Arena,
    stream: Arc<CudaStream>,
    context: Arc<CudaContext>,
    identity: Identity,
    limits: Limits,
    cache: Bytes,
}

/// The cuDNN handle.
struct Dnn(cudnn::cudnnHandle_t);

impl Drop for Dnn {
    fn drop(&mut self) {
        // SAFETY: created by `open`, destroyed here only.
        let _ = unsafe { cudnn::cudnnDestroy(self.0) };
    }
}

fn missing(what: &str, why: impl Into<String>) -> DeviceError {
    DeviceError::Unavailable { what: what.into(), why: why.into() }
}

impl Gpu {
    /// Opens a GPU by its number and compiles the kernels for it. Call [`super::library::prepare`] first.
    ///
    /// # Errors
    /// When a library is missing, there is no such GPU, or its memory is taken.
    pub fn open(ordinal: usize) -> Result<Self, DeviceError> {
        Self::open_with(ordinal, Bytes::new(ARENA_MOST))
    }

    /// The same with at most so much memory for operands.
    ///
    /// # Errors
    /// As [`Gpu::open`].
    pub fn open_with(ordinal: usize, most: Bytes) -> Result<Self, DeviceError> {
        // SAFETY: only asks whether the libraries can be opened.
        let present = unsafe {
            [
                ("the CUDA driver (libcuda.so)", sys::is_culib_present()),
                ("the CUDA run-time compiler (libnvrtc.so)", nvrtc::sys::is_culib_present()),
                ("cuDNN (libcudnn.so)", cudnn::is_culib_present()),
            ]
        };
        if let Some((what, _)) = present.iter().find(|(_, there)| !there) {
            return Err(missing(what, "it cannot be opened; name its folder with --library-path"));
        }
        let context = CudaContext::new(ordinal).map_err(|e| missing("the GPU", format!("{:?}", e.0)))?;
        let stream = context.new_stream().map_err(driver("cuStreamCreate"))?;
        let (major, minor) = context.compute_capability().map_err(driver("cuDeviceGetAttribute"))?;
        let attribute = |a| context.attribute(a).map_err(driver("cuDeviceGetAttribute"));
        use sys::CUdevice_attribute as A;
        let multiprocessors = attribute(A::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?;
        let cache = attribute(A::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)?;
        let compiler = compiler()?;
        let kernels = Kernels::new(context.clone(), (major, minor), compiler);
        let mut raw: cudnn::cudnnHandle_t = std::ptr::null_mut();
        // SAFETY: writes one pointer.
        check(unsafe { cudnn::cudnnCreate(&raw mut raw) }, "cudnnCreate")?;
        let dnn = Dnn(raw);
        // SAFETY: a live handle and a live stream.
        check(unsafe { cudnn::cudnnSetStream(dnn.0, stream.cu_stream().cast()) }, "cudnnSetStream")?;
        let matrices = Library::open()?;
        let (free, _) = context.mem_get_info().map_err(driver("cuMemGetInfo"))?;
        let arena = Arena::new(Bytes::new(((free as f64 * ARENA_SHARE) as u64).min(most.get())))?;
        let identity = identity(&context, &matrices, compiler)?;
        let limits = Limits::new(u32::try_from(multiprocessors).unwrap_or(1));
        let cache = Bytes::new(u64::try_from(cache).unwrap_or(0));
        Ok(Self { kernels, dnn, matrices, arena, stream, context, identity, limits, cache })
    }

    /// What rows say of this GPU.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }
    /// Adds the driver's version and the board's PCI address.
    pub fn set_driver(&mut self, driver: Option<String>, pci: Option<String>) {
        self.identity.driver = driver;
        self.identity.pci = pci;
    }
    /// Sizes that launches are planned for.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }
    /// Size of the second-level cache.
    pub fn cache(&self) -> Bytes {
        self.cache
    }
    /// Memory for operands.
    pub fn arena(&mut self) -> &mut Arena {
        &mut self.arena
    }
    /// The stream everything runs on.
    pub fn stream(&self) -> &Arc<CudaStream> {
        &self.stream
    }
    /// cuDNN's handle.
    pub fn dnn(&self) -> cudnn::cudnnHandle_t {
        self.dnn.0
    }
    /// cuBLASLt.
    pub fn matrices(&self) -> &Library {
        &self.matrices
    }

    /// Waits until everything queued has finished.
    ///
    /// # Errors
    /// When something queued has failed.
    pub fn synchronize(&self) -> Result<(), DeviceError> {
        self.stream.synchronize().map_err(driver("cuStreamSynchronize"))
    }

    /// An event that can be timed.
    ///
    /// # Errors
    /// When the driver has none left.
    pub fn event(&self) -> Result<CudaEvent, DeviceError> {
        self.context.new_event(Some(sys::CUevent_flags::CU_EVENT_DEFAULT)).map_err(driver("cuEventCreate"))
    }

    /// A kernel by its name.
    ///
    /// # Errors
    /// When the source has no such kernel, or it cannot be compiled.
    pub fn function(&mut self, name: &str) -> Result<CudaFunction, DeviceError> {
        self.kernels.function(name)
    }

    /// Launches one of our own kernels at once.
    ///
    /// # Errors
    /// When there is no such kernel or the launch fails.
    pub fn launch(&mut self, launch: &KernelLaunch) -> Result<(), DeviceError> {
        let function = self.function(&launch.function)?;
        launch_kernel(&function, launch, &self.stream)
    }

    /// Sets `count` 32-bit words.
    ///
    /// # Errors
    /// When the driver refuses.
    pub fn set_words(&self, address: Address, word: u32, count: u64) -> Result<(), DeviceError> {
        // SAFETY: the address and the words after it lie in the arena.
        unsafe { sys::cuMemsetD32Async(address, word, count as usize, self.stream.cu_stream()) }
            .result()
            .map_err(driver("cuMemsetD32"))
    }

    /// Copies from the host.
    ///
    /// # Errors
    /// When the driver refuses.
    pub fn upload(&self, address: Address, bytes: &[u8]) -> Result<(), DeviceError> {
        // SAFETY: the address and the bytes after it lie in the arena.
        unsafe { result::memcpy_htod_sync(address, bytes) }.map_err(driver("cuMemcpyHtoD"))
    }

    /// Copies to the host.
    ///
    /// # Errors
    /// When the driver refuses.
    pub fn download(&self, address: Address, bytes: &mut [u8]) -> Result<(), DeviceError> {
        self.synchronize()?;
        // SAFETY: the address and the bytes after it lie in the arena.
        unsafe { result::memcpy_dtoh_sync(bytes, address) }.map_err(driver("cuMemcpyDtoH"))
    }
}

/// Launches a kernel on a stream.
///
/// # Errors
/// When the launch fails.
pub fn launch_kernel(function: &CudaFunction, launch: &KernelLaunch, stream: &CudaStream) -> Result<(), DeviceError> {
    // Each argument in eight bytes of its own: kernels read the first four or eight of them.
    let mut values: Vec<u64> = launch
        .arguments
        .iter()
        .map(|a| match *a {
            Argument::Pointer(p) => p,
            Argument::I64(v) => v as u64,
            Argument::I32(v) => u64::from(v as u32),
            Argument::F32(v) => u64::from(v.to_bits()),
        })
        .collect();
    let mut pointers: Vec<*mut c_void> = values.iter_mut().map(|v| std::ptr::from_mut(v).cast()).collect();
    let ([gx, gy, gz], [bx, by, bz]) = (launch.grid, launch.block);
    // SAFETY: the planner of launches gives the arguments this kernel declares; they are copied before returning.
    unsafe {
        sys::cuLaunchKernel(
            function.cu_function(),
            gx,
            gy,
            gz,
            bx,
            by,
            bz,
            launch.shared,
            stream.cu_stream(),
            pointers.as_mut_ptr(),
            std::ptr::null_mut(),
        )
    }
    .result()
    .map_err(driver(&launch.function))
}

/// Version of the run-time compiler.
fn compiler() -> Result<(i32, i32), DeviceError> {
    let (mut major, mut minor) = (0, 0);
    // SAFETY: writes two numbers.
    let status = unsafe { nvrtc::sys::nvrtcVersion(&raw mut major, &raw mut minor) };
    status.result().map_err(|e| call("nvrtcVersion", e.to_string()))?;
    Ok((major, minor))
}

fn identity(context: &CudaContext, matrices: &Library, compiler: (i32, i32)) -> Result<Identity, DeviceError> {
    let uuid = context.uuid().map_err(driver("cuDeviceGetUuid"))?;
    let hex: Vec<String> = uuid.bytes.iter().map(|b| format!("{:02x}", *b as u8)).collect();
    let part = |range: std::ops::Range<usize>| hex[range].concat();
    let uuid = format!("GPU-{}-{}-{}-{}-{}", part(0..4), part(4..6), part(6..8), part(8..10), part(10..16));
    // SAFETY: takes nothing.
    let dnn = unsafe { cudnn::cudnnGetVersion() };
    // Version 9 counts in steps of 10000, version 8 and before in steps of 1000.
    let (big, small) = if dnn >= 90_000 { (10_000, 100) } else { (1000, 100) };
    Ok(Identity {
        product: context.name().map_err(driver("cuDeviceGetName"))?,
        uuid: Some(uuid),
        pci: None,
        driver: None,
        cuda: Some(format!("{}.{}", compiler.0, compiler.1)),
        cudnn: Some(format!("{}.{}.{}", dnn / big, dnn % big / small, dnn % small)),
        cublas: Some(matrices.version()),
    })
}
