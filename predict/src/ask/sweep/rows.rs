//! Rows of a sweep: the keys of `prediction/1`, without layers and warnings.

use joulecast_model::base::precision::{Mode, Precision};
use joulecast_model::kernel::setting::Algorithm;
use joulecast_model::step::framework::Launch;
use joulecast_model::step::predictor::{Estimate, NetworkPrediction, OperatingPoint, Prepared, Summary};

/// What a row is of.
#[derive(Clone, Debug, PartialEq)]
pub struct Key<'a> {
    /// The network's name.
    pub network: &'a str,
    /// The GPU or team as it was typed.
    pub gpu: &'a str,
    /// Samples of the whole step.
    pub batch: u64,
    /// Precision.
    pub precision: Precision,
    /// Mode.
    pub mode: Mode,
    /// Clocks and limit that were asked for.
    pub point: OperatingPoint,
    /// Tokens per sample, where a sequence is read.
    pub sequence: Option<u64>,
    /// Framework profile.
    pub framework: &'a str,
    /// How the step is launched.
    pub launch: Launch,
    /// What convolutions are computed by, where somebody asked for that.
    pub algorithm: Option<Algorithm>,
}

/// A prediction, or why there is none.
pub struct Row<'a> {
    /// What it is of.
    pub key: Key<'a>,
    /// What is predicted.
    pub result: Result<Values, String>,
}

/// What a row says of a step.
pub struct Values {
    /// Time, power and energy.
    pub summary: Summary,
    /// Operations.
    pub ops: u64,
    /// Device memory.
    pub memory_bytes: u64,
    /// Whether that is there.
    pub fits_in_memory: bool,
}

/// A cell.
pub enum Cell<'a> {
    /// A name or a sentence.
    Text(&'a str),
    /// A count.
    Whole(u64),
    /// A quantity in base units.
    Number(f64),
    /// Yes or no.
    Truth(bool),
    /// Nothing is said.
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
/// The first of the two columns of the point: clock and limit.
pub const POINT: usize = 5;

fn or_nothing(value: Option<f64>) -> Cell<'static> {
    value.map_or(Cell::Nothing, Cell::Number)
}

impl Key<'_> {
    /// Whether another is of the same step, at whatever point.
    pub fn differs_by_its_point_alone(&self, other: &Self) -> bool {
        Key { point: other.point, ..self.clone() } == *other
    }

    /// Cells of the point.
    pub fn point_cells(&self) -> [Cell<'static>; 2] {
        let OperatingPoint { core_clock, power_cap, .. } = self.point;
        [or_nothing(core_clock.map(|f| f.to_mhz())), or_nothing(power_cap.map(|w| w.get()))]
    }

    /// Cells of the first [`KEYS`] columns.
    pub fn cells(&self) -> [Cell<'_>; KEYS] {
        let [clock, cap] = self.point_cells();
        [
            Cell::Text(self.network),
            Cell::Text(self.gpu),
            Cell::Whole(self.batch),
            Cell::Text(self.precision.name()),
            Cell::Text(self.mode.name()),
            clock,
            cap,
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
    /// Of a step at one of its points.
    pub fn summed(key: Key<'a>, summary: &Summary, prepared: &Prepared<'_, '_>) -> Self {
        let values = Values {
            summary: *summary,
            ops: prepared.cost.ops.get(),
            memory_bytes: prepared.memory.total().get(),
            fits_in_memory: prepared.fits_in_memory,
        };
        Self { key, result: Ok(values) }
    }

    /// Of a whole prediction.
    pub fn predicted(key: Key<'a>, p: &NetworkPrediction) -> Self {
        let values = Values {
            summary: p.summary(),
            ops: p.ops.get(),
            memory_bytes: p.memory.total().get(),
            fits_in_memory: p.fits_in_memory,
        };
        Self { key, result: Ok(values) }
    }

    /// Without a prediction, and why.
    pub fn failed(key: Key<'a>, why: String) -> Self {
        Self { key, result: Err(why) }
    }

    /// Why there is no prediction.
    pub fn error(&self) -> Option<&str> {
        self.result.as_ref().err().map(String::as_str)
    }

    /// A cell per column.
    pub fn cells(&self) -> Vec<Cell<'_>> {
        self.key.cells().into_iter().chain(self.results()).collect()
    }

    /// Cells of the columns behind the first [`KEYS`].
    pub fn results(&self) -> [Cell<'_>; COLUMNS.len() - KEYS] {
        let Values { summary: s, ops, memory_bytes, fits_in_memory } = match &self.result {
            Ok(values) => values,
            Err(why) => {
                let mut cells = [const { Cell::Nothing }; COLUMNS.len() - KEYS];
                cells[COLUMNS.len() - KEYS - 1] = Cell::Text(why);
                return cells;
            }
        };
        let batch = self.key.batch;
        let ([t, t05, t95], [p, p05, p95]) = (three(&s.time, |v| v.get()), three(&s.power, |v| v.get()));
        let [e, e05, e95] = three(&s.energy, |v| v.get());
        [
            Cell::Number(s.clock.to_mhz()),
            t,
            t05,
            t95,
            p,
            p05,
            p95,
            e,
            e05,
            e95,
            Cell::Number(s.edp().get()),
            Cell::Number(s.samples_per_second(batch)),
            Cell::Number(s.energy_per_sample(batch).get()),
            Cell::Number(s.samples_per_joule(batch)),
            Cell::Whole(*ops),
            Cell::Whole(*memory_bytes),
            Cell::Truth(*fits_in_memory),
            Cell::Text(s.time_tier.name()),
            Cell::Text(s.power_tier.name()),
            Cell::Truth(s.launch_bound),
            Cell::Nothing,
        ]
    }
}
