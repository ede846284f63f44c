//! The table of `calibrate sweep`: a network at power limits or core clocks.

use crate::table::{Column, Row, percent_more, with_unit};
use joulecast_model::base::units::{Joules, Seconds};

/// A network's step at a setting.
#[derive(Clone, Debug)]
pub struct Setting {
    /// What was set.
    pub name: String,
    /// Mean core clock, where it was read.
    pub clock_mhz: Option<f64>,
    /// Time of a step.
    pub time: Seconds,
    /// Its energy.
    pub energy: Joules,
    /// Time and energy over those at the default.
    pub over_default: Option<[f64; 2]>,
    /// The same as predicted.
    pub predicted: Option<[f64; 2]>,
}

fn more(ratios: Option<[f64; 2]>, which: usize) -> String {
    ratios.map_or(String::new(), |r| percent_more(r[which]))
}

impl Row for Setting {
    const COLUMNS: &'static [Column<Self>] = &[
        Column::text("setting", |s| s.name.clone()),
        Column::number("MHz", |s| s.clock_mhz.map_or(String::new(), |f| format!("{f:.0}"))),
        Column::number("time", |s| with_unit(s.time.get(), "s")),
        Column::number("power", |s| with_unit((s.energy / s.time).get(), "W")),
        Column::number("energy", |s| with_unit(s.energy.get(), "J")),
        Column::number("EDP", |s| with_unit((s.energy * s.time).get(), "J s")),
        Column::number("time %", |s| more(s.over_default, 0)),
        Column::number("energy %", |s| more(s.over_default, 1)),
        Column::number("predicted time %", |s| more(s.predicted, 0)),
        Column::number("energy %", |s| more(s.predicted, 1)),
    ];
}
