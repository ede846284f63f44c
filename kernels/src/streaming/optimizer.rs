//! The optimizer's step: kernels of `optimizer.cu`.

use super::plan::{Format, Limits, Plan, flag, flat_grid, long, offset, pointer};
use crate::DeviceError;
use crate::launch::{Argument, KernelLaunch, Operands};
use joulecast_model::base::precision::Precision;
use joulecast_model::net::layer::Optimizer;

/// Learning rate.
pub const RATE: f32 = 1e-3;
/// Momentum of [`Optimizer::Momentum`].
pub const MOMENTUM: f32 = 0.9;
/// Adam's decay of the first moment (Kingma and Ba, 2015).
pub const BETA1: f32 = 0.9;
/// Adam's decay of the second moment.
pub const BETA2: f32 = 0.999;
/// Adam's guard against division by 0.
pub const ADAM_EPSILON: f32 = 1e-8;

/// Plans the first step at a learning rate over `parameters` master weights with gradients in the storage format of `precision`. With
/// 16-bit storage, `operands.parameters` (where not 0) gets the new weights too.
///
/// # Errors
/// When the precision has no floating-point storage or there are too many parameters for the grid.
pub fn update_launches(
    optimizer: Optimizer,
    rate: f32,
    parameters: u64,
    precision: Precision,
    operands: &Operands,
    limits: &Limits,
) -> Result<Vec<KernelLaunch>, DeviceError> {
    let mut plan = Plan::new(precision, limits)?;
    let weights = if plan.format == Format::F32 { 0 } else { operands.parameters };
    let second = offset(operands.state, 4 * parameters);
    // The second moment begins wherever the first one ends.
    let wide = optimizer != Optimizer::Adam || parameters.is_multiple_of(4);
    let mut arguments = [operands.master, operands.grad_parameters, weights].map(pointer).to_vec();
    arguments.extend([long(parameters)?, flag(wide), Argument::F32(rate)]);
    match optimizer {
        Optimizer::Sgd => {}
        Optimizer::Momentum => arguments.extend([pointer(operands.state), Argument::F32(MOMENTUM)]),
        Optimizer::Adam => {
            arguments.extend([pointer(operands.state), pointer(second)]);
            arguments.extend([BETA1, BETA2, 1.0 / (1.0 - BETA1), 1.0 / (1.0 - BETA2), ADAM_EPSILON].map(Argument::F32));
        }
    }
    let (blocks, threads) = flat_grid(parameters.div_ceil(4), 1, limits);
    plan.push(&format!("update_{}", optimizer.name()), [blocks, 1, 1], [threads, 1, 1], arguments)?;
    Ok(plan.launches)
}
