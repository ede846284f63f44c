//! `predict plan`: fleets of GPUs for a load.

use crate::commands::{Failure, command_line, emit, read, refused};
use crate::devices::{Device, FrameworkArgs, How};
use crate::networks::network;
use crate::optimize::caps;
use anyhow::{Context, anyhow};
use clap::{Args, ValueEnum};
use joulecast_model::capacity::{
    Assumptions, Board, CandidateFile, PlanFile, Scenario, Service, best, plan_fleet, sensitivity,
};
use joulecast_model::network::{Network, ShapedNetwork, ShapingError};
use joulecast_model::power::waiting;
use joulecast_model::precision::Mode;
use joulecast_model::predictor::{OperatingPoint, Step};
use joulecast_model::units::Watts;
use joulecast_reports::plan::{AtLimit, Candidate, Plan, csv, html, json, markdown, text};
use std::path::PathBuf;

#[derive(Args)]
pub struct PlanArgs {
    /// What to plan for (data/capacity/README.md)
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// How to print
    #[arg(long, value_enum, default_value_t = PlanFormat::Table)]
    pub format: PlanFormat,
    /// Write there instead of to standard output (- is standard output)
    #[arg(long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum PlanFormat {
    /// Aligned text
    Table,
    /// For a report
    Markdown,
    /// One file with its figures, for a browser
    Html,
    /// The document capacity_plan/1
    Json,
    /// A row per candidate and power limit
    Csv,
}

/// At most so many power limits are tried besides the default.
const CAPS: usize = 8;

/// Waiting in larger pools takes long to compute, and nobody builds one.
const MOST_GPUS: f64 = 100_000.0;

/// Batches worth a try: every one up to four, then four for every doubling.
fn batches(most: u64) -> Vec<u64> {
    let octave = |i: u32| [4u64, 5, 6, 7].map(|b| b << i);
    (1..4).chain((0..u64::BITS - 3).flat_map(octave)).take_while(|b| *b <= most).collect()
}

/// Some of a list, evenly, its ends among them.
fn some<T: Copy>(list: &[T], most: usize) -> Vec<T> {
    if list.len() <= most {
        return list.to_vec();
    }
    (0..most).map(|i| list[i * (list.len() - 1) / (most - 1)]).collect()
}

/// A candidate's boards, one per power limit that the predicted steps keep, and what its predictions rest on.
struct Predicted {
    title: String,
    boards: Vec<Board>,
    rests_on: Vec<String>,
    warnings: Vec<String>,
}

fn predict(file: &PlanFile, candidate: &CandidateFile, networks: &[Network], how: &How) -> Result<Predicted, Failure> {
    let device = Device::read(&candidate.gpu, how)?;
    let gpu = &device.gpu;
    let mut limits = vec![gpu.power.limit.value];
    limits.extend(some(&caps(gpu), CAPS));
    let mut boards: Vec<Option<Board>> = limits
        .iter()
        .map(|cap| {
            Some(Board {
                cap: *cap,
                waiting: waiting(gpu),
                price: candidate.price,
                embodied_kg: candidate.embodied_kg,
                services: Vec::new(),
                more_fit: Vec::new(),
            })
        })
        .collect();
    let (mut rests_on, mut warnings) = (Vec::new(), Vec::new());
    for (entry, network) in file.networks.iter().zip(networks) {
        let mut services: Vec<Vec<Service>> = vec![Vec::new(); limits.len()];
        let mut more_fit = true;
        let shaping = |e: ShapingError| Failure::Failed(anyhow!("{}: {e}", network.name));
        let single = ShapedNetwork::new(network, 1, how.precision, &[]).map_err(shaping)?;
        let single = how.framework.runs(single);
        for batch in batches(file.largest_batch) {
            let shaped = single.with_batch(batch).map_err(shaping)?;
            let step = Step::new(&shaped, &device.setup(how)).map_err(refused)?;
            let prepared = step.prepare();
            if !prepared.fits_in_memory {
                more_fit = false;
                break;
            }
            for ((cap, services), board) in limits.iter().zip(&mut services).zip(&mut boards) {
                let power_cap = (*cap != gpu.power.limit.value).then_some(*cap);
                let point = OperatingPoint { power_cap, ..OperatingPoint::default() };
                let total = prepared.at(point).map_err(refused)?;
                // What the board cannot keep to is no choice.
                if power_cap.is_some_and(|cap| total.power.value > cap) {
                    *board = None;
                }
                services.push(Service { batch, time: total.time, energy: total.energy });
            }
            if batch == 1 {
                let whole = step.at(OperatingPoint::default()).map_err(refused)?;
                rests_on.push(format!("{}: times {}, power {}", network.name, whole.time_tier, whole.power_tier));
                let new = whole.warnings.into_iter().filter(|w| !warnings.contains(w)).collect::<Vec<_>>();
                warnings.extend(new);
            }
        }
        let each = |s: &Service| s.time.value.get() / s.batch as f64;
        let busy = services.iter().flatten().map(each).fold(f64::INFINITY, f64::min) * file.peak_per_s * entry.share;
        if busy.is_finite() && busy > MOST_GPUS {
            return Err(Failure::Failed(anyhow!(
                "{} on {}: at least {busy:.0} GPUs at the peak, and no plan is made for more than {MOST_GPUS}: divide the load",
                network.name,
                gpu.name
            )));
        }
        for (board, services) in boards.iter_mut().zip(services) {
            if let Some(board) = board {
                board.services.push(services);
                board.more_fit.push(more_fit);
            }
        }
    }
    let boards = boards.into_iter().flatten().collect();
    Ok(Predicted { title: gpu.title.clone(), boards, rests_on, warnings })
}

/// The fleets of a candidate at all its limits, and the one it would be taken with.
fn candidate(file: &PlanFile, c: &CandidateFile, networks: &[Network], how: &How) -> Result<Candidate, Failure> {
    let predicted = predict(file, c, networks, how)?;
    let load = assumptions(file, c);
    let fleets: Vec<_> = predicted.boards.iter().map(|b| plan_fleet(b, &load, Scenario::Value)).collect();
    let chosen = best(&fleets, file.minimise, file.site.site);
    let free = best(&fleets, file.minimise, None);
    let options: Vec<AtLimit> = predicted
        .boards
        .iter()
        .zip(fleets)
        .map(|(board, value)| AtLimit {
            cap: board.cap,
            value,
            low: plan_fleet(board, &load, Scenario::Low),
            high: plan_fleet(board, &load, Scenario::High),
        })
        .collect();
    Ok(Candidate {
        gpu: c.gpu.clone(),
        title: predicted.title,
        price: c.price,
        price_source: c.price_source.clone(),
        server: c.server,
        embodied_kg: c.embodied_kg,
        sensitivity: chosen.map_or_else(Vec::new, |i| sensitivity(&predicted.boards[i], &load)),
        site_bound: chosen != free,
        options,
        chosen,
        rests_on: predicted.rests_on,
        warnings: predicted.warnings,
    })
}

fn assumptions(file: &PlanFile, c: &CandidateFile) -> Assumptions {
    Assumptions {
        peak_per_s: file.peak_per_s,
        profile_per_s: file.profile_per_s.clone(),
        target: file.target,
        shares: file.networks.iter().map(|n| n.share).collect(),
        server: c.server,
        site: file.site,
    }
}

/// `predict plan`
pub fn plan(args: &PlanArgs) -> Result<(), Failure> {
    let name = args.file.display().to_string();
    let file = || -> anyhow::Result<PlanFile> { PlanFile::from_toml(&read(&name)?).with_context(|| name.clone()) };
    let file = file().map_err(Failure::Failed)?;
    let framework = FrameworkArgs { framework: file.framework.clone(), launch: None, cudnn: None };
    let how = How::new(&framework, file.precision, Mode::Inference)?;
    let networks = file.networks.iter().map(|n| Ok(network(&n.net)?.0)).collect::<Result<Vec<Network>, Failure>>()?;
    let candidates =
        file.candidates.iter().map(|c| candidate(&file, c, &networks, &how)).collect::<Result<Vec<_>, _>>()?;
    let chosen: Vec<_> = candidates.iter().map(|c| c.chosen.and_then(|i| c.options[i].value.clone())).collect();
    let winner = best(&chosen, file.minimise, None::<Watts>);
    let plan = Plan { file, launch: how.launch(), candidates, winner, command: command_line() };
    let failed = |e: &dyn std::fmt::Display| Failure::Failed(anyhow!("{e}"));
    let rendered = match args.format {
        PlanFormat::Table => text(&plan),
        PlanFormat::Markdown => markdown(&plan),
        PlanFormat::Html => html(&plan).map_err(|e| failed(&e))?,
        PlanFormat::Json => json(&plan).map_err(|e| failed(&e))?,
        PlanFormat::Csv => csv(&plan).map_err(|e| failed(&e))?,
    };
    emit(&rendered, args.output.as_deref()).map_err(Failure::Failed)
}
