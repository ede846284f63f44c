//! What this GPU reaches at most in our own measurements: copy bandwidth, arithmetic, matrix products; and how near
//! our bandwidth-bound kernels come to the copy.

use super::queue::{Queue, Work, block_executions, rough_time};
use super::runner::CudaRunner;
use super::{fill, layer};
use crate::runner::{Launch, LayerRunner};
use crate::{DeviceError, streaming};
use joulecast_model::base::precision::{Mode, Phase, Precision};
use joulecast_model::base::shape::Shape;
use joulecast_model::base::units::{Bytes, Seconds};
use joulecast_model::kernel::work::Trial;
use joulecast_model::net::case::LayerCase;
use joulecast_model::net::layer::ShapeError;
use joulecast_model::net::layer::{Layer, Linear};

/// Iterations of the multiply-add kernel: milliseconds on any GPU.
const ITERATIONS: u32 = 20_000;

/// Side of the square matrix products.
const SIDE: u64 = 8192;

/// Loads a copy that moves `traffic` bytes, half read and half written.
///
/// # Errors
/// When it does not fit in memory.
pub fn load_copy(runner: &mut CudaRunner, precision: Precision, traffic: Bytes) -> Result<(), DeviceError> {
    runner.unload()?;
    let half = traffic.get() / 2;
    let count = half / precision.bytes();
    let gpu = runner.gpu();
    let (from, to) = (gpu.arena().take(half)?, gpu.arena().take(half)?);
    fill::normal(gpu, from, count, 1.0, 1, precision)?;
    let limits = *gpu.limits();
    let launches = streaming::copy(precision, from, to, count, &limits)?;
    let steps = launches.into_iter().map(|l| layer::kernel(gpu, l)).collect::<Result<Vec<_>, _>>()?;
    runner.load_work(Work { sets: vec![steps] })
}

/// Loads the fp32 multiply-add kernel and returns its operations.
///
/// # Errors
/// When the device refuses.
pub fn load_multiply_add(runner: &mut CudaRunner) -> Result<u64, DeviceError> {
    runner.unload()?;
    let gpu = runner.gpu();
    let limits = *gpu.limits();
    let out = gpu.arena().take(streaming::fma_burn_values(&limits) * 4)?;
    let (launch, ops) = streaming::fma_burn(out, ITERATIONS, &limits)?;
    let step = layer::kernel(gpu, launch)?;
    runner.load_work(Work { sets: vec![vec![step]] })?;
    Ok(ops)
}

/// The matrix product of two square matrices of 8192.
///
/// # Errors
/// Never for the size written here.
pub fn square_product(precision: Precision) -> Result<Trial, ShapeError> {
    let layer = Layer::Linear(Linear { features: SIDE, bias: false });
    let case = LayerCase { inputs: vec![Shape::new(&[SIDE])?], layer };
    Trial::usual(case, Phase::Forward, SIDE, precision, Mode::Inference)
}

impl CudaRunner {
    /// Replaces what is loaded by launches that were bound by hand.
    ///
    /// # Errors
    /// When a launch fails.
    pub(super) fn load_work(&mut self, work: Work) -> Result<(), DeviceError> {
        let each = rough_time(self.gpu(), &work)?;
        let executions = block_executions(each, &work);
        let (queue, _) = Queue::new(self.gpu(), work, executions, Launch::Graph)?;
        self.set_queue(queue);
        Ok(())
    }

    /// Median time of one execution of what is loaded, over a few blocks.
    ///
    /// # Errors
    /// When the device fails.
    pub fn median_time(&mut self) -> Result<Seconds, DeviceError> {
        const BLOCKS: usize = 7;
        for _ in 0..=BLOCKS {
            self.enqueue()?;
        }
        let mut times = Vec::new();
        while times.len() <= BLOCKS {
            times.extend(self.finished(true)?.iter().map(|b| b.each().get()));
        }
        // The first block warms up.
        let mut times = times.split_off(1);
        times.sort_by(f64::total_cmp);
        times.get(BLOCKS / 2).copied().map(Seconds::new).ok_or_else(|| super::failure::call("finished", "no block"))
    }
}
