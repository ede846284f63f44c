//! Measured rows made ready for fitting: roofline times, variables, and what the measurement itself added.

use crate::rows::choices::engine_name;
use crate::rows::raw::RawParameters;
use anyhow::{Context, Result, bail};
use joulecast_import::torch;
use joulecast_model::base::name::Name;
use joulecast_model::base::precision::{Phase, Precision};
use joulecast_model::base::units::Seconds;
use joulecast_model::catalog;
use joulecast_model::device::gpu::Gpu;
use joulecast_model::kernel::family::Family;
use joulecast_model::kernel::features::{Variables, library_age};
use joulecast_model::kernel::key::ModelKey;
use joulecast_model::kernel::load::{Memory, Roofline};
use joulecast_model::kernel::setting::Algorithm;
use joulecast_model::kernel::sizes::ConvSizes;
use joulecast_model::law::calibration::{Calibration, LayerModel};
use joulecast_model::law::carry::Carry;
use joulecast_model::law::lookup::find;
use joulecast_model::law::power::{Activities, Traits, activities, over as over_bandwidth, traits};
use joulecast_model::law::time::{Expected, Seen};
use joulecast_model::net::cost::LayerCost;
use joulecast_model::net::layer::{Layer, Measured};
use joulecast_model::rows::measurement::{Measurement, Regime};
use std::borrow::Borrow;
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap, HashSet};

/// Launch floor of a kernel where rows do not show it, since something else was measured with it: 3 to 5 us for small
/// layers.
pub const KERNEL_FLOOR: Seconds = Seconds::from_us(4.0);
/// One kernel in a hundred of a kind is about as short as its floor.
const SHORT: usize = 100;
/// Rows of a kind that show its floor.
const FEWEST_SHORT: usize = 30;

/// Library age where the source does not say: that of cuDNN 8, or of the newest that rows of the chip state. The variable tells
/// versions apart; if it told sources apart, a model would go on from those that state one to sizes that only others have.
const UNKNOWN_LIBRARY: f64 = -1.0;

/// A row ready for fitting.
#[derive(Clone, Debug)]
pub struct Row {
    /// Which measurement.
    pub row_id: String,
    /// What was tried, where a plan said so.
    pub trial_id: String,
    /// Chip of its board.
    pub chip: Name,
    /// Board, as in `data/gpus`.
    pub board: Name,
    /// Where it was published.
    pub source: Name,
    /// Software, in words.
    pub software: Name,
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
    pub key: Name,
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
    /// The memory that its roofline and variables are over; `None`: its board's own.
    pub memory: Option<Memory>,
    /// From that memory to its board's.
    pub carry: Carry,
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
    /// Sizes that its library's choice of an engine depends on; of convolutions alone.
    pub sizes: Option<Box<ConvSizes>>,
    /// The engine that ran, where the library said so.
    pub engine: Option<String>,
    /// The engine that was to be expected, where choices are known.
    pub foreseen: Option<String>,
    /// Bytes of its scratch memory, where they were asked for.
    pub workspace: Option<u64>,
}

impl Row {
    /// Smooth roofline with the kernel's floor.
    pub fn reference(&self, exponent: u32) -> Seconds {
        self.roofline.reference(exponent, self.floor)
    }

    /// As the law of time sees it.
    pub fn seen(&self) -> Seen<'_> {
        let Self { roofline, floor, ref variables, carry, .. } = *self;
        Seen { roofline, floor, variables, carry, engine: self.foreseen.as_deref() }
    }

    /// What a model, which need not be its own, expects of its kernel.
    pub fn expected(&self, model: &LayerModel) -> Expected {
        model.expects(self.seen())
    }

    /// Its time by that model, what the measurement added included.
    pub fn predicted(&self, model: &LayerModel) -> Seconds {
        self.expected(model).time() + self.overhead
    }

    /// ln(t / t_ref) of its kernel, with the memory that its roofline is over.
    pub fn log(&self, exponent: u32) -> f64 {
        self.log_of(self.kernel_time(), exponent)
    }

    /// The same if its kernel took another time.
    pub fn log_of(&self, kernel: Seconds, exponent: u32) -> f64 {
        (self.carry.to_model(kernel) / self.reference(exponent)).ln()
    }

    /// Its time if that logarithm were another, what the measurement added included.
    pub fn time_of(&self, log: f64, exponent: u32) -> Seconds {
        let expected = Expected { reference: self.reference(exponent), log, in_domain: true, carry: self.carry };
        expected.time() + self.overhead
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

/// Measurements that are let go as rows are made of them: both together take twice the memory.
const PIECE: usize = 4096;

/// Prepares the usable rows, those of a chip over the memory of its board with most.
///
/// # Errors
/// For rows of boards without the precision's peak: the device file is wrong.
pub fn prepare(measurements: &[Measurement]) -> Result<Vec<Row>> {
    let gpus = gpus(measurements)?;
    Common::of(measurements, &gpus).rows(measurements)
}

/// [`prepare`] of measurements that nobody needs afterwards.
///
/// # Errors
/// As of [`prepare`].
pub fn prepare_taking(measurements: Vec<Measurement>) -> Result<Vec<Row>> {
    let gpus = gpus(&measurements)?;
    Common::of(&measurements, &gpus).rows(let_go(measurements))
}

/// The same of the library's kernels, with [`KERNEL_FLOOR`] for every one, over each board's own memory: what can be known of a chip without many rows.
///
/// # Errors
/// As of [`prepare`].
pub fn prepare_alike(measurements: &[Measurement]) -> Result<Vec<Row>> {
    let gpus = gpus(measurements)?;
    Common::alike(measurements, &gpus).rows(measurements.iter().filter(|m| is_librarys(m)))
}

/// [`prepare_alike`] of measurements that nobody needs afterwards.
///
/// # Errors
/// As of [`prepare`].
pub fn prepare_alike_taking(measurements: Vec<Measurement>) -> Result<Vec<Row>> {
    let gpus = gpus(&measurements)?;
    Common::alike(&measurements, &gpus).rows(let_go(measurements).filter(is_librarys))
}

/// All of a list, whose memory shrinks meanwhile.
fn let_go<T>(mut list: Vec<T>) -> impl Iterator<Item = T> {
    let mut pieces = Vec::with_capacity(list.len() / PIECE + 1);
    while !list.is_empty() {
        pieces.push(list.split_off(list.len().saturating_sub(PIECE)));
        list.shrink_to_fit();
    }
    pieces.into_iter().rev().flatten()
}

/// A row as the model of its chip that predicts it sees it.
#[derive(Clone, Debug)]
pub struct Under<'a> {
    /// The row, over the memory that the model is of.
    pub row: Row,
    /// The model.
    pub model: &'a LayerModel,
    /// ln(measured / predicted).
    pub residual: f64,
}

/// The rows of the library's kernels as the models of their chip see them; those that no model of the chip predicts are left
/// out.
///
/// # Errors
/// As of [`prepare`].
pub fn prepare_under<'a>(
    measurements: &[Measurement],
    base: &'a Calibration,
    all_chips: &'a Calibration,
) -> Result<Vec<Under<'a>>> {
    let gpus = gpus(measurements)?;
    let (overheads, libraries) = (overheads(measurements), libraries(measurements, &gpus));
    let (mut rows, names) = (Vec::new(), Names::default());
    for m in measurements.iter().filter(|m| m.usable() && is_usual(m) && framework(m).is_none()) {
        let work = m.work()?;
        if work.algorithm != Algorithm::Heuristic {
            continue;
        }
        let found = find(Some(base), all_chips, work.key(), work.family(), work.phase, work.precision);
        let Some(found) = found.filter(|f| f.substitute.is_none() && f.stated.is_none()) else { continue };
        let overhead = overheads.get(&overhead_key(m)).copied().unwrap_or(Seconds::ZERO);
        let gpu = &gpus[m.gpu.as_str()];
        let library = libraries.get(gpu.chip.as_str()).copied();
        let mut row = row(m, gpu, overhead, found.model.floor, (found.model.memory, library), &names)
            .with_context(|| format!("row {}", m.row_id))?;
        row.foreseen = row.sizes.as_ref().and_then(|sizes| base.engine(sizes)).map(str::to_string);
        let expected = found.expects(row.seen());
        let residual = (row.carry.to_model(row.kernel_time()) / expected.reference).ln() - expected.log;
        rows.push(Under { row, model: found.model, residual });
    }
    Ok(rows)
}

type Gpus = BTreeMap<String, Gpu>;

/// The boards of the rows by name.
fn gpus(measurements: &[Measurement]) -> Result<Gpus> {
    let mut gpus = Gpus::new();
    for m in measurements {
        if !gpus.contains_key(m.gpu.as_str()) {
            gpus.insert(m.gpu.clone(), catalog::gpu(&m.gpu).with_context(|| format!("row {}", m.row_id))?);
        }
    }
    Ok(gpus)
}

/// What one row takes from all of them.
struct Common<'g> {
    gpus: &'g Gpus,
    floors: Floors<'g>,
    memories: HashMap<&'g str, Memory>,
    overheads: HashMap<OverheadKey, Seconds>,
    libraries: HashMap<&'g str, f64>,
    names: Names,
}

/// Words that many rows say, each once.
#[derive(Default)]
struct Names(RefCell<HashSet<Name>>);

impl Names {
    fn of(&self, text: &str) -> Name {
        let mut names = self.0.borrow_mut();
        names.get(text).cloned().unwrap_or_else(|| {
            let name = Name::from(text);
            names.insert(name.clone());
            name
        })
    }
}

impl<'g> Common<'g> {
    fn of(measurements: &[Measurement], gpus: &'g Gpus) -> Self {
        let (floors, memories) = (floors(measurements, gpus), memories(measurements, gpus));
        Self { floors, memories, ..Self::alike(measurements, gpus) }
    }

    /// Without what many rows of a chip say.
    fn alike(measurements: &[Measurement], gpus: &'g Gpus) -> Self {
        Self {
            gpus,
            floors: Floors::new(),
            memories: HashMap::new(),
            overheads: overheads(measurements),
            libraries: libraries(measurements, gpus),
            names: Names::default(),
        }
    }

    fn rows<M: Borrow<Measurement>>(&self, measurements: impl IntoIterator<Item = M>) -> Result<Vec<Row>> {
        let usual = measurements.into_iter().filter(|m| m.borrow().usable() && is_usual(m.borrow()));
        usual.map(|m| self.row(m.borrow())).collect()
    }

    fn row(&self, m: &Measurement) -> Result<Row> {
        let overhead = self.overheads.get(&overhead_key(m)).copied().unwrap_or(Seconds::ZERO);
        let gpu = &self.gpus[m.gpu.as_str()];
        let floor = self.floors.get(&(gpu.chip.as_str(), m.case.layer.kind())).copied().unwrap_or(KERNEL_FLOOR);
        let memory = self.memories.get(gpu.chip.as_str()).copied();
        let library = self.libraries.get(gpu.chip.as_str()).copied();
        row(m, gpu, overhead, floor, (memory, library), &self.names).with_context(|| format!("row {}", m.row_id))
    }
}

/// Whether the library chose the kernel of a row among its own.
fn is_librarys(m: &Measurement) -> bool {
    framework(m).is_none() && m.algorithm.is_none_or(|algorithm| algorithm == Algorithm::Heuristic)
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

/// The memory of each chip's board with most rows, by name of the chip.
fn memories<'a>(measurements: &[Measurement], gpus: &'a Gpus) -> HashMap<&'a str, Memory> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for m in measurements.iter().filter(|m| m.usable() && is_usual(m)) {
        *counts.entry(m.gpu.as_str()).or_default() += 1;
    }
    let mut boards: Vec<(&str, usize)> = counts.into_iter().collect();
    boards.sort_by_key(|(_, rows)| *rows);
    // The last of a chip stays.
    boards.into_iter().map(|(board, _)| (gpus[board].chip.as_str(), Memory::of(&gpus[board]))).collect()
}

/// The newest library that rows of each chip state, by name of the chip, cuDNN 8 at least.
fn libraries<'a>(measurements: &[Measurement], gpus: &'a Gpus) -> HashMap<&'a str, f64> {
    let mut newest = HashMap::new();
    for m in measurements.iter().filter(|m| m.usable()) {
        if let Some(age) = m.cudnn.as_deref().and_then(library_age) {
            let of_chip = newest.entry(gpus[m.gpu.as_str()].chip.as_str()).or_insert(UNKNOWN_LIBRARY);
            *of_chip = age.max(*of_chip);
        }
    }
    newest
}

/// The shortest kernels of a kind on a chip, measured back to back: almost nothing but launch. Our own where there are enough
/// of them, else those of others who queued them in a graph. Kinds with few rows do not show it.
fn floors<'a>(measurements: &[Measurement], gpus: &'a Gpus) -> Floors<'a> {
    let others = shortest(measurements, gpus, |m| m.regime == Regime::Import && m.method == "graph");
    others.into_iter().chain(shortest(measurements, gpus, |m| m.regime == Regime::Burst)).collect()
}

fn shortest<'a>(measurements: &[Measurement], gpus: &'a Gpus, queued: impl Fn(&Measurement) -> bool) -> Floors<'a> {
    let mut times: HashMap<(&str, &'static str), Vec<f64>> = HashMap::new();
    for m in measurements.iter().filter(|m| queued(m) && m.usable() && framework(m).is_none()) {
        times.entry((gpus[m.gpu.as_str()].chip.as_str(), m.case.layer.kind())).or_default().push(m.time_s);
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

/// `of_chip`: the memory that rows are seen over, and the library where one does not state it.
fn row(
    m: &Measurement,
    gpu: &Gpu,
    overhead: Seconds,
    floor: Seconds,
    of_chip: (Option<Memory>, Option<f64>),
    names: &Names,
) -> Result<Row> {
    let (memory, library) = of_chip;
    let work = m.work()?;
    let apart = work.apart().filter(|key| !key.is_frameworks() || framework(m).is_some());
    let (raw, asked) = (RawParameters::of(&work), ModelKey::by(work.algorithm).or(apart));
    let sizes = ConvSizes::of(&work);
    let cost = work.cost()?.context("no kernel runs in this phase")?;
    let no_peak = || format!("{} has no {} peak in its device file", gpu.name, m.precision);
    let load = work.clone().costing(cost, gpu).with_context(no_peak)?;
    let over = work.costing_over(cost, gpu, memory.unwrap_or(load.memory)).with_context(no_peak)?;
    if !(m.time_s.is_finite() && m.time_s > 0.0) {
        bail!("time {} s", m.time_s);
    }
    let time = Seconds::new(m.time_s);
    // A row near the floor still has a kernel in it.
    let overhead = overhead.min(time * 0.9);
    let reference = memory.map_or(load.memory.bandwidth, |memory| memory.bandwidth);
    let activities = over_bandwidth(activities(&load, floor, time), load.memory.bandwidth, reference);
    let library = m.cudnn.as_deref().and_then(library_age).or(library).unwrap_or(UNKNOWN_LIBRARY);
    Ok(Row {
        row_id: m.row_id.clone(),
        trial_id: m.trial_id.clone(),
        chip: names.of(&gpu.chip),
        board: names.of(&gpu.name),
        source: names.of(&m.source),
        software: m.cudnn.as_ref().map_or_else(|| names.of("software not stated"), |v| names.of(&format!("cuDNN {v}"))),
        kind: asked.map_or(m.case.layer.kind(), ModelKey::name),
        model: asked.unwrap_or(load.work.key()),
        own: m.regime != Regime::Import,
        framework: framework(m),
        floor,
        key: names.of(&m.case.fold_key()),
        phase: load.work.phase,
        precision: m.precision,
        family: load.work.family(),
        raw,
        cost,
        time,
        overhead,
        memory,
        carry: Carry::between(&over, &load),
        roofline: over.roofline,
        variables: over.variables(floor, library),
        traits: traits(&load, &activities, time),
        activities,
        library,
        engine: sizes.and(m.algo.as_deref()).map(|algorithm| engine_name(algorithm).to_string()),
        workspace: sizes.and(m.workspace_bytes),
        sizes: sizes.map(Box::new),
        foreseen: None,
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
        let time = Expected { reference, log, in_domain: true, carry: Carry::NONE }.time();
        let activities = activities(&load, KERNEL_FLOOR, time);
        Row {
            row_id: format!("{chip} {batch}"),
            trial_id: String::new(),
            chip: chip.into(),
            board: gpu.name.clone().into(),
            source: "test".into(),
            software: "".into(),
            kind: "linear",
            model: ModelKey::Kind("linear"),
            own: false,
            framework: None,
            floor: KERNEL_FLOOR,
            key: key.into(),
            phase,
            precision,
            family: Family::Gemm,
            raw: RawParameters::default(),
            cost: load.cost,
            time,
            overhead: Seconds::ZERO,
            memory: None,
            carry: Carry::NONE,
            roofline: load.roofline,
            variables: load.variables(KERNEL_FLOOR, 0.0),
            traits: traits(&load, &activities, time),
            activities,
            library: 0.0,
            sizes: None,
            engine: None,
            foreseen: None,
            workspace: None,
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
        let gpus = gpus(&all).expect("shipped devices");
        let floors = floors(&all, &gpus);
        let of = |gpu: &str| floors.get(&(gpus[gpu].chip.as_str(), "linear")).map(|floor| (floor.get() * 1e7).round());
        assert_eq!(["h200", "l40s", "v100", "t4"].map(of), [Some(20.0), Some(15.0), None, Some(40.0)]);
    }

    #[test]
    fn boards_of_a_chip_are_prepared_over_the_memory_of_the_one_with_most_rows() -> Result<()> {
        let mut all =
            [rows("h200", Regime::Burst, "graph", 2.0), rows("h100-sxm", Regime::Burst, "graph", 2.0)].concat();
        all.truncate(FEWEST_SHORT + 5);
        let prepared = prepare(&all)?;
        let h200 = Memory::of(&catalog::gpu("h200")?);
        assert!(prepared.iter().all(|row| row.memory == Some(h200)));
        for row in &prepared {
            assert_eq!(row.carry == Carry::NONE, row.board == "h200", "{}", row.board);
        }
        assert!(prepare_alike(&all)?.iter().all(|row| row.memory.is_none() && row.carry == Carry::NONE));
        Ok(())
    }

    /// In their order, though they come in several pieces; alike without those whose algorithm was asked for.
    #[test]
    fn measurements_that_are_let_go_make_the_same_rows() -> Result<()> {
        let few = rows("h200", Regime::Burst, "graph", 2.0);
        let all: Vec<Measurement> = (0..2 * PIECE + 3)
            .map(|i| Measurement {
                row_id: i.to_string(),
                algorithm: (i % 5 == 0).then_some(Algorithm::ImplicitPrecompGemm),
                ..few[i % few.len()].clone()
            })
            .collect();
        let ids = |rows: Vec<Row>| rows.into_iter().map(|row| row.row_id).collect::<Vec<_>>();
        assert_eq!(ids(prepare_taking(all.clone())?), (0..all.len()).map(|i| i.to_string()).collect::<Vec<_>>());
        let alike = ids(prepare_alike_taking(all.clone())?);
        assert_eq!(alike, (0..all.len()).filter(|i| i % 5 > 0).map(|i| i.to_string()).collect::<Vec<_>>());
        assert_eq!(alike, ids(prepare_alike(&all)?));
        Ok(())
    }
}
