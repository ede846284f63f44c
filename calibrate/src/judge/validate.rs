//! `calibrate validate --layers`: held-out accuracy of layer times, beside the comparators.

use crate::fit::folds::grouped;
use crate::fit::neuralpower::{self, Form};
use crate::fit::polynomial::{Options, held};
use crate::fit::recipe::fit_tasks;
use crate::fit::task::tasks;
use crate::rows::prepare::Row;
use anyhow::{Context, Result};
use joulecast_model::base::accuracy::{Accuracy, wilson};
use joulecast_model::base::precision::{Phase, Precision};
use joulecast_model::base::units::Seconds;
use joulecast_model::kernel::key::ModelKey;
use joulecast_model::law::calibration::Tier;
use joulecast_reports::accuracy::{Coverage, Line, Spread};
use rayon::prelude::*;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::Path;

/// Which rows a line of the table is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Group {
    chip: String,
    kind: &'static str,
    phase: Phase,
    precision: Precision,
    framework: Option<&'static str>,
}

/// What fits predict for rows that they have not seen, by seed of the folds.
#[derive(Debug)]
pub struct HeldOut<'a> {
    /// Seconds by row, for every seed.
    pub predicted: Vec<HashMap<&'a str, f64>>,
    /// Rows within the 90 % interval of the first seed's other folds.
    pub within: HashSet<&'a str>,
}

/// Predicts every row by fits without its fold. `all` rows, those of other chips among them, are what fits of few rows
/// may borrow from.
///
/// # Errors
/// When a fit fails.
pub fn held_out<'a>(rows: &'a [Row], all: &[Row], options: &Options, seeds: u64) -> Result<HeldOut<'a>> {
    let tasks = tasks(rows);
    let mut predicted: Vec<HashMap<&str, f64>> = Vec::new();
    let mut within: HashSet<&str> = HashSet::new();
    for seed in 0..seeds.max(1) {
        let fitted = fit_tasks(&tasks, all, &Options { seed: options.seed + seed, ..*options })?;
        let mut by_row = HashMap::new();
        for (task, fit) in fitted.iter().filter(|(task, _)| task.model != ModelKey::Stream) {
            if seed == 0 {
                let held = held(&tasks[*task], &fit.held_out, options);
                within.extend(tasks[*task].iter().zip(held).filter(|(_, held)| *held).map(|(r, _)| r.row_id.as_str()));
            }
            for (row, time) in tasks[*task].iter().zip(&fit.held_out) {
                by_row.insert(row.row_id.as_str(), time.get());
            }
        }
        predicted.push(by_row);
    }
    Ok(HeldOut { predicted, within })
}

/// Writes every predicted row as CSV: what ran where, its sizes (batch, inputs, result), and its time as measured and as the
/// first seed's other folds predict it, in seconds.
///
/// # Errors
/// When the file cannot be written.
pub fn write(rows: &[Row], held_out: &HeldOut, path: &Path) -> Result<()> {
    let shown = || path.display().to_string();
    let mut file = csv::Writer::from_path(path).with_context(shown)?;
    let header =
        ["gpu", "source", "kind", "framework", "phase", "precision", "sizes", "measured_s", "predicted_s", "held"];
    file.write_record(header).with_context(shown)?;
    for row in rows {
        let Some(predicted) = held_out.predicted[0].get(row.row_id.as_str()) else { continue };
        let sizes: Vec<String> = row.raw.sizes.iter().map(f64::to_string).collect();
        let held = held_out.within.contains(row.row_id.as_str());
        let cells = [
            row.board.to_string(),
            row.source.to_string(),
            row.kind.to_string(),
            row.framework.unwrap_or_default().to_string(),
            row.phase.to_string(),
            row.precision.to_string(),
            sizes.join(" "),
            format!("{:e}", row.time.get()),
            format!("{predicted:e}"),
            held.to_string(),
        ];
        file.write_record(cells).with_context(shown)?;
    }
    file.flush().with_context(shown)
}

/// How many of some rows are in their intervals, in percent, with Wilson's 95 % interval of that: a shape counts once.
struct Held {
    shapes: usize,
    percent: f64,
    low: f64,
    high: f64,
}

impl Held {
    fn of(rows: &[&Row], within: &HashSet<&str>) -> Self {
        let shapes = rows.iter().map(|r| r.key.as_str()).collect::<HashSet<_>>().len();
        let held = rows.iter().filter(|r| within.contains(r.row_id.as_str())).count() as f64 / rows.len() as f64;
        let (low, high) = wilson(held, shapes);
        Self { shapes, percent: 100.0 * held, low: 100.0 * low, high: 100.0 * high }
    }
}

/// How many of each board's rows are in their intervals, all kinds together, measured by us and published apart.
pub fn coverage(rows: &[Row], held_out: &HeldOut) -> Vec<Coverage> {
    let mut groups: BTreeMap<(&str, &str, Tier), Vec<&Row>> = BTreeMap::new();
    for row in rows.iter().filter(|r| held_out.predicted[0].contains_key(r.row_id.as_str())) {
        let tier = if row.own { Tier::Measured } else { Tier::Imported };
        groups.entry((&row.chip, &row.board, tier)).or_default().push(row);
    }
    let line = |((chip, board, tier), rows): ((&str, &str, Tier), Vec<&Row>)| {
        let pair = |r: &&Row| (r.time.get(), held_out.predicted[0][r.row_id.as_str()]);
        let accuracy = Accuracy::of(rows.iter().map(pair))?;
        let held = Held::of(&rows, &held_out.within);
        Some(Coverage {
            chip: chip.to_string(),
            board: board.to_string(),
            tier: tier.name(),
            rows: rows.len(),
            shapes: held.shapes,
            mape: accuracy.mape,
            median: accuracy.median,
            held: held.percent,
            held_low: held.low,
            held_high: held.high,
        })
    };
    groups.into_iter().filter_map(line).collect()
}

/// Accuracy of every chip, kind, phase and precision, averaged over seeds of the folds. The comparator sees the same folds of
/// the first seed; the roofline needs none.
pub fn lines(rows: &[Row], held_out: &HeldOut, options: &Options) -> Vec<Line> {
    let HeldOut { predicted, within } = held_out;
    let mut groups: BTreeMap<Group, Vec<&Row>> = BTreeMap::new();
    for row in rows.iter().filter(|r| predicted[0].contains_key(r.row_id.as_str())) {
        let group = Group {
            chip: row.chip.to_string(),
            kind: row.kind,
            phase: row.phase,
            precision: row.precision,
            framework: row.framework,
        };
        groups.entry(group).or_default().push(row);
    }
    let lines: Vec<Vec<Line>> = groups
        .par_iter()
        .map(|(group, rows)| {
            let keys: Vec<&str> = rows.iter().map(|r| r.key.as_str()).collect();
            let folds = grouped(&keys, options.folds, options.seed);
            let comparators =
                [Form::Relative, Form::Paper].map(|f| neuralpower::held_out(rows, &folds, options.folds, f));
            subsets(group, rows)
                .into_iter()
                .filter_map(|(label, members)| line(group, label, &members, rows, predicted, within, &comparators))
                .collect()
        })
        .collect();
    lines.into_iter().flatten().collect()
}

/// Shorter kernels are mostly launch; their share of a network's time is small.
const LONG: Seconds = Seconds::from_us(20.0);

/// Sides of maps that networks have.
const SIDES: [u64; 13] = [7, 14, 28, 56, 112, 224, 8, 17, 35, 71, 147, 149, 299];
/// Channels of a group that networks have, those of images first.
const CHANNELS: [u64; 30] = [
    3, 8, 16, 24, 32, 40, 48, 64, 72, 96, 112, 120, 128, 144, 160, 168, 192, 224, 240, 256, 320, 384, 480, 512, 672,
    768, 960, 1024, 1280, 2048,
];

/// Whether a convolution lies on the lattice that networks' shapes are on, fixed before anything was measured on it
/// (`data/plans/lattice.toml`): square maps of such sides, such channels in and out of a group, or of all groups where each
/// has one.
fn on_lattice(row: &Row) -> bool {
    let Some(sizes) = &row.sizes else { return false };
    let is_in = |name: &str, list: &[u64]| sizes.named(name).is_some_and(|size| list.iter().any(|l| *l as f64 == size));
    let channels = match sizes.named("group_inputs") {
        Some(1.0) => is_in("inputs", &CHANNELS),
        _ => is_in("group_inputs", &CHANNELS) && is_in("group_outputs", &CHANNELS),
    };
    channels && is_in("height", &SIDES) && sizes.named("height") == sizes.named("width")
}

/// All rows; of our own those above 20 us, and convolutions on the networks' lattice; where there are several sources or
/// boards each of them; and DeepBench's aligned convolutions, whose channels in and out divide by eight.
fn subsets(group: &Group, rows: &[&Row]) -> Vec<(String, Vec<usize>)> {
    let all: Vec<usize> = (0..rows.len()).collect();
    let mut sources: Vec<&str> = rows.iter().map(|r| r.source.as_str()).collect();
    sources.sort_unstable();
    sources.dedup();
    let mut list = vec![("all rows".to_string(), all.clone())];
    let of = |keep: &dyn Fn(&Row) -> bool| all.iter().copied().filter(|&i| keep(rows[i])).collect::<Vec<_>>();
    if sources.len() > 1 {
        list.extend(sources.iter().map(|s| (s.to_string(), of(&|r| r.source == *s))));
    }
    let boards: BTreeSet<&str> = rows.iter().map(|r| r.board.as_str()).collect();
    if boards.len() > 1 {
        list.extend(boards.into_iter().map(|b| (format!("on {b}"), of(&|r| r.board == b))));
    }
    if rows.iter().any(|r| r.own) {
        list.push(("above 20 us".to_string(), of(&|r| r.time > LONG)));
    }
    let lattice = of(&|r| r.own && on_lattice(r));
    if !lattice.is_empty() {
        list.push(("on the lattice".to_string(), lattice));
    }
    if group.kind == "conv2d" && sources.contains(&"deepbench") {
        list.push(("deepbench aligned".to_string(), of(&|r| r.source == "deepbench" && aligned(r))));
    }
    list
}

/// Whether a convolution's channels in (second raw size) and out (last) divide by eight.
fn aligned(row: &Row) -> bool {
    let divides = |value: Option<&f64>| value.is_some_and(|v| v % 8.0 == 0.0);
    divides(row.raw.sizes.get(1)) && divides(row.raw.sizes.last())
}

/// A kind, with the framework whose kernels ran where they were not the library's.
pub(crate) fn kind_label(kind: &str, framework: Option<&str>) -> String {
    framework.map_or_else(|| kind.to_string(), |f| format!("{kind} ({f})"))
}

fn line(
    group: &Group,
    subset: String,
    members: &[usize],
    rows: &[&Row],
    predicted: &[HashMap<&str, f64>],
    within: &HashSet<&str>,
    comparators: &[Vec<f64>; 2],
) -> Option<Line> {
    let measured = |i: usize| rows[i].time.get();
    let per_seed: Vec<Accuracy> = predicted
        .iter()
        .filter_map(|by_row| {
            let pair = |&i: &usize| Some((measured(i), *by_row.get(rows[i].row_id.as_str())?));
            Accuracy::of(members.iter().filter_map(pair))
        })
        .collect();
    let first = per_seed.first()?;
    let of = |comparator: &Vec<f64>| Accuracy::of(members.iter().map(|&i| (measured(i), comparator[i])));
    let (relative, paper) = (of(&comparators[0])?, of(&comparators[1])?);
    let roofline = Accuracy::of(members.iter().map(|&i| (measured(i), rows[i].roofline.bound().get())))?;
    let held = Held::of(&members.iter().map(|&i| rows[i]).collect::<Vec<_>>(), within);
    Some(Line {
        chip: group.chip.clone(),
        kind: kind_label(group.kind, group.framework),
        phase: group.phase.to_string(),
        precision: group.precision.to_string(),
        subset,
        rows: first.count,
        mape: Spread::of(per_seed.iter().map(|a| a.mape)),
        rmspe: Spread::of(per_seed.iter().map(|a| a.rmspe)),
        median: first.median,
        bias: first.bias,
        weighted: first.weighted,
        within_10: first.within_10,
        held: held.percent,
        held_low: held.low,
        held_high: held.high,
        neuralpower_mape: relative.mape,
        neuralpower_rmspe: relative.rmspe,
        neuralpower_paper_mape: paper.mape,
        roofline_mape: roofline.mape,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::prepare::testing::row;
    use joulecast_model::kernel::sizes::{ConvSizes, NAMES};

    fn conv(sizes: &[(&str, f64)]) -> Row {
        let mut values = [1.0; NAMES.len()];
        for (name, size) in sizes {
            let at = NAMES.iter().position(|n| n == name).expect("a size");
            values[at] = *size;
        }
        let sizes = ConvSizes { values, phase: Phase::Forward, precision: Precision::Fp32 };
        Row { sizes: Some(Box::new(sizes)), ..row("chip", 1, 0.0) }
    }

    #[test]
    fn the_lattice_is_of_square_maps_and_channels_of_groups() {
        let of = |side, width, inputs, group_inputs, group_outputs| {
            on_lattice(&conv(&[
                ("height", side),
                ("width", width),
                ("inputs", inputs),
                ("group_inputs", group_inputs),
                ("group_outputs", group_outputs),
            ]))
        };
        assert!(of(14.0, 14.0, 96.0, 96.0, 24.0) && of(224.0, 224.0, 3.0, 3.0, 64.0));
        assert!(of(14.0, 14.0, 512.0, 16.0, 16.0), "in 32 groups");
        assert!(of(7.0, 7.0, 960.0, 1.0, 1.0) && !of(7.0, 7.0, 950.0, 1.0, 1.0), "each channel apart");
        assert!(!of(14.0, 28.0, 96.0, 96.0, 24.0) && !of(15.0, 15.0, 96.0, 96.0, 24.0));
        assert!(!of(14.0, 14.0, 96.0, 96.0, 25.0) && !of(14.0, 14.0, 97.0, 97.0, 24.0));
        assert!(!on_lattice(&row("chip", 1, 0.0)));
    }

    #[test]
    fn a_boards_rows_are_covered_as_often_as_they_are_within() {
        let rows: Vec<Row> = (1..=4).map(|batch| Row { own: batch < 4, ..row("chip", batch, 0.0) }).collect();
        let predicted = rows.iter().map(|r| (r.row_id.as_str(), 1.1 * r.time.get())).collect();
        let within = rows.iter().take(2).map(|r| r.row_id.as_str()).collect();
        let lines = coverage(&rows, &HeldOut { predicted: vec![predicted], within });
        let told: Vec<_> = lines.iter().map(|l| (l.tier, l.rows, l.shapes, l.held.round(), l.mape.round())).collect();
        assert_eq!(told, [("measured", 3, 3, 67.0, 10.0), ("imported", 1, 1, 0.0, 10.0)]);
    }
}
