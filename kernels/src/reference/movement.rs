//! Concatenation and padding.

use super::Tensors;
use joulecast_model::base::precision::Phase;
use joulecast_model::base::shape::Shape;

/// Joins maps along the channels, else along the last dimension.
pub(super) fn concat(phase: Phase, batch: u64, shapes: &[Shape], output: &Shape, given: &Tensors) -> Tensors {
    // Values of one row of a tensor: a whole sample of a map, else the last dimension.
    let width = |shape: &Shape| (if shape.as_map().is_some() { shape.elements() } else { shape.axis() }) as usize;
    let rows = batch as usize * output.elements() as usize / width(output);
    let mut whole = if phase == Phase::Forward { vec![0f32; rows * width(output)] } else { given.grad_output.clone() };
    let mut parts: Vec<Vec<f32>> = match phase {
        Phase::Forward => given.inputs.clone(),
        _ => shapes.iter().map(|shape| vec![0f32; rows * width(shape)]).collect(),
    };
    let mut start = 0;
    for (part, shape) in parts.iter_mut().zip(shapes) {
        let across = width(shape);
        for row in 0..rows {
            let joined = &mut whole[row * width(output) + start..][..across];
            let own = &mut part[row * across..][..across];
            if phase == Phase::Forward {
                joined.copy_from_slice(own);
            } else {
                own.copy_from_slice(joined);
            }
        }
        start += across;
    }
    if phase == Phase::Forward {
        Tensors { output: whole, ..Tensors::default() }
    } else {
        Tensors { grad_inputs: parts, ..Tensors::default() }
    }
}

/// Zeros around maps, `[top, bottom, left, right]`.
pub(super) fn pad(
    padding: [u64; 4],
    phase: Phase,
    batch: u64,
    input: &Shape,
    output: &Shape,
    given: &Tensors,
) -> Tensors {
    let (Some((channels, h, w)), Some((_, oh, ow))) = (input.as_map(), output.as_map()) else {
        return Tensors::default();
    };
    let (h, w, oh, ow) = (h as usize, w as usize, oh as usize, ow as usize);
    let planes = (batch * channels) as usize;
    let (mut padded, mut gradient) = (vec![0f32; planes * oh * ow], vec![0f32; planes * h * w]);
    for (i, gradient) in gradient.iter_mut().enumerate() {
        let (plane, row, column) = (i / (h * w), i / w % h, i % w);
        let outer = (plane * oh + row + padding[0] as usize) * ow + column + padding[2] as usize;
        if phase == Phase::Forward {
            padded[outer] = given.inputs[0][i];
        } else {
            *gradient = given.grad_output[outer];
        }
    }
    if phase == Phase::Forward {
        Tensors { output: padded, ..Tensors::default() }
    } else {
        Tensors { grad_inputs: vec![gradient], ..Tensors::default() }
    }
}
