//! Latency and bandwidth of interconnects from DeepBench's all-reduce tables: what `data/interconnects` rests on.

use crate::import::{read_capped, sheets};
use crate::least_squares::non_negative;
use anyhow::{Result, bail};
use joulecast_model::accuracy::Accuracy;
use joulecast_model::import::deepbench::{AllReduce, all_reduces};
use joulecast_model::parallel::ring;
use joulecast_reports::table::Table;
use ndarray::{Array1, Array2};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Workbooks whose GPUs are under four PCIe switches at two processors; those of the others are under one processor.
/// DeepBench's README: eight cards in a node of the one kind, ten in one of the other, FDR InfiniBand between nodes.
const TWO_PROCESSORS: [&str; 3] = ["DeepBench_NV_P100", "DeepBench_NV_M40", "DeepBench_NV_TitanX"];
/// Microseconds, microseconds, and seconds per gigabyte: columns of one magnitude.
const UNITS: [f64; 3] = [1e-6, 1e-6, 1e-9];
const COVERAGE: f64 = 0.9;

/// launch, hop, seconds per byte
fn fit(rows: &[AllReduce]) -> [f64; 3] {
    let column = |i: usize, j: usize| terms(&rows[i])[j] * UNITS[j] / rows[i].time.get();
    let x = Array2::from_shape_fn((rows.len(), 3), |(i, j)| column(i, j));
    let c = non_negative(&x, &Array1::ones(rows.len()));
    [0, 1, 2].map(|j| c[j] * UNITS[j])
}

fn terms(row: &AllReduce) -> [f64; 3] {
    let [launch, hops, share] = ring(row.gpus);
    [launch, hops, share * row.bytes.to_f64()]
}

fn predicted(law: &[f64; 3], row: &AllReduce) -> f64 {
    law.iter().zip(terms(row)).map(|(c, term)| c * term).sum()
}

/// The factor within which so many of the ratios lie, in either direction.
fn spread(pairs: &[(f64, f64)]) -> f64 {
    let mut factors: Vec<f64> = pairs.iter().map(|(a, b)| (a / b).max(b / a)).collect();
    factors.sort_by(f64::total_cmp);
    let at = (factors.len() as f64 * COVERAGE).ceil() as usize;
    factors.get(at.saturating_sub(1)).copied().unwrap_or(f64::NAN)
}

/// Fits with their errors, in sample and each workbook (kind of GPU) left out in turn.
///
/// # Errors
/// When a workbook cannot be read, or none has all-reduces.
pub fn tables(files: &[PathBuf]) -> Result<Vec<Table>> {
    let mut groups: BTreeMap<&str, Vec<(usize, AllReduce)>> = BTreeMap::new();
    for (book, path) in files.iter().enumerate() {
        let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        let stem = Path::new(&name).file_stem().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        let two = TWO_PROCESSORS.contains(&stem.as_str());
        for row in all_reduces(&name, &sheets(&read_capped(path)?)?)? {
            let group = match (row.nodes > 1, two) {
                (true, _) => "several nodes, InfiniBand FDR",
                (false, true) => "one node, two processors",
                (false, false) => "one node, one processor",
            };
            groups.entry(group).or_default().push((book, row));
        }
    }
    if groups.is_empty() {
        bail!("no all-reduce in these workbooks");
    }
    let header = [
        "ring all-reduce",
        "rows",
        "GPUs",
        "launch us",
        "hop us",
        "GB/s",
        "error %",
        "left out: error %",
        "90 % within",
    ];
    let mut table = Table::new(&header, 1);
    for (name, rows) in groups {
        // Of all rows but those of a workbook.
        let without = |book: Option<usize>| {
            fit(&rows.iter().filter(|(b, _)| Some(*b) != book).map(|(_, r)| *r).collect::<Vec<_>>())
        };
        let law = without(None);
        let pairs = |law: &dyn Fn(usize) -> [f64; 3]| -> Vec<(f64, f64)> {
            rows.iter().map(|(book, r)| (r.time.get(), predicted(&law(*book), r))).collect()
        };
        let held_out = pairs(&|book| without(Some(book)));
        let error = |list: &[(f64, f64)]| Accuracy::of(list.iter().copied()).map_or(f64::NAN, |a| a.mape);
        let gpus = rows.iter().map(|(_, r)| r.gpus);
        table.row(vec![
            name.to_string(),
            rows.len().to_string(),
            format!("{} to {}", gpus.clone().min().unwrap_or(0), gpus.max().unwrap_or(0)),
            format!("{:.1}", law[0] * 1e6),
            format!("{:.2}", law[1] * 1e6),
            format!("{:.2}", 1e-9 / law[2]),
            format!("{:.1}", error(&pairs(&|_| law))),
            format!("{:.1}", error(&held_out)),
            format!("{:.2}", spread(&held_out)),
        ]);
    }
    Ok(vec![table])
}

#[cfg(test)]
mod tests {
    use super::*;
    use joulecast_model::units::{Bytes, Seconds};

    #[test]
    fn a_known_ring_is_found() {
        let law = [30e-6, 8e-6, 1.0 / 11e9];
        let mut rows = Vec::new();
        for gpus in [2, 4, 8] {
            for bytes in [400_000, 12_000_000, 250_000_000] {
                let mut row = AllReduce { gpus, nodes: 1, bytes: Bytes::new(bytes), time: Seconds::ZERO };
                row.time = Seconds::new(predicted(&law, &row));
                rows.push(row);
            }
        }
        for (found, known) in fit(&rows).iter().zip(law) {
            assert!((found / known - 1.0).abs() < 1e-4, "{found} {known}");
        }
    }
}
