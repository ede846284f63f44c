//! What a kernel's time cannot be beyond, whatever a polynomial says where no row is.

use super::Setup;
use crate::base::number::{Changes, LANES};
use crate::base::units::Seconds;
use crate::kernel::features::{MAX_VARIABLES, Variables, Wanted};
use crate::kernel::load::Load;
use crate::kernel::work::Work;
use crate::law::batches::{Room, Samples};
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
    /// model sees it, on the way of which they become those of other batches; `here`: its variables.
    pub(super) fn outside(&self, own: Seconds, loads: &mut Loads<'_>, here: &Variables, room: &mut Room) -> Seconds {
        let batch = loads.board.work.batch;
        let own = self.as_for_more_samples(own, batch, loads);
        self.as_for_fewer_samples(own, batch, loads, here, room)
    }

    /// What a kernel outside of what was fitted takes that takes no longer than the same one of more samples.
    pub(super) fn not_below_fewer_samples(&self, own: Seconds, load: &Load<'_>, room: &mut Room) -> Seconds {
        let loads = self.found.model.loads(load.work.clone(), load.cost, self.setup.gpu);
        loads.map_or(own, |mut loads| {
            let mut here = Variables::default();
            self.bounding(&loads, self.found.model.bounding(), &mut here);
            self.as_for_fewer_samples(own, load.work.batch, &mut loads, &here, room)
        })
    }

    /// Those of the variables that say whether a kernel lies within what was fitted.
    fn bounding(&self, loads: &Loads<'_>, wanted: Wanted, variables: &mut Variables) {
        loads.fill(self.found.model, self.setup.library, wanted, variables);
    }

    /// A kernel's time as it is expected, bounded where it lies outside of what was fitted.
    fn time(&self, work: Work<'_>, room: &mut Room) -> Option<Seconds> {
        let cost = work.cost().ok()??;
        let model = self.found.model;
        let engine = model.foreseen(&work, self.setup.calibration);
        let mut loads = model.loads(work, cost, self.setup.gpu)?;
        let mut variables = Variables::default();
        let expected = self.found.expects_of(&loads, engine.terms, self.setup.library, &mut variables);
        let time = expected.time();
        Some(if expected.in_domain { time } else { self.outside(time, &mut loads, &variables, room) })
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
    /// that lie within, as long as the library is expected to run both by one engine. `loads`: those of the kernel of any number
    /// of samples; `here`: its variables of `batch` samples, those of [`Self::bounding`] at least.
    fn as_for_fewer_samples(
        &self,
        own: Seconds,
        batch: u64,
        loads: &mut Loads<'_>,
        here: &Variables,
        room: &mut Room,
    ) -> Seconds {
        let model = self.found.model;
        let Some(longest) = self.found.longest() else { return own };
        let moving = self.moving(loads);
        if is_quick() && !model.away(here).without(moving).is_empty() {
            return own;
        }
        let compared = Compared { bounds: self, own, longest, here };
        let samples = if is_quick() { Samples::of(loads, moving, room) } else { None };
        let at_the_edge = match samples {
            Some(samples) => {
                at_the_edge(batch, &mut SideBySide { samples, loads, compared, there: *here, batches: [batch; LANES] })
            }
            None => at_the_edge_plainly(batch, |batch| {
                if !loads.alone_over(batch) {
                    return None;
                }
                let mut there = Variables::default();
                self.bounding(loads, model.bounding(), &mut there);
                let reference = loads.over().roofline.reference(model.exponent, model.floor);
                Some(compared.at(&there, reference, || Carry::between(loads.over(), &loads.board)))
            }),
        };
        let Some(edge) = at_the_edge else { return own };
        let foreseen = |loads: &Loads<'_>| model.foreseen(&loads.board.work, self.setup.calibration);
        loads.board.work.batch = batch;
        let own_engine = foreseen(loads).engine;
        if !loads.alone_over(edge) {
            return own;
        }
        let engine = foreseen(loads);
        if engine.engine != own_engine {
            return own;
        }
        own.max(self.found.expects_of(loads, engine.terms, self.setup.library, &mut Variables::default()).time())
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
        room: &mut Room,
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
        let most = Expected { reference, log: self.longest, in_domain: true, carry: carry() };
        if most.time() <= self.own { Fewer::Hopeless } else { Fewer::Outside }
    }
}

/// Looks at a kernel of several numbers of samples side by side.
trait Look {
    fn look(&mut self, batches: [u64; LANES]);
    /// What was seen in a lane; `None` where that cannot be said.
    fn at(&mut self, lane: usize) -> Option<Fewer>;
}

struct SideBySide<'c, 'm, 'l, 'w> {
    samples: Samples<'c>,
    loads: &'l mut Loads<'w>,
    compared: Compared<'c, 'm>,
    /// Variables of what is looked at; those that no number of samples changes are as they are.
    there: Variables,
    batches: [u64; LANES],
}

impl Look for SideBySide<'_, '_, '_, '_> {
    fn look(&mut self, batches: [u64; LANES]) {
        let Bounds { found, setup } = self.compared.bounds;
        self.samples.look(self.loads, found.model, setup.library, batches);
        self.batches = batches;
    }

    fn at(&mut self, lane: usize) -> Option<Fewer> {
        self.samples.fill(lane, &mut self.there);
        let loads = &mut *self.loads;
        let carry = || match loads.other.is_some() && loads.alone_over(self.batches[lane]) {
            true => Carry::between(loads.over(), &loads.board),
            false => Carry::NONE,
        };
        Some(self.compared.at(&self.there, self.samples.reference(lane), carry))
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
