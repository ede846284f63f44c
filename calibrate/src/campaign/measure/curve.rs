//! A network along core clocks or power limits: the default, then settings down from it until the least of a metric is
//! found (see [`crate::campaign::search`]).

use super::one;
use super::record::{NetworkRun, Table};
use crate::campaign::device::Device;
use crate::campaign::run::{ApplyPoint, interrupt};
use crate::campaign::search::{Known, Search};
use anyhow::{Result, bail};
use joulecast_ask::curve::Run;
use joulecast_ask::metric::{Metric, Reference};
use joulecast_kernels::runner::NetworkTrial;
use joulecast_kernels::settings::Point;
use joulecast_model::base::units::{Hertz, Joules, Seconds, Watts};
use joulecast_reports::figure::curves::Axis;
use joulecast_reports::say;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;

/// Least uncertainty of a point: power counts as steady where the halves of a window differ by less.
const NOISE: f64 = 0.01;

/// One measurement of a network at one setting. Times and energies are of one step over the batch.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CurveRow {
    /// Product.
    pub device: String,
    /// Network.
    pub network: String,
    /// `infer` or `train`.
    pub mode: String,
    /// Precision.
    pub precision: String,
    /// Samples.
    pub batch: u64,
    /// Core clock asked for; none: as found.
    pub clock_mhz: Option<f64>,
    /// Power limit asked for; none: as found.
    pub power_cap_w: Option<f64>,
    /// Which of several measurements at this setting, from 1.
    pub repeat: u32,
    /// Core clock observed, mean of the window.
    pub core_mhz_mean: Option<f64>,
    /// Lowest core clock observed.
    pub core_mhz_min: Option<f64>,
    /// Time.
    pub time_s: f64,
    /// 10 % quantile over blocks.
    pub time_p10_s: f64,
    /// 90 % quantile over blocks.
    pub time_p90_s: f64,
    /// Mean power.
    pub power_w: Option<f64>,
    /// Energy.
    pub energy_j: Option<f64>,
    /// Energy-delay product.
    pub edp_js: Option<f64>,
    /// Reasons for which the clock was held back.
    pub throttle: Option<String>,
    /// Temperature at the end.
    pub temp_c: Option<f64>,
    /// Driver.
    pub driver: Option<String>,
    /// cuDNN.
    pub cudnn: Option<String>,
    /// Reasons for doubt, joined by semicolons.
    pub flags: Option<String>,
}

impl CurveRow {
    fn new(run: NetworkRun, point: Point, repeat: u32) -> Self {
        let time_s = run.ms_per_iter * 1e-3;
        Self {
            device: run.device,
            network: run.network,
            mode: run.mode,
            precision: run.precision,
            batch: run.batch,
            clock_mhz: point.core.map(Hertz::to_mhz),
            power_cap_w: point.power_limit.map(Watts::get),
            repeat,
            core_mhz_mean: run.sm_mhz_mean.or(run.burst_mhz),
            core_mhz_min: run.sm_mhz_min,
            time_s,
            time_p10_s: run.ms_p10 * 1e-3,
            time_p90_s: run.ms_p90 * 1e-3,
            power_w: run.watts,
            energy_j: run.joules_per_iter,
            edp_js: run.joules_per_iter.map(|e| e * time_s),
            throttle: run.throttle,
            temp_c: run.temp_c,
            driver: run.driver,
            cudnn: run.cudnn,
            flags: run.flags,
        }
    }

    /// What makes the row unique in a table.
    pub fn key(&self) -> String {
        let Self { device, network, mode, precision, batch, clock_mhz, power_cap_w, repeat, .. } = self;
        format!("{device},{network},{mode},{precision},{batch},{clock_mhz:?},{power_cap_w:?},{repeat}")
    }
}

/// A file of rows, and those that it held when it was opened.
///
/// # Errors
/// As [`Table::open`].
pub fn open(path: &Path) -> Result<(Table<CurveRow>, Vec<CurveRow>)> {
    Table::open(path, CurveRow::key)
}

/// What to look for.
#[derive(Clone, Debug)]
pub struct Request {
    /// What is varied.
    pub axis: Axis,
    /// Settings down from the default, MHz or W.
    pub settings: Vec<f64>,
    /// The default on the axis, MHz or W.
    pub default: f64,
    /// What is to be least.
    pub metric: Metric,
    /// Measurements of every point.
    pub repeats: u32,
    /// Points in a row that must have risen before the walk ends.
    pub patience: usize,
}

impl Request {
    /// What is set at a position: nothing at 0, then the settings.
    pub fn point(&self, position: usize) -> Point {
        let setting = position.checked_sub(1).and_then(|i| self.settings.get(i)).copied();
        match self.axis {
            Axis::Cap => Point { power_limit: setting.map(Watts::new), ..Point::default() },
            Axis::Clock => Point { core: setting.map(Hertz::from_mhz), ..Point::default() },
        }
    }

    /// The value on the axis at a position.
    pub fn value(&self, position: usize) -> f64 {
        position.checked_sub(1).and_then(|i| self.settings.get(i)).copied().unwrap_or(self.default)
    }

    /// The search over all positions.
    pub fn search(&self) -> Search {
        Search::new(self.settings.len(), self.patience)
    }
}

/// Measured points by position, each the mean of its repeats, and how far its repeats scatter.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    rows: BTreeMap<usize, Vec<CurveRow>>,
    /// Rows written now.
    pub written: usize,
}

impl Measured {
    /// Mean time and energy at a position; `None` where energy was not told.
    pub fn run(&self, request: &Request, position: usize) -> Option<Run> {
        let rows = self.rows.get(&position)?;
        let mean = |value: &dyn Fn(&CurveRow) -> Option<f64>| {
            let sum: Option<f64> = rows.iter().map(value).sum();
            sum.map(|sum| sum / rows.len() as f64)
        };
        let time = Seconds::new(mean(&|r| Some(r.time_s))?);
        Some(Run { setting: request.value(position), time, energy: Joules::new(mean(&|r| r.energy_j)?) })
    }

    /// All points with an energy, the default first.
    pub fn runs(&self, request: &Request) -> Vec<(usize, Run)> {
        self.rows.keys().filter_map(|p| Some((*p, self.run(request, *p)?))).collect()
    }

    /// Rows at a position.
    pub fn rows(&self, position: usize) -> &[CurveRow] {
        self.rows.get(&position).map_or(&[], Vec::as_slice)
    }

    /// The metric at every position. An energy-delay sum compares with the default.
    pub fn known(&self, request: &Request) -> BTreeMap<usize, Known> {
        let reference = self.run(request, 0).map(|run| Reference { time: run.time, energy: run.energy });
        let value = |row: &CurveRow| match (request.metric, row.energy_j, reference) {
            (Metric::Time, ..) => Some(row.time_s),
            (metric, Some(energy), Some(reference)) => {
                Some(metric.of(Seconds::new(row.time_s), Joules::new(energy), &reference))
            }
            _ => None,
        };
        let known = |rows: &Vec<CurveRow>| {
            let values: Option<Vec<f64>> = rows.iter().map(value).collect();
            let Some(values) = values.filter(|v| !v.is_empty()) else { return Known { value: None, noise: NOISE } };
            let mean = values.iter().sum::<f64>() / values.len() as f64;
            let squares: f64 = values.iter().map(|v| (v - mean).powi(2)).sum();
            let deviation = (squares / (values.len() - 1).max(1) as f64).sqrt();
            Known { value: Some(mean), noise: (deviation / mean).max(NOISE) }
        };
        self.rows.iter().map(|(position, rows)| (*position, known(rows))).collect()
    }

    /// Position of the least metric.
    pub fn best(&self, request: &Request) -> Option<usize> {
        let known = self.known(request);
        let values = known.iter().filter_map(|(p, k)| Some((*p, k.value?)));
        values.min_by(|a, b| a.1.total_cmp(&b.1)).map(|(position, _)| position)
    }
}

/// Measures positions until the search is content, then `also` that one; only the default where nothing may be set.
///
/// # Errors
/// When a setting is refused, the device fails or a row cannot be written. Rows measured until then are in the table.
pub fn run(
    device: &mut Device,
    trial: &NetworkTrial<'_>,
    request: &Request,
    settings: Option<&mut dyn ApplyPoint>,
    also: Option<usize>,
    (table, known): (&mut Table<CurveRow>, &[CurveRow]),
) -> Result<Measured> {
    let mut measured = Measured::default();
    let search = request.search();
    let Some(settings) = settings else {
        at(device, trial, request, 0, None, (table, known), &mut measured)?;
        return Ok(measured);
    };
    while !interrupt::requested() {
        let next = search.next(&measured.known(request));
        let Some(position) = next.or(also.filter(|p| measured.rows(*p).is_empty())) else { break };
        at(device, trial, request, position, Some(&mut *settings), (table, known), &mut measured)?;
    }
    Ok(measured)
}

/// One position: what the table does not hold yet is measured.
fn at(
    device: &mut Device,
    trial: &NetworkTrial<'_>,
    request: &Request,
    position: usize,
    settings: Option<&mut dyn ApplyPoint>,
    (table, known): (&mut Table<CurveRow>, &[CurveRow]),
    measured: &mut Measured,
) -> Result<()> {
    let point = request.point(position);
    let empty = NetworkRun::new(trial, &Default::default(), device.runner.identity());
    let keys = (1..=request.repeats).map(|repeat| CurveRow::new(empty.clone(), point, repeat).key());
    let mut rows: Vec<CurveRow> = keys.filter_map(|key| known.iter().find(|row| row.key() == key).cloned()).collect();
    let missing: Vec<u32> = (1..=request.repeats).filter(|n| rows.iter().all(|r| r.repeat != *n)).collect();
    if let (Some(settings), false) = (settings, missing.is_empty()) {
        settings.apply(point)?;
    }
    for repeat in missing {
        let meter = device.meter.as_mut().map(|m| &mut **m as &mut dyn joulecast_kernels::PowerMeter);
        let run = one(device.runner.as_mut(), meter, trial)?;
        let row = CurveRow::new(run, point, repeat);
        if row.energy_j.is_none() && position == 0 && request.metric != Metric::Time {
            let why = row.flags.as_deref().unwrap_or("this device has no meter");
            bail!("no energy was read at the default: {why}");
        }
        say(line(&row, position, request));
        table.append(row.key(), &row)?;
        measured.written += 1;
        rows.push(row);
    }
    measured.rows.insert(position, rows);
    Ok(())
}

fn line(row: &CurveRow, position: usize, request: &Request) -> String {
    let setting = match (position, request.axis) {
        (0, _) => "default".to_string(),
        (_, Axis::Cap) => format!("{} W", request.value(position)),
        (_, Axis::Clock) => format!("{} MHz", request.value(position)),
    };
    let observed = row.core_mhz_mean.map(|f| format!(", {f:.0} MHz")).unwrap_or_default();
    let power = row.power_w.zip(row.energy_j).map(|(p, e)| format!(", {p:.0} W, {e:.3} J")).unwrap_or_default();
    format!("{setting}: {:.3} ms{observed}{power}", row.time_s * 1e3)
}
