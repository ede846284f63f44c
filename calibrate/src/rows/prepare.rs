//! Measured rows made ready for fitting: roofline times, variables, and what the measurement itself added.

use crate::rows::raw::RawParameters;
use anyhow::{Context, Result, bail};
use joulecast_model::base::precision::{Phase, Precision};
use joulecast_model::base::units::Seconds;
use joulecast_model::catalog;
use joulecast_model::device::gpu::Gpu;
use joulecast_model::kernel::family::Family;
use joulecast_model::kernel::features::{Variables, library_age};
use joulecast_model::kernel::key::ModelKey;
use joulecast_model::kernel::load::Roofline;
use joulecast_model::law::calibration::LayerModel;
use joulecast_model::law::power::{Activities, Traits, activities, traits};
use joulecast_model::law::time::{Expected, Seen};
use joulecast_model::net::cost::LayerCost;
use joulecast_model::net::layer::{Layer, Measured};
use joulecast_model::rows::import::torch;
use joulecast_model::rows::measurement::{Measurement, Regime};
use std::collections::{BTreeMap, HashMap};

/// Launch floor of a kernel where rows do not show it, since something else was measured with it: 3 to 5 us for small
/// layers.
pub const KERNEL_FLOOR: Seconds = Seconds::from_us(4.0);
/// One kernel in a hundred of a kind is about as short as its floor.
const SHORT: usize = 100;
/// Rows of a kind that show its floor.
const FEWEST_SHORT: usize = 30;

/// Library age where the source does not say: that of cuDNN 8.
const UNKNOWN_LIBRARY: f64 = -1.0;

/// A row ready for fitting.
#[derive(Clone, Debug)]
pub struct Row {
    /// Which measurement.
    pub row_id: String,
    /// What was tried, where a plan said so.
    pub trial_id: String,
    /// Chip of its board.
    pub chip: String,
    /// Board, as in `data/gpus`.
    pub board: String,
    /// Where it was published.
    pub source: String,
    /// Software, in words.
    pub software: String,
    /// Layer kind; of convolutions by an algorithm that was asked for, that of its models.
    pub kind: &'static str,
    /// Which model it is fitted into.
    pub model: ModelKey,
    /// Whether we measured it.
    pub own: bool,
    /// The framework whose kernels ran, where they were not the library's.
    pub framework: Option<&'static str>,
    /// Launch floor of its kernel.
    pub floor: Seconds,
    /// Cross-validation keeps rows with one key together.
    pub key: String,
    /// Phase.
    pub phase: Phase,
    /// Precision.
    pub precision: Precision,
    /// Family of variables.
    pub family: Family,
    /// Raw sizes for the comparator.
    pub raw: RawParameters,
    /// Operations and traffic.
    pub cost: LayerCost,
    /// Measured time, as published.
    pub time: Seconds,
    /// What the way of measuring added to the kernel's time.
    pub overhead: Seconds,
    /// What the kernel would take at peak.
    pub roofline: Roofline,
    /// Variables of the family.
    pub variables: Variables,
    /// What it does to power.
    pub activities: Activities,
    /// And what its law leaves to a polynomial in these.
    pub traits: Traits,
    /// Library covariate.
    pub library: f64,
}

impl Row {
    /// Smooth roofline with the kernel's floor.
    pub fn reference(&self, exponent: u32) -> Seconds {
        self.roofline.reference(exponent, self.floor)
    }

    /// As the law of time sees it.
    pub fn seen(&self) -> Seen<'_> {
        Seen { roofline: self.roofline, floor: self.floor, variables: &self.variables }
    }

    /// What a model, which need not be its own, expects of its kernel.
    pub fn expected(&self, model: &LayerModel) -> Expected {
        model.expects(self.seen())
    }

    /// Its time by that model, what the measurement added included.
    pub fn predicted(&self, model: &LayerModel) -> Seconds {
        self.expected(model).time() + self.overhead
    }

    /// An expected time of its kernel, and the logarithm of how much longer it took.
    pub fn against(&self, expected: Seconds) -> (Seconds, f64) {
        (expected, (self.kernel_time() / expected).ln())
    }

    /// The kernel's own time.
    pub fn kernel_time(&self) -> Seconds {
        self.time - self.overhead
    }
}

/// Prepares the usable rows. Rows of boards without the precision's peak are an error: the device file is wrong.
pub fn prepare(measurements: &[Measurement]) -> Result<Vec<Row>> {
    prepare_with(measurements, &floors(measurements))
}

/// The same of the library's kernels, with [`KERNEL_FLOOR`] for every one: what can be known of a chip without many rows.
pub fn prepare_alike(measurements: &[Measurement]) -> Result<Vec<Row>> {
    let mut rows = prepare_with(measurements, &HashMap::new())?;
    rows.retain(|r| r.framework.is_none() && !r.model.is_asked_for());
    Ok(rows)
}

fn prepare_with(measurements: &[Measurement], floors: &Floors<'_>) -> Result<Vec<Row>> {
    let mut gpus: BTreeMap<&str, Gpu> = BTreeMap::new();
    for m in measurements {
        if !gpus.contains_key(m.gpu.as_str()) {
            gpus.insert(&m.gpu, catalog::gpu(&m.gpu).with_context(|| format!("row {}", m.row_id))?);
        }
    }
    let overheads = overheads(measurements);
    measurements
        .iter()
        .filter(|m| m.usable() && is_usual(m))
        .map(|m| {
            let overhead = overheads.get(&overhead_key(m)).copied().unwrap_or(Seconds::ZERO);
            let floor = floors.get(&(m.gpu.as_str(), m.case.layer.kind())).copied().unwrap_or(KERNEL_FLOOR);
            row(m, &gpus[m.gpu.as_str()], overhead, floor).with_context(|| format!("row {}", m.row_id))
        })
        .collect()
}

/// Whether a row's time is what the layer takes at full clock: not that of a sustained run, whose clock the power limit may
/// have lowered.
fn is_usual(m: &Measurement) -> bool {
    matches!(m.regime, Regime::Import | Regime::Burst)
}

/// The framework that a row went through, where its kernels are its own.
fn framework(m: &Measurement) -> Option<&'static str> {
    let of_any = Layer::measured(m.case.layer.kind()) == Measured::ByAnyFramework;
    let own = m.source == torch::SOURCE && !of_any;
    own.then_some(torch::SOURCE)
}

type OverheadKey = (String, String, &'static str);

fn overhead_key(m: &Measurement) -> OverheadKey {
    (m.source.clone(), m.gpu.clone(), m.case.layer.kind())
}

/// A single call between two events with a synchronised host includes the framework's dispatch: the shortest
/// times of a source's operation on a board are that, plus a kernel's floor.
fn overheads(measurements: &[Measurement]) -> HashMap<OverheadKey, Seconds> {
    let mut times: HashMap<OverheadKey, Vec<f64>> = HashMap::new();
    for m in measurements.iter().filter(|m| m.method == "event_single") {
        times.entry(overhead_key(m)).or_default().push(m.time_s);
    }
    times
        .into_iter()
        .map(|(key, mut list)| {
            list.sort_by(f64::total_cmp);
            let floor = Seconds::new(list[list.len() / 500]);
            (key, (floor - KERNEL_FLOOR).max(Seconds::ZERO))
        })
        .collect()
}

type Floors<'a> = HashMap<(&'a str, &'static str), Seconds>;

/// The shortest kernels of a kind on a GPU, measured back to back: almost nothing but launch. Our own where there are enough
/// of them, else those of others who queued them in a graph. Kinds with few rows do not show it.
fn floors(measurements: &[Measurement]) -> Floors<'_> {
    let others = shortest(measurements, |m| m.regime == Regime::Import && m.method == "graph");
    others.into_iter().chain(shortest(measurements, |m| m.regime == Regime::Burst)).collect()
}

fn shortest(measurements: &[Measurement], queued: impl Fn(&Measurement) -> bool) -> Floors<'_> {
    let mut times: HashMap<(&str, &'static str), Vec<f64>> = HashMap::new();
    for m in measurements.iter().filter(|m| queued(m) && m.usable() && framework(m).is_none()) {
        times.entry((m.gpu.as_str(), m.case.layer.kind())).or_default().push(m.time_s);
    }
    times
        .into_iter()
        .filter(|(_, list)| list.len() >= FEWEST_SHORT)
        .map(|(key, mut list)| {
            list.sort_by(f64::total_cmp);
            (key, Seconds::new(list[list.len() / SHORT]).min(KERNEL_FLOOR))
        })
        .collect()
}

fn row(m: &Measurement, gpu: &Gpu, overhead: Seconds, floor: Seconds) -> Result<Row> {
    let work = m.work()?;
    let (raw, asked) = (RawParameters::of(&work), ModelKey::by(work.algorithm));
    let cost = work.cost()?.context("no kernel runs in this phase")?;
    let Some(load) = work.costing(cost, gpu) else {
        bail!("{} has no {} peak in its device file", gpu.name, m.precision);
    };
    if !(m.time_s.is_finite() && m.time_s > 0.0) {
        bail!("time {} s", m.time_s);
    }
    let time = Seconds::new(m.time_s);
    // A row near the floor still has a kernel in it.
    let overhead = overhead.min(time * 0.9);
    let activities = activities(&load, floor, time);
    let library = m.cudnn.as_deref().and_then(library_age).unwrap_or(UNKNOWN_LIBRARY);
    Ok(Row {
        row_id: m.row_id.clone(),
        trial_id: m.trial_id.clone(),
        chip: gpu.chip.clone(),
        board: gpu.name.clone(),
        source: m.source.clone(),
        software: m.cudnn.as_ref().map_or_else(|| "software not stated".to_string(), |v| format!("cuDNN {v}")),
        kind: asked.map_or(m.case.layer.kind(), ModelKey::name),
        model: asked.unwrap_or(load.work.key()),
        own: m.regime != Regime::Import,
        framework: framework(m),
        floor,
        key: m.case.fold_key(),
        phase: load.work.phase,
        precision: m.precision,
        family: load.work.family(),
        raw,
        cost,
        time,
        overhead,
        roofline: load.roofline,
        variables: load.variables(floor, library),
        traits: traits(&load, &activities, time),
        activities,
        library,
    })
}

#[cfg(test)]
pub(crate) mod testing {
    use super::*;
    use joulecast_model::base::precision::Mode;
    use joulecast_model::base::shape::Shape;

    use joulecast_model::kernel::work::Work;
    use joulecast_model::net::case::LayerCase;
    use joulecast_model::net::layer::{Layer, Linear};

    /// A linear layer of `batch` x 256 by 256 x `batch` + 64 on a T4 whose chip is called otherwise; its kernel takes
    /// exp(`log`) times the reference with exponent 2.
    pub fn row(chip: &str, batch: u64, log: f64) -> Row {
        let gpu = catalog::gpu("t4").expect("a shipped device");
        let layer = Layer::Linear(Linear { features: batch + 64, bias: true });
        let case = LayerCase { inputs: vec![Shape::new(&[256]).expect("a shape")], layer };
        let key = case.fold_key();
        let (phase, precision) = (Phase::Forward, Precision::Fp32);
        let load = Work::usual(case, phase, batch, precision, Mode::Inference).expect("fits").on(&gpu);
        let load = load.expect("fits").expect("a peak");
        let reference = load.roofline.reference(2, KERNEL_FLOOR);
        let time = Expected { reference, log, in_domain: true }.time();
        let activities = activities(&load, KERNEL_FLOOR, time);
        Row {
            row_id: format!("{chip} {batch}"),
            trial_id: String::new(),
            chip: chip.to_string(),
            board: gpu.name.clone(),
            source: "test".into(),
            software: String::new(),
            kind: "linear",
            model: ModelKey::Kind("linear"),
            own: false,
            framework: None,
            floor: KERNEL_FLOOR,
            key,
            phase,
            precision,
            family: Family::Gemm,
            raw: RawParameters::default(),
            cost: load.cost,
            time,
            overhead: Seconds::ZERO,
            roofline: load.roofline,
            variables: load.variables(KERNEL_FLOOR, 0.0),
            traits: traits(&load, &activities, time),
            activities,
            library: 0.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use joulecast_model::base::shape::Shape;
    use joulecast_model::net::case::LayerCase;
    use joulecast_model::net::layer::{Layer, Linear};

    /// Linear layers on a GPU of which the shortest takes so many microseconds.
    fn rows(gpu: &str, regime: Regime, method: &str, shortest_us: f64) -> Vec<Measurement> {
        let layer = Layer::Linear(Linear { features: 8, bias: false });
        let case = LayerCase { inputs: vec![Shape::new(&[8]).expect("a shape")], layer };
        let row = |i: u32| {
            let time_s = (shortest_us + f64::from(i)) * 1e-6;
            let row = Measurement::imported("test", &i.to_string(), gpu, case.clone(), Phase::Forward, 1, time_s);
            Measurement { regime, method: method.to_string(), ..row }
        };
        (0..FEWEST_SHORT as u32).map(row).collect()
    }

    #[test]
    fn kernels_queued_by_others_show_a_floor_where_our_own_do_not() {
        let all = [
            rows("h200", Regime::Burst, "graph", 2.0),
            rows("h200", Regime::Import, "graph", 1.0),
            rows("l40s", Regime::Import, "graph", 1.5),
            rows("v100", Regime::Import, "event_single", 1.0),
            rows("t4", Regime::Import, "graph", 9.0),
        ]
        .concat();
        let floors = floors(&all);
        let of = |gpu| floors.get(&(gpu, "linear")).map(|floor| (floor.get() * 1e7).round());
        assert_eq!(["h200", "l40s", "v100", "t4"].map(of), [Some(20.0), Some(15.0), None, Some(40.0)]);
    }
}
