//! Core voltage and idle power over the clock, as others read them: what `[voltage]` of data/gpus rests on.
//!
//! Idle power is a constant, leakage and what the clock takes: P = P0 + V^2 (l + c f), V over its constant value, f over the
//! boost clock. Boards whose voltage was read give l / c; with that, idle power alone gives the voltage of others.

use super::{mean_absolute, percent};
use crate::fit::least_squares;
use crate::fit::polynomial::Options;
use crate::fit::power::{self, PowerRow};
use crate::rows::{dataset, prepare};
use anyhow::{Context, Result, bail};
use joulecast_model::catalog;
use joulecast_model::device::clock::VoltageCurve;
use joulecast_model::device::gpu::Gpu;
use joulecast_reports::published::{Cell, INFERRED, LIKELIHOODS, VOLTAGES, labelled};
use joulecast_reports::table::Table;
use ndarray::{Array1, Array2};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Relative clocks at which the voltage is constant on every board that was read, and the chip no longer near its lowest.
const CONSTANT: (f64, f64) = (0.3, 0.55);
/// Clocks that are compared with a knee are above this one.
const LOWEST: f64 = 0.25;
/// Where idle power is this near its highest, the clock follows the one that was asked for no longer.
const HIGHEST: f64 = 0.999;
/// Rises to compare.
const RISES: [f64; 10] = [0.0, 0.1, 0.2, 0.3, 0.4, 0.47, 0.55, 0.65, 0.8, 1.0];

#[derive(Deserialize)]
struct Row {
    gpu: String,
    sm_clock_mhz: f64,
    core_voltage_mv: Option<f64>,
    idle_power_w: f64,
}

/// Readings of a board, by rising clock.
struct Board {
    gpu: Gpu,
    /// Clock over the boost clock.
    clocks: Vec<f64>,
    idle: Vec<f64>,
    /// Voltage over its least, where it was read.
    voltage: Option<Vec<f64>>,
}

/// A knee (relative clock) and a rise, and by how many percent the voltage differs from that at most.
struct Knee {
    clock: f64,
    rise: f64,
    error: f64,
}

/// The constant up to a knee and the line above it that are nearest to a voltage.
fn knee(clocks: &[f64], voltage: &[f64]) -> Option<Knee> {
    let at = |knee: f64| {
        let above = |f: f64| ((f - knee) / (1.0 - knee)).max(0.0);
        let across: f64 = clocks.iter().map(|f| above(*f).powi(2)).sum();
        let rise = clocks.iter().zip(voltage).map(|(f, v)| above(*f) * (v - 1.0)).sum::<f64>() / across;
        let errors: Vec<f64> = clocks.iter().zip(voltage).map(|(f, v)| percent(1.0 + rise * above(*f), *v)).collect();
        let squares = errors.iter().map(|e| e * e).sum::<f64>();
        (squares, Knee { clock: knee, rise, error: errors.into_iter().fold(0.0, |a: f64, e| a.max(e.abs())) })
    };
    let candidates = clocks.iter().filter(|f| **f < *clocks.last().unwrap_or(&1.0)).map(|f| at(*f));
    candidates.filter(|(squares, _)| squares.is_finite()).min_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, knee)| knee)
}

impl Board {
    /// The constant, leakage, and what the clock takes (W), the voltage being known.
    fn parts(&self, voltage: &[f64]) -> [f64; 3] {
        let squared = |i: usize| voltage[i].powi(2);
        let x = Array2::from_shape_fn((self.idle.len(), 3), |(i, j)| match j {
            0 => 1.0,
            1 => squared(i),
            _ => squared(i) * self.clocks[i],
        });
        let parts = least_squares::non_negative(&x, &Array1::from_iter(self.idle.iter().copied()));
        [parts[0], parts[1], parts[2]]
    }

    /// The voltage that idle power tells with a ratio of leakage to what the clock takes.
    fn inferred(&self, ratio: f64) -> Option<Knee> {
        let within: Vec<usize> =
            (0..self.clocks.len()).filter(|&i| (CONSTANT.0..=CONSTANT.1).contains(&self.clocks[i])).collect();
        let n = within.len() as f64;
        let mean = |list: &[f64]| within.iter().map(|&i| list[i]).sum::<f64>() / n;
        let (x, y) = (mean(&self.clocks), mean(&self.idle));
        let up: f64 = within.iter().map(|&i| (self.clocks[i] - x) * (self.idle[i] - y)).sum();
        let across: f64 = within.iter().map(|&i| (self.clocks[i] - x).powi(2)).sum();
        let clock = up / across;
        let leakage = ratio * clock;
        let constant = y - clock * x - leakage;
        let highest = self.idle.iter().copied().fold(0.0, f64::max) * HIGHEST;
        let last = (0..self.idle.len()).find(|&i| self.clocks[i] > CONSTANT.1 && self.idle[i] >= highest)?;
        let seen: Vec<usize> = (0..=last).filter(|&i| self.clocks[i] >= LOWEST).collect();
        let clocks: Vec<f64> = seen.iter().map(|&i| self.clocks[i]).collect();
        let voltage: Vec<f64> =
            seen.iter().map(|&i| ((self.idle[i] - constant) / (leakage + clock * self.clocks[i])).sqrt()).collect();
        knee(&clocks, &voltage)
    }

    fn mhz(&self, relative: f64) -> f64 {
        (self.gpu.core_clock.boost.value * relative).to_mhz()
    }
}

fn boards(path: &Path) -> Result<Vec<Board>> {
    let name = || path.display().to_string();
    let mut by_gpu: BTreeMap<String, Vec<Row>> = BTreeMap::new();
    for row in csv::Reader::from_path(path).with_context(name)?.deserialize() {
        let row: Row = row.with_context(name)?;
        by_gpu.entry(row.gpu.clone()).or_default().push(row);
    }
    let board = |(name, mut rows): (String, Vec<Row>)| {
        let gpu = catalog::gpu(&name)?;
        rows.sort_by(|a, b| a.sm_clock_mhz.total_cmp(&b.sm_clock_mhz));
        let boost = gpu.core_clock.boost.value.to_mhz();
        let millivolts: Option<Vec<f64>> = rows.iter().map(|r| r.core_voltage_mv).collect();
        let voltage = millivolts.map(|list| {
            let least = list.iter().copied().fold(f64::INFINITY, f64::min);
            list.into_iter().map(|v| v / least).collect()
        });
        let clocks = rows.iter().map(|r| r.sm_clock_mhz / boost).collect();
        Ok(Board { gpu, clocks, idle: rows.iter().map(|r| r.idle_power_w).collect(), voltage })
    };
    by_gpu.into_iter().map(board).collect()
}

/// Voltages that were read and inferred; with a dataset also how well its energy rows agree with rises.
///
/// # Errors
/// When a file or dataset cannot be read, or no board has voltages.
pub fn tables(files: &[PathBuf]) -> Result<Vec<Table>> {
    let (Some(path), datasets) = (files.first(), files.get(1..).unwrap_or_default()) else { bail!("no file") };
    let boards = boards(path)?;
    let mut read = Vec::new();
    let mut ratios = Vec::new();
    for board in &boards {
        let lowest = (0..board.idle.len()).find(|&i| board.clocks[i] >= LOWEST).map_or(f64::NAN, |i| board.idle[i]);
        let highest = board.idle.last().copied().unwrap_or(f64::NAN);
        let mut numbers = vec![lowest, highest];
        if let Some(voltage) = &board.voltage {
            let found = knee(&board.clocks, voltage).context("no clocks")?;
            let parts = board.parts(voltage);
            numbers.extend([board.mhz(found.clock), found.rise, found.error]);
            numbers.extend(parts.into_iter().chain([parts[1] / parts[2]]));
            ratios.push((&board.gpu.name, parts[1] / parts[2]));
        }
        read.push(labelled([&board.gpu.name], numbers));
    }
    if ratios.is_empty() {
        bail!("{}: no voltages", path.display());
    }
    let mut inferred = Vec::new();
    let mut errors = Vec::new();
    for board in &boards {
        for (anchor, ratio) in ratios.iter().filter(|(name, _)| **name != board.gpu.name) {
            let Some(found) = board.inferred(*ratio) else { continue };
            let mut numbers = vec![board.mhz(found.clock), found.rise, found.error];
            if let Some(own) = board.voltage.as_ref().and_then(|v| knee(&board.clocks, v)) {
                numbers.extend([own.rise, percent(found.rise, own.rise)]);
                errors.push(percent(found.rise, own.rise));
            }
            inferred.push(labelled([&board.gpu.name, *anchor], numbers));
        }
    }
    let mean = [f64::NAN, f64::NAN, f64::NAN, f64::NAN, mean_absolute(&errors)];
    inferred.push(labelled(["mean of absolute values", ""], mean));
    let mut tables = vec![VOLTAGES.table(read), INFERRED.table(inferred)];
    if !datasets.is_empty() {
        tables.push(LIKELIHOODS.table(likelihoods(datasets)?));
    }
    Ok(tables)
}

/// How well the energy rows of datasets agree with rises of the voltage, by chip.
fn likelihoods(folders: &[PathBuf]) -> Result<Vec<Vec<Cell>>> {
    let mut measurements = Vec::new();
    for folder in folders {
        measurements.extend(dataset::read(folder)?);
    }
    let times = prepare::prepare(&measurements)?;
    let mut list = Vec::new();
    for (chip, rows) in power::rows(&measurements, &times)? {
        let Some(usual) = rows.first().map(PowerRow::curve) else { continue };
        let of = |rise: f64| -> Result<Option<(f64, f64)>> {
            let Some(curve) = VoltageCurve::new(usual.knee(), rise) else { return Ok(None) };
            Ok(power::likelihood(&rows, curve, &Options::default())?.map(|density| (rise, density)))
        };
        let found: Vec<(f64, f64)> =
            RISES.into_iter().filter_map(|rise| of(rise).transpose()).collect::<Result<_>>()?;
        let best = found.iter().map(|f| f.1).fold(f64::NEG_INFINITY, f64::max);
        list.extend(found.into_iter().map(|(rise, density)| labelled([&chip], [rise, density, density - best])));
    }
    Ok(list)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn board(ratio: f64, rise: f64, knee: f64) -> Board {
        let gpu = catalog::gpu("a100-sxm4-80gb").expect("shipped");
        let clocks: Vec<f64> = (10..=100).map(|i| f64::from(i) / 100.0).collect();
        let voltage: Vec<f64> = clocks.iter().map(|f| 1.0 + rise * ((f - knee) / (1.0 - knee)).max(0.0)).collect();
        let idle = clocks.iter().zip(&voltage).map(|(f, v)| 40.0 + 8.0 * v * v * (ratio + f)).collect();
        Board { gpu, clocks, idle, voltage: Some(voltage) }
    }

    #[test]
    fn a_known_curve_is_found_from_voltages_and_from_idle_power() {
        let board = board(2.5, 0.4, 0.7);
        let voltage = board.voltage.as_ref().expect("given");
        let read = knee(&board.clocks, voltage).expect("a knee");
        assert!((read.clock - 0.7).abs() < 1e-9 && (read.rise - 0.4).abs() < 1e-9 && read.error < 1e-6);
        let [constant, leakage, clock] = board.parts(voltage);
        let off = [constant - 40.0, leakage - 20.0, clock - 8.0];
        assert!(off.iter().all(|off| off.abs() < 1e-4), "{off:?}");
        let inferred = board.inferred(2.5).expect("a knee");
        assert!((inferred.clock - 0.7).abs() < 1e-9 && (inferred.rise - 0.4).abs() < 1e-6, "{}", inferred.rise);
        let otherwise = board.inferred(5.0).expect("a knee");
        assert!(otherwise.rise < 0.3, "more leakage needs less voltage: {}", otherwise.rise);
    }
}
