//! Calibrations that come after the program did: with the feature `fetched` only that over all chips is embedded, and
//! others are given when they have been fetched. Most of what is embedded is one of them; with the feature `dense` each is
//! unpacked when it is first wanted.

use crate::{PACKED_CALIBRATIONS, Packed};
use std::sync::{PoisonError, RwLock};

/// Which form packed files have ([`crate::pack`]): a number more with each change of it.
const FORM: u32 = 4;

impl Packed {
    /// What the file is called where it is fetched from. Another text or form has another name, so that nobody who kept one is
    /// given it for the other.
    pub fn stored_as(&self) -> String {
        format!("{}-{}-{FORM}.bin", self.name, self.fingerprint)
    }
}

static GIVEN: RwLock<Vec<(&str, &[u8])>> = RwLock::new(Vec::new());

/// The packed form of a shipped calibration; `None` where it was not embedded and has not been given yet.
pub fn calibration_bytes(file: &Packed) -> Option<&'static [u8]> {
    #[cfg(not(feature = "dense"))]
    if !file.bytes.is_empty() {
        return Some(file.bytes);
    }
    // A thread that panicked left whole entries.
    let known =
        |given: &[(&str, &'static [u8])]| given.iter().find(|(name, _)| *name == file.name).map(|(_, bytes)| *bytes);
    let there = known(&GIVEN.read().unwrap_or_else(PoisonError::into_inner));
    #[cfg(feature = "dense")]
    if there.is_none() && !file.bytes.is_empty() {
        let mut given = GIVEN.write().unwrap_or_else(PoisonError::into_inner);
        // Another thread may have been faster.
        return known(&given).or_else(|| {
            let bytes: &[u8] = crate::dense::packed(file.bytes)?.leak();
            given.push((file.name, bytes));
            Some(bytes)
        });
    }
    there
}

/// Gives the packed form of a shipped calibration, for the rest of the program's life. Whether it was wanted: it is one of
/// the shipped ones and was not there yet.
pub fn give_calibration(name: &str, bytes: Vec<u8>) -> bool {
    match PACKED_CALIBRATIONS.iter().find(|file| file.name == name) {
        Some(file) if calibration_bytes(file).is_none() && !bytes.is_empty() => {
            GIVEN.write().unwrap_or_else(PoisonError::into_inner).push((file.name, bytes.leak()));
            true
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_is_not_given_again() {
        let file = &PACKED_CALIBRATIONS[0];
        assert_eq!(calibration_bytes(file).is_some(), !file.bytes.is_empty());
        assert!(!give_calibration("none", vec![1]) && !give_calibration("all_chips", vec![1]));
    }
}
