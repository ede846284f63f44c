//! How much of the power of kernels with random operands a framework's kernels draw in networks.

use crate::base::file::{FileError, within};
use crate::base::number::Number;
use crate::base::precision::{Mode, Phase, Precision};
use crate::base::units::Seconds;
use crate::kernel::family::Family;
use crate::kernel::load::Load;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;

/// What tells kernels of a network from the same kernels measured alone, in order. They are part of the profile's format.
pub const TRAITS: [&str; 7] = ["training", "training_tf32", "fp16", "cached", "update", "dense", "brief"];
/// Most powers of e by which a second-level cache can be larger than what a kernel moves.
const MOST_CACHED: f64 = 3.0;
/// Kernels that take less are brief: the more so, the shorter they are.
const BRIEF: Seconds = Seconds::new(7e-6);
/// What a coefficient can be: a factor of e^2 either way.
const COEFFICIENTS: RangeInclusive<f64> = -2.0..=2.0;
/// What a kernel's factor can be.
const FACTOR: RangeInclusive<f64> = 0.1..=4.0;

/// Power above waiting relative to what the law of power says, which was fitted to kernels of random operands that are read
/// from memory: exp(ln factor + sum of coefficients times traits).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Activity {
    factor: f64,
    coefficients: [f64; TRAITS.len()],
}

impl Default for Activity {
    fn default() -> Self {
        Self { factor: 1.0, coefficients: [0.0; TRAITS.len()] }
    }
}

/// The [`TRAITS`] of a kernel in a step that moves so many bytes in so many seconds; `dense`: no layer of its network makes zeros
/// of half of its values, which switch nothing.
fn traits<V: Number>(load: &Load<'_>, (moved, time): (V, V), mode: Mode, dense: bool) -> [V; TRAITS.len()] {
    let is = |yes: bool| V::of(f64::from(u8::from(yes)));
    let work = &load.work;
    let stream = work.family() == Family::Stream;
    // What the kernel before wrote is still in the cache, and a byte from there costs less energy than one from memory.
    let cached = load.gpu.l2.as_ref().filter(|_| stream).map_or(V::of(0.0), |l2| {
        let share = V::of(l2.value.to_f64()) / moved.max(V::of(1.0));
        share.ln().between(0.0, MOST_CACHED)
    });
    let training = mode == Mode::Training;
    [
        is(training),
        is(training && !stream && work.precision == Precision::Tf32),
        is(work.precision == Precision::Fp16),
        cached,
        is(work.phase == Phase::Update),
        // In training runs show no difference.
        is(dense && !training),
        // Nor of this. What the law takes for launching and waiting is no rest where one kernel follows the other at once.
        if training { V::of(0.0) } else { (V::of(1.0) - time / BRIEF.get()).between(0.0, 1.0) },
    ]
}

impl Activity {
    /// By which factor a kernel that takes so long draws more above waiting in a network's step than the law of power says.
    pub fn of(&self, load: &Load<'_>, time: Seconds, mode: Mode, dense: bool) -> f64 {
        self.where_moved(load, (load.cost.bytes().to_f64(), time.get()), mode, dense)
    }

    /// The same where it moves so many bytes in so many seconds.
    pub(crate) fn where_moved<V: Number>(&self, load: &Load<'_>, moved: (V, V), mode: Mode, dense: bool) -> V {
        let factor = match self.coefficients.iter().all(|c| *c == 0.0) {
            true => V::of(1.0),
            false => {
                let terms = self.coefficients.iter().zip(traits(load, moved, mode, dense));
                terms.fold(V::of(0.0), |sum, (c, trait_)| sum + trait_ * *c).exp()
            }
        };
        (factor * self.factor).between(*FACTOR.start(), *FACTOR.end())
    }

    /// The logarithm of the factor of all kernels, then the coefficients of the [`TRAITS`].
    pub fn logarithms(&self) -> [f64; TRAITS.len() + 1] {
        let mut list = [self.factor.ln(); TRAITS.len() + 1];
        list[1..].copy_from_slice(&self.coefficients);
        list
    }

    /// Of [`Activity::logarithms`].
    pub fn from_logarithms(logarithms: &[f64; TRAITS.len() + 1]) -> Self {
        let mut coefficients = [0.0; TRAITS.len()];
        coefficients.copy_from_slice(&logarithms[1..]);
        Self { factor: logarithms[0].exp(), coefficients }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ActivityFile {
    factor: f64,
    #[serde(default)]
    terms: BTreeMap<String, f64>,
    #[serde(rename = "source")]
    _source: String,
}

impl ActivityFile {
    pub(super) fn read(self, factors: RangeInclusive<f64>) -> Result<Activity, FileError> {
        let factor = within("factor of activity", self.factor, factors)?;
        let mut coefficients = [0.0; TRAITS.len()];
        for (name, value) in self.terms {
            let Some(at) = TRAITS.iter().position(|t| *t == name) else {
                let message = format!("{} is none of {}", crate::base::text::shown(&name), TRAITS.join(", "));
                return Err(FileError::value("terms of activity", message));
            };
            coefficients[at] = within("terms of activity", value, COEFFICIENTS)?;
        }
        Ok(Activity { factor, coefficients })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::shape::Shape;
    use crate::catalog;
    use crate::kernel::work::Work;
    use crate::net::case::LayerCase;
    use crate::net::layer::{Activation, Function, Layer, Linear};

    fn case(layer: Layer, width: u64) -> LayerCase {
        LayerCase { inputs: vec![Shape::new(&[width]).expect("a shape")], layer }
    }

    #[test]
    fn traits_say_what_a_network_makes_of_a_kernel() {
        let gpu = catalog::gpu("h200").expect("shipped");
        let l2 = gpu.l2.as_ref().expect("a cache").value.to_f64();
        let of = |layer, width, phase, precision, mode| {
            let work = Work::usual(case(layer, width), phase, 64, precision, mode).expect("fits");
            let load = work.on(&gpu).expect("fits").expect("a peak");
            traits(&load, (load.cost.bytes().to_f64(), BRIEF.get()), mode, false)
        };
        let linear = Layer::Linear(Linear { features: 320, bias: true });
        let relu = Layer::Activation(Activation { function: Function::Relu });
        let (forward, train) = (Phase::Forward, Mode::Training);
        assert_eq!(of(linear.clone(), 320, forward, Precision::Tf32, train), [1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
        assert_eq!(of(linear, 320, forward, Precision::Fp16, Mode::Inference), [0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0]);
        // Read and written, four bytes each: an eighth of the cache, and more than it.
        let width = (l2 / 8.0 / (64.0 * 8.0)).round() as u64;
        let cached = of(relu.clone(), width, forward, Precision::Fp32, train);
        assert!((cached[3] - 8f64.ln()).abs() < 1e-3 && cached[1] == 0.0, "{cached:?}");
        assert_eq!(
            of(relu.clone(), 20 * width, forward, Precision::Tf32, train),
            [1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0],
            "no product"
        );
        assert_eq!(of(relu.clone(), 20 * width, forward, Precision::Fp32, train)[3], 0.0);
        assert_eq!(of(relu, 1, forward, Precision::Fp32, train)[3], MOST_CACHED);
    }

    #[test]
    fn an_update_is_told_from_the_layer_it_is_of() {
        let gpu = catalog::gpu("h200").expect("shipped");
        let linear = case(Layer::Linear(Linear { features: 4096, bias: true }), 8192);
        let optimizer = Some(crate::net::layer::Optimizer::Momentum);
        let work = Work::usual(linear, Phase::Update, 64, Precision::Fp32, Mode::Training).expect("fits");
        let work = Work { optimizer, ..work };
        let load = work.on(&gpu).expect("fits").expect("a peak");
        let found = traits(&load, (load.cost.bytes().to_f64(), 0.0), Mode::Training, false);
        assert_eq!(
            found,
            [1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0],
            "its 34 million parameters are more than the cache holds"
        );
    }

    #[test]
    fn a_factor_is_of_all_kernels_and_terms_of_some() {
        let gpu = catalog::gpu("h200").expect("shipped");
        let linear = case(Layer::Linear(Linear { features: 320, bias: true }), 320);
        let work = Work::usual(linear, Phase::Forward, 64, Precision::Tf32, Mode::Training).expect("fits");
        let load = work.on(&gpu).expect("fits").expect("a peak");
        let activity = Activity::from_logarithms(&[0.9f64.ln(), -0.2, -0.1, 5.0, 5.0, 5.0, 0.3, 0.4]);
        let at = |time, mode, dense| activity.of(&load, time, mode, dense);
        let of = |mode, dense| at(BRIEF, mode, dense);
        assert!((of(Mode::Training, false) - 0.9 * (-0.3f64).exp()).abs() < 1e-12);
        assert!((of(Mode::Inference, false) - 0.9).abs() < 1e-12);
        assert!((of(Mode::Inference, true) - 0.9 * 0.3f64.exp()).abs() < 1e-12);
        assert_eq!(
            of(Mode::Training, true),
            of(Mode::Training, false),
            "in training values without zeros draw no more"
        );
        let half = at(BRIEF * 0.5, Mode::Inference, false) / of(Mode::Inference, false);
        assert!((half.ln() - 0.2).abs() < 1e-12, "half of the time of a kernel that is not brief");
        assert_eq!(at(BRIEF * 2.0, Mode::Inference, false), of(Mode::Inference, false));
        assert_eq!(at(BRIEF * 0.5, Mode::Training, false), of(Mode::Training, false));
        let round = Activity::from_logarithms(&activity.logarithms());
        assert!(activity.logarithms().iter().zip(round.logarithms()).all(|(a, b)| (a - b).abs() < 1e-12));
        assert_eq!(Activity::default().of(&load, BRIEF, Mode::Training, true), 1.0);
    }
}
