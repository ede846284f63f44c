//! By which changes of a text are noticed.

use std::fmt;

/// A fingerprint of text by which changes are noticed: 128 bits by Fowler, Noll and Vo (FNV-1a). Not against forgers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fingerprint(u128);

impl Default for Fingerprint {
    fn default() -> Self {
        Self(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d)
    }
}

impl fmt::Write for Fingerprint {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        const PRIME: u128 = (1 << 88) + 0x13b;
        self.0 = text.bytes().fold(self.0, |hash, byte| (hash ^ u128::from(byte)).wrapping_mul(PRIME));
        Ok(())
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}
