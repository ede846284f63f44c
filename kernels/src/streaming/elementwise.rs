//! Activations, sums, products, dropout.

use super::channels::{self, Tensors};
use super::plan::{Plan, View, long, pointer, unsupported};
use super::reductions::{self, Reduction};
use crate::DeviceError;
use crate::launch::{Address, Argument, Operands};
use joulecast_model::base::precision::Phase;
use joulecast_model::net::layer::Function;

/// Seed of a dropout's mask.
pub const DROPOUT_SEED: u32 = 0x5eed;

pub(super) fn activation(
    plan: &mut Plan<'_>,
    function: Function,
    phase: Phase,
    n: u64,
    operands: &Operands,
) -> Result<(), DeviceError> {
    let x = input(operands, 0)?;
    if phase == Phase::Forward {
        let arguments = vec![pointer(x), pointer(operands.output), long(n)?];
        return plan.flat(&format!("{}_forward", function.name()), n, 4, arguments);
    }
    let saved = if function.kind().saved.by_runner().output { operands.output } else { x };
    let arguments = vec![pointer(saved), pointer(operands.grad_output), pointer(grad_input(operands, 0)?), long(n)?];
    plan.flat(&format!("{}_backward", function.name()), n, 2, arguments)
}

/// Sum of any number of tensors: eight at a time, the later ones onto the result.
pub(super) fn add(plan: &mut Plan<'_>, inputs: &[Address], output: Address, n: u64) -> Result<(), DeviceError> {
    const MOST: usize = 8;
    let (first, mut rest) = inputs.split_at(inputs.len().min(MOST));
    let mut terms = first.to_vec();
    loop {
        let count = terms.len();
        let mut arguments: Vec<Argument> = terms.iter().copied().map(pointer).collect();
        arguments.extend([pointer(output), long(n)?]);
        plan.flat(&format!("add_{count}"), n, if count <= 3 { 2 } else { 1 }, arguments)?;
        if rest.is_empty() {
            return Ok(());
        }
        let (next, later) = rest.split_at(rest.len().min(MOST - 1));
        terms = std::iter::once(output).chain(next.iter().copied()).collect();
        rest = later;
    }
}

const FACTOR_BACKWARD: Reduction = Reduction { name: "factor_backward", sums: 1, per_sample: true };

/// Bytes of scratch memory that the gradient of a product may need.
pub(super) fn multiply_scratch(view: View, lanes: u64) -> u64 {
    reductions::scratch(view, FACTOR_BACKWARD, lanes)
}

/// Product of two tensors of one shape, or of a map with a factor per channel and sample.
pub(super) fn multiply(
    plan: &mut Plan<'_>,
    phase: Phase,
    view: View,
    same_shape: bool,
    operands: &Operands,
) -> Result<(), DeviceError> {
    let (a, b) = (input(operands, 0)?, input(operands, 1)?);
    let n = view.values();
    match (phase, same_shape) {
        (Phase::Forward, true) => {
            let arguments = vec![pointer(a), pointer(b), pointer(operands.output), long(n)?];
            plan.flat("multiply_forward", n, 2, arguments)
        }
        (Phase::Forward, false) => {
            let tensors = Tensors { x: a, dy: 0, y: operands.output };
            channels::map(plan, "factor", view, true, tensors, vec![pointer(b)])
        }
        (_, true) => {
            let gradients = [grad_input(operands, 0)?, grad_input(operands, 1)?].map(pointer);
            let mut arguments = vec![pointer(a), pointer(b), pointer(operands.grad_output)];
            arguments.extend(gradients);
            arguments.push(long(n)?);
            plan.flat("multiply_backward", n, 2, arguments)
        }
        (_, false) => {
            let tensors = Tensors { x: a, dy: operands.grad_output, y: grad_input(operands, 0)? };
            let own = vec![pointer(b), pointer(grad_input(operands, 1)?)];
            reductions::reduce(plan, FACTOR_BACKWARD, view, tensors, operands.scratch, own)
        }
    }
}

pub(super) fn dropout(
    plan: &mut Plan<'_>,
    probability: f64,
    phase: Phase,
    n: u64,
    operands: &Operands,
) -> Result<(), DeviceError> {
    let factor = Argument::F32(if probability < 1.0 { (1.0 / (1.0 - probability)) as f32 } else { 0.0 });
    if phase == Phase::Forward {
        let arguments = vec![
            pointer(input(operands, 0)?),
            pointer(operands.output),
            pointer(operands.saved),
            long(n)?,
            Argument::I64(dropout_threshold(probability)),
            factor,
            Argument::I32(DROPOUT_SEED as i32),
        ];
        return plan.flat("dropout_forward", n, 2, arguments);
    }
    let arguments = vec![
        pointer(operands.grad_output),
        pointer(operands.saved),
        pointer(grad_input(operands, 0)?),
        long(n)?,
        factor,
    ];
    plan.flat("dropout_backward", n, 2, arguments)
}

/// Random words of 32 bits below it drop their element.
pub(crate) fn dropout_threshold(probability: f64) -> i64 {
    (probability * 4_294_967_296.0) as i64
}

/// An input's address.
pub(super) fn input(operands: &Operands, index: usize) -> Result<Address, DeviceError> {
    operands.inputs.get(index).copied().ok_or_else(|| unsupported("this layer", "an input has no address"))
}

/// The address of an input's gradient.
pub(super) fn grad_input(operands: &Operands, index: usize) -> Result<Address, DeviceError> {
    let address = operands.grad_inputs.get(index).copied();
    address.ok_or_else(|| unsupported("this layer", "an input's gradient has no address"))
}
