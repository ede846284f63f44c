//! What the clocks do to a kernel's time, and to the core voltage behind its power.
//!
//! Clocks are relative: 1 is the boost clock that the device's peaks refer to, and its usual memory clock.

use crate::base::units::Seconds;
use crate::device::gpu::Gpu;

/// Kernels reach so much of the peak bandwidth when bound by it: that part of their time does not follow the core clock.
const REACHED: f64 = 0.85;
/// Where the knee is on a device whose file does not say: between those that are known, 0.65 to 0.87.
const USUAL_KNEE: f64 = 0.75;
/// How much the voltage rises from there to the boost clock: between those that are known, 0.1 to 0.3.
const USUAL_RISE: f64 = 0.2;

/// Core and memory clock, relative.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Clocks {
    /// Core clock over the boost clock.
    pub core: f64,
    /// Memory clock over the usual one.
    pub memory: f64,
}

impl Clocks {
    /// The boost clock and the usual memory clock.
    pub const FULL: Self = Self { core: 1.0, memory: 1.0 };
}

/// How many times as long a kernel takes at `to` as at `from`, where it takes `time` with traffic that needs `traffic` at
/// the peak bandwidth of the usual memory clock: what traffic takes follows the memory clock, the rest the core clock.
///
/// Single kernels turn more sharply from the one to the other ([`Pace`] with p = 4), if how much of their time is traffic
/// is measured. Here it is predicted, and the sum errs less over networks (reports/published/power.md).
pub fn slowdown(traffic: Seconds, time: Seconds, from: Clocks, to: Clocks) -> f64 {
    if time <= Seconds::ZERO {
        return 1.0;
    }
    let bound = (traffic / (time * REACHED * from.memory)).min(1.0);
    (1.0 - bound) * from.core / to.core + bound * from.memory / to.memory
}

/// Time of one kernel over the core clock: t(f) = ((a/f)^p + b^p)^(1/p), f relative.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pace {
    /// a: what follows the core clock, at the full one.
    pub following: Seconds,
    /// b: what does not.
    pub fixed: Seconds,
    /// p: 1 for a sum, more for a sharper turn.
    pub sharpness: f64,
}

impl Pace {
    /// Time at a relative clock.
    pub fn at(&self, clock: f64) -> Seconds {
        let power = |t: f64| t.powf(self.sharpness);
        let sum = power(self.following.get() / clock) + power(self.fixed.get());
        Seconds::new(sum.powf(1.0 / self.sharpness))
    }
}

/// Core voltage over the clock: constant up to a knee, then a straight line. Guerreiro et al. (HPCA 2018) measured that
/// shape on a GTX Titan X: 0.973 of the default voltage up to 823 MHz, 1.127 at 1164 MHz.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct VoltageCurve {
    /// Relative clock up to which the voltage is constant, below 1.
    knee: f64,
    /// What it gains from there to the boost clock, as a share of the constant voltage.
    rise: f64,
}

impl VoltageCurve {
    /// A curve; `None` unless the knee is within 0 to 1 (without 1) and the rise is not negative.
    pub fn new(knee: f64, rise: f64) -> Option<Self> {
        ((0.0..1.0).contains(&knee) && rise.is_finite() && rise >= 0.0).then_some(Self { knee, rise })
    }

    /// A device's curve, or the usual one where its file has none.
    pub fn of(gpu: &Gpu) -> Self {
        let knee = gpu.voltage.as_ref().map_or(USUAL_KNEE, |v| v.knee.value / gpu.core_clock.boost.value);
        let rise = gpu.voltage.as_ref().map_or(USUAL_RISE, |v| v.rise.value);
        Self { knee, rise }
    }

    /// Voltage at a relative clock over that at the boost clock.
    pub fn relative(&self, clock: f64) -> f64 {
        let voltage = |clock: f64| 1.0 + self.rise * ((clock - self.knee) / (1.0 - self.knee)).max(0.0);
        voltage(clock) / voltage(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn core(clock: f64) -> Clocks {
        Clocks { core: clock, memory: 1.0 }
    }

    #[test]
    fn arithmetic_follows_the_core_clock_and_traffic_the_memory_clock() {
        let second = Seconds::new(1.0);
        assert_eq!(slowdown(second, second, Clocks::FULL, core(0.5)), 1.0);
        assert!((slowdown(Seconds::ZERO, second, Clocks::FULL, core(0.5)) - 2.0).abs() < 1e-12);
        let slow_memory = Clocks { core: 1.0, memory: 0.5 };
        assert!((slowdown(second, second, Clocks::FULL, slow_memory) - 2.0).abs() < 1e-12);
        assert_eq!(slowdown(Seconds::ZERO, second, Clocks::FULL, slow_memory), 1.0);
    }

    #[test]
    fn a_pace_bends_between_its_two_limits() {
        let pace = Pace { following: Seconds::new(1.0), fixed: Seconds::new(1.0), sharpness: 4.0 };
        assert!((pace.at(0.1) / Seconds::new(10.0) - 1.0).abs() < 1e-3);
        assert!((pace.at(1.0).get() - 2f64.powf(0.25)).abs() < 1e-12);
        assert_eq!(Pace { sharpness: 1.0, ..pace }.at(0.5), Seconds::new(3.0));
    }

    #[test]
    fn there_and_back_takes_as_long_as_before() {
        let (traffic, time) = (Seconds::new(0.5), Seconds::new(1.0));
        let there = slowdown(traffic, time, Clocks::FULL, core(0.6));
        let back = slowdown(traffic, time * there, core(0.6), Clocks::FULL);
        assert!(there > 1.0 && there < 1.0 / 0.6, "{there}");
        assert!((there * back - 1.0).abs() < 1e-12);
    }

    #[test]
    fn voltage_is_constant_below_the_knee_and_rises_above() -> Result<(), String> {
        let curve = VoltageCurve::new(0.75, 0.25).ok_or("a valid curve")?;
        assert_eq!(curve.relative(1.0), 1.0);
        assert_eq!(curve.relative(0.75), 0.8);
        assert_eq!(curve.relative(0.3), 0.8);
        assert!((curve.relative(0.875) - 0.9).abs() < 1e-12);
        assert!(curve.relative(1.1) > 1.0);
        assert_eq!(VoltageCurve::new(1.0, 0.1), None);
        assert_eq!(VoltageCurve::new(0.5, f64::NAN), None);
        Ok(())
    }
}
