//! What adding a bias takes a framework beyond the library's own kernels.

use super::{Framework, KernelOf};
use crate::base::precision::{Phase, Precision};
use crate::base::shape::Shape;
use crate::base::units::Seconds;
use crate::device::gpu::Gpu;
use crate::kernel::load::Load;
use crate::net::layer::Layer;

impl Framework {
    /// How much longer than the library's (`roofline.second`) its kernel takes that adds the bias of a layer, or sums the
    /// bias's gradient; nothing where no bias is added apart. Rows that went through a framework hold it beside a kernel that
    /// is the library's.
    pub fn bias_beyond(&self, load: &Load<'_>, gpu: &Gpu) -> Seconds {
        let work = &load.work;
        // Beside a linear layer in fp8 its inputs are converted, before attention a cache is written: no bias is added.
        let is_bias = work.precision != Precision::Fp8 && !matches!(work.layer(), Layer::Attention(_));
        let ours = if is_bias { load.roofline.second } else { Seconds::ZERO };
        if ours == Seconds::ZERO {
            return Seconds::ZERO;
        }
        let is_map = work.inputs().first().is_some_and(Shape::is_map);
        let layout = is_map.then_some(work.layout);
        let kernel = KernelOf { kind: "bias", layer: work.layer(), phase: work.phase, layout };
        let (factor, extra) = self.slower(&kernel, work.batch);
        let results = (work.output.elements() * work.batch) as f64;
        // A bias of as many values as there are results is repeated nowhere.
        let repeated = work.batch > 1 || work.output.elements() > work.output.axis();
        let added = self.broadcast.filter(|_| work.phase == Phase::Forward && repeated);
        let added = added.map_or(Seconds::ZERO, |b| b.bias_beyond_latency(results, work.precision, gpu));
        let summed = self.sums.map_or(Seconds::ZERO, |s| s.bias_gradient(work, gpu));
        (ours * factor + extra).max(added.max(summed)) - ours
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::precision::Mode;
    use crate::catalog;
    use crate::kernel::work::Work;
    use crate::net::case::LayerCase;

    /// What PyTorch's bias takes beyond ours in a convolution of windows of one place over maps of so many places on an H200.
    fn beyond(bias: bool, phase: Phase, precision: Precision, (batch, side): (u64, u64)) -> Seconds {
        let fields = format!("channels = 64\nkernel = 1\nbias = {bias}").parse().expect("a table");
        let layer = Layer::from_table("conv2d", fields).expect("a kind").expect("fields");
        let case = LayerCase { inputs: vec![Shape::new(&[64, side, side]).expect("a shape")], layer };
        let (pytorch, gpu) = (catalog::framework("pytorch").expect("shipped"), catalog::gpu("h200").expect("shipped"));
        let work = Work::usual(case, phase, batch, precision, Mode::Training).expect("runs");
        let load = work.on(&gpu).expect("runs").expect("a peak");
        pytorch.bias_beyond(&load, &gpu)
    }

    #[test]
    fn a_bias_of_few_results_takes_no_longer_than_ours() {
        let small = |phase, precision| beyond(true, phase, precision, (1, 1)).get();
        assert!(small(Phase::Forward, Precision::Fp16) < 1e-8 && small(Phase::Forward, Precision::Fp32) < 1e-8);
        assert!(small(Phase::BackwardWeights, Precision::Fp32).abs() < 1e-9);
        assert!((small(Phase::BackwardWeights, Precision::Bf16) - 1.2e-6).abs() < 1e-8);
    }

    #[test]
    fn a_bias_of_many_results_is_bound_by_their_number_and_its_gradient_by_rows() {
        let large = |phase, precision| beyond(true, phase, precision, (64, 56)).get();
        // 12.8 million results at 379 billion a second, less what the library's traffic takes.
        let results = 64.0 * 64.0 * 56.0 * 56.0;
        let forward = large(Phase::Forward, Precision::Fp16);
        assert!((forward - (results / 379e9 - 4.0 * results / 4.8e12)).abs() < 0.1 * forward, "{forward}");
        // 200,704 rows of 64 columns.
        let rows = large(Phase::BackwardWeights, Precision::Bf16);
        assert!((20e-6..200e-6).contains(&rows), "{rows}");
        assert_eq!(large(Phase::BackwardWeights, Precision::Fp32), 0.0);
    }

    #[test]
    fn what_has_no_bias_takes_nothing() {
        for phase in [Phase::Forward, Phase::BackwardData, Phase::BackwardWeights] {
            assert_eq!(beyond(false, phase, Precision::Fp16, (64, 56)), Seconds::ZERO);
        }
        assert_eq!(beyond(true, Phase::BackwardData, Precision::Fp16, (64, 56)), Seconds::ZERO);
    }
}
