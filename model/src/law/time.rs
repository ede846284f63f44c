//! The law of time: t = t_ref exp(f), f a sparse polynomial of a kernel's variables, and the interval of what it leaves.
//! Fits, judges and the predictor all ask here.

use super::calibration::{Calibration, EngineTerms, LayerModel, Ratio, Siblings, Tier};
use super::carry::Carry;
use super::lookup::{Found, Substitute};
use crate::base::units::Seconds;
use crate::device::gpu::Gpu;
use crate::kernel::features::{Variables, Wanted};
use crate::kernel::load::{Load, Memory, Roofline};
use crate::kernel::sizes::ConvSizes;
use crate::kernel::work::Work;
use crate::net::cost::LayerCost;

/// Outside of what was measured, and where another kind's model stands in without having been compared, the
/// interval's edges move out by this factor.
pub const WIDER: f64 = 1.5;

/// Beyond what was measured a kernel is compared with the same one of so many times as many samples.
pub(crate) const MORE: [u64; 12] = [2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096];

/// A kernel as the law sees it.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    /// What it would take at peak, with the memory that the model is of.
    pub roofline: Roofline,
    /// Launch floor of its kernel.
    pub floor: Seconds,
    /// Variables of its family, over that floor.
    pub variables: &'a Variables,
    /// From that memory to the board's own.
    pub carry: Carry,
    /// The engine that the library runs, where it is known or foreseen.
    pub engine: Option<&'a str>,
}

/// A kernel on a board, as it is and as a model sees it.
#[derive(Clone, Debug)]
pub(crate) struct Loads<'a> {
    /// On the board itself.
    pub board: Load<'a>,
    /// Over the memory that the model is of, where that is another.
    pub other: Option<Box<Load<'a>>>,
    /// In the precision that computes, where that is another than the operands'.
    pub wide: Option<Box<Load<'a>>>,
}

impl<'a> Loads<'a> {
    /// Variables that are wanted, as the model sees them, for a library of an age, if not the newest that it knows.
    pub fn fill(&self, model: &LayerModel, library: Option<f64>, wanted: Wanted, variables: &mut Variables) {
        let load = self.described();
        load.fill(&load.amounts(), (model.floor, library.unwrap_or(model.library)), wanted, &mut variables.values);
    }

    /// Over the model's memory.
    pub fn over(&self) -> &Load<'a> {
        self.other.as_deref().unwrap_or(&self.board)
    }

    /// What the variables are of.
    pub fn described(&self) -> &Load<'a> {
        self.wide.as_deref().unwrap_or(self.over())
    }

    /// Makes them those of the same kernel over another batch, at the cost that it has there.
    pub fn at(&mut self, batch: u64, cost: LayerCost) {
        self.board.over(batch, cost);
        if let Some(other) = &mut self.other {
            other.over(batch, cost);
        }
        if let Some(wide) = &mut self.wide {
            let times = wide.work.precision.bytes() / self.board.work.precision.bytes();
            wide.over(batch, cost.widened(times));
        }
    }

    /// The same of the layer alone, whatever else its kernel does; false, and nothing of use, where nothing runs.
    pub fn alone_over(&mut self, batch: u64) -> bool {
        self.board.work.batch = batch;
        let cost = self.board.work.cost().ok().flatten();
        cost.inspect(|cost| self.at(batch, *cost)).is_some()
    }
}

/// The engine that a library is expected to run, and what a model knows of it.
#[derive(Clone, Copy)]
pub(crate) struct Foreseen<'c> {
    pub engine: Option<&'c str>,
    pub terms: Option<&'c EngineTerms>,
}

/// A kernel on a board, with what a model, which may be of another board of the chip, sees of it.
pub struct View<'a, 'c> {
    /// On the board itself.
    pub load: Load<'a>,
    roofline: Roofline,
    floor: Seconds,
    variables: Variables,
    carry: Carry,
    /// The engine that the chip's library is expected to choose.
    pub engine: Option<&'c str>,
}

impl View<'_, '_> {
    /// As the law sees it.
    pub fn seen(&self) -> Seen<'_> {
        let Self { roofline, floor, carry, engine, .. } = *self;
        Seen { roofline, floor, variables: &self.variables, carry, engine }
    }
}

impl LayerModel {
    /// A kernel on a board as this model sees it. `None` where the board has no peak for it.
    pub(crate) fn loads<'a>(&self, work: Work<'a>, cost: LayerCost, gpu: &'a Gpu) -> Option<Loads<'a>> {
        let own = Memory::of(gpu);
        let memory = self.memory.unwrap_or(own);
        let other = match memory == own {
            true => None,
            false => Some(Box::new(work.clone().costing_over(cost, gpu, memory)?)),
        };
        // Halves that are computed in fp32 reach over their own roofline what the same kernel does in fp32: less traffic
        // makes none slower.
        let computed = gpu.computes_in(work.precision).filter(|computed| *computed != work.precision);
        let wide = computed.and_then(|precision| {
            let cost = cost.widened(precision.bytes() / work.precision.bytes());
            Work { precision, ..work.clone() }.costing_over(cost, gpu, memory).map(Box::new)
        });
        let board = work.costing_over(cost, gpu, own)?;
        Some(Loads { board, other, wide })
    }

    /// A kernel on a board, its traffic seen over the memory that the model is of. `library`: its age, if not the newest that
    /// the model knows. `chip`: the calibration that foresees which engine runs. `None` where the board has no peak for it.
    pub fn view<'a, 'c>(
        &'c self,
        work: Work<'a>,
        cost: LayerCost,
        gpu: &'a Gpu,
        library: Option<f64>,
        chip: Option<&'c Calibration>,
    ) -> Option<View<'a, 'c>> {
        let (engine, loads) = (self.foreseen(&work, chip), self.loads(work, cost, gpu)?);
        let mut variables = Variables::default();
        loads.fill(self, library, self.reads_by(engine.terms), &mut variables);
        let (roofline, carry) = (loads.over().roofline, Carry::between(loads.over(), &loads.board));
        Some(View { roofline, floor: self.floor, variables, carry, load: loads.board, engine: engine.engine })
    }

    /// The engine that a chip's library is expected to run, where that makes a difference.
    pub(crate) fn foreseen<'c>(&'c self, work: &Work<'_>, chip: Option<&'c Calibration>) -> Foreseen<'c> {
        let sizes = if self.engines.is_empty() { None } else { ConvSizes::of(work) };
        let engine = sizes.and_then(|sizes| chip?.engine(&sizes));
        Foreseen { engine, terms: engine.and_then(|engine| self.engine(engine)) }
    }
}

impl Calibration {
    /// What other boards of a measured chip err, of these models of all chips, where a prediction rests on such a board.
    pub fn siblings(&self, tier: Tier) -> Option<Siblings> {
        self.transfer.as_ref().and_then(|t| t.siblings).filter(|_| tier == Tier::Sibling)
    }
}

/// What a model expects of a kernel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Expected {
    /// t_ref: the smooth roofline with the model's exponent, with the memory that the model is of.
    pub reference: Seconds,
    /// ln(t / t_ref).
    pub log: f64,
    /// Whether the kernel lies within what was fitted.
    pub in_domain: bool,
    /// From that memory to the board's own.
    pub carry: Carry,
}

impl Expected {
    /// t = t_ref exp(ln(t / t_ref)), carried to the board.
    pub fn time(&self) -> Seconds {
        self.carry.to_board(self.reference * self.log.exp())
    }
}

impl LayerModel {
    /// ln(t / t_ref) of a kernel by this model, as it is.
    pub fn expects(&self, seen: Seen<'_>) -> Expected {
        let reference = seen.roofline.reference(self.exponent, seen.floor);
        let ratio = self.ratio(seen.variables, reference, seen.engine);
        Expected { reference, log: ratio.log, in_domain: ratio.in_domain, carry: seen.carry }
    }
}

impl LayerModel {
    /// The smallest that ln(t / t_ref) can be.
    fn least_log(&self) -> f64 {
        let engines = self.engines.iter().map(Some).chain([None]);
        engines.map(|engine| self.least_log_by(engine)).fold(f64::INFINITY, f64::min)
    }

    /// The same by an engine.
    fn least_log_by(&self, engine: Option<&EngineTerms>) -> f64 {
        self.ratio_range.0.min(self.ordinary_range.0) + engine.map_or(0.0, |engine| engine.range.0)
    }

    /// The largest that ln(t / t_ref) can be within what was fitted.
    fn most_log(&self) -> f64 {
        self.ratio_range.1 + self.engines.iter().map(|e| e.range.1).fold(0.0, f64::max)
    }
}

impl Found<'_> {
    /// The smallest that ln(t / t_ref) can be by what it expects; `None` where that is stated.
    pub(crate) fn shortest(&self) -> Option<f64> {
        self.stated.is_none().then(|| self.model.least_log() + self.correction)
    }

    /// The same by an engine, where it is not stated.
    pub(crate) fn shortest_by(&self, engine: Option<&EngineTerms>) -> f64 {
        self.model.least_log_by(engine) + self.correction
    }

    /// The largest that ln(t / t_ref) can be by what it expects within what was fitted; `None` where that is stated.
    pub(crate) fn longest(&self) -> Option<f64> {
        self.stated.is_none().then(|| self.model.most_log() + self.correction)
    }

    /// The same by a model that was found for the kernel, with what is known of the substitution.
    pub fn expects(&self, seen: Seen<'_>) -> Expected {
        let Expected { reference, log, in_domain, carry } = self.model.expects(seen);
        self.corrected(reference, Ratio { log, in_domain }, carry)
    }

    /// The same of a kernel's loads, run by an engine of which the model has these terms; `variables`: room for them, left as
    /// they are filled.
    pub(crate) fn expects_of(
        &self,
        loads: &Loads<'_>,
        terms: Option<&EngineTerms>,
        library: Option<f64>,
        variables: &mut Variables,
    ) -> Expected {
        let model = self.model;
        loads.fill(model, library, model.reads_by(terms), variables);
        let reference = loads.over().roofline.reference(model.exponent, model.floor);
        let carry = Carry::between(loads.over(), &loads.board);
        self.corrected(reference, model.ratio_by(variables, reference, terms), carry)
    }

    fn corrected(&self, reference: Seconds, Ratio { log, in_domain }: Ratio, carry: Carry) -> Expected {
        let log = self.stated.map_or(log + self.correction, |s| s.log);
        Expected { reference, log, in_domain, carry }
    }
}

/// A kernel's time with its 90 % interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Timed {
    /// Most likely.
    pub value: Seconds,
    /// Edges of the interval, as factors of the value; `None` where nobody judged the model.
    pub edges: Option<(f64, f64)>,
    /// Whether the kernel lies within what was fitted.
    pub in_domain: bool,
}

impl Timed {
    /// The same where nothing can be faster than that; an interval begins there.
    pub(crate) fn no_less_than(self, floor: Seconds) -> Self {
        if self.value >= floor {
            return self;
        }
        Self { value: floor, edges: self.edges.map(|(_, high)| (1.0, high)), ..self }
    }
}

/// What a normal error is in the mean, as a part of the half-width of its 90 % interval: sqrt(2 / pi) over the 95 % quantile.
pub const MEAN_OF_HALF_WIDTH: f64 = 0.485_079;

impl Found<'_> {
    /// What its times are expected to err in the mean, as a share of them. Measured: the mean error of the model on rows that
    /// it had not seen (folds of whole shapes; of models of all chips, chips that were left out). Where the interval is of
    /// others' residuals than the model's own folds, or stated, the mean of a normal error with that interval; what widens an
    /// interval adds to the error in the same way.
    pub(crate) fn error(&self, in_domain: bool, siblings: Option<Siblings>) -> f64 {
        let of_interval = |low: f64, high: f64| MEAN_OF_HALF_WIDTH * (high - low) / 2.0;
        let judged = match (self.stated, self.substitute) {
            (Some(stated), _) => of_interval(stated.low, stated.high),
            (None, Some(Substitute::Bandwidth)) => {
                self.residuals.residuals.last().map_or(0.0, |bucket| of_interval(bucket.low, bucket.high))
            }
            (None, _) => self.residuals.cross_validation.mape / 100.0,
        };
        let sibling = siblings.map_or(0.0, |s| of_interval(s.low, s.high));
        judged.max(sibling) + MEAN_OF_HALF_WIDTH * WIDER.ln() * self.doubts(in_domain) as f64
    }

    /// How many reasons there are to trust it less than its residuals, each one of its own.
    fn doubts(&self, in_domain: bool) -> usize {
        [!self.trusted(in_domain), self.other_vendor].into_iter().filter(|doubt| *doubt).count()
    }

    /// Edges of the interval of a predicted time, as factors of it. `siblings`: what other boards of a measured chip err,
    /// where the model is of such a board. `None` where nobody judged the model.
    pub(crate) fn edges(&self, value: Seconds, in_domain: bool, siblings: Option<Siblings>) -> Option<(f64, f64)> {
        let logs = match self.stated {
            Some(stated) => (stated.low, stated.high),
            None => self.residuals.bucket(value).map(|bucket| (bucket.low, bucket.high))?,
        };
        let widen = WIDER.powi(self.doubts(in_domain) as i32);
        let (low, high) = siblings.map_or(logs, |s| s.widened(logs));
        Some((low.exp() / widen, high.exp() * widen))
    }
}

/// A kernel's time by the model that was found for it. `siblings`: what other boards of a measured chip err, where the
/// model is of such a board.
pub fn time(seen: Seen<'_>, found: &Found<'_>, siblings: Option<Siblings>) -> Timed {
    found.times(found.expects(seen), siblings)
}

impl Found<'_> {
    /// As [`time`], of what is expected.
    pub(crate) fn times(&self, expected: Expected, siblings: Option<Siblings>) -> Timed {
        let (value, in_domain) = (expected.time(), expected.in_domain);
        Timed { value, edges: self.edges(value, in_domain, siblings), in_domain }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::{calibration, calibration_files};
    use crate::kernel::features::MAX_VARIABLES;

    /// What shipped models say of kernels like and unlike those that they know, by each engine, in and out of what was measured.
    #[test]
    fn no_model_says_less_than_its_least() {
        let mut bits: u64 = 3;
        let mut near = 0;
        for (name, _) in calibration_files() {
            for model in calibration(name).expect("packed").expect("there").models.iter() {
                for _ in 0..20 {
                    let values: [f64; MAX_VARIABLES] = std::array::from_fn(|_| {
                        bits = bits.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                        (bits >> 40) as f64 / f64::from(1 << 20) - 8.0
                    });
                    for engine in model.engines.iter().map(|e| Some(e.engine.as_str())).chain([None]) {
                        let ratio = model.ratio(&Variables { values }, Seconds::new(1.0), engine);
                        assert!(ratio.log >= model.least_log() - 1e-12, "{name} {} {engine:?}", model.key);
                        near += usize::from(ratio.log <= model.least_log() + 1e-6);
                    }
                }
            }
        }
        assert!(near > 100, "the least is reached: {near}");
    }
}
