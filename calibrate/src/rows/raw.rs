//! A layer as a user writes it: the sizes that NeuralPower's polynomials are of.

use joulecast_model::base::shape::Shape;
use joulecast_model::kernel::work::Work;
use joulecast_model::net::layer::Layer;

/// The parameters that a layer is written with.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RawParameters {
    /// Batch, input dimensions, window, output dimensions.
    pub sizes: Vec<f64>,
    /// Groups of a convolution; 1 of everything else.
    pub groups: f64,
}

impl RawParameters {
    /// Of a layer.
    pub fn of(work: &Work<'_>) -> Self {
        let (layer, inputs) = (work.layer(), work.inputs());
        let groups = match (layer, inputs) {
            (Layer::Conv2d(c), [input, ..]) => c.groups(input.dims().first().copied().unwrap_or(1)),
            _ => 1,
        };
        Self { sizes: sizes(layer, inputs, work.output, work.batch), groups: groups as f64 }
    }
}

fn sizes(layer: &Layer, inputs: &[Shape], output: Shape, batch: u64) -> Vec<f64> {
    let mut raw = vec![batch as f64];
    let dims = |shape: &Shape| shape.dims().iter().map(|&d| d as f64).collect::<Vec<_>>();
    raw.extend(inputs.iter().take(2).flat_map(dims));
    match layer {
        Layer::Conv2d(c) => raw.extend([c.kernel.h, c.stride.h, c.padding.h, c.channels].map(|v| v as f64)),
        Layer::Pool2d(p) => {
            raw.extend([p.kernel.h, p.stride.unwrap_or(p.kernel).h, p.padding.h].map(|v| v as f64));
        }
        _ => raw.extend(output.dims().last().map(|&d| d as f64)),
    }
    raw
}
