//! Layers that run the kernels of another one: they are predicted, and fitted, as that one.

use crate::base::precision::{Phase, Precision};
use crate::base::shape::Shape;
use crate::base::units::{Bytes, Ops};
use crate::kernel::key::ModelKey;
use crate::kernel::work::Work;
use crate::net::case::LayerCase;
use crate::net::cost::LayerCost;
use crate::net::layer::Layer;

impl Work<'_> {
    /// The work of the layer whose kernels this one runs; `None` where it has kernels of its own.
    ///
    /// * A transposed convolution's forward pass is the gradient of the input of the convolution from its output to its
    ///   input, and the other way round; so cuDNN and every framework run it.
    /// * A convolution over volumes is one over maps per frame of the result, exactly so where its windows see one frame.
    pub fn twin(&self) -> Option<Work<'static>> {
        let (input, output) = (self.input(), self.output);
        let (case, output, batch, phase) = match (self.layer(), input.dims(), output.dims()) {
            (_, _, _) if self.phase == Phase::Update => return None,
            (Layer::ConvTranspose2d(conv), &[channels, ..], _) => {
                let layer = Layer::Conv2d(conv.mirrored(channels));
                let phase = match self.phase {
                    Phase::Forward => Phase::BackwardData,
                    Phase::BackwardData => Phase::Forward,
                    other => other,
                };
                (LayerCase { inputs: vec![output], layer }, input, self.batch, phase)
            }
            (Layer::Conv3d(conv), &[channels, _, height, width], &[features, frames, out_height, out_width]) => {
                let seen = Shape::map(channels, height.saturating_mul(conv.kernel.d), width).ok()?;
                let case = LayerCase { inputs: vec![seen], layer: Layer::Conv2d(conv.per_frame()) };
                let output = Shape::map(features, out_height, out_width).ok()?;
                (case, output, self.batch.saturating_mul(frames), self.phase)
            }
            _ => return None,
        };
        let Self { precision, mode, layout, cache, algorithm, optimizer, .. } = *self;
        let case = case.into();
        Some(Work { case, output, phase, batch, precision, mode, layout, cache, algorithm, optimizer })
    }

    /// The model of the kernels that a framework runs, where it was measured: those of volumes, of which a twin gives no
    /// more than their sizes, and those of products in 32 bits that add a bias, whose contraction PyTorch never splits.
    pub fn apart(&self) -> Option<ModelKey> {
        match self.layer() {
            _ if self.phase == Phase::Update => None,
            Layer::Conv3d(_) => Some(ModelKey::Kind(self.layer().kind())),
            Layer::Linear(linear) => {
                let forward = self.phase == Phase::Forward && self.precision == Precision::Fp32;
                (linear.bias && forward).then_some(ModelKey::LinearBiased)
            }
            _ => None,
        }
    }

    /// A kernel of its own that adds a transposed convolution's bias, or sums its gradient: what its twin, which has none,
    /// does not do. Element-wise additions over the result; `None` where there is none.
    pub fn bias_beside(&self) -> Option<LayerCost> {
        let Layer::ConvTranspose2d(conv) = self.layer() else { return None };
        let values = self.batch.saturating_mul(self.output.elements());
        let moved = Bytes::new(values.saturating_mul(self.precision.bytes()));
        let (read, written) = match self.phase {
            Phase::Forward => (moved, moved),
            Phase::BackwardWeights => (moved, Bytes::new(conv.channels.saturating_mul(self.precision.bytes()))),
            Phase::BackwardData | Phase::Update => return None,
        };
        conv.bias.then(|| LayerCost { ops: Ops::new(values), read, written, ..LayerCost::default() })
    }

    /// Whether its twin's are other kernels for as many products: windows over several frames.
    pub fn is_approximated(&self) -> bool {
        matches!(self.layer(), Layer::Conv3d(conv) if conv.kernel.d > 1) && self.phase != Phase::Update
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::precision::Mode;
    use crate::net::layer::{Conv3d, ConvTranspose2d, Groups, Pair, Triple};

    fn shape(dims: &[u64]) -> Shape {
        Shape::new(dims).expect("a test shape")
    }

    fn work(case: &LayerCase, phase: Phase) -> Work<'_> {
        Work::usual(case, phase, 3, Precision::Fp32, Mode::Training).expect("fits")
    }

    fn macs(case: &LayerCase, batch: u64, phase: Phase) -> u64 {
        case.cost(phase, batch, Precision::Fp32, Mode::Training).expect("fits").expect("runs").macs
    }

    #[test]
    fn a_twin_multiplies_as_much_and_fits() {
        let up = Layer::ConvTranspose2d(ConvTranspose2d {
            channels: 8,
            kernel: Pair::square(4),
            stride: Pair::square(2),
            padding: Pair::square(1),
            output_padding: Pair::square(0),
            dilation: Pair::square(1),
            groups: Groups::Count(1),
            bias: true,
        });
        let volume = |kernel| {
            Layer::Conv3d(Conv3d {
                channels: 8,
                kernel,
                stride: Triple { d: 1, h: 2, w: 2 },
                padding: Triple { d: kernel.d / 2, h: 1, w: 1 },
                dilation: Triple::cube(1),
                groups: Groups::Count(1),
                bias: false,
            })
        };
        for (layer, input) in [
            (up, shape(&[6, 7, 5])),
            (volume(Triple { d: 1, h: 3, w: 3 }), shape(&[6, 5, 9, 9])),
            (volume(Triple::cube(3)), shape(&[6, 5, 9, 9])),
        ] {
            let case = LayerCase { inputs: vec![input], layer };
            for phase in [Phase::Forward, Phase::BackwardData, Phase::BackwardWeights] {
                let twin = work(&case, phase).twin().expect("a twin");
                assert_eq!(twin.case.output(), Ok(twin.output), "{case:?}");
                assert_eq!(macs(&case, 3, phase), macs(&twin.case, twin.batch, twin.phase), "{case:?} {phase}");
            }
            assert_eq!(work(&case, Phase::Update).twin(), None);
            let volumes = matches!(case.layer, Layer::Conv3d(_)).then_some(ModelKey::Kind("conv3d"));
            assert_eq!(work(&case, Phase::BackwardData).apart(), volumes, "only frames have kernels of their own");
            assert_eq!(work(&case, Phase::Update).apart(), None);
        }
        let plain = Layer::Activation(crate::net::layer::Activation { function: crate::net::layer::Function::Relu });
        let map = shape(&[6, 7, 5]);
        let plain = LayerCase { inputs: vec![map], layer: plain };
        assert_eq!(plain.output(), Ok(map));
        assert_eq!(work(&plain, Phase::Forward).twin(), None);
    }
}
