//! One thing that is launched on the stream.

use super::backend::Descriptor;
use super::convolution::ConvolutionPlan;
use super::device::launch_kernel;
use super::legacy::{Bound, NamedConvolution};
use super::matrix::MatrixProduct;
use crate::DeviceError;
use crate::launch::KernelLaunch;
use cudarc::driver::{CudaFunction, CudaStream};
use std::rc::Rc;

/// A launch with everything it needs.
pub enum Step {
    /// One of our own kernels.
    Kernel(CudaFunction, KernelLaunch),
    /// A convolution by the engine the heuristics chose.
    Convolution(Rc<ConvolutionPlan>, Descriptor),
    /// A convolution by a named algorithm.
    Named(Rc<NamedConvolution>, Bound),
    /// A matrix product.
    Product(Box<MatrixProduct>),
}

impl Step {
    /// Queues it.
    ///
    /// # Errors
    /// When the launch fails.
    pub fn launch(&self, stream: &CudaStream) -> Result<(), DeviceError> {
        match self {
            Self::Kernel(function, launch) => launch_kernel(function, launch, stream),
            Self::Convolution(plan, pack) => plan.launch(pack),
            Self::Named(convolution, bound) => convolution.launch(bound),
            Self::Product(product) => product.launch(stream.cu_stream()),
        }
    }

    /// Algorithm or engine, for convolutions and matrix products.
    pub fn algorithm(&self) -> Option<String> {
        match self {
            Self::Kernel(..) | Self::Named(..) => None,
            Self::Convolution(plan, _) => Some(plan.engine.clone()),
            Self::Product(product) => Some(product.name.clone()),
        }
    }
}
