//! From a shaped network and a device to time, power and energy, per layer and in total.

mod batches;
mod beside;
mod bounds;
mod derived;
mod drained;
mod intervals;
mod kernel;
mod network;
mod operating_point;
mod remarks;
mod settle;
mod step;
mod summary;
mod sums;
mod totals;
mod warning;

pub use batches::StepOverBatches;
pub use intervals::{Carried, Doubts, Width, Widths};
pub(crate) use network::held_of;
pub use operating_point::{OperatingError, OperatingPoint, core_range, highest};
pub use remarks::SIMULATED;
pub use step::Step;
pub use summary::{Along, Prepared, Summary};
pub use warning::Warning;

use crate::base::name::Name;
use crate::base::precision::{Mode, Phase, Precision, named_enum};
use crate::base::units::{Bytes, Hertz, JouleSeconds, Joules, Ops, Seconds, Watts};
use crate::device::gpu::{Device, Gpu, Vendor};
use crate::kernel::key::ModelKey;
use crate::kernel::setting::Algorithm;
use crate::law::calibration::{Calibration, CalibrationError, Tier};
use crate::law::choice::Choice;
use crate::step::framework::{Framework, Launch};
use crate::step::layout::LayoutOf;
use crate::step::memory::MemoryFootprint;
use crate::step::parallel::{Communication, DevicePrediction};
use serde::{Deserialize, Serialize};
use std::ops::Mul;

/// What a step is predicted with, as [`crate::step::predict::Predictor`] lends it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup<'a> {
    /// The device.
    pub gpu: &'a Gpu,
    /// Models of its chip, where there are any.
    pub calibration: Option<&'a Calibration>,
    /// Models and efficiencies over all measured chips, for what the calibration lacks.
    pub all_chips: &'a Calibration,
    /// What the framework adds.
    pub framework: &'a Framework,
    /// How a step is launched.
    pub launch: Launch,
    /// Whether a step of inference or of training.
    pub mode: Mode,
    /// Which phases of the step: usually all that the mode has, in order.
    pub phases: &'a [Phase],
    /// Whether no layer of the network makes zeros of about half of its values.
    pub dense: bool,
    /// Age of the framework's libraries ([`crate::kernel::features::library_age`]); the newest that each model saw without.
    pub library: Option<f64>,
}

impl<'a> Setup<'a> {
    /// Which engines libraries choose on the device, where that is known.
    pub fn choices(&self) -> &'a [Choice] {
        self.calibration.map_or(&[], |calibration| &calibration.choices)
    }

    /// Whether the models are of GPUs of another vendor: all rows but a user's own are of NVIDIA's.
    pub fn of_other_vendor(&self) -> bool {
        self.calibration.is_none() && self.gpu.device == Device::Gpu && self.gpu.vendor != Vendor::Nvidia
    }
}

/// A value with its 90 % interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate<T> {
    /// What is most likely.
    pub value: T,
    /// 5 % quantile.
    pub p05: T,
    /// 95 % quantile.
    pub p95: T,
}

impl<T: Copy + Mul<f64, Output = T>> Estimate<T> {
    /// So many times as much, interval and all.
    pub fn times(self, factor: f64) -> Self {
        Self { value: self.value * factor, p05: self.p05 * factor, p95: self.p95 * factor }
    }
}

named_enum!(
    /// What a kernel cannot be faster than at its clocks: the longest part of its roofline.
    BoundBy {
        /// Arithmetic at peak.
        Compute = "compute",
        /// Traffic at peak bandwidth.
        Memory = "memory",
        /// What the shortest kernel of its kind takes.
        Launch = "launch",
        /// What GPUs exchange over what joins them.
        Exchange = "exchange",
    }
);

/// One kernel of a step.
#[derive(Clone, Debug, PartialEq)]
pub struct LayerPrediction {
    /// The layer's name.
    pub name: Name,
    /// Its layer kind, such as `conv2d`; `update` and `add` of kernels of no layer.
    pub kind: &'static str,
    /// Which kernel of the layer: forward, gradient of the data, gradient of the weights, or update.
    pub phase: Phase,
    /// Operations of the direct algorithm; a multiply-accumulate is two.
    pub ops: Ops,
    /// Bytes of operands, each counted once.
    pub read: Bytes,
    /// Bytes of results, each counted once.
    pub written: Bytes,
    /// Time of one execution.
    pub time: Estimate<Seconds>,
    /// Mean power while it runs.
    pub power: Watts,
    /// Energy of one execution: power times time.
    pub energy: Joules,
    /// Roofline bound of the direct algorithm: max(ops / peak, bytes / bandwidth).
    pub bound: Seconds,
    /// What it cannot be faster than.
    pub bound_by: BoundBy,
    /// The name of the models for kernels like it: its kind, of convolutions a class of them.
    pub class: ModelKey,
    /// Whether its time rests on rows of this board, another board, another chip, or none.
    pub tier: Tier,
    /// What computes it, where somebody asked for that.
    pub algorithm: Option<Algorithm>,
    /// The engine that the library is expected to choose, where its model knows that engine.
    pub engine: Option<String>,
    /// Whether it lies within what was measured.
    pub in_domain: bool,
    /// The rule of its library's version that makes its time, where one does.
    pub jump: Option<String>,
}

impl LayerPrediction {
    /// Its kind, more exactly where kernels of that kind have models by class, such as `conv2d_3x3` or `attention_decode`.
    pub fn model(&self) -> &'static str {
        let class = self.class.name();
        if class.starts_with(self.kind) { class } else { self.kind }
    }
}

/// Time and energy of a phase.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PhaseTotal {
    /// Which phase of the step.
    pub phase: Phase,
    /// Time of its kernels, without what the GPU waits.
    pub time: Seconds,
    /// Energy of its kernels.
    pub energy: Joules,
}

/// What a step waits for its samples.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fed {
    /// Samples per second that the host feeds.
    pub samples_per_second: f64,
    /// Time in which all GPUs wait for them.
    pub waits: Seconds,
}

/// The host that launches an eager step.
#[derive(Clone, Debug, PartialEq)]
pub struct HostOf {
    /// How many times as long as the framework profile's table says its launches take.
    pub factor: f64,
    /// 90 % of times that such a host decides lie within this factor.
    pub spread: f64,
    /// Who says how fast it is; none where that is not known, and the host is one of those of the profile's table.
    pub source: Option<String>,
    /// What launching all of the step takes it, whether or not that decides.
    pub launches: Seconds,
    /// Whether the step lasts as long as the host takes, so that a faster GPU makes it no shorter.
    pub decides: bool,
    /// Whether it does for the slowest host that is likely.
    pub may_decide: bool,
}

/// A step of a network on a device.
#[derive(Clone, Debug, PartialEq)]
pub struct NetworkPrediction {
    /// Name of the network, as in its file.
    pub network: String,
    /// Samples per step.
    pub batch: u64,
    /// Format of activations and weights.
    pub precision: Precision,
    /// Whether a step of inference or of training.
    pub mode: Mode,
    /// Id of the calibration of the chip, such as `gv100-imported-1`; without one that of all chips.
    pub calibration: String,
    /// Time and energy if the core voltage rises as little, and as much, as is likely; empty at the default, where that makes
    /// no difference.
    pub by_voltage: Vec<(Seconds, Joules)>,
    /// Tier that most of the uncertainty of the time rests on.
    pub time_tier: Tier,
    /// What the law of power rests on.
    pub power_tier: Tier,
    /// Mean core clock while kernels run: below the boost clock where a clock was asked for or the limit holds it back.
    pub clock: Hertz,
    /// The memory clock, where the device's file knows one.
    pub memory_clock: Option<Hertz>,
    /// Power limit that was asked for.
    pub power_cap: Option<Watts>,
    /// Share of the step in which no kernel runs.
    pub waiting: f64,
    /// Whether the GPU waits for the host, however shortly.
    pub launch_bound: bool,
    /// The host of an eager step, where the framework profile says what it does.
    pub host: Option<HostOf>,
    /// What it is expected to err, and what of its intervals is no kernel's.
    pub doubts: Doubts,
    /// Half-widths of the intervals before whole networks were compared, and without what hosts differ by.
    pub widths: Widths,
    /// Time of a step, from its first launch to its last kernel.
    pub time: Estimate<Seconds>,
    /// Mean power of all devices over the step.
    pub power: Estimate<Watts>,
    /// Energy of all devices over the step.
    pub energy: Estimate<Joules>,
    /// Operations of all devices; a multiply-accumulate is two.
    pub ops: Ops,
    /// Bytes of operands that the kernels of all devices read.
    pub read: Bytes,
    /// Bytes of results that the kernels of all devices write.
    pub written: Bytes,
    /// Learned parameters.
    pub parameters: u64,
    /// Memory of the first device, by what it holds.
    pub memory: MemoryFootprint,
    /// Whether that is within the device's memory.
    pub fits_in_memory: bool,
    /// Sum of the layers' roofline bounds.
    pub bound: Seconds,
    /// Time and energy by phase, in the order in which they run.
    pub phases: Vec<PhaseTotal>,
    /// Which devices take part, and what each does.
    pub devices: Vec<DevicePrediction>,
    /// The sum of gradients over several GPUs; the layers are then those of the slowest.
    pub communication: Option<Communication>,
    /// How a language model lies on several GPUs, where that was asked for; the layers are then those of one GPU of each stage,
    /// one microbatch long, with what it exchanges.
    pub layout: Option<LayoutOf>,
    /// The rate at which samples come, where one is given, and what the step waits for them.
    pub fed: Option<Fed>,
    /// Every kernel, in the order in which they run.
    pub layers: Vec<LayerPrediction>,
    /// What a reader should know, in the order in which it is printed.
    pub warnings: Vec<Warning>,
}

impl NetworkPrediction {
    /// What it says of the whole step.
    pub fn summary(&self) -> Summary {
        let Self { time_tier, power_tier, clock, time, power, energy, launch_bound, .. } = *self;
        Summary { time_tier, power_tier, clock, time, power, energy, launch_bound }
    }
    /// Energy-delay product.
    pub fn edp(&self) -> JouleSeconds {
        self.summary().edp()
    }
    /// Samples per second.
    pub fn samples_per_second(&self) -> f64 {
        self.summary().samples_per_second(self.batch)
    }
    /// Samples per second and watt: samples per joule.
    pub fn samples_per_joule(&self) -> f64 {
        self.summary().samples_per_joule(self.batch)
    }
    /// Operations per second and watt: operations per joule.
    pub fn ops_per_joule(&self) -> f64 {
        self.ops.to_f64() / self.energy.value.get()
    }
    /// Energy per sample.
    pub fn energy_per_sample(&self) -> Joules {
        self.summary().energy_per_sample(self.batch)
    }
}

/// Why nothing can be predicted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PredictError {
    /// The hardware has no such mode.
    #[error("{gpu} has no units that compute in {precision}; it has {available}")]
    Precision {
        /// The device.
        gpu: String,
        /// What was asked for.
        precision: Precision,
        /// What there is.
        available: String,
    },
    /// The hardware has the mode, but none for what does not run in it.
    #[error("{gpu} computes in {precision}, but not in {beside}, in which all else of the network runs")]
    Beside {
        /// The device.
        gpu: String,
        /// What was asked for.
        precision: Precision,
        /// What else is needed.
        beside: Precision,
    },
    /// A shipped calibration cannot be read.
    #[error(transparent)]
    Calibration(#[from] CalibrationError),
    /// A clock or power limit that the device does not take.
    #[error(transparent)]
    Operating(#[from] OperatingError),
    /// Nothing runs.
    #[error("network {0} has no layer that runs a kernel")]
    Empty(String),
    /// Neither calibration has a law of power.
    #[error("no law of power in the calibrations")]
    NoPower,
    /// Neither calibration has a model to fall back on.
    #[error("layer {layer}: no model for {kind} {phase} {precision}, not even an efficiency")]
    NoModel {
        /// The layer.
        layer: String,
        /// Its kind.
        kind: &'static str,
        /// The phase.
        phase: Phase,
        /// The precision.
        precision: Precision,
    },
}
