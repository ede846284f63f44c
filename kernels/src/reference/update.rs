//! The optimizer's first step.

use super::Tensors;
use crate::streaming::{ADAM_EPSILON, BETA1, BETA2, OPTIMIZER_MOMENTUM, RATE};
use joulecast_model::net::layer::Optimizer;

/// New master weights and state; `parameters` are the new weights too.
pub(super) fn update(optimizer: Optimizer, given: &Tensors) -> Tensors {
    let count = given.master.len();
    let [rate, momentum, beta1, beta2, epsilon] = [RATE, OPTIMIZER_MOMENTUM, BETA1, BETA2, ADAM_EPSILON].map(f64::from);
    let mut state: Vec<f64> = given.state.iter().copied().map(f64::from).collect();
    let mut master = Vec::with_capacity(count);
    for (i, (&weight, &gradient)) in given.master.iter().zip(&given.grad_parameters).enumerate() {
        let gradient = f64::from(gradient);
        let step = match optimizer {
            Optimizer::Sgd => gradient,
            Optimizer::Momentum => {
                state[i] = momentum * state[i] + gradient;
                state[i]
            }
            Optimizer::Adam => {
                let (first, second) = (i, count + i);
                state[first] = beta1 * state[first] + (1.0 - beta1) * gradient;
                state[second] = beta2 * state[second] + (1.0 - beta2) * gradient * gradient;
                state[first] / (1.0 - beta1) / ((state[second] / (1.0 - beta2)).sqrt() + epsilon)
            }
        };
        master.push((f64::from(weight) - rate * step) as f32);
    }
    Tensors {
        parameters: master.clone(),
        master,
        state: state.into_iter().map(|s| s as f32).collect(),
        ..Tensors::default()
    }
}
