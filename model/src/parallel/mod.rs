//! Several GPUs that share a step: each takes its part of the batch, gradients are summed over a ring.

mod fabric;
mod interconnect;
mod step;

pub use fabric::Fabric;
pub use interconnect::{Interconnect, ring};
pub use step::{Communication, DevicePrediction, Share, combine};
