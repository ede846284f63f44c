//! The only crate that touches a GPU: what calibration needs from one, as traits, with their implementations.
//!
//! Vendor libraries are found and opened at run time; where one is missing, the call says so as a [`DeviceError`].

mod error;
pub mod runner;
pub mod meter;
pub mod clocks;
pub mod launch;
pub mod streaming;
pub mod reference;
pub mod operands;
pub mod cuda;
pub mod measure;
pub mod fake;
pub mod energy;
pub mod nvml;
pub mod settings;

pub use clocks::ClockControl;
pub use error::DeviceError;
pub use meter::PowerMeter;
pub use runner::LayerRunner;
