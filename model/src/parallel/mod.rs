//! Several GPUs that share a step: each takes its part of the batch, gradients are summed over a ring.

mod interconnect;
mod step;

pub use interconnect::{Interconnect, ring};
pub use step::{Communication, DevicePrediction, Share, combine};
