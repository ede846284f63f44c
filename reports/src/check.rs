//! The tables of `calibrate check`.

use crate::table::{Column, Row};
use joulecast_model::base::precision::{Phase, Precision};
use joulecast_model::kernel::setting::Layout;

/// A tensor that a kernel computes otherwise than the reference, or a kernel that did not run.
#[derive(Clone, Debug)]
pub struct Unlike {
    /// Layer kind.
    pub kind: &'static str,
    /// Phase.
    pub phase: Phase,
    /// Precision.
    pub precision: Precision,
    /// Layout.
    pub layout: Layout,
    /// Mode and algorithm.
    pub mode: String,
    /// The tensor, or why there is none.
    pub what: String,
    /// The largest error over what is tolerated.
    pub error: String,
}

impl Row for Unlike {
    const COLUMNS: &'static [Column<Self>] = &[
        Column::text("kind", |u| u.kind.into()),
        Column::text("phase", |u| u.phase.to_string()),
        Column::text("precision", |u| u.precision.to_string()),
        Column::text("layout", |u| u.layout.to_string()),
        Column::text("mode", |u| u.mode.clone()),
        Column::text("what", |u| u.what.clone()),
        Column::number("error / tolerance", |u| u.error.clone()),
    ];
}

/// A rate that the GPU reaches at best.
#[derive(Clone, Debug)]
pub struct Ceiling {
    /// What runs.
    pub name: String,
    /// The rate.
    pub value: String,
    /// Its unit.
    pub unit: &'static str,
}

impl Row for Ceiling {
    const COLUMNS: &'static [Column<Self>] = &[
        Column::text("ceiling", |c| c.name.clone()),
        Column::number("value", |c| c.value.clone()),
        Column::number("unit", |c| c.unit.into()),
    ];
}

/// How near a bandwidth-bound kernel comes to the copy.
#[derive(Clone, Debug)]
pub struct Bandwidth {
    /// Layer kind.
    pub kind: &'static str,
    /// Phase.
    pub phase: Phase,
    /// Mode, or the optimizer of an update.
    pub mode: String,
    /// Precision.
    pub precision: Precision,
    /// Layout.
    pub layout: Layout,
    /// Its traffic over its time, 10^12 bytes per second.
    pub tb_per_s: f64,
    /// That over the copy's.
    pub of_copy: f64,
}

impl Row for Bandwidth {
    const COLUMNS: &'static [Column<Self>] = &[
        Column::text("kind", |b| b.kind.into()),
        Column::text("phase", |b| b.phase.to_string()),
        Column::text("mode", |b| b.mode.clone()),
        Column::text("precision", |b| b.precision.to_string()),
        Column::text("layout", |b| b.layout.to_string()),
        Column::number("TB/s", |b| format!("{:.2}", b.tb_per_s)),
        Column::number("of the copy", |b| format!("{:.0} %", 100.0 * b.of_copy)),
    ];
}
