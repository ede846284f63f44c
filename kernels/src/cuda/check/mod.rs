//! Whether the device computes what the layers mean: every kind and phase against the reference on the CPU.

mod storage;
mod trials;

pub use trials::trials;

use super::device::Gpu;
use super::runner::CudaRunner;
use crate::DeviceError;
use crate::launch::Operands;
use crate::operands::bias_offset;
use crate::reference::{self, Tensors};
use crate::streaming::parameters_in_fp32;
use joulecast_model::base::precision::{Mode, Phase, Precision};
use joulecast_model::base::shape::Shape;
use joulecast_model::kernel::setting::Algorithm;
use joulecast_model::kernel::work::Trial;
use joulecast_model::net::layer::{Layer, LayerOp};
use storage::{Storage, order, permuted, restored};

/// How a result compares.
#[derive(Clone, Debug, PartialEq)]
pub struct Agreement {
    /// What was compared: output, gradients and so on.
    pub tensor: String,
    /// Values compared.
    pub values: usize,
    /// Largest error in units of the tolerance; at most 1 agrees.
    pub worst: f64,
}

/// Pseudo-random numbers around 0 with variance 1: the sum of twelve uniform ones less six.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> f32 {
        let mut sum = -6.0;
        for _ in 0..12 {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            sum += (self.0 >> 40) as f32 / (1u64 << 24) as f32;
        }
        sum
    }

    fn values(&mut self, count: u64, storage: Storage) -> Vec<f32> {
        (0..count).map(|_| storage.round(self.next())).collect()
    }
}

/// Where tensors of a trial lie and how: the storage of activations, of parameters, of what is saved.
struct Formats {
    activations: Storage,
    parameters: Storage,
    saved: Storage,
}

fn formats(trial: &Trial) -> Formats {
    let activations = Storage::of(trial.precision);
    let parameters = if parameters_in_fp32(&trial.case.layer) { Storage::F32 } else { activations };
    let saved = match &trial.case.layer {
        Layer::Dropout(_) => Storage::Byte,
        Layer::LocalResponseNorm(_) => activations,
        _ => Storage::F32,
    };
    Formats { activations, parameters, saved }
}

/// What the trial reads, with everything that a forward pass would have left.
fn given(trial: &Trial, output: Shape) -> Result<Tensors, DeviceError> {
    let formats = formats(trial);
    let case = &trial.case;
    let mut noise = Noise(42);
    let count = |shape: &Shape| trial.batch * shape.elements();
    let parameters = case.layer.parameters(&case.inputs);
    let channels = case.inputs.first().map_or(0, Shape::axis);
    let mut running = noise.values(channels, Storage::F32);
    running.extend(noise.values(channels, Storage::F32).iter().map(|v| 0.5 + v.abs()));
    let state = trial.optimizer.map_or(0, |o| o.state_per_parameter()) * parameters;
    let mut given = Tensors {
        inputs: case.inputs.iter().map(|s| noise.values(count(s), formats.activations)).collect(),
        parameters: noise.values(parameters, formats.parameters),
        running,
        grad_output: noise.values(count(&output), formats.activations),
        grad_parameters: noise.values(parameters, formats.parameters),
        master: noise.values(parameters, Storage::F32),
        state: noise.values(state, Storage::F32).iter().map(|v| v.abs()).collect(),
        ..Tensors::default()
    };
    if trial.phase == Phase::BackwardData {
        let forward = Trial { phase: Phase::Forward, mode: Mode::Training, ..trial.clone() };
        let made = reference::run(&forward, &given)?;
        given.output = made.output.iter().map(|v| formats.activations.round(*v)).collect();
        given.saved = made.saved.iter().map(|v| formats.saved.round(*v)).collect();
    }
    Ok(given)
}

/// Order of a convolution's weights on the device.
fn weight_order(trial: &Trial) -> Vec<usize> {
    let channels_in = trial.case.inputs.first().map_or(1, Shape::axis);
    match &trial.case.layer {
        Layer::Conv2d(c) => {
            let depth = channels_in / c.groups(channels_in).max(1);
            order(&[depth, c.kernel.h, c.kernel.w], c.channels, trial.layout)
        }
        Layer::ConvTranspose2d(c) => {
            let depth = c.channels / c.groups(channels_in).max(1);
            order(&[depth, c.kernel.h, c.kernel.w], channels_in, trial.layout)
        }
        layer => (0..layer.parameters(&trial.case.inputs) as usize).collect(),
    }
}

/// Parameters as they lie on the device: weights in their layout, a gap, the bias.
fn encode_parameters(trial: &Trial, values: &[f32], storage: Storage) -> Vec<u8> {
    let order = weight_order(trial);
    let weights = order.len().min(values.len());
    let mut bytes = storage.encode(&permuted(&values[..weights], &order[..weights]));
    if values.len() > weights {
        bytes.resize(bias_offset(trial) as usize, 0);
        bytes.extend(storage.encode(&values[weights..]));
    }
    bytes
}

fn decode_parameters(trial: &Trial, bytes: &[u8], count: usize, storage: Storage) -> Vec<f32> {
    let order = weight_order(trial);
    let weights = order.len().min(count);
    let biases = count - weights;
    let mut values = restored(&storage.decode(&bytes[..weights * storage.width()]), &order[..weights]);
    if biases > 0 {
        let from = bias_offset(trial) as usize;
        values.extend(storage.decode(&bytes[from..from + biases * storage.width()]));
    }
    values
}

/// Order of what is saved: an element each, or a row of statistics.
fn saved_order(trial: &Trial, length: usize) -> Vec<usize> {
    let input = trial.case.inputs.first();
    match (&trial.case.layer, input) {
        (Layer::Dropout(_) | Layer::LocalResponseNorm(_), Some(s)) => order(s.dims(), trial.batch, trial.layout),
        _ => (0..length).collect(),
    }
}

fn upload(gpu: &mut Gpu, trial: &Trial, given: &Tensors, output: Shape, to: &Operands) -> Result<(), DeviceError> {
    let formats = formats(trial);
    let put = |address: u64, bytes: Vec<u8>| {
        if address == 0 || bytes.is_empty() { Ok(()) } else { gpu.upload(address, &bytes) }
    };
    for ((values, shape), address) in given.inputs.iter().zip(&trial.case.inputs).zip(&to.inputs) {
        let order = order(shape.dims(), trial.batch, trial.layout);
        put(*address, formats.activations.encode(&permuted(values, &order)))?;
    }
    let whole = order(output.dims(), trial.batch, trial.layout);
    for (address, values) in [(to.output, &given.output), (to.grad_output, &given.grad_output)] {
        if !values.is_empty() {
            put(address, formats.activations.encode(&permuted(values, &whole)))?;
        }
    }
    // An update treats parameters as one row, whatever the layer.
    if trial.phase == Phase::Update {
        put(to.parameters, formats.parameters.encode(&given.parameters))?;
        put(to.grad_parameters, formats.parameters.encode(&given.grad_parameters))?;
        put(to.master, Storage::F32.encode(&given.master))?;
        return put(to.state, Storage::F32.encode(&given.state));
    }
    put(to.parameters, encode_parameters(trial, &given.parameters, formats.parameters))?;
    put(to.running, Storage::F32.encode(&given.running))?;
    let saved = saved_order(trial, given.saved.len());
    put(to.saved, formats.saved.encode(&permuted(&given.saved, &saved)))
}

fn download(
    gpu: &Gpu,
    trial: &Trial,
    expected: &Tensors,
    output: Shape,
    from: &Operands,
) -> Result<Tensors, DeviceError> {
    let formats = formats(trial);
    let get = |address: u64, bytes: usize| -> Result<Vec<u8>, DeviceError> {
        let mut held = vec![0u8; bytes];
        if bytes > 0 && address != 0 {
            gpu.download(address, &mut held)?;
        }
        Ok(held)
    };
    let map = |address: u64, shape: &Shape, expected: &[f32]| -> Result<Vec<f32>, DeviceError> {
        if expected.is_empty() {
            return Ok(Vec::new());
        }
        let order = order(shape.dims(), trial.batch, trial.layout);
        let held = get(address, order.len() * formats.activations.width())?;
        Ok(restored(&formats.activations.decode(&held), &order))
    };
    let row = |address: u64, count: usize| -> Result<Vec<f32>, DeviceError> {
        Ok(Storage::F32.decode(&get(address, count * 4)?))
    };
    let mut grad_inputs = Vec::new();
    for ((address, shape), expected) in from.grad_inputs.iter().zip(&trial.case.inputs).zip(&expected.grad_inputs) {
        grad_inputs.push(map(*address, shape, expected)?);
    }
    let learned = |address: u64, count: usize| -> Result<Vec<f32>, DeviceError> {
        if count == 0 {
            return Ok(Vec::new());
        }
        if trial.phase == Phase::Update {
            return Ok(formats.parameters.decode(&get(address, count * formats.parameters.width())?));
        }
        let held = get(address, bias_offset(trial) as usize + (count + 4) * formats.parameters.width())?;
        Ok(decode_parameters(trial, &held, count, formats.parameters))
    };
    let saved_bytes = get(from.saved, expected.saved.len() * formats.saved.width())?;
    let saved = saved_order(trial, expected.saved.len());
    Ok(Tensors {
        inputs: Vec::new(),
        output: map(from.output, &output, &expected.output)?,
        grad_output: Vec::new(),
        grad_inputs,
        parameters: learned(from.parameters, expected.parameters.len())?,
        grad_parameters: learned(from.grad_parameters, expected.grad_parameters.len())?,
        running: row(from.running, expected.running.len())?,
        saved: if expected.saved.is_empty() {
            Vec::new()
        } else {
            restored(&formats.saved.decode(&saved_bytes), &saved)
        },
        master: row(from.master, expected.master.len())?,
        state: row(from.state, expected.state.len())?,
    })
}

/// Length of the sums in a phase.
fn reduction_length(trial: &Trial, output: Shape) -> u64 {
    let case = &trial.case;
    let Some(input) = case.inputs.first() else { return 1 };
    let positions = |shape: &Shape| trial.batch * shape.elements() / shape.axis().max(1);
    match (&case.layer, trial.phase) {
        (Layer::Conv2d(c), Phase::Forward) => c.filter(input.axis()),
        (Layer::Conv2d(c), Phase::BackwardData) => c.channels * c.kernel.area(),
        (Layer::ConvTranspose2d(c), Phase::Forward) => input.axis() * c.kernel.area(),
        (Layer::ConvTranspose2d(c), Phase::BackwardData) => c.channels * c.kernel.area(),
        (Layer::Linear(l), Phase::BackwardData) => l.features,
        (Layer::Conv2d(_) | Layer::ConvTranspose2d(_) | Layer::Linear(_), _)
            if trial.phase == Phase::BackwardWeights =>
        {
            positions(&output)
        }
        (Layer::Linear(_), _) => input.axis(),
        (Layer::Matmul(_), _) => input.dims().iter().chain(output.dims()).copied().max().unwrap_or(1),
        (Layer::BatchNorm(_) | Layer::LayerNorm(_) | Layer::Scale(_), _) => positions(input).max(input.axis()),
        (Layer::Softmax(_) | Layer::LocalResponseNorm(_), _) => input.axis(),
        _ => (input.elements() / output.elements().max(1)).max(4) * 4,
    }
}

/// What the library's algorithms err beyond plain sums: Winograd's transforms amplify rounding, and gradients of
/// weights in 16 bits may be joined from partial sums that are stored in 16 bits.
fn slack(trial: &Trial) -> f64 {
    let narrow = trial.precision.bytes() < 4;
    match (&trial.case.layer, trial.phase, trial.algorithm) {
        (_, _, Algorithm::Winograd | Algorithm::WinogradNonfused) => 4.0,
        (Layer::Conv2d(_) | Layer::ConvTranspose2d(_) | Layer::Linear(_), Phase::BackwardWeights, _) if narrow => 4.0,
        _ => 1.0,
    }
}

/// Runs a trial on the device and compares everything it writes with the reference.
///
/// # Errors
/// When the device cannot run it.
pub fn check(runner: &mut CudaRunner, trial: &Trial) -> Result<Vec<Agreement>, DeviceError> {
    let output = trial.case.output().map_err(|e| super::layer::misfit(trial, &e))?;
    let given = given(trial, output)?;
    let expected = reference::run(trial, &given)?;
    let operands = runner.run_once(trial, |gpu, operands| upload(gpu, trial, &given, output, operands))?;
    let found = download(runner.gpu(), trial, &expected, output, &operands)?;
    let length = reduction_length(trial, output);
    let mut list = Vec::new();
    let mut compare = |tensor: &str, found: &[f32], expected: &[f32], precision: Precision| {
        if expected.is_empty() {
            return;
        }
        let (relative, absolute) = reference::tolerance(precision, length);
        let absolute = absolute * slack(trial);
        let worst = found
            .iter()
            .zip(expected)
            .map(|(f, e)| f64::from((f - e).abs()) / (absolute + relative * f64::from(e.abs())))
            .fold(0.0, |worst: f64, error| if error.is_nan() { f64::INFINITY } else { worst.max(error) });
        let worst = if found.len() == expected.len() { worst } else { f64::INFINITY };
        list.push(Agreement { tensor: tensor.to_string(), values: expected.len(), worst });
    };
    let learned = if parameters_in_fp32(&trial.case.layer) { Precision::Fp32 } else { trial.precision };
    compare("output", &found.output, &expected.output, trial.precision);
    for (i, (found, expected)) in found.grad_inputs.iter().zip(&expected.grad_inputs).enumerate() {
        compare(&format!("gradient of input {i}"), found, expected, trial.precision);
    }
    compare("gradient of parameters", &found.grad_parameters, &expected.grad_parameters, learned);
    compare("saved", &found.saved, &expected.saved, trial.precision);
    compare("running statistics", &found.running, &expected.running, Precision::Fp32);
    compare("parameters", &found.parameters, &expected.parameters, learned);
    compare("master parameters", &found.master, &expected.master, Precision::Fp32);
    compare("optimizer state", &found.state, &expected.state, Precision::Fp32);
    Ok(list)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::streaming::{self, Limits};

    #[test]
    fn every_trial_has_a_reference_and_a_plan() {
        let list = trials().expect("valid sizes");
        assert!(list.len() > 800, "{}", list.len());
        let operands = |trial: &Trial| Operands {
            inputs: vec![512; trial.case.inputs.len()],
            grad_inputs: vec![512; trial.case.inputs.len()],
            output: 512,
            grad_output: 512,
            parameters: 512,
            grad_parameters: 512,
            running: 512,
            saved: 512,
            master: 512,
            state: 512,
            scratch: 512,
        };
        for trial in list.iter().step_by(7) {
            let output = trial.case.output().expect("fits");
            let made = given(trial, output).and_then(|given| reference::run(trial, &given));
            assert!(made.is_ok(), "{trial:?}: {made:?}");
            if streaming::covers(trial) {
                let planned = streaming::launches(trial, &operands(trial), &Limits::new(132));
                assert!(planned.is_ok_and(|l| !l.is_empty()), "{trial:?}");
            }
        }
    }
}
