//! The tables of `calibrate validate --leave-one-chip-out`.

use crate::table::Table;
use serde::Serialize;
use std::collections::BTreeSet;

/// Accuracy of some rows, in percent.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Score {
    /// Mean absolute percentage error.
    pub mape: f64,
    /// Median absolute percentage error.
    pub median: f64,
    /// Share of the rows whose time the 90 % interval holds.
    pub coverage: f64,
}

impl Score {
    /// Means over draws; `None` without any.
    pub fn mean(scores: impl Iterator<Item = Self>) -> Option<Self> {
        let scores: Vec<Self> = scores.collect();
        let n = scores.len() as f64;
        let mean = |value: fn(&Self) -> f64| scores.iter().map(value).sum::<f64>() / n;
        (!scores.is_empty()).then(|| Self { mape: mean(|s| s.mape), median: mean(|s| s.median), coverage: mean(|s| s.coverage) })
    }
}

/// A chip that was left out: one kind, phase and precision.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Line {
    /// Chip.
    pub chip: String,
    /// Layer kind.
    pub kind: String,
    /// Phase.
    pub phase: String,
    /// Precision.
    pub precision: String,
    /// Rows of the chip.
    pub rows: usize,
    /// MAPE of max(operations / peak, bytes / bandwidth).
    pub roofline: f64,
    /// MAPE of the roofline with the efficiency that the other chips reach.
    pub constant: f64,
    /// MAPE of the model of the nearest chip that has rows, scaled by peak, bandwidth and multiprocessors.
    pub nearest: Option<f64>,
    /// The models of all other chips.
    pub zero: Score,
    /// With so many own rows of all kinds together.
    pub few: Vec<(usize, Score)>,
}

impl Line {
    fn few(&self, rows: usize) -> Option<&Score> {
        self.few.iter().find(|(n, _)| *n == rows).map(|(_, score)| score)
    }
}

/// Kinds whose means are the headline.
const MAIN: [&str; 3] = ["conv2d", "linear", "matmul"];

fn levels(lines: &[Line]) -> BTreeSet<usize> {
    lines.iter().flat_map(|l| l.few.iter().map(|(n, _)| *n)).collect()
}

fn one(value: f64) -> String {
    if value.abs() < 1000.0 { format!("{value:.1}") } else { format!("{value:.1e}") }
}

fn maybe(value: Option<f64>) -> String {
    value.map_or("-".to_string(), one)
}

/// Every chip, kind, phase and precision.
pub fn table(lines: &[Line]) -> Table {
    let levels = levels(lines);
    let header: Vec<String> = ["chip", "kind", "phase", "precision", "rows", "roofline", "constant", "nearest chip"]
        .into_iter()
        .chain(["no own row", "median", "held %"])
        .map(str::to_string)
        .chain(levels.iter().flat_map(|n| [format!("{n} rows"), "median".into(), "held %".into()]))
        .collect();
    let mut table = Table::new(&header.iter().map(String::as_str).collect::<Vec<_>>(), 4);
    for l in lines {
        let mut cells = vec![l.chip.clone(), l.kind.clone(), l.phase.clone(), l.precision.clone(), l.rows.to_string()];
        cells.extend([one(l.roofline), one(l.constant), maybe(l.nearest)]);
        let scores = std::iter::once(Some(&l.zero)).chain(levels.iter().map(|&n| l.few(n)));
        for score in scores {
            cells.extend([maybe(score.map(|s| s.mape)), maybe(score.map(|s| s.median)), maybe(score.map(|s| s.coverage))]);
        }
        table.row(cells);
    }
    table
}

/// Means over chips of one phase's lines, by kind and precision; the last rows are means over chips and the main kinds.
pub fn means(lines: &[Line]) -> Table {
    let levels = levels(lines);
    let header: Vec<String> = ["kind", "phase", "precision", "chips", "roofline", "constant", "nearest chip", "no own row", "held %"]
        .into_iter()
        .map(str::to_string)
        .chain(levels.iter().flat_map(|n| [format!("{n} rows"), "held %".into()]))
        .collect();
    let mut table = Table::new(&header.iter().map(String::as_str).collect::<Vec<_>>(), 3);
    let groups: BTreeSet<(&str, &str, &str)> =
        lines.iter().map(|l| (l.kind.as_str(), l.phase.as_str(), l.precision.as_str())).collect();
    for (kind, phase, precision) in groups {
        let members = |l: &&Line| (l.kind.as_str(), l.phase.as_str(), l.precision.as_str()) == (kind, phase, precision);
        mean_row(&mut table, [kind, phase, precision], &lines.iter().filter(members).collect::<Vec<_>>(), &levels);
    }
    let main = |l: &&Line| MAIN.contains(&l.kind.as_str()) && l.phase == "forward";
    let full: Vec<&Line> = lines.iter().filter(main).filter(|l| l.precision == "fp32").collect();
    let reduced: Vec<&Line> = lines.iter().filter(main).filter(|l| l.precision != "fp32").collect();
    mean_row(&mut table, ["main kinds", "forward", "fp32"], &full, &levels);
    let newest = |l: &&&Line| l.chip != "GH100";
    let older: Vec<&Line> = full.iter().filter(newest).copied().collect();
    mean_row(&mut table, ["main kinds but GH100", "forward", "fp32"], &older, &levels);
    mean_row(&mut table, ["main kinds", "forward", "others"], &reduced, &levels);
    table
}

fn mean_row(table: &mut Table, labels: [&str; 3], lines: &[&Line], levels: &BTreeSet<usize>) {
    let mean = |values: Vec<f64>| (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64);
    let of = |value: &dyn Fn(&Line) -> Option<f64>| maybe(mean(lines.iter().filter_map(|l| value(l)).collect()));
    let chips: BTreeSet<&str> = lines.iter().map(|l| l.chip.as_str()).collect();
    let mut cells: Vec<String> = labels.iter().map(|l| l.to_string()).chain([chips.len().to_string()]).collect();
    cells.extend([of(&|l| Some(l.roofline)), of(&|l| Some(l.constant)), of(&|l| l.nearest)]);
    cells.extend([of(&|l| Some(l.zero.mape)), of(&|l| Some(l.zero.coverage))]);
    for &n in levels {
        cells.extend([of(&|l| Some(l.few(n)?.mape)), of(&|l| Some(l.few(n)?.coverage))]);
    }
    table.row(cells);
}
