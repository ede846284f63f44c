//! The parts of the day: what the fleet does in each.

use super::cells::span;
use super::values::{AtSetting, OF_PARTS, begin};
use crate::table::{Table, significant};
use joulecast_ask::capacity::Fleet;

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
        row.extend(OF_PARTS.iter().zip(by).map(|((_, of), by)| span(o.part(i, of), by)));
        table.row(row);
    }
    table
}
