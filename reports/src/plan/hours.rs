//! The parts of the day: what the fleet does in each.

use super::AtSetting;
use crate::plan::page::span;
use crate::table::{Table, significant};
use joulecast_model::ask::capacity::{Fleet, Part};

/// What is told of a part of the day.
type Value = fn(&Fleet, &Part) -> f64;

/// Key of the JSON document, and what it is.
pub(super) const FIGURES: [(&str, Value); 5] = [
    ("gpus_busy", |_, p| p.busy),
    ("utilisation", |f, p| p.busy / f.gpus as f64),
    ("facility_w", |_, p| p.facility.get()),
    ("cost_per_h", |_, p| p.cost_per_h),
    ("carbon_g_per_h", |_, p| p.carbon_g_per_h),
];

/// When a part begins, in hours.
pub(super) fn begin(part: usize, parts: usize) -> f64 {
    24.0 * part as f64 / parts as f64
}

fn clock(hours: f64) -> String {
    let minutes = (60.0 * hours).round() as u64;
    format!("{:02}:{:02}", minutes / 60, minutes % 60)
}

/// A row per part of the day of a fleet.
pub(super) fn table(o: &AtSetting, fleet: &Fleet, currency: &str) -> Table {
    let cost = format!("{currency}/h");
    let header = ["from", "requests/s", "batches", "GPUs busy", "busy %", "facility kW", &cost, "kg CO2e/h"];
    let mut table = Table::new(&header, 1);
    for (i, part) in fleet.day.iter().enumerate() {
        let batch = |b: &Option<u64>| b.map_or("-".into(), |b| b.to_string());
        let mut row = vec![
            clock(begin(i, fleet.day.len())),
            significant(part.rate_per_s, 4),
            part.batches.iter().map(batch).collect::<Vec<_>>().join(", "),
        ];
        let by = [1.0, 0.01, 1e3, 1.0, 1e3];
        row.extend(FIGURES.iter().zip(by).map(|((_, of), by)| span(o.part(i, of), by)));
        table.row(row);
    }
    table
}
