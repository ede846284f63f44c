//! Layer-wise cost model, calibrated time and power models, and the predictor of Joulecast.
//!
//! Pure: no file, clock or device is touched, so every failure is the input's. Read the modules in this order.

pub mod accuracy;
pub mod calibration;
pub mod catalog;
pub mod cost;
pub mod counting;
pub mod features;
pub mod gpu;
pub mod import;
pub mod layer;
pub mod measurement;
pub mod network;
pub mod precision;
pub mod shape;
pub mod splits;
pub mod text;
pub mod units;
