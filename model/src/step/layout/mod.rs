//! A language model served on several GPUs: its step is the kernels of a GPU of each stage and what the GPUs exchange.
//!
//! [`Deployment::step`] is the one place that gives time, power, energy and memory of such a step; [`crate::step::generation`]
//! has steps over new and cached tokens (`step_on`) and whole answers (`predict_on`).

mod deployment;
mod imbalance;
mod stage;

pub use deployment::Deployment;

use crate::base::units::{Joules, Seconds};
use crate::net::network::ShapingError;
use crate::net::share::{Layout, ShareError};
use crate::step::memory::MemoryFootprint;
use crate::step::predictor::PredictError;

/// Which steps come before and after one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// None: the stages of a pipeline are empty before it and after it.
    Alone,
    /// Others like it, as tokens follow tokens: a stage takes the next microbatch as soon as it is free. One step then takes what
    /// lies between the ends of two.
    Steady,
}

/// How a step lies on its GPUs.
#[derive(Clone, Debug, PartialEq)]
pub struct LayoutOf {
    /// How many GPUs share what.
    pub layout: Layout,
    /// What joins them.
    pub interconnect: String,
    /// Samples that a group of GPUs takes through its stages at once.
    pub micro: u64,
    /// How often, one after the other.
    pub microbatches: u64,
    /// Share of the GPUs' time in which their stage has nothing to do.
    pub bubble: f64,
    /// What a sample's way through all stages exchanges: a part of the step's time, of several microbatches a part of each.
    pub communication: Seconds,
    /// What all GPUs draw meanwhile.
    pub communication_energy: Joules,
    /// The stages, in order.
    pub stages: Vec<StageOf>,
}

/// A stage of a pipeline; each of its GPUs has and does the same.
#[derive(Clone, Debug, PartialEq)]
pub struct StageOf {
    /// Time of a microbatch, exchanges among it.
    pub time: Seconds,
    /// Learned parameters on each GPU.
    pub parameters: u64,
    /// Memory of each GPU.
    pub memory: MemoryFootprint,
}

/// Why a step cannot be predicted on several GPUs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LayoutError {
    /// It cannot be shared so.
    #[error(transparent)]
    Share(#[from] ShareError),
    /// A share cannot be given shapes.
    #[error(transparent)]
    Shape(#[from] ShapingError),
    /// A share cannot be predicted.
    #[error(transparent)]
    Predict(#[from] PredictError),
    /// Samples are not as many for every group of GPUs.
    #[error("a batch of {batch} does not divide among the {groups} groups of GPUs that take samples of their own")]
    Groups {
        /// Samples.
        batch: u64,
        /// Groups.
        groups: u64,
    },
}
