//! NVIDIA's management library: finding and opening it at run time, choosing a board, and what its errors mean.

mod clocks;
mod describe;
mod meter;
pub mod reasons;

pub use clocks::NvmlControl;
pub use describe::Description;
pub use meter::{NvmlMeter, PowerMethod};

use crate::DeviceError;
use nvml_wrapper::Device;
use nvml_wrapper::error::NvmlError;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Environment variable with the absolute path of the library to use instead of the system's.
pub const LIBRARY_VARIABLE: &str = "JOULECAST_NVML";

const LIBRARY: &str = "libnvidia-ml.so.1";

/// Where the library lies when the loader does not find it: container run times and distributions.
const FOLDERS: [&str; 9] = [
    "/usr/local/nvidia/lib64",
    "/usr/local/nvidia/lib",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/usr/lib/x86_64-linux-gnu/nvidia/current",
    "/usr/lib/wsl/lib",
    "/run/opengl-driver/lib",
];

/// The opened library; clones share it.
#[derive(Clone, Debug)]
pub struct Nvml {
    api: Arc<nvml_wrapper::Nvml>,
    library: PathBuf,
}

/// Opens the library: `library`, else the one that `JOULECAST_NVML` names, else the loader's, else one in the usual
/// folders. Paths must be absolute: nothing is ever loaded from the working directory.
///
/// # Errors
/// [`DeviceError::Unavailable`] where there is no library, it does not start (no driver), or the path is relative.
pub fn open(library: Option<&Path>) -> Result<Nvml, DeviceError> {
    let named = match library {
        Some(path) => Some(path.to_path_buf()),
        None => std::env::var_os(LIBRARY_VARIABLE).filter(|v| !v.is_empty()).map(PathBuf::from),
    };
    if let Some(path) = named {
        if !path.is_absolute() {
            return Err(unavailable(&format!("{} must be an absolute path", path.display())));
        }
        return start(path.as_os_str()).map_err(|e| unavailable(&format!("{}: {}", path.display(), one_line(&e))));
    }
    let by_loader = loader_is_safe().then(|| PathBuf::from(LIBRARY));
    let mut why = "no libnvidia-ml.so.1 was found: no NVIDIA driver on this machine".to_string();
    for path in by_loader.into_iter().chain(FOLDERS.iter().map(|folder| Path::new(folder).join(LIBRARY))) {
        match start(path.as_os_str()) {
            Ok(nvml) => return Ok(nvml),
            Err(NvmlError::LibloadingError(_)) if !path.exists() => {}
            Err(e) => why = format!("{}: {}", path.display(), one_line(&e)),
        }
    }
    Err(unavailable(&why))
}

fn start(library: &OsStr) -> Result<Nvml, NvmlError> {
    let api = nvml_wrapper::Nvml::builder().lib_path(library).init()?;
    Ok(Nvml { api: Arc::new(api), library: PathBuf::from(library) })
}

/// The loader searches the working directory where `LD_LIBRARY_PATH` has an empty or relative entry.
fn loader_is_safe() -> bool {
    std::env::var_os("LD_LIBRARY_PATH")
        .filter(|paths| !paths.is_empty())
        .is_none_or(|paths| std::env::split_paths(&paths).all(|p| p.is_absolute()))
}

fn unavailable(why: &str) -> DeviceError {
    DeviceError::Unavailable { what: "NVML".to_string(), why: why.to_string() }
}

fn one_line(error: &NvmlError) -> String {
    error.to_string().split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Which board.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BoardChoice {
    /// By NVML's index. It need not be CUDA's: NVML orders by PCI address.
    Index(u32),
    /// By UUID, in any spelling that [`normal_uuid`] understands.
    Uuid(String),
}

impl BoardChoice {
    /// From what a user writes: a number is an index, anything else a UUID.
    pub fn parse(text: &str) -> Self {
        text.trim().parse().map_or_else(|_| Self::Uuid(text.to_string()), Self::Index)
    }
}

/// A UUID as NVML (`GPU-` and hexadecimal digits), CUDA and users write it, in one spelling: lower case, without prefix.
pub fn normal_uuid(uuid: &str) -> String {
    let lower = uuid.trim().to_ascii_lowercase();
    lower.strip_prefix("gpu-").map_or(lower.clone(), str::to_string)
}

/// CUDA's 16 bytes in the spelling of [`normal_uuid`].
pub fn uuid_of_bytes(bytes: [u8; 16]) -> String {
    let mut text = String::with_capacity(36);
    for (index, byte) in bytes.iter().enumerate() {
        if matches!(index, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text.push_str(&format!("{byte:02x}"));
    }
    text
}

impl Nvml {
    /// The library as it was asked for: a path, or the name that the loader resolved.
    pub fn library(&self) -> &Path {
        &self.library
    }

    /// Normalised UUIDs of all boards, in NVML's order.
    ///
    /// # Errors
    /// When a board does not answer.
    pub fn boards(&self) -> Result<Vec<String>, DeviceError> {
        let count = self.api.device_count().map_err(|e| error("nvmlDeviceGetCount", &e))?;
        (0..count).map(|index| Ok(self.at(index)?.uuid)).collect()
    }

    /// One board.
    ///
    /// # Errors
    /// [`DeviceError::Unavailable`] where there is none such, naming those that there are.
    pub fn board(&self, choice: &BoardChoice) -> Result<Board, DeviceError> {
        let count = self.api.device_count().map_err(|e| error("nvmlDeviceGetCount", &e))?;
        let found = match choice {
            BoardChoice::Index(index) if *index < count => return self.at(*index),
            BoardChoice::Index(index) => format!("board {index}"),
            BoardChoice::Uuid(uuid) => {
                let wanted = normal_uuid(uuid);
                for index in 0..count {
                    // A lost board must not hide the others.
                    if let Ok(board) = self.at(index)
                        && board.uuid == wanted
                    {
                        return Ok(board);
                    }
                }
                format!("board {uuid}")
            }
        };
        let there = self.boards().unwrap_or_default();
        let why = if there.is_empty() { "there are none".into() } else { format!("there are {}", there.join(", ")) };
        Err(DeviceError::Unavailable { what: found, why })
    }

    fn at(&self, index: u32) -> Result<Board, DeviceError> {
        let device = self.api.device_by_index(index).map_err(|e| error("nvmlDeviceGetHandleByIndex", &e))?;
        let uuid = device.uuid().map_err(|e| error("nvmlDeviceGetUUID", &e))?;
        // SAFETY: the handle is only used together with the library that it came from, which `Board` keeps open.
        let handle = unsafe { device.handle() };
        Ok(Board { nvml: self.clone(), handle: Handle(handle), uuid: normal_uuid(&uuid) })
    }
}

#[derive(Clone, Copy, Debug)]
struct Handle(nvml_wrapper_sys::bindings::nvmlDevice_t);

// SAFETY: NVML is thread-safe and its device handles are valid in the whole process; `nvml_wrapper::Device`, which is
// nothing else, is Send and Sync for the same reason.
unsafe impl Send for Handle {}
// SAFETY: as above.
unsafe impl Sync for Handle {}

/// One board; clones mean the same one.
#[derive(Clone, Debug)]
pub struct Board {
    nvml: Nvml,
    handle: Handle,
    uuid: String,
}

impl Board {
    /// UUID in the spelling of [`normal_uuid`].
    pub fn uuid(&self) -> &str {
        &self.uuid
    }

    /// The library the board belongs to.
    pub fn nvml(&self) -> &Nvml {
        &self.nvml
    }

    /// What there is to know of the board for the record. Nothing is set.
    ///
    /// # Errors
    /// [`DeviceError::Lost`] when the board stopped answering; what it does not tell is `None`.
    pub fn describe(&self) -> Result<Description, DeviceError> {
        describe::describe(self)
    }

    fn device(&self) -> Device<'_> {
        // SAFETY: the handle came from this very library, which `self` keeps open.
        unsafe { Device::new(self.handle.0, &self.nvml.api) }
    }
}

/// What an NVML error means to the caller.
fn error(call: &str, error: &NvmlError) -> DeviceError {
    let why = one_line(error);
    match error {
        NvmlError::GpuLost | NvmlError::ResetRequired => DeviceError::Lost(why),
        NvmlError::NotSupported | NvmlError::FailedToLoadSymbol(_) | NvmlError::FunctionNotFound => {
            DeviceError::Unsupported { what: call.to_string(), why }
        }
        _ => DeviceError::Call { call: call.to_string(), why },
    }
}

/// A sensor's value, `None` where the board or driver has none.
fn sensor<T>(result: Result<T, NvmlError>) -> Result<Option<T>, DeviceError> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(e) => match error("reading a sensor", &e) {
            lost @ DeviceError::Lost(_) => Err(lost),
            _ => Ok(None),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uuids_of_nvml_and_cuda_are_one() {
        let bytes = [0x5a, 0x01, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 0xff];
        assert_eq!(uuid_of_bytes(bytes), "5a010203-0405-0607-0809-0a0b0c0d0eff");
        assert_eq!(normal_uuid(" GPU-5A010203-0405-0607-0809-0A0B0C0D0EFF"), uuid_of_bytes(bytes));
        assert_eq!(normal_uuid(&uuid_of_bytes(bytes)), uuid_of_bytes(bytes));
    }

    #[test]
    fn a_number_is_an_index() {
        assert_eq!(BoardChoice::parse("1"), BoardChoice::Index(1));
        assert_eq!(BoardChoice::parse("GPU-1"), BoardChoice::Uuid("GPU-1".to_string()));
    }

    #[test]
    fn relative_and_missing_libraries_are_refused_in_one_line() {
        for path in ["libnvidia-ml.so.1", "./libnvidia-ml.so.1", "/nowhere/libnvidia-ml.so.1"] {
            let error = open(Some(Path::new(path))).err().map(|e| e.to_string()).unwrap_or_default();
            assert!(error.contains(path) && error.contains("not available") && !error.contains('\n'), "{error}");
        }
    }

    #[test]
    fn errors_keep_their_meaning() {
        assert!(matches!(error("f", &NvmlError::GpuLost), DeviceError::Lost(_)));
        assert!(matches!(error("f", &NvmlError::NotSupported), DeviceError::Unsupported { .. }));
        assert!(matches!(error("f", &NvmlError::Unknown), DeviceError::Call { .. }));
        assert_eq!(sensor::<u32>(Err(NvmlError::NotSupported)), Ok(None));
        assert!(matches!(sensor::<u32>(Err(NvmlError::GpuLost)), Err(DeviceError::Lost(_))));
    }
}
