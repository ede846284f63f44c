//! What a network computes of its learned values before a sample meets them: weights that are standardized, tables of positions
//! that a small network makes. Frameworks that run modules as they are written do that in every step, whatever its batch.

use crate::base::name::Name;
use crate::base::precision::Mode;
use crate::net::case::LayerCase;
use crate::net::layer::Layer;

/// A layer over learned values: all of its input is one sample.
#[derive(Clone, Debug, PartialEq)]
pub struct Derived {
    /// Unique among them.
    pub name: Name,
    /// What it computes, on which shapes.
    pub case: LayerCase,
    /// Whether training wants the gradient of what it reads: not of tables that nothing learned.
    pub wants_gradient: bool,
}

/// What is said of a network that computes `count` things of its learned values alone.
pub fn each_step(count: usize) -> String {
    format!("{count} operations on learned values alone run once in every step where modules run as they are written")
}

/// How one of them runs in a step: as in training where it takes statistics, which norms over weights do in inference, too.
pub(crate) fn mode_of(layer: &Layer, step: Mode) -> Mode {
    if matches!(layer, Layer::BatchNorm(_)) { Mode::Training } else { step }
}
