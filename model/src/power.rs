//! Power of a kernel where none was measured: a stated law of utilisation between idle and limit.
//!
//! P = idle + (limit - idle) min(1, 0.1 + s (0.35 + 0.45 u_comp + 0.4 u_mem)): u_comp and u_mem are the shares of peak
//! arithmetic and bandwidth that the predicted time implies, s the share of it that is not launch floor. The form is
//! that of Guerreiro et al. (2018) with the clock fixed; the constants are round numbers near 100 layer trials on one
//! H200 (an empty kernel 0.08; least squares over the others 0.56, 0.47, 0.50 with 22 % mean error), lowered so that
//! training on a V100 stays below its limit as published. A statement, not a measurement: tier `roofline`.

use crate::gpu::Gpu;
use crate::units::{Seconds, Watts};

const WAITING: f64 = 0.1;
const BUSY: f64 = 0.35;
const COMPUTE: f64 = 0.45;
const MEMORY: f64 = 0.4;
/// Lower and upper edge of the interval, as factors on the share between idle and limit.
const SPREAD: (f64, f64) = (0.55, 1.6);
/// Share of the limit that idle is taken as where it is not known.
const UNKNOWN_IDLE: f64 = 0.1;

/// The law for one device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PowerLaw {
    idle: Watts,
    limit: Watts,
}

/// A power with its interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PowerEstimate {
    /// Most likely.
    pub value: Watts,
    /// Lower edge.
    pub low: Watts,
    /// Upper edge, at most the limit.
    pub high: Watts,
}

impl PowerLaw {
    /// Between the device's idle power and its default limit.
    pub fn of(gpu: &Gpu) -> Self {
        let limit = gpu.power.limit.value;
        let idle = gpu.power.idle.as_ref().map_or(limit * UNKNOWN_IDLE, |p| p.value);
        Self { idle: idle.min(limit), limit }
    }

    /// Power of a kernel that would take `compute` at peak arithmetic, `memory` at peak bandwidth, `floor` to launch,
    /// and takes `time`.
    pub fn estimate(&self, compute: Seconds, memory: Seconds, floor: Seconds, time: Seconds) -> PowerEstimate {
        let share = |part: Seconds| if time > Seconds::ZERO { (part / time).clamp(0.0, 1.0) } else { 0.0 };
        let busy = BUSY + COMPUTE * share(compute) + MEMORY * share(memory);
        let activity = (WAITING + (1.0 - share(floor)) * busy).min(1.0);
        let at = |factor: f64| self.idle + (self.limit - self.idle) * (activity * factor).min(1.0);
        PowerEstimate { value: at(1.0), low: at(SPREAD.0), high: at(SPREAD.1) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::testing::toy;

    #[test]
    fn power_lies_between_idle_and_limit() {
        let law = PowerLaw::of(&toy());
        assert_eq!(law.idle, Watts::new(30.0));
        let busy = law.estimate(Seconds::new(1.0), Seconds::new(1.0), Seconds::ZERO, Seconds::new(1.0));
        assert_eq!((busy.value, busy.high), (Watts::new(300.0), Watts::new(300.0)));
        let waiting = law.estimate(Seconds::ZERO, Seconds::ZERO, Seconds::new(1.0), Seconds::new(1.0));
        assert!(waiting.low > law.idle && waiting.value < busy.value);
    }
}
