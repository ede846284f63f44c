//! `calibrate status`: what a dataset holds and how good it is, `status/1`.

use crate::export::{self, Export, ExportError, Format};
use crate::table::{Column, Row, Table, significant};
use joulecast_model::base::precision::Precision;
use serde::Serialize;
use std::collections::BTreeMap;

/// A summary of a dataset, `status/1`.
#[derive(Clone, Debug, Serialize)]
pub struct Status {
    /// The format.
    pub schema: &'static str,
    /// All rows.
    pub rows: usize,
    /// Distinct trials.
    pub trials: usize,
    /// Rows by what they measured.
    pub groups: Vec<Group>,
    /// Rows per reason not to use them.
    pub flags: Vec<Share>,
    /// p90/p10 - 1 of a burst's blocks.
    pub spread: Option<Quantiles>,
    /// Power by the counter against the integral of instantaneous power.
    pub cross_check: Option<CrossCheck>,
    /// Repeats against each other.
    pub repeats: Option<Repeats>,
    /// The same of repeats on different boards of a GPU.
    pub repeats_across_boards: Option<Repeats>,
    /// Bursts and their sustained runs.
    pub clocks: Option<Clocks>,
    /// The best that was seen.
    pub ceilings: Vec<Ceiling>,
    /// How long it took, where runs were recorded.
    pub runs: Option<Runs>,
    /// Skipped trials per reason.
    pub skipped: BTreeMap<&'static str, usize>,
}

/// Rows of one kind, phase and precision on one GPU from one source.
#[derive(Clone, Debug, Serialize)]
pub struct Group {
    /// Name in `data/gpus`.
    pub gpu: String,
    /// Layer kind.
    pub kind: String,
    /// Phase.
    pub phase: String,
    /// Precision.
    pub precision: String,
    /// Source.
    pub source: String,
    /// Rows that are not of a sustained run.
    pub time_rows: usize,
    /// Rows with an energy.
    pub energy_rows: usize,
    /// Flagged rows.
    pub flagged: usize,
}

impl Row for Group {
    const COLUMNS: &'static [Column<Self>] = &[
        Column::text("gpu", |g| g.gpu.clone()),
        Column::text("kind", |g| g.kind.clone()),
        Column::text("phase", |g| g.phase.clone()),
        Column::text("precision", |g| g.precision.clone()),
        Column::text("source", |g| g.source.clone()),
        Column::number("time rows", |g| g.time_rows.to_string()),
        Column::number("energy rows", |g| g.energy_rows.to_string()),
        Column::number("flagged", |g| g.flagged.to_string()),
    ];
}

/// Rows with a flag.
#[derive(Clone, Debug, Serialize)]
pub struct Share {
    /// The flag.
    pub flag: String,
    /// Rows with it.
    pub rows: usize,
    /// Of all rows.
    pub share: f64,
}

impl Row for Share {
    const COLUMNS: &'static [Column<Self>] = &[
        Column::text("flag", |f| f.flag.clone()),
        Column::number("rows", |f| f.rows.to_string()),
        Column::number("share", |f| percent(f.share)),
    ];
}

/// Quantiles over rows.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Quantiles {
    /// Rows.
    pub rows: usize,
    /// Median.
    pub p50: f64,
    /// 90 %.
    pub p90: f64,
    /// 99 %.
    pub p99: f64,
}

/// How well two readings of power agree.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct CrossCheck {
    /// Rows with both.
    pub rows: usize,
    /// Share within 2 %.
    pub within_2_percent: f64,
    /// Median of the absolute relative difference.
    pub median: f64,
    /// Its largest.
    pub worst: f64,
}

/// Medians of the absolute relative difference between a trial's first two repeats.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Repeats {
    /// Pairs of rows.
    pub pairs: usize,
    /// Of time.
    pub time: f64,
    /// Of energy per execution, where both have one.
    pub energy: Option<f64>,
}

/// Bursts with a sustained run.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Clocks {
    /// Pairs whose clocks are known.
    pub pairs: usize,
    /// Those whose clocks differ by at least 10 %.
    pub differing: usize,
}

/// The best rates seen on a GPU in a precision.
#[derive(Clone, Debug, Serialize)]
pub struct Ceiling {
    /// Name in `data/gpus`.
    pub gpu: String,
    /// Source.
    pub source: String,
    /// Precision.
    pub precision: Precision,
    /// Operations of the direct algorithm over time, in 10^12 per second; Winograd's may exceed the peak.
    pub tflop_per_s: f64,
    /// Traffic over time, in 10^12 bytes per second, of rows that move more than any cache holds.
    pub tb_per_s: Option<f64>,
}

impl Row for Ceiling {
    const COLUMNS: &'static [Column<Self>] = &[
        Column::text("gpu", |c| c.gpu.clone()),
        Column::text("source", |c| c.source.clone()),
        Column::text("precision", |c| c.precision.to_string()),
        Column::number("best TFLOP/s", |c| significant(c.tflop_per_s, 4)),
        Column::number("best TB/s beyond the cache", |c| c.tb_per_s.map_or(String::new(), |b| significant(b, 3))),
    ];
}

/// What the recorded runs took.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Runs {
    /// Runs.
    pub count: usize,
    /// Their length, in the device's time.
    pub gpu_minutes: f64,
    /// Rows written per minute of it.
    pub rows_per_minute: f64,
}

impl Export for Status {
    const FORMS: &'static [(Format, &'static str)] =
        &[(Format::Table, "Aligned text"), (Format::Markdown, "For a report"), (Format::Json, "The document status/1")];

    fn export(&self, format: Format) -> Result<String, ExportError> {
        let bullet = match format {
            Format::Json => return export::json(self),
            Format::Markdown => "- ",
            _ => "",
        };
        let further = [Table::of(&self.ceilings), Table::of(&self.flags)];
        let tables = std::iter::once(Table::of(&self.groups)).chain(further.into_iter().filter(|t| !t.is_empty()));
        let mut parts = tables.map(|table| table.export(format)).collect::<Result<Vec<_>, _>>()?;
        parts.push(lines(self).iter().map(|line| format!("{bullet}{line}\n")).collect());
        Ok(parts.join("\n"))
    }
}

fn percent(share: f64) -> String {
    format!("{:.2} %", share * 100.0)
}

/// One line per aspect of quality that the rows tell something about.
fn lines(status: &Status) -> Vec<String> {
    let flagged: usize = status.groups.iter().map(|g| g.flagged).sum();
    let mut lines = vec![format!("{} rows of {} trials, {flagged} flagged", status.rows, status.trials)];
    if let Some(s) = status.spread {
        let [p50, p90, p99] = [s.p50, s.p90, s.p99].map(percent);
        lines.push(format!("spread of a burst's blocks (p90/p10 - 1): median {p50}, p90 {p90}, p99 {p99}"));
    }
    if let Some(c) = status.cross_check {
        let [within, median, worst] = [c.within_2_percent, c.median, c.worst].map(percent);
        lines.push(format!(
            "energy counter against integral of power: {within} of {} rows within 2 %, median {median}, worst {worst}",
            c.rows
        ));
    }
    for (repeats, boards) in [(status.repeats, "on one board"), (status.repeats_across_boards, "on different boards")] {
        let Some(r) = repeats else { continue };
        let energy = r.energy.map_or(String::new(), |e| format!(", energy {}", percent(e)));
        let time = percent(r.time);
        lines.push(format!("repeats {boards}: median difference of {} pairs: time {time}{energy}", r.pairs));
    }
    if let Some(c) = status.clocks {
        lines.push(format!(
            "clocks of burst and sustained run differ by 10 % or more in {} of {} pairs",
            c.differing, c.pairs
        ));
    }
    if let Some(r) = status.runs {
        let (minutes, rate) = (significant(r.gpu_minutes, 3), significant(r.rows_per_minute, 3));
        lines.push(format!("{} runs, {minutes} GPU minutes, {rate} rows per minute", r.count));
    }
    if !status.skipped.is_empty() {
        let list: Vec<String> = status.skipped.iter().map(|(reason, n)| format!("{n} {reason}")).collect();
        lines.push(format!("skipped trials: {}", list.join(", ")));
    }
    lines
}
