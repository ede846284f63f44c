//! Layers that run the kernels of another one: they are predicted, and fitted, as that one.

use crate::base::precision::Phase;
use crate::base::shape::Shape;
use crate::base::units::{Bytes, Ops};
use crate::net::cost::LayerCost;
use crate::net::layer::Layer;
use crate::rows::measurement::LayerCase;

/// The layer whose kernels another one runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Twin {
    /// It, with its input shapes.
    pub case: LayerCase,
    /// Its output shape.
    pub output: Shape,
    /// Over so many samples.
    pub batch: u64,
    /// In this phase.
    pub phase: Phase,
    /// Whether these are other kernels for as many products.
    pub approximate: bool,
}

impl Twin {
    /// The twin of a layer in a phase; `None` where it has kernels of its own.
    ///
    /// * A transposed convolution's forward pass is the gradient of the input of the convolution from its output to its
    ///   input, and the other way round; so cuDNN and every framework run it.
    /// * A convolution over volumes is one over maps per frame of the result, exactly so where its windows see one frame.
    pub fn of(layer: &Layer, inputs: &[Shape], output: Shape, batch: u64, phase: Phase) -> Option<Self> {
        let input = *inputs.first()?;
        match (layer, input.dims(), output.dims()) {
            (_, _, _) if phase == Phase::Update => None,
            (Layer::ConvTranspose2d(conv), &[channels, ..], _) => {
                let layer = Layer::Conv2d(conv.mirrored(channels));
                let phase = match phase {
                    Phase::Forward => Phase::BackwardData,
                    Phase::BackwardData => Phase::Forward,
                    other => other,
                };
                let case = LayerCase { inputs: vec![output], layer };
                Some(Self { case, output: input, batch, phase, approximate: false })
            }
            (Layer::Conv3d(conv), &[channels, _, height, width], &[features, frames, out_height, out_width]) => {
                let seen = Shape::map(channels, height.saturating_mul(conv.kernel.d), width).ok()?;
                let case = LayerCase { inputs: vec![seen], layer: Layer::Conv2d(conv.per_frame()) };
                let output = Shape::map(features, out_height, out_width).ok()?;
                let approximate = conv.kernel.d > 1;
                Some(Self { case, output, batch: batch.saturating_mul(frames), phase, approximate })
            }
            _ => None,
        }
    }
}

/// A kernel of its own that adds a transposed convolution's bias, or sums its gradient: what its twin, which has none,
/// does not do. Element-wise additions over the result; `None` where there is none.
pub fn bias_beside(layer: &Layer, output: Shape, batch: u64, phase: Phase, bytes: u64) -> Option<LayerCost> {
    let Layer::ConvTranspose2d(conv) = layer else { return None };
    let values = batch.saturating_mul(output.elements());
    let moved = Bytes::new(values.saturating_mul(bytes));
    let (read, written) = match phase {
        Phase::Forward => (moved, moved),
        Phase::BackwardWeights => (moved, Bytes::new(conv.channels.saturating_mul(bytes))),
        Phase::BackwardData | Phase::Update => return None,
    };
    conv.bias.then(|| LayerCost { ops: Ops::new(values), read, written, ..LayerCost::default() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::precision::{Mode, Precision};
    use crate::net::layer::{Conv3d, ConvTranspose2d, Groups, LayerOp as _, Pair, Triple};

    fn shape(dims: &[u64]) -> Shape {
        Shape::new(dims).expect("a test shape")
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
            let output = case.output().expect("fits");
            for phase in [Phase::Forward, Phase::BackwardData, Phase::BackwardWeights] {
                let twin = Twin::of(&case.layer, &case.inputs, output, 3, phase).expect("a twin");
                assert_eq!(twin.case.output(), Ok(twin.output), "{case:?}");
                assert_eq!(macs(&case, 3, phase), macs(&twin.case, twin.batch, twin.phase), "{case:?} {phase}");
            }
            assert_eq!(Twin::of(&case.layer, &case.inputs, output, 3, Phase::Update), None);
        }
        let plain = Layer::Activation(crate::net::layer::Activation { function: crate::net::layer::Function::Relu });
        let map = shape(&[6, 7, 5]);
        assert_eq!(plain.output(&[map]), Ok(map));
        assert_eq!(Twin::of(&plain, &[map], map, 3, Phase::Forward), None);
    }
}
