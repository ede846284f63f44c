//! The files under `data/` that the programs embed: the name (without extension) and the text of each, in the order of
//! their names, and what programs read at their start [packed](pack) besides. `joulecast_model::catalog` reads them.

#[cfg(any(test, feature = "dense"))]
mod dense;
mod fetched;
mod fingerprint;
pub mod pack;

pub use fetched::{calibration_bytes, give_calibration};
pub use fingerprint::Fingerprint;

/// A file in its packed form.
#[derive(Clone, Copy, Debug)]
pub struct Packed {
    /// Its name, without extension.
    pub name: &'static str,
    /// Its text in the form that [`pack`] says; of a calibration what [`calibration_bytes`] makes that of, nothing where it is
    /// yet to be fetched.
    pub bytes: &'static [u8],
    /// The [`Fingerprint`] of its text.
    pub fingerprint: &'static str,
}

include!(concat!(env!("OUT_DIR"), "/files.rs"));

/// By which data of two builds are told apart: the [`Fingerprint`] of all texts that programs read at their start, 12 digits of
/// it.
pub fn version() -> String {
    use std::fmt::Write as _;
    let mut all = Fingerprint::default();
    let tables = [PACKED_NETS, PACKED_GPUS, PACKED_CALIBRATIONS, PACKED_FRAMEWORKS, PACKED_INTERCONNECTS];
    for file in tables.into_iter().flatten().chain([&PACKED_CUDNN]) {
        let _ = all.write_str(file.name).and_then(|()| all.write_str(file.fingerprint));
    }
    let mut text = all.to_string();
    text.truncate(12);
    text
}

#[cfg(test)]
mod tests {
    #[test]
    fn data_have_a_version_of_twelve_digits() {
        let version = super::version();
        assert!(version.len() == 12 && version.bytes().all(|b| b.is_ascii_hexdigit()), "{version}");
        assert_eq!(version, super::version());
    }
}
