//! What the best core clock saves: tang2019, Tables III and IV.

use super::{Cell, Tools, mean_absolute, shaped};
use anyhow::{Context, Result, bail};
use joulecast_ask::papers::Line;
use joulecast_model::base::precision::Mode;
use joulecast_model::base::units::{Hertz, Joules, Seconds};
use joulecast_model::catalog;
use joulecast_model::device::gpu::Gpu;
use joulecast_model::kernel::setting::Algorithm;
use joulecast_model::step::predict::Predictor;
use joulecast_model::step::predictor::OperatingPoint;
use joulecast_reports::published::{self, BY_ALGORITHM, Cell as Shown, SAVING_MEANS, SAVINGS, labelled};
use joulecast_reports::table::Table;
use rayon::prelude::*;
use std::collections::BTreeMap;

/// Boards of the paper. Its GTX 2080 Ti is scaled past what the card's file knows.
const BOARDS: [&str; 2] = ["p100-pcie", "v100-pcie"];
const SAVING: &str = "energy_saving_optimal_vs_default_core_freq";

/// Rises of the voltage that are tried on a board.
const RISES: [f64; 15] = [0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.55, 0.6, 0.65, 0.7];

/// A saving that the paper prints.
struct Printed {
    network: String,
    name: String,
    mode: Mode,
    batches: Vec<u64>,
    percent: f64,
}

/// Best saving in percent over clocks against the highest of them, mean over batches; and the clock that saves it at the
/// last batch.
fn saving(predictor: &Predictor, printed: &Printed, clocks: &[Hertz]) -> Result<(f64, Hertz)> {
    let mut savings = Vec::new();
    let mut best_clock = Hertz::ZERO;
    for &batch in &printed.batches {
        let network = shaped(&printed.network, batch)?;
        let step = predictor.step(&network, printed.mode)?;
        let energy = |clock: Hertz| -> Result<Joules> {
            let point = OperatingPoint { core_clock: Some(clock), ..OperatingPoint::default() };
            Ok(step.at(point)?.energy.value)
        };
        let energies = clocks.iter().map(|c| Ok((*c, energy(*c)?))).collect::<Result<Vec<_>>>()?;
        let default = energies.last().context("no clocks")?.1;
        let best = energies.iter().min_by(|a, b| a.1.get().total_cmp(&b.1.get())).context("no clocks")?;
        savings.push(100.0 * (1.0 - best.1 / default));
        best_clock = best.0;
    }
    if savings.is_empty() {
        bail!("{}: no batches", printed.name);
    }
    Ok((savings.iter().sum::<f64>() / savings.len() as f64, best_clock))
}

/// A device whose voltage rises otherwise.
fn risen(gpu: &Gpu, rise: f64) -> Gpu {
    let mut gpu = gpu.clone();
    if let Some(voltage) = &mut gpu.voltage {
        voltage.rise.value = rise;
    }
    gpu
}

/// Of the networks of a mode: errors of the three predictions, what is printed and what is predicted.
#[derive(Default)]
struct Compared {
    errors: [Vec<f64>; 3],
    printed: Vec<f64>,
    predicted: Vec<f64>,
}

fn mean(list: &[f64]) -> f64 {
    list.iter().sum::<f64>() / list.len().max(1) as f64
}

/// What the paper calls the algorithms that it made Caffe use.
const ALGORITHMS: [(&str, Algorithm); 3] =
    [("GEMM", Algorithm::Gemm), ("FFT", Algorithm::FftTiling), ("Winograd", Algorithm::WinogradNonfused)];

/// Table IV: the same in training with convolutions by one algorithm where it can do them, mean over the networks.
///
/// # Errors
/// As of [`tables`].
pub fn by_algorithm(cells: &[Cell], tools: &Tools) -> Result<Table> {
    let mut list = Vec::new();
    for ours in BOARDS {
        let (gpu, clocks) = (catalog::gpu(ours)?, clocks(cells, ours));
        let networks: Vec<Printed> = printed(cells, ours)?.into_iter().filter(|p| p.mode == Mode::Training).collect();
        for (name, algorithm) in ALGORITHMS {
            let of =
                |c: &&Cell| c.line.table == "Table IV" && c.is_of(ours) && c.line.note.ends_with(&format!(" {name}"));
            let percent =
                cells.iter().find(of).and_then(Cell::number).with_context(|| format!("no saving by {name}"))?;
            let (usual, by) = (tools.on(&gpu), tools.by(algorithm).on(&gpu));
            let predicted: Vec<f64> =
                networks.par_iter().map(|p| Ok(saving(&by, p, &clocks)?.0)).collect::<Result<_>>()?;
            let slower = networks.iter().map(|p| {
                let network = shaped(&p.network, *p.batches.last().context("no batches")?)?;
                let time = |on: &Predictor| -> Result<Seconds> { Ok(on.predict(&network, p.mode)?.time.value) };
                Ok(time(&by)? / time(&usual)?)
            });
            let slower = slower.collect::<Result<Vec<f64>>>()?;
            let mut row = labelled([ours, name], [percent, mean(&predicted)]);
            row.push(Shown::Numbers(slower));
            list.push(row);
        }
    }
    Ok(BY_ALGORITHM.table(list))
}

/// Core clocks that the paper set.
fn clocks(cells: &[Cell], gpu: &str) -> Vec<Hertz> {
    let set = cells.iter().filter(|c| c.is_of(gpu) && c.line.metric == "core_frequency");
    set.filter_map(Cell::number).map(Hertz::from_mhz).collect()
}

/// Table III of a GPU.
fn printed(cells: &[Cell], gpu: &str) -> Result<Vec<Printed>> {
    let batches = |network: &str| -> Vec<u64> {
        let of = |c: &&Cell| c.line.metric == "batch_size_tested" && c.line.network == network;
        cells.iter().filter(of).filter_map(|c| c.line.batch.parse().ok()).collect()
    };
    let mut printed = Vec::new();
    for (phase, mode) in [("train", Mode::Training), ("inference", Mode::Inference)] {
        let of = |c: &&Cell| {
            let Line { table, phase: printed, metric, .. } = &c.line;
            c.is_of(gpu) && (table.as_str(), printed.as_str(), metric.as_str()) == ("Table III", phase, SAVING)
        };
        for cell in cells.iter().filter(of) {
            let name = cell.line.network.clone();
            let percent = cell.number().with_context(|| format!("{name}: no saving"))?;
            let network = cell.known_network()?.to_string();
            printed.push(Printed { network, batches: batches(&name), name, mode, percent });
        }
    }
    Ok(printed)
}

/// The comparison as tables.
///
/// # Errors
/// When the paper's tables or a prediction fail.
pub fn tables(cells: &[Cell], tools: &Tools) -> Result<Vec<Table>> {
    let (mut list, mut means, mut rises) = (Vec::new(), Vec::new(), Vec::new());
    let mut all: [Vec<f64>; 3] = Default::default();
    for ours in BOARDS {
        let gpu = catalog::gpu(ours)?;
        let (clocks, printed, usual) = (clocks(cells, ours), printed(cells, ours)?, tools.on(&gpu));
        let by_rise: Vec<Vec<f64>> = RISES
            .par_iter()
            .map(|rise| {
                printed
                    .iter()
                    .map(|p| Ok(saving(&usual.clone().described(risen(&gpu, *rise)), p, &clocks)?.0))
                    .collect()
            })
            .collect::<Result<_>>()?;
        let loss = |found: &[f64]| found.iter().zip(&printed).map(|(f, p)| (f - p.percent).abs()).sum::<f64>();
        let pairs = RISES.iter().zip(&by_rise);
        let (rise, found) = pairs.min_by(|a, b| loss(a.1).total_cmp(&loss(b.1))).context("no rises")?;
        let shipped = gpu.voltage.as_ref().map_or(f64::NAN, |v| v.rise.value);
        rises.push(labelled([ours], [*rise, loss(found) / printed.len() as f64, shipped]));
        let mut by_mode: BTreeMap<&str, Compared> = BTreeMap::new();
        for (i, p) in printed.iter().enumerate() {
            // Both modes of a network are left out together.
            let others: Vec<usize> = (0..printed.len()).filter(|&j| printed[j].network != p.network).collect();
            let loss = |found: &Vec<f64>| others.iter().map(|&j| (found[j] - printed[j].percent).abs()).sum::<f64>();
            let best = by_rise.iter().min_by(|a, b| loss(a).total_cmp(&loss(b))).context("no rises")?;
            let (shipped, clock) = saving(&usual, p, &clocks)?;
            let same_mode = others.iter().filter(|&&j| printed[j].mode == p.mode).map(|&j| printed[j].percent);
            let baseline = mean(&same_mode.collect::<Vec<_>>());
            let numbers = [p.percent, best[i], shipped, baseline, clock.to_mhz()];
            list.push(labelled([ours, p.mode.name(), &p.name], numbers));
            let entry = by_mode.entry(p.mode.name()).or_default();
            for (k, value) in [best[i], shipped, baseline].into_iter().enumerate() {
                entry.errors[k].push(value - p.percent);
                all[k].push(value - p.percent);
            }
            entry.printed.push(p.percent);
            entry.predicted.push(best[i]);
        }
        for (mode, Compared { errors, printed, predicted }) in by_mode {
            let errors = errors.iter().map(|e| mean_absolute(e));
            means.push(labelled([ours, mode], errors.chain([mean(&printed), mean(&predicted)])));
        }
    }
    means.push(labelled(["both", "both"], all.iter().map(|e| mean_absolute(e))));
    Ok(vec![SAVING_MEANS.table(means), published::RISES.table(rises), SAVINGS.table(list), by_algorithm(cells, tools)?])
}
