//! Intervals of a whole network from those of its layers.

use super::Estimate;
use crate::base::number::Number;
use crate::base::units::{Joules, Seconds, Watts};
use crate::law::calibration::Factors;

/// A half-width as networks' layers usually say; factors are relative to it, so that its size does not matter.
const USUAL: f64 = 0.3;

/// Half-widths below and above a value on a logarithmic scale, neither negative.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Width(pub f64, pub f64);

/// Time, power and energy of a network.
pub type Intervals = (Estimate<Seconds>, Estimate<Watts>, Estimate<Joules>);

/// Time and energy of a step.
pub(super) type Outcome = (Seconds, Joules);

/// What time, power and energy err beside what kernels err: away from the default clock by the laws that carry them, and
/// by a host whose speed is not known.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Carried {
    time: Width,
    power: Width,
    energy: Width,
}

/// What a step is expected to err, and what of its intervals is no kernel's.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Doubts {
    /// Mean error that is expected of the kernels' times, as a share of the step's.
    pub kernels: f64,
    /// Mean error that is expected of the law of power, as a share of power.
    pub power: f64,
    /// By how much hosts differ.
    pub hosts: Carried,
    /// By how much laws err that carry times and powers away from the default clocks.
    pub clocks: Carried,
}

/// What whole networks showed of the intervals of networks.
#[derive(Clone, Copy, Debug)]
pub struct Shown {
    /// Factors of the pooled half-widths of time, power and energy.
    pub factors: [Factors; 3],
    /// Whether they ran on that very board; of others they say no more than that more is open.
    pub on_board: bool,
}

/// Of two independent errors. Half-widths of logarithms are small, so that nothing overflows.
fn both(a: f64, b: f64) -> f64 {
    (a * a + b * b).sqrt()
}

impl Carried {
    /// A half-width of all three, and what a step comes to if the voltage rises as little and as much as is likely.
    pub(super) fn new(of_laws: f64, (time, energy): Outcome, likely: &[Outcome]) -> Self {
        let mut edges = [(0.0f64, 0.0f64); 3];
        for two in likely.chunks(2) {
            // Of what there is none, nothing differs.
            let mut ratios = [1.0; 6];
            for (ratios, (t, e)) in ratios.chunks_exact_mut(3).zip(two) {
                ratios.copy_from_slice(&[*t / time, (*e / *t) / (energy / time), *e / energy]);
            }
            for (log, i) in f64::ln_of_each(ratios).into_iter().zip((0..3).cycle()) {
                edges[i] = (edges[i].0.min(log), edges[i].1.max(log));
            }
        }
        let [time, power, energy] = edges.map(|(low, high)| Width(both(-low, of_laws), both(high, of_laws)));
        Self { time, power, energy }
    }

    /// Half-widths of time, power and energy, each the mean of both sides.
    pub fn half_widths(&self) -> [f64; 3] {
        [self.time, self.power, self.energy].map(|Width(low, high)| (low + high) / 2.0)
    }

    /// With an independent error besides.
    pub(super) fn and(self, other: Self) -> Self {
        Self {
            time: self.time.and(other.time),
            power: self.power.and(other.power),
            energy: self.energy.and(other.energy),
        }
    }
}

impl Width {
    fn of(estimate: &Estimate<Seconds>) -> Self {
        let Estimate { value, p05, p95 } = *estimate;
        Self((value / p05).ln().max(0.0), (p95 / value).ln().max(0.0))
    }

    /// Halfway, on a logarithmic scale, from what a network's own layers say to what is usual, and the same on both sides: how
    /// far whole networks are off follows their layers' intervals so far, and no further (MODELLING.md, "Decisions").
    pub fn pooled(self) -> Self {
        let half = ((self.0 * self.1).sqrt() * USUAL).sqrt();
        Self(half, half)
    }

    /// What whole networks showed, where they did.
    fn scaled(self, shown: Option<Shown>, of: impl Fn(&[Factors; 3]) -> Factors) -> Self {
        let Some(shown) = shown else { return self };
        let ((low, high), pooled) = (of(&shown.factors), self.pooled());
        let scaled = Self(pooled.0 * low, pooled.1 * high);
        if shown.on_board { scaled } else { scaled.at_least(self) }
    }

    /// No narrower than another.
    fn at_least(self, other: Self) -> Self {
        Self(self.0.max(other.0), self.1.max(other.1))
    }

    /// With an independent error besides.
    fn and(self, error: Self) -> Self {
        Self(both(self.0, error.0), both(self.1, error.1))
    }
}

/// Half-widths of a network's time, power and energy as its layers' intervals give them, before whole networks were
/// compared.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Widths {
    /// All layers err alike.
    pub time: Width,
    /// That of the law of power.
    pub power: Width,
    /// Errors of time and power are independent: half-widths add in squares.
    pub energy: Width,
    /// That of time and energy at the least, whatever whole networks showed: kernels that are not alike err independently.
    pub least: Width,
}

impl Widths {
    /// From the summed interval of time, what kernels leave open at the least, and the log quantiles of the law of power.
    pub fn new(time: &Estimate<Seconds>, least: Width, power: (f64, f64)) -> Self {
        let time = Width::of(time);
        // Where a step waits for its host, its kernels' times hardly matter.
        let least = Width(least.0.min(time.0), least.1.min(time.1));
        let power = Width(-power.0, power.1);
        Self { time, power, energy: Width(both(time.0, power.0), both(time.1, power.1)), least }
    }

    /// The intervals of a network's time, power and energy; `carried` is what laws of clock and power that carry them from
    /// the default clock err. No more power than the limit, unless the step cannot keep
    /// it, and no more energy than that over the longest time.
    pub fn intervals(
        &self,
        time: Seconds,
        energy: Joules,
        limit: Watts,
        shown: Option<Shown>,
        carried: Carried,
    ) -> Intervals {
        let power = energy / time;
        let limit = if power <= limit { limit } else { Watts::new(f64::INFINITY) };
        let Width(low, high) = self.time.scaled(shown, |[time, ..]| *time).at_least(self.least).and(carried.time);
        let time = Estimate { value: time, p05: time * (-low).exp(), p95: time * high.exp() };
        let Width(low, high) = self.power.scaled(shown, |[_, power, _]| *power).and(carried.power);
        let power = Estimate { value: power, p05: power * (-low).exp(), p95: (power * high.exp()).min(limit) };
        let energies = self.energy.scaled(shown, |[.., energy]| *energy).at_least(self.least);
        let Width(low, high) = energies.and(carried.energy);
        let most = limit * time.p95;
        let energy = Estimate { value: energy, p05: energy * (-low).exp(), p95: (energy * high.exp()).min(most) };
        (time, power, energy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::precision::Mode;
    use crate::law::calibration::NetworkSpread;

    fn sum() -> Estimate<Seconds> {
        Estimate { value: Seconds::new(1.0), p05: Seconds::new(0.5), p95: Seconds::new(2.0) }
    }

    #[test]
    fn factors_narrow_the_sum_of_the_layers() {
        let widths = Widths::new(&sum(), Width::default(), (-0.1, 0.2));
        let (time, power, energy) =
            widths.intervals(Seconds::new(1.0), Joules::new(100.0), Watts::new(300.0), None, Carried::default());
        assert!((time.p05.get() - 0.5).abs() < 1e-12 && (time.p95.get() - 2.0).abs() < 1e-12);
        assert!((power.p95.get() - 100.0 * 0.2f64.exp()).abs() < 1e-9);
        assert!((energy.p05.get() - 100.0 * (-(2f64.ln().hypot(0.1))).exp()).abs() < 1e-9);
        let spread = NetworkSpread {
            framework: "cudnn".into(),
            mode: Mode::Inference,
            launch_bound: false,
            time: (0.5, 0.0),
            power: (1.0, 2.0),
            energy: (0.0, 0.0),
            networks: 12,
            names: Vec::new(),
            runs: 50,
            held: (0.9, 0.9, 0.9),
        };
        let (time, power, energy) = widths.intervals(
            Seconds::new(1.0),
            Joules::new(100.0),
            Watts::new(300.0),
            Some(Shown { factors: spread.factors(), on_board: true }),
            Carried::default(),
        );
        let usual = |half: f64| (half * USUAL).sqrt();
        assert!((time.p05.get() - (-0.5 * usual(2f64.ln())).exp()).abs() < 1e-12 && time.p95 == time.value);
        assert!((power.p95.get() - 100.0 * (2.0 * usual((0.1f64 * 0.2).sqrt())).exp()).abs() < 1e-9);
        assert_eq!((energy.p05, energy.p95), (energy.value, energy.value));
        // Of another board they only make more of what the layers say.
        let shown = Some(Shown { factors: [(0.5, 9.0), (1.0, 2.0), (0.0, 0.0)], on_board: false });
        let carried = Carried::default();
        let (time, ..) = widths.intervals(Seconds::new(1.0), Joules::new(100.0), Watts::new(300.0), shown, carried);
        assert!((time.p05.get() - 0.5).abs() < 1e-12, "{}", time.p05.get());
        assert!((time.p95.get() - (9.0 * usual(2f64.ln())).exp()).abs() < 1e-9);
    }

    #[test]
    fn what_other_clocks_are_carried_to_is_less_certain() {
        let widths = Widths::new(&sum(), Width::default(), (-0.1, 0.1));
        let one = (Seconds::new(1.0), Joules::new(100.0));
        let of = |carried| widths.intervals(one.0, one.1, Watts::new(300.0), None, carried);
        let at = |laws| of(Carried::new(laws, one, &[]));
        let (time, power, energy) = at(0.2);
        assert!((power.p05.get() - 100.0 * (-(0.1f64.hypot(0.2))).exp()).abs() < 1e-9);
        assert!(time.p95 > at(0.0).0.p95 && energy.p05 < at(0.0).2.p05);
        // A voltage that rises less leaves less to save, one that rises more saves time too.
        let likely = [(Seconds::new(1.0), Joules::new(130.0)), (Seconds::new(0.9), Joules::new(80.0))];
        let (time, power, energy) = of(Carried::new(0.0, one, &likely));
        let near = |found: f64, expected: f64| assert!((found - expected).abs() < 1e-9, "{found} {expected}");
        near(energy.p95.get(), 100.0 * 2f64.ln().hypot(0.1).hypot(1.3f64.ln()).exp());
        near(time.p05.get(), (-(2f64.ln().hypot((1.0 / 0.9f64).ln()))).exp());
        near(power.p05.get(), 100.0 * (-(0.1f64.hypot((0.9f64 / 0.8).ln()))).exp());
    }

    #[test]
    fn the_limit_bounds_power_and_energy() {
        let widths = Widths::new(&sum(), Width::default(), (-0.5, 0.5));
        let (time, power, energy) =
            widths.intervals(Seconds::new(1.0), Joules::new(290.0), Watts::new(300.0), None, Carried::default());
        assert_eq!(power.p95, Watts::new(300.0));
        assert!(energy.p95 <= Watts::new(300.0) * time.p95);
        let (_, beyond, _) =
            widths.intervals(Seconds::new(1.0), Joules::new(310.0), Watts::new(300.0), None, Carried::default());
        assert!(beyond.p95 > Watts::new(310.0), "a limit that does not hold bounds nothing");
    }
}
