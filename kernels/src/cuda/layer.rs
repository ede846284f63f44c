//! A layer's phase as launches: the library or kernel that frameworks use for it.

use super::convolution::{ConvolutionPlan, ConvolutionSize};
use super::device::Gpu;
use super::failure::unsupported;
use super::legacy::{Bound, NamedConvolution};
use super::matrix::{self, Addresses, MatrixProduct, Product};
use super::step::Step;
use crate::DeviceError;
use crate::launch::{KernelLaunch, Operands};
use crate::operands::bias_offset;
use crate::streaming;
use joulecast_model::base::precision::Phase;
use joulecast_model::base::shape::Shape;
use joulecast_model::kernel::setting::Algorithm;
use joulecast_model::kernel::work::Trial;
use joulecast_model::net::layer::{Layer, ShapeError};
use std::collections::HashMap;
use std::rc::Rc;

/// An address that is aligned as operands are; nothing is read from it.
const NOWHERE: u64 = 1 << 20;

/// A trial whose algorithm is chosen; operands are bound later.
pub struct Prepared {
    trial: Trial,
    output: Shape,
    kernel: Kernel,
}

enum Kernel {
    Engine(Rc<ConvolutionPlan>),
    Named(Rc<NamedConvolution>),
    Products,
    Own,
}

/// Convolution plans already compiled: networks repeat shapes, and a plan takes milliseconds.
#[derive(Default)]
pub struct Plans(HashMap<String, Rc<ConvolutionPlan>>);

impl Plans {
    /// The plan of a convolution in a phase, in a trial's precision and layout.
    fn engine(
        &mut self,
        gpu: &Gpu,
        size: &ConvolutionSize,
        phase: Phase,
        trial: &Trial,
    ) -> Result<Rc<ConvolutionPlan>, DeviceError> {
        let key = format!("{size:?} {phase} {} {}", trial.precision, trial.layout);
        if let Some(plan) = self.0.get(&key) {
            return Ok(plan.clone());
        }
        let made = Rc::new(ConvolutionPlan::new(gpu.dnn(), size, phase, trial.precision, trial.layout)?);
        self.0.insert(key, made.clone());
        Ok(made)
    }
}

/// What a layer that does not fit its inputs gives.
pub fn misfit(trial: &Trial, error: &ShapeError) -> DeviceError {
    unsupported(trial.case.layer.kind(), error.to_string())
}

impl Prepared {
    /// Chooses the algorithm.
    ///
    /// # Errors
    /// When nothing runs this layer in this way.
    pub fn new(gpu: &Gpu, plans: &mut Plans, trial: &Trial) -> Result<Self, DeviceError> {
        let output = trial.case.output().map_err(|e| misfit(trial, &e))?;
        let kernel = match (&trial.case.layer, trial.phase) {
            (_, Phase::Update) => Kernel::Own,
            (Layer::Conv2d(layer), _) => {
                let input = trial.case.inputs.first().copied().unwrap_or(output);
                let (Some(x), Some(y)) = (input.as_map(), output.as_map()) else {
                    return Err(unsupported("conv2d", "its input is not a map"));
                };
                let size = ConvolutionSize::new(layer, trial.batch, x, y);
                match trial.algorithm {
                    Algorithm::Heuristic => Kernel::Engine(plans.engine(gpu, &size, trial.phase, trial)?),
                    named => Kernel::Named(Rc::new(NamedConvolution::new(
                        gpu.dnn(),
                        &size,
                        trial.phase,
                        trial.precision,
                        trial.layout,
                        named,
                    )?)),
                }
            }
            (Layer::ConvTranspose2d(layer), phase) => {
                let input = trial.case.inputs.first().copied().unwrap_or(output);
                let (Some(x), Some(y)) = (output.as_map(), input.as_map()) else {
                    return Err(unsupported("conv_transpose2d", "its input is not a map"));
                };
                // The convolution that leads back, in the other direction.
                let size = ConvolutionSize::new(&layer.mirrored(y.0), trial.batch, x, y);
                let phase = match phase {
                    Phase::Forward => Phase::BackwardData,
                    Phase::BackwardData => Phase::Forward,
                    other => other,
                };
                Kernel::Engine(plans.engine(gpu, &size, phase, trial)?)
            }
            (Layer::Linear(_) | Layer::Matmul(_), _) => Kernel::Products,
            _ => Kernel::Own,
        };
        Ok(Self { trial: trial.clone(), output, kernel })
    }

    /// Scratch memory that the libraries want, in bytes.
    pub fn workspace(&self) -> u64 {
        match &self.kernel {
            Kernel::Engine(plan) => plan.workspace,
            Kernel::Named(convolution) => convolution.workspace,
            Kernel::Products => matrix::WORKSPACE,
            Kernel::Own => 0,
        }
    }

    /// Name of the engine or algorithm, as rows give it; `None` for kernels of our own.
    ///
    /// # Errors
    /// When the library has none for a product.
    pub fn algorithm(&self, gpu: &Gpu) -> Result<Option<String>, DeviceError> {
        match &self.kernel {
            Kernel::Engine(plan) => Ok(Some(plan.engine.clone())),
            Kernel::Named(_) => Ok(Some(self.trial.algorithm.to_string())),
            Kernel::Products => {
                // The heuristics look at the alignment of addresses, not at what lies there.
                let operands = Operands { parameters: NOWHERE, ..Operands::default() };
                let products = self.products(&operands)?;
                let Some((product, addresses)) = products.first() else { return Ok(None) };
                let made = MatrixProduct::new(gpu.matrices(), product, self.trial.precision, *addresses, 0)?;
                Ok(Some(made.name))
            }
            Kernel::Own => Ok(None),
        }
    }

    /// The launches, bound to operands and scratch memory.
    ///
    /// # Errors
    /// When the library refuses, or the trial has no kernel.
    pub fn bind(&self, gpu: &mut Gpu, operands: &Operands, workspace: u64) -> Result<Vec<Step>, DeviceError> {
        let trial = &self.trial;
        let input = operands.inputs.first().copied().unwrap_or(0);
        let grad_input = operands.grad_inputs.first().copied().unwrap_or(0);
        let transposed = matches!(trial.case.layer, Layer::ConvTranspose2d(_));
        let (x, w, y) = match trial.phase {
            // The convolution that leads back reads the result and makes the input.
            Phase::Forward if transposed => (operands.output, operands.parameters, input),
            Phase::BackwardData if transposed => (operands.grad_output, operands.parameters, grad_input),
            Phase::BackwardWeights if transposed => (operands.grad_output, operands.grad_parameters, input),
            Phase::BackwardData => (grad_input, operands.parameters, operands.grad_output),
            Phase::BackwardWeights => (input, operands.grad_parameters, operands.grad_output),
            Phase::Forward | Phase::Update => (input, operands.parameters, operands.output),
        };
        let mut steps = Vec::new();
        match &self.kernel {
            Kernel::Engine(plan) => steps.push(Step::Convolution(plan.clone(), plan.bind(x, w, y, workspace)?)),
            Kernel::Named(convolution) => {
                steps.push(Step::Named(convolution.clone(), Bound { x, w, y, workspace }));
            }
            Kernel::Products => {
                for (product, addresses) in self.products(operands)? {
                    let made = MatrixProduct::new(gpu.matrices(), &product, trial.precision, addresses, workspace)?;
                    steps.push(Step::Product(Box::new(made)));
                }
            }
            Kernel::Own => {
                for launch in streaming::launches(trial, operands, gpu.limits())? {
                    steps.push(kernel(gpu, launch)?);
                }
            }
        }
        for launch in self.bias(gpu, operands)? {
            steps.push(kernel(gpu, launch)?);
        }
        Ok(steps)
    }

    /// Kernels for a bias that the library's kernel does not include.
    fn bias(&self, gpu: &Gpu, operands: &Operands) -> Result<Vec<KernelLaunch>, DeviceError> {
        let (trial, limits) = (&self.trial, gpu.limits());
        let (biased, fused_forward) = match &trial.case.layer {
            Layer::Conv2d(layer) => (layer.bias, false),
            Layer::ConvTranspose2d(layer) => (layer.bias, false),
            Layer::Linear(layer) => (layer.bias, true),
            _ => (false, true),
        };
        let offset = bias_offset(trial);
        match trial.phase {
            Phase::Forward if biased && !fused_forward => streaming::bias_launches(
                &self.output,
                trial.batch,
                trial.layout,
                trial.precision,
                operands.output,
                operands.parameters + offset,
                limits,
            ),
            Phase::BackwardWeights if biased => streaming::bias_gradient_launches(
                &self.output,
                trial.batch,
                trial.layout,
                trial.precision,
                operands.grad_output,
                operands.grad_parameters + offset,
                operands.scratch,
                limits,
            ),
            _ => Ok(Vec::new()),
        }
    }

    /// The matrix products of a linear layer or of a product of activations.
    fn products(&self, operands: &Operands) -> Result<Vec<(Product, Addresses)>, DeviceError> {
        let trial = &self.trial;
        let missing = || unsupported(trial.case.layer.kind(), "its inputs are not matrices");
        let input = trial.case.inputs.first().ok_or_else(missing)?;
        if let Layer::Linear(layer) = &trial.case.layer {
            // y [rows, features] = x [rows, width] w^T, with w [features, width].
            let width = input.axis();
            let rows = trial.batch * (input.elements() / width.max(1));
            let x = operands.inputs.first().copied().unwrap_or(0);
            let (w, dy) = (operands.parameters, operands.grad_output);
            let plain =
                |m, n, k, transpose_a, transpose_b, bias| Product { m, n, k, transpose_a, transpose_b, batch: 1, bias };
            let one = match trial.phase {
                Phase::Forward => {
                    let bias = if layer.bias { w + bias_offset(trial) } else { 0 };
                    let addresses = Addresses { a: x, b: w, c: operands.output, bias };
                    (plain(rows, layer.features, width, false, true, layer.bias), addresses)
                }
                Phase::BackwardData => {
                    let dx = operands.grad_inputs.first().copied().unwrap_or(0);
                    (plain(rows, width, layer.features, false, false, false), Addresses { a: dy, b: w, c: dx, bias: 0 })
                }
                Phase::BackwardWeights => (
                    plain(layer.features, width, rows, true, false, false),
                    Addresses { a: dy, b: x, c: operands.grad_parameters, bias: 0 },
                ),
                Phase::Update => return Ok(Vec::new()),
            };
            return Ok(vec![one]);
        }
        let other = trial.case.inputs.get(1).ok_or_else(missing)?;
        let (heads, m, k, n) = match (input.dims(), other.dims()) {
            ([m, k], [_, n]) => (1, *m, *k, *n),
            ([h, m, k], [_, _, n]) => (*h, *m, *k, *n),
            _ => return Err(missing()),
        };
        let batch = trial.batch * heads;
        let (a, b) = (operands.inputs.first().copied().unwrap_or(0), operands.inputs.get(1).copied().unwrap_or(0));
        let dy = operands.grad_output;
        let one = |m, n, k, transpose_a, transpose_b| Product { m, n, k, transpose_a, transpose_b, batch, bias: false };
        match trial.phase {
            Phase::Forward => Ok(vec![(one(m, n, k, false, false), Addresses { a, b, c: operands.output, bias: 0 })]),
            // da = dy b^T, db = a^T dy.
            Phase::BackwardData => {
                let (da, db) = (grad_input(operands, 0), grad_input(operands, 1));
                Ok(vec![
                    (one(m, k, n, false, true), Addresses { a: dy, b, c: da, bias: 0 }),
                    (one(k, n, m, true, false), Addresses { a, b: dy, c: db, bias: 0 }),
                ])
            }
            Phase::BackwardWeights | Phase::Update => Ok(Vec::new()),
        }
    }
}

fn grad_input(operands: &Operands, i: usize) -> u64 {
    operands.grad_inputs.get(i).copied().unwrap_or(0)
}

/// One of our own kernels as a step.
///
/// # Errors
/// When the source has no such kernel.
pub fn kernel(gpu: &mut Gpu, launch: KernelLaunch) -> Result<Step, DeviceError> {
    Ok(Step::Kernel(gpu.function(&launch.function)?, launch))
}
