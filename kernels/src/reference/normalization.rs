//! Batch norm, layer norm, softmax, local response norm.

use super::{Axes, Tensors};
use crate::streaming::{ALPHA, BETA, EPSILON, MOMENTUM};
use joulecast_model::base::precision::{Mode, Phase};

/// Values with scale 1 and shift 0 where nothing is learned.
fn affine(given: &Tensors, channels: usize, c: usize) -> (f64, f64) {
    match given.parameters.get(c).zip(given.parameters.get(channels + c)) {
        Some((&scale, &shift)) => (f64::from(scale), f64::from(shift)),
        None => (1.0, 0.0),
    }
}

/// Mean and reciprocal standard deviation of some values.
fn moments(values: impl Iterator<Item = f64> + Clone) -> (f64, f64, f64) {
    let count = values.clone().count() as f64;
    let mean = values.clone().sum::<f64>() / count;
    let variance = values.map(|v| (v - mean).powi(2)).sum::<f64>() / count;
    (mean, variance, 1.0 / (variance + f64::from(EPSILON)).sqrt())
}

fn narrow(values: Vec<f64>) -> Vec<f32> {
    values.into_iter().map(|v| v as f32).collect()
}

pub(super) fn batch_norm(phase: Phase, mode: Mode, axes: Axes, given: &Tensors) -> Tensors {
    let x = &given.inputs[0];
    let channels = axes.channels;
    let learned = !given.parameters.is_empty();
    let mut data = vec![0f32; axes.values()];
    let (mut saved, mut running) = (vec![0f64; 2 * channels], vec![0f64; 2 * channels]);
    let mut grad_parameters = vec![0f64; if learned { 2 * channels } else { 0 }];
    for c in 0..channels {
        let indices = axes.positions().map(|(n, s)| axes.index(n, c, s));
        let (scale, shift) = affine(given, channels, c);
        let count = (axes.samples * axes.area) as f64;
        match (phase, mode) {
            (Phase::Forward, Mode::Inference) => {
                let reciprocal = 1.0 / (f64::from(given.running[channels + c]) + f64::from(EPSILON)).sqrt();
                for i in indices {
                    let z = (f64::from(x[i]) - f64::from(given.running[c])) * reciprocal;
                    data[i] = (z * scale + shift) as f32;
                }
            }
            (Phase::Forward, Mode::Training) => {
                let (mean, variance, reciprocal) = moments(indices.clone().map(|i| f64::from(x[i])));
                (saved[c], saved[channels + c]) = (mean, reciprocal);
                let unbiased = if count > 1.0 { variance * count / (count - 1.0) } else { variance };
                for (k, new) in [(c, mean), (channels + c, unbiased)] {
                    let old = f64::from(given.running[k]);
                    running[k] = old + f64::from(MOMENTUM) * (new - old);
                }
                for i in indices {
                    data[i] = ((f64::from(x[i]) - mean) * reciprocal * scale + shift) as f32;
                }
            }
            _ => {
                let (mean, reciprocal) = (f64::from(given.saved[c]), f64::from(given.saved[channels + c]));
                let z = |i: usize| (f64::from(x[i]) - mean) * reciprocal;
                let gradient = |i: usize| f64::from(given.grad_output[i]);
                let sum: f64 = indices.clone().map(gradient).sum();
                let with_z: f64 = indices.clone().map(|i| gradient(i) * z(i)).sum();
                if learned {
                    (grad_parameters[c], grad_parameters[channels + c]) = (with_z, sum);
                }
                for i in indices {
                    let centered = gradient(i) - sum / count - z(i) * with_z / count;
                    data[i] = (scale * reciprocal * centered) as f32;
                }
            }
        }
    }
    match (phase, mode) {
        (Phase::Forward, Mode::Inference) => Tensors { output: data, ..Tensors::default() },
        (Phase::Forward, Mode::Training) => {
            Tensors { output: data, saved: narrow(saved), running: narrow(running), ..Tensors::default() }
        }
        _ => Tensors { grad_inputs: vec![data], grad_parameters: narrow(grad_parameters), ..Tensors::default() },
    }
}

pub(super) fn layer_norm(phase: Phase, mode: Mode, axes: Axes, given: &Tensors) -> Tensors {
    let x = &given.inputs[0];
    let (channels, rows) = (axes.channels, axes.samples * axes.area);
    let learned = !given.parameters.is_empty();
    let mut data = vec![0f32; axes.values()];
    let mut saved = vec![0f64; 2 * rows];
    let mut grad_parameters = vec![0f64; if learned { 2 * channels } else { 0 }];
    for (row, (n, s)) in axes.positions().enumerate() {
        let indices = (0..channels).map(|c| axes.index(n, c, s));
        if phase == Phase::Forward {
            let (mean, _, reciprocal) = moments(indices.clone().map(|i| f64::from(x[i])));
            (saved[row], saved[rows + row]) = (mean, reciprocal);
            for (c, i) in indices.enumerate() {
                let (scale, shift) = affine(given, channels, c);
                data[i] = ((f64::from(x[i]) - mean) * reciprocal * scale + shift) as f32;
            }
            continue;
        }
        let (mean, reciprocal) = (f64::from(given.saved[row]), f64::from(given.saved[rows + row]));
        let terms: Vec<(f64, f64)> = indices
            .clone()
            .enumerate()
            .map(|(c, i)| {
                let z = (f64::from(x[i]) - mean) * reciprocal;
                let gradient = f64::from(given.grad_output[i]);
                if learned {
                    grad_parameters[c] += gradient * z;
                    grad_parameters[channels + c] += gradient;
                }
                (gradient * affine(given, channels, c).0, z)
            })
            .collect();
        let average = |f: fn(&(f64, f64)) -> f64| terms.iter().map(f).sum::<f64>() / channels as f64;
        let (sum, with_z) = (average(|t| t.0), average(|t| t.0 * t.1));
        for (i, (gradient, z)) in indices.zip(&terms) {
            data[i] = (reciprocal * (gradient - sum - z * with_z)) as f32;
        }
    }
    match (phase, mode) {
        (Phase::Forward, Mode::Inference) => Tensors { output: data, ..Tensors::default() },
        (Phase::Forward, Mode::Training) => Tensors { output: data, saved: narrow(saved), ..Tensors::default() },
        _ => Tensors { grad_inputs: vec![data], grad_parameters: narrow(grad_parameters), ..Tensors::default() },
    }
}

pub(super) fn softmax(phase: Phase, axes: Axes, given: &Tensors) -> Tensors {
    let mut data = vec![0f32; axes.values()];
    for (n, s) in axes.positions() {
        let indices = (0..axes.channels).map(|c| axes.index(n, c, s));
        if phase == Phase::Forward {
            let x = |i: usize| f64::from(given.inputs[0][i]);
            let largest = indices.clone().map(x).fold(f64::NEG_INFINITY, f64::max);
            let sum: f64 = indices.clone().map(|i| (x(i) - largest).exp()).sum();
            for i in indices {
                data[i] = ((x(i) - largest).exp() / sum) as f32;
            }
        } else {
            let (y, g) = (|i: usize| f64::from(given.output[i]), |i: usize| f64::from(given.grad_output[i]));
            let sum: f64 = indices.clone().map(|i| y(i) * g(i)).sum();
            for i in indices {
                data[i] = (y(i) * (g(i) - sum)) as f32;
            }
        }
    }
    if phase == Phase::Forward {
        Tensors { output: data, ..Tensors::default() }
    } else {
        Tensors { grad_inputs: vec![data], ..Tensors::default() }
    }
}

/// y = x d^-beta with d = 1 + alpha / size * sum of x^2 over channels c - size / 2 to c + (size - 1) / 2.
pub(super) fn local_response_norm(size: usize, phase: Phase, mode: Mode, axes: Axes, given: &Tensors) -> Tensors {
    let (alpha, beta) = (f64::from(ALPHA), f64::from(BETA));
    let x = |i: usize| f64::from(given.inputs[0][i]);
    let (mut data, mut saved) = (vec![0f32; axes.values()], vec![0f32; axes.values()]);
    let channels = axes.channels;
    // Channels from c - before to c + after.
    let around = |c: usize, before: usize, after: usize| c.saturating_sub(before)..(c + after + 1).min(channels);
    for (n, s) in axes.positions() {
        let at = |c: usize| axes.index(n, c, s);
        for c in 0..channels {
            let i = at(c);
            if phase == Phase::Forward {
                let squares: f64 = around(c, size / 2, (size - 1) / 2).map(|k| x(at(k)).powi(2)).sum();
                let denominator = 1.0 + alpha / size as f64 * squares;
                saved[i] = denominator as f32;
                data[i] = (x(i) * denominator.powf(-beta)) as f32;
            } else {
                // The channels whose window holds this one: the window turned around.
                let others: f64 = around(c, (size - 1) / 2, size / 2)
                    .map(|k| {
                        let j = at(k);
                        f64::from(given.grad_output[j]) * f64::from(given.output[j]) / f64::from(given.saved[j])
                    })
                    .sum();
                let direct = f64::from(given.grad_output[i]) * f64::from(given.saved[i]).powf(-beta);
                data[i] = (direct - 2.0 * alpha * beta / size as f64 * x(i) * others) as f32;
            }
        }
    }
    match (phase, mode) {
        (Phase::Forward, Mode::Inference) => Tensors { output: data, ..Tensors::default() },
        (Phase::Forward, Mode::Training) => Tensors { output: data, saved, ..Tensors::default() },
        _ => Tensors { grad_inputs: vec![data], ..Tensors::default() },
    }
}
