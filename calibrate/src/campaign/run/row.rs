//! From a measured trial to a row of the dataset.

use crate::campaign::trials::Item;
use joulecast_kernels::measure::{Burst, Sustained, Timing};
use joulecast_kernels::nvml::reasons;
use joulecast_kernels::runner::{Identity, Loaded};
use joulecast_kernels::settings::Point;
use joulecast_model::base::precision::{Mode, Phase};
use joulecast_model::base::units::{Bytes, Hertz, Joules, Seconds, Watts};
use joulecast_model::device::gpu::Gpu;
use joulecast_model::kernel::setting::Algorithm;
use joulecast_model::kernel::work::Trial;
use joulecast_model::net::case::LayerCase;
use joulecast_model::net::layer::Layer;
use joulecast_model::rows::measurement::{Measurement, Order, Regime};

/// Everything about a row but its numbers.
pub struct Context<'a> {
    /// Plan.
    pub plan_id: &'a str,
    /// Campaign.
    pub campaign: &'a str,
    /// Column `source`.
    pub source: &'a str,
    /// The GPU that the device counts as.
    pub gpu: &'a Gpu,
    /// What ran.
    pub identity: Identity,
    /// The trial.
    pub item: &'a Item,
    /// How it stood ready.
    pub loaded: &'a Loaded,
    /// Settings asked for.
    pub point: Point,
    /// Repeat, from 0.
    pub repeat: u32,
}

/// What identifies a row whatever its campaign: trial, repeat, regime, and the settings asked for, if any.
pub fn key(trial_id: &str, repeat: u32, regime: Regime, point: Point) -> String {
    let mut key = format!("{trial_id}:{repeat}:{regime}");
    if let Some(clock) = point.core {
        key += &format!("@{:.0}MHz", clock.to_mhz());
    }
    if let Some(limit) = point.power_limit {
        key += &format!("@{:.0}W", limit.get());
    }
    key
}

/// Layers whose forward phase differs between inference and training.
fn depends_on_mode(trial: &Trial) -> bool {
    let cost = |mode| trial.case.cost(Phase::Forward, trial.batch, trial.precision, mode).ok().flatten();
    trial.phase == Phase::Forward && cost(Mode::Inference) != cost(Mode::Training)
}

/// Layers that run on maps or rows have a layout worth recording; an optimizer's step has none.
fn layout(trial: &Trial) -> Option<Order> {
    let maps = trial.case.inputs.iter().any(|s| s.as_map().is_some()) && !matches!(trial.case.layer, Layer::Matmul(_));
    (maps && trial.phase != Phase::Update).then(|| trial.layout.into())
}

impl Context<'_> {
    fn row(&self, regime: Regime, timing: &Timing) -> Measurement {
        let trial = &self.item.trial;
        let key = key(&self.item.trial_id, self.repeat, regime, self.point);
        let identity = &self.identity;
        let asked = (trial.algorithm != Algorithm::Heuristic).then_some(trial.algorithm);
        let empty = Measurement::imported(
            self.source,
            "",
            &self.gpu.name,
            LayerCase::clone(&trial.case),
            trial.phase,
            trial.batch,
            timing.time.get(),
        );
        Measurement {
            row_id: format!("{}:{key}", self.campaign),
            plan_id: Some(self.plan_id.to_string()),
            trial_id: self.item.trial_id.clone(),
            repeat: self.repeat,
            campaign: self.campaign.to_string(),
            board_uuid: identity.uuid.clone(),
            form_factor: Some(self.gpu.form_factor.clone()),
            driver: identity.driver.clone(),
            cuda: identity.cuda.clone(),
            cudnn: identity.cudnn.clone(),
            cublas: identity.cublas.clone(),
            precision: trial.precision,
            mode: depends_on_mode(trial).then_some(trial.mode),
            math: self.loaded.math.clone(),
            layout: layout(trial),
            optimizer: trial.optimizer,
            algorithm: asked,
            algo: if trial.optimizer.is_none() && asked.is_none() { self.loaded.algorithm.clone() } else { None },
            workspace_bytes: self.loaded.workspace.map(Bytes::get),
            cache: Some(self.loaded.cache.unwrap_or(trial.cache)),
            regime,
            method: self.loaded.method.to_string(),
            n: Some(timing.blocks as u64),
            time_p10_s: Some(timing.p10.get()),
            time_p90_s: Some(timing.p90.get()),
            core_mhz_requested: self.point.core.map(Hertz::to_mhz),
            power_limit_w: self.point.power_limit.map(Watts::get),
            host_s: self.loaded.host.map(Seconds::get),
            ..empty
        }
    }

    /// The row of a burst: its clock and temperature are those of the one sample read in it.
    pub fn burst(&self, burst: &Burst) -> Measurement {
        let mut row = self.row(Regime::Burst, &burst.timing);
        row.flags = burst.flags.clone();
        if let Some(sample) = &burst.sample {
            row.core_mhz_mean = sample.core.map(Hertz::to_mhz);
            row.core_mhz_min = row.core_mhz_mean;
            row.mem_mhz = sample.memory.map(Hertz::to_mhz);
            row.temp_start_c = sample.temperature_c;
            row.reasons = sample.reasons.map(reasons::names);
            row.power_limit_w = sample.limit.map(Watts::get).or(row.power_limit_w);
        }
        row
    }

    /// The row of a sustained run: power between ticks of the counter, and energy per execution.
    pub fn sustained(&self, sustained: &Sustained) -> Measurement {
        let mut row = self.row(Regime::Sustained, &sustained.timing);
        row.flags = sustained.flags.clone();
        row.energy_j = sustained.energy().map(Joules::get);
        match &sustained.reading {
            Some(reading) => {
                row.power_w = Some(reading.power.get());
                row.window_s = Some(reading.window().get());
                row.energy_method = Some(reading.method.name().to_string());
                row.power_integral_w = reading.power_integral.map(Watts::get);
                row.power_limit_w = reading.limit.map(Watts::get).or(row.power_limit_w);
                row.core_mhz_mean = reading.core_mean.map(Hertz::to_mhz);
                row.core_mhz_min = reading.core_min.map(Hertz::to_mhz);
                row.mem_mhz = reading.memory.map(Hertz::to_mhz);
                row.temp_start_c = reading.temperature_start_c;
                row.temp_end_c = reading.temperature_end_c;
                row.reasons = reading.reason_names();
                row.throttle_s = reading.throttled.map(|t| (t.power + t.thermal + t.hardware).get());
            }
            None => {
                row.core_mhz_mean = sustained.last.core.map(Hertz::to_mhz);
                row.mem_mhz = sustained.last.memory.map(Hertz::to_mhz);
                row.temp_end_c = sustained.last.temperature_c;
                row.reasons = sustained.last.reasons.map(reasons::names);
                row.power_limit_w = sustained.last.limit.map(Watts::get).or(row.power_limit_w);
            }
        }
        row
    }
}
