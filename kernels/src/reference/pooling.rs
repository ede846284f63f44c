//! Pooling over windows.

use super::Tensors;
use joulecast_model::base::precision::Phase;
use joulecast_model::base::shape::Shape;
use joulecast_model::net::layer::{PoolOp, Window};
use std::ops::Range;

/// The positions of a window along one direction, and how many a mean counts.
struct Span {
    inside: Range<usize>,
    count: usize,
}

/// Windows that divide the input among the outputs: floor(o in / out) to ceil((o + 1) in / out).
fn adaptive(input: usize, output: usize) -> Vec<Span> {
    let span = |o: usize| {
        let inside = o * input / output..((o + 1) * input).div_ceil(output);
        Span { count: inside.len(), inside }
    };
    (0..output).map(span).collect()
}

/// Sliding windows. A mean counts padding, but not what lies beyond it because the output was rounded up.
fn sliding(input: usize, output: usize, kernel: u64, stride: u64, padding: u64) -> Vec<Span> {
    let (kernel, stride, padding) = (kernel as usize, stride as usize, padding as usize);
    let span = |o: usize| {
        // From the padding's edge.
        let begin = o * stride;
        let end = (begin + kernel).min(input + 2 * padding);
        let inside = begin.saturating_sub(padding)..end.saturating_sub(padding).min(input);
        Span { inside, count: end - begin }
    };
    (0..output).map(span).collect()
}

/// Max or average pooling; the first of several equal maxima takes the gradient.
pub(super) fn pool(
    op: PoolOp,
    window: Option<&Window>,
    phase: Phase,
    batch: u64,
    input: &Shape,
    output: &Shape,
    given: &Tensors,
) -> Tensors {
    let (Some((channels, h, w)), Some((_, oh, ow))) = (input.as_map(), output.as_map()) else {
        return Tensors::default();
    };
    let planes = (batch * channels) as usize;
    let (h, w, oh, ow) = (h as usize, w as usize, oh as usize, ow as usize);
    let (down, along) = match window {
        None => (adaptive(h, oh), adaptive(w, ow)),
        Some(g) => {
            (sliding(h, oh, g.kernel.h, g.stride.h, g.padding.h), sliding(w, ow, g.kernel.w, g.stride.w, g.padding.w))
        }
    };
    let x = &given.inputs[0];
    let mut result = vec![0f32; planes * oh * ow];
    let mut gradient = vec![0f64; planes * h * w];
    for plane in 0..planes {
        for (out_h, rows) in down.iter().enumerate() {
            for (out_w, columns) in along.iter().enumerate() {
                let at = (plane * oh + out_h) * ow + out_w;
                let inside =
                    || rows.inside.clone().flat_map(|i| columns.inside.clone().map(move |j| (plane * h + i) * w + j));
                let share = 1.0 / (rows.count * columns.count) as f64;
                let first_largest = || inside().reduce(|best, i| if x[i] > x[best] { i } else { best });
                match (phase, op) {
                    (Phase::Forward, PoolOp::Avg) => {
                        result[at] = (inside().map(|i| f64::from(x[i])).sum::<f64>() * share) as f32;
                    }
                    (Phase::Forward, PoolOp::Max) => {
                        result[at] = first_largest().map_or(f32::NEG_INFINITY, |i| x[i]);
                    }
                    (_, PoolOp::Avg) => {
                        inside().for_each(|i| gradient[i] += f64::from(given.grad_output[at]) * share);
                    }
                    (_, PoolOp::Max) => {
                        if let Some(i) = first_largest() {
                            gradient[i] += f64::from(given.grad_output[at]);
                        }
                    }
                }
            }
        }
    }
    if phase == Phase::Forward {
        Tensors { output: result, ..Tensors::default() }
    } else {
        Tensors { grad_inputs: vec![gradient.iter().map(|&g| g as f32).collect()], ..Tensors::default() }
    }
}
