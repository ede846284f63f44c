//! ResNet-50 under power limits in the traces of Zeus (ml-energy/zeus, trace/summary_power_*.csv): real training epochs
//! with their input pipeline.

use super::board::{Curve, Point};
use super::{Tools, mean_absolute, percent, shaped};
use anyhow::{Context, Result, bail};
use joulecast_model::base::precision::Mode;
use joulecast_model::base::units::{Joules, Seconds, Watts};
use joulecast_model::catalog;
use joulecast_reports::published::{Cell as Shown, TRACES};
use joulecast_reports::table::Table;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;

/// Boards of the traces, and ours.
const BOARDS: [(&str, &str); 2] = [("P100", "p100-pcie"), ("A40", "a40")];
const NETWORK: &str = "resnet50";

#[derive(Deserialize)]
struct Row {
    gpu: String,
    network: String,
    dataset: String,
    batch: u64,
    power_limit_w: u64,
    average_power_w: f64,
    ms_per_iteration: Option<f64>,
    flag: String,
}

/// Curves per board, by batch. Rows flagged by the transcription (more power than the limit) stay: the limit was below
/// what the board can keep.
fn curves(path: &Path, board: &str) -> Result<Vec<Curve>> {
    let name = || path.display().to_string();
    let mut reader = csv::Reader::from_path(path).with_context(name)?;
    let mut by_batch: BTreeMap<u64, BTreeMap<u64, (f64, f64)>> = BTreeMap::new();
    for row in reader.deserialize() {
        let row: Row = row.with_context(name)?;
        let usable = row.flag.is_empty() || row.flag == "average_power_above_limit";
        if row.gpu.contains(board) && row.network == NETWORK && row.dataset == "imagenet" && usable {
            let time = row.ms_per_iteration.with_context(|| format!("{}: no ms_per_iteration", path.display()))?;
            by_batch.entry(row.batch).or_default().insert(row.power_limit_w, (time, row.average_power_w));
        }
    }
    if by_batch.is_empty() {
        bail!("{}: no {NETWORK} on {board}", name());
    }
    by_batch
        .into_iter()
        .map(|(batch, caps)| {
            let mut capped: Vec<Point> = caps
                .into_iter()
                .map(|(cap, (ms, watts))| {
                    let time = Seconds::from_ms(ms);
                    Point { cap: Watts::new(cap as f64), time, energy: Joules::new(watts * time.get()) }
                })
                .collect();
            let default = capped.pop().context("no limits")?;
            Ok(Curve {
                name: format!("batch {batch}"),
                network: shaped(NETWORK, batch)?,
                mode: Mode::Training,
                default,
                capped,
            })
        })
        .collect()
}

/// The comparison as tables.
///
/// # Errors
/// When the traces cannot be read or a prediction fails.
pub fn tables(path: &Path, tools: &Tools) -> Result<Vec<Table>> {
    let mut means = Vec::new();
    for (theirs, ours) in BOARDS {
        let predictor = tools.on(&catalog::gpu(ours)?);
        let mut by_cap: BTreeMap<u64, [Vec<f64>; 6]> = BTreeMap::new();
        let mut all: [Vec<f64>; 6] = Default::default();
        for curve in curves(path, theirs)? {
            let given = curve.predicted(&predictor, true)?;
            let unseen = curve.predicted(&predictor, false)?;
            for ((point, given), unseen) in curve.capped.iter().zip(given).zip(unseen) {
                let m = curve.measured(point);
                let free = curve.default.energy / curve.default.time;
                let energy = point.cap.min(free) / free;
                let errors = [
                    percent(given.time, m.time),
                    percent(given.energy, m.energy),
                    percent(unseen.time, m.time),
                    percent(unseen.energy, m.energy),
                    percent(1.0, m.time),
                    percent(energy, m.energy),
                ];
                let lists = by_cap.entry(point.cap.get() as u64).or_default();
                for (i, error) in errors.into_iter().enumerate() {
                    lists[i].push(error);
                    all[i].push(error);
                }
            }
        }
        let mut row = |limit: Shown, lists: &[Vec<f64>; 6]| {
            let mut cells = vec![ours.into(), limit, (lists[0].len() as f64).into()];
            cells.extend(lists.iter().map(|l| Shown::from(mean_absolute(l))));
            means.push(cells);
        };
        for (cap, lists) in &by_cap {
            row((*cap as f64).into(), lists);
        }
        row("all".into(), &all);
    }
    Ok(vec![TRACES.table(means)])
}
