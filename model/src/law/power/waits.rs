//! Power of a device that computes nothing of its own, and how sure it is.

use super::{CONTEXT, waiting};
use crate::base::units::Watts;
use crate::device::gpu::Gpu;

/// Measured waiting power between cards of a board, hosts and temperatures (idle power of cards in `data/gpus`).
const MEASURED: (f64, f64) = (0.85, 1.2);
/// Waiting over idle power where waiting power is not known: 1.2 to 1.9 on boards for servers, 2.9 to 6.1 on others, of
/// which most is known (`data/gpus`).
const OF_IDLE: (f64, f64) = (1.2, 3.0);
/// Of two H100s or H200s that a host or the slower of both keeps waiting, shares of the range up to the limit: 5 %, middle
/// and 95 % of 31 pairs of steps with one GPU and two (`torch_ddp*.csv` of data/measurements): kernels of sums run
/// from when the first GPU comes until the last does.
const SPINNING: (f64, f64, f64) = (0.10, 0.18, 0.50);
/// The same of 19 pairs that the GPU decides: copies into buckets and back, and kernels that go on beside a sum.
const COPYING: (f64, f64, f64) = (0.75, 1.0, 1.5);

/// Power in a stretch of a step: the value, and what it is above and below with a probability of 5 % each.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Waits {
    /// Low end.
    pub p05: Watts,
    /// The value.
    pub value: Watts,
    /// High end.
    pub p95: Watts,
}

impl Waits {
    /// With a context, and nothing to do.
    pub fn idle(gpu: &Gpu) -> Self {
        let value = waiting(gpu);
        let (low, high) = match gpu.power.waiting {
            Some(_) => MEASURED,
            None => (OF_IDLE.0 / CONTEXT, OF_IDLE.1 / CONTEXT),
        };
        Self { p05: value * low, value, p95: (value * high).min(gpu.power.limit.value) }
    }

    /// With a kernel of a sum that waits for other GPUs.
    pub fn spinning(gpu: &Gpu) -> Self {
        Self::idle(gpu).and(gpu, SPINNING)
    }

    /// While gradients are copied into buckets and back.
    pub fn copying(gpu: &Gpu) -> Self {
        Self::idle(gpu).and(gpu, COPYING)
    }

    fn and(self, gpu: &Gpu, (low, middle, high): (f64, f64, f64)) -> Self {
        let range = gpu.power.limit.value - self.value;
        let (p05, p95) = (self.p05 + range * low, self.p95 + range * high);
        Self { p05, value: self.value + range * middle, p95 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog;

    #[test]
    fn what_was_not_measured_is_less_sure() {
        let relative = |gpu: &str| {
            let w = Waits::idle(&catalog::gpu(gpu).expect("shipped"));
            assert!(w.p05 < w.value && w.value < w.p95, "{gpu}");
            (w.p95 - w.p05) / w.value
        };
        assert!(relative("l40s") > 2.0 * relative("h200"), "an L40S's waiting power is not known");
        for gpu in catalog::gpu_names() {
            relative(gpu);
        }
    }

    #[test]
    fn sums_and_copies_draw_more_than_nothing_to_do() {
        let gpu = catalog::gpu("h200").expect("shipped");
        let [idle, spinning, copying] = [Waits::idle(&gpu), Waits::spinning(&gpu), Waits::copying(&gpu)];
        assert!(idle.value < spinning.value && spinning.p05 > idle.p05 && spinning.p95 > idle.p95);
        assert!((spinning.value.get() - (130.0 + 0.18 * 570.0)).abs() < 1e-9);
        assert!(spinning.p95 < copying.p95 && (copying.value / gpu.power.limit.value - 1.0).abs() < 1e-12);
    }
}
