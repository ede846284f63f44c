//! A printed value, and the case that it is of.

use crate::base::precision::named_enum;
use crate::base::units::{Bytes, Joules, Seconds, Watts};
use serde::{Deserialize, Serialize};

named_enum!(
    /// What a column of values says.
    Metric {
        /// Time of a step.
        StepTime = "step_time",
        /// Samples per second.
        Rate = "samples_per_second",
        /// Energy of a step.
        StepEnergy = "step_energy",
        /// Mean power.
        Power = "power",
        /// Time of a run of many steps.
        RunTime = "run_time",
        /// Energy of a run of many steps.
        RunEnergy = "run_energy",
        /// Device memory in use.
        Memory = "memory",
        /// Something that is not predicted.
        Other = "other",
    }
);

named_enum!(
    /// What is compared.
    Quantity {
        /// Time of a step, in seconds.
        Time = "time",
        /// Mean power, in watts.
        Power = "power",
        /// Energy of a step, in joules.
        Energy = "energy",
        /// Device memory in use, in bytes.
        Memory = "memory",
    }
);

impl Metric {
    /// What it is compared as.
    pub(super) fn quantity(self) -> Quantity {
        match self {
            Self::Power => Quantity::Power,
            Self::StepEnergy | Self::RunEnergy => Quantity::Energy,
            Self::Memory => Quantity::Memory,
            Self::StepTime | Self::Rate | Self::RunTime | Self::Other => Quantity::Time,
        }
    }
}

/// Columns by which rows are told apart, besides `table`, `metric`, `unit`, `value`, `note` and `line`.
pub(super) const COLUMNS: [&str; 11] = [
    "gpu",
    "n_gpus",
    "network",
    "dataset",
    "framework",
    "phase",
    "batch",
    "precision",
    "core_mhz",
    "mem_mhz",
    "power_cap_w",
];

/// Bytes in a mebibyte.
const MIB: f64 = 1_048_576.0;

/// What was measured: everything but the quantity.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Case {
    /// The GPU or CPU.
    pub gpu: String,
    /// How many GPUs; 0 of a run on the CPU, 1 where it is not said.
    pub gpus: u64,
    /// The network.
    pub network: String,
    /// The data.
    pub dataset: String,
    /// The framework.
    pub framework: String,
    /// forward, backward, train, inference.
    pub phase: String,
    /// Samples per step, as printed.
    pub batch: String,
    /// Precision, as printed.
    pub precision: String,
    /// Core clock in MHz, as printed.
    pub core_mhz: String,
    /// Memory clock in MHz, as printed.
    pub mem_mhz: String,
    /// Power limit in watts, as printed.
    pub power_cap_w: String,
}

impl Case {
    /// What it is of: network and dataset.
    pub(super) fn subject(&self) -> (String, String) {
        (self.network.clone(), self.dataset.clone())
    }

    /// A column's text, by name.
    pub(super) fn column(&self, name: &str) -> String {
        match name {
            "gpu" => self.gpu.clone(),
            "n_gpus" => self.gpus.to_string(),
            "network" => self.network.clone(),
            "dataset" => self.dataset.clone(),
            "framework" => self.framework.clone(),
            "phase" => self.phase.clone(),
            "batch" => self.batch.clone(),
            "precision" => self.precision.clone(),
            "core_mhz" => self.core_mhz.clone(),
            "mem_mhz" => self.mem_mhz.clone(),
            _ => self.power_cap_w.clone(),
        }
    }
}

/// A printed value.
#[derive(Clone, Debug)]
pub(super) struct Cell {
    pub table: String,
    pub case: Case,
    pub metric: Metric,
    pub value: Printed,
}

/// A value in the unit of its metric.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Printed {
    Time(Seconds),
    /// Samples per second.
    Rate(f64),
    Power(Watts),
    Energy(Joules),
    /// Device memory in use.
    Memory(Bytes),
    /// What is not predicted.
    Other,
}

/// A number in a unit.
///
/// # Errors
/// When the unit is none of the metric's, or the number is not above 0.
pub(super) fn value(metric: Metric, unit: &str, value: f64) -> Result<Printed, String> {
    let printed = match (metric, unit) {
        (Metric::Other, _) => return Ok(Printed::Other),
        (Metric::StepTime | Metric::RunTime, "s") => Printed::Time(Seconds::new(value)),
        (Metric::Rate, "1/s" | "img/sec" | "images/s") => Printed::Rate(value),
        (Metric::Power, "W") => Printed::Power(Watts::new(value)),
        (Metric::StepEnergy | Metric::RunEnergy, "J") => Printed::Energy(Joules::new(value)),
        (Metric::StepEnergy | Metric::RunEnergy, "kJ") => Printed::Energy(Joules::new(value * 1e3)),
        (Metric::Memory, "MiB") => Printed::Memory(Bytes::new((value * MIB) as u64)),
        _ => return Err(format!("unit \"{unit}\" is not one of {metric}")),
    };
    if !(value.is_finite() && value > 0.0) {
        return Err(format!("{value} is not above 0"));
    }
    Ok(printed)
}
