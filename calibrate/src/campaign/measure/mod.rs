//! Whole networks on a device: a step with real buffers and data flow, its time, power, clocks and memory; and the
//! same step as the sum of its layers, each measured alone.

pub mod checksum;
pub mod curve;
pub mod layers;
pub mod record;

use crate::campaign::measure::record::{NetworkRun, Table};
use anyhow::{Context, Result};
use joulecast_kernels::measure::{self, Rules};
use joulecast_kernels::runner::{Launch, NetworkTrial};
use joulecast_kernels::{DeviceError, LayerRunner, PowerMeter};
use joulecast_model::base::precision::{Mode, Precision};
use joulecast_model::base::units::Seconds;
use joulecast_model::kernel::setting::Layout;
use joulecast_model::net::network::{Network, ShapedNetwork};
use std::time::Instant;

/// What to measure: every combination.
#[derive(Clone, Debug)]
pub struct Request {
    /// Networks.
    pub networks: Vec<Network>,
    /// Batches.
    pub batches: Vec<u64>,
    /// Precisions, each in the layout that frameworks use with it.
    pub precisions: Vec<Precision>,
    /// Inference or training steps.
    pub modes: Vec<Mode>,
    /// Launches.
    pub launches: Vec<Launch>,
    /// Host time after which no further run begins.
    pub budget: Option<Seconds>,
}

/// How a campaign ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Rows written.
    pub measured: usize,
    /// Rows that were there already.
    pub known: usize,
    /// What could not run, with the reason.
    pub skipped: Vec<(String, String)>,
    /// Runs left when the budget ended.
    pub left: usize,
}

/// Measures every combination that the table does not hold yet; each row is on disk before the next run begins.
///
/// # Errors
/// When the device is lost or a row cannot be written. What cannot run on the device is skipped with its reason.
pub fn run(
    runner: &mut dyn LayerRunner,
    mut meter: Option<&mut dyn PowerMeter>,
    request: &Request,
    table: &mut Table<NetworkRun>,
    progress: &mut dyn FnMut(&str),
) -> Result<Summary> {
    let begun = Instant::now();
    let mut summary = Summary::default();
    for network in &request.networks {
        for &batch in &request.batches {
            for &precision in &request.precisions {
                let shaped = ShapedNetwork::new(network, batch, precision, &[])
                    .with_context(|| format!("network {}", network.name))?;
                for &mode in &request.modes {
                    for &launch in &request.launches {
                        let layout = Layout::usual(precision);
                        let trial = NetworkTrial { network: &shaped, batch, precision, mode, layout, launch };
                        let key = record::key(&trial);
                        if table.holds(&key) {
                            summary.known += 1;
                            continue;
                        }
                        let spent = Seconds::new(begun.elapsed().as_secs_f64());
                        if request.budget.is_some_and(|budget| spent >= budget) {
                            summary.left += 1;
                            continue;
                        }
                        progress(&key);
                        let meter = meter.as_mut().map(|m| &mut **m as &mut dyn PowerMeter);
                        match one(runner, meter, &trial) {
                            Ok(row) => {
                                table.append(key, &row)?;
                                summary.measured += 1;
                            }
                            Err(error @ DeviceError::Lost(_)) => return Err(error.into()),
                            Err(error) => summary.skipped.push((key, error.to_string())),
                        }
                    }
                }
            }
        }
    }
    Ok(summary)
}

/// One run: the burst at full clock, then the sustained run where there is a meter.
pub(crate) fn one(
    runner: &mut dyn LayerRunner,
    meter: Option<&mut dyn PowerMeter>,
    trial: &NetworkTrial<'_>,
) -> Result<NetworkRun, DeviceError> {
    let rules = Rules::default();
    let loaded = runner.load_network(trial)?;
    let mut row = NetworkRun::new(trial, &loaded, runner.identity());
    match meter {
        Some(meter) => {
            let burst = measure::burst(runner, Some(&mut *meter), &rules)?;
            let mut sustained = measure::sustained(runner, meter, &rules)?;
            measure::check_clock(&burst, &mut sustained);
            row.set_burst(&burst);
            row.set_sustained(&sustained);
        }
        None => {
            let burst = measure::burst(runner, None, &rules)?;
            row.set_burst(&burst);
        }
    }
    Ok(row)
}
