//! Energy, time, power, EDP and EDS over a clock or power limit, normalised to the default: one panel per network, as
//! Krzywaniak, Czarnul and Proficz (2022) draw them. Predicted curves are lines, measured ones marks.

#[cfg(feature = "figures")]
mod draw;

use joulecast_ask::curve::Relative;

/// What is varied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Axis {
    /// The power limit, W.
    Cap,
    /// The core clock, MHz.
    Clock,
}

/// A network's curves; either list may be empty.
#[derive(Clone, Debug)]
pub struct Panel {
    /// Network, GPU, batch: the panel's title.
    pub title: String,
    /// Predicted points, by rising setting.
    pub predicted: Vec<Relative>,
    /// Measured points, by rising setting.
    pub measured: Vec<Relative>,
}

/// A sheet of panels.
#[derive(Clone, Debug)]
pub struct Curves {
    /// What the sheet shows.
    pub title: String,
    /// What is varied.
    pub axis: Axis,
    /// Weight of the energy-delay sum.
    pub weight: f64,
    /// One per network.
    pub panels: Vec<Panel>,
    /// The command that made it, and what else is to be said under it.
    pub notes: Vec<String>,
}
