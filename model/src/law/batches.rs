//! One kernel by its model over batches: what no batch changes is worked out once, the rest for several batches side by side.
//!
//! The plain way is [`LayerModel::view`] with [`time`](super::time::time), batch by batch; this one says the same but for
//! rounding. It rests on amounts that are straight lines over the batch (operations, traffic and so the times of a roofline),
//! which is looked at where they are made.

use super::calibration::{Bounded, EDGE, EngineTerms, LayerModel, Narrowings, Range, Siblings, Values};
use super::carry::Carry;
use super::choice::Choice;
use super::lookup::Found;
use super::time::{Loads, Timed};
use crate::base::number::{Changes, LANES, Lanes, Number};
use crate::base::units::{Bytes, Ops, Seconds};
use crate::kernel::features::{MAX_VARIABLES, Variables, Wanted};
use crate::kernel::load::{Amounts, Load};
use crate::kernel::setting::Algorithm;
use crate::kernel::sizes::ConvSizes;
use crate::kernel::work::Work;
use crate::law::calibration::Calibration;
use crate::net::cost::LayerCost;
use std::sync::OnceLock;

/// Batches that lines are drawn through; the last is looked at alone.
pub(crate) const SAMPLED: [u64; 3] = [1, 64, 7];
/// A line is one where the last of these is so near it, relatively.
const STRAIGHT: f64 = 1e-13;

/// Choices of engines are laid out for so many samples; sizes of what is larger need not fit.
const MOST_SAMPLES: u64 = 1 << 20;

/// A quantity over the batch.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Line {
    at_one: f64,
    each: f64,
}

impl Line {
    /// Through its values at the [`SAMPLED`] batches; `None` where they lie on none.
    fn through([one, many, between]: [f64; 3]) -> Option<Self> {
        let [first, last, middle] = SAMPLED.map(|batch| batch as f64);
        let line = Self { at_one: one, each: (many - one) / (last - first) };
        ((line.at(middle) - between).abs() <= STRAIGHT * between.abs()).then_some(line)
    }

    #[inline(always)]
    fn at<V: Number>(self, batch: V) -> V {
        (batch - 1.0) * self.each + self.at_one
    }
}

/// A kernel's operations and traffic over the batch: whole numbers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CostLine {
    at_one: LayerCost,
    each: [u64; 5],
}

fn numbers(cost: &LayerCost) -> [u64; 5] {
    [cost.ops.get(), cost.macs, cost.read.get(), cost.written.get(), cost.weights.get()]
}

impl CostLine {
    /// Through the costs at the [`SAMPLED`] batches; `None` where they lie on no line.
    pub fn through([one, many, between]: [LayerCost; 3]) -> Option<Self> {
        let [first, last, middle] = SAMPLED;
        let mut each = [0; 5];
        for (each, (one, many)) in each.iter_mut().zip(numbers(&one).into_iter().zip(numbers(&many))) {
            *each = many.checked_sub(one)? / (last - first);
        }
        let line = Self { at_one: one, each };
        (line.at(last) == many && line.at(middle) == between).then_some(line)
    }

    /// At a batch, at least 1.
    pub fn at(&self, batch: u64) -> LayerCost {
        let mut sums = numbers(&self.at_one);
        for (sum, each) in sums.iter_mut().zip(self.each) {
            *sum = sum.saturating_add(each.saturating_mul(batch - 1));
        }
        let [ops, macs, read, written, weights] = sums;
        LayerCost {
            ops: Ops::new(ops),
            macs,
            read: Bytes::new(read),
            written: Bytes::new(written),
            weights: Bytes::new(weights),
        }
    }
}

/// What a kernel's batch changes of what its model sees.
#[derive(Clone, Debug)]
struct Lines {
    board: Amounts<Line>,
    /// Over the model's memory, and what its variables are of, where these are others.
    over: Option<Amounts<Line>>,
    described: Option<Amounts<Line>>,
}

/// Amounts of a kernel on its board, over its model's memory and as its variables see them.
type Seen = [Option<Amounts<f64>>; 3];

fn seen(loads: &Loads<'_>) -> Seen {
    [Some(&loads.board), loads.other.as_deref(), loads.wide.as_deref()].map(|load| load.map(Load::amounts))
}

/// A kernel at the [`SAMPLED`] batches.
pub(crate) struct Sampled {
    /// With its cost.
    costs: [LayerCost; 3],
    own: [Seen; 3],
    /// As the layer alone has it; `None` of what is never compared with more samples, or does not run alone.
    longer: Option<[Seen; 3]>,
}

impl Sampled {
    /// Of a kernel's loads, `each` samples of its own to one of a batch, with its costs; the loads are left at the one between.
    /// `grows`: whether more samples are other work.
    pub fn of(loads: &mut Loads<'_>, each: u64, costs: [LayerCost; 3], grows: bool) -> Self {
        let samples = SAMPLED.map(|batch| batch.saturating_mul(each));
        let mut longer = [Seen::default(); 3];
        let runs = samples.iter().zip(&mut longer).all(|(&samples, longer)| {
            let runs = grows && loads.alone_over(samples);
            if runs {
                *longer = seen(loads);
            }
            runs
        });
        let mut own = [Seen::default(); 3];
        for ((own, samples), cost) in own.iter_mut().zip(samples).zip(costs) {
            loads.at(samples, cost);
            *own = seen(loads);
        }
        Self { costs, own, longer: runs.then_some(longer) }
    }
}

impl Lines {
    fn through([one, many, between]: &[Seen; 3]) -> Option<Self> {
        let of = |which: usize| -> Option<Option<Amounts<Line>>> {
            let [Some(one), Some(many), Some(between)] = [one, many, between].map(|seen| seen[which].as_ref()) else {
                return Some(None);
            };
            let line = |of: fn(&Amounts<f64>) -> f64| Line::through([one, many, between].map(of));
            Some(Some(Amounts {
                batch: line(|a| a.batch)?,
                ops: line(|a| a.ops)?,
                bytes: line(|a| a.bytes)?,
                weights: line(|a| a.weights)?,
                compute: line(|a| a.compute)?,
                memory: line(|a| a.memory)?,
                second: line(|a| a.second)?,
            }))
        };
        Some(Self { board: of(0)??, over: of(1)?, described: of(2)? })
    }

    fn over(&self) -> &Amounts<Line> {
        self.over.as_ref().unwrap_or(&self.board)
    }

    fn described(&self) -> &Amounts<Line> {
        self.described.as_ref().unwrap_or(self.over())
    }
}

fn amounts(lines: &Amounts<Line>, batch: Lanes) -> Amounts<Lanes> {
    Lanes::by_widest(
        #[inline(always)]
        || lines.with(lines, |line, _| line.at(batch)),
    )
}

/// The engines that a library chooses for a kernel over the batch.
struct Engines<'m> {
    choice: &'m Choice,
    /// Up to so many samples that engine, and so on; what is beyond the last asks the tree.
    ranges: Vec<(u64, u16)>,
    /// For each engine of the choice its terms in the model, once it is expected.
    terms: Vec<OnceLock<Option<Box<Narrowed<'m>>>>>,
}

/// What a model has of an engine, and its sum where only what another batch changes is left.
struct Narrowed<'m> {
    terms: &'m EngineTerms,
    polynomial: OnceLock<Bounded>,
}

impl<'m> Engines<'m> {
    /// Of an engine by its place in the choice; `None` where the model has nothing of it.
    fn known(&self, engine: usize, model: &'m LayerModel) -> Option<&Narrowed<'m>> {
        let find = || {
            let terms = model.engine(self.choice.engines.get(engine)?)?;
            Some(Box::new(Narrowed { terms, polynomial: OnceLock::new() }))
        };
        self.terms.get(engine)?.get_or_init(find).as_deref()
    }
}

/// Room for the variables of several batches.
pub(crate) struct Several([Lanes; MAX_VARIABLES]);

impl Several {
    pub fn new() -> Box<Self> {
        Box::new(Self([Lanes::of(0.0); MAX_VARIABLES]))
    }

    /// Writes some variables of those in a lane.
    pub fn fill(&self, which: Wanted, lane: usize, variables: &mut Variables) {
        for variable in which.each(0..MAX_VARIABLES) {
            variables.values[variable] = self.0[variable].0[lane];
        }
    }
}

/// The same with room for what they are held to.
pub(crate) struct Room {
    pub values: Box<Several>,
    held: Box<Values<Lanes>>,
}

impl Room {
    pub fn new() -> Self {
        Self { values: Several::new(), held: Box::new([Lanes::of(0.0); 256]) }
    }
}

/// Edges of the intervals of times up to one, outside of what was fitted and within.
type Edges = [Option<(f64, f64)>; 2];

/// A kernel by its model, over batches.
pub(crate) struct OverBatches<'a, 'm> {
    found: Found<'m>,
    edges: Vec<(Seconds, Edges)>,
    loads: Loads<'a>,
    cost: CostLine,
    own: Lines,
    /// Of the layer alone, as it is with more samples.
    longer: Option<Lines>,
    library: f64,
    changing: Wanted,
    fixed: Variables,
    polynomial: Bounded,
    /// Whether fewer samples of the layer alone move less than the kernel does, as they compute less.
    shrinks: bool,
    /// Whether what stays the same lies within what was fitted, and bounds of what does not.
    inside: bool,
    domain: Vec<Range>,
    distance: Bounded,
    farthest: f64,
    engines: Option<Engines<'m>>,
}

/// What a kernel takes in each of several batches.
pub(crate) struct Taken<'m> {
    /// In each.
    pub timed: [Timed; LANES],
    /// The engine that the library is expected to choose, where its model knows that engine.
    pub engines: [Option<&'m str>; LANES],
    /// What is to be done on the board.
    pub amounts: Amounts<Lanes>,
    /// Where no fewer samples lie within what was fitted.
    pub below: [bool; LANES],
}

/// What a model expects of a kernel in several batches.
struct Expected {
    reference: Lanes,
    log: Lanes,
    lies: Lies,
}

/// Where a kernel lies of what was fitted, in several batches.
#[derive(Clone, Copy)]
struct Lies {
    inside: [bool; LANES],
    /// Whether a size lies outside that comes no nearer with fewer samples.
    below: [bool; LANES],
}

impl<'a, 'm> OverBatches<'a, 'm> {
    /// Of a kernel's loads, at any batch, and what it is at the [`SAMPLED`] ones. `None` where something of it is no straight line
    /// over the batch.
    pub fn new(
        found: Found<'m>,
        siblings: Option<Siblings>,
        loads: Loads<'a>,
        sampled: &Sampled,
        library: Option<f64>,
        chip: Option<&'m Calibration>,
        narrowings: &mut Narrowings<'m>,
    ) -> Option<Self> {
        let model = found.model;
        // By an algorithm that is asked for the bound is another than the roofline's.
        if loads.board.work.algorithm != Algorithm::Heuristic {
            return None;
        }
        let cost = CostLine::through(sampled.costs)?;
        let own = Lines::through(&sampled.own)?;
        let longer = match &sampled.longer {
            Some(seen) => Some(Lines::through(seen)?),
            None => None,
        };
        let library = library.unwrap_or(model.library);
        let mut changes = [Changes(false); MAX_VARIABLES];
        // What the layer alone has otherwise changes, too.
        let alone = longer.as_ref().map_or(own.described(), Lines::described);
        let moving = own.described().with(alone, |own, alone| Changes(own.each != 0.0 || own != alone));
        let (described, reads) = (loads.described(), model.reads_of_all());
        described.fill(&moving, (model.floor, library), reads, &mut changes);
        let changing: Wanted = reads.each(0..MAX_VARIABLES).filter(|&v| changes[v].0).collect();
        let fixed = described.some_variables(model.floor, library, reads);
        let within = |r: &Range| fixed.values[r.variable] >= r.low - EDGE && fixed.values[r.variable] <= r.high + EDGE;
        let (domain, settled): (Vec<Range>, Vec<Range>) = model.domain.iter().partition(|r| changing.has(r.variable));
        let polynomial = narrowings.where_only(model.polynomial_of(), changing, &fixed.values);
        let engines = Self::engines(model, &loads.board, chip);
        let no_more = |alone: Line, own: Line| alone.at_one <= own.at_one && alone.each <= own.each;
        let shrinks = no_more(alone.bytes, own.described().bytes);
        let longest = Seconds::new(f64::INFINITY);
        let ends: Vec<Seconds> = match found.stated {
            Some(_) => vec![longest],
            None => found.residuals.residuals.iter().map(|bucket| bucket.up_to).collect(),
        };
        let edges = |end: Seconds| (end, [false, true].map(|inside| found.edges(end, inside, siblings)));
        let edges = ends.into_iter().map(edges).collect();
        Some(Self {
            edges,
            cost,
            own,
            longer,
            library,
            changing,
            polynomial,
            shrinks,
            inside: settled.iter().all(within),
            domain,
            distance: narrowings.where_only(model.distance(), changing, &fixed.values),
            farthest: model.sizes.farthest(),
            engines,
            fixed,
            loads,
            found,
        })
    }

    fn engines(model: &'m LayerModel, load: &Load<'_>, chip: Option<&'m Calibration>) -> Option<Engines<'m>> {
        if model.engines.is_empty() {
            return None;
        }
        let one = ConvSizes::of(&Work { batch: 1, ..load.work.clone() })?;
        let choice = chip?.choices.iter().find(|c| c.is_for(one.phase, one.precision))?;
        let terms = choice.engines.iter().map(|_| OnceLock::new()).collect();
        let ranges = choice.tree.ranges((1, MOST_SAMPLES), |size, samples| one.of_samples(size, samples));
        Some(Engines { choice, ranges, terms })
    }

    /// The kernel on its board, for whatever goes by a load; [`Self::at`] makes it that of a batch.
    pub fn load(&self) -> &Load<'a> {
        &self.loads.board
    }

    /// Makes a copy of [`Self::load`] that of a batch.
    pub fn at(&self, batch: u64, load: &mut Load<'_>) {
        load.cost = self.cost.at(batch);
        let (lines, batch) = (&self.own.board, batch as f64);
        // A whole number but for rounding.
        load.work.batch = (lines.batch.at(batch) + 0.5) as u64;
        let roofline = &mut load.roofline;
        roofline.compute = Seconds::new(lines.compute.at(batch));
        roofline.memory = Seconds::new(lines.memory.at(batch));
        roofline.second = Seconds::new(lines.second.at(batch));
        load.bound = roofline.bound();
    }

    /// The variables that say whether the kernel lies within what was fitted, in each of several batches.
    pub fn bounding(&self, batches: &[u64; LANES], room: &mut Room) -> [Variables; LANES] {
        let model = self.found.model;
        let described = amounts(self.own.described(), Lanes(batches.map(|batch| batch as f64)));
        let which = model.bounding().and(self.changing);
        self.loads.described().fill(&described, (model.floor, self.library), which, &mut room.values.0);
        let mut each = [self.fixed; LANES];
        for (lane, variables) in each.iter_mut().enumerate() {
            room.values.fill(which, lane, variables);
        }
        each
    }

    /// What it does in all at a batch.
    pub fn cost(&self, batch: u64) -> LayerCost {
        self.cost.at(batch)
    }

    /// The engine of the library's choice at each of so many samples.
    fn chosen(&self, samples: &[f64; LANES]) -> [Option<usize>; LANES] {
        let Some(engines) = &self.engines else { return [None; LANES] };
        samples.map(|samples| {
            let samples = samples.round() as u64;
            let ranges = &engines.ranges;
            let range = ranges.get(ranges.partition_point(|(most, _)| *most < samples));
            let beyond = || {
                let work = Work { batch: samples, ..self.loads.board.work.clone() };
                Some(engines.choice.tree.leaf(&ConvSizes::of(&work)?.values))
            };
            range.map(|(_, engine)| *engine).or_else(beyond).map(usize::from)
        })
    }

    /// What is expected of it where so much is to be done on the board.
    fn expects(
        &self,
        lines: &Lines,
        board: &Amounts<Lanes>,
        batch: Lanes,
        engines: &[Option<usize>; LANES],
        room: &mut Room,
    ) -> Expected {
        let model = self.found.model;
        let over = lines.over.as_ref().map(|over| amounts(over, batch));
        let over = over.as_ref().unwrap_or(board);
        let reference = over.reference(self.loads.over().roofline.narrow, model.exponent, model.floor);
        if let Some(stated) = self.found.stated {
            let log = Lanes::of(stated.log);
            return Expected { reference, log, lies: self.lies(lines, over, batch, reference, engines, room) };
        }
        let lies = self.lies(lines, over, batch, reference, engines, room);
        let mut log = self.polynomial.at(&room.values.0, &mut room.held);
        for (log, &inside) in log.0.iter_mut().zip(&lies.inside) {
            let (low, high) = if inside { model.ratio_range } else { model.ordinary_range };
            *log = log.clamp(low, high);
        }
        let by_engine = self.by_engine(engines, room);
        Expected { reference, log: log + by_engine + self.found.correction, lies }
    }

    /// The variables that batches change of those that are read where these engines run.
    fn wanted(&self, engines: &[Option<usize>; LANES]) -> Wanted {
        let own = self.found.model.reads_by(None);
        let known = self
            .engines
            .iter()
            .flat_map(|known| engines.iter().flatten().filter_map(|engine| known.known(*engine, self.found.model)));
        known.fold(own, |reads, narrowed| reads.or(narrowed.terms.reads())).and(self.changing)
    }

    /// Fills the room with the variables, and says where they lie of what was fitted.
    fn lies(
        &self,
        lines: &Lines,
        over: &Amounts<Lanes>,
        batch: Lanes,
        reference: Lanes,
        engines: &[Option<usize>; LANES],
        room: &mut Room,
    ) -> Lies {
        let model = self.found.model;
        let described = lines.described.as_ref().map(|described| amounts(described, batch));
        let described = described.as_ref().unwrap_or(over);
        let which = self.wanted(engines);
        self.loads.described().fill(described, (model.floor, self.library), which, &mut room.values.0);
        let mut inside = reference.0.map(|reference| reference >= model.shortest.get());
        let mut below = [!self.inside; LANES];
        for range in &self.domain {
            let values = room.values.0[range.variable].0;
            for ((inside, below), value) in inside.iter_mut().zip(&mut below).zip(values) {
                *below |= value < range.low - EDGE;
                *inside &= value <= range.high + EDGE;
            }
        }
        inside.iter_mut().zip(below).for_each(|(inside, below)| *inside &= !below);
        below.iter_mut().for_each(|below| *below &= self.shrinks);
        let distance = self.distance.at(&room.values.0, &mut room.held);
        for (inside, distance) in inside.iter_mut().zip(distance.0) {
            *inside &= distance <= self.farthest;
        }
        Lies { inside, below }
    }

    /// What engines add to ln(t / t_ref).
    fn by_engine(&self, engines: &[Option<usize>; LANES], room: &mut Room) -> Lanes {
        let mut added = [0.0; LANES];
        let Some(known) = &self.engines else { return Lanes(added) };
        for i in 0..LANES {
            if engines[..i].contains(&engines[i]) {
                continue;
            }
            let Some(narrowed) = engines[i].and_then(|e| known.known(e, self.found.model)) else { continue };
            let terms = narrowed.terms;
            let make = || terms.polynomial().where_only(self.changing, &self.fixed.values);
            let log = narrowed.polynomial.get_or_init(make).at(&room.values.0, &mut room.held);
            for ((added, engine), log) in added.iter_mut().zip(engines).zip(log.0) {
                if *engine == engines[i] {
                    *added = log.clamp(terms.range.0, terms.range.1);
                }
            }
        }
        Lanes(added)
    }

    /// Times that are expected, on the board.
    fn times(&self, lines: &Lines, batch: &[f64; LANES], expected: &Expected) -> [Seconds; LANES] {
        let times = (expected.reference * expected.log.exp()).0.map(Seconds::new);
        let Some(over) = lines.over.as_ref() else { return times };
        let mut carried = times;
        for (time, &batch) in carried.iter_mut().zip(batch) {
            let takes = [over, &lines.board].map(|amounts| Seconds::new(amounts.memory.at(batch)));
            // Whole numbers but for rounding. Rows of a table count among the parameters, and are more with more samples.
            let bytes = (lines.board.bytes.at(batch).round(), lines.board.weights.at(batch).round());
            *time = Carry::of(&self.loads.board, takes.into(), bytes).to_board(*time);
        }
        carried
    }

    /// What the kernel takes in each of these batches, as [`time`](super::time::time) says it, and no longer than the same one
    /// of more samples.
    pub fn taken(&self, batches: &[u64; LANES], room: &mut Room) -> Taken<'m> {
        let batch = batches.map(|batch| batch as f64);
        let amounts = amounts(&self.own.board, Lanes(batch));
        let chosen = self.chosen(&amounts.batch.0);
        let expected = self.expects(&self.own, &amounts, Lanes(batch), &chosen, room);
        let times = self.times(&self.own, &batch, &expected);
        let mut timed = [Timed { value: Seconds::ZERO, edges: None, in_domain: false }; LANES];
        for (i, timed) in timed.iter_mut().enumerate() {
            let inside = expected.lies.inside[i];
            let bucket = self.edges.iter().find(|(up_to, _)| times[i] <= *up_to).or(self.edges.last());
            let edges = bucket.and_then(|(_, edges)| edges[usize::from(inside)]);
            *timed = Timed { value: times[i], edges, in_domain: inside };
        }
        if expected.lies.inside.contains(&false) {
            self.bound_by_longer(&batch, &mut timed, room);
        }
        let engine = |chosen: Option<usize>| {
            let known = self.engines.as_ref()?;
            known.known(chosen?, self.found.model)?;
            known.choice.engines.get(chosen?).map(String::as_str)
        };
        Taken { timed, engines: chosen.map(engine), amounts, below: expected.lies.below }
    }

    /// Outside of what was measured no longer than the same kernel of 2, 4, 8 and so on times as many samples.
    fn bound_by_longer(&self, batch: &[f64; LANES], timed: &mut [Timed; LANES], room: &mut Room) {
        let Some(lines) = &self.longer else { return };
        let model = self.found.model;
        let carried = Carry::between(self.loads.over(), &self.loads.board).shortest();
        let shortest = self.found.shortest().map(|log| log.exp() * carried);
        let mut open: [bool; LANES] = std::array::from_fn(|i| !timed[i].in_domain);
        for times in super::time::MORE {
            let batch = batch.map(|batch| batch * times as f64);
            if let Some(shortest) = shortest {
                let over = amounts(lines.over(), Lanes(batch));
                let reference = over.reference(self.loads.over().roofline.narrow, model.exponent, model.floor);
                for (open, (timed, reference)) in open.iter_mut().zip(timed.iter().zip(reference.0)) {
                    *open &= reference * shortest < timed.value.get();
                }
            }
            if !open.contains(&true) {
                return;
            }
            let board = amounts(&lines.board, Lanes(batch));
            let expected = self.expects(lines, &board, Lanes(batch), &self.chosen(&board.batch.0), room);
            for (i, time) in self.times(lines, &batch, &expected).into_iter().enumerate() {
                if open[i] {
                    timed[i].value = timed[i].value.min(time);
                }
            }
        }
    }
}
