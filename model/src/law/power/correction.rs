//! What the law of power leaves of kernels' power: a sparse sum over logarithms of how a kernel uses the device, and classes.

use super::Activities;
use crate::base::number::Number;
use crate::base::precision::{Phase, Precision};
use crate::base::units::Seconds;
use crate::kernel::load::{Amounts, Load};
use crate::net::layer::{Function, Layer};

/// Names of the variables, in order: first logarithms, then from [`FLAGS`] on classes. They are part of the calibration
/// format.
pub const TRAITS: [&str; 19] = [
    "time",
    "occupied",
    "arithmetic",
    "traffic",
    "intensity",
    "bytes",
    "batch",
    "fp32",
    "tf32",
    "fp16",
    "bf16",
    "conv2d",
    "linear",
    "batch_norm",
    "add",
    "relu",
    "pooling",
    "backward_data",
    "backward_weights",
];
/// Where the classes begin.
pub const FLAGS: usize = 7;
/// Smaller shares count as this: one in ten thousand says nothing more about power.
const LEAST: f64 = 1e-4;

/// Values of the [`TRAITS`] of a kernel.
pub type Traits = [f64; TRAITS.len()];

/// ln of a kernel's power above waiting over what the law says. Products of traits predicted layers as well, and networks of
/// short kernels, which no energy row is of, 6 points worse.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Correction {
    /// The constant of the logarithm of the factor.
    pub intercept: f64,
    /// Positions of the variables with their coefficient.
    pub terms: Vec<(usize, f64)>,
    /// Lowest and highest value of each variable in the fitted rows; values beyond count as these.
    pub clamp: Vec<(f64, f64)>,
}

impl Correction {
    /// By which factor a kernel draws more above waiting than the law says.
    pub fn factor(&self, traits: &Traits) -> f64 {
        self.factor_of(traits)
    }

    #[inline(always)]
    pub(super) fn factor_of<V: Number>(&self, traits: &[V; TRAITS.len()]) -> V {
        let inside = |at: usize| self.clamp.get(at).map_or(traits[at], |&(low, high)| traits[at].between(low, high));
        self.terms.iter().fold(V::of(self.intercept), |sum, &(at, c)| sum + inside(at) * c).exp()
    }
}

/// The traits of a kernel that takes `time`.
pub fn traits(load: &Load<'_>, activities: &Activities, time: Seconds) -> Traits {
    traits_of(load, &load.amounts(), activities[0], time.get())
}

/// The same where so much is to be done, which occupies multiprocessors so far, in so many seconds.
#[inline(always)]
pub(super) fn traits_of<V: Number>(load: &Load<'_>, amounts: &Amounts<V>, occupied: V, time: V) -> [V; TRAITS.len()] {
    let least = V::of(LEAST);
    let bytes = amounts.bytes.max(V::of(1.0));
    // Products of fp8 hand on bf16.
    let stored = if load.work.precision == Precision::Fp8 { Precision::Bf16 } else { load.work.precision };
    let is = |yes: bool| V::of(f64::from(u8::from(yes)));
    let precision = |p: Precision| is(stored == p);
    let layer = load.work.layer();
    let [time, occupied, arithmetic, traffic, intensity, bytes, batch] = V::ln_of_each([
        time,
        occupied.max(least),
        (amounts.compute / time).max(least),
        (amounts.memory / time).max(least),
        amounts.ops.max(V::of(1.0)) / bytes,
        bytes,
        amounts.batch,
    ]);
    [
        time,
        occupied,
        arithmetic,
        traffic,
        intensity,
        bytes,
        batch,
        precision(Precision::Fp32),
        precision(Precision::Tf32),
        precision(Precision::Fp16),
        precision(Precision::Bf16),
        is(matches!(layer, Layer::Conv2d(_))),
        is(matches!(layer, Layer::Linear(_))),
        is(matches!(layer, Layer::BatchNorm(_))),
        is(matches!(layer, Layer::Add(_))),
        is(matches!(layer, Layer::Activation(a) if matches!(a.function, Function::Relu | Function::Relu6))),
        is(matches!(layer, Layer::Pool2d(_))),
        is(load.work.phase == Phase::BackwardData),
        is(load.work.phase == Phase::BackwardWeights),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_beyond_the_fitted_rows_count_as_their_edge() {
        let mut clamp = vec![(-1.0, 1.0); TRAITS.len()];
        clamp[0] = (-10.0, -5.0);
        let terms = vec![(0, 0.1), (1, 0.5)];
        let correction = Correction { intercept: 0.2, terms, clamp };
        let mut traits = [0.0; TRAITS.len()];
        (traits[0], traits[1]) = (-7.0, 0.5);
        assert!((correction.factor(&traits).ln() - (0.2 - 0.7 + 0.25)).abs() < 1e-12);
        traits[0] = -20.0;
        let edge = correction.factor(&traits);
        traits[0] = -10.0;
        assert_eq!(correction.factor(&traits), edge);
        assert_eq!(Correction::default().factor(&traits), 1.0);
    }

    #[test]
    fn traits_are_logarithms_of_what_a_kernel_does() {
        use crate::base::precision::{Mode, Phase};
        use crate::base::shape::Shape;
        use crate::kernel::work::Work;
        use crate::net::case::LayerCase;
        use crate::net::layer::{Layer, Linear};
        let gpu = crate::device::gpu::testing::toy();
        let layer = Layer::Linear(Linear { features: 320, bias: true });
        let case = LayerCase { inputs: vec![Shape::new(&[200]).expect("a shape")], layer };
        let work = Work::usual(case, Phase::Forward, 12, Precision::Fp32, Mode::Inference).expect("fits");
        let load = work.on(&gpu).expect("fits").expect("a peak");
        let cost = load.cost;
        let time = Seconds::from_us(40.0);
        let mut activities = [0.0; crate::law::power::COUNT];
        activities[0] = 0.25;
        let found = traits(&load, &activities, time);
        let bytes = (cost.read + cost.written).to_f64();
        let near =
            |i: usize, expected: f64| assert!((found[i] - expected).abs() < 1e-12, "{i}: {} {expected}", found[i]);
        near(0, 40e-6f64.ln());
        near(1, 0.25f64.ln());
        near(2, (load.roofline.compute / time).ln());
        near(3, (load.roofline.memory / time).ln());
        near(4, (cost.ops.to_f64() / bytes).ln());
        near(5, bytes.ln());
        near(6, 12f64.ln());
        assert_eq!(found[7..10], [1.0, 0.0, 0.0]);
    }
}
