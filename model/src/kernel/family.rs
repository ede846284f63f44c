//! The two families of kernels.

pub use crate::net::layer::Family;

use crate::base::precision::Phase;
use crate::net::layer::Layer;

impl Family {
    /// The family of a layer's kernels in a phase.
    pub fn of(layer: &Layer, phase: Phase) -> Self {
        match layer {
            _ if phase == Phase::Update => Self::Stream,
            Layer::Attention(attention) if attention.decodes() => Self::Stream,
            _ => layer.row().family,
        }
    }
}
