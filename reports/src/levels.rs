//! The table of `calibrate validate --levels`: how far off fits are that know the trials of a level alone.

use crate::table::{Column, Row};
use serde::Serialize;

/// Kernels of one kind, phase and precision.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Learned {
    /// Which.
    pub layer: String,
    /// Rows that are judged.
    pub rows: usize,
    /// Of the levels quick, standard and reference: rows that were learned from, and the MAPE where there is one.
    pub from: [(usize, Option<f64>); 3],
}

impl Learned {
    fn error(&self, level: usize) -> String {
        self.from[level].1.map_or("-".into(), |mape| format!("{mape:.1}"))
    }
}

impl Row for Learned {
    const COLUMNS: &'static [Column<Self>] = &[
        Column::text("layer", |l| l.layer.clone()),
        Column::number("rows", |l| l.rows.to_string()),
        Column::number("quick: rows", |l| l.from[0].0.to_string()),
        Column::number("MAPE %", |l| l.error(0)),
        Column::number("standard: rows", |l| l.from[1].0.to_string()),
        Column::number("MAPE %", |l| l.error(1)),
        Column::number("reference: rows", |l| l.from[2].0.to_string()),
        Column::number("MAPE %", |l| l.error(2)),
    ];
}
