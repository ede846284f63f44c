//! A network's layers, each measured alone, to be summed and compared with the network measured whole. These rows
//! stand in a table of their own and never enter a fit: the networks compared have the role `test`.

use super::record::Table;
use anyhow::{Context, Result};
use joulecast_kernels::measure::{self, Rules};
use joulecast_kernels::{DeviceError, LayerRunner, PowerMeter};
use joulecast_model::base::precision::{Mode, Precision};
use joulecast_model::base::units::Seconds;
use joulecast_model::kernel::setting::Cache;
use joulecast_model::kernel::work::{Trial, Work};
use joulecast_model::net::network::{Network, ShapedNetwork};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::time::Instant;

/// One layer of a network in one phase.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LayerRun {
    /// Network.
    pub network: String,
    /// `inference` or `training`.
    pub mode: String,
    /// Precision.
    pub precision: String,
    /// Layout of maps.
    pub layout: String,
    /// Samples.
    pub batch: u64,
    /// Place in the network.
    pub index: usize,
    /// Name.
    pub layer: String,
    /// Kind.
    pub kind: String,
    /// Phase.
    pub phase: String,
    /// Microseconds of one execution in the burst.
    pub time_us: f64,
    /// 10 % quantile over blocks.
    pub p10_us: f64,
    /// 90 % quantile over blocks.
    pub p90_us: f64,
    /// Core clock meanwhile.
    pub core_mhz: Option<f64>,
    /// Microseconds of one execution in the sustained run.
    pub sustained_us: Option<f64>,
    /// Core clock meanwhile.
    pub sustained_mhz: Option<f64>,
    /// Mean power meanwhile.
    pub watts: Option<f64>,
    /// hot or cold.
    pub cache: Option<String>,
    /// Algorithm or engine.
    pub algorithm: Option<String>,
    /// Reasons for doubt, joined by semicolons.
    pub flags: Option<String>,
}

impl LayerRun {
    /// What makes the row unique in a table.
    pub fn key(&self) -> String {
        let Self { network, mode, precision, layout, batch, index, phase, .. } = self;
        format!("{network},{mode},{precision},{layout},{batch},{index},{phase}")
    }
}

/// What to measure.
#[derive(Clone, Debug)]
pub struct Request {
    /// Networks.
    pub networks: Vec<Network>,
    /// Batches.
    pub batches: Vec<u64>,
    /// Precisions.
    pub precisions: Vec<Precision>,
    /// Inference or training steps.
    pub modes: Vec<Mode>,
    /// Share of the step's time whose layers also get a sustained run, the longest first; 0: none.
    pub energy_share: f64,
    /// Window of a sustained run.
    pub window: Seconds,
    /// Host time after which nothing further begins.
    pub budget: Option<Seconds>,
}

/// Measures what the table does not hold. A layer that occurs several times is measured once and written for each
/// place. Returns the number of rows written.
///
/// # Errors
/// When the device is lost or a row cannot be written.
pub fn run(
    runner: &mut dyn LayerRunner,
    mut meter: Option<&mut dyn PowerMeter>,
    request: &Request,
    table: &mut Table<LayerRun>,
    progress: &mut dyn FnMut(&str),
) -> Result<usize> {
    let begun = Instant::now();
    let over = || request.budget.is_some_and(|b| Seconds::new(begun.elapsed().as_secs_f64()) >= b);
    let rules = Rules { window: request.window, timeout: request.window * 3.0, ..Rules::default() };
    let mut written = 0;
    for network in &request.networks {
        for &batch in &request.batches {
            for &precision in &request.precisions {
                let shaped = ShapedNetwork::new(network, batch, precision, &[])
                    .with_context(|| format!("network {}", network.name))?;
                for &mode in &request.modes {
                    let mut places = places(&shaped, batch, precision, mode);
                    places.retain(|(row, _)| !table.holds(&row.key()));
                    if places.is_empty() || over() {
                        continue;
                    }
                    progress(&format!("{} {mode} {precision} batch {batch}", network.name));
                    let meter = meter.as_mut().map(|m| &mut **m as &mut dyn PowerMeter);
                    for row in one_step(runner, meter, places, request, &rules)? {
                        table.append(row.key(), &row)?;
                        written += 1;
                    }
                }
            }
        }
    }
    Ok(written)
}

/// Every layer and phase of a step that runs a kernel, with its trial.
fn places(shaped: &ShapedNetwork, batch: u64, precision: Precision, mode: Mode) -> Vec<(LayerRun, Trial)> {
    let mut places = Vec::new();
    for (index, layer) in shaped.layers().iter().enumerate() {
        for &phase in mode.phases() {
            if shaped.cost(layer, phase, mode).is_none() {
                continue;
            }
            let trial = Work::of(layer, phase, batch, precision, mode).into_owned();
            let row = LayerRun {
                network: shaped.name().to_string(),
                mode: mode.to_string(),
                precision: precision.to_string(),
                layout: trial.layout.to_string(),
                batch,
                index,
                layer: layer.name.to_string(),
                kind: layer.case.layer.kind().to_string(),
                phase: phase.to_string(),
                ..LayerRun::default()
            };
            places.push((row, trial));
        }
    }
    places
}

fn one_step(
    runner: &mut dyn LayerRunner,
    mut meter: Option<&mut dyn PowerMeter>,
    places: Vec<(LayerRun, Trial)>,
    request: &Request,
    rules: &Rules,
) -> Result<Vec<LayerRun>> {
    let mut measured: HashMap<String, LayerRun> = HashMap::new();
    let identity = |trial: &Trial| serde_json::to_string(trial);
    for (_, trial) in &places {
        let key = identity(trial)?;
        if let Entry::Vacant(place) = measured.entry(key) {
            let meter = meter.as_mut().map(|m| &mut **m as &mut dyn PowerMeter);
            place.insert(burst(runner, meter, trial, rules)?);
        }
    }
    if let (Some(meter), true) = (meter, request.energy_share > 0.0) {
        let mut totals: HashMap<String, f64> = HashMap::new();
        for (_, trial) in &places {
            let key = identity(trial)?;
            let time = measured.get(&key).map_or(0.0, |m| m.time_us);
            *totals.entry(key).or_default() += time;
        }
        let all: f64 = totals.values().sum();
        let mut order: Vec<(String, f64)> = totals.into_iter().collect();
        order.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        let mut covered = 0.0;
        for (key, time) in order {
            if covered >= request.energy_share * all {
                break;
            }
            covered += time;
            let trial: Trial = serde_json::from_str(&key)?;
            if let Some(row) = measured.get_mut(&key) {
                sustained(runner, meter, &trial, rules, row)?;
            }
        }
    }
    places
        .into_iter()
        .map(|(place, trial)| {
            let found = measured.get(&identity(&trial)?).cloned().unwrap_or_default();
            let LayerRun { network, mode, precision, layout, batch, index, layer, kind, phase, .. } = place;
            Ok(LayerRun { network, mode, precision, layout, batch, index, layer, kind, phase, ..found })
        })
        .collect()
}

fn burst(
    runner: &mut dyn LayerRunner,
    meter: Option<&mut dyn PowerMeter>,
    trial: &Trial,
    rules: &Rules,
) -> Result<LayerRun> {
    let loaded = match runner.load(trial) {
        Ok(loaded) => loaded,
        Err(error @ DeviceError::Lost(_)) => return Err(error.into()),
        Err(error) => return Ok(LayerRun { flags: Some(format!("not_run: {error}")), ..LayerRun::default() }),
    };
    let burst = measure::burst(runner, meter, rules)?;
    let timing = &burst.timing;
    Ok(LayerRun {
        time_us: timing.time.to_us(),
        p10_us: timing.p10.to_us(),
        p90_us: timing.p90.to_us(),
        core_mhz: burst.sample.and_then(|s| s.core).map(|c| c.to_mhz()),
        cache: loaded.cache.map(|c: Cache| c.to_string()),
        algorithm: loaded.algorithm,
        flags: (!burst.flags.is_empty()).then(|| burst.flags.join(";")),
        ..LayerRun::default()
    })
}

fn sustained(
    runner: &mut dyn LayerRunner,
    meter: &mut dyn PowerMeter,
    trial: &Trial,
    rules: &Rules,
    row: &mut LayerRun,
) -> Result<()> {
    if let Err(error) = runner.load(trial) {
        return if matches!(error, DeviceError::Lost(_)) { Err(error.into()) } else { Ok(()) };
    }
    let found = measure::sustained(runner, meter, rules)?;
    row.sustained_us = Some(found.timing.time.to_us());
    row.sustained_mhz = found.reading.as_ref().and_then(|r| r.core_mean).map(|c| c.to_mhz());
    row.watts = found.reading.as_ref().map(|r| r.power.get());
    if !found.flags.is_empty() {
        let before = row.flags.take().map(|f| f + ";").unwrap_or_default();
        row.flags = Some(before + &found.flags.join(";"));
    }
    Ok(())
}
