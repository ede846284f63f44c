//! How far a prediction can be trusted, and what would make it surer.
//!
//! A mean error is expected of a step's time e_t, power e_p and energy e_e, from what was measured:
//!
//! * e_k, of kernels: the mean over the step's time of what their models erred on rows that they had not seen (held-out shapes of
//!   that chip; chips left out, of models of all chips), more outside of what was measured (`Found::error` in `law/time.rs`);
//! * e_w, of the law of power: its mean error on held-out shapes; of another GPU's law, that of its widened interval;
//! * what hosts differ by and what carries to other clocks, as the mean of a normal error with these intervals;
//! * `e_t^2 = e_k^2 + hosts^2 + clocks^2`, `e_p^2 = e_w^2 + hosts^2 + clocks^2`, `e_e^2 = e_k^2 + e_w^2 + hosts^2 + clocks^2`.
//!
//! Layers' errors may cancel in part, which this leaves out.

use crate::base::order::sort_by;
use crate::base::precision::named_enum;
use crate::law::calibration::Tier;
use crate::law::time::MEAN_OF_HALF_WIDTH;
use crate::step::predictor::{BoundBy, NetworkPrediction};
use serde::{Deserialize, Serialize};

named_enum!(
    /// How large an error is expected, best first.
    Grade {
        /// At most [`GOOD`].
        Good = "good",
        /// At most [`FAIR`].
        Fair = "fair",
        /// More.
        Poor = "poor",
    }
);

/// The largest expected error that is called good: models of a chip's own convolutions forward in fp32 err no more on shapes
/// that they did not see (a test holds shipped calibrations to it).
pub const GOOD: f64 = 0.2;

/// The largest expected error that is called fair: models of all chips err no more on such convolutions of a chip that was
/// left out (held by the same test).
pub const FAIR: f64 = 0.4;

impl Grade {
    /// Of an expected error, as a share.
    pub fn of(error: f64) -> Self {
        match error {
            error if error <= GOOD => Self::Good,
            error if error <= FAIR => Self::Fair,
            _ => Self::Poor,
        }
    }
}

/// A value's expected error.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Expected {
    /// Mean absolute error, as a share of the value.
    pub error: f64,
    /// What that is called.
    pub grade: Grade,
}

impl Expected {
    fn of(parts: &[f64]) -> Self {
        let error = parts.iter().map(|part| part * part).sum::<f64>().sqrt();
        Self { error, grade: Grade::of(error) }
    }
}

/// Something that is not known for sure, which one measurement would settle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// How fast the machine's host launches.
    Host,
    /// What other clocks and limits than the default do.
    Clocks,
    /// What kernels draw.
    Power,
    /// What GPUs exchange.
    Exchange,
    /// How long kernels of a kind take, by the name of their models.
    Kernels(&'static str),
}

/// What makes an interval wide.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Doubt {
    /// What is not known.
    pub cause: Cause,
    /// Of kernels, whether some of their kind rest on rows of that very board.
    pub measured: bool,
    /// Its share of the variance of the time's interval on a logarithmic scale, from 0 to 1.
    pub of_time: f64,
    /// The same of the energy's.
    pub of_energy: f64,
}

/// How far a prediction can be trusted.
#[derive(Clone, Debug, PartialEq)]
pub struct Trust {
    /// Of its time.
    pub time: Expected,
    /// Of its mean power.
    pub power: Expected,
    /// Of its energy.
    pub energy: Expected,
    /// What its time rests on.
    pub time_tier: Tier,
    /// What its power rests on.
    pub power_tier: Tier,
    /// What makes its intervals wide, by the larger of both shares, the largest first.
    pub doubts: Vec<Doubt>,
}

/// The square of an interval's half-width on a logarithmic scale: those of independent factors add up. None where an end is
/// zero or infinite.
pub fn variance(low: f64, high: f64) -> f64 {
    let half = (high / low).ln() / 2.0;
    if half.is_finite() { half * half } else { 0.0 }
}

/// What is left of a whole below this share of it is rounding.
const ROUNDING: f64 = 1e-9;

/// A part of a whole, at most all of it; nothing of nothing.
fn share(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { (part / whole).clamp(0.0, 1.0) } else { 0.0 }
}

impl Trust {
    /// What a prediction's own figures say of it.
    pub fn of(p: &NetworkPrediction) -> Self {
        let doubts = &p.doubts;
        let [hosts, clocks] = [doubts.hosts, doubts.clocks].map(|d| d.half_widths());
        let mean = |of: usize| [hosts[of], clocks[of]].map(|half| MEAN_OF_HALF_WIDTH * half);
        let expected = |own: &[f64], of: usize| Expected::of(&[own, &mean(of)].concat());
        Self {
            time: expected(&[doubts.kernels], 0),
            power: expected(&[doubts.power], 1),
            energy: expected(&[doubts.kernels, doubts.power], 2),
            time_tier: p.time_tier,
            power_tier: p.power_tier,
            doubts: causes(p),
        }
    }

    /// The worse of time's and energy's.
    pub fn grade(&self) -> Grade {
        self.time.grade.max(self.energy.grade)
    }
}

/// Shares of the intervals' variances. What hosts and clocks add is known; the rest is the kernels' and, of energy, the law's of
/// power, as their own widths say, and the kernels' part goes with the widths of theirs, which all err alike.
fn causes(p: &NetworkPrediction) -> Vec<Doubt> {
    let squares = |of: [f64; 3]| of.map(|half| half * half);
    let (hosts, clocks) = (squares(p.doubts.hosts.half_widths()), squares(p.doubts.clocks.half_widths()));
    let (time, energy) =
        (variance(p.time.p05.get(), p.time.p95.get()), variance(p.energy.p05.get(), p.energy.p95.get()));
    let rest = |all: f64, of: usize| {
        let rest = all - hosts[of] - clocks[of];
        if rest > ROUNDING * all { rest } else { 0.0 }
    };
    let [of_kernels, of_power] = [p.widths.time, p.widths.power].map(|width| {
        let half = (width.0 + width.1) / 2.0;
        half * half
    });
    let power = share(of_power, of_kernels + of_power);
    // Limits cut intervals of power off: shares are then of what there is.
    let whole = |all: f64, of: usize| all.max(hosts[of] + clocks[of]);
    let (time, energy, rest) = (whole(time, 0), whole(energy, 2), [rest(time, 0), rest(energy, 2)]);
    let mut kinds: Vec<(Cause, f64, bool)> = Vec::new();
    for layer in &p.layers {
        let (cause, measured) = match layer.bound_by {
            BoundBy::Exchange => (Cause::Exchange, false),
            _ => (Cause::Kernels(layer.model()), layer.tier == Tier::Measured),
        };
        let width = (layer.time.p95 - layer.time.p05).get();
        match kinds.iter_mut().find(|(other, ..)| *other == cause) {
            Some((_, sum, any)) => (*sum, *any) = (*sum + width, *any || measured),
            None => kinds.push((cause, width, measured)),
        }
    }
    let widths: f64 = kinds.iter().map(|(_, width, _)| width).sum();
    let of_kind = |(cause, width, measured): (Cause, f64, bool)| Doubt {
        cause,
        measured,
        of_time: share(width, widths) * share(rest[0], time),
        of_energy: share(width, widths) * share(rest[1] * (1.0 - power), energy),
    };
    let others = [(Cause::Host, hosts), (Cause::Clocks, clocks)];
    let other = |cause, of_time, of_energy| Doubt { cause, measured: false, of_time, of_energy };
    let others = others.map(|(cause, of)| other(cause, share(of[0], time), share(of[2], energy)));
    let of_power = other(Cause::Power, 0.0, share(rest[1] * power, energy));
    let all = kinds.into_iter().map(of_kind).chain(others).chain([of_power]);
    let most = |d: &Doubt| d.of_time.max(d.of_energy);
    let mut list: Vec<Doubt> = all.filter(|d| most(d) > 0.0).collect();
    sort_by(&mut list, |a, b| most(b).total_cmp(&most(a)));
    list
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::precision::{Mode, Phase, Precision};
    use crate::catalog;
    use crate::kernel::family::Family;
    use crate::kernel::key::{ConvClass, ModelKey};
    use crate::law::calibration::LayerModel;
    use crate::net::network::ShapedNetwork;
    use crate::step::predict::Predictor;
    use crate::step::predictor::OperatingPoint;

    type Outcome = Result<(), Box<dyn std::error::Error>>;

    fn predicted(
        gpu: &str,
        framework: &str,
        batch: u64,
        point: OperatingPoint,
    ) -> Result<NetworkPrediction, Box<dyn std::error::Error>> {
        let network = ShapedNetwork::new(&catalog::network("resnet50")?, batch, Precision::Fp32, &[])?;
        let predictor = Predictor::shipped(catalog::gpu(gpu)?, catalog::framework(framework)?);
        Ok(predictor.step(&network, Mode::Inference)?.at(point)?)
    }

    fn shares(trust: &Trust) -> (f64, f64) {
        trust.doubts.iter().fold((0.0, 0.0), |(time, energy), d| (time + d.of_time, energy + d.of_energy))
    }

    #[test]
    fn what_was_measured_is_trusted_more_than_what_was_lent() -> Outcome {
        let of = |gpu| {
            Ok::<_, Box<dyn std::error::Error>>(Trust::of(&predicted(gpu, "cudnn", 8, OperatingPoint::default())?))
        };
        let (own, others, lent, other_vendor) = (of("h200")?, of("v100")?, of("l4")?, of("mi250x")?);
        let errors = [&own, &others, &lent, &other_vendor].map(|trust| trust.time.error);
        assert!(errors.is_sorted(), "{errors:?}");
        assert_eq!((own.grade(), lent.time.grade, other_vendor.grade()), (Grade::Good, Grade::Fair, Grade::Poor));
        assert!((lent.energy.error - lent.time.error.hypot(lent.power.error)).abs() < 1e-12);
        Ok(())
    }

    #[test]
    fn shares_of_variance_add_up_to_all_of_it() -> Outcome {
        let slow = OperatingPoint {
            core_clock: Some(crate::base::units::Hertz::from_mhz(900.0)),
            ..OperatingPoint::default()
        };
        for (gpu, framework, point) in [
            ("v100", "cudnn", OperatingPoint::default()),
            ("h200", "pytorch", OperatingPoint::default()),
            ("v100", "cudnn", slow),
        ] {
            let (time, energy) = shares(&Trust::of(&predicted(gpu, framework, 1, point)?));
            assert!((time - 1.0).abs() < 1e-9 && (energy - 1.0).abs() < 1e-9, "{gpu} {framework}: {time} {energy}");
        }
        Ok(())
    }

    #[test]
    fn the_host_is_what_to_measure_where_it_decides_and_clocks_away_from_the_default() -> Outcome {
        let p = predicted("h200", "pytorch", 1, OperatingPoint::default())?;
        assert!(p.host.as_ref().is_some_and(|h| h.decides));
        let trust = Trust::of(&p);
        assert_eq!(trust.doubts.first().map(|d| d.cause), Some(Cause::Host));
        let [hosts, ..] = p.doubts.hosts.half_widths();
        let spread = p.host.as_ref().map_or(1.0, |h| h.spread).ln();
        assert!(hosts > 0.0 && hosts <= spread, "{hosts} of {spread}");
        assert!((trust.time.error - p.doubts.kernels.hypot(MEAN_OF_HALF_WIDTH * hosts)).abs() < 1e-12);
        let clocks =
            |trust: &Trust| trust.doubts.iter().find(|d| d.cause == Cause::Clocks).map_or(0.0, |d| d.of_energy);
        assert_eq!(clocks(&trust), 0.0);
        let slow = OperatingPoint {
            core_clock: Some(crate::base::units::Hertz::from_mhz(900.0)),
            ..OperatingPoint::default()
        };
        assert!(clocks(&Trust::of(&predicted("v100", "cudnn", 8, slow)?)) > 0.0);
        Ok(())
    }

    /// Where the host decides all, subtracting its part from the whole leaves rounding.
    #[test]
    fn what_rounding_leaves_is_no_doubt() -> Outcome {
        for batch in [1, 2, 3, 4, 5, 6, 7, 8] {
            let trust = Trust::of(&predicted("h200", "pytorch", batch, OperatingPoint::default())?);
            assert!(trust.doubts.iter().all(|d| d.of_time.max(d.of_energy) > 1e-10), "{batch}: {:?}", trust.doubts);
        }
        let mut p = predicted("h200", "pytorch", 1, OperatingPoint::default())?;
        let [half, ..] = p.doubts.hosts.half_widths();
        let more = 1.0 + 1e-12;
        (p.time.p05, p.time.p95) = (p.time.value / (half * more).exp(), p.time.value * (half * more).exp());
        let kernels = |trust: &Trust| trust.doubts.iter().any(|d| d.of_time > 0.0 && d.cause != Cause::Host);
        assert!(!kernels(&Trust::of(&p)), "{:?}", Trust::of(&p).doubts);
        (p.time.p05, p.time.p95) = (p.time.value / (1.1 * half).exp(), p.time.value * (1.1 * half).exp());
        assert!(kernels(&Trust::of(&p)));
        Ok(())
    }

    #[test]
    fn no_doubts_without_figures() -> Outcome {
        let mut p = predicted("v100", "cudnn", 8, OperatingPoint::default())?;
        (p.doubts, p.widths) = Default::default();
        p.layers.clear();
        let trust = Trust::of(&p);
        assert_eq!((trust.time.error, trust.grade()), (0.0, Grade::Good));
        assert!(trust.doubts.is_empty(), "{:?}", trust.doubts);
        Ok(())
    }

    #[test]
    fn errors_of_each_value_are_of_what_it_rests_on() -> Outcome {
        // At a clock that is set no voltage changes the time, and power is as doubtful as energy.
        let held =
            OperatingPoint { power_cap: Some(crate::base::units::Watts::new(160.0)), ..OperatingPoint::default() };
        for (gpu, framework, batch, point) in
            [("h200", "pytorch", 1, OperatingPoint::default()), ("v100", "cudnn", 8, held)]
        {
            let p = predicted(gpu, framework, batch, point)?;
            let (trust, doubts) = (Trust::of(&p), &p.doubts);
            let [hosts, clocks] = [doubts.hosts, doubts.clocks].map(|d| d.half_widths());
            let most = if framework == "pytorch" { hosts } else { clocks };
            assert!(most[0] != most[1] && most[1] != most[2] && most[0] != most[2], "{gpu}: all alike: {most:?}");
            let beside = |own: f64, of: usize| own.hypot((hosts[of].hypot(clocks[of])) * MEAN_OF_HALF_WIDTH);
            for (expected, found) in [
                (beside(doubts.kernels, 0), trust.time.error),
                (beside(doubts.power, 1), trust.power.error),
                (beside(doubts.kernels.hypot(doubts.power), 2), trust.energy.error),
            ] {
                assert!((expected - found).abs() < 1e-12, "{gpu}: {expected} {found}");
            }
        }
        Ok(())
    }

    #[test]
    fn the_worse_of_both_grades_is_that_of_the_prediction() -> Outcome {
        let trust = Trust::of(&predicted("v100", "cudnn", 8, OperatingPoint::default())?);
        assert_eq!((trust.time.grade, trust.energy.grade, trust.grade()), (Grade::Good, Grade::Fair, Grade::Fair));
        Ok(())
    }

    /// Kernels share their part of the doubt as their own intervals are wide, and what is exchanged is one of them.
    #[test]
    fn kinds_share_doubts_as_they_are_wide() -> Outcome {
        let mut p = predicted("h200", "cudnn", 8, OperatingPoint::default())?;
        let kind = p.layers[0].model();
        p.layers[1].bound_by = BoundBy::Exchange;
        let list = Trust::of(&p).doubts;
        let of = |cause| list.iter().find(|d| d.cause == cause).ok_or("not doubted");
        let wide = |of: &dyn Fn(usize) -> bool| {
            let layers = p.layers.iter().enumerate().filter(|(i, _)| of(*i));
            layers.map(|(_, layer)| (layer.time.p95 - layer.time.p05).get()).sum::<f64>()
        };
        let (exchange, kernels) = (of(Cause::Exchange)?, of(Cause::Kernels(kind))?);
        let expected = wide(&|i| i == 1) / wide(&|i| i != 1 && p.layers[i].model() == kind);
        for (one, other) in [(exchange.of_time, kernels.of_time), (exchange.of_energy, kernels.of_energy)] {
            assert!((one / other / expected - 1.0).abs() < 1e-9, "{one} {other} {expected}");
        }
        let most: Vec<f64> = list.iter().map(|d| d.of_time.max(d.of_energy)).collect();
        assert!(most.is_sorted_by(|a, b| a >= b), "{most:?}");
        let power = |p: &NetworkPrediction| Trust::of(p).doubts.into_iter().any(|d| d.cause == Cause::Power);
        assert!(power(&p));
        p.widths.power = Default::default();
        assert!(!power(&p), "power that is sure makes nothing wide");
        Ok(())
    }

    /// The grades' names promise something of models; shipped ones keep it.
    #[test]
    fn grades_are_what_models_err() -> Outcome {
        let is_usual = |m: &LayerModel| {
            let classes = [ConvClass::General, ConvClass::Plain1x1, ConvClass::Plain3x3].map(ModelKey::Conv);
            m.phase == Phase::Forward
                && m.precision == Precision::Fp32
                && m.family == Family::Gemm
                && classes.contains(&m.key)
        };
        let mut seen = 0;
        for (name, _) in catalog::calibration_files() {
            let Some(calibration) = catalog::calibration(name)? else { continue };
            let of_all = name == "all_chips";
            for model in calibration.models.iter().filter(|m| is_usual(m)) {
                let (error, at_most) = (model.cross_validation.mape / 100.0, if of_all { FAIR } else { GOOD });
                assert!(error <= at_most, "{name} {}: {error}", model.key);
                assert!(!of_all || error > GOOD, "{name} {}: {error} is as good as a chip's own", model.key);
                seen += 1;
            }
        }
        assert!(seen > 15, "{seen}");
        Ok(())
    }
}
