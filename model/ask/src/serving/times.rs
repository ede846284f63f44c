//! What steps of a replica take, from predictions of a network's steps.
//!
//! A step's kernels fall into three. What runs over tokens (products, norms, experts) depends on how many there are in the
//! step, whosesoever they are; logits on the number of sequences, each of which gets its last token's; attention on the new
//! and the cached tokens of each sequence. Each part is predicted on a grid, as steps that hold nothing else beside it, and
//! read between its nodes; [`StepTimes::predicted`] is the only place that asks the predictor.
//!
//! Attention of a chunk of a prompt is what the prompt up to its end takes less what it takes up to its beginning, and at least
//! what reading the cache takes. Prompts in one step share the launches of one.
//!
//! A board has one clock for all that runs in a step, and each part was predicted at the clock that the limit leaves its own
//! step. A step whose parts together would draw more than the board keeps to is read between these predictions and those of
//! a lower limit, where it draws just that.

use super::replica::{Replica, StepCost, StepWork};
use joulecast_model::base::name::Name;
use joulecast_model::base::precision::Mode;
use joulecast_model::base::units::{Bytes, Joules, Seconds, Watts};
use joulecast_model::device::clock::VoltageCurve;
use joulecast_model::law::calibration::Tier;
use joulecast_model::law::power::{ClockLaw, Waits, waiting, waiting_at};
use joulecast_model::net::network::Network;
use joulecast_model::step::framework::Serving;
use joulecast_model::step::generation::{self, GenerationError};
use joulecast_model::step::layout::{Deployment, LayoutError};
use joulecast_model::step::memory::MemoryFootprint;
use joulecast_model::step::predictor::{LayerPrediction, NetworkPrediction, OperatingPoint, PredictError, Warning};
use std::collections::HashSet;

/// How large steps become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Most new tokens of a step, at least one.
    pub tokens: u64,
    /// Most sequences of a step, at least one.
    pub sequences: u64,
    /// Tokens of the longest sequence, at least two.
    pub length: u64,
}

/// Time and energy.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Spent {
    time: Seconds,
    energy: Joules,
}

impl Spent {
    fn plus(self, other: Self) -> Self {
        Self { time: self.time + other.time, energy: self.energy + other.energy }
    }

    /// No less than nothing.
    fn less(self, other: Self) -> Self {
        Self {
            time: (self.time - other.time).max(Seconds::ZERO),
            energy: (self.energy - other.energy).max(Joules::ZERO),
        }
    }

    fn times(self, time: f64, energy: f64) -> Self {
        Self { time: self.time * time, energy: self.energy * energy }
    }

    /// So far on the way to another one.
    fn towards(self, other: Self, share: f64) -> Self {
        self.times(1.0 - share, 1.0 - share).plus(other.times(share, share))
    }

    fn max(self, other: Self) -> Self {
        Self { time: self.time.max(other.time), energy: self.energy.max(other.energy) }
    }

    fn min(self, other: Self) -> Self {
        Self { time: self.time.min(other.time), energy: self.energy.min(other.energy) }
    }
}

/// One prediction of a step, by part.
#[derive(Clone, Copy)]
struct Parts {
    /// What runs over tokens, and the gaps between kernels.
    tokens: Spent,
    logits: Spent,
    attention: Spent,
}

/// The ends of intervals, as shares of the value: time and energy.
type Ends = [(f64, f64); 3];

/// A prediction by part, and its intervals' ends.
type Read = (Parts, Ends);

/// Which layers belong to which part.
struct Places {
    logits: HashSet<Name>,
    attention: HashSet<Name>,
}

impl Places {
    fn of(network: &Network) -> Self {
        let name = |i: usize| network.nodes[i].name.clone();
        let head = network.head().unwrap_or(network.nodes.len());
        let attends = |i: &usize| network.nodes[*i].layer.causal().is_some();
        Self {
            logits: (head..network.nodes.len()).map(name).collect(),
            attention: (0..network.nodes.len()).filter(attends).map(name).collect(),
        }
    }

    /// The kernels of logits and those of attention of a step, by their places in it, which are the same at all points.
    fn of_step(&self, p: &NetworkPrediction) -> [Vec<usize>; 2] {
        // What GPUs exchange is named after the layer that it follows; layers are those of one GPU.
        let is_of = |names: &HashSet<Name>, name: &str| {
            names.contains(name) || name.rsplit_once('.').is_some_and(|(layer, _)| names.contains(layer))
        };
        [&self.logits, &self.attention]
            .map(|names| (0..p.layers.len()).filter(|&i| is_of(names, &p.layers[i].name)).collect())
    }

    fn parts(places: &[Vec<usize>; 2], p: &NetworkPrediction) -> (Parts, Ends) {
        let gpus = p.layout.as_ref().map_or(1.0, |of| of.layout.gpus() as f64);
        let [logits, attention] = places.each_ref().map(|places| {
            let spent = |l: &LayerPrediction| Spent { time: l.time.value, energy: l.energy * gpus };
            places.iter().filter_map(|&i| p.layers.get(i)).fold(Spent::default(), |sum, l| sum.plus(spent(l)))
        });
        let whole = Spent { time: p.time.value, energy: p.energy.value };
        let ends = [(p.time.p05, p.energy.p05), (p.time.value, p.energy.value), (p.time.p95, p.energy.p95)];
        let ends = ends.map(|(time, energy)| (time / whole.time, energy / whole.energy));
        (Parts { tokens: whole.less(logits).less(attention), logits, attention }, ends)
    }
}

/// Values over whole numbers, read straight between nodes in logarithms: exact for powers.
#[derive(Clone, Debug, PartialEq)]
struct Curve {
    /// Rising, from 1; at least one.
    nodes: Vec<(f64, Spent)>,
}

impl Curve {
    /// None is above those of more: what more tokens take is enough for fewer.
    fn rising(nodes: impl DoubleEndedIterator<Item = (u64, Spent)>) -> Self {
        let mut least: Option<Spent> = None;
        let rising = |(at, spent): (u64, Spent)| {
            let held = least.map_or(spent, |least| spent.min(least));
            least = Some(held);
            (at as f64, held)
        };
        let mut nodes: Vec<(f64, Spent)> = nodes.rev().map(rising).collect();
        nodes.reverse();
        Self { nodes }
    }

    fn at(&self, x: u64) -> Spent {
        let x = x as f64;
        let place = self.nodes.partition_point(|(at, _)| *at < x);
        let Some(&(right, above)) = self.nodes.get(place) else {
            return self.nodes.last().map_or(Spent::default(), |(_, last)| *last);
        };
        let Some(&(left, below)) = place.checked_sub(1).and_then(|i| self.nodes.get(i)) else {
            return above.times(x / right, x / right);
        };
        let share = (x / left).ln() / (right / left).ln();
        let between = |a: f64, b: f64| if a > 0.0 { a * (b / a).powf(share) } else { b * share };
        Spent {
            time: Seconds::new(between(below.time.get(), above.time.get())),
            energy: Joules::new(between(below.energy.get(), above.energy.get())),
        }
    }
}

/// Decode's attention over sequences and their mean cached tokens, straight between nodes in both.
#[derive(Clone, Debug, PartialEq)]
struct Grid {
    sequences: Vec<u64>,
    cached: Vec<u64>,
    /// By sequences, then by cached tokens.
    values: Vec<Vec<Spent>>,
}

/// The place below a value among nodes, and how far it is on the way to the next; the ends hold beyond them.
fn bracket(nodes: &[u64], x: f64) -> (usize, usize, f64) {
    let last = nodes.len() - 1;
    let above = nodes.partition_point(|node| (*node as f64) < x).min(last);
    let below = above.saturating_sub(1);
    let (low, high) = (nodes[below] as f64, nodes[above] as f64);
    let share = if above == below { 0.0 } else { ((x - low) / (high - low)).clamp(0.0, 1.0) };
    (below, above, share)
}

impl Grid {
    fn at(&self, sequences: u64, cached: u64) -> Spent {
        self.over(sequences).map_or(Spent::default(), |mut line| line.at(cached))
    }

    /// Of so many sequences, whatever they have cached; none of none.
    fn over(&self, sequences: u64) -> Option<Line<'_>> {
        let (a, b, share) = bracket(&self.sequences, sequences as f64);
        let rows = [&self.values[a][..], &self.values[b][..]];
        let between = (f64::INFINITY, f64::NEG_INFINITY);
        let corners = [[Spent::default(); 2]; 2];
        (sequences > 0).then_some(Line { grid: self, sequences: sequences as f64, share, rows, between, corners })
    }
}

/// A grid of some sequences.
struct Line<'g> {
    grid: &'g Grid,
    sequences: f64,
    /// How far these are from the first to the second row.
    share: f64,
    rows: [&'g [Spent]; 2],
    /// The nodes around what was asked for last, and the values there.
    between: (f64, f64),
    corners: [[Spent; 2]; 2],
}

impl Line<'_> {
    /// With so many cached tokens, all together.
    fn at(&mut self, cached: u64) -> Spent {
        let x = cached as f64 / self.sequences;
        let (mut low, mut high) = self.between;
        if x <= low || x > high {
            let (c, d, _) = bracket(&self.grid.cached, x);
            (low, high) = (self.grid.cached[c] as f64, self.grid.cached[d] as f64);
            self.between = (low, high);
            self.corners = self.rows.map(|row| [row[c], row[d]]);
        }
        let share = if low == high { 0.0 } else { ((x - low) / (high - low)).clamp(0.0, 1.0) };
        let [first, second] = self.corners.map(|[low, high]| low.towards(high, share));
        first.towards(second, self.share)
    }
}

/// What steps take, all at their values or all at one end of their intervals.
#[derive(Clone, Debug)]
pub struct Times {
    first: StageTimes,
    /// Stages of a pipeline after the first.
    further: Vec<StageTimes>,
}

/// What steps take in a stage.
#[derive(Clone, Debug)]
struct StageTimes {
    /// Under the limit.
    limited: Tables,
    /// Under a lower one, where that makes a difference.
    lower: Option<Tables>,
    /// What its GPUs keep to together.
    allowed: Watts,
    /// What the engine adds here.
    engine: Serving,
    waiting: Watts,
}

/// What parts of steps take in a stage.
#[derive(Clone, Debug, PartialEq)]
struct Tables {
    /// What runs over tokens, by how many there are, from none: of prompts, and of one for each sequence.
    prompts: Vec<Spent>,
    answers: Vec<Spent>,
    /// By sequences, from none.
    logits: Vec<Spent>,
    /// Attention of a prompt alone, by its tokens.
    alone: Curve,
    /// What a prompt adds to others, by its tokens.
    beside: Curve,
    decode: Grid,
}

/// What a step's kernels take, and what of that energy is of prompts.
#[derive(Clone, Copy)]
struct Computed {
    all: Spent,
    of_prompts: Joules,
}

impl Computed {
    fn of_answers(all: Spent) -> Self {
        Self { all, of_prompts: Joules::ZERO }
    }

    /// Energy beyond so much power.
    fn excess(self, allowed: Watts) -> Joules {
        self.all.energy - allowed * self.all.time
    }

    /// So far on the way to another one.
    fn towards(self, other: Self, share: f64) -> Self {
        let of_prompts = self.of_prompts * (1.0 - share) + other.of_prompts * share;
        Self { all: self.all.towards(other.all, share), of_prompts }
    }

    /// It within what is allowed, read between the two; the other one where that is not enough.
    fn within(self, allowed: Watts, lower: impl FnOnce() -> Self) -> Self {
        let excess = self.excess(allowed);
        if excess <= Joules::ZERO {
            return self;
        }
        let lower = lower();
        let gained = excess - lower.excess(allowed);
        if gained <= Joules::ZERO { self } else { self.towards(lower, (excess / gained).min(1.0)) }
    }
}

/// The last one of a table stands for what is beyond it.
fn beyond(table: &[Spent], place: u64) -> Spent {
    table.get(place as usize).or(table.last()).copied().unwrap_or_default()
}

impl Tables {
    /// What runs over so many tokens, of which a share is of prompts. Kernels are the same; at what clock they run and what
    /// they draw depends on what runs beside them.
    fn tokens(&self, tokens: u64, of_prompts: f64) -> Spent {
        let prompts = beyond(&self.prompts, tokens);
        let answers = self.answers.get(tokens as usize).copied().unwrap_or(prompts);
        answers.towards(prompts, of_prompts)
    }

    /// Attention of the chunks of prompts.
    fn attention(&self, work: &StepWork) -> Spent {
        let (mut sum, mut launch) = (Spent::default(), Spent::default());
        for chunk in &work.chunks {
            let end = chunk.cached + chunk.new;
            let beside = self.beside.at(end);
            if chunk.cached == 0 {
                launch = launch.max(self.alone.at(end).less(beside));
                sum = sum.plus(beside);
            } else {
                let reads = self.decode.at(1, end);
                sum = sum.plus(beside.less(self.beside.at(chunk.cached)).max(reads));
            }
        }
        sum.plus(launch)
    }

    /// All but decode's attention of a step that has no prompts, in so many sequences.
    fn answering(&self, sequences: u64) -> Spent {
        self.tokens(sequences, 0.0).plus(beyond(&self.logits, sequences))
    }

    fn step(&self, work: &StepWork) -> Computed {
        let sequences = work.sequences();
        let decode = self.decode.at(work.decodes, work.cached);
        if work.chunks.is_empty() {
            return Computed::of_answers(self.answering(sequences).plus(decode));
        }
        let share = work.prompt_tokens() as f64 / work.tokens() as f64;
        let tokens = self.tokens(work.tokens(), share);
        let logits = beyond(&self.logits, sequences);
        let prefill = self.attention(work);
        let of_prompts =
            tokens.energy * share + logits.energy * (work.chunks.len() as f64 / sequences as f64) + prefill.energy;
        Computed { all: tokens.plus(logits).plus(prefill).plus(decode), of_prompts }
    }
}

impl StageTimes {
    /// What the engine adds to a step of so many sequences.
    fn added(&self, sequences: u64) -> Seconds {
        self.engine.step + self.engine.sequence * sequences as f64
    }

    /// What a step's kernels take, by what they take under the limit.
    fn settled(&self, limited: Computed, lower: impl FnOnce(&Tables) -> Computed) -> Computed {
        match &self.lower {
            Some(tables) => limited.within(self.allowed, || lower(tables)),
            None => limited,
        }
    }

    /// As [`Replica::growing`].
    fn growing(&self, work: &StepWork, mut each: impl FnMut(StepCost) -> bool) {
        let sequences = work.decodes;
        let Some(mut line) = self.limited.decode.over(sequences) else { return };
        let mut lower = self.lower.as_ref().and_then(|lower| lower.decode.over(sequences));
        let before = self.limited.answering(sequences);
        let before_lower = self.lower.as_ref().map_or(Spent::default(), |lower| lower.answering(sequences));
        let engine = self.added(sequences);
        let mut cached = work.cached;
        loop {
            let limited = Computed::of_answers(before.plus(line.at(cached)));
            let computed = match &mut lower {
                Some(line) => limited.within(self.allowed, || Computed::of_answers(before_lower.plus(line.at(cached)))),
                None => limited,
            };
            let (time, waiting) = (computed.all.time + engine, self.waiting * engine);
            if !each(StepCost { time, prefill: Joules::ZERO, decode: computed.all.energy, waiting }) {
                return;
            }
            cached += sequences;
        }
    }

    /// As [`Replica::step`].
    fn step(&self, work: &StepWork) -> StepCost {
        let Computed { all, of_prompts } = self.settled(self.limited.step(work), |lower| lower.step(work));
        let engine = self.added(work.sequences());
        StepCost {
            time: all.time + engine,
            prefill: of_prompts,
            decode: all.energy - of_prompts,
            waiting: self.waiting * engine,
        }
    }
}

impl Replica for Times {
    fn step(&self, work: &StepWork) -> StepCost {
        self.further.iter().fold(self.first.step(work), |sum, stage| sum.plus(stage.step(work)))
    }

    fn stages(&self) -> usize {
        1 + self.further.len()
    }

    fn stage(&self, stage: usize, work: &StepWork) -> StepCost {
        let further = stage.checked_sub(1).and_then(|i| self.further.get(i));
        further.unwrap_or(&self.first).step(work)
    }

    fn growing(&self, work: &StepWork, mut each: impl FnMut(StepCost) -> bool) {
        if self.further.is_empty() {
            return self.first.growing(work, each);
        }
        let mut work = work.clone();
        while each(self.step(&work)) {
            work.cached += work.decodes;
        }
    }

    fn waiting(&self) -> Watts {
        self.further.iter().fold(self.first.waiting, |sum, stage| sum + stage.waiting)
    }
}

/// What steps of a replica take at one operating point, with their intervals, and what that rests on.
#[derive(Clone, Debug)]
pub struct StepTimes {
    /// All at their 5 % quantiles.
    pub low: Times,
    /// Most likely.
    pub value: Times,
    /// All at their 95 % quantiles.
    pub high: Times,
    /// Where it runs.
    pub point: OperatingPoint,
    /// What decode rests on in time and power: the greater part of most steps.
    pub tiers: (Tier, Tier),
    /// What to know of a prompt's step and of decode.
    pub warnings: Vec<Warning>,
}

/// Prompts that are predicted side by side to learn what one adds to others.
const BESIDE: u64 = 8;
/// What steps are also predicted at, as a share of the power limit: parts together exceed a limit by less than that takes away.
const LOWER: f64 = 0.75;
/// A prompt of so many tokens fills a GPU alone.
const FILLS: u64 = 4096;

/// Whole numbers from 1 to a last one, each so many times the one before it.
fn nodes(last: u64, ratio: f64) -> Vec<u64> {
    let mut list = vec![1];
    let mut next = 1.0;
    while (next as u64) < last {
        next *= ratio;
        let node = (next.round() as u64).min(last);
        if list.last().is_none_or(|before| *before < node) {
            list.push(node);
        }
    }
    list
}

/// Rows that kernels of products take at once, and the rows up to which that is told.
const TILE: u64 = 32;
const TILED: u64 = 512;

/// Whole numbers from 1 to a last one, few above and both sides of every tile's edge below: time jumps there. Those above are
/// whole tiles: what attention is predicted to take in between varies with what divides its tokens.
fn tiled(last: u64) -> Vec<u64> {
    let edges = (0..TILED / TILE).flat_map(|i| [i * TILE + 1, (i + 1) * TILE]);
    let few = nodes(last.max(TILED), 2f64.powf(0.25)).into_iter().filter(|n| *n <= TILE || *n > TILED);
    let few = few.map(|n| if n > TILED { n.next_multiple_of(2 * TILE) } else { n });
    let mut list: Vec<u64> = edges.chain(few).filter(|n| *n < last).chain([last]).collect();
    list.sort_unstable();
    list.dedup();
    list
}

/// Predictions by one number.
type Row = Vec<(u64, Parts, Ends)>;

/// Predictions on the nodes of all grids.
#[derive(Default)]
struct Predicted {
    /// Steps of prompts, by all their tokens.
    prompts: Row,
    /// Steps of a token for each sequence, by sequences.
    answers: Row,
    /// One prompt, by its tokens: attention alone, and what it adds to others.
    attention: Vec<(u64, Spent, Spent, Ends)>,
    /// By sequences, then by cached tokens.
    decode: Vec<(u64, Row)>,
    tiers: Option<(Tier, Tier)>,
    warnings: Vec<Warning>,
}

/// What a prompt adds to others, by what several of them take and one takes.
fn added(many: Spent, one: Spent) -> Spent {
    let share = |spent: Spent, n: u64| spent.times(1.0 / n as f64, 1.0 / n as f64);
    let (each, mean) = (share(many.less(one), BESIDE - 1), share(many, BESIDE));
    each.min(mean)
}

impl StepTimes {
    /// For each operating point, with predictions for all of them made at once: a replica is all GPUs of the deployment, which
    /// divide every block among them, in one stage or several.
    ///
    /// # Errors
    /// When the network does not generate sequences of that length, cannot be laid out so, or a step cannot be predicted; when
    /// the deployment has groups of GPUs with samples of their own.
    pub fn of(
        deployment: &Deployment<'_>,
        network: &Network,
        extent: Extent,
        points: &[OperatingPoint],
    ) -> Result<Vec<Self>, GenerationError> {
        if deployment.layout.data() > 1 {
            return Err(GenerationError::Grouped);
        }
        let all = Self::predicted(deployment, network, extent, points)?;
        let (predictor, layout) = (deployment.predictor, deployment.layout);
        let engine = predictor.framework().serving.unwrap_or_default();
        let kept_to = points.iter().map(|point| predictor.kept_to(*point, deployment.precision, Mode::Inference));
        let kept_to: Vec<Watts> = kept_to.collect::<Result<_, _>>().map_err(LayoutError::Predict)?;
        let of = |(i, point): (usize, &OperatingPoint)| {
            let gpu = predictor.gpu();
            let level = point.core_clock.map(|clock| clock / gpu.core_clock.boost.value);
            let level = ClockLaw::Voltage(VoltageCurve::of(gpu)).level(level.unwrap_or(1.0).min(1.0));
            let (waits, share) = (Waits::idle(gpu), waiting_at(gpu, level) / waiting(gpu));
            let gpus = layout.tensor() as f64;
            let allowed = kept_to.get(i).copied()? * gpus;
            let times = |end: usize, waiting: Watts| {
                let of = |stage: &Vec<Predicted>, engine| {
                    let tables = |i: usize| stage.get(i).map(|predicted| predicted.tables(end, extent));
                    let limited = tables(i)?;
                    let lower = tables(points.len() + i).filter(|lower| *lower != limited);
                    let waiting = waiting * (share * gpus);
                    Some(StageTimes { limited, lower, allowed, engine, waiting })
                };
                // What the engine adds keeps the first stage, wherever it is spent.
                let first = all.first().and_then(|stage| of(stage, engine))?;
                let further = all.iter().skip(1).filter_map(|stage| of(stage, Serving::default())).collect();
                Some(Times { first, further })
            };
            let first = all.first().and_then(|stage| stage.get(i));
            let mut warnings = first.map_or(Vec::new(), |predicted| predicted.warnings.clone());
            if layout.pipeline() > 1 {
                warnings.push(Warning::Handing);
            }
            Some(Self {
                low: times(0, waits.p05)?,
                value: times(1, waits.value)?,
                high: times(2, waits.p95)?,
                point: *point,
                tiers: first.and_then(|predicted| predicted.tiers).unwrap_or((Tier::Roofline, Tier::Roofline)),
                warnings,
            })
        };
        Ok(points.iter().enumerate().filter_map(of).collect())
    }

    /// The same through another engine.
    #[must_use]
    pub fn through(mut self, engine: Serving) -> Self {
        for times in [&mut self.low, &mut self.value, &mut self.high] {
            times.first.engine = engine;
        }
        self
    }

    /// Predicts the nodes of all grids, by stage, then by point: first under the limits, then under lower ones.
    fn predicted(
        deployment: &Deployment<'_>,
        network: &Network,
        extent: Extent,
        points: &[OperatingPoint],
    ) -> Result<Vec<Vec<Predicted>>, GenerationError> {
        let places = Places::of(network);
        // Of the first stage all points, then of the next.
        let at = |network: &Network, batch: u64| -> Result<Vec<(Read, NetworkPrediction)>, GenerationError> {
            let stages = deployment.stages(network, batch, points, &[1.0, LOWER])?;
            let of_stage = |steps: Vec<NetworkPrediction>| {
                let kernels = steps.first().map_or_else(Default::default, |first| places.of_step(first));
                steps.into_iter().map(move |p| (Places::parts(&kernels, &p), p))
            };
            Ok(stages.into_iter().flat_map(of_stage).collect())
        };
        let stages = deployment.layout.pipeline() as usize;
        let mut all: Vec<Predicted> = (0..stages * 2 * points.len()).map(|_| Predicted::default()).collect();
        let longest = extent.length.saturating_sub(1).max(1);
        let mut prompts = tiled(extent.tokens);
        let further = nodes(longest, 2f64.sqrt());
        prompts.extend(further.into_iter().filter(|n| *n > extent.tokens || *n == longest));
        prompts.sort_unstable();
        prompts.dedup();
        for tokens in prompts {
            // More tokens than the longest sequence has are of several.
            let count = tokens.div_ceil(longest);
            let each = tokens / count;
            let prompt = generation::prefill(network, each)?;
            let alone = at(&prompt, count)?;
            let many = if count == 1 && tokens < FILLS { Some(at(&prompt, BESIDE)?) } else { None };
            for (i, (predicted, ((parts, ends), p))) in all.iter_mut().zip(&alone).enumerate() {
                let (parts, ends) = (*parts, *ends);
                predicted.prompts.push((each * count, parts, ends));
                if count == 1 {
                    let many = many.as_ref().map(|many| many[i].0.0.attention);
                    let beside = many.map_or(parts.attention, |many| added(many, parts.attention));
                    predicted.attention.push((tokens, parts.attention, beside, ends));
                }
                predicted.warn_of_limit("largest steps of prompts", p);
                if tokens == longest {
                    predicted.warn("prefill", p);
                }
            }
        }
        let one = generation::decode(network, 2)?;
        for batch in tiled(extent.sequences) {
            for (predicted, ((parts, ends), _)) in all.iter_mut().zip(at(&one, batch)?) {
                predicted.answers.push((batch, parts, ends));
            }
        }
        let (batches, mut lengths) = (nodes(extent.sequences, 2.0), nodes(longest, 4.0));
        // With the new token keys are odd, as most are: those that many divide by run other kernels.
        lengths.iter_mut().for_each(|n| *n = (*n - *n % 2).max(2));
        lengths.dedup();
        for &batch in &batches {
            all.iter_mut().for_each(|predicted| predicted.decode.push((batch, Vec::new())));
            for &cached in &lengths {
                let network = generation::decode(network, cached)?;
                for (predicted, ((parts, ends), p)) in all.iter_mut().zip(at(&network, batch)?) {
                    if let Some((_, row)) = predicted.decode.last_mut() {
                        row.push((cached, parts, ends));
                    }
                    predicted.warn_of_limit("largest steps of answers", &p);
                    if Some(&batch) == batches.get(batches.len() / 2) && Some(&cached) == lengths.last() {
                        predicted.tiers = Some((p.time_tier, p.power_tier));
                        predicted.warn("decode", &p);
                    }
                }
            }
        }
        let mut all = all.into_iter();
        Ok((0..stages).map(|_| all.by_ref().take(2 * points.len()).collect()).collect())
    }
}

impl Predicted {
    /// What a step has to tell; not of its memory, which the scheduler keeps to.
    fn warn(&mut self, part: &str, p: &NetworkPrediction) {
        self.tell(part, p, |w| !matches!(w, Warning::Memory { .. }));
    }

    /// That a step draws more than the limit at the lowest clock: if any does, the largest ones do.
    fn warn_of_limit(&mut self, part: &str, p: &NetworkPrediction) {
        self.tell(part, p, |w| matches!(w, Warning::BeyondLimit { .. }));
    }

    fn tell(&mut self, part: &str, p: &NetworkPrediction, is_told: fn(&Warning) -> bool) {
        for warning in p.warnings.iter().filter(|w| is_told(w)) {
            let told = warning.clone().of(part);
            if !self.warnings.contains(&told) {
                self.warnings.push(told);
            }
        }
    }

    fn tables(&self, end: usize, extent: Extent) -> Tables {
        let at = |spent: Spent, ends: &Ends| spent.times(ends[end].0, ends[end].1);
        let prompts = self.prompts.iter().map(|(n, parts, ends)| (*n, at(parts.tokens, ends)));
        let answers = self.answers.iter().map(|(n, parts, ends)| (*n, at(parts.tokens, ends)));
        let logits = self.answers.iter().map(|(n, parts, ends)| (*n, at(parts.logits, ends)));
        let alone = self.attention.iter().map(|(n, alone, _, ends)| (*n, at(*alone, ends)));
        let beside = self.attention.iter().map(|(n, _, beside, ends)| (*n, at(*beside, ends)));
        let decode = Grid {
            sequences: self.decode.iter().map(|(n, _)| *n).collect(),
            cached: self.decode.first().map_or(Vec::new(), |(_, row)| row.iter().map(|(n, ..)| *n).collect()),
            values: self
                .decode
                .iter()
                .map(|(_, row)| row.iter().map(|(_, parts, ends)| at(parts.attention, ends)).collect())
                .collect(),
        };
        Tables {
            prompts: table(prompts.collect(), extent.tokens),
            answers: table(answers.collect(), extent.sequences),
            logits: table(logits.collect(), extent.sequences),
            alone: Curve::rising(alone),
            beside: Curve::rising(beside),
            decode,
        }
    }
}

/// Values of every whole number up to a last one, straight between nodes.
fn table(nodes: Vec<(u64, Spent)>, last: u64) -> Vec<Spent> {
    let (places, values): (Vec<u64>, Vec<Spent>) = nodes.into_iter().unzip();
    let between = |n: u64| {
        let (a, b, share) = bracket(&places, n as f64);
        values[a].towards(values[b], share)
    };
    (0..=last).map(between).collect()
}

/// Memory of each GPU of a replica: what is there beside the cache, and what a token takes in it. Of a pipeline, in the stage
/// whose cache holds the fewest tokens: all stages hold the same ones.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Room {
    /// Of the largest step.
    pub footprint: MemoryFootprint,
    /// Of keys and values, for each token of the longest sequence.
    pub per_token: Bytes,
    /// Left for the cache.
    pub cache: Bytes,
}

impl Room {
    /// What each GPU has left when it uses a share of its memory, beside weights and the largest step.
    ///
    /// # Errors
    /// When the network does not generate sequences of that length, or cannot be laid out so.
    pub fn of(
        deployment: &Deployment<'_>,
        network: &Network,
        extent: Extent,
        share: f64,
    ) -> Result<Self, GenerationError> {
        let largest = match generation::prefill(network, extent.tokens) {
            Err(GenerationError::TooLong { positions, .. }) => generation::prefill(network, positions - 1)?,
            other => other?,
        };
        let last = generation::decode(network, extent.length.saturating_sub(1).max(1))?;
        let usable = deployment.predictor.gpu().memory.value.to_f64() * share;
        let of = |(largest, whole): (MemoryFootprint, MemoryFootprint)| {
            let footprint = MemoryFootprint { cache: Bytes::ZERO, ..largest };
            let cache = Bytes::new((usable - footprint.total().to_f64()).max(0.0) as u64);
            let per_token = Bytes::new(whole.cache.get().div_ceil(extent.length.max(1)));
            Self { footprint, per_token, cache }
        };
        let stages = deployment.memories(&largest)?.into_iter().zip(deployment.memories(&last)?);
        // The fullest where none has room.
        let scarce = |room: &Self| (room.blocks(1), std::cmp::Reverse(room.footprint.total()));
        let empty = || LayoutError::Predict(PredictError::Empty(network.name.clone()));
        Ok(stages.map(of).min_by_key(scarce).ok_or_else(empty)?)
    }

    /// Blocks of so many tokens.
    pub fn blocks(&self, block: u64) -> u64 {
        self.cache.get() / self.per_token.get().saturating_mul(block).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serving::Chunk;
    use joulecast_model::base::precision::{Mode, Precision};
    use joulecast_model::catalog;
    use joulecast_model::device::interconnect::Interconnect;
    use joulecast_model::net::network::Stored;
    use joulecast_model::net::share::Layout;
    use joulecast_model::step::layout::Flow;
    use joulecast_model::step::predict::Predictor;

    const EXTENT: Extent = Extent { tokens: 4096, sequences: 128, length: 3000 };

    fn setup(net: &str, gpu: &str) -> (Predictor, Network, Precision) {
        let framework = catalog::framework("cudnn").expect("shipped");
        let predictor = Predictor::shipped(catalog::gpu(gpu).expect("shipped"), framework);
        (predictor, catalog::network(net).expect("shipped"), Precision::Bf16)
    }

    /// On so many GPUs, joined as such boards are.
    fn deployed((predictor, _, precision): &(Predictor, Network, Precision), gpus: u64) -> Deployment<'_> {
        let known = catalog::interconnects().expect("shipped");
        Deployment {
            predictor,
            layout: Layout::new(gpus, 1, 1, None).expect("a layout"),
            interconnect: Interconnect::serving(&known, predictor.gpu(), gpus, None).expect("joined"),
            precision: *precision,
            stored: Stored::default(),
            point: OperatingPoint::default(),
        }
    }

    fn times_on(setup: &(Predictor, Network, Precision), gpus: u64) -> StepTimes {
        let points = [OperatingPoint::default()];
        StepTimes::of(&deployed(setup, gpus), &setup.1, EXTENT, &points).expect("predicts").remove(0)
    }

    fn times(setup: &(Predictor, Network, Precision)) -> StepTimes {
        times_on(setup, 1)
    }

    fn prompt(new: u64, cached: u64) -> StepWork {
        StepWork { chunks: vec![Chunk { new, cached }], ..StepWork::default() }
    }

    /// What is read between nodes, against what is predicted for the very step.
    #[test]
    fn steps_of_one_kind_are_those_of_a_generation() {
        for (net, gpu) in
            [("llama3_8b", "h100"), ("llama3_2_1b", "h200"), ("qwen3_8b", "h100"), ("mixtral_8x7b", "h200")]
        {
            let setup = setup(net, gpu);
            let (predictor, network, precision) = &setup;
            let times = times(&setup);
            let direct = |network: Network, batch| {
                let shaped = predictor.shape(&network, batch, *precision, &[]).expect("fits");
                predictor.predict(&shaped, Mode::Inference).expect("predicts")
            };
            let check = |work: &StepWork, mut p: NetworkPrediction, more: Option<NetworkPrediction>, what: &str| {
                // A prompt's attention is held to that of a longer one, where that is predicted to take less.
                if let Some(more) = more {
                    let attention =
                        |p: &NetworkPrediction| Places::parts(&Places::of(network).of_step(p), p).0.attention;
                    let over = attention(&p).less(attention(&more));
                    let (time, energy) = (1.0 - over.time / p.time.value, 1.0 - over.energy / p.energy.value);
                    (p.time, p.energy) = (p.time.times(time), p.energy.times(energy));
                }
                // How wide an interval is follows the prediction less evenly than its value does.
                for (times, time, energy, most) in [
                    (&times.low, p.time.p05, p.energy.p05, 0.15),
                    (&times.value, p.time.value, p.energy.value, 0.02),
                    (&times.high, p.time.p95, p.energy.p95, 0.15),
                ] {
                    let cost = times.step(work);
                    let found = cost.prefill + cost.decode;
                    let near = |a: f64| (a - 1.0).abs() < most;
                    assert!(near(cost.time / time), "{net} {what}: {} and {time}", cost.time);
                    assert!(near(found / energy), "{net} {what}: {found} and {energy}");
                }
            };
            // Whole tiles where attention decides: between them its prediction varies with what divides the tokens, and with
            // it the clock that a limit leaves.
            for tokens in [100u64, 1000, 1024, 2752] {
                let of = |tokens| direct(generation::prefill(network, tokens).expect("generates"), 1);
                let more = of(tokens.next_multiple_of(64));
                check(&prompt(tokens, 0), of(tokens), Some(more), &format!("a prompt of {tokens}"));
            }
            for (decodes, cached) in [(1, 1000), (8, 100), (24, 1500), (100, 2048), (128, 2900)] {
                let network = generation::decode(network, cached).expect("generates");
                let work = StepWork { chunks: vec![], decodes, cached: cached * decodes };
                check(&work, direct(network, decodes), None, &format!("{decodes} tokens after {cached}"));
            }
        }
    }

    #[test]
    fn steps_that_only_grow_are_what_each_of_them_is() {
        let setup = setup("llama3_2_1b", "h200");
        let cap = OperatingPoint { power_cap: Some(Watts::new(250.0)), ..OperatingPoint::default() };
        let points = [OperatingPoint::default(), cap];
        let all = StepTimes::of(&deployed(&setup, 1), &setup.1, EXTENT, &points).expect("predicts");
        for times in all.iter().flat_map(|times| [&times.low, &times.value, &times.high]) {
            // Below and beyond all nodes, and across several of them.
            for (decodes, cached) in [(1, 1), (1, 250), (3, 20), (17, 17 * 900), (128, 128 * 2950), (200, 200 * 63)] {
                let mut work = StepWork { chunks: vec![], decodes, cached };
                let mut steps = 0;
                times.growing(&work.clone(), |cost| {
                    assert_eq!(cost, times.step(&work), "{work:?}");
                    work.cached += decodes;
                    steps += 1;
                    steps < 1200
                });
                assert_eq!(steps, 1200);
            }
        }
    }

    #[test]
    fn chunks_of_a_prompt_cost_what_it_costs_at_once_and_their_weights() {
        let setup = setup("llama3_8b", "h100");
        let times = times(&setup).value;
        let time = |work: &StepWork| times.step(work).time.get();
        let whole = time(&prompt(2048, 0));
        let parts = time(&prompt(1024, 0)) + time(&prompt(1024, 1024));
        assert!(parts > whole && parts < 1.1 * whole, "{parts} and {whole}");
        // Later chunks attend to more.
        assert!(time(&prompt(512, 2400)) > time(&prompt(512, 512)));
        // Several prompts in a step share weights and launches.
        let two = StepWork { chunks: vec![Chunk { new: 64, cached: 0 }; 2], ..StepWork::default() };
        assert!(time(&two) < 1.5 * time(&prompt(64, 0)));
    }

    #[test]
    fn energy_is_split_between_prompts_and_answers() {
        let setup = setup("llama3_8b", "h100");
        let times = times(&setup);
        let mixed = StepWork { chunks: vec![Chunk { new: 256, cached: 0 }], decodes: 64, cached: 64 * 1000 };
        let cost = times.value.step(&mixed);
        assert!(cost.prefill > cost.decode && cost.decode > Joules::ZERO);
        assert_eq!(times.value.step(&prompt(256, 0)).decode.get().max(1e-9), 1e-9);
        let power = (cost.prefill + cost.decode) / cost.time;
        assert!(power > times.value.waiting() && power.get() < 700.0, "{power}");
        assert!(times.low.waiting() < times.high.waiting());
    }

    #[test]
    fn other_points_are_slower_or_draw_less() {
        let setup = setup("llama3_8b", "h100");
        let cap = OperatingPoint { power_cap: Some(Watts::new(350.0)), ..OperatingPoint::default() };
        let points = [OperatingPoint::default(), cap];
        let all = StepTimes::of(&deployed(&setup, 1), &setup.1, EXTENT, &points).expect("predicts");
        let cost = |i: usize| all[i].value.step(&prompt(2048, 0));
        let power = |i: usize| (cost(i).prefill / cost(i).time).get();
        assert!(cost(1).time > cost(0).time && power(1) < 350.0 && power(0) > 500.0);
    }

    /// Parts of a step were predicted beside other parts, at other clocks: those of products that draw least and attention that
    /// draws most would add up to more than any board lets pass.
    #[test]
    fn no_step_draws_more_than_the_board_keeps_to() {
        let mut at_the_limit = 0;
        for (net, gpus) in [("llama3_8b", 1), ("qwen3_30b_a3b", 1), ("llama3_8b", 2)] {
            let setup = setup(net, "h200");
            // At none of these does a step draw more at the lowest clock.
            let cap = |watts| OperatingPoint { power_cap: Some(Watts::new(watts)), ..OperatingPoint::default() };
            let points = [OperatingPoint::default(), cap(285.0), cap(370.0), cap(450.0)];
            let all = StepTimes::of(&deployed(&setup, gpus), &setup.1, EXTENT, &points).expect("predicts");
            for times in &all {
                let kept = setup.0.kept_to(times.point, setup.2, Mode::Inference).expect("taken") * gpus as f64;
                let cap = times.point.power_cap.unwrap_or(setup.0.gpu().power.limit.value) * gpus as f64;
                assert!(kept < cap && kept / cap > 0.98);
                for (decodes, cached) in [(0, 0), (4, 500), (32, 1000), (128, 2900), (100, 20)] {
                    for chunks in [vec![], vec![Chunk { new: 128, cached: 0 }], vec![Chunk { new: 2048, cached: 512 }]]
                    {
                        let work = StepWork { chunks, decodes, cached: cached * decodes };
                        if work.tokens() == 0 {
                            continue;
                        }
                        let cost = times.value.step(&work);
                        let drawn = (cost.prefill + cost.decode) / cost.time;
                        assert!(drawn <= kept * (1.0 + 1e-9), "{net}: {drawn} of {kept} at {cap}: {work:?}");
                        at_the_limit += usize::from(drawn > kept * 0.999);
                    }
                }
            }
        }
        assert!(at_the_limit > 20, "{at_the_limit} steps at their limit");
    }

    #[test]
    fn the_cache_gets_what_weights_leave() {
        let mut setup = setup("llama3_8b", "h100");
        let room = Room::of(&deployed(&setup, 1), &setup.1, EXTENT, 0.9).expect("generates");
        // Keys and values of 32 layers, 8 heads of 128, two bytes.
        assert_eq!(room.per_token.get(), 2 * 32 * 8 * 128 * 2);
        let left = 0.9 * setup.0.gpu().memory.value.to_f64() - room.footprint.total().to_f64();
        assert!((room.cache.to_f64() / left - 1.0).abs() < 1e-9 && room.cache.to_gib() > 40.0);
        assert_eq!(room.blocks(16), room.cache.get() / (room.per_token.get() * 16));
        // Two GPUs have half of the weights and of every token each.
        let two = Room::of(&deployed(&setup, 2), &setup.1, EXTENT, 0.9).expect("generates");
        assert_eq!(two.per_token.get(), room.per_token.get() / 2);
        assert!(two.blocks(16) > 2 * room.blocks(16));
        setup.1 = catalog::network("llama3_70b").expect("shipped");
        let blocks = |gpus| Room::of(&deployed(&setup, gpus), &setup.1, EXTENT, 0.9).expect("generates").blocks(16);
        assert_eq!(blocks(1), 0);
        assert!(blocks(4) > 0);
    }

    /// Read between nodes, a step of several GPUs is that of their deployment, and all of them draw power.
    #[test]
    fn several_gpus_are_one_replica() {
        let setup = setup("llama3_8b", "h100");
        let (one, two) = (times(&setup), times_on(&setup, 2));
        assert!((two.value.waiting() / one.value.waiting() - 2.0).abs() < 1e-9);
        let deployment = deployed(&setup, 2);
        let steps = [
            (prompt(1024, 0), (1024, 0), 1),
            (StepWork { decodes: 24, cached: 24 * 1500, ..StepWork::default() }, (1, 1500), 24),
        ];
        for (work, tokens, batch) in steps {
            let p = generation::step_on(&deployment, &setup.1, tokens, (batch, Flow::Steady)).expect("predicts");
            let cost = two.value.step(&work);
            let (time, energy) = (cost.time / p.time.value, (cost.prefill + cost.decode) / p.energy.value);
            assert!((time - 1.0).abs() < 0.02 && (energy - 1.0).abs() < 0.02, "{work:?}: {time} and {energy}");
            let alone = one.value.step(&work);
            assert!(cost.time < alone.time && cost.time * 2.0 > alone.time);
            assert!(cost.prefill + cost.decode > alone.prefill + alone.decode);
        }
        let grouped = Deployment { layout: Layout::new(1, 1, 1, Some(2)).expect("a layout"), ..deployment };
        let refused = StepTimes::of(&grouped, &setup.1, EXTENT, &[OperatingPoint::default()]);
        assert_eq!(refused.map(|_| ()), Err(GenerationError::Grouped));
    }

    /// Stage by stage, a step of a pipeline is that of its deployment; what the engine adds keeps the first.
    #[test]
    fn stages_are_those_of_their_deployment() {
        let mut setup = setup("llama3_8b", "h100");
        setup.0 =
            Predictor::shipped(catalog::gpu("h100").expect("shipped"), catalog::framework("vllm").expect("shipped"));
        let layout = Layout::new(2, 2, 1, None).expect("a layout");
        let deployment = Deployment { layout, ..deployed(&setup, 4) };
        let points = [OperatingPoint::default()];
        let times = StepTimes::of(&deployment, &setup.1, EXTENT, &points).expect("predicts").remove(0);
        assert!(times.warnings.contains(&Warning::Handing));
        let whole = times_on(&setup, 2);
        assert!((times.value.waiting() / whole.value.waiting() - 2.0).abs() < 1e-9);
        let steps = [
            (prompt(1024, 0), (1024, 0), 1),
            (StepWork { decodes: 24, cached: 24 * 1500, ..StepWork::default() }, (1, 1500), 24),
        ];
        let engine = |times: &StepTimes, work: &StepWork| {
            let engine = times.value.first.engine;
            engine.step + engine.sequence * work.sequences() as f64
        };
        assert!(engine(&times, &steps[0].0).to_ms() > 0.1);
        for (work, tokens, batch) in steps {
            let p = generation::step_on(&deployment, &setup.1, tokens, (2 * batch, Flow::Steady)).expect("predicts");
            let stages = p.layout.expect("a layout").stages;
            assert_eq!((times.value.stages(), stages.len()), (2, 2));
            let mut sum = StepCost::default();
            for (i, stage) in stages.iter().enumerate() {
                let cost = times.value.stage(i, &work);
                sum = sum.plus(cost);
                let added = if i == 0 { engine(&times, &work) } else { Seconds::ZERO };
                let found = (cost.time - added) / stage.time;
                assert!((found - 1.0).abs() < 0.02, "{work:?}, stage {i}: {found}");
            }
            assert_eq!(sum, times.value.step(&work));
            // Both together are about what two GPUs without stages take, and draw as much for as long.
            let unstaged = whole.value.step(&work);
            let (time, energy) =
                (sum.time / unstaged.time, (sum.prefill + sum.decode) / (unstaged.prefill + unstaged.decode));
            assert!(time > 1.0 && time < 1.1 && (energy - 1.0).abs() < 0.1, "{work:?}: {time} and {energy}");
        }
        let room = |layout| {
            let deployment = Deployment { layout, ..deployment.clone() };
            let room = Room::of(&deployment, &setup.1, EXTENT, 0.9).expect("generates");
            // Every stage has room for all of its blocks.
            let of = |network: Network| deployment.memories(&network).expect("fits");
            let largest = of(generation::prefill(&setup.1, EXTENT.tokens).expect("generates"));
            let last = of(generation::decode(&setup.1, EXTENT.length - 1).expect("generates"));
            let has = 0.9 * setup.0.gpu().memory.value.to_f64();
            let tokens = room.blocks(16) as f64 * 16.0;
            let needs = largest.iter().zip(&last).map(|(largest, last)| {
                let beside = largest.total().to_f64() - largest.cache.to_f64();
                beside + last.cache.to_f64() / EXTENT.length as f64 * tokens
            });
            let most = needs.fold(0.0, f64::max);
            assert!(most <= has && most > 0.999 * has, "{layout}: {most} of {has}");
            room
        };
        room(Layout::new(1, 3, 1, None).expect("a layout"));
        // Half of the blocks have half of the keys and values of a token.
        let (staged, unstaged) = (room(layout), room(Layout::new(2, 1, 1, None).expect("a layout")));
        assert_eq!(staged.per_token.get() * 2, unstaged.per_token.get());
        assert!(staged.blocks(16) > 2 * unstaged.blocks(16));
    }

    #[test]
    fn a_step_that_would_draw_too_much_is_read_where_it_draws_what_is_allowed() {
        let of = |time, energy, prompts| Computed {
            all: Spent { time: Seconds::new(time), energy: Joules::new(energy) },
            of_prompts: Joules::new(prompts),
        };
        let (limited, lower) = (of(1.0, 300.0, 30.0), of(2.0, 400.0, 60.0));
        for (allowed, time, prompts) in
            [(300.0, 1.0, 30.0), (280.0, 1.0 + 20.0 / 180.0, 30.0 + 30.0 / 9.0), (220.0, 1.0 + 80.0 / 120.0, 50.0)]
        {
            let found = limited.within(Watts::new(allowed), || lower);
            assert!((found.all.time.get() - time).abs() < 1e-12, "{allowed}: {}", found.all.time);
            assert!((found.all.energy / found.all.time - Watts::new(allowed)).get().abs() < 1e-9, "{allowed}");
            assert!((found.of_prompts.get() - prompts).abs() < 1e-12, "{allowed}: {}", found.of_prompts);
        }
        // The lowest clock draws what it draws; no other one is asked for where that is no less.
        assert_eq!(limited.within(Watts::new(150.0), || lower).all, lower.all);
        assert_eq!(limited.within(Watts::new(150.0), || of(1.0, 310.0, 0.0)).all, limited.all);
        assert_eq!(limited.within(Watts::new(400.0), || panic!("nobody needs it")).all, limited.all);
    }

    #[test]
    fn nodes_rise_from_one_to_the_last() {
        assert_eq!(tiled(1), [1]);
        assert_eq!(tiled(70)[..6], [1, 2, 3, 4, 5, 6]);
        assert!(tiled(70).ends_with(&[32, 33, 64, 65, 70]) && tiled(9000).ends_with(&[8192, 9000]));
        assert_eq!(nodes(1, 2.0), [1]);
        assert_eq!(nodes(9, 2.0), [1, 2, 4, 8, 9]);
        let fine = nodes(100, 2f64.powf(0.25));
        assert!(fine.windows(2).all(|w| w[0] < w[1]) && fine.last() == Some(&100));
    }
}
