//! A step at many clocks and limits: its totals alone, kernels that are alike settled once.

use super::drained::{Place, cuts, cuts_of, places};
use super::intervals::{Outcome, Width};
use super::kernel::{Board, Kernel};
use super::operating_point::{Limits, OperatingPoint};
use super::settle::{REACTION, ends_of};
use super::step::Step;
use super::sums::Sums;
use super::totals::Totals;
use super::{Estimate, NetworkPrediction, PredictError};
use crate::base::units::{Hertz, JouleSeconds, Joules, Seconds, Watts};
use crate::device::clock::{Clocks, VoltageCurve};
use crate::law::calibration::Tier;
use crate::law::power::{ClockLaw, OverClock, power, waiting_at};
use crate::net::cost::LayerCost;
use crate::step::framework::{Cut, Stages};
use crate::step::memory::{MemoryFootprint, footprint};
use std::borrow::Cow;
use std::sync::OnceLock;

/// What a [`super::NetworkPrediction`] says of the whole step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// Tier that most of the uncertainty of the time rests on.
    pub time_tier: Tier,
    /// What the law of power rests on.
    pub power_tier: Tier,
    /// Mean core clock while kernels run.
    pub clock: Hertz,
    /// Time of a step.
    pub time: Estimate<Seconds>,
    /// Mean power over the step.
    pub power: Estimate<Watts>,
    /// Energy of a step.
    pub energy: Estimate<Joules>,
    /// Whether the GPU waits for the host, however shortly.
    pub launch_bound: bool,
}

impl Summary {
    /// Energy-delay product.
    pub fn edp(&self) -> JouleSeconds {
        self.energy.value * self.time.value
    }

    /// Samples per second, of so many in a step.
    pub fn samples_per_second(&self, batch: u64) -> f64 {
        batch as f64 / self.time.value.get()
    }

    /// Samples per second and watt: samples per joule.
    pub fn samples_per_joule(&self, batch: u64) -> f64 {
        batch as f64 / self.energy.value.get()
    }

    /// Energy per sample.
    pub fn energy_per_sample(&self, batch: u64) -> Joules {
        self.energy.value / batch as f64
    }
}

/// Which kernels of a step are alike, and what no clock and no batch changes of them all.
#[derive(Clone)]
pub(super) struct Order {
    /// For each kernel in turn the place of the first that is alike; or, of a step that holds each of these once, its place there.
    pub alike: Vec<usize>,
    /// Whether the step holds those that are alike once.
    pub once: bool,
    /// What the host takes.
    pub host: Stages,
    /// What it takes where, in turn, of a step that holds those that are alike once.
    pub places: Vec<Place>,
    /// The groups of all turns together, once asked for.
    all: OnceLock<Stretches>,
}

/// A place of kernels that are alike in a step, and how many there are of them.
type Group = (usize, f64);

/// The stretches over which a limit acts, each with its groups of kernels.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Stretches {
    /// Of all of them, one after the other.
    groups: Vec<Group>,
    /// Where each ends.
    ends: Vec<usize>,
}

impl Stretches {
    /// The groups of each.
    pub fn each(&self) -> impl ExactSizeIterator<Item = &[Group]> + Clone {
        let begin = |i: usize| if i == 0 { 0 } else { self.ends[i - 1] };
        (0..self.ends.len()).map(move |i| &self.groups[begin(i)..self.ends[i]])
    }
}

/// So much less than a limit takes to act is less however times are summed up.
const SURELY_SHORT: f64 = 1.0 - 1e-9;

impl Order {
    /// Of a step that holds all of its kernels.
    pub fn of(kernels: &[Kernel<'_>]) -> Self {
        let alike = kernels.iter().enumerate().map(|(i, kernel)| kernel.repeats.unwrap_or(i)).collect();
        let host = kernels.iter().fold(Stages::default(), |sum, k| sum + Stages::of(k.phase, k.host));
        Self { alike, once: false, host, places: Vec::new(), all: OnceLock::new() }
    }

    /// Where the step holds the kernel that is that one in turn.
    fn place(&self, turn: usize) -> usize {
        if self.once { self.alike[turn] } else { turn }
    }

    /// All kernels, where a limit acts over the whole step.
    fn in_one(&self, step: &Step<'_>) -> Option<&Stretches> {
        let all = self.all.get_or_init(|| self.groups_of(step.kernels.len(), &[self.alike.len()]));
        let time: Seconds = all.groups.iter().map(|&(place, count)| step.kernels[place].time.value * count).sum();
        (time < REACTION * SURELY_SHORT).then_some(all)
    }

    /// The stretches over which a limit acts.
    fn groups(&self, step: &Step<'_>) -> Cow<'_, Stretches> {
        self.in_one(step).map_or_else(|| Cow::Owned(self.long_groups(step)), Cow::Borrowed)
    }

    /// The same, however long the step is: stretches of one kernel as one stretch, since it runs at the same clock in all.
    fn long_groups(&self, step: &Step<'_>) -> Stretches {
        let (_, stretches) = self.stretches(step);
        let mut known = vec![None; step.kernels.len()];
        let mut merged = Stretches {
            groups: Vec::with_capacity(stretches.groups.len()),
            ends: Vec::with_capacity(stretches.ends.len()),
        };
        for groups in stretches.each() {
            if let &[(place, count)] = groups {
                let known = &mut known[if self.once { place } else { self.alike[place] }];
                if let Some(at) = *known {
                    let (_, all): &mut Group = &mut merged.groups[at];
                    *all += count;
                    continue;
                }
                *known = Some(merged.groups.len());
            }
            merged.groups.extend(groups);
            merged.ends.push(merged.groups.len());
        }
        merged
    }

    /// Every stretch over which a limit acts, and the turns at which they end.
    pub fn stretches(&self, step: &Step<'_>) -> (Vec<usize>, Stretches) {
        let ends = match self.once {
            true => ends_of(self.alike.iter().map(|&place| step.kernels[place].time.value)),
            false => ends_of(step.kernels.iter().map(|kernel| kernel.time.value)),
        };
        let groups = self.groups_of(step.kernels.len(), &ends);
        (ends, groups)
    }

    /// Those that end at some turns, of a step of so many kernels.
    fn groups_of(&self, kernels: usize, ends: &[usize]) -> Stretches {
        // Where every kernel's group is, which is of the stretch if it lies behind those before.
        let mut group = vec![usize::MAX; kernels];
        let mut groups: Vec<Group> = Vec::with_capacity(self.alike.len());
        let (mut from, mut of) = (0, Vec::with_capacity(ends.len()));
        for &end in ends {
            let begin = groups.len();
            for (turn, &alike) in self.alike[from..end].iter().enumerate() {
                let known = group[alike];
                if known >= begin && known < groups.len() {
                    groups[known].1 += 1.0;
                } else {
                    group[alike] = groups.len();
                    groups.push((if self.once { alike } else { from + turn }, 1.0));
                }
            }
            of.push(groups.len());
            from = end;
        }
        Stretches { groups, ends: of }
    }

    /// A step that holds all of its kernels.
    fn whole<'a>(&self, step: &Step<'a>) -> Step<'a> {
        let mut first = vec![None; step.kernels.len()];
        let each = self.alike.iter().enumerate().map(|(turn, &alike)| {
            let place = self.place(turn);
            let repeats = Some(*first[alike].get_or_insert(turn));
            Kernel { repeats, ..step.kernels[place] }
        });
        step.with_kernels(each.collect())
    }

    /// The step with each of those once that are alike, and its order.
    fn distinct<'o, 'a>(&'o self, step: &'o Step<'a>) -> (Cow<'o, Step<'a>>, Cow<'o, Self>) {
        if self.once {
            return (Cow::Borrowed(step), Cow::Borrowed(self));
        }
        let (mut place, mut kernels) = (vec![None; step.kernels.len()], Vec::with_capacity(step.kernels.len()));
        let each = self.alike.iter().enumerate().map(|(turn, &alike)| {
            *place[alike].get_or_insert_with(|| {
                kernels.push(Kernel { repeats: None, ..step.kernels[turn] });
                kernels.len() - 1
            })
        });
        let alike = each.collect();
        let order = Self { alike, once: true, host: self.host, places: places(step), all: OnceLock::new() };
        (Cow::Owned(step.with_kernels(kernels)), Cow::Owned(order))
    }
}

/// A step's kernels with how many there are of each, by the stretches over which a limit acts.
struct Grouped<'s, 'a> {
    step: Cow<'s, Step<'a>>,
    order: Cow<'s, Order>,
    stretches: Cow<'s, Stretches>,
    /// Where its step may last longest that begins with an empty queue.
    cuts: Vec<Cut>,
    /// The stretches in sums, where kernels follow the voltage; made when another point than the default is first asked for.
    sums: OnceLock<Option<(OverClock, Vec<Sums>)>>,
}

/// A step as the voltage may rise.
pub(super) struct ByVoltage<'a>(Option<[Grouped<'a, 'a>; 2]>);

impl ByVoltage<'_> {
    /// Time and energy at limits.
    pub fn at(&self, limits: &Limits) -> Vec<Outcome> {
        self.0.iter().flatten().map(|step| step.outcome(limits)).collect()
    }
}

/// A step ready to be asked for its totals at many points.
pub struct Prepared<'s, 'a> {
    as_is: Grouped<'s, 'a>,
    /// [`Step::least_width`].
    least: Width,
    /// The step with the least and the largest rise of the voltage that is likely.
    likely: OnceLock<Option<[Grouped<'s, 'a>; 2]>>,
    /// Operations and traffic of the step.
    pub cost: LayerCost,
    /// Device memory.
    pub memory: MemoryFootprint,
    /// Whether that is within the device's memory.
    pub fits_in_memory: bool,
}

/// What a step takes at limits, and with the voltage rising as little, and as much, as is likely.
struct Taken {
    totals: Totals,
    clock: f64,
    likely: Option<[Outcome; 2]>,
}

/// A step at points one after the other, as a sweep has them.
pub struct Along<'p, 's, 'a> {
    prepared: &'p Prepared<'s, 'a>,
    /// What was taken last where the limit held nothing back: under a higher one at the same clocks the same is.
    free: Option<(Limits, Taken)>,
}

impl Along<'_, '_, '_> {
    /// What [`Prepared::at`] gives.
    ///
    /// # Errors
    /// As there.
    pub fn at(&mut self, point: OperatingPoint) -> Result<Summary, PredictError> {
        let prepared = self.prepared;
        let limits = point.on(prepared.as_is.step.setup.gpu)?;
        let same = |known: &Limits| (known.ceiling, known.memory) == (limits.ceiling, limits.memory);
        if let Some((_, taken)) = self.free.as_ref().filter(|(known, _)| same(known) && limits.cap >= known.cap) {
            return Ok(prepared.summary(point, &limits, taken));
        }
        let by_sums = if point == OperatingPoint::default() { None } else { prepared.summed(&limits)? };
        let Some((taken, is_free)) = by_sums else { return prepared.plainly_at(point) };
        let summary = prepared.summary(point, &limits, &taken);
        if is_free {
            self.free = Some((limits, taken));
        }
        Ok(summary)
    }
}

impl<'a> Step<'a> {
    /// Ready to be asked for its totals at many points.
    pub fn prepare(&self) -> Prepared<'_, 'a> {
        Prepared::of_whole(Cow::Borrowed(self))
    }

    /// The same of a step that nobody else holds.
    pub fn into_prepared(self) -> Prepared<'a, 'a> {
        Prepared::of_whole(Cow::Owned(self))
    }

    /// The step if the voltage rises as little, and as much, as is likely ([`VoltageCurve::likely`]), every kernel drawing what it
    /// does at the clock that it has at the default.
    fn likely(&self, clocks: &[f64]) -> [Self; 2] {
        let gpu = self.setup.gpu;
        let with = |curve| {
            let mut step = self.clone();
            step.clock_law = ClockLaw::Voltage(curve);
            let mut board = Board::new(gpu, self.clock_law, 1.0);
            for (kernel, &core) in step.kernels.iter_mut().zip(clocks) {
                if board.core != core {
                    board = Board::new(gpu, self.clock_law, core);
                }
                let slowdown = kernel.slowdown(Clocks { core, memory: 1.0 });
                let drawn = kernel.power(&board, slowdown);
                let level = step.clock_law.level(kernel.clock(core));
                let (idle, otherwise) = (waiting_at(gpu, level), power(gpu, kernel.drives, level, slowdown));
                if otherwise > idle {
                    kernel.drives = kernel.drives.times(((drawn - idle) / (otherwise - idle)).max(0.0));
                }
            }
            step
        };
        VoltageCurve::likely(gpu).map(with)
    }

    /// The same ready to be asked at many limits for time and energy, by how the voltage may rise: as little, and as much, as is
    /// likely.
    pub(super) fn by_voltage(&self) -> Result<ByVoltage<'a>, PredictError> {
        Ok(ByVoltage(Grouped::likely(self, &Order::of(&self.kernels))?))
    }
}

impl<'s, 'a> Grouped<'s, 'a> {
    /// A step as the voltage may rise; none where power does not follow it.
    fn likely(step: &Step<'a>, order: &Order) -> Result<Option<[Self; 2]>, PredictError> {
        let ClockLaw::Voltage(_) = step.clock_law else { return Ok(None) };
        let limits = OperatingPoint::default().on(step.setup.gpu)?;
        let (steps, order) = match order.in_one(step) {
            Some(all) => {
                let core = step.settling(&limits).core(&all.groups);
                let (step, order) = order.distinct(step);
                (step.likely(&vec![core; step.kernels.len()]), order)
            }
            None => {
                let whole = order.whole(step);
                (whole.likely(&whole.clocks_under(&limits)), Cow::Owned(Order::of(&whole.kernels)))
            }
        };
        Ok(Some(steps.map(|step| Self::of(Cow::Owned(step), Cow::Owned(Order::clone(&order))))))
    }

    fn of(step: Cow<'s, Step<'a>>, order: Cow<'s, Order>) -> Self {
        let stretches = match &order {
            Cow::Borrowed(order) => order.groups(&step),
            Cow::Owned(order) => Cow::Owned(order.long_groups(&step)),
        };
        let turns = || (0..order.alike.len()).map(|turn| &step.kernels[order.place(turn)]);
        let cuts = if order.once { cuts(&step, &order.places, turns()) } else { cuts_of(&step) };
        Self { step, order, stretches, cuts, sums: OnceLock::new() }
    }

    fn sums(&self) -> Option<&(OverClock, Vec<Sums>)> {
        let sums = self.sums.get_or_init(|| {
            let step = &self.step;
            let over = OverClock::new(step.setup.gpu, step.clock_law)?;
            let of = |groups: &[Group]| {
                let kernels = groups.iter().map(|&(at, count)| (&step.kernels[at], count));
                Sums::of(kernels, &over)
            };
            Some((over, self.stretches.each().map(of).collect::<Option<_>>()?))
        });
        sums.as_ref()
    }

    /// What [`Self::totals`] gives, kernel by kernel, by sums over them, and whether the limit holds nothing back. `whole`: not
    /// time and energy alone.
    fn summed(&self, limits: &Limits, totals: &mut Totals, whole: bool) -> Option<(f64, bool)> {
        let (over, sums) = self.sums()?;
        totals.host = self.order.host;
        let (mut clock, mut is_free) = (0.0, true);
        for sums in sums {
            let core = sums.settled(limits, limits.cap * self.step.held, over);
            let (before, clocks) = (totals.time.value, Clocks { core, memory: limits.memory });
            if whole {
                sums.add_to(totals, clocks, over);
            } else {
                sums.add_taken_to(totals, clocks, over);
            }
            clock += core * (totals.time.value - before).get();
            is_free &= core == limits.ceiling;
        }
        Some((self.waited(totals, clock), is_free))
    }

    /// Fills in totals, and gives the mean of the relative core clock. `carried`: how far clocks are from those that times are of
    /// is asked for, too.
    fn totals(&self, limits: &Limits, totals: &mut Totals, carried: bool) -> f64 {
        totals.host = self.order.host;
        let settling = self.step.settling(limits);
        // How many of each kernel run at the clock that is asked for, in whatever stretch.
        let mut free = vec![0.0; self.step.kernels.len()];
        let mut clock = 0.0;
        let cores = settling.cores(self.stretches.each());
        for (groups, core) in self.stretches.each().zip(cores) {
            if core == limits.ceiling {
                groups.iter().for_each(|&(at, count)| free[at] += count);
            } else {
                clock += self.add(groups.iter().copied(), core, limits, totals, carried);
            }
        }
        let free = free.into_iter().enumerate().filter(|(_, count)| *count > 0.0);
        clock += self.add(free, limits.ceiling, limits, totals, carried);
        self.waited(totals, clock)
    }

    /// Adds kernels at a core clock, and gives that clock times the time that they take.
    fn add(
        &self,
        groups: impl Iterator<Item = Group>,
        core: f64,
        limits: &Limits,
        totals: &mut Totals,
        carried: bool,
    ) -> f64 {
        let step = &self.step;
        let board = Board::new(step.setup.gpu, step.clock_law, core);
        let mut taken = Seconds::ZERO;
        for (at, count) in groups {
            let kernel = &step.kernels[at];
            let slowdown = kernel.slowdown(Clocks { core, memory: limits.memory });
            let time = kernel.time.times(slowdown * count);
            totals.energy += kernel.power(&board, slowdown) * time.value;
            let sum = &mut totals.time;
            *sum = Estimate { value: sum.value + time.value, p05: sum.p05 + time.p05, p95: sum.p95 + time.p95 };
            totals.stages = totals.stages + Stages::of(kernel.phase, time.value);
            taken += time.value;
            if carried {
                totals.moved += kernel.moved(core, limits.memory) * time.value.get();
            }
            totals.by_tier[kernel.tier as usize] += (time.p95 - time.p05).get();
        }
        core * taken.get()
    }

    /// Adds the time in which no kernel runs; `clock`: the core clock times the time of kernels, then over that time.
    fn waited(&self, totals: &mut Totals, clock: f64) -> f64 {
        let (step, setup) = (&self.step, &self.step.setup);
        let clock = clock / totals.time.value.get();
        let idle = waiting_at(setup.gpu, step.clock_law.level(clock));
        totals.wait((self.order.alike.len(), &self.cuts), setup, step.network.precision(), idle);
        totals.idle(step.gap, idle);
        clock
    }

    fn outcome(&self, limits: &Limits) -> Outcome {
        let mut totals = Totals::default();
        self.totals(limits, &mut totals, false);
        (totals.time.value, totals.energy)
    }
}

impl<'s, 'a> Prepared<'s, 'a> {
    fn of(as_is: Grouped<'s, 'a>, cost: LayerCost, memory: MemoryFootprint) -> Self {
        let fits_in_memory = memory.total() <= as_is.step.setup.gpu.memory.value;
        let least = as_is.step.least_width(as_is.order.alike.iter().copied());
        Self { as_is, least, likely: OnceLock::new(), cost, memory, fits_in_memory }
    }

    /// Of a step that holds all of its kernels.
    fn of_whole(step: Cow<'s, Step<'a>>) -> Self {
        let memory = footprint(step.network, step.setup.mode, &step.setup.framework.memory, step.setup.choices());
        let cost = step.kernels.iter().fold(LayerCost::default(), |sum, k| sum + k.cost);
        let order = Cow::Owned(Order::of(&step.kernels));
        Self::of(Grouped::of(step, order), cost, memory)
    }

    /// Of a step that holds kernels that are alike once.
    pub(super) fn of_alike(step: Step<'a>, order: &'s Order, cost: LayerCost, memory: MemoryFootprint) -> Self {
        Self::of(Grouped::of(Cow::Owned(step), Cow::Borrowed(order)), cost, memory)
    }

    /// The kernels that its step holds, for another one.
    pub(super) fn into_kernels(self) -> Vec<Kernel<'a>> {
        self.as_is.step.into_owned().kernels
    }

    /// The step and how its kernels follow each other.
    #[cfg(test)]
    pub(super) fn step(&self) -> (&Step<'a>, &Order) {
        (&self.as_is.step, &self.as_is.order)
    }

    fn likely(&self) -> Result<Option<&[Grouped<'s, 'a>; 2]>, PredictError> {
        if let Some(likely) = self.likely.get() {
            return Ok(likely.as_ref());
        }
        let likely = Grouped::likely(&self.as_is.step, &self.as_is.order)?;
        Ok(self.likely.get_or_init(|| likely).as_ref())
    }

    /// What [`Step::at`] gives, kernel by kernel.
    ///
    /// # Errors
    /// As there.
    pub fn whole_at(&self, point: OperatingPoint) -> Result<NetworkPrediction, PredictError> {
        let Grouped { step, order, .. } = &self.as_is;
        if order.once { order.whole(step).at(point) } else { step.at(point) }
    }

    /// The totals that [`Step::at`] gives.
    ///
    /// # Errors
    /// For clocks or a limit that the device does not take.
    pub fn at(&self, point: OperatingPoint) -> Result<Summary, PredictError> {
        if point == OperatingPoint::default() {
            return self.plainly_at(point);
        }
        let limits = point.on(self.as_is.step.setup.gpu)?;
        match self.summed(&limits)? {
            Some((taken, _)) => Ok(self.summary(point, &limits, &taken)),
            None => self.plainly_at(point),
        }
    }

    /// The same of points one after the other.
    pub fn along(&self) -> Along<'_, 's, 'a> {
        Along { prepared: self, free: None }
    }

    /// What [`Self::at`] gives, kernel by kernel: the plain way, which sums are held to.
    ///
    /// # Errors
    /// As [`Self::at`].
    pub fn plainly_at(&self, point: OperatingPoint) -> Result<Summary, PredictError> {
        let limits = point.on(self.as_is.step.setup.gpu)?;
        let mut totals = Totals::default();
        let asked = point != OperatingPoint::default();
        let clock = self.as_is.totals(&limits, &mut totals, asked);
        let steps = if asked { self.likely()? } else { None };
        let likely = steps.map(|steps| steps.each_ref().map(|step| step.outcome(&limits)));
        Ok(self.summary(point, &limits, &Taken { totals, clock, likely }))
    }

    /// What the step takes at limits by sums, and whether they hold nothing back; `None` where there are no sums.
    fn summed(&self, limits: &Limits) -> Result<Option<(Taken, bool)>, PredictError> {
        let mut totals = Totals::default();
        let Some((clock, mut is_free)) = self.as_is.summed(limits, &mut totals, true) else { return Ok(None) };
        let likely = match self.likely()? {
            None => None,
            Some(steps) => {
                let mut outcomes = [(Seconds::ZERO, Joules::ZERO); 2];
                for (outcome, step) in outcomes.iter_mut().zip(steps) {
                    let mut totals = Totals::default();
                    let Some((_, own)) = step.summed(limits, &mut totals, false) else { return Ok(None) };
                    (*outcome, is_free) = ((totals.time.value, totals.energy), is_free && own);
                }
                Some(outcomes)
            }
        };
        Ok(Some((Taken { totals, clock, likely }, is_free)))
    }

    fn summary(&self, point: OperatingPoint, limits: &Limits, taken: &Taken) -> Summary {
        let (step, Taken { totals, clock, likely }) = (&self.as_is.step, taken);
        let likely = likely.as_ref().map_or(&[][..], |likely| likely);
        let (_, _, (time, power, energy)) = step.intervals((totals, self.least), point, limits.cap, likely);
        Summary {
            time_tier: totals.tier(),
            power_tier: step.power_tier,
            clock: step.setup.gpu.core_clock.boost.value * *clock,
            time,
            power,
            energy,
            launch_bound: totals.for_host > Seconds::ZERO,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_of_two_stretches_is_counted_in_each() {
        let order = |once| Order {
            alike: vec![0, 1, 0, 0, 1, 0],
            once,
            host: Stages::default(),
            places: Vec::new(),
            all: OnceLock::new(),
        };
        let of = |once: bool, ends: &[usize]| -> Vec<Vec<Group>> {
            order(once).groups_of(6, ends).each().map(<[Group]>::to_vec).collect()
        };
        assert_eq!(of(true, &[6]), [vec![(0, 4.0), (1, 2.0)]]);
        assert_eq!(of(true, &[3, 6]), [vec![(0, 2.0), (1, 1.0)], vec![(0, 2.0), (1, 1.0)]]);
        // Of a step that holds every kernel a group is at the first of its stretch.
        assert_eq!(of(false, &[3, 6]), [vec![(0, 2.0), (1, 1.0)], vec![(3, 2.0), (4, 1.0)]]);
    }
}
