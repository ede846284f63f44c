//! Layer-wise cost model, calibrated time and power models, and the predictor of Joulecast.
//!
//! Pure: no file, clock or device is touched, so every failure is the input's. Nine rooms, each above those that it
//! stands on; read them in this order. Questions over many predictions are a crate above, `joulecast-ask`.

pub mod base;
pub mod net;
pub mod read;
pub mod device;
pub mod kernel;
pub mod law;
pub mod step;
pub mod catalog;
pub mod rows;
