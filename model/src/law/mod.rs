//! What was fitted: models of time per kind of kernel, laws of power, and the files that hold them.

pub mod choice;
pub mod calibration;
pub mod carry;
pub(crate) mod fewer_bits;
pub mod lookup;
pub mod time;
pub(crate) mod batches;
pub mod power;
