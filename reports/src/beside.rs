//! The table of `calibrate all`: the shipped calibration and a fit of own rows, on these rows.

use crate::accuracy::percent;
use crate::table::{Column, Row};
use serde::{Deserialize, Serialize};

/// How far a calibration is off, in percent.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Score {
    /// Mean absolute percentage error.
    pub mape: f64,
    /// Median absolute percentage error.
    pub median: f64,
    /// Mean signed percentage error: positive where predictions are too high.
    pub bias: f64,
    /// Percent of the rows within their 90 % interval; `None` where nothing has one.
    pub held: Option<f64>,
}

/// Some rows by both.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// Which rows.
    pub rows_of: String,
    /// How many.
    pub rows: usize,
    /// By the shipped calibration.
    pub before: Score,
    /// By fits that had not seen their shapes.
    pub after: Score,
}

fn held(score: &Score) -> String {
    score.held.map_or("-".into(), |held| format!("{held:.0}"))
}

impl Row for Line {
    const COLUMNS: &'static [Column<Self>] = &[
        Column::text("rows of", |l| l.rows_of.clone()),
        Column::number("rows", |l| l.rows.to_string()),
        Column::number("shipped: mean", |l| percent(l.before.mape)),
        Column::number("median", |l| percent(l.before.median)),
        Column::number("held", |l| held(&l.before)),
        Column::number("own: mean", |l| percent(l.after.mape)),
        Column::number("median", |l| percent(l.after.median)),
        Column::number("held", |l| held(&l.after)),
    ];
}
