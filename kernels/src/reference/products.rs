//! Convolution, linear layer, matrix product, by their definitions.

use super::{Axes, Tensors};
use joulecast_model::base::precision::Phase;
use joulecast_model::base::shape::Shape;
use joulecast_model::net::layer::{Conv2d, ConvTranspose2d, Linear};

fn narrow(values: Vec<f64>) -> Vec<f32> {
    values.into_iter().map(|v| v as f32).collect()
}

/// Sums into output, input gradient or weight gradient, whichever the phase asks for, and puts the result in place.
struct Sums {
    phase: Phase,
    sums: Vec<f64>,
}

impl Sums {
    fn new(phase: Phase, output: usize, input: usize, parameters: usize) -> Self {
        let length = match phase {
            Phase::Forward => output,
            Phase::BackwardData => input,
            Phase::BackwardWeights | Phase::Update => parameters,
        };
        Self { phase, sums: vec![0.0; length] }
    }

    /// One product: output `o`, input `i` and weight `w` belong together.
    fn term(&mut self, given: &Tensors, o: usize, i: usize, w: usize) {
        let (x, weights, gradient) = (&given.inputs[0], &given.parameters, &given.grad_output);
        let product = |a: f32, b: f32| f64::from(a) * f64::from(b);
        match self.phase {
            Phase::Forward => self.sums[o] += product(x[i], weights[w]),
            Phase::BackwardData => self.sums[i] += product(gradient[o], weights[w]),
            Phase::BackwardWeights | Phase::Update => self.sums[w] += product(gradient[o], x[i]),
        }
    }

    /// The bias `b` of output `o`.
    fn bias(&mut self, given: &Tensors, o: usize, b: usize) {
        match self.phase {
            Phase::Forward => self.sums[o] += f64::from(given.parameters[b]),
            Phase::BackwardData => {}
            Phase::BackwardWeights | Phase::Update => self.sums[b] += f64::from(given.grad_output[o]),
        }
    }

    fn into_tensors(self) -> Tensors {
        let values = narrow(self.sums);
        match self.phase {
            Phase::Forward => Tensors { output: values, ..Tensors::default() },
            Phase::BackwardData => Tensors { grad_inputs: vec![values], ..Tensors::default() },
            Phase::BackwardWeights | Phase::Update => Tensors { grad_parameters: values, ..Tensors::default() },
        }
    }
}

pub(super) fn conv2d(
    conv: &Conv2d,
    phase: Phase,
    batch: u64,
    input: &Shape,
    output: &Shape,
    given: &Tensors,
) -> Tensors {
    let (Some((channels, h, w)), Some((out_channels, oh, ow))) = (input.as_map(), output.as_map()) else {
        return Tensors::default();
    };
    let groups = conv.groups(channels).max(1);
    let (group_in, group_out) = (channels / groups, out_channels / groups);
    let weights = out_channels * group_in * conv.kernel.area();
    let parameters = weights + if conv.bias { out_channels } else { 0 };
    let mut sums = Sums::new(
        phase,
        (batch * output.elements()) as usize,
        (batch * input.elements()) as usize,
        parameters as usize,
    );
    // Position in the input of a window's element, if it is not in the padding.
    let inside = |o: u64, k: u64, stride: u64, dilation: u64, padding: u64, size: u64| {
        (o * stride + k * dilation).checked_sub(padding).filter(|&i| i < size)
    };
    for n in 0..batch {
        for out in 0..out_channels {
            let first_channel = out / group_out * group_in;
            for (y, x) in (0..oh).flat_map(|y| (0..ow).map(move |x| (y, x))) {
                let o = ((n * out_channels + out) * oh + y) * ow + x;
                if conv.bias {
                    sums.bias(given, o as usize, (weights + out) as usize);
                }
                for c in 0..group_in {
                    for kh in 0..conv.kernel.h {
                        let Some(row) = inside(y, kh, conv.stride.h, conv.dilation.h, conv.padding.h, h) else {
                            continue;
                        };
                        for kw in 0..conv.kernel.w {
                            let Some(column) = inside(x, kw, conv.stride.w, conv.dilation.w, conv.padding.w, w) else {
                                continue;
                            };
                            let i = ((n * channels + first_channel + c) * h + row) * w + column;
                            let weight = ((out * group_in + c) * conv.kernel.h + kh) * conv.kernel.w + kw;
                            sums.term(given, o as usize, i as usize, weight as usize);
                        }
                    }
                }
            }
        }
    }
    sums.into_tensors()
}

/// By what it is the transpose of: the gradient of a convolution's input, and the other way round.
pub(super) fn conv_transpose2d(
    conv: &ConvTranspose2d,
    phase: Phase,
    batch: u64,
    input: &Shape,
    output: &Shape,
    given: &Tensors,
) -> Tensors {
    let mirrored = conv.mirrored(input.axis());
    let weights = (given.parameters.len()).saturating_sub(if conv.bias { conv.channels as usize } else { 0 });
    let run = |phase, inputs: &[f32], grad_output: &[f32]| {
        let given = Tensors {
            inputs: vec![inputs.to_vec()],
            grad_output: grad_output.to_vec(),
            parameters: given.parameters[..weights].to_vec(),
            ..Tensors::default()
        };
        conv2d(&mirrored, phase, batch, output, input, &given)
    };
    let area = (output.elements() / conv.channels.max(1)) as usize;
    let channel = |place: usize| place / area.max(1) % conv.channels.max(1) as usize;
    match phase {
        Phase::Forward => {
            let mut result = run(Phase::BackwardData, &[], &given.inputs[0]).grad_inputs.remove(0);
            for (place, value) in result.iter_mut().enumerate().filter(|_| conv.bias) {
                *value += given.parameters[weights + channel(place)];
            }
            Tensors { output: result, ..Tensors::default() }
        }
        Phase::BackwardData => {
            let gradient = run(Phase::Forward, &given.grad_output, &[]).output;
            Tensors { grad_inputs: vec![gradient], ..Tensors::default() }
        }
        Phase::BackwardWeights | Phase::Update => {
            let mut gradient = run(Phase::BackwardWeights, &given.grad_output, &given.inputs[0]).grad_parameters;
            if conv.bias {
                let mut sums = vec![0f64; conv.channels as usize];
                given.grad_output.iter().enumerate().for_each(|(place, g)| sums[channel(place)] += f64::from(*g));
                gradient.extend(narrow(sums));
            }
            Tensors { grad_parameters: gradient, ..Tensors::default() }
        }
    }
}

pub(super) fn linear(linear: &Linear, phase: Phase, axes: Axes, given: &Tensors) -> Tensors {
    let (rows, inputs, outputs) = (axes.samples * axes.area, axes.channels, linear.features as usize);
    let parameters = outputs * inputs + if linear.bias { outputs } else { 0 };
    let mut sums = Sums::new(phase, rows * outputs, rows * inputs, parameters);
    for row in 0..rows {
        for out in 0..outputs {
            let o = row * outputs + out;
            if linear.bias {
                sums.bias(given, o, outputs * inputs + out);
            }
            for c in 0..inputs {
                sums.term(given, o, row * inputs + c, out * inputs + c);
            }
        }
    }
    sums.into_tensors()
}

/// `[.., m, k]` times `[.., k, n]`; backward gives both gradients.
pub(super) fn matmul(phase: Phase, batch: u64, shapes: &[Shape], given: &Tensors) -> Tensors {
    let ([.., m, k], [.., _, n]) = (shapes[0].dims(), shapes[1].dims()) else {
        return Tensors::default();
    };
    let (m, k, n) = (*m as usize, *k as usize, *n as usize);
    let products = batch as usize * shapes[0].elements() as usize / (m * k);
    let (a, b) = (&given.inputs[0], &given.inputs[1]);
    let mut output = vec![0f64; products * m * n];
    let (mut grad_a, mut grad_b) = (vec![0f64; a.len()], vec![0f64; b.len()]);
    for p in 0..products {
        for (row, column) in (0..m).flat_map(|row| (0..n).map(move |column| (row, column))) {
            let o = (p * m + row) * n + column;
            for c in 0..k {
                let (i, j) = ((p * m + row) * k + c, (p * k + c) * n + column);
                if phase == Phase::Forward {
                    output[o] += f64::from(a[i]) * f64::from(b[j]);
                } else {
                    grad_a[i] += f64::from(given.grad_output[o]) * f64::from(b[j]);
                    grad_b[j] += f64::from(given.grad_output[o]) * f64::from(a[i]);
                }
            }
        }
    }
    if phase == Phase::Forward {
        Tensors { output: narrow(output), ..Tensors::default() }
    } else {
        Tensors { grad_inputs: vec![narrow(grad_a), narrow(grad_b)], ..Tensors::default() }
    }
}
