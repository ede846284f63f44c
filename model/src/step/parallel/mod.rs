//! Several GPUs that share a step: each takes its part of the batch, gradients are summed over a ring.

mod fabric;
mod step;

pub use fabric::Fabric;
pub use step::{Communication, DevicePrediction, Share, combine};
