//! Errors of the CUDA libraries as [`DeviceError`].

use crate::DeviceError;
use cudarc::driver::result::DriverError;
use cudarc::driver::sys::CUresult;

/// A failed driver call. A fault of the context ends everything that was on it.
pub fn driver(call: &str) -> impl Fn(DriverError) -> DeviceError + '_ {
    move |error| {
        let why = format!("{:?}", error.0);
        match error.0 {
            CUresult::CUDA_ERROR_OUT_OF_MEMORY => DeviceError::OutOfMemory { needed: 0, free: 0 },
            CUresult::CUDA_ERROR_ILLEGAL_ADDRESS
            | CUresult::CUDA_ERROR_MISALIGNED_ADDRESS
            | CUresult::CUDA_ERROR_ILLEGAL_INSTRUCTION
            | CUresult::CUDA_ERROR_LAUNCH_FAILED
            | CUresult::CUDA_ERROR_ASSERT
            | CUresult::CUDA_ERROR_ECC_UNCORRECTABLE
            | CUresult::CUDA_ERROR_DEVICE_UNAVAILABLE => DeviceError::Lost(format!("{call}: {why}")),
            _ => DeviceError::Call { call: call.into(), why },
        }
    }
}

/// A failed library call.
pub fn call(call: &str, why: impl Into<String>) -> DeviceError {
    DeviceError::Call { call: call.into(), why: why.into() }
}

/// What cannot be run.
pub fn unsupported(what: impl Into<String>, why: impl Into<String>) -> DeviceError {
    DeviceError::Unsupported { what: what.into(), why: why.into() }
}
