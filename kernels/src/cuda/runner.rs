//! [`LayerRunner`] on a CUDA device.

use super::device::Gpu;
use super::fill;
use super::layer::{Plans, Prepared, misfit};
use super::network;
use super::queue::{Queue, Work, block_executions, rough_time};
use super::step::Step;
use crate::launch::Operands;
use crate::operands::{Sizes, scratch, sizes};
use crate::runner::{Block, Identity, Launch, LayerRunner, Loaded, NetworkTrial};
use crate::{DeviceError, streaming};
use joulecast_model::base::units::Bytes;
use joulecast_model::kernel::setting::{Algorithm, Cache};
use joulecast_model::kernel::work::Trial;

/// Operand sets rotate through this many times the second-level cache.
const CACHES: u64 = 2;

/// Most operand sets: tiny layers cannot be kept out of the cache by rotation alone.
const MOST_SETS: u64 = 512;

/// Runs layers and networks on one GPU.
pub struct CudaRunner {
    // Before the GPU: graphs and plans refer to its context.
    queue: Option<Queue>,
    plans: Plans,
    gpu: Gpu,
}

impl CudaRunner {
    /// Opens a GPU by its number.
    ///
    /// # Errors
    /// As [`Gpu::open`].
    pub fn open(ordinal: usize) -> Result<Self, DeviceError> {
        Ok(Self { queue: None, plans: Plans::default(), gpu: Gpu::open(ordinal)? })
    }

    /// The same without memory for operands: what many processes may hold that only ask for algorithms.
    ///
    /// # Errors
    /// As [`Gpu::open`].
    pub fn open_without_memory(ordinal: usize) -> Result<Self, DeviceError> {
        let gpu = Gpu::open_with(ordinal, Bytes::new(1 << 20))?;
        Ok(Self { queue: None, plans: Plans::default(), gpu })
    }

    /// Adds what only NVML tells: the driver's version and the board's PCI address.
    pub fn set_driver(&mut self, driver: Option<String>, pci: Option<String>) {
        self.gpu.set_driver(driver, pci);
    }

    /// The GPU.
    pub fn gpu(&mut self) -> &mut Gpu {
        &mut self.gpu
    }

    pub(super) fn set_queue(&mut self, queue: Queue) {
        self.queue = Some(queue);
    }

    /// Forgets what was loaded.
    ///
    /// # Errors
    /// When something queued has failed.
    pub fn unload(&mut self) -> Result<(), DeviceError> {
        self.gpu.synchronize()?;
        self.queue = None;
        self.gpu.arena().reset();
        Ok(())
    }

    /// Puts operands of a trial into memory, sharing `shared`'s activations where given.
    fn place(&mut self, trial: &Trial, sizes: &Sizes, shared: Option<&Operands>) -> Result<Operands, DeviceError> {
        let (saved, scratch) = (streaming::saved(trial)?.get(), scratch(trial)?);
        let arena = self.gpu.arena();
        let mut take = |bytes: u64| if bytes == 0 { Ok(0) } else { arena.take(bytes) };
        let mut operands = Operands {
            parameters: take(sizes.parameters)?,
            grad_parameters: take(sizes.grad_parameters)?,
            running: take(sizes.running)?,
            state: take(sizes.state)?,
            ..Operands::default()
        };
        operands.master = if sizes.master > 0 { take(sizes.master)? } else { operands.parameters };
        match shared {
            Some(shared) => Ok(Operands {
                inputs: shared.inputs.clone(),
                output: shared.output,
                grad_output: shared.grad_output,
                grad_inputs: shared.grad_inputs.clone(),
                saved: shared.saved,
                scratch: shared.scratch,
                ..operands
            }),
            None => {
                operands.inputs = sizes.inputs.iter().map(|b| take(*b)).collect::<Result<_, _>>()?;
                operands.output = take(sizes.output)?;
                operands.grad_output = take(sizes.grad_output)?;
                operands.grad_inputs = sizes.grad_inputs.iter().map(|b| take(*b)).collect::<Result<_, _>>()?;
                operands.saved = take(saved)?;
                operands.scratch = take(scratch)?;
                Ok(operands)
            }
        }
    }

    /// The operands of one set, filled, and the steps bound to them.
    fn set(
        &mut self,
        prepared: &Prepared,
        trial: &Trial,
        sizes: &Sizes,
        shared: Option<&Operands>,
        workspace: u64,
        seed: u64,
    ) -> Result<(Operands, Vec<Step>), DeviceError> {
        let operands = self.place(trial, sizes, shared)?;
        match shared {
            None => fill::operands(&mut self.gpu, trial, sizes, &operands, seed)?,
            Some(_) => fill::operands(&mut self.gpu, trial, &only_learned(sizes), &without_maps(&operands), seed)?,
        }
        let steps = prepared.bind(&mut self.gpu, &operands, workspace)?;
        Ok((operands, steps))
    }

    /// Loads a trial with one set of operands and runs it once: for checks of what it computes.
    ///
    /// # Errors
    /// As [`LayerRunner::load`].
    pub fn run_once(
        &mut self,
        trial: &Trial,
        values: impl FnOnce(&mut Gpu, &Operands) -> Result<(), DeviceError>,
    ) -> Result<Operands, DeviceError> {
        self.unload()?;
        let sizes = sizes(trial).map_err(|e| misfit(trial, &e))?;
        let prepared = Prepared::new(&self.gpu, &mut self.plans, trial)?;
        let workspace = self.gpu.arena().take(prepared.workspace())?;
        let (operands, steps) = self.set(&prepared, trial, &sizes, None, workspace, 1)?;
        values(&mut self.gpu, &operands)?;
        steps.iter().try_for_each(|s| s.launch(self.gpu.stream()))?;
        self.gpu.synchronize()?;
        Ok(operands)
    }
}

fn only_learned(sizes: &Sizes) -> Sizes {
    Sizes { inputs: Vec::new(), output: 0, grad_output: 0, grad_inputs: Vec::new(), ..sizes.clone() }
}

fn without_maps(operands: &Operands) -> Operands {
    Operands { inputs: Vec::new(), output: 0, grad_output: 0, saved: 0, ..operands.clone() }
}

impl LayerRunner for CudaRunner {
    fn identity(&self) -> &Identity {
        self.gpu.identity()
    }

    fn load(&mut self, trial: &Trial) -> Result<Loaded, DeviceError> {
        self.unload()?;
        let sizes = sizes(trial).map_err(|e| misfit(trial, &e))?;
        let prepared = Prepared::new(&self.gpu, &mut self.plans, trial)?;
        let workspace = self.gpu.arena().take(prepared.workspace())?;
        let (first, steps) = self.set(&prepared, trial, &sizes, None, workspace, 1)?;
        if steps.is_empty() {
            return Err(super::failure::unsupported(
                format!("{} of {}", trial.phase, trial.case.layer.kind()),
                "no kernel runs in it",
            ));
        }
        let algorithm = match trial.algorithm {
            Algorithm::Heuristic => steps.iter().find_map(Step::algorithm),
            named => Some(named.name().to_string()),
        };
        let mut work = Work { sets: vec![steps] };
        let each = rough_time(&self.gpu, &work)?;
        let executions = block_executions(each, &work);

        let rotating = match trial.cache {
            Cache::Cold => sizes.activations() + sizes.learned(),
            Cache::Hot => sizes.learned(),
        };
        let wanted = (CACHES * self.gpu.cache().get()).div_ceil(rotating.max(1)).min(MOST_SETS).min(executions);
        let shared = (trial.cache == Cache::Hot).then_some(&first);
        if rotating > 0 {
            for i in 1..wanted {
                match self.set(&prepared, trial, &sizes, shared, workspace, 1000 * (i + 1)) {
                    Ok((_, steps)) => work.sets.push(steps),
                    // Fewer sets than wanted: the row says so.
                    Err(DeviceError::OutOfMemory { .. }) => break,
                    Err(other) => return Err(other),
                }
            }
        }
        // What rotates through less than the cache is hot, whatever was asked for.
        let cold = rotating * work.sets.len() as u64 >= self.gpu.cache().get();
        let cache = if trial.cache == Cache::Cold && cold { Cache::Cold } else { Cache::Hot };
        self.gpu.synchronize()?;
        let (queue, host) = Queue::new(&self.gpu, work, executions, Launch::Graph)?;
        let loaded = Loaded {
            algorithm,
            workspace: Some(Bytes::new(prepared.workspace())),
            math: None,
            executions,
            method: queue.method(),
            cache: Some(cache),
            host: Some(host),
            memory: self.gpu.arena().used(),
        };
        self.queue = Some(queue);
        Ok(loaded)
    }

    fn algorithm(&mut self, trial: &Trial) -> Result<Option<String>, DeviceError> {
        Prepared::new(&self.gpu, &mut Plans::default(), trial)?.algorithm(&self.gpu)
    }

    fn load_network(&mut self, trial: &NetworkTrial<'_>) -> Result<Loaded, DeviceError> {
        self.unload()?;
        let built = network::build(&mut self.gpu, &mut self.plans, trial)?;
        let work = Work { sets: vec![built.steps] };
        let each = rough_time(&self.gpu, &work)?;
        let executions = block_executions(each, &work);
        let (queue, host) = Queue::new(&self.gpu, work, executions, trial.launch)?;
        let loaded = Loaded {
            algorithm: None,
            workspace: Some(built.workspace),
            math: None,
            executions,
            method: queue.method(),
            cache: None,
            host: Some(host),
            memory: self.gpu.arena().used(),
        };
        self.queue = Some(queue);
        Ok(loaded)
    }

    fn enqueue(&mut self) -> Result<(), DeviceError> {
        match &mut self.queue {
            Some(queue) => queue.enqueue(&self.gpu),
            None => Err(super::failure::call("enqueue", "nothing is loaded")),
        }
    }

    fn finished(&mut self, wait: bool) -> Result<Vec<Block>, DeviceError> {
        self.queue.as_mut().map_or_else(|| Ok(Vec::new()), |queue| queue.finished(wait))
    }
}
