//! What a kernel's time cannot be beyond, whatever a polynomial says where no row is.

use super::Setup;
use crate::base::number::{Changes, LANES};
use crate::base::units::Seconds;
use crate::kernel::features::{MAX_VARIABLES, Variables, Wanted};
use crate::kernel::load::Load;
use crate::kernel::work::Work;
use crate::law::batches::{Samples, Several};
use crate::law::calibration::{EDGE, Range};
use crate::law::carry::Carry;
use crate::law::lookup::Found;
use crate::law::time::{Expected, Loads, MORE, Timed};
use crate::net::case::LayerCase;
use crate::net::layer::{Conv2d, Layer};

/// A model that was found for a kernel, with what else decides what it says.
#[derive(Clone, Copy)]
pub(super) struct Bounds<'s, 'm> {
    pub(super) found: &'s Found<'m>,
    pub(super) setup: &'s Setup<'m>,
}

/// More results of every channel than these are not looked at one by one.
const MOST_RESULTS: usize = 64;

impl<'m> Bounds<'_, 'm> {
    /// What a kernel outside of what was fitted takes, as the same one of more and fewer samples bounds it. `loads`: it, as its
    /// model sees it; `here`: its variables.
    pub(super) fn outside(&self, own: Seconds, mut loads: Loads<'_>, here: &Variables, room: &mut Several) -> Seconds {
        let batch = loads.board.work.batch;
        let own = self.as_for_more_samples(own, batch, &mut loads);
        self.as_for_fewer_samples(own, batch, &mut self.of_fewer(loads), here, room)
    }

    /// A kernel of any number of samples, as its model sees it.
    fn of_fewer<'w>(&self, loads: Loads<'w>) -> FewerSamples<'w, 'm> {
        let moving = self.moving(&loads);
        FewerSamples { loads, moving, samples: None, seen: Vec::new(), outside: Vec::new(), edges: Vec::new() }
    }

    /// The same of a kernel on its board; `None` where that has no peak for it.
    pub(super) fn fewer_samples<'w>(&self, load: &Load<'w>) -> Option<FewerSamples<'w, 'm>>
    where
        'm: 'w,
    {
        Some(self.of_fewer(self.found.model.loads(load.work.clone(), load.cost, self.setup.gpu)?))
    }

    /// A kernel's time as it is expected, bounded where it lies outside of what was fitted.
    fn time(&self, work: Work<'_>, room: &mut Several) -> Option<Seconds> {
        let cost = work.cost().ok()??;
        let model = self.found.model;
        let engine = model.foreseen(&work, self.setup.calibration);
        let loads = model.loads(work, cost, self.setup.gpu)?;
        let mut variables = Variables::default();
        let expected = self.found.expects_of(&loads, engine.terms, self.setup.library, &mut variables);
        let time = expected.time();
        Some(if expected.in_domain { time } else { self.outside(time, loads, &variables, room) })
    }

    /// Beyond what was measured a polynomial may fall as the batch grows: a kernel takes no longer than the same one of 2, 4, 8
    /// and so on up to 4,096 times as many samples.
    fn as_for_more_samples(&self, own: Seconds, batch: u64, loads: &mut Loads<'_>) -> Seconds {
        let model = self.found.model;
        // Over another memory traffic is carried, which the smallest ratio says nothing of.
        let shortest = self.found.shortest().filter(|_| model.is_over(loads.board.memory)).map(f64::exp);
        least(own, |times, least| {
            if !batch.checked_mul(times).is_some_and(|batch| loads.alone_over(batch)) {
                return More::End;
            }
            let reference = loads.board.roofline.reference(model.exponent, model.floor);
            if shortest.is_some_and(|shortest| reference * shortest >= least) {
                return More::End;
            }
            let engine = model.foreseen(&loads.board.work, self.setup.calibration);
            let by_engine = engine.terms.and(shortest).map(|_| reference * self.found.shortest_by(engine.terms).exp());
            if by_engine.is_some_and(|bound| bound >= least) {
                return More::NoLess;
            }
            let expected = self.found.expects_of(loads, engine.terms, self.setup.library, &mut Variables::default());
            More::Takes(expected.time())
        })
    }

    /// Nor may it fall where what was measured ends: a kernel that is larger takes no less than the same one of the most samples
    /// that lie within, as long as the library is expected to run both by one engine. `kernel`: it, of any number of samples;
    /// `here`: its variables of `batch` samples, those of [`LayerModel::bounding`](crate::law::calibration::LayerModel) at least.
    pub(super) fn as_for_fewer_samples(
        &self,
        own: Seconds,
        batch: u64,
        kernel: &mut FewerSamples<'_, 'm>,
        here: &Variables,
        room: &mut Several,
    ) -> Seconds {
        let model = self.found.model;
        let Some(longest) = self.found.longest() else { return own };
        if is_quick() && !model.away(here).without(kernel.moving).is_empty() {
            return own;
        }
        let compared = Compared { bounds: self, own, longest, here };
        let at_the_edge = if is_quick() && kernel.is_straight() {
            at_the_edge(
                batch,
                &mut SideBySide { kernel, compared, room, there: *here, batches: [batch; LANES], reference: None },
            )
        } else {
            let loads = &mut kernel.loads;
            at_the_edge_plainly(batch, |batch| {
                if !loads.alone_over(batch) {
                    return None;
                }
                let mut there = Variables::default();
                loads.fill(model, self.setup.library, model.bounding(), &mut there);
                let reference = loads.over().roofline.reference(model.exponent, model.floor);
                Some(compared.at(&there, reference, || Carry::between(loads.over(), &loads.board)))
            })
        };
        let Some(edge) = at_the_edge else { return own };
        kernel.loads.board.work.batch = batch;
        let own_engine = model.foreseen(&kernel.loads.board.work, self.setup.calibration).engine;
        match kernel.at_edge(edge, self) {
            Some(at) if at.engine == own_engine => own.max(at.time),
            _ => own,
        }
    }

    /// The variables that numbers of samples change, of those that say whether a kernel lies within what was fitted.
    fn moving(&self, loads: &Loads<'_>) -> Wanted {
        let (load, model) = (loads.described(), self.found.model);
        let amounts = load.amounts();
        let all = amounts.with(&amounts, |_, _| Changes(true));
        let mut changes = [Changes(false); MAX_VARIABLES];
        let library = self.setup.library.unwrap_or(model.library);
        load.fill(&all, (model.floor, library), model.bounding(), &mut changes);
        model.bounding().each(0..MAX_VARIABLES).filter(|&variable| changes[variable].0).collect()
    }

    /// Several results of every channel by a chip of its own ways: no less than with fewer of them on this GPU, one by the model
    /// `depthwise`, and perhaps as little as so many kernels of one.
    pub(super) fn of_several_results(
        &self,
        timed: Timed,
        work: &Work<'_>,
        depthwise: &Found<'m>,
        room: &mut Several,
    ) -> Timed {
        let Layer::Conv2d(conv) = work.layer() else { return timed };
        let (channels, results) = (work.input().axis(), conv.channels / work.input().axis().max(1));
        let fewer = |results: u64| {
            let conv = Conv2d { channels: results * channels, ..conv.clone() };
            let case = LayerCase { inputs: work.inputs().to_vec(), layer: Layer::Conv2d(conv) };
            let fewer = Work::usual(case, work.phase, work.batch, work.precision, work.mode).ok()?;
            Some(Work { layout: work.layout, cache: work.cache, algorithm: work.algorithm, ..fewer })
        };
        let one = fewer(1).and_then(|one| Bounds { found: depthwise, ..*self }.time(one, room));
        let Some(one) = one else { return timed };
        let several = (2..results).take(MOST_RESULTS).filter_map(|results| self.time(fewer(results)?, room));
        let value = several.fold(timed.value.max(one), Seconds::max);
        let apart = one * results as f64 / value;
        Timed { value, edges: timed.edges.map(|(low, high)| (low.min(apart), high)), ..timed }
    }
}

/// A kernel of any number of samples, with what was seen of some of these: no time that is compared with theirs changes it.
pub(super) struct FewerSamples<'w, 'm> {
    /// It, of whatever number was looked at last.
    loads: Loads<'w>,
    /// The variables that numbers of samples change, of those that say whether it lies within what was fitted.
    moving: Wanted,
    /// Once asked for: it over several numbers side by side, where that goes.
    samples: Option<Option<Samples>>,
    seen: Vec<Seen>,
    /// How far outside of each range of the model's domain, one after the other of what was seen.
    outside: Vec<f64>,
    edges: Vec<(u64, Option<AtEdge<'m>>)>,
}

/// A kernel of so many samples.
#[derive(Clone, Copy)]
struct Seen {
    samples: u64,
    /// Whether it lies within what was fitted.
    within: bool,
    /// The longest that it can take there, once asked for.
    most: Option<Seconds>,
    reference: Seconds,
}

/// The most samples that lie within what was fitted: by which engine they run, and how long.
#[derive(Clone, Copy)]
struct AtEdge<'m> {
    engine: Option<&'m str>,
    time: Seconds,
}

impl<'m> FewerSamples<'_, 'm> {
    /// Whether several numbers of samples can be looked at side by side.
    fn is_straight(&mut self) -> bool {
        self.samples.get_or_insert_with(|| Samples::of(&mut self.loads, self.moving)).is_some()
    }

    /// What is known of an edge; `None` where nothing runs there.
    fn at_edge(&mut self, edge: u64, bounds: &Bounds<'_, 'm>) -> Option<AtEdge<'m>> {
        if let Some((_, known)) = self.edges.iter().find(|(samples, _)| *samples == edge) {
            return *known;
        }
        let Bounds { found, setup } = bounds;
        let at = self.loads.alone_over(edge).then(|| {
            let foreseen = found.model.foreseen(&self.loads.board.work, setup.calibration);
            let expected = found.expects_of(&self.loads, foreseen.terms, setup.library, &mut Variables::default());
            AtEdge { engine: foreseen.engine, time: expected.time() }
        });
        self.edges.push((edge, at));
        at
    }
}

/// A kernel of fewer samples.
enum Fewer {
    /// Within what was measured.
    Within,
    /// Outside.
    Outside,
    /// Outside, and those of yet fewer lie there too, or cannot take longer than what is asked for.
    Hopeless,
}

/// What kernels of fewer samples are compared with: a time, the most that a model may say, a kernel's variables.
struct Compared<'c, 'm> {
    bounds: &'c Bounds<'c, 'm>,
    own: Seconds,
    longest: f64,
    here: &'c Variables,
}

impl Compared<'_, '_> {
    fn at(&self, there: &Variables, reference: Seconds, carry: impl FnOnce() -> Carry) -> Fewer {
        let model = self.bounds.found.model;
        if model.comes_no_nearer(Wanted::ALL, self.here, there) {
            return Fewer::Hopeless;
        }
        if model.has_within(there, reference) {
            return Fewer::Within;
        }
        if self.most(reference, carry()) <= self.own { Fewer::Hopeless } else { Fewer::Outside }
    }

    /// The longest that a kernel of this t_ref can take within what was fitted.
    fn most(&self, reference: Seconds, carry: Carry) -> Seconds {
        Expected { reference, log: self.longest, in_domain: true, carry }.time()
    }
}

/// Looks at a kernel of several numbers of samples side by side.
trait Look {
    fn look(&mut self, batches: [u64; LANES]);
    /// What was seen in a lane; `None` where that cannot be said.
    fn at(&mut self, lane: usize) -> Option<Fewer>;
}

struct SideBySide<'c, 'm, 'l, 'w> {
    kernel: &'l mut FewerSamples<'w, 'm>,
    compared: Compared<'c, 'm>,
    room: &'l mut Several,
    /// Variables of what is looked at; those that no number of samples changes are as they are.
    there: Variables,
    batches: [u64; LANES],
    /// Where the room holds the variables of these batches: t_ref of each.
    reference: Option<[Seconds; LANES]>,
}

impl SideBySide<'_, '_, '_, '_> {
    /// The place of what is seen of a lane's samples among what was seen.
    fn seen(&mut self, lane: usize) -> Option<usize> {
        let samples = self.batches[lane];
        let known = self.kernel.seen.iter().position(|seen| seen.samples == samples);
        if known.is_some() {
            return known;
        }
        let FewerSamples { loads, moving, samples: lines, seen, outside, .. } = &mut *self.kernel;
        let Bounds { found, setup } = self.compared.bounds;
        let lines = lines.as_ref()?.as_ref()?;
        let look = || lines.look(loads, found.model, setup.library, self.batches, self.room);
        let reference = self.reference.get_or_insert_with(look)[lane];
        self.room.fill(*moving, lane, &mut self.there);
        outside.extend(found.model.domain.iter().map(|range| range.outside(&self.there)));
        let within = found.model.has_within(&self.there, reference);
        seen.push(Seen { samples, within, most: None, reference });
        Some(seen.len() - 1)
    }

    /// The longest that what was seen can take within what was fitted.
    fn most(&mut self, seen: usize) -> Seconds {
        let FewerSamples { loads, seen: list, .. } = &mut *self.kernel;
        let seen = &mut list[seen];
        *seen.most.get_or_insert_with(|| {
            let carry = match loads.other.is_some() && loads.alone_over(seen.samples) {
                true => Carry::between(loads.over(), &loads.board),
                false => Carry::NONE,
            };
            self.compared.most(seen.reference, carry)
        })
    }
}

impl Look for SideBySide<'_, '_, '_, '_> {
    fn look(&mut self, batches: [u64; LANES]) {
        self.batches = batches;
        self.reference = None;
    }

    /// As [`Compared::at`].
    fn at(&mut self, lane: usize) -> Option<Fewer> {
        let seen = self.seen(lane)?;
        let domain = &self.compared.bounds.found.model.domain;
        let there = &self.kernel.outside[seen * domain.len()..][..domain.len()];
        let no_nearer = |(range, &there): (&Range, &f64)| there > EDGE && there >= range.outside(self.compared.here);
        if domain.iter().zip(there).any(no_nearer) {
            return Some(Fewer::Hopeless);
        }
        if self.kernel.seen[seen].within {
            return Some(Fewer::Within);
        }
        Some(if self.most(seen) <= self.compared.own { Fewer::Hopeless } else { Fewer::Outside })
    }
}

/// Halvings of a range that are looked at side by side.
const AHEAD: usize = 3;
const _: () = assert!((1 << AHEAD) - 1 <= LANES);

/// As [`at_the_edge_plainly`], several steps of the search at once.
fn at_the_edge(batch: u64, kernel: &mut impl Look) -> Option<u64> {
    let (mut outside, mut inside) = (batch, 0);
    while inside == 0 {
        let most = outside;
        let half = |i: usize| most >> (i + 1);
        kernel.look(std::array::from_fn(|i| half(i).max(1)));
        for lane in 0..LANES {
            let few = half(lane);
            match if few == 0 { return None } else { kernel.at(lane)? } {
                Fewer::Hopeless => return None,
                Fewer::Outside => outside = few,
                Fewer::Within => {
                    inside = few;
                    break;
                }
            }
        }
    }
    while outside - inside > 1 {
        // The middle, the middles of both halves, and so on.
        let mut ranges = [(inside, outside); LANES];
        let middle = |(inside, outside): (u64, u64)| inside + (outside - inside) / 2;
        for i in 1..(1 << AHEAD) - 1 {
            let whole = ranges[(i - 1) / 2];
            ranges[i] = if i % 2 == 1 { (whole.0, middle(whole)) } else { (middle(whole), whole.1) };
        }
        kernel.look(ranges.map(middle));
        let mut i = 0;
        for _ in 0..AHEAD {
            if outside - inside <= 1 {
                break;
            }
            i = match kernel.at(i)? {
                Fewer::Within => {
                    inside = middle(ranges[i]);
                    2 * i + 2
                }
                Fewer::Outside | Fewer::Hopeless => {
                    outside = middle(ranges[i]);
                    2 * i + 1
                }
            };
        }
    }
    Some(inside)
}

/// The most samples, fewer than `batch`, with which a kernel lies within what was measured, where they are worth it.
fn at_the_edge_plainly(batch: u64, mut at: impl FnMut(u64) -> Option<Fewer>) -> Option<u64> {
    let (mut outside, mut inside) = (batch, 0);
    while inside == 0 {
        let few = outside / 2;
        match if few == 0 { return None } else { at(few)? } {
            Fewer::Hopeless => return None,
            Fewer::Outside => outside = few,
            Fewer::Within => inside = few,
        }
    }
    while outside - inside > 1 {
        let middle = inside + (outside - inside) / 2;
        match at(middle)? {
            Fewer::Within => inside = middle,
            Fewer::Outside | Fewer::Hopeless => outside = middle,
        }
    }
    Some(inside)
}

/// Tests also look at kernels of fewer samples one by one.
fn is_quick() -> bool {
    #[cfg(test)]
    return !tests::PLAIN.get();
    #[cfg(not(test))]
    true
}

/// A kernel of more samples.
enum More {
    /// None, or of what takes no less whatever its polynomial says; nor do those of yet more.
    End,
    /// It takes no less.
    NoLess,
    /// It takes so long.
    Takes(Seconds),
}

/// The least of a time and of those of ever more samples, so many times as many, told what they are to be less than.
fn least(own: Seconds, mut longer: impl FnMut(u64, Seconds) -> More) -> Seconds {
    let mut least = own;
    for times in MORE {
        match longer(times, least) {
            More::End => break,
            More::NoLess => {}
            More::Takes(time) => least = least.min(time),
        }
    }
    least
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::precision::{Mode, Precision};
    use crate::catalog;
    use crate::net::network::ShapedNetwork;
    use crate::step::predict::Predictor;
    use std::cell::Cell;

    thread_local! {
        /// Whether fewer samples are looked at one by one, even where one of their sizes lies outside as it does here.
        pub(super) static PLAIN: Cell<bool> = const { Cell::new(false) };
    }

    /// Every third network of the zoo, another third on each GPU.
    #[test]
    fn fewer_samples_are_side_by_side_what_they_are_one_by_one() {
        let (mut same, mut outside) = (0, 0);
        for (third, gpu) in ["v100", "h200", "t4"].into_iter().enumerate() {
            let framework = catalog::framework("pytorch").expect("shipped");
            let predictor = Predictor::shipped(catalog::gpu(gpu).expect("shipped"), framework);
            for name in catalog::network_names().skip(third).step_by(3) {
                let network = catalog::network(name).expect("shipped");
                for batch in [1, 48, 700] {
                    let Ok(shaped) = ShapedNetwork::new(&network, batch, Precision::Fp32, &[]) else { continue };
                    let predicted = |plain: bool, mode| {
                        PLAIN.set(plain);
                        predictor.predict(&shaped, mode).expect("predicts")
                    };
                    let mode = if batch == 48 { Mode::Training } else { Mode::Inference };
                    let found = predicted(false, mode);
                    assert_eq!(found, predicted(true, mode), "{name} on {gpu} at {batch}");
                    outside += found.layers.iter().filter(|l| !l.in_domain).count();
                    same += 1;
                }
            }
        }
        PLAIN.set(false);
        assert!(same > 150 && outside > 1000, "{same} predictions, {outside} kernels outside");
    }

    /// Kernels of up to so many samples lie within.
    fn fewer(within: u64, batch: u64) -> Fewer {
        if (1..=within).contains(&batch) { Fewer::Within } else { Fewer::Outside }
    }

    /// Kernels by a function of their samples.
    struct By<F>(F, [u64; LANES]);

    impl<F: Fn(u64) -> Option<Fewer>> Look for By<F> {
        fn look(&mut self, batches: [u64; LANES]) {
            assert!(!batches.contains(&0));
            self.1 = batches;
        }

        fn at(&mut self, lane: usize) -> Option<Fewer> {
            self.0(self.1[lane])
        }
    }

    /// The edge, found in both ways.
    fn edge(batch: u64, at: impl Fn(u64) -> Option<Fewer>) -> Option<u64> {
        let plainly = at_the_edge_plainly(batch, &at);
        assert_eq!(at_the_edge(batch, &mut By(at, [0; LANES])), plainly, "of {batch}");
        plainly
    }

    #[test]
    fn the_edge_is_the_most_samples_that_lie_within() {
        for (batch, within, expected) in
            [(65, 64, Some(64)), (100, 37, Some(37)), (1000, 1, Some(1)), (3, 2, Some(2)), (9, 0, None), (1, 0, None)]
        {
            assert_eq!(edge(batch, |n| Some(fewer(within, n))), expected, "{batch} samples, {within} within");
        }
        for (batch, within) in (1..300).flat_map(|batch| (0..batch).map(move |within| (batch, within))) {
            assert_eq!(edge(batch, |n| Some(fewer(within, n))), (within > 0).then_some(within));
        }
        assert_eq!(edge(1 << 40, |n| Some(fewer(12_345, n))), Some(12_345));
        let hopeless = |n: u64| Some(if n <= 50 { Fewer::Hopeless } else { fewer(64, n) });
        assert!(edge(100, hopeless).is_none(), "nothing that is fewer takes longer");
        assert!(edge(100, |n| (n > 70).then(|| fewer(64, n))).is_none());
    }

    #[test]
    fn more_samples_are_looked_at_while_they_may_take_less() {
        let us = Seconds::from_us;
        // Bounds that hold, times by a polynomial that falls; the last is beyond what its bound lets through.
        let list = [(4.0, 11.0), (6.0, 7.0), (6.9, 6.95), (7.0, 7.5)];
        let all = list.iter().map(|(_, time)| *time).fold(10.0, f64::min);
        let mut asked = 0;
        let found = least(us(10.0), |times, least| {
            let (bound, time) = list[asked];
            asked += 1;
            assert_eq!(times, 1 << asked);
            if us(bound) >= least { More::End } else { More::Takes(us(time)) }
        });
        assert_eq!((found, asked), (us(all), 4));
        let mut rest = list.iter();
        assert_eq!(least(us(10.0), |_, _| rest.next().map_or(More::End, |(_, time)| More::Takes(us(*time)))), us(all));
        assert_eq!(least(us(10.0), |_, _| More::NoLess), us(10.0));
    }
}
