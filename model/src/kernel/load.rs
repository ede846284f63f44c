//! Work on a device: its operations, its traffic, and what these would take at the device's peaks.

use crate::base::number::Number;
use crate::base::precision::{Phase, Precision};
use crate::base::units::{Bytes, BytesPerSecond, OpsPerSecond, Seconds};
use crate::device::gpu::Gpu;
use crate::kernel::alignment::narrowness;
use crate::kernel::family::Family;
use crate::kernel::work::Work;
use crate::net::cost::LayerCost;
use crate::net::layer::{Conv2d, Layer, Linear, ShapeError};

/// Launches of the kernels that sum the gradient of a bias over many blocks and then over these.
const BIAS_GRADIENT: Seconds = Seconds::from_us(4.0);

/// Launch of the kernel that makes fp8 of 16-bit inputs: the shortest fp8 products of NVIDIA AIConfigurator's tables take 1.5
/// (L40S) to 2.8 us (B200) longer than the shortest in bf16, on Hopper 1.8 and 1.9.
const QUANTISATION: Seconds = Seconds::from_us(1.8);

/// Launches of what writes keys and values into a cache before attention reads it: two copies of 2.0 us each through PyTorch
/// (H100, `data/measurements/h100/torch_language_profile.csv`), one kernel through others.
const CACHE_WRITE: Seconds = Seconds::from_us(4.0);

/// What a step of a recurrent layer takes at least, since multiprocessors wait for each other: the shortest of 1,108 LSTMs through
/// PyTorch took 0.66 us a step (H100, `data/measurements/h100/torch_recurrent.csv`), others up to 7.
const RECURRENT_STEP: Seconds = Seconds::from_us(0.5);

/// What one kernel has to do on one device, with its roofline times.
#[derive(Clone, Debug)]
pub struct Load<'a> {
    /// What runs: never a layer that runs another's kernels.
    pub work: Work<'a>,
    /// Operations and traffic of the layer.
    pub cost: LayerCost,
    /// The device.
    pub gpu: &'a Gpu,
    /// The memory that its traffic is seen over: the device's own, but for a model of another board.
    pub memory: Memory,
    /// What it would take at peak, by the algorithm that was asked for.
    pub roofline: Roofline,
    /// The same of the direct algorithm: max(ops / peak, bytes / bandwidth).
    pub bound: Seconds,
    /// Peak of what computes it.
    peak: OpsPerSecond,
}

/// What feeds a chip: boards of one chip may differ in it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Memory {
    /// Peak bandwidth.
    pub bandwidth: BytesPerSecond,
    /// Second-level cache, where known.
    pub cache: Option<Bytes>,
}

impl Memory {
    /// A device's own.
    pub fn of(gpu: &Gpu) -> Self {
        Self { bandwidth: gpu.bandwidth.value, cache: gpu.l2.as_ref().map(|l2| l2.value) }
    }
}

/// Times of a kernel's arithmetic and of its traffic at the device's peaks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Roofline {
    /// Arithmetic at peak, and the waiting within.
    pub compute: Seconds,
    /// What of that is waiting: for the steps of a recurrent layer, which only run one after the other.
    pub waiting: Seconds,
    /// Traffic at peak bandwidth.
    pub memory: Seconds,
    /// How many times as long arithmetic takes because operands are not aligned; at least 1.
    pub narrow: f64,
    /// A second kernel that runs before or after the first: the one that adds a convolution's bias, or sums a bias's
    /// gradient, or converts 16-bit inputs to fp8; and the launch of what writes into attention's cache.
    pub second: Seconds,
    /// What of that is waiting, and moves nothing: all but a bias and a conversion.
    pub stalls: Seconds,
}

impl Roofline {
    /// Traffic at peak bandwidth, a second kernel's too.
    pub fn traffic(&self) -> Seconds {
        self.memory + (self.second - self.stalls)
    }

    /// Arithmetic at the rate that its operands' alignment allows, without the waiting.
    pub fn arithmetic(&self) -> Seconds {
        (self.compute - self.waiting) * self.narrow
    }

    /// max(ops / peak, bytes / bandwidth).
    pub fn bound(&self) -> Seconds {
        self.compute.max(self.memory)
    }

    /// Smooth roofline with a floor, and what runs after it: (t_comp^p + t_mem^p + t0^p)^(1/p) + t_second.
    pub fn reference(&self, exponent: u32, floor: Seconds) -> Seconds {
        let [compute, memory, second] = [self.compute, self.memory, self.second].map(Seconds::get);
        let amounts = Amounts { batch: 0.0, ops: 0.0, bytes: 0.0, weights: 0.0, compute, memory, second };
        Seconds::new(amounts.reference(self.narrow, exponent, floor))
    }
}

/// What of a load goes with its batch, for one batch or for several side by side: all that a model's variables see of it beside
/// shapes and device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Amounts<V> {
    /// Samples.
    pub batch: V,
    /// Operations.
    pub ops: V,
    /// Traffic in bytes.
    pub bytes: V,
    /// Parameters, in bytes.
    pub weights: V,
    /// Fields of the [`Roofline`], in seconds.
    pub compute: V,
    pub memory: V,
    pub second: V,
}

impl<V: Copy> Amounts<V> {
    /// What a function makes of each of these and of others.
    #[inline(always)]
    pub fn with<U>(&self, other: &Self, of: impl Fn(V, V) -> U) -> Amounts<U> {
        Amounts {
            batch: of(self.batch, other.batch),
            ops: of(self.ops, other.ops),
            bytes: of(self.bytes, other.bytes),
            weights: of(self.weights, other.weights),
            compute: of(self.compute, other.compute),
            memory: of(self.memory, other.memory),
            second: of(self.second, other.second),
        }
    }
}

impl<V: Number> Amounts<V> {
    /// [`Roofline::reference`] of these, where operands are as aligned as a roofline says, in seconds.
    pub fn reference(&self, narrow: f64, exponent: u32, floor: Seconds) -> V {
        let (compute, floor) = (self.compute * narrow, floor.get());
        let smooth = match exponent {
            1 => compute + self.memory + floor,
            2 => (compute * compute + self.memory * self.memory + floor * floor).sqrt(),
            4 => {
                let fourth = |t: V| (t * t) * (t * t);
                (fourth(compute) + fourth(self.memory) + floor.powi(4)).sqrt().sqrt()
            }
            p => {
                let power = |t: V| (t.ln() * f64::from(p)).exp();
                let sum = power(compute) + power(self.memory) + floor.powi(p as i32);
                (sum.ln() / f64::from(p)).exp()
            }
        };
        smooth + self.second
    }
}

impl Load<'_> {
    /// The shortest that attention of any kind takes on the device, however it runs: its operations at the peak of its precision,
    /// or its traffic but what the second-level cache may hold of it from before. Zero of other layers, whose algorithms may do
    /// with fewer operations and whose maps need not all be read.
    pub fn attention_bound(&self, held: Bytes) -> Seconds {
        if self.work.layer().causal().is_none() {
            return Seconds::ZERO;
        }
        let moved = Bytes::new(self.cost.bytes().get().saturating_sub(held.get())) / self.gpu.bandwidth.value;
        let computed = self.gpu.peak_on(self.work.precision).map_or(Seconds::ZERO, |peak| self.cost.ops / peak);
        moved.max(computed)
    }

    /// Of its own batch.
    pub(crate) fn amounts(&self) -> Amounts<f64> {
        let Roofline { compute, memory, second, .. } = self.roofline;
        let [compute, memory, second] = [compute, memory, second].map(Seconds::get);
        let (batch, ops, bytes) = (self.work.batch as f64, self.cost.ops.to_f64(), self.cost.bytes().to_f64());
        Amounts { batch, ops, bytes, weights: self.cost.weights.to_f64(), compute, memory, second }
    }
}

impl<'a> Work<'a> {
    /// What the steps of a recurrent layer take however little they compute; nothing in all others.
    fn waiting(&self) -> Seconds {
        match (self.layer(), self.phase) {
            (Layer::Recurrent(recurrent), Phase::Forward | Phase::BackwardData) => {
                RECURRENT_STEP * recurrent.steps(self.inputs()) as f64
            }
            _ => Seconds::ZERO,
        }
    }

    /// What launching the write into attention's cache takes; nothing in all others.
    fn stalls(&self) -> Seconds {
        match (self.layer(), self.phase) {
            // Of another sequence's cache nothing is written but with the prompt.
            (Layer::Attention(attention), Phase::Forward) if attention.context.is_some() && attention.decodes() => {
                Seconds::ZERO
            }
            (Layer::Attention(attention), Phase::Forward) if attention.cached.is_some() => CACHE_WRITE,
            _ => Seconds::ZERO,
        }
    }

    /// It on a device. `None` where no kernel runs, or the device has no peak for the precision.
    ///
    /// # Errors
    /// When the layer does not take its inputs.
    pub fn on(self, gpu: &'a Gpu) -> Result<Option<Load<'a>>, ShapeError> {
        Ok(self.cost()?.and_then(|cost| self.costing(cost, gpu)))
    }

    /// The same where the cost is known, or is that of more than one layer together. A layer that takes another's kernels
    /// is on the device as that one ([`Work::twin`]), at its own cost.
    pub fn costing(self, cost: LayerCost, gpu: &'a Gpu) -> Option<Load<'a>> {
        self.costing_over(cost, gpu, Memory::of(gpu))
    }

    /// The same as if the device had another memory.
    pub fn costing_over(self, cost: LayerCost, gpu: &'a Gpu, memory: Memory) -> Option<Load<'a>> {
        let work = self.twin().unwrap_or(self);
        let peak = match work.family() {
            Family::Gemm => gpu.peak_on(work.precision)?,
            Family::Stream => gpu.vector_peak(),
        };
        let (narrow, stalls, waiting) = (narrowness(&work, gpu), work.stalls(), work.waiting());
        let [compute, traffic, second] = [Seconds::ZERO; 3];
        let roofline = Roofline { compute, waiting, memory: traffic, narrow, second, stalls };
        let mut load = Load { work, cost, gpu, memory, bound: Seconds::ZERO, roofline, peak };
        load.take(cost);
        Some(load)
    }
}

impl Load<'_> {
    /// Makes it the same kernel over another batch, at the cost that it has there.
    pub(crate) fn over(&mut self, batch: u64, cost: LayerCost) {
        self.work.batch = batch;
        self.take(cost);
    }

    /// What a cost takes at peak: all of the roofline that a batch changes.
    fn take(&mut self, cost: LayerCost) {
        let Self { work, memory, roofline, .. } = self;
        let values = work.batch.saturating_mul(work.output.elements());
        let bytes = work.precision.bytes();
        let moved = |times: u64| Bytes::new(values.saturating_mul(times * bytes)) / memory.bandwidth;
        let compute = cost.ops / self.peak + roofline.waiting;
        (roofline.compute, roofline.memory) = (compute, cost.bytes() / memory.bandwidth);
        roofline.second = match (work.layer(), work.phase) {
            (Layer::Conv2d(conv), Phase::Forward) if conv.bias => moved(2),
            (
                Layer::Conv2d(Conv2d { bias: true, .. }) | Layer::Linear(Linear { bias: true, .. }),
                Phase::BackwardWeights,
            ) => moved(1) + BIAS_GRADIENT,
            (Layer::Linear(_) | Layer::Experts(_), Phase::Forward) if work.precision == Precision::Fp8 => {
                let inputs = work.input().elements();
                let each = work.precision.result_bytes() + bytes;
                Bytes::new(work.batch.saturating_mul(inputs).saturating_mul(each)) / memory.bandwidth + QUANTISATION
            }
            _ => roofline.stalls,
        };
        (self.cost, self.bound) = (cost, roofline.bound());
        self.by_algorithm();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::precision::Mode;
    use crate::base::shape::Shape;
    use crate::catalog;
    use crate::net::case::LayerCase;
    use crate::net::layer::Attention;

    /// A prompt is bound by its products, a token by its keys, of which a cache may hold some; other layers have no such bound.
    #[test]
    fn attention_is_bound_by_the_longer_of_products_and_traffic() {
        let gpu = catalog::gpu("h200").expect("shipped");
        let load = |new: u64, cached: u64| {
            let layer = Layer::Attention(Attention { causal: true, cached: Some(cached), ..Attention::of(32) });
            let case = LayerCase { inputs: vec![Shape::new(&[new, 3 * 32 * 128]).expect("a shape")], layer };
            let work = Work::usual(case, Phase::Forward, 1, Precision::Bf16, Mode::Inference).expect("fits");
            work.on(&gpu).expect("fits").expect("has a peak")
        };
        let peak = gpu.peak_on(Precision::Bf16).expect("has one");
        let (prompt, token) = (load(65_536, 0), load(1, 100_000));
        assert_eq!(prompt.attention_bound(Bytes::ZERO), prompt.cost.ops / peak);
        let moved = token.cost.bytes() / gpu.bandwidth.value;
        assert!(token.cost.ops / peak < moved);
        assert_eq!(token.attention_bound(Bytes::ZERO), moved);
        let half = Bytes::new(token.cost.bytes().get() / 2);
        assert!((token.attention_bound(half) / moved - 0.5).abs() < 1e-6);
        assert_eq!(token.attention_bound(token.cost.bytes()), token.cost.ops / peak);
        let case = LayerCase {
            inputs: vec![Shape::new(&[64, 4096]).expect("a shape")],
            layer: Layer::Linear(Linear { features: 4096, bias: false }),
        };
        let work = Work::usual(case, Phase::Forward, 8, Precision::Bf16, Mode::Inference).expect("fits");
        let linear = work.on(&gpu).expect("fits").expect("has a peak");
        assert_eq!(linear.attention_bound(Bytes::ZERO), Seconds::ZERO);
    }
}
