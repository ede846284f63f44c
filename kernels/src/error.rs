//! Why a device could not do what was asked.

/// Why a device could not do what was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeviceError {
    /// A library or the device itself is not there.
    #[error("{what} is not available: {why}")]
    Unavailable {
        /// Library or device.
        what: String,
        /// In words.
        why: String,
    },
    /// The device cannot run this layer in this way.
    #[error("cannot run {what}: {why}")]
    Unsupported {
        /// Layer, phase or precision.
        what: String,
        /// In words.
        why: String,
    },
    /// The operands do not fit in the device's memory.
    #[error("needs {needed} bytes of device memory, {free} are free")]
    OutOfMemory {
        /// Bytes asked for.
        needed: u64,
        /// Bytes there.
        free: u64,
    },
    /// Not allowed to change this setting; nothing has changed.
    #[error("not permitted to set {0}")]
    NotPermitted(String),
    /// A setting was accepted but reads back differently.
    #[error("{what}: asked for {asked}, reads back {found}")]
    NotApplied {
        /// Which setting.
        what: String,
        /// Value and unit.
        asked: String,
        /// Value and unit.
        found: String,
    },
    /// A call into a vendor library failed.
    #[error("{call} failed: {why}")]
    Call {
        /// The function.
        call: String,
        /// What it said.
        why: String,
    },
    /// The device stopped answering.
    #[error("device lost: {0}")]
    Lost(String),
}
