//! Rows of a sweep: the keys of `prediction/1`, without layers and warnings.

use joulecast_model::base::precision::{Mode, Precision};
use joulecast_model::kernel::setting::Algorithm;
use joulecast_model::step::framework::Launch;
use joulecast_model::step::predictor::{Estimate, OperatingPoint, Prepared, Summary};

/// What a row is of.
#[derive(Clone, Debug, PartialEq)]
pub struct Key<'a> {
    pub network: &'a str,
    pub gpu: &'a str,
    pub batch: u64,
    pub precision: Precision,
    pub mode: Mode,
    pub point: OperatingPoint,
    /// Tokens per sample, where a sequence is read.
    pub sequence: Option<u64>,
    pub framework: &'a str,
    pub launch: Launch,
    pub algorithm: Option<Algorithm>,
}

/// A prediction, or why there is none.
pub struct Row<'a> {
    key: Key<'a>,
    result: Result<Values, String>,
}

struct Values {
    summary: Summary,
    ops: u64,
    memory_bytes: u64,
    fits_in_memory: bool,
}

/// A cell.
pub enum Cell<'a> {
    Text(&'a str),
    Whole(u64),
    Number(f64),
    Truth(bool),
    Nothing,
}

/// Names of the columns; the first [`KEYS`] say what a row is of.
pub const COLUMNS: [&str; 32] = [
    "network",
    "gpu",
    "batch",
    "precision",
    "mode",
    "clock_mhz",
    "power_cap_w",
    "sequence",
    "framework",
    "launch",
    "conv_algorithm",
    "core_clock_mhz",
    "time_s",
    "time_s_p05",
    "time_s_p95",
    "power_w",
    "power_w_p05",
    "power_w_p95",
    "energy_j",
    "energy_j_p05",
    "energy_j_p95",
    "edp_js",
    "samples_per_s",
    "energy_per_sample_j",
    "samples_per_s_per_w",
    "ops",
    "memory_bytes",
    "fits_in_memory",
    "time_tier",
    "power_tier",
    "launch_bound",
    "error",
];
/// How many columns say what a row is of.
pub const KEYS: usize = 11;

fn or_nothing(value: Option<f64>) -> Cell<'static> {
    value.map_or(Cell::Nothing, Cell::Number)
}

impl Key<'_> {
    /// Cells of the first [`KEYS`] columns.
    pub fn cells(&self) -> [Cell<'_>; KEYS] {
        [
            Cell::Text(self.network),
            Cell::Text(self.gpu),
            Cell::Whole(self.batch),
            Cell::Text(self.precision.name()),
            Cell::Text(self.mode.name()),
            or_nothing(self.point.core_clock.map(|f| f.to_mhz())),
            or_nothing(self.point.power_cap.map(|w| w.get())),
            self.sequence.map_or(Cell::Nothing, Cell::Whole),
            Cell::Text(self.framework),
            Cell::Text(self.launch.name()),
            self.algorithm.map_or(Cell::Nothing, |a| Cell::Text(a.name())),
        ]
    }
}

fn three<T: Copy>(estimate: &Estimate<T>, number: fn(T) -> f64) -> [Cell<'static>; 3] {
    [estimate.value, estimate.p05, estimate.p95].map(|v| Cell::Number(number(v)))
}

impl<'a> Row<'a> {
    pub fn of(key: Key<'a>, summary: &Summary, prepared: &Prepared<'_, '_>) -> Self {
        let values = Values {
            summary: *summary,
            ops: prepared.cost.ops.get(),
            memory_bytes: prepared.memory.total().get(),
            fits_in_memory: prepared.fits_in_memory,
        };
        Self { key, result: Ok(values) }
    }

    pub fn failed(key: Key<'a>, why: String) -> Self {
        Self { key, result: Err(why) }
    }

    /// Why there is no prediction.
    pub fn error(&self) -> Option<&str> {
        self.result.as_ref().err().map(String::as_str)
    }

    /// A cell per column.
    pub fn cells(&self) -> Vec<Cell<'_>> {
        let mut cells = Vec::with_capacity(COLUMNS.len());
        cells.extend(self.key.cells());
        match &self.result {
            Ok(Values { summary: s, ops, memory_bytes, fits_in_memory }) => {
                let (time, energy, batch) = (s.time.value, s.energy.value, self.key.batch as f64);
                cells.push(Cell::Number(s.clock.to_mhz()));
                cells.extend(three(&s.time, |v| v.get()));
                cells.extend(three(&s.power, |v| v.get()));
                cells.extend(three(&s.energy, |v| v.get()));
                cells.extend(
                    [(energy * time).get(), batch / time.get(), energy.get() / batch, batch / energy.get()]
                        .map(Cell::Number),
                );
                cells.extend([Cell::Whole(*ops), Cell::Whole(*memory_bytes), Cell::Truth(*fits_in_memory)]);
                cells.extend([s.time_tier.name(), s.power_tier.name()].map(Cell::Text));
                cells.extend([Cell::Truth(s.launch_bound), Cell::Nothing]);
            }
            Err(why) => {
                cells.resize_with(COLUMNS.len() - 1, || Cell::Nothing);
                cells.push(Cell::Text(why));
            }
        }
        cells
    }
}
