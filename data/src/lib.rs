//! The files under `data/` that the programs embed: the name (without extension) and the text of each, in the order of
//! their names, and what programs read at their start [packed](pack) besides. `joulecast_model::catalog` reads them.

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
    /// Its text in the form that [`pack`] says; nothing of a calibration that is yet to be fetched
    /// ([`calibration_bytes`]).
    pub bytes: &'static [u8],
    /// The [`Fingerprint`] of its text.
    pub fingerprint: &'static str,
}

include!(concat!(env!("OUT_DIR"), "/files.rs"));
