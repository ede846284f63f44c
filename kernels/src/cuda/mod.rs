//! The CUDA side: libraries found at run time, layers and networks as launches on one stream.

pub mod library;
mod failure;
mod compile;
mod arena;
mod backend;
mod convolution;
mod legacy;
mod matrix;
pub mod device;
mod step;
mod layer;
mod fill;
mod queue;
mod network;
mod runner;
pub mod check;
pub mod ceilings;

pub use runner::CudaRunner;
