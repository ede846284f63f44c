//! What a kernel's time cannot be beyond, whatever a polynomial says where no row is.

use super::Setup;
use crate::base::precision::Phase;
use crate::base::units::{Bytes, Seconds};
use crate::kernel::features::{Variables, Wanted};
use crate::kernel::load::Load;
use crate::kernel::work::Work;
use crate::law::carry::Carry;
use crate::law::lookup::Found;
use crate::law::time::{Expected, Loads, MORE, Timed};
use crate::net::case::LayerCase;
use crate::net::layer::{Attention, Conv2d, Layer};
use crate::net::network::ShapedNetwork;

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
    pub(super) fn outside(&self, own: Seconds, mut loads: Loads<'_>, here: &Variables) -> Seconds {
        let batch = loads.board.work.batch;
        let own = self.as_for_more_samples(own, batch, &mut loads);
        self.as_for_fewer_samples(own, batch, &mut self.of_fewer(loads), || here)
    }

    /// A kernel of any number of samples, as its model sees it.
    fn of_fewer<'w>(&self, loads: Loads<'w>) -> FewerSamples<'w, 'm> {
        let (load, model) = (loads.described(), self.found.model);
        let library = self.setup.library.unwrap_or(model.library);
        let moving = load.moving((model.floor, library), model.bounding());
        FewerSamples { loads, moving, is_away: false, edge: None, passed: Vec::new() }
    }

    /// The same of a kernel on its board; `None` where that has no peak for it.
    pub(super) fn fewer_samples<'w>(&self, load: &Load<'w>) -> Option<FewerSamples<'w, 'm>>
    where
        'm: 'w,
    {
        Some(self.of_fewer(self.found.model.loads(load.work.clone(), load.cost, self.setup.gpu)?))
    }

    /// A kernel's time as it is expected, bounded where it lies outside of what was fitted.
    fn time(&self, work: Work<'_>) -> Option<Seconds> {
        let cost = work.cost().ok()??;
        let model = self.found.model;
        let engine = model.foreseen(&work, self.setup.calibration);
        let loads = model.loads(work, cost, self.setup.gpu)?;
        let mut variables = Variables::default();
        let expected = self.found.expects_of(&loads, engine.terms, self.setup.library, &mut variables);
        let time = expected.time();
        Some(if expected.in_domain { time } else { self.outside(time, loads, &variables) })
    }

    /// Beyond what was measured a polynomial may fall as the batch grows: a kernel takes no longer than the same one of 2, 4, 8
    /// and so on up to 4,096 times as many samples.
    fn as_for_more_samples(&self, own: Seconds, batch: u64, loads: &mut Loads<'_>) -> Seconds {
        let model = self.found.model;
        let carried = Carry::between(loads.over(), &loads.board).shortest();
        let shortest = self.found.shortest().filter(|_| is_quick()).map(|log| log.exp() * carried);
        let mut variables = Variables::default();
        least(own, |times, least| {
            if !batch.checked_mul(times).is_some_and(|batch| loads.alone_over(batch)) {
                return More::End;
            }
            let reference = loads.over().roofline.reference(model.exponent, model.floor);
            if shortest.is_some_and(|shortest| reference * shortest >= least) {
                return More::End;
            }
            let engine = model.foreseen(&loads.board.work, self.setup.calibration);
            let by_engine =
                engine.terms.and(shortest).map(|_| reference * (self.found.shortest_by(engine.terms).exp() * carried));
            if by_engine.is_some_and(|bound| bound >= least) {
                return More::NoLess;
            }
            let expected = self.found.expects_of(loads, engine.terms, self.setup.library, &mut variables);
            More::Takes(expected.time())
        })
    }

    /// Nor may it fall where what was measured ends: a kernel that is larger takes no less than the same one of the most samples
    /// that lie within, as long as the library is expected to run both by one engine. `kernel`: it, of any number of samples;
    /// `here`: its variables of `batch` samples, those of [`LayerModel::bounding`](crate::law::calibration::LayerModel) at least.
    pub(super) fn as_for_fewer_samples<'h>(
        &self,
        own: Seconds,
        batch: u64,
        kernel: &mut FewerSamples<'_, 'm>,
        here: impl FnOnce() -> &'h Variables,
    ) -> Seconds {
        let model = self.found.model;
        let Some(longest) = self.found.longest() else { return own };
        let known = if is_quick() { kernel.known(batch, (own, longest), self) } else { None };
        let edge = known.unwrap_or_else(|| {
            let compared = Compared { bounds: self, own, longest, here: here() };
            let foreseen = if is_quick() { kernel.foreseen(batch, &compared) } else { None };
            foreseen.unwrap_or_else(|| {
                let edge = at_the_edge(batch, |batch| kernel.compared(batch, &compared));
                if let Some(samples) = edge {
                    let at = kernel.at(samples, self, &mut Variables::default());
                    kernel.found(Edge { samples, fewest: samples, at });
                }
                edge
            })
        });
        let Some(Edge { at: Some(at), .. }) = edge.and(kernel.edge.as_ref()) else { return own };
        if model.engines.is_empty() {
            return own.max(at.time);
        }
        let (engine, time) = (at.engine, at.time);
        kernel.loads.board.work.batch = batch;
        let own_engine = model.foreseen(&kernel.loads.board.work, self.setup.calibration).engine;
        if engine == own_engine { own.max(time) } else { own }
    }

    /// A new token's attention to keys that no tile divides, by servers' kernels, which take any: no longer than to as many as the
    /// next tile ends with, which does more. Models know whether [`TILE`] divides the keys, and others' rows of some chips have
    /// it so of all sizes but the smallest, so that what a model makes of that is of small sizes alone.
    pub(super) fn of_more_keys(&self, timed: Timed, work: &Work<'_>) -> Timed {
        let is_served = self.found.model.imported && !self.found.framework;
        let Some(tiled) = tiled(work).filter(|_| is_served) else { return timed };
        let Some(value) = self.time(tiled).filter(|value| *value < timed.value) else { return timed };
        let edges = self.found.edges(value, timed.in_domain, self.setup.all_chips.siblings(self.found.tier));
        Timed { value, edges, ..timed }
    }

    /// Attention that would be faster than the hardware is: outside of what was measured and, of a new token in a network whose
    /// weights alone are more than the second-level cache, in any case. There all of a layer's keys come from memory, since the
    /// whole network ran since they were last read; rows of one layer, again and again, found them in a large cache.
    pub(super) fn of_hardware(&self, timed: Timed, load: &Load<'_>, network: &ShapedNetwork) -> Timed {
        let decodes = match load.work.layer() {
            Layer::Attention(attention) => attention.decodes(),
            Layer::LatentAttention(attention) => attention.decodes(),
            _ => return timed,
        };
        let held = load.gpu.l2.as_ref().map_or(Bytes::ZERO, |l2| l2.value);
        match decodes && load.work.phase == Phase::Forward && network.weight_bytes() > held.get() {
            true => timed.no_less_than(load.attention_bound(Bytes::ZERO)),
            false if !timed.in_domain => timed.no_less_than(load.attention_bound(held)),
            false => timed,
        }
    }

    /// Several results of every channel by a chip of its own ways: no less than with fewer of them on this GPU, one by the model
    /// `depthwise`, and perhaps as little as so many kernels of one.
    pub(super) fn of_several_results(&self, timed: Timed, work: &Work<'_>, depthwise: &Found<'m>) -> Timed {
        let Layer::Conv2d(conv) = work.layer() else { return timed };
        let (channels, results) = (work.input().axis(), conv.channels / work.input().axis().max(1));
        let fewer = |results: u64| {
            let conv = Conv2d { channels: results * channels, ..conv.clone() };
            let case = LayerCase { inputs: work.inputs().to_vec(), layer: Layer::Conv2d(conv) };
            let fewer = Work::usual(case, work.phase, work.batch, work.precision, work.mode).ok()?;
            Some(Work { layout: work.layout, cache: work.cache, algorithm: work.algorithm, ..fewer })
        };
        let one = fewer(1).and_then(|one| Bounds { found: depthwise, ..*self }.time(one));
        let Some(one) = one else { return timed };
        let several = (2..results).take(MOST_RESULTS).filter_map(|results| self.time(fewer(results)?));
        let value = several.fold(timed.value.max(one), Seconds::max);
        let apart = one * results as f64 / value;
        Timed { value, edges: timed.edges.map(|(low, high)| (low.min(apart), high)), ..timed }
    }
}

/// Keys that kernels of attention take at once.
const TILE: u64 = 32;

/// Forward attention of new tokens against a cache, to so many keys more that tiles divide all of them; `None` where they do, and
/// of all other work.
pub(super) fn tiled(work: &Work<'_>) -> Option<Work<'static>> {
    let Layer::Attention(attention) = work.layer() else { return None };
    let cached = attention.cached.filter(|cached| *cached > 0 && work.phase == Phase::Forward)?;
    let keys = attention.sizes(work.inputs()).ok()?.keys;
    let missing = keys.checked_next_multiple_of(TILE)? - keys;
    if missing == 0 {
        return None;
    }
    let attention = Attention { cached: Some(cached.checked_add(missing)?), ..attention.clone() };
    let case = LayerCase { inputs: work.inputs().to_vec(), layer: Layer::Attention(attention) };
    let more = Work::usual(case, work.phase, work.batch, work.precision, work.mode).ok()?;
    Some(Work { layout: work.layout, cache: work.cache, algorithm: work.algorithm, ..more })
}

/// A kernel of any number of samples, with what was found of it: no time that is compared with it changes that.
pub(super) struct FewerSamples<'w, 'm> {
    /// It, of whatever number was looked at last.
    loads: Loads<'w>,
    /// The variables that numbers of samples change, of those that say whether it lies within what was fitted.
    moving: Wanted,
    /// Whether a size that none of them changes lies outside.
    is_away: bool,
    /// Once found.
    edge: Option<Edge<'m>>,
    /// The longest that it can take there of one more sample, of two more, and so on, once asked for.
    passed: Vec<Option<Seconds>>,
}

/// What rounding leaves of a size, generously.
const ROUNDING: f64 = 1e-10;

/// Of so many more samples than lie within what was asked is kept.
const MOST_PASSED: usize = 1024;

/// Where what was fitted ends: the most samples that lie within; one more lies outside.
struct Edge<'m> {
    samples: u64,
    /// The fewest that were seen to lie within.
    fewest: u64,
    /// What runs there, if anything does.
    at: Option<AtEdge<'m>>,
}

/// A kernel within what was fitted: by which engine it runs, and how long.
#[derive(Clone, Copy)]
struct AtEdge<'m> {
    engine: Option<&'m str>,
    time: Seconds,
    within: bool,
}

impl<'m> FewerSamples<'_, 'm> {
    /// It of so many samples, with its variables; `None` where nothing runs there.
    fn at(&mut self, samples: u64, bounds: &Bounds<'_, 'm>, variables: &mut Variables) -> Option<AtEdge<'m>> {
        let Bounds { found, setup } = bounds;
        self.loads.alone_over(samples).then(|| {
            let foreseen = found.model.foreseen(&self.loads.board.work, setup.calibration);
            let expected = found.expects_of(&self.loads, foreseen.terms, setup.library, variables);
            AtEdge { engine: foreseen.engine, time: expected.time(), within: expected.in_domain }
        })
    }

    /// How it compares of so many samples.
    fn compared(&mut self, samples: u64, compared: &Compared<'_, 'm>) -> Option<Fewer> {
        let mut there = *compared.here;
        let reference = self.seen(samples, compared, &mut there)?;
        Some(compared.at(&there, reference, || Carry::between(self.loads.over(), &self.loads.board)))
    }

    /// Its variables of so many samples, those that tell whether it lies within, in place of what they are here, and t_ref.
    fn seen(&mut self, samples: u64, compared: &Compared<'_, 'm>, there: &mut Variables) -> Option<Seconds> {
        let Bounds { found: Found { model, .. }, setup } = compared.bounds;
        if !self.loads.alone_over(samples) {
            return None;
        }
        // What no number of samples changes is as it is here.
        let which = if is_quick() { self.moving } else { model.bounding() };
        self.loads.fill(model, setup.library, which, there);
        Some(self.loads.over().roofline.reference(model.exponent, model.floor))
    }

    fn is_within(&mut self, samples: u64, compared: &Compared<'_, 'm>) -> bool {
        let mut there = *compared.here;
        let reference = self.seen(samples, compared, &mut there);
        reference.is_some_and(|reference| compared.bounds.found.model.has_within(&there, reference))
    }

    fn found(&mut self, edge: Edge<'m>) {
        (self.edge, self.passed) = (Some(edge), Vec::new());
    }

    /// Whether samples tell where it lies: how many of the experts are used ends somewhere.
    fn follows_samples(&self) -> bool {
        !matches!(self.loads.board.work.layer(), Layer::Experts(_))
    }

    /// What [`at_the_edge`] finds, as far as that is known: sizes are logarithms, and go with that of the samples, so that those
    /// which lie within are all between two numbers. `None` where it is not.
    fn known(&mut self, batch: u64, (own, longest): (Seconds, f64), bounds: &Bounds<'_, 'm>) -> Option<Option<u64>> {
        if self.is_away {
            return Some(None);
        }
        let Edge { samples: edge, fewest, .. } = *self.edge.as_ref()?;
        let (few, passed) = halved(batch, edge).filter(|_| self.follows_samples())?;
        if few < fewest {
            return None;
        }
        // Those outside that it passes take ever less: the last tells whether any is worth it.
        let Some(passed) = passed else { return Some(Some(edge)) };
        Some((self.most(passed, edge, longest, bounds)? > own).then_some(edge))
    }

    /// The longest that it can take within what was fitted, if it lay there with more samples than it does.
    fn most(&mut self, samples: u64, edge: u64, longest: f64, bounds: &Bounds<'_, 'm>) -> Option<Seconds> {
        let place = (samples - edge) as usize - 1;
        if let Some(Some(known)) = self.passed.get(place) {
            return Some(*known);
        }
        let model = bounds.found.model;
        let most = self.loads.alone_over(samples).then(|| {
            let (over, board) = (self.loads.over(), &self.loads.board);
            let reference = over.roofline.reference(model.exponent, model.floor);
            Expected { reference, log: longest, in_domain: true, carry: Carry::between(over, board) }.time()
        })?;
        if place < MOST_PASSED {
            self.passed.resize(self.passed.len().max(place + 1), None);
            self.passed[place] = Some(most);
        }
        Some(most)
    }

    /// The same as [`Self::known`], told by where the largest size leaves what was fitted.
    fn foreseen(&mut self, batch: u64, compared: &Compared<'_, 'm>) -> Option<Option<u64>> {
        let (bounds, here) = (compared.bounds, compared.here);
        let model = bounds.found.model;
        let Some((farthest, beyond)) = model.farthest_above(here, self.moving) else {
            self.is_away = true;
            return Some(None);
        };
        if self.edge.is_none() && self.follows_samples() {
            let samples = (batch as f64 * (-beyond).exp()) as u64;
            if beyond <= 0.0 || samples == 0 {
                return None;
            }
            let mut there = Variables::default();
            let at = self.at(samples, bounds, &mut there).filter(|at| at.within)?;
            let lies = |from: u64, to: u64| (to as f64 / from as f64).ln();
            // What goes with the samples is known of one more as well.
            let follows = here.values[farthest] - there.values[farthest] - lies(samples, batch);
            let leaves = follows.abs() < ROUNDING && beyond - lies(samples + 1, batch) > 2.0 * ROUNDING;
            if samples + 1 < batch && !leaves && self.is_within(samples + 1, compared) {
                return None;
            }
            self.found(Edge { samples, fewest: samples, at: Some(at) });
        }
        let Edge { samples: edge, fewest, .. } = *self.edge.as_ref()?;
        let (few, _) = halved(batch, edge)?;
        if few < fewest {
            if !self.is_within(few, compared) {
                return None;
            }
            self.edge = self.edge.take().map(|known| Edge { fewest: few, ..known });
        }
        self.known(batch, (compared.own, compared.longest), bounds)
    }
}

/// How many samples a search by halves comes to that are no more than lie within, at least one, and how many it saw before.
fn halved(batch: u64, edge: u64) -> Option<(u64, Option<u64>)> {
    let (mut few, mut passed) = (batch / 2, None);
    while few > edge {
        (few, passed) = (few / 2, Some(few));
    }
    (few > 0 && batch > edge).then_some((few, passed))
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

/// The most samples, fewer than `batch`, with which a kernel lies within what was measured, where they are worth it.
fn at_the_edge(batch: u64, mut at: impl FnMut(u64) -> Option<Fewer>) -> Option<u64> {
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

/// Tests also look at kernels of more and of fewer samples one by one.
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
    use crate::step::predict::Predictor;
    use std::cell::Cell;

    thread_local! {
        /// Whether more samples are all looked at, and fewer one by one, even where one of their sizes lies outside as it does here.
        pub(super) static PLAIN: Cell<bool> = const { Cell::new(false) };
    }

    /// Every third network of the zoo, another third on each GPU; the last two have a memory that is slower, and faster, than that of
    /// their models.
    #[test]
    fn more_and_fewer_samples_are_known_to_be_what_they_are_one_by_one() {
        let (mut same, mut outside) = (0, 0);
        let (fp32, fp16) = (Precision::Fp32, Precision::Fp16);
        let gpus = [("v100", fp32), ("h200", fp16), ("t4", fp32), ("h100-pcie", fp16), ("rtx4090", fp16)];
        for (third, (gpu, precision)) in gpus.into_iter().enumerate() {
            let framework = catalog::framework("pytorch").expect("shipped");
            let predictor = Predictor::shipped(catalog::gpu(gpu).expect("shipped"), framework);
            for name in catalog::network_names().skip(third).step_by(3) {
                let network = catalog::network(name).expect("shipped");
                for batch in [1, 48, 129, 700] {
                    let Ok(shaped) = ShapedNetwork::new(&network, batch, precision, &[]) else { continue };
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

    #[test]
    fn the_edge_is_the_most_samples_that_lie_within() {
        for (batch, within, expected) in
            [(65, 64, Some(64)), (100, 37, Some(37)), (1000, 1, Some(1)), (3, 2, Some(2)), (9, 0, None), (1, 0, None)]
        {
            assert_eq!(at_the_edge(batch, |n| Some(fewer(within, n))), expected, "{batch} samples, {within} within");
        }
        for (batch, within) in (1..300).flat_map(|batch| (0..batch).map(move |within| (batch, within))) {
            assert_eq!(at_the_edge(batch, |n| Some(fewer(within, n))), (within > 0).then_some(within));
        }
        assert_eq!(at_the_edge(1 << 40, |n| Some(fewer(12_345, n))), Some(12_345));
        let hopeless = |n: u64| Some(if n <= 50 { Fewer::Hopeless } else { fewer(64, n) });
        assert!(at_the_edge(100, hopeless).is_none(), "nothing that is fewer takes longer");
        assert!(at_the_edge(100, |n| (n > 70).then(|| fewer(64, n))).is_none());
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
