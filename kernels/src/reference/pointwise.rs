//! Activations, sums, products, scale, dropout.

use super::{Axes, Tensors};
use crate::streaming::{DROPOUT_SEED, dropout_threshold};
use joulecast_model::base::precision::Phase;
use joulecast_model::kernel::setting::Layout;
use joulecast_model::net::layer::Function;

/// erf(x) to 1e-15: its series near 0, the continued fraction of its complement beyond (Abramowitz and Stegun 7.1.5
/// and 7.1.14).
fn erf(x: f64) -> f64 {
    if x < 0.0 {
        return -erf(-x);
    }
    let two_over_root_pi = std::f64::consts::FRAC_2_SQRT_PI;
    if x < 3.0 {
        let (mut term, mut sum, mut n) = (x, x, 0.0);
        while f64::abs(term) > 1e-18 {
            n += 1.0;
            term *= -x * x / n;
            sum += term / (2.0 * n + 1.0);
        }
        return two_over_root_pi * sum;
    }
    let fraction = (1..=60).rev().fold(0.0, |tail, k| f64::from(k) / 2.0 / (x + tail));
    1.0 - (-x * x).exp() / 2.0 * two_over_root_pi / (x + fraction)
}

fn logistic(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

fn softplus(x: f64) -> f64 {
    x.max(0.0) + (-x.abs()).exp().ln_1p()
}

/// The value at `x` and the derivative there. Functions whose backward pass reads the result take that from `stored`, the
/// result as it was rounded, where there is one.
fn curve(function: Function, x: f64, stored: Option<f64>) -> (f64, f64) {
    let by_result = |value: f64, slope: fn(f64) -> f64| (value, slope(stored.unwrap_or(value)));
    match function {
        Function::Relu => by_result(x.max(0.0), |y| f64::from(y > 0.0)),
        Function::Relu6 => by_result(x.clamp(0.0, 6.0), |y| f64::from(y > 0.0 && y < 6.0)),
        Function::Sigmoid => by_result(logistic(x), |y| y * (1.0 - y)),
        Function::Tanh => by_result(x.tanh(), |y| 1.0 - y * y),
        Function::Silu => (x * logistic(x), logistic(x) * (1.0 + x * (1.0 - logistic(x)))),
        Function::Hardswish => {
            let slope = match x {
                x if x <= -3.0 => 0.0,
                x if x >= 3.0 => 1.0,
                x => x / 3.0 + 0.5,
            };
            (x * (x + 3.0).clamp(0.0, 6.0) / 6.0, slope)
        }
        Function::Gelu => {
            let density = (-0.5 * x * x).exp() / (2.0 * std::f64::consts::PI).sqrt();
            let distribution = 0.5 * (1.0 + erf(x * std::f64::consts::FRAC_1_SQRT_2));
            (x * distribution, distribution + x * density)
        }
        Function::GeluTanh => {
            let root = (2.0 / std::f64::consts::PI).sqrt();
            let t = (root * (x + 0.044715 * x * x * x)).tanh();
            let slope = root * (1.0 + 3.0 * 0.044715 * x * x);
            (0.5 * x * (1.0 + t), 0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * slope)
        }
        Function::Hardsigmoid => ((x + 3.0).clamp(0.0, 6.0) / 6.0, if x > -3.0 && x < 3.0 { 1.0 / 6.0 } else { 0.0 }),
        Function::Softplus => (softplus(x), logistic(x)),
        Function::Mish => {
            let t = softplus(x).tanh();
            (x * t, t + x * logistic(x) * (1.0 - t * t))
        }
    }
}

pub(super) fn activation(function: Function, phase: Phase, given: &Tensors) -> Tensors {
    let x = &given.inputs[0];
    if phase == Phase::Forward {
        let output = x.iter().map(|&x| curve(function, f64::from(x), None).0 as f32).collect();
        return Tensors { output, ..Tensors::default() };
    }
    let each = x.iter().zip(&given.output).zip(&given.grad_output);
    let slope = |x: f32, y: f32| curve(function, f64::from(x), Some(f64::from(y))).1;
    let gradient = each.map(|((&x, &y), &g)| (f64::from(g) * slope(x, y)) as f32).collect();
    Tensors { grad_inputs: vec![gradient], ..Tensors::default() }
}

pub(super) fn add(given: &Tensors) -> Tensors {
    let n = given.inputs[0].len();
    let output = (0..n).map(|i| given.inputs.iter().map(|x| f64::from(x[i])).sum::<f64>() as f32).collect();
    Tensors { output, ..Tensors::default() }
}

/// The second tensor has the first one's shape, or one value per channel and sample.
pub(super) fn multiply(phase: Phase, axes: Axes, given: &Tensors) -> Tensors {
    let (a, b) = (&given.inputs[0], &given.inputs[1]);
    let same = a.len() == b.len();
    let mut output = vec![0.0; a.len()];
    let (mut grad_a, mut grad_b) = (vec![0.0; a.len()], vec![0f64; b.len()]);
    for (n, s) in axes.positions() {
        for c in 0..axes.channels {
            let i = axes.index(n, c, s);
            let j = if same { i } else { n * axes.channels + c };
            if phase == Phase::Forward {
                output[i] = a[i] * b[j];
            } else {
                grad_a[i] = given.grad_output[i] * b[j];
                grad_b[j] += f64::from(given.grad_output[i]) * f64::from(a[i]);
            }
        }
    }
    if phase == Phase::Forward {
        return Tensors { output, ..Tensors::default() };
    }
    Tensors { grad_inputs: vec![grad_a, grad_b.iter().map(|&g| g as f32).collect()], ..Tensors::default() }
}

pub(super) fn scale(bias: bool, phase: Phase, axes: Axes, given: &Tensors) -> Tensors {
    let channels = axes.channels;
    let mut data = vec![0f32; axes.values()];
    let mut sums = vec![0f64; channels * (1 + usize::from(bias))];
    for (n, s) in axes.positions() {
        for c in 0..channels {
            let i = axes.index(n, c, s);
            match phase {
                Phase::Forward => {
                    let shift = if bias { f64::from(given.parameters[channels + c]) } else { 0.0 };
                    data[i] = (f64::from(given.inputs[0][i]) * f64::from(given.parameters[c]) + shift) as f32;
                }
                Phase::BackwardData => data[i] = given.grad_output[i] * given.parameters[c],
                _ => {
                    let gradient = f64::from(given.grad_output[i]);
                    sums[c] += gradient * f64::from(given.inputs[0][i]);
                    if bias {
                        sums[channels + c] += gradient;
                    }
                }
            }
        }
    }
    match phase {
        Phase::Forward => Tensors { output: data, ..Tensors::default() },
        Phase::BackwardData => Tensors { grad_inputs: vec![data], ..Tensors::default() },
        _ => Tensors { grad_parameters: sums.iter().map(|&s| s as f32).collect(), ..Tensors::default() },
    }
}

fn mix(bits: u32) -> u32 {
    let bits = (bits ^ (bits >> 16)).wrapping_mul(0x7feb_352d);
    let bits = (bits ^ (bits >> 15)).wrapping_mul(0x846c_a68b);
    bits ^ (bits >> 16)
}

/// The kernels' random word for an index.
pub(super) fn random_bits(seed: u32, index: u64) -> u32 {
    mix(index as u32 ^ mix(((index >> 32) as u32).wrapping_add(seed)))
}

/// The mask belongs to the order in memory, so it depends on the layout.
pub(super) fn dropout(probability: f64, phase: Phase, layout: Layout, axes: Axes, given: &Tensors) -> Tensors {
    let factor = if probability < 1.0 { 1.0 / (1.0 - probability) } else { 0.0 };
    let apply = |x: f32, mask: f32| (f64::from(x) * f64::from(mask) * factor) as f32;
    if phase != Phase::Forward {
        let gradient = given.grad_output.iter().zip(&given.saved).map(|(&g, &mask)| apply(g, mask)).collect();
        return Tensors { grad_inputs: vec![gradient], ..Tensors::default() };
    }
    let mut saved = vec![0.0; axes.values()];
    for (n, s) in axes.positions() {
        for c in 0..axes.channels {
            let i = axes.index(n, c, s);
            let in_memory = if layout == Layout::Nhwc { (n * axes.area + s) * axes.channels + c } else { i };
            let keep = i64::from(random_bits(DROPOUT_SEED, in_memory as u64)) >= dropout_threshold(probability);
            saved[i] = f32::from(u8::from(keep));
        }
    }
    let output = given.inputs[0].iter().zip(&saved).map(|(&x, &mask)| apply(x, mask)).collect();
    Tensors { output, saved, ..Tensors::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_function_has_its_published_values() {
        // Abramowitz and Stegun, table 7.1; erfc(4) = 1.541726e-8.
        for (x, expected) in [(0.0, 0.0), (0.5, 0.520_499_877_8), (1.0, 0.842_700_792_9), (2.0, 0.995_322_265_0)] {
            assert!((erf(x) - expected).abs() < 1e-10, "erf({x}) = {}", erf(x));
            assert!((erf(-x) + expected).abs() < 1e-10);
        }
        assert!((1.0 - erf(4.0) - 1.541_725_8e-8).abs() < 1e-14);
        assert!((erf(3.0 - 1e-9) - erf(3.0)).abs() < 1e-12, "the two forms meet");
    }
}
