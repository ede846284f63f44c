//! Latency and bandwidth of interconnects from DeepBench's all-reduce tables: what `data/interconnects` rests on.

use crate::fit::least_squares::non_negative;
use crate::rows::aiconfigurator;
use crate::rows::import::read_capped;
use crate::rows::workbook::sheets;
use anyhow::{Context, Result, bail};
use joulecast_import::deepbench::{AllReduce, all_reduces};
use joulecast_model::base::accuracy::Accuracy;
use joulecast_model::device::interconnect::ring;
use joulecast_reports::published::{Cell, RINGS};
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

/// An all-reduce as a ring: over the GPUs of a node, or over nodes after sums inside of each.
#[derive(Clone, Copy)]
struct Ring {
    /// Members of the ring.
    members: u64,
    bytes: f64,
    seconds: f64,
    /// The part of that inside of nodes, where the ring is over nodes.
    within: f64,
}

impl Ring {
    fn over_gpus(row: &AllReduce) -> Self {
        let per_node = row.gpus / row.nodes.max(1);
        Self { members: per_node, bytes: row.bytes.to_f64(), seconds: row.time.get(), within: 0.0 }
    }

    fn over_nodes(row: &AllReduce, node: &[f64; 3]) -> Self {
        let inside = Self::over_gpus(row);
        Self { members: row.nodes, within: inside.predicted(node), ..inside }
    }

    fn terms(&self) -> [f64; 3] {
        let [launch, hops, share] = ring(self.members);
        [launch, hops, share * self.bytes]
    }

    fn predicted(&self, law: &[f64; 3]) -> f64 {
        self.within + law.iter().zip(self.terms()).map(|(c, term)| c * term).sum::<f64>()
    }
}

/// launch, hop, seconds per byte; where all rings have as many members, hops are part of the launch
fn fit(rows: &[Ring]) -> [f64; 3] {
    let alike = rows.windows(2).all(|pair| pair[0].members == pair[1].members);
    let column = |i: usize, j: usize| match j {
        1 if alike => 0.0,
        _ => rows[i].terms()[j] * UNITS[j] / rows[i].seconds,
    };
    let x = Array2::from_shape_fn((rows.len(), 3), |(i, j)| column(i, j));
    let c = non_negative(&x, &Array1::from_iter(rows.iter().map(|r| 1.0 - r.within / r.seconds)));
    [0, 1, 2].map(|j| c[j] * UNITS[j])
}

/// Rows of `calibrate/tools/torch_parallel.py`.
fn measured(path: &Path) -> Result<Vec<Ring>> {
    #[derive(serde::Deserialize)]
    struct Row {
        gpus: u64,
        bytes: f64,
        us: f64,
    }
    let shown = || path.display().to_string();
    let rows: Vec<Row> = csv::Reader::from_path(path)
        .with_context(shown)?
        .deserialize()
        .collect::<Result<_, _>>()
        .with_context(shown)?;
    if let Some(wrong) = rows.iter().find(|r| !(r.us.is_finite() && r.us > 0.0)) {
        bail!("{}: {} us is no time", shown(), wrong.us);
    }
    Ok(rows.iter().map(|r| Ring { members: r.gpus, bytes: r.bytes, seconds: r.us * 1e-6, within: 0.0 }).collect())
}

fn node(two_processors: bool) -> &'static str {
    if two_processors { "one node, two processors" } else { "one node, one processor" }
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
    let mut several: Vec<(usize, bool, AllReduce)> = Vec::new();
    let mut groups: BTreeMap<String, Vec<(usize, Ring)>> = BTreeMap::new();
    for (book, path) in files.iter().enumerate() {
        let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        let stem = Path::new(&name).file_stem().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        let two = TWO_PROCESSORS.contains(&stem.as_str());
        if path.extension().is_some_and(|e| e == "parquet") {
            let found = aiconfigurator::all_reduces(&read_capped(path)?).with_context(|| path.display().to_string())?;
            for row in found {
                let ring = Ring { members: row.gpus, bytes: row.bytes, seconds: row.seconds, within: 0.0 };
                // What is left out in turn are rings of as many cards.
                groups
                    .entry(format!("{}, {}", row.gpu, row.by))
                    .or_default()
                    .push((files.len() + row.gpus as usize, ring));
            }
            continue;
        }
        if path.extension().is_some_and(|e| e == "csv") {
            let rows = measured(path)?;
            groups
                .entry("one node, measured (csv)".to_string())
                .or_default()
                .extend(rows.into_iter().map(|r| (book, r)));
            continue;
        }
        for row in all_reduces(&name, &sheets(&read_capped(path)?)?)? {
            if row.nodes > 1 {
                several.push((book, two, row));
            } else {
                groups.entry(node(two).to_string()).or_default().push((book, Ring::over_gpus(&row)));
            }
        }
    }
    let law = |rows: &Vec<(usize, Ring)>| fit(&rows.iter().map(|(_, r)| *r).collect::<Vec<_>>());
    let nodes: BTreeMap<String, [f64; 3]> = groups.iter().map(|(name, rows)| (name.clone(), law(rows))).collect();
    for (book, two, row) in several {
        if let Some(law) = nodes.get(node(two)) {
            groups.entry("nodes, InfiniBand FDR".to_string()).or_default().push((book, Ring::over_nodes(&row, law)));
        }
    }
    if groups.is_empty() {
        bail!("no all-reduce in these workbooks");
    }
    let mut rings: Vec<Vec<Cell>> = Vec::new();
    for (name, rows) in groups {
        // Of all rows but those of a workbook.
        let without = |book: Option<usize>| {
            fit(&rows.iter().filter(|(b, _)| Some(*b) != book).map(|(_, r)| *r).collect::<Vec<_>>())
        };
        let law = without(None);
        let pairs = |law: &dyn Fn(usize) -> [f64; 3]| -> Vec<(f64, f64)> {
            rows.iter().map(|(book, r)| (r.seconds, r.predicted(&law(*book)))).collect()
        };
        let several = rows.windows(2).any(|pair| pair[0].0 != pair[1].0);
        let held_out = pairs(&|book| if several { without(Some(book)) } else { law });
        let error = |list: &[(f64, f64)]| Accuracy::of(list.iter().copied()).map_or(f64::NAN, |a| a.mape);
        let members = rows.iter().map(|(_, r)| r.members);
        rings.push(vec![
            name.into(),
            (rows.len() as f64).into(),
            format!("{} to {}", members.clone().min().unwrap_or(0), members.max().unwrap_or(0)).into(),
            (law[0] * 1e6).into(),
            (law[1] * 1e6).into(),
            (1e-9 / law[2]).into(),
            error(&pairs(&|_| law)).into(),
            if several { error(&held_out) } else { f64::NAN }.into(),
            spread(&held_out).into(),
        ]);
    }
    Ok(vec![RINGS.table(rings)])
}

#[cfg(test)]
mod tests {
    use super::*;
    use joulecast_model::base::units::{Bytes, Seconds};

    #[test]
    fn a_known_ring_is_found_and_one_over_nodes_of_known_rings() {
        let (node, network) = ([30e-6, 8e-6, 1.0 / 11e9], [60e-6, 50e-6, 1.0 / 6e9]);
        let (mut inside, mut between) = (Vec::new(), Vec::new());
        for bytes in [400_000, 12_000_000, 250_000_000] {
            let row = |gpus, nodes| AllReduce { gpus, nodes, bytes: Bytes::new(bytes), time: Seconds::ZERO };
            for gpus in [2, 4, 8] {
                let ring = Ring::over_gpus(&row(gpus, 1));
                inside.push(Ring { seconds: ring.predicted(&node), ..ring });
            }
            for nodes in [2, 4] {
                let ring = Ring::over_nodes(&row(8 * nodes, nodes), &node);
                assert!(ring.within > inside.last().expect("rings").seconds * 0.999);
                between.push(Ring { seconds: ring.predicted(&network), ..ring });
            }
        }
        for (rows, known) in [(inside, node), (between, network)] {
            for (found, known) in fit(&rows).iter().zip(known) {
                assert!((found / known - 1.0).abs() < 1e-4, "{found} {known}");
            }
        }
    }
}
