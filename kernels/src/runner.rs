//! Running layers and networks: load once, then queue blocks of executions and collect their times.

use crate::DeviceError;
use joulecast_model::base::precision::{Mode, Precision};
use joulecast_model::base::units::{Bytes, Seconds};
use joulecast_model::kernel::setting::{Cache, Layout};
use joulecast_model::kernel::work::Trial;
use joulecast_model::net::network::ShapedNetwork;
pub use joulecast_model::step::framework::Launch;

/// What ran where: written beside every row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// Name of the product as the driver gives it.
    pub product: String,
    /// Board, as NVML and CUDA name it.
    pub uuid: Option<String>,
    /// PCI address.
    pub pci: Option<String>,
    /// Driver version.
    pub driver: Option<String>,
    /// CUDA version of the run-time compiler and libraries.
    pub cuda: Option<String>,
    /// cuDNN version, as `9.19.0`.
    pub cudnn: Option<String>,
    /// cuBLAS version.
    pub cublas: Option<String>,
}

/// A whole network to run.
#[derive(Clone, Debug)]
pub struct NetworkTrial<'a> {
    /// The network with its batch.
    pub network: &'a ShapedNetwork,
    /// Samples.
    pub batch: u64,
    /// Precision.
    pub precision: Precision,
    /// Inference, or a training step with momentum.
    pub mode: Mode,
    /// Order of maps in memory.
    pub layout: Layout,
    /// Launches.
    pub launch: Launch,
}

/// What stands ready on the device.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Loaded {
    /// Algorithm or engine, where the library says.
    pub algorithm: Option<String>,
    /// Scratch memory.
    pub workspace: Option<Bytes>,
    /// Math mode.
    pub math: Option<String>,
    /// Executions in one block; a block takes about 3 ms, or one execution if that is longer.
    pub executions: u64,
    /// How the block is launched: `graph` or `loop`.
    pub method: &'static str,
    /// Where a layer's operands really lie: what rotates through less than the cache is hot, whatever was asked.
    pub cache: Option<Cache>,
    /// Host time to launch one execution from the host.
    pub host: Option<Seconds>,
    /// Device memory in use for operands and scratch.
    pub memory: Bytes,
}

/// One finished block.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Block {
    /// Executions in it.
    pub executions: u64,
    /// From its beginning to its end on the device.
    pub duration: Seconds,
}

impl Block {
    /// Time of one execution.
    pub fn each(&self) -> Seconds {
        self.duration / self.executions as f64
    }
}

/// Runs layers and networks. What was loaded last is what is queued.
pub trait LayerRunner {
    /// What the rows of this device say of it.
    fn identity(&self) -> &Identity;

    /// Prepares a trial: operands with random values, algorithm, block. Replaces what was loaded.
    ///
    /// # Errors
    /// When the layer cannot run on this device in this way, or the device fails.
    fn load(&mut self, trial: &Trial) -> Result<Loaded, DeviceError>;

    /// The algorithm that would run a trial, by the name that rows give it, without running it; `None` where the library
    /// does not say.
    ///
    /// # Errors
    /// As [`LayerRunner::load`].
    fn algorithm(&mut self, trial: &Trial) -> Result<Option<String>, DeviceError> {
        Ok(self.load(trial)?.algorithm)
    }

    /// Prepares a whole network with real buffers and data flow. Replaces what was loaded.
    ///
    /// # Errors
    /// As [`LayerRunner::load`].
    fn load_network(&mut self, trial: &NetworkTrial<'_>) -> Result<Loaded, DeviceError>;

    /// Queues one block and returns without waiting for it.
    ///
    /// # Errors
    /// When nothing is loaded or the device fails.
    fn enqueue(&mut self) -> Result<(), DeviceError>;

    /// Blocks that finished since the last call, in order. With `wait`, and blocks queued, waits for at least one.
    ///
    /// # Errors
    /// When the device fails.
    fn finished(&mut self, wait: bool) -> Result<Vec<Block>, DeviceError>;
}
