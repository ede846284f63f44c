//! Numbers of calibration files: how they are written, and what they can be.

use std::ops::RangeInclusive;

/// Six significant digits, as TOML wants floats.
pub(super) fn number(value: f64) -> String {
    if value.is_infinite() {
        return "inf".into();
    }
    let rounded: f64 = format!("{value:.5e}").parse().unwrap_or(value);
    format!("{rounded:?}")
}

/// What the numbers of a fit can be, generously: those that are shipped stay well within, and nothing within makes a time or
/// interval that is none.
pub(super) const MOST_US: f64 = 1e6;
pub(super) const MOST_PERCENT: f64 = 1e9;
/// A factor of half a billion.
pub(super) const MOST_LOG_RATIO: f64 = 20.0;
/// What an engine is slower or faster by than the others of its model: a factor of 150.
pub(super) const MOST_ENGINE: f64 = 5.0;
/// A factor of 20,000.
pub(super) const MOST_RESIDUAL: f64 = 10.0;
pub(super) const MOST_COEFFICIENT: f64 = 1e4;
/// Variables are logarithms, shares and counts of few.
pub(super) const MOST_VARIABLE: f64 = 1e3;
/// Means and deviations of products of variables.
pub(super) const MOST_COLUMN: f64 = 1e9;
pub(super) const LEAST_SCALE: f64 = 1e-9;
pub(super) const MOST_INVERSE: f64 = 1e9;

/// From so much below zero to as much above.
pub(super) fn either_side(most: f64) -> RangeInclusive<f64> {
    -most..=most
}

/// Bytes per second in the unit of bandwidths, and most of it.
pub(super) const GB: f64 = 1e9;
pub(super) const MOST_BANDWIDTH: f64 = 1e6;
