//! Power and time of single kernels over core clocks, three clocks given and the others foretold: the public V100 and
//! P100 sweeps of blackjack2015/NV-DVFS-Benchmark (no licence: development data, nothing that is shipped is fitted to it).

use super::{mean_absolute, percent};
use anyhow::{Context, Result, bail};
use joulecast_model::base::units::Seconds;
use joulecast_model::catalog;
use joulecast_model::device::clock::{Pace, VoltageCurve};
use joulecast_reports::published::{LAWS, labelled};
use joulecast_reports::table::Table;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;

/// Boards of the sweeps, and ours.
const BOARDS: [(&str, &str); 2] = [("P100", "p100-pcie"), ("V100", "v100-pcie")];
/// Fewer clocks leave too little to foretell.
const FEWEST: usize = 5;
/// p of a single kernel's time.
const SHARPNESS: f64 = 4.0;

#[derive(Deserialize)]
struct Row {
    gpu: String,
    set: String,
    benchmark: String,
    arg: String,
    kernel: String,
    core_mhz: f64,
    time_ms: Option<f64>,
    power_w: Option<f64>,
    flag: String,
}

/// A kernel at a relative clock.
#[derive(Clone, Copy)]
struct Point {
    clock: f64,
    time: f64,
    power: f64,
}

/// Weighted least squares of `value` on two terms, neither coefficient negative; errors count relative to the values.
fn non_negative(points: &[Point], value: fn(&Point) -> f64, terms: [&dyn Fn(f64) -> f64; 2]) -> [f64; 2] {
    let rows: Vec<[f64; 2]> = points.iter().map(|p| terms.map(|t| t(p.clock) / value(p))).collect();
    let dot = |i: usize, j: usize| rows.iter().map(|r| r[i] * r[j]).sum::<f64>();
    let sum = |i: usize| rows.iter().map(|r| r[i]).sum::<f64>();
    let (a, b, c) = (dot(0, 0), dot(0, 1), dot(1, 1));
    let determinant = a * c - b * b;
    let both = [(sum(0) * c - sum(1) * b) / determinant, (sum(1) * a - sum(0) * b) / determinant];
    let alone = [[sum(0) / a, 0.0], [0.0, sum(1) / c]];
    let loss = |w: &[f64; 2]| rows.iter().map(|r| (w[0] * r[0] + w[1] * r[1] - 1.0).powi(2)).sum::<f64>();
    if determinant > 0.0 && both.iter().all(|v| *v >= 0.0) {
        both
    } else if loss(&alone[0]) < loss(&alone[1]) {
        alone[0]
    } else {
        alone[1]
    }
}

/// The least-squares line through values over the clock.
fn line(points: &[Point], value: fn(&Point) -> f64, clock: f64) -> f64 {
    let n = points.len() as f64;
    let (x, y) = (points.iter().map(|p| p.clock).sum::<f64>() / n, points.iter().map(value).sum::<f64>() / n);
    let up: f64 = points.iter().map(|p| (p.clock - x) * (value(p) - y)).sum();
    let across: f64 = points.iter().map(|p| (p.clock - x).powi(2)).sum();
    y + up / across * (clock - x)
}

/// Time over the clock from a few points: a and b of the law in the p-th power are linear.
fn pace(given: &[Point], sharpness: f64) -> Pace {
    let powered: Vec<Point> = given.iter().map(|p| Point { time: p.time.powf(sharpness), ..*p }).collect();
    let follows = |clock: f64| clock.powf(-sharpness);
    let weights = non_negative(&powered, |p| p.time, [&follows, &|_| 1.0]);
    let [following, fixed] = weights.map(|w| Seconds::new(w.powf(1.0 / sharpness)));
    Pace { following, fixed, sharpness }
}

/// Mean errors by board and set.
///
/// # Errors
/// When the file cannot be read.
pub fn tables(path: &Path) -> Result<Vec<Table>> {
    let name = || path.display().to_string();
    let mut reader = csv::Reader::from_path(path).with_context(name)?;
    let mut kernels: BTreeMap<[String; 5], BTreeMap<u64, (f64, f64)>> = BTreeMap::new();
    for row in reader.deserialize() {
        let row: Row = row.with_context(name)?;
        let Some((_, board)) =
            BOARDS.iter().find(|(theirs, _)| row.gpu.starts_with("Tesla") && row.gpu.contains(theirs))
        else {
            continue;
        };
        if let (Some(time), Some(power), true) = (row.time_ms, row.power_w, row.flag.is_empty()) {
            let key = [board.to_string(), row.set, row.benchmark, row.arg, row.kernel];
            kernels.entry(key).or_default().insert(row.core_mhz as u64, (time, power));
        }
    }
    if kernels.is_empty() {
        bail!("{}: no rows of V100 or P100", name());
    }
    let mut groups: BTreeMap<[String; 2], [Vec<f64>; 6]> = BTreeMap::new();
    for ([board, set, ..], clocks) in kernels {
        if clocks.len() < FEWEST {
            continue;
        }
        let gpu = catalog::gpu(&board)?;
        let boost = gpu.core_clock.boost.value.to_mhz();
        let voltage = VoltageCurve::of(&gpu);
        let points: Vec<Point> =
            clocks.into_iter().map(|(mhz, (time, power))| Point { clock: mhz as f64 / boost, time, power }).collect();
        let last = points.len() - 1;
        let at = [0, last / 2, last];
        let given = at.map(|i| points[i]);
        let (sharp, sum) = (pace(&given, SHARPNESS), pace(&given, 1.0));
        let dynamic = |clock: f64| clock * voltage.relative(clock).powi(2);
        let cubed = |clock: f64| clock.powi(3);
        let power = non_negative(&given, |p| p.power, [&|_| 1.0, &dynamic]);
        let cubic = non_negative(&given, |p| p.power, [&|_| 1.0, &cubed]);
        for p in points.iter().enumerate().filter(|(i, _)| !at.contains(i)).map(|(_, p)| p) {
            let errors = [
                percent(power[0] + power[1] * dynamic(p.clock), p.power),
                percent(line(&given, |p| p.power, p.clock), p.power),
                percent(cubic[0] + cubic[1] * cubed(p.clock), p.power),
                percent(sharp.at(p.clock).get(), p.time),
                percent(sum.at(p.clock).get(), p.time),
                percent(line(&given, |p| p.time, p.clock), p.time),
            ];
            for key in [[board.clone(), set.clone()], ["both".into(), "all".into()]] {
                groups.entry(key).or_default().iter_mut().zip(errors).for_each(|(list, e)| list.push(e));
            }
        }
    }
    let row = |([board, set], lists): (&[String; 2], &[Vec<f64>; 6])| {
        let errors = lists.iter().map(|l| mean_absolute(l));
        labelled([board, set], [lists[0].len() as f64].into_iter().chain(errors))
    };
    Ok(vec![LAWS.table(groups.iter().map(row))])
}
