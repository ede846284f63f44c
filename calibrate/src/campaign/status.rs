//! `calibrate status`: what a dataset holds and how good it is.

use crate::campaign::run::outcome::RunRecord;
use crate::campaign::run::{row, skipped};
use crate::rows::journal;
use anyhow::{Context, Result};
use joulecast_kernels::settings::Point;
use joulecast_model::base::precision::Precision;
use joulecast_model::base::units::{Hertz, Watts};
use joulecast_model::rows::measurement::{Measurement, Regime};
use joulecast_reports::status::{Ceiling, Clocks, CrossCheck, Group, Quantiles, Repeats, Runs, Share, Status};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Traffic beyond every second-level cache: rows with less say nothing about memory bandwidth.
const BEYOND_CACHE: f64 = 256e6;
/// Clocks of a burst and its sustained run that differ by this share tell how time depends on the clock.
const CLOCK_DIFFERENCE: f64 = 0.1;
/// Counter and integral of power that agree within this share.
const CROSS_CHECK: f64 = 0.02;

/// Summarises the rows of a dataset's folder.
///
/// # Errors
/// When the files beside the segments cannot be read.
pub fn status(folder: &Path, rows: &[Measurement]) -> Result<Status> {
    let trials: HashSet<(&str, &str)> = rows.iter().map(|r| (r.gpu.as_str(), r.trial_id.as_str())).collect();
    Ok(Status {
        schema: "status/1",
        rows: rows.len(),
        trials: trials.len(),
        groups: groups(rows),
        flags: flags(rows),
        spread: spread(rows),
        cross_check: cross_check(rows),
        repeats: repeats(rows, |a, b| a == b),
        repeats_across_boards: repeats(rows, |a, b| a != b),
        clocks: clocks(rows),
        ceilings: ceilings(rows),
        runs: runs(folder)?,
        skipped: skipped(folder)?,
    })
}

fn groups(rows: &[Measurement]) -> Vec<Group> {
    let mut groups: BTreeMap<[String; 5], [usize; 3]> = BTreeMap::new();
    for row in rows {
        let key = [
            row.gpu.clone(),
            row.case.layer.kind().to_string(),
            row.phase.to_string(),
            row.precision.to_string(),
            row.source.clone(),
        ];
        let counts = groups.entry(key).or_default();
        counts[0] += usize::from(row.regime != Regime::Sustained);
        counts[1] += usize::from(row.energy_j.is_some());
        counts[2] += usize::from(!row.usable());
    }
    let group = |(key, counts): ([String; 5], [usize; 3])| {
        let [gpu, kind, phase, precision, source] = key;
        let [time_rows, energy_rows, flagged] = counts;
        Group { gpu, kind, phase, precision, source, time_rows, energy_rows, flagged }
    };
    groups.into_iter().map(group).collect()
}

fn flags(rows: &[Measurement]) -> Vec<Share> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for flag in rows.iter().flat_map(|r| &r.flags) {
        *counts.entry(flag).or_default() += 1;
    }
    let share = |(flag, n): (&str, usize)| Share { flag: flag.into(), rows: n, share: n as f64 / rows.len() as f64 };
    counts.into_iter().map(share).collect()
}

/// Quantile by the nearest rank; the values must not be empty.
fn at(sorted: &[f64], share: f64) -> f64 {
    sorted[((sorted.len() - 1) as f64 * share).round() as usize]
}

fn sorted(values: impl Iterator<Item = f64>) -> Option<Vec<f64>> {
    let mut list: Vec<f64> = values.filter(|v| v.is_finite()).collect();
    list.sort_by(f64::total_cmp);
    (!list.is_empty()).then_some(list)
}

fn spread(rows: &[Measurement]) -> Option<Quantiles> {
    let of = |r: &Measurement| Some(r.time_p90_s? / r.time_p10_s? - 1.0);
    let list = sorted(rows.iter().filter(|r| r.regime == Regime::Burst).filter_map(of))?;
    Some(Quantiles { rows: list.len(), p50: at(&list, 0.5), p90: at(&list, 0.9), p99: at(&list, 0.99) })
}

fn cross_check(rows: &[Measurement]) -> Option<CrossCheck> {
    let of = |r: &Measurement| Some((r.power_integral_w? / r.power_w? - 1.0).abs());
    let list = sorted(rows.iter().filter_map(of))?;
    let within = list.iter().filter(|d| **d <= CROSS_CHECK).count();
    Some(CrossCheck {
        rows: list.len(),
        within_2_percent: within as f64 / list.len() as f64,
        median: at(&list, 0.5),
        worst: at(&list, 1.0),
    })
}

/// What repeats have in common: GPU, trial, regime and the settings asked for.
fn condition(row: &Measurement) -> (String, String) {
    let point =
        Point { core: row.core_mhz_requested.map(Hertz::from_mhz), power_limit: row.power_limit_w.map(Watts::new) };
    (row.gpu.clone(), row::key(&row.trial_id, 0, row.regime, point))
}

fn repeats(rows: &[Measurement], boards: impl Fn(Option<&str>, Option<&str>) -> bool) -> Option<Repeats> {
    let mut first: HashMap<(String, String), &Measurement> = HashMap::new();
    for row in rows.iter().filter(|r| r.repeat == 0 && r.regime != Regime::Import) {
        first.insert(condition(row), row);
    }
    let mut pairs = Vec::new();
    for row in rows.iter().filter(|r| r.repeat == 1) {
        let fitting = |other: &&&Measurement| boards(other.board_uuid.as_deref(), row.board_uuid.as_deref());
        pairs.extend(first.get(&condition(row)).filter(fitting).map(|other| (*other, row)));
    }
    let difference = |a: f64, b: f64| ((a - b) / (0.5 * (a + b))).abs();
    let times = sorted(pairs.iter().map(|(a, b)| difference(a.time_s, b.time_s)))?;
    let energies = sorted(pairs.iter().filter_map(|(a, b)| Some(difference(a.energy_j?, b.energy_j?))));
    Some(Repeats { pairs: pairs.len(), time: at(&times, 0.5), energy: energies.map(|e| at(&e, 0.5)) })
}

fn clocks(rows: &[Measurement]) -> Option<Clocks> {
    // Row ids of a pair differ in the regime alone.
    let name = |r: &Measurement| r.row_id.replacen(&format!(":{}", r.regime), "", 1);
    let bursts: HashMap<String, f64> =
        rows.iter().filter(|r| r.regime == Regime::Burst).filter_map(|r| Some((name(r), r.core_mhz_mean?))).collect();
    let pair = |r: &Measurement| Some((bursts.get(&name(r)).copied()?, r.core_mhz_mean?));
    let pairs: Vec<(f64, f64)> = rows.iter().filter(|r| r.regime == Regime::Sustained).filter_map(pair).collect();
    let differing = pairs.iter().filter(|(fast, slow)| (slow / fast - 1.0).abs() >= CLOCK_DIFFERENCE).count();
    (!pairs.is_empty()).then_some(Clocks { pairs: pairs.len(), differing })
}

fn ceilings(rows: &[Measurement]) -> Vec<Ceiling> {
    let mut best: BTreeMap<(&str, &str, Precision), (f64, Option<f64>)> = BTreeMap::new();
    for row in rows.iter().filter(|r| r.usable() && r.time_s > 0.0) {
        let Ok(Some(cost)) = row.work().and_then(|w| w.cost()) else { continue };
        let entry = best.entry((&row.gpu, &row.source, row.precision)).or_default();
        entry.0 = entry.0.max(cost.ops.to_f64() / row.time_s * 1e-12);
        let bytes = cost.bytes().to_f64();
        if bytes > BEYOND_CACHE {
            entry.1 = Some(entry.1.unwrap_or(0.0).max(bytes / row.time_s * 1e-12));
        }
    }
    let ceiling = |((gpu, source, precision), (tflop_per_s, tb_per_s)): ((&str, &str, _), _)| Ceiling {
        gpu: gpu.to_string(),
        source: source.to_string(),
        precision,
        tflop_per_s,
        tb_per_s,
    };
    best.into_iter().map(ceiling).collect()
}

/// Files of a folder whose names end so.
fn files(folder: &Path, end: &str) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    let mut paths: Vec<PathBuf> = entries.collect::<std::io::Result<Vec<_>>>()?.iter().map(|e| e.path()).collect();
    paths.retain(|p| p.file_name().is_some_and(|n| n.to_string_lossy().ends_with(end)));
    paths.sort();
    Ok(paths)
}

fn runs(folder: &Path) -> Result<Option<Runs>> {
    let (mut count, mut seconds, mut rows) = (0, 0.0, 0);
    for path in files(folder, ".runs.jsonl")? {
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        for record in text.lines().filter_map(|line| serde_json::from_str::<RunRecord>(line).ok()) {
            count += 1;
            seconds += record.seconds;
            rows += record.rows;
        }
    }
    let minutes = seconds / 60.0;
    let rate = if minutes > 0.0 { rows as f64 / minutes } else { 0.0 };
    Ok((count > 0).then_some(Runs { count, gpu_minutes: minutes, rows_per_minute: rate }))
}

/// Distinct skipped trials per reason.
fn skipped(folder: &Path) -> Result<BTreeMap<&'static str, usize>> {
    let mut last = BTreeMap::new();
    for path in files(folder, skipped::EXTENSION)? {
        last.extend(skipped::read(&path)?.into_iter().map(|s| (s.trial_id, s.reason)));
    }
    let mut counts = BTreeMap::new();
    for reason in last.into_values() {
        *counts.entry(reason.name()).or_default() += 1;
    }
    Ok(counts)
}

/// Makes segments of what killed runs left, unless another process writes to the dataset, and summarises it; also says
/// what was recovered.
///
/// # Errors
/// When there is no dataset, or a segment of it is damaged.
pub fn of_folder(folder: &Path) -> Result<(Status, Vec<String>)> {
    let said = journal::recover_if_free(folder)?;
    let rows = crate::rows::dataset::read(folder)?;
    Ok((status(folder, &rows)?, said))
}
