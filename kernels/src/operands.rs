//! How large a trial's tensors are, and which of them its phase touches.

use crate::DeviceError;
use crate::streaming::{self, parameters_in_fp32};
use joulecast_model::base::precision::{Phase, Precision};
use joulecast_model::kernel::work::Trial;
use joulecast_model::net::layer::{Layer, LayerOp, ShapeError};

/// Where a bias begins behind the weights: the next multiple of this many bytes.
const BIAS_ALIGNMENT: u64 = 16;

/// Sizes in bytes of the tensors that a trial's phase reads or writes; 0: not touched.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sizes {
    /// Inputs.
    pub inputs: Vec<u64>,
    /// Output.
    pub output: u64,
    /// Gradient of the output.
    pub grad_output: u64,
    /// Gradients of the inputs.
    pub grad_inputs: Vec<u64>,
    /// Parameters.
    pub parameters: u64,
    /// Gradients of the parameters.
    pub grad_parameters: u64,
    /// Running mean and variance.
    pub running: u64,
    /// Fp32 master parameters.
    pub master: u64,
    /// Optimizer state.
    pub state: u64,
}

impl Sizes {
    /// Activations and their gradients.
    pub fn activations(&self) -> u64 {
        let maps: u64 = self.inputs.iter().chain(&self.grad_inputs).sum();
        maps + self.output + self.grad_output
    }
    /// Parameters, their gradients and what the optimizer keeps.
    pub fn learned(&self) -> u64 {
        self.parameters + self.grad_parameters + self.running + self.master + self.state
    }
}

/// Width of a parameter in bytes.
pub fn parameter_width(layer: &Layer, precision: Precision) -> u64 {
    if parameters_in_fp32(layer) { 4 } else { precision.bytes() }
}

/// Bytes from the beginning of the parameters to the bias of a convolution or linear layer.
pub fn bias_offset(trial: &Trial) -> u64 {
    let biases = match &trial.case.layer {
        Layer::Conv2d(layer) if layer.bias => layer.channels,
        Layer::ConvTranspose2d(layer) if layer.bias => layer.channels,
        Layer::Linear(layer) if layer.bias => layer.features,
        _ => 0,
    };
    let weights = trial.case.layer.parameters(&trial.case.inputs).saturating_sub(biases);
    (weights * trial.precision.bytes()).next_multiple_of(BIAS_ALIGNMENT)
}

/// Bytes of all parameters, with the gap before a bias.
pub fn parameter_bytes(trial: &Trial) -> u64 {
    let layer = &trial.case.layer;
    let count = layer.parameters(&trial.case.inputs);
    if count == 0 {
        return 0;
    }
    count * parameter_width(layer, trial.precision) + BIAS_ALIGNMENT
}

/// Sizes of what a trial touches.
///
/// # Errors
/// When the layer does not take these inputs.
pub fn sizes(trial: &Trial) -> Result<Sizes, ShapeError> {
    let output_shape = trial.case.output()?;
    let layer = &trial.case.layer;
    let bytes = |elements: u64| trial.batch * elements * trial.precision.bytes();
    let inputs: Vec<u64> = trial.case.inputs.iter().map(|s| bytes(s.elements())).collect();
    let output = bytes(output_shape.elements());
    let parameters = parameter_bytes(trial);
    let channels = trial.case.inputs.first().map_or(0, |s| s.axis());
    let running = if matches!(layer, Layer::BatchNorm(_)) { channels * 8 } else { 0 };
    let product = matches!(layer, Layer::Conv2d(_) | Layer::ConvTranspose2d(_) | Layer::Linear(_));
    let count = layer.parameters(&trial.case.inputs);
    Ok(match trial.phase {
        Phase::Forward => Sizes { inputs, output, parameters, running, ..Sizes::default() },
        Phase::BackwardData if product => {
            Sizes { grad_inputs: inputs, grad_output: output, parameters, ..Sizes::default() }
        }
        Phase::BackwardData => Sizes {
            grad_inputs: inputs.clone(),
            inputs,
            output,
            grad_output: output,
            parameters,
            grad_parameters: parameters,
            running,
            ..Sizes::default()
        },
        Phase::BackwardWeights => {
            Sizes { inputs, grad_output: output, grad_parameters: parameters, ..Sizes::default() }
        }
        Phase::Update => {
            let state = trial.optimizer.map_or(0, |o| o.state_per_parameter());
            let narrow = trial.precision.bytes() < 4 && !parameters_in_fp32(layer);
            Sizes {
                parameters,
                grad_parameters: parameters,
                master: if narrow { count * 4 + BIAS_ALIGNMENT } else { 0 },
                state: (count * 4 + BIAS_ALIGNMENT) * state,
                ..Sizes::default()
            }
        }
    })
}

/// Scratch memory of a trial's own kernels in bytes, a bias's gradient among them.
///
/// # Errors
/// When the layer does not take these inputs, or the precision has no kernels.
pub fn scratch(trial: &Trial) -> Result<u64, DeviceError> {
    let biased = match &trial.case.layer {
        Layer::Conv2d(layer) => layer.bias,
        Layer::ConvTranspose2d(layer) => layer.bias,
        Layer::Linear(layer) => layer.bias,
        _ => false,
    };
    if trial.phase == Phase::BackwardWeights && biased {
        let output = trial
            .case
            .output()
            .map_err(|e| DeviceError::Unsupported { what: trial.case.layer.kind().into(), why: e.to_string() })?;
        return streaming::bias_gradient_scratch(&output, trial.batch, trial.layout, trial.precision);
    }
    Ok(streaming::scratch(trial)?.get())
}

#[cfg(test)]
mod tests {
    use super::*;
    use joulecast_model::base::precision::Mode;
    use joulecast_model::base::shape::Shape;
    use joulecast_model::net::case::LayerCase;
    use joulecast_model::net::layer::{BatchNorm, Linear};

    fn trial(layer: Layer, dims: &[u64], phase: Phase, precision: Precision) -> Trial {
        let inputs = vec![Shape::new(dims).expect("shape")];
        Trial::usual(LayerCase { inputs, layer }, phase, 4, precision, Mode::Training).expect("fits")
    }

    #[test]
    fn a_linear_layer_touches_what_its_phase_needs() {
        let layer = || Layer::Linear(Linear { features: 10, bias: true });
        let forward = sizes(&trial(layer(), &[7], Phase::Forward, Precision::Fp16)).expect("fits");
        assert_eq!((forward.inputs[0], forward.output, forward.grad_output), (4 * 7 * 2, 4 * 10 * 2, 0));
        assert_eq!(bias_offset(&trial(layer(), &[7], Phase::Forward, Precision::Fp16)), 144);
        let weights = sizes(&trial(layer(), &[7], Phase::BackwardWeights, Precision::Fp32)).expect("fits");
        assert_eq!((weights.output, weights.grad_output, weights.parameters), (0, 160, 0));
        assert!(weights.grad_parameters >= 80 * 4);
    }

    #[test]
    fn norms_keep_their_parameters_in_fp32() {
        let norm = trial(Layer::BatchNorm(BatchNorm { affine: true }), &[8, 2, 2], Phase::Forward, Precision::Fp16);
        let found = sizes(&norm).expect("fits");
        assert_eq!((found.parameters, found.running), (8 * 2 * 4 + 16, 64));
    }
}
