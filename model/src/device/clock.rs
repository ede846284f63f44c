//! What the clocks do to a kernel's time, and to the core voltage behind its power.
//!
//! Clocks are relative: 1 is the boost clock that the device's peaks refer to, and its usual memory clock.

use crate::base::number::Number;
use crate::base::units::Seconds;
use crate::device::gpu::Gpu;

/// Kernels reach so much of the peak bandwidth when bound by it: that part of their time does not follow the core clock.
const REACHED: f64 = 0.85;
/// Where the knee is on a device whose file does not say: between those that are known, 0.65 to 0.87.
const USUAL_KNEE: f64 = 0.75;
/// How much the voltage rises from there to the boost clock: between those that are known.
const USUAL_RISE: f64 = 0.2;
/// The least and the most that is known: a Titan X, and a Quadro RTX 6000 (data/gpus).
const KNOWN_RISES: (f64, f64) = (0.117, 0.478);
/// A rise that is known is as far off as the A100's two boards foretell each other's from their idle power
/// (`calibrate published voltage`), as a factor.
const RISE_ERROR: f64 = 1.25;
/// Idle power above its constant part: leakage over what the clock takes at the boost clock, both at one voltage. On both
/// A100s (`calibrate published voltage`).
pub const LEAKAGE: f64 = 2.8;

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

/// Share of a kernel's time at a relative memory clock that its traffic takes, if that needs `traffic` at the peak bandwidth
/// of the usual memory clock.
pub fn traffic_share(traffic: Seconds, time: Seconds, memory: f64) -> f64 {
    if time > Seconds::ZERO { (traffic / (time * REACHED * memory)).min(1.0) } else { 0.0 }
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
    let bound = traffic_share(traffic, time, from.memory);
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

    /// Relative clock up to which the voltage is constant.
    pub fn knee(&self) -> f64 {
        self.knee
    }

    /// A device's curve, or the usual one where its file has none.
    pub fn of(gpu: &Gpu) -> Self {
        let knee = gpu.voltage.as_ref().map_or(USUAL_KNEE, |v| v.knee.value / gpu.core_clock.boost.value);
        let rise = gpu.voltage.as_ref().map_or(USUAL_RISE, |v| v.rise.value);
        Self { knee, rise }
    }

    /// The least and the largest rise that is likely, the knee as it is: what the device's file says, else a quarter more
    /// or less than its rise; all that is known of any GPU where its file has no voltage.
    pub fn likely(gpu: &Gpu) -> [Self; 2] {
        let usual = Self::of(gpu);
        let (low, high) = match &gpu.voltage {
            None => KNOWN_RISES,
            Some(voltage) => match &voltage.likely {
                Some((low, high)) => (low.value, high.value),
                None => (usual.rise / RISE_ERROR, usual.rise * RISE_ERROR),
            },
        };
        [low, high].map(|rise| Self { rise, ..usual })
    }

    /// Idle power over the clock: 0 without a clock, 1 at the boost clock. Leakage goes with V^2 and what the clock itself
    /// takes with f V^2, as both A100s show (`calibrate published voltage`).
    pub fn idle_share(&self, clock: f64) -> f64 {
        let above = |clock: f64| self.relative(clock).powi(2) * (LEAKAGE + clock);
        (above(clock) - above(0.0)) / (above(1.0) - above(0.0))
    }

    /// The square of [`Self::relative`], and what it changes by per clock.
    #[inline(always)]
    pub(crate) fn squared<V: Number>(&self, clock: V) -> (V, V) {
        let (above, none) = (clock - self.knee, V::of(0.0));
        let (rise, most) = (self.rise / (1.0 - self.knee), 1.0 + self.rise);
        let relative = (above.max(none) * rise + 1.0) / most;
        (relative * relative, above.at_most(none, none, relative * 2.0 * rise / most))
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
    fn idle_power_rises_with_the_clock_and_faster_above_the_knee() -> Result<(), String> {
        let curve = VoltageCurve::new(0.75, 0.25).ok_or("a valid curve")?;
        assert_eq!((curve.idle_share(0.0), curve.idle_share(1.0)), (0.0, 1.0));
        let slope = |clock: f64| (curve.idle_share(clock + 0.01) - curve.idle_share(clock)) / 0.01;
        assert!((slope(0.2) - slope(0.6)).abs() < 1e-9, "a line below the knee");
        assert!(slope(0.8) > 4.0 * slope(0.6), "{} {}", slope(0.8), slope(0.6));
        // By hand: 0.64 (2.8 + 0.75) - 0.64 * 2.8 = 0.48 of 3.8 - 1.792.
        assert!((curve.idle_share(0.75) - 0.48 / 2.008).abs() < 1e-12);
        Ok(())
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
