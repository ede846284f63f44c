//! Average power of runs at the default settings: castro2018 (Tables 5 and 8), nvidia2015 (Table 2); and what castro2018
//! calls GFLOPS/W (Table 11).

use super::{Cell, Tools, mean_absolute, percent, shaped, zoo};
use anyhow::Result;
use joulecast_model::base::precision::{Mode, Phase};
use joulecast_model::base::units::{Joules, Seconds};
use joulecast_model::catalog;
use joulecast_model::step::predictor::PredictError;
use joulecast_reports::published::{Cell as Shown, EFFICIENCIES, RUN_MEANS, RUNS};
use joulecast_reports::table::Table;

/// Boards of the papers, and ours.
const BOARDS: [(&str, &str); 3] = [
    ("Titan X Pascal", "titan-x-pascal"),
    ("Titan X Maxwell", "titan-x-maxwell"),
    ("GeForce GTX Titan X", "titan-x-maxwell"),
];
/// Cards at work are said to draw this share of their limit: the baseline.
const USUAL_SHARE: f64 = 0.85;
/// Energy over time and the power printed beside them may differ so much (papers/NOTES.md): else the run contradicts itself.
const CONSISTENT: f64 = 0.05;

/// A run as it was measured.
struct Run<'a> {
    gpu: &'static str,
    network: &'a str,
    phase: &'a str,
    batch: u64,
    watts: f64,
}

/// Runs on one GPU whose printed power is what their printed energy and time give.
fn runs(cells: &[Cell]) -> Vec<Run<'_>> {
    let mut list = Vec::new();
    for cell in cells.iter().filter(|c| c.n_gpus == Some(1.0)) {
        let Some((_, gpu)) = BOARDS.iter().find(|(theirs, _)| *theirs == cell.gpu) else { continue };
        let (Ok(batch), Some(watts)) = (cell.batch.parse(), cell.number()) else { continue };
        let beside = |metric: &str| {
            let same = |c: &&Cell| {
                (&c.gpu, &c.network, &c.phase, &c.batch, c.n_gpus)
                    == (&cell.gpu, &cell.network, &cell.phase, &cell.batch, cell.n_gpus)
                    && c.metric == metric
            };
            cells.iter().find(same).and_then(Cell::number)
        };
        let consistent = match cell.metric.as_str() {
            "power" => true,
            "joules_per_second_one_gpu" => match (beside("joules_per_batch_one_gpu"), beside("seconds_per_batch")) {
                (Some(joules), Some(seconds)) => (joules / seconds / watts - 1.0).abs() <= CONSISTENT,
                _ => false,
            },
            _ => continue,
        };
        if consistent {
            list.push(Run { gpu, network: &cell.network, phase: &cell.phase, batch, watts });
        }
    }
    list
}

/// The comparison as tables.
///
/// # Errors
/// When a device or network is malformed or a prediction fails.
pub fn tables(cells: &[Cell], tools: &Tools) -> Result<Vec<Table>> {
    let mut list: Vec<Vec<Shown>> = Vec::new();
    let (mut errors, mut baseline) = (Vec::new(), Vec::new());
    for run in runs(cells) {
        let Some(name) = zoo(run.network) else { continue };
        let gpu = catalog::gpu(run.gpu)?;
        let network = shaped(name, run.batch)?;
        let mode = if run.phase.starts_with("back") { Mode::Training } else { Mode::Inference };
        let prediction = match tools.on(&gpu).predict(&network, mode) {
            Err(PredictError::NoModel { .. }) => continue,
            prediction => prediction?,
        };
        // A backward pass alone: its phases, without forward and update.
        let watts = if mode == Mode::Training {
            let back = || prediction.layers.iter().filter(|l| l.phase.name().starts_with("backward"));
            let energy: Joules = back().map(|l| l.energy).sum();
            let time: Seconds = back().map(|l| l.time.value).sum();
            (energy / time).get()
        } else {
            prediction.power.value.get()
        };
        let usual = USUAL_SHARE * gpu.power.limit.value.get();
        errors.push(percent(watts, run.watts));
        baseline.push(percent(usual, run.watts));
        let mut row: Vec<Shown> = [run.gpu, run.network, run.phase].map(Into::into).to_vec();
        let numbers = [run.batch as f64, run.watts, watts, percent(watts, run.watts), percent(usual, run.watts)];
        row.extend(numbers.map(Shown::from));
        list.push(row);
    }
    let efficiency = efficiencies(cells, tools)?;
    let means = [errors.len() as f64, mean_absolute(&errors), mean_absolute(&baseline)].map(Shown::from);
    Ok(vec![RUN_MEANS.table([means.to_vec()]), RUNS.table(list), efficiency])
}

/// Table 11 on one GPU: twice the operations of Table 1 times the batch, over the joules of forward and backward.
fn efficiencies(cells: &[Cell], tools: &Tools) -> Result<Table> {
    let mut list: Vec<Vec<Shown>> = Vec::new();
    for cell in cells.iter().filter(|c| c.table == "Table 11" && c.n_gpus == Some(1.0) && c.metric == "gflops_per_watt")
    {
        let Some((_, name)) = BOARDS.iter().find(|(theirs, _)| *theirs == cell.gpu) else { continue };
        let (Ok(batch), Some(printed), Some(network)) = (cell.batch.parse::<u64>(), cell.number(), zoo(&cell.network))
        else {
            continue;
        };
        let of = |c: &&Cell| c.table == "Table 1" && c.network == cell.network && c.metric == "arithmetic_operations";
        let Some(millions) = cells.iter().find(of).and_then(Cell::number) else { continue };
        let gpu = catalog::gpu(name)?;
        let network = shaped(network, batch)?;
        let prediction = tools.on(&gpu).predict(&network, Mode::Training)?;
        let passes = prediction.layers.iter().filter(|l| l.phase != Phase::Update);
        let energy: Joules = passes.map(|l| l.energy).sum();
        let predicted = 2.0 * millions * 1e6 * batch as f64 / energy.get() / 1e9;
        let numbers = [batch as f64, printed, predicted].map(Shown::from);
        list.push([gpu.name.as_str(), &cell.network].map(Shown::from).into_iter().chain(numbers).collect());
    }
    Ok(EFFICIENCIES.table(list))
}
