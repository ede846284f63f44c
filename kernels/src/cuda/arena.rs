//! One block of device memory from which operands are carved: no allocation happens between trials.

use super::failure;
use crate::DeviceError;
use crate::launch::Address;
use cudarc::driver::{result, sys};
use joulecast_model::base::units::Bytes;

/// Alignment of every piece, as frameworks' allocators give.
const ALIGNMENT: u64 = 512;

/// Device memory handed out from one end and taken back all at once.
pub struct Arena {
    base: Address,
    size: u64,
    used: u64,
}

impl Arena {
    /// Takes `size` bytes of device memory.
    ///
    /// # Errors
    /// When the device has less.
    pub fn new(size: Bytes) -> Result<Self, DeviceError> {
        // SAFETY: a context is current on this thread; the block is freed once, in drop.
        let base = unsafe { result::malloc_sync(size.get() as usize) }.map_err(failure::driver("cuMemAlloc"))?;
        Ok(Self { base, size: size.get(), used: 0 })
    }

    /// A piece of at least one byte.
    ///
    /// # Errors
    /// [`DeviceError::OutOfMemory`] when it does not fit.
    pub fn take(&mut self, bytes: u64) -> Result<Address, DeviceError> {
        let rounded = bytes.max(1).div_ceil(ALIGNMENT).saturating_mul(ALIGNMENT);
        let free = self.free();
        if rounded > free {
            return Err(DeviceError::OutOfMemory { needed: bytes, free });
        }
        let address = self.base + self.used;
        self.used += rounded;
        Ok(address)
    }

    /// Bytes not handed out.
    pub fn free(&self) -> u64 {
        self.size - self.used
    }

    /// Bytes handed out.
    pub fn used(&self) -> Bytes {
        Bytes::new(self.used)
    }

    /// Takes everything back.
    pub fn reset(&mut self) {
        self.used = 0;
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: `base` came from malloc_sync and is freed here only.
        let _ = unsafe { result::free_sync(self.base as sys::CUdeviceptr) };
    }
}
