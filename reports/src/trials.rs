//! The tables of trials to measure: of `calibrate plan` and `calibrate detect`.

use crate::table::{Column, Row};

/// Trials of a stratum.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stratum {
    /// Its name.
    pub name: String,
    /// Trials of time alone.
    pub time: usize,
    /// Trials of time and energy.
    pub energy: usize,
    /// Those whose operands lie in memory.
    pub cold: usize,
    /// Those of one sample.
    pub single: usize,
}

impl Stratum {
    /// One without trials yet.
    pub fn new(name: &str) -> Self {
        Self { name: name.into(), ..Self::default() }
    }
}

fn some(count: usize) -> String {
    if count == 0 { String::new() } else { count.to_string() }
}

impl Row for Stratum {
    const COLUMNS: &'static [Column<Self>] = &[
        Column::text("stratum", |s| s.name.clone()),
        Column::number("time", |s| some(s.time)),
        Column::number("energy", |s| some(s.energy)),
        Column::number("cold", |s| some(s.cold)),
        Column::number("batch 1", |s| some(s.single)),
    ];
}

/// What a calibration of one's own takes.
#[derive(Clone, Debug, PartialEq)]
pub struct Cost {
    /// How much of the recipe.
    pub level: &'static str,
    /// Rows that it gives.
    pub rows: usize,
    /// Those with an energy.
    pub energies: usize,
    /// How long it takes.
    pub minutes: f64,
}

impl Row for Cost {
    const COLUMNS: &'static [Column<Self>] = &[
        Column::text("calibration of its own", |c| c.level.into()),
        Column::number("rows", |c| c.rows.to_string()),
        Column::number("with energy", |c| c.energies.to_string()),
        Column::number("minutes", |c| format!("{:.0}", c.minutes)),
        Column::text("command", |c| format!("calibrate run --plan {} --device cuda --dataset rows", c.level)),
    ];
}
