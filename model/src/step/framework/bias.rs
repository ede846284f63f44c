//! What adding a bias takes a framework beyond the library's own kernels.

use super::{Framework, KernelOf};
use crate::base::precision::{Phase, Precision};
use crate::base::units::Seconds;
use crate::device::gpu::Gpu;
use crate::kernel::load::Load;
use crate::net::layer::Layer;

/// Dimensions of a map, which an order of dimensions is of.
const MAP: usize = 3;

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
        let is_map = work.inputs().first().is_some_and(|shape| shape.dims().len() >= MAP);
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
