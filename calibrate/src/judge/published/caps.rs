//! Time and energy under power limits: krzywaniak2022, Tables 2 and 3.

use super::board::{Board, Curve, Point, Relative, fit};
use super::{Cell, Tools, mean_absolute, percent, shaped};
use anyhow::{Context, Result, bail};
use joulecast_ask::metric::{Metric, Reference};
use joulecast_ask::papers::Line;
use joulecast_model::base::precision::Mode;
use joulecast_model::base::units::{Joules, Seconds, Watts};
use joulecast_model::catalog;
use joulecast_reports::published::{CAP_MEANS, CAPS, CONSTANTS, REGRETS, labelled};
use joulecast_reports::table::Table;
use rayon::prelude::*;
use std::collections::BTreeMap;

/// Boards of the paper.
const BOARDS: [&str; 2] = ["v100", "quadro-rtx6000"];
/// Metrics whose best limit the paper lists.
const METRICS: [Metric; 4] = [Metric::Energy, Metric::Edp, Metric::Eds(1.5), Metric::Eds(2.0)];

/// Values of a run by metric, by power limit.
type Caps<'a> = BTreeMap<u64, BTreeMap<&'a str, f64>>;

/// The runs of the paper on one board.
///
/// # Errors
/// When the tables lack the board or a default.
pub fn curves(cells: &[Cell], gpu: &str) -> Result<Vec<Curve>> {
    let mut runs: BTreeMap<(&str, u64), (&Cell, Caps<'_>)> = BTreeMap::new();
    for cell in cells.iter().filter(|c| c.is_of(gpu)) {
        let Line { batch, power_cap_w, network, metric, .. } = &cell.line;
        let (Ok(batch), Ok(cap), Some(value)) = (batch.parse(), power_cap_w.parse::<f64>(), cell.number()) else {
            continue;
        };
        let (_, caps) = runs.entry((network, batch)).or_insert_with(|| (cell, Caps::new()));
        caps.entry(cap as u64).or_default().insert(metric, value);
    }
    if runs.is_empty() {
        bail!("no runs on {gpu}");
    }
    runs.into_iter()
        .map(|((name, batch), (cell, caps))| {
            let samples = cell.samples.with_context(|| format!("{name}: papers.toml does not know its data"))?;
            let steps = samples as f64 / batch as f64;
            let mut points = Vec::new();
            for (cap, values) in caps {
                let get =
                    |metric| values.get(metric).copied().with_context(|| format!("{name} at {cap} W: no {metric}"));
                points.push(Point {
                    cap: Watts::new(cap as f64),
                    time: Seconds::new(get("total_time")? / steps),
                    energy: Joules::new(get("total_energy")? * 1e3 / steps),
                });
            }
            let default = points.pop().with_context(|| format!("{name}: no runs"))?;
            let network = shaped(cell.known_network()?, batch)?;
            Ok(Curve { name: name.to_string(), network, mode: Mode::Training, default, capped: points })
        })
        .collect()
}

/// A network judged by constants that its own runs did not help to find.
struct Judged<'a> {
    curve: &'a Curve,
    board: Board,
    given: Vec<Relative>,
    unseen: Vec<Relative>,
    mean: Vec<Relative>,
}

/// Mean of other networks' curves at a limit, each interpolated between its listed limits.
fn mean_curve(others: &[&Curve], cap: Watts) -> Relative {
    let at = |curve: &Curve, value: fn(Relative) -> f64| {
        let points: Vec<(f64, f64)> =
            curve.capped.iter().chain([&curve.default]).map(|p| (p.cap.get(), value(curve.measured(p)))).collect();
        interpolated(&points, cap.get())
    };
    let mean = |value: fn(Relative) -> f64| others.iter().map(|c| at(c, value)).sum::<f64>() / others.len() as f64;
    Relative { time: mean(|r| r.time), energy: mean(|r| r.energy) }
}

/// Straight lines between points in ascending order, constant beyond them.
pub fn interpolated(points: &[(f64, f64)], x: f64) -> f64 {
    let after = points.iter().position(|p| p.0 >= x);
    match after {
        None => points.last().map_or(f64::NAN, |p| p.1),
        Some(0) => points[0].1,
        Some(i) => {
            let (a, b) = (points[i - 1], points[i]);
            a.1 + (b.1 - a.1) * (x - a.0) / (b.0 - a.0)
        }
    }
}

/// Errors of relative curves: of time, then of energy.
fn errors(curve: &Curve, predicted: &[Relative]) -> [Vec<f64>; 2] {
    let pairs = || curve.capped.iter().map(|p| curve.measured(p)).zip(predicted);
    [
        pairs().map(|(m, p)| percent(p.time, m.time)).collect(),
        pairs().map(|(m, p)| percent(p.energy, m.energy)).collect(),
    ]
}

/// Regret in a metric of the listed limit that a curve says is best: how much worse it is than the best listed one, in
/// percent of the default's.
fn regret(curve: &Curve, metric: Metric, predicted: &[Relative]) -> f64 {
    let value = |r: &Relative| {
        let (time, energy) = (Seconds::new(r.time), Joules::new(r.energy));
        metric.of(time, energy, &Reference { time: Seconds::new(1.0), energy: Joules::new(1.0) })
    };
    let default = Relative { time: 1.0, energy: 1.0 };
    let measured: Vec<f64> = curve.capped.iter().map(|p| value(&curve.measured(p))).chain([value(&default)]).collect();
    let chosen = least(&predicted.iter().map(value).chain([value(&default)]).collect::<Vec<_>>());
    percent(measured[chosen], measured[least(&measured)])
}

fn least(values: &[f64]) -> usize {
    (0..values.len()).min_by(|&a, &b| values[a].total_cmp(&values[b])).unwrap_or(0)
}

/// Regret of the one limit that is best on average for the others: the baseline.
fn constant_regret(curve: &Curve, others: &[&Curve], metric: Metric) -> f64 {
    let unit = Reference { time: Seconds::new(1.0), energy: Joules::new(1.0) };
    let value = |r: Relative| metric.of(Seconds::new(r.time), Joules::new(r.energy), &unit);
    let mut caps: Vec<Watts> =
        curve.capped.iter().chain(others.iter().flat_map(|c| &c.capped)).map(|p| p.cap).collect();
    caps.push(curve.default.cap);
    let best =
        caps.iter().copied().min_by(|a, b| value(mean_curve(others, *a)).total_cmp(&value(mean_curve(others, *b))));
    let own = |cap| value(mean_curve(&[curve], cap));
    let listed = curve.capped.iter().map(|p| value(curve.measured(p))).fold(1.0, f64::min);
    best.map_or(0.0, |cap| percent(own(cap), listed).max(0.0))
}

/// The comparison as tables: all points, then means beside baselines.
///
/// # Errors
/// When the paper's tables or a prediction fail.
pub fn tables(cells: &[Cell], tools: &Tools) -> Result<Vec<Table>> {
    let (mut points, mut means, mut regrets, mut constants) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for ours in BOARDS {
        let (gpu, curves) = (catalog::gpu(ours)?, curves(cells, ours)?);
        let predictor = tools.on(&gpu);
        let mut row = |without: &str, b: &Board| {
            constants.push(labelled([ours, without], [b.rise, b.held, b.draw]));
        };
        let everything: Vec<&Curve> = curves.iter().collect();
        row("none", &fit(&everything, &predictor)?);
        let judged = curves
            .par_iter()
            .map(|curve| -> Result<Judged<'_>> {
                let others: Vec<&Curve> = curves.iter().filter(|c| c.name != curve.name).collect();
                let board = fit(&others, &predictor)?;
                let device = predictor.clone().described(board.on(&gpu));
                let predict = |given| curve.predicted(&device, given);
                let mean = curve.capped.iter().map(|p| mean_curve(&others, p.cap)).collect();
                Ok(Judged { curve, board, given: predict(true)?, unseen: predict(false)?, mean })
            })
            .collect::<Result<Vec<_>>>()?;
        let mut all: [[Vec<f64>; 2]; 3] = Default::default();
        for j in &judged {
            row(&j.curve.name, &j.board);
            for ((point, given), unseen) in j.curve.capped.iter().zip(&j.given).zip(&j.unseen) {
                let m = j.curve.measured(point);
                let numbers = [m.time, given.time, unseen.time, m.energy, given.energy, unseen.energy];
                points.push(labelled([ours, &j.curve.name], [point.cap.get()].into_iter().chain(numbers)));
            }
            let mut numbers = Vec::new();
            for (i, predicted) in [&j.given, &j.unseen, &j.mean].into_iter().enumerate() {
                for (k, list) in errors(j.curve, predicted).into_iter().enumerate() {
                    numbers.push(mean_absolute(&list));
                    all[i][k].extend(list);
                }
            }
            means.push(labelled([ours, &j.curve.name], numbers));
        }
        let total = all.iter().flatten().map(|list| mean_absolute(list));
        means.push(labelled([ours, "mean over points"], total));
        for metric in METRICS {
            let mean = |value: &dyn Fn(&Judged<'_>) -> f64| judged.iter().map(value).sum::<f64>() / judged.len() as f64;
            let others = |j: &Judged<'_>| curves.iter().filter(|c| c.name != j.curve.name).collect::<Vec<_>>();
            let costs = [
                mean(&|j| regret(j.curve, metric, &j.given)),
                mean(&|j| regret(j.curve, metric, &j.unseen)),
                mean(&|j| constant_regret(j.curve, &others(j), metric)),
            ];
            regrets.push(labelled([ours, &metric.to_string()], costs));
        }
    }
    Ok(vec![CAP_MEANS.table(means), REGRETS.table(regrets), CONSTANTS.table(constants), CAPS.table(points)])
}
