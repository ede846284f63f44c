//! Matrix products through cuBLASLt with the algorithm its heuristics rank first.
//!
//! Our matrices lie row by row, cuBLAS reads column by column: a row-major `[m, n]` is its column-major `n x m`.
//! So the library computes the transpose of what we want, with the operands exchanged.

use super::failure::{call, unsupported};
use crate::DeviceError;
use crate::launch::Address;
use cudarc::cublaslt::result as lt;
use cudarc::cublaslt::sys::{
    self, cublasComputeType_t as Compute, cublasLtEpilogue_t as Epilogue, cublasLtMatmulDescAttributes_t as Attribute,
    cublasLtMatmulPreferenceAttributes_t as Preference, cublasLtMatrixLayoutAttribute_t as LayoutAttribute,
    cudaDataType as DataType,
};
use joulecast_model::base::precision::Precision;
use std::ffi::c_void;

/// Scratch memory offered to the heuristics, as PyTorch does on Hopper.
pub const WORKSPACE: u64 = 32 << 20;

/// `c = op(a) op(b)`, row-major, `batch` times: `op(a)` is `[m, k]`, `op(b)` is `[k, n]`, `c` is `[m, n]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Product {
    /// Rows of the result.
    pub m: u64,
    /// Columns of the result.
    pub n: u64,
    /// Length of the sums.
    pub k: u64,
    /// `a` lies as `[k, m]`.
    pub transpose_a: bool,
    /// `b` lies as `[n, k]`.
    pub transpose_b: bool,
    /// Number of products, matrices one after another.
    pub batch: u64,
    /// Whether a vector of length `n` is added to every row.
    pub bias: bool,
}

/// Where the matrices lie.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Addresses {
    /// Left operand.
    pub a: Address,
    /// Right operand.
    pub b: Address,
    /// Result.
    pub c: Address,
    /// Vector of length `n`, or 0.
    pub bias: Address,
}

struct Description(sys::cublasLtMatmulDesc_t);
impl Drop for Description {
    fn drop(&mut self) {
        // SAFETY: created by this module, destroyed here only.
        let _ = unsafe { lt::destroy_matmul_desc(self.0) };
    }
}

struct MatrixLayout(sys::cublasLtMatrixLayout_t);
impl Drop for MatrixLayout {
    fn drop(&mut self) {
        // SAFETY: created by this module, destroyed here only.
        let _ = unsafe { lt::destroy_matrix_layout(self.0) };
    }
}

struct Wishes(sys::cublasLtMatmulPreference_t);
impl Drop for Wishes {
    fn drop(&mut self) {
        // SAFETY: created by this module, destroyed here only.
        let _ = unsafe { lt::destroy_matmul_pref(self.0) };
    }
}

/// The library's handle.
pub struct Library(sys::cublasLtHandle_t);

impl Library {
    /// Opens it.
    ///
    /// # Errors
    /// When cuBLASLt is not there.
    pub fn open() -> Result<Self, DeviceError> {
        // SAFETY: only asks whether the library can be opened.
        if !unsafe { sys::is_culib_present() } {
            let why = "libcublasLt.so cannot be opened".to_string();
            return Err(DeviceError::Unavailable { what: "cuBLASLt".into(), why });
        }
        Ok(Self(lt::create_handle().map_err(failed("cublasLtCreate"))?))
    }

    /// Version, as `13.1.0`.
    pub fn version(&self) -> String {
        // SAFETY: takes nothing.
        let v = unsafe { sys::cublasLtGetVersion() };
        format!("{}.{}.{}", v / 10_000, v / 100 % 100, v % 100)
    }
}

impl Drop for Library {
    fn drop(&mut self) {
        // SAFETY: created in `open`, destroyed here only.
        let _ = unsafe { lt::destroy_handle(self.0) };
    }
}

fn failed(function: &'static str) -> impl Fn(lt::CublasError) -> DeviceError {
    move |error| call(function, format!("{:?}", error.0))
}

/// A matrix product ready to launch.
pub struct MatrixProduct {
    handle: sys::cublasLtHandle_t,
    description: Description,
    layouts: [MatrixLayout; 3],
    algorithm: sys::cublasLtMatmulAlgo_t,
    addresses: Addresses,
    workspace: Address,
    /// Algorithm number and tile, as the library numbers them.
    pub name: String,
}

fn attribute<T>(description: &Description, name: Attribute, value: &T) -> Result<(), DeviceError> {
    // SAFETY: each attribute's type is that of the value given below.
    unsafe {
        lt::set_matmul_desc_attribute(
            description.0,
            name,
            std::ptr::from_ref(value).cast::<c_void>(),
            std::mem::size_of::<T>(),
        )
    }
    .map_err(failed("cublasLtMatmulDescSetAttribute"))
}

/// A column-major matrix of `rows` x `columns`, stored without gaps, `batch` times.
fn layout(data: DataType, rows: u64, columns: u64, batch: u64) -> Result<MatrixLayout, DeviceError> {
    let made =
        lt::create_matrix_layout(data, rows, columns, rows as i64).map_err(failed("cublasLtMatrixLayoutCreate"))?;
    let made = MatrixLayout(made);
    if batch > 1 {
        let count = i32::try_from(batch).map_err(|_| unsupported("this matrix product", "batch beyond 2^31"))?;
        let offset = (rows * columns) as i64;
        // SAFETY: the attributes' types are i32 and i64.
        unsafe {
            lt::set_matrix_layout_attribute(
                made.0,
                LayoutAttribute::CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT,
                (&raw const count).cast::<c_void>(),
                4,
            )
            .and_then(|()| {
                lt::set_matrix_layout_attribute(
                    made.0,
                    LayoutAttribute::CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                    (&raw const offset).cast::<c_void>(),
                    8,
                )
            })
        }
        .map_err(failed("cublasLtMatrixLayoutSetAttribute"))?;
    }
    Ok(made)
}

impl MatrixProduct {
    /// Asks the heuristics and prepares the product.
    ///
    /// # Errors
    /// [`DeviceError::Unsupported`] when the library has no algorithm for it.
    pub fn new(
        library: &Library,
        product: &Product,
        precision: Precision,
        addresses: Addresses,
        workspace: Address,
    ) -> Result<Self, DeviceError> {
        let (data, compute) = match precision {
            Precision::Fp32 => (DataType::CUDA_R_32F, Compute::CUBLAS_COMPUTE_32F),
            Precision::Tf32 => (DataType::CUDA_R_32F, Compute::CUBLAS_COMPUTE_32F_FAST_TF32),
            Precision::Fp16 => (DataType::CUDA_R_16F, Compute::CUBLAS_COMPUTE_32F),
            Precision::Bf16 => (DataType::CUDA_R_16BF, Compute::CUBLAS_COMPUTE_32F),
            Precision::Int8 => return Err(unsupported("matrix product in int8", "no runner for it")),
            Precision::Fp8 => return Err(unsupported("matrix product in fp8", "no runner for it")),
        };
        let description = Description(
            lt::create_matmul_desc(compute, DataType::CUDA_R_32F).map_err(failed("cublasLtMatmulDescCreate"))?,
        );
        // The library's first operand is our b, its second our a. A row-major `[r, c]` is its `c x r`: so what lies
        // as `[n, k]` is its `k x n` and must be transposed, what lies as `[k, n]` is already `n x k`.
        let operation = |transposed: bool| i32::from(transposed);
        attribute(&description, Attribute::CUBLASLT_MATMUL_DESC_TRANSA, &operation(product.transpose_b))?;
        attribute(&description, Attribute::CUBLASLT_MATMUL_DESC_TRANSB, &operation(product.transpose_a))?;
        if product.bias {
            attribute(&description, Attribute::CUBLASLT_MATMUL_DESC_EPILOGUE, &Epilogue::CUBLASLT_EPILOGUE_BIAS)?;
            attribute(&description, Attribute::CUBLASLT_MATMUL_DESC_BIAS_POINTER, &addresses.bias)?;
        }
        let Product { m, n, k, batch, .. } = *product;
        let first = if product.transpose_b { layout(data, k, n, batch)? } else { layout(data, n, k, batch)? };
        let second = if product.transpose_a { layout(data, m, k, batch)? } else { layout(data, k, m, batch)? };
        let result = layout(data, n, m, batch)?;
        let most = WORKSPACE;
        let wishes = Wishes(lt::create_matmul_pref().map_err(failed("cublasLtMatmulPreferenceCreate"))?);
        // SAFETY: live descriptors; the attribute's type is u64.
        let heuristic = unsafe {
            lt::set_matmul_pref_attribute(
                wishes.0,
                Preference::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                (&raw const most).cast::<c_void>(),
                8,
            )
            .map_err(failed("cublasLtMatmulPreferenceSetAttribute"))?;
            lt::get_matmul_algo_heuristic(library.0, description.0, first.0, second.0, result.0, result.0, wishes.0)
        }
        .map_err(|e| unsupported(format!("{product:?} in {precision}"), format!("{:?}", e.0)))?;
        let name = algorithm_name(&heuristic.algo);
        Ok(Self {
            handle: library.0,
            description,
            layouts: [first, second, result],
            algorithm: heuristic.algo,
            addresses,
            workspace,
            name,
        })
    }

    /// Launches it.
    ///
    /// # Errors
    /// When the library refuses or the launch fails.
    pub fn launch(&self, stream: cudarc::driver::sys::CUstream) -> Result<(), DeviceError> {
        let (one, zero) = (1f32, 0f32);
        let [first, second, result] = &self.layouts;
        let c = self.addresses.c as *mut c_void;
        // SAFETY: live descriptors; the addresses lie in the arena and hold the described matrices.
        unsafe {
            lt::matmul(
                self.handle,
                self.description.0,
                (&raw const one).cast::<c_void>(),
                (&raw const zero).cast::<c_void>(),
                self.addresses.b as *const c_void,
                first.0,
                self.addresses.a as *const c_void,
                second.0,
                c,
                result.0,
                c,
                result.0,
                &raw const self.algorithm,
                self.workspace as *mut c_void,
                WORKSPACE as usize,
                stream.cast(),
            )
        }
        .map_err(failed("cublasLtMatmul"))
    }
}

fn algorithm_name(algorithm: &sys::cublasLtMatmulAlgo_t) -> String {
    use sys::cublasLtMatmulAlgoConfigAttributes_t as Configuration;
    let read = |name: Configuration| -> Option<u32> {
        let (mut value, mut written) = (0u32, 0usize);
        // SAFETY: these attributes are 32 bits wide; room for that is passed.
        let status = unsafe {
            sys::cublasLtMatmulAlgoConfigGetAttribute(
                algorithm,
                name,
                (&raw mut value).cast::<c_void>(),
                4,
                &raw mut written,
            )
        };
        status.result().ok().map(|()| value)
    };
    let text = |name| read(name).map_or_else(|| "?".to_string(), |v| (v as i32).to_string());
    format!(
        "lt{}{{tile={},splitk={}}}",
        text(Configuration::CUBLASLT_ALGO_CONFIG_ID),
        text(Configuration::CUBLASLT_ALGO_CONFIG_TILE_ID),
        text(Configuration::CUBLASLT_ALGO_CONFIG_SPLITK_NUM)
    )
}
