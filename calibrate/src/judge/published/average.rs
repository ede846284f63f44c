//! Average power of runs at the default settings: castro2018 (Tables 5 and 8), nvidia2015 (Table 2); and what castro2018
//! calls GFLOPS/W (Table 11).

use super::{Cell, Tools, mean_absolute, percent, shaped};
use anyhow::Result;
use joulecast_ask::papers::Line;
use joulecast_model::base::precision::{Mode, Phase};
use joulecast_model::base::units::{Joules, Seconds};
use joulecast_model::catalog;
use joulecast_model::step::predictor::PredictError;
use joulecast_reports::published::{Cell as Shown, EFFICIENCIES, RUN_MEANS, RUNS};
use joulecast_reports::table::Table;

/// The cards of the papers; their other devices are no cards.
const BOARDS: [&str; 2] = ["titan-x-pascal", "titan-x-maxwell"];
/// Cards at work are said to draw this share of their limit: the baseline.
const USUAL_SHARE: f64 = 0.85;
/// Energy over time and the power printed beside them may differ so much (papers/NOTES.md): else the run contradicts itself.
const CONSISTENT: f64 = 0.05;

/// Whether it is of one of the cards, alone.
fn of_a_card(cell: &&Cell) -> bool {
    cell.line.n_gpus == "1" && BOARDS.iter().any(|board| cell.is_of(board))
}

/// A run as it was measured.
struct Run<'a> {
    cell: &'a Cell,
    batch: u64,
    watts: f64,
}

/// What tells runs apart.
fn run_of(line: &Line) -> [&str; 5] {
    [&line.gpu, &line.network, &line.phase, &line.batch, &line.n_gpus]
}

/// Runs on one GPU whose printed power is what their printed energy and time give.
fn runs(cells: &[Cell]) -> Vec<Run<'_>> {
    let mut list = Vec::new();
    for cell in cells.iter().filter(of_a_card) {
        let (Ok(batch), Some(watts)) = (cell.line.batch.parse(), cell.number()) else { continue };
        let beside = |metric: &str| {
            let same = |c: &&Cell| c.line.metric == metric && run_of(&c.line) == run_of(&cell.line);
            cells.iter().find(same).and_then(Cell::number)
        };
        let consistent = match cell.line.metric.as_str() {
            "power" => true,
            "joules_per_second_one_gpu" => match (beside("joules_per_batch_one_gpu"), beside("seconds_per_batch")) {
                (Some(joules), Some(seconds)) => (joules / seconds / watts - 1.0).abs() <= CONSISTENT,
                _ => false,
            },
            _ => continue,
        };
        if consistent {
            list.push(Run { cell, batch, watts });
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
        let (Some(network), Some(gpu)) = (&run.cell.network, &run.cell.gpu) else { continue };
        let gpu = catalog::gpu(gpu)?;
        let network = shaped(network, run.batch)?;
        let mode = if run.cell.line.phase.starts_with("back") { Mode::Training } else { Mode::Inference };
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
        let mut row: Vec<Shown> =
            [&gpu.name, &run.cell.line.network, &run.cell.line.phase].map(|n| n.as_str().into()).to_vec();
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
    let table_11 = |c: &&Cell| c.line.table == "Table 11" && c.line.metric == "gflops_per_watt";
    for cell in cells.iter().filter(of_a_card).filter(table_11) {
        let (Ok(batch), Some(printed)) = (cell.line.batch.parse::<u64>(), cell.number()) else { continue };
        let (Some(network), Some(gpu)) = (&cell.network, &cell.gpu) else { continue };
        let of = |c: &&Cell| {
            let Line { table, network, metric, .. } = &c.line;
            table == "Table 1" && *network == cell.line.network && metric == "arithmetic_operations"
        };
        let Some(millions) = cells.iter().find(of).and_then(Cell::number) else { continue };
        let gpu = catalog::gpu(gpu)?;
        let network = shaped(network, batch)?;
        let prediction = tools.on(&gpu).predict(&network, Mode::Training)?;
        let passes = prediction.layers.iter().filter(|l| l.phase != Phase::Update);
        let energy: Joules = passes.map(|l| l.energy).sum();
        let predicted = 2.0 * millions * 1e6 * batch as f64 / energy.get() / 1e9;
        let numbers = [batch as f64, printed, predicted].map(Shown::from);
        list.push([gpu.name.as_str(), &cell.line.network].map(Shown::from).into_iter().chain(numbers).collect());
    }
    Ok(EFFICIENCIES.table(list))
}
