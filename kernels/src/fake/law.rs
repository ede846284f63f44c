//! The laws the fake obeys: what a fit to its rows should find.
//!
//! Time of one execution at core clock f: `((t_comp fmax/f)^4 + t_mem^4 + t0^4)^(1/4) * exp(e)`, with the roofline
//! times of `joulecast_model::kernel::features` and e a polynomial in a few of its variables. Where operands lie (hot or
//! cold) makes no difference. Power while busy: `P0 + a u (f/fmax) V(f)^2`, u the utilisation, V flat up to a knee.

use joulecast_model::base::units::{Hertz, Seconds, Watts};
use joulecast_model::device::gpu::Gpu;
use joulecast_model::kernel::family::Family;
use joulecast_model::kernel::load::Roofline;
use joulecast_model::kernel::setting::Algorithm;
use joulecast_model::kernel::work::{Trial, Work};
use joulecast_model::net::cost::LayerCost;
use joulecast_model::net::layer::Layer;

/// Time of the shortest kernel back to back.
pub const FLOOR: Seconds = Seconds::from_us(4.0);
/// Power with a context and nothing running.
pub const ACTIVE_IDLE: Watts = Watts::new(130.0);
/// Power that full utilisation adds at the highest clock.
const FULL_LOAD: Watts = Watts::new(1200.0);
/// Clock above which voltage rises, and its slope, both relative to the highest clock.
const KNEE: f64 = 0.75;
const VOLTAGE_SLOPE: f64 = 0.6;
/// Exponent of the smooth roofline.
const EXPONENT: u32 = 4;

/// What one execution has to do.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Effort {
    /// Arithmetic at peak and the highest clock.
    pub compute: Seconds,
    /// Traffic at peak bandwidth.
    pub memory: Seconds,
    /// How much longer than the smooth roofline it takes.
    pub factor: f64,
}

impl Effort {
    /// A trial's on a GPU; `None` where no kernel runs or the GPU has no peak for the precision.
    pub fn of_trial(trial: &Trial, gpu: &Gpu) -> Option<Self> {
        let work = Work { algorithm: Algorithm::Heuristic, ..trial.clone() };
        let effort = Self::of(work, trial.cost().ok()??, gpu)?;
        Some(Self { factor: effort.factor * slowdown(trial.algorithm), ..effort })
    }

    /// That of work that costs so much.
    pub fn of(work: Work<'_>, cost: LayerCost, gpu: &Gpu) -> Option<Self> {
        let load = work.costing(cost, gpu)?;
        let family = load.work.family();
        let variables = load.variables(FLOOR, 0.0);
        let value = |name: &str| {
            let position = family.variables().iter().position(|v| *v == name);
            position.map_or(0.0, |p| variables.values[p])
        };
        let efficiency = match family {
            Family::Gemm => {
                0.25 + 0.10 * value("pad_128x128") + 0.08 * value("few_128x128") + 0.05 * value("wave_64x64")
                    - 0.03 * value("k").clamp(-6.0, 6.0)
                    + 0.12 * value("strided")
            }
            Family::Stream => 0.15 + kind_offset(load.work.layer()) + 0.06 * value("few") + 0.03 * value("window"),
        };
        Some(Self { compute: load.roofline.compute, memory: load.roofline.memory, factor: efficiency.exp() })
    }

    /// Time of one execution at a clock relative to the highest.
    pub fn time(&self, clock: f64) -> Seconds {
        let roofline = Roofline {
            compute: self.compute / clock,
            memory: self.memory,
            narrow: 1.0,
            second: Seconds::ZERO,
            stalls: Seconds::ZERO,
            waiting: Seconds::ZERO,
        };
        roofline.reference(EXPONENT, FLOOR) * self.factor
    }

    /// Share of the multiprocessors' and the memory's ability in use at a relative clock, from 0.1 to 1.
    fn utilisation(&self, clock: f64) -> f64 {
        let time = self.time(clock);
        (0.1 + 0.65 * (self.compute / clock / time) + 0.3 * (self.memory / time)).min(1.0)
    }

    /// Power while it runs at a clock relative to the highest.
    pub fn power(&self, clock: f64) -> Watts {
        let voltage = |clock: f64| 1.0 + VOLTAGE_SLOPE * (clock - KNEE).max(0.0);
        ACTIVE_IDLE + FULL_LOAD * (self.utilisation(clock) * clock * (voltage(clock) / voltage(1.0)).powi(2))
    }

    /// The highest of these clocks, ascending, at which power keeps a limit; the lowest where none does.
    pub fn clock_under(&self, limit: Watts, clocks: &[Hertz]) -> Option<Hertz> {
        let highest = *clocks.last()?;
        clocks.iter().rev().copied().find(|f| self.power(*f / highest) <= limit).or(clocks.first().copied())
    }
}

/// Kinds of streaming kernels differ by a constant.
fn kind_offset(layer: &Layer) -> f64 {
    match layer {
        Layer::BatchNorm(_) | Layer::LayerNorm(_) => 0.08,
        Layer::Softmax(_) | Layer::LocalResponseNorm(_) => 0.15,
        _ => 0.0,
    }
}

/// How much slower an algorithm is than the library's choice.
fn slowdown(algorithm: Algorithm) -> f64 {
    match algorithm {
        Algorithm::Heuristic | Algorithm::ImplicitPrecompGemm => 1.0,
        Algorithm::ImplicitGemm | Algorithm::Winograd | Algorithm::WinogradNonfused => 1.2,
        Algorithm::Gemm | Algorithm::Fft | Algorithm::FftTiling => 1.6,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lower_clock_is_slower_and_draws_less() {
        let work = Effort { compute: Seconds::from_ms(1.0), memory: Seconds::from_ms(0.2), factor: 1.3 };
        assert!(work.time(0.5) > work.time(1.0));
        assert!(work.power(0.5) < work.power(1.0));
        assert!(work.power(0.2) >= ACTIVE_IDLE);
    }

    #[test]
    fn memory_bound_work_does_not_follow_the_clock() {
        let work = Effort { compute: Seconds::from_us(1.0), memory: Seconds::from_ms(1.0), factor: 1.0 };
        assert!((work.time(0.7) / work.time(1.0) - 1.0).abs() < 1e-6);
    }

    #[test]
    fn heavy_work_meets_the_cap_and_light_work_does_not() {
        let clocks: Vec<Hertz> = (20..=132).map(|i| Hertz::from_mhz(15.0 * f64::from(i))).collect();
        let limit = Watts::new(700.0);
        let heavy = Effort { compute: Seconds::from_ms(1.0), memory: Seconds::from_ms(0.3), factor: 1.0 };
        let capped = heavy.clock_under(limit, &clocks).expect("clocks");
        assert!(capped < Hertz::from_mhz(1900.0) && capped > Hertz::from_mhz(1000.0), "{capped}");
        assert!(heavy.power(capped / Hertz::from_mhz(1980.0)) <= limit);
        let light = Effort { compute: Seconds::from_us(1.0), memory: Seconds::from_us(2.0), factor: 1.0 };
        assert_eq!(light.clock_under(limit, &clocks), clocks.last().copied());
    }
}
