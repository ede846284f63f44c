//! What operands that are not aligned cost tensor cores.

use crate::base::precision::Precision;
use crate::device::gpu::Gpu;
use crate::kernel::work::Work;
use crate::net::layer::Layer;

/// Bytes of the widest load (`LDG.128`, `cp.async`, TMA), at whose multiples rows have to begin.
const WIDEST: u64 = 16;

/// How many times as long a product's arithmetic takes on a device because rows of its operands or of its result do not begin
/// at multiples of 16 bytes: they are then loaded 8, 4 or 2 bytes at a time, which is as much slower where arithmetic, not
/// memory, is what is waited for. 1 where they do, and off tensor cores. On an H200 products in 16 bits reach 750 TFLOP/s,
/// 280 with rows at multiples of 8 bytes, 200 of 4, 100 of 2 (`data/measurements/h200`). Convolutions are told from products:
/// cuDNN pads channels, or has kernels for few.
pub(super) fn narrowness(work: &Work<'_>, gpu: &Gpu) -> f64 {
    let last = |input: usize| work.inputs().get(input).map_or(WIDEST, |shape| shape.last());
    let rows = match work.layer() {
        Layer::Linear(linear) => [last(0), linear.features],
        Layer::Matmul(_) => [last(0), last(1)],
        _ => return 1.0,
    };
    // Whatever multiplies at more than twice the rate of fp32 lanes is no lane.
    let computes = gpu.computes_in(work.precision).unwrap_or(work.precision);
    let tensor = gpu.peak(computes).is_some_and(|peak| peak.get() > 2.0 * gpu.vector_peak().get());
    if computes == Precision::Fp32 || !tensor {
        return 1.0;
    }
    let bytes = work.precision.bytes();
    let alignment = |elements: u64| 1u64 << (elements * bytes).trailing_zeros().min(WIDEST.trailing_zeros());
    WIDEST as f64 / rows.map(alignment).into_iter().min().unwrap_or(WIDEST) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::precision::{Mode, Phase};
    use crate::base::shape::Shape;
    use crate::catalog;
    use crate::net::case::LayerCase;
    use crate::net::layer::Linear;

    fn of(gpu: &str, inputs: u64, features: u64, precision: Precision) -> f64 {
        let gpu = catalog::gpu(gpu).expect("shipped");
        let layer = Layer::Linear(Linear { features, bias: true });
        let case = LayerCase { inputs: vec![Shape::new(&[inputs]).expect("a shape")], layer };
        [Phase::Forward, Phase::BackwardData, Phase::BackwardWeights]
            .map(|phase| Work::usual(&case, phase, 7, precision, Mode::Training).expect("fits"))
            .map(|work| narrowness(&work, &gpu))
            .into_iter()
            .reduce(|a, b| if a == b { a } else { f64::NAN })
            .unwrap_or(f64::NAN)
    }

    #[test]
    fn the_less_aligned_of_the_rows_decides_on_tensor_cores_alone() {
        let half = |inputs, features| of("h200", inputs, features, Precision::Bf16);
        assert_eq!([half(64, 72), half(64, 68), half(66, 64), half(64, 50_257)], [1.0, 2.0, 4.0, 8.0]);
        let tf32 = |inputs, features| of("h200", inputs, features, Precision::Tf32);
        assert_eq!([tf32(64, 68), tf32(66, 64), tf32(64, 63)], [1.0, 2.0, 4.0]);
        assert_eq!(of("h200", 63, 63, Precision::Fp32), 1.0);
        assert_eq!(of("p100-sxm2", 63, 63, Precision::Fp16), 1.0, "lanes load what they need");
    }
}
