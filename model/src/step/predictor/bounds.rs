//! What a kernel's time cannot be beyond, whatever a polynomial says where no row is.

use super::Setup;
use crate::base::number::Changes;
use crate::base::units::Seconds;
use crate::kernel::features::{MAX_VARIABLES, Variables, Wanted};
use crate::kernel::load::Load;
use crate::kernel::work::Work;
use crate::law::carry::Carry;
use crate::law::lookup::Found;
use crate::law::time::{Expected, Loads, MORE, Timed, View};
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
    /// A kernel as the model sees it; `None` where nothing runs.
    fn view<'w>(&self, work: Work<'w>) -> Option<View<'w, 'm>>
    where
        'm: 'w,
    {
        let cost = work.cost().ok()??;
        self.found.model.view(work, cost, self.setup.gpu, self.setup.library, self.setup.calibration)
    }

    /// What a kernel outside of what was fitted takes, as the same one of more and fewer samples bounds it.
    pub(super) fn outside(&self, own: Seconds, view: &View<'_, 'm>) -> Seconds {
        let own = self.as_for_more_samples(own, view);
        self.as_for_fewer_samples(own, &view.load, view.seen().variables)
    }

    /// What a kernel outside of what was fitted takes that takes no longer than the same one of more samples.
    pub(super) fn not_below_fewer_samples(&self, own: Seconds, load: &Load<'_>) -> Seconds {
        let loads = self.found.model.loads(load.work.clone(), load.cost, self.setup.gpu);
        loads.map_or(own, |loads| self.as_for_fewer_samples(own, load, &self.bounding(&loads)))
    }

    /// The variables that say whether a kernel lies within what was fitted.
    fn bounding(&self, loads: &Loads<'_>) -> Variables {
        let model = self.found.model;
        loads.described().some_variables(model.floor, self.setup.library.unwrap_or(model.library), model.bounding())
    }

    /// A kernel's time as it is expected, bounded where it lies outside of what was fitted.
    fn time(&self, work: Work<'_>) -> Option<Seconds> {
        let view = self.view(work)?;
        let expected = view.expected_by(self.found);
        let time = expected.time();
        Some(if expected.in_domain { time } else { self.outside(time, &view) })
    }

    /// A kernel as its model sees it, of so many samples.
    fn loads<'w>(&self, work: &Work<'w>, batch: u64) -> Option<Loads<'w>>
    where
        'm: 'w,
    {
        let work = Work { batch, ..work.clone() };
        let cost = work.cost().ok()??;
        self.found.model.loads(work, cost, self.setup.gpu)
    }

    /// Beyond what was measured a polynomial may fall as the batch grows: a kernel takes no longer than the same one of 2, 4, 8
    /// and so on up to 4,096 times as many samples.
    fn as_for_more_samples(&self, own: Seconds, view: &View<'_, 'm>) -> Seconds {
        let (work, model) = (&view.load.work, self.found.model);
        // Over another memory traffic is carried, which the smallest ratio says nothing of.
        let shortest = self.found.shortest().filter(|_| model.is_over(view.load.memory)).map(f64::exp);
        let longer = MORE.into_iter().map_while(|times| {
            let loads = self.loads(work, work.batch.checked_mul(times)?)?;
            let reference = loads.board.roofline.reference(model.exponent, model.floor);
            let time = move |least: Seconds| {
                let engine = model.foreseen(&loads.board.work, self.setup.calibration);
                let by_engine =
                    engine.terms.and(shortest).map(|_| reference * self.found.shortest_by(engine.terms).exp());
                let may_be = by_engine.is_none_or(|bound| bound < least);
                may_be.then(|| model.seeing(loads, engine, self.setup.library).expected_by(self.found).time())
            };
            Some((shortest.map(|ratio| reference * ratio), time))
        });
        least(own, longer)
    }

    /// Nor may it fall where what was measured ends: a kernel that is larger takes no less than the same one of the most samples
    /// that lie within, as long as the library is expected to run both by one engine. `here`: its variables, those of
    /// [`Self::bounding`] at least.
    fn as_for_fewer_samples(&self, own: Seconds, load: &Load<'_>, here: &Variables) -> Seconds {
        let (work, model) = (&load.work, self.found.model);
        let Some(longest) = self.found.longest() else { return own };
        let away = model.away(here);
        if !away.is_empty() && self.has_one_that_stays(away, load) {
            return own;
        }
        let at = |batch| -> Option<Fewer> {
            let loads = self.loads(work, batch)?;
            let there = self.bounding(&loads);
            if model.comes_no_nearer(Wanted::ALL, here, &there) {
                return Some(Fewer::Hopeless);
            }
            let reference = loads.over().roofline.reference(model.exponent, model.floor);
            if model.has_within(&there, reference) {
                return Some(Fewer::Within);
            }
            let carry = Carry::between(loads.over(), &loads.board);
            let shorter = Expected { reference, log: longest, in_domain: true, carry }.time() <= own;
            Some(if shorter { Fewer::Hopeless } else { Fewer::Outside })
        };
        let at_the_edge = at_the_edge(work.batch, at).and_then(|batch| {
            let loads = self.loads(work, batch)?;
            let engine = model.foreseen(&loads.board.work, self.setup.calibration);
            let alike = engine.engine == model.foreseen(work, self.setup.calibration).engine;
            alike.then(|| model.seeing(loads, engine, self.setup.library).expected_by(self.found).time())
        });
        at_the_edge.map_or(own, |time| own.max(time))
    }

    /// Whether one of some variables of a kernel is the same for every number of samples.
    fn has_one_that_stays(&self, variables: Wanted, load: &Load<'_>) -> bool {
        #[cfg(test)]
        if tests::PLAIN.get() {
            return false;
        }
        let amounts = load.amounts();
        let mut changes = [Changes(false); MAX_VARIABLES];
        let library = self.setup.library.unwrap_or(self.found.model.library);
        let all = amounts.with(&amounts, |_, _| Changes(true));
        load.fill(&all, (self.found.model.floor, library), variables, &mut changes);
        (0..MAX_VARIABLES).any(|i| variables.has(i) && !changes[i].0)
    }

    /// Several results of every channel by a chip of its own ways: no less than with fewer of them on this GPU, one by the model
    /// `depthwise`, and perhaps as little as so many kernels of one.
    pub(super) fn of_several_results(&self, timed: Timed, view: &View<'_, 'm>, depthwise: &Found<'m>) -> Timed {
        let work = &view.load.work;
        let Layer::Conv2d(conv) = work.layer() else { return timed };
        let (channels, results) = (work.input().axis(), conv.channels / work.input().axis().max(1));
        let fewer = |results: u64| {
            let conv = Conv2d { channels: results * channels, ..conv.clone() };
            let case = LayerCase { inputs: work.inputs().to_vec(), layer: Layer::Conv2d(conv) };
            let fewer = Work::usual(case, work.phase, work.batch, work.precision, work.mode).ok()?;
            Some(Work { layout: work.layout, cache: work.cache, algorithm: work.algorithm, ..fewer })
        };
        let Some(one) = fewer(1).and_then(|one| Bounds { found: depthwise, ..*self }.time(one)) else { return timed };
        let several = (2..results).take(MOST_RESULTS).filter_map(|results| self.time(fewer(results)?));
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

/// The most samples, fewer than `batch`, with which a kernel lies within what was measured, where they are worth it.
fn at_the_edge(batch: u64, at: impl Fn(u64) -> Option<Fewer>) -> Option<u64> {
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

/// The least of a time and of those of ever more samples, each with what it takes whatever its polynomial says: where that is no
/// less already, no later one is less. Times are told what they are to be less than, and need not be worked out where they are not.
fn least(
    own: Seconds,
    longer: impl Iterator<Item = (Option<Seconds>, impl FnOnce(Seconds) -> Option<Seconds>)>,
) -> Seconds {
    let mut least = own;
    for (bound, time) in longer {
        if bound.is_some_and(|bound| bound >= least) {
            break;
        }
        least = time(least).map_or(least, |time| least.min(time));
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
        /// Whether fewer samples are looked at even where one of their sizes lies outside as it does here.
        pub(super) static PLAIN: Cell<bool> = const { Cell::new(false) };
    }

    /// Every third network of the zoo, another third on each GPU.
    #[test]
    fn what_no_number_of_samples_changes_spares_a_look_at_fewer_and_changes_nothing() {
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

    #[test]
    fn the_edge_is_the_most_samples_that_lie_within() {
        for (batch, within, expected) in
            [(65, 64, Some(64)), (100, 37, Some(37)), (1000, 1, Some(1)), (3, 2, Some(2)), (9, 0, None), (1, 0, None)]
        {
            assert_eq!(at_the_edge(batch, |n| Some(fewer(within, n))), expected, "{batch} samples, {within} within");
        }
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
        let longer = list.into_iter().map(|(bound, time)| (Some(us(bound)), move |_| Some(us(time))));
        let found = least(us(10.0), longer.inspect(|_| asked += 1));
        assert_eq!((found, asked), (us(all), 4));
        let unbounded = list.into_iter().map(|(_, time)| (None, move |_| Some(us(time))));
        assert_eq!(least(us(10.0), unbounded), us(all));
        let never = |_| -> Option<Seconds> { unreachable!("its bound is above") };
        assert_eq!(least(us(10.0), std::iter::once((Some(us(10.0)), never))), us(10.0));
    }
}
