//! A block of launches, queued again and again, and timed by events.

use super::device::Gpu;
use super::failure::driver;
use super::step::Step;
use crate::DeviceError;
use crate::runner::{Block, Launch};
use cudarc::driver::{CudaEvent, CudaGraph, sys};
use joulecast_model::base::units::Seconds;
use std::collections::VecDeque;
use std::time::Instant;

/// Device time of a block: long beside the events around it, short beside the tens of milliseconds after which the
/// power limit lowers the clock.
const BLOCK: Seconds = Seconds::new(3e-3);

/// Most kernel launches in one block: a graph of more takes longer to record than it helps.
const MOST_LAUNCHES: usize = 4000;

/// The operand sets of one execution each, in turn.
pub struct Work {
    /// Steps of one execution, one list per operand set.
    pub sets: Vec<Vec<Step>>,
}

/// What is queued: a recorded graph, or launches from the host.
pub struct Queue {
    work: Work,
    graph: Option<CudaGraph>,
    executions: u64,
    pending: VecDeque<(CudaEvent, CudaEvent)>,
    spare: Vec<(CudaEvent, CudaEvent)>,
}

impl Work {
    /// Queues one execution with the operand set whose turn it is.
    fn launch(&self, gpu: &Gpu, execution: usize) -> Result<(), DeviceError> {
        let Some(steps) = self.sets.get(execution % self.sets.len().max(1)) else { return Ok(()) };
        steps.iter().try_for_each(|step| step.launch(gpu.stream()))
    }

    fn launches(&self) -> usize {
        self.sets.first().map_or(1, Vec::len).max(1)
    }
}

/// Device time of one execution, roughly: after one untimed execution, the mean of a few.
///
/// # Errors
/// When a launch fails.
pub fn rough_time(gpu: &Gpu, work: &Work) -> Result<Seconds, DeviceError> {
    work.launch(gpu, 0)?;
    gpu.synchronize()?;
    let (begin, end) = (gpu.event()?, gpu.event()?);
    let mut count = 1;
    loop {
        begin.record(gpu.stream()).map_err(driver("cuEventRecord"))?;
        for i in 0..count {
            work.launch(gpu, i)?;
        }
        end.record(gpu.stream()).map_err(driver("cuEventRecord"))?;
        let elapsed = Seconds::new(f64::from(begin.elapsed_ms(&end).map_err(driver("cuEventElapsedTime"))?) * 1e-3);
        // Short executions are timed together, lest the host's launches be what is timed.
        if elapsed > Seconds::new(1e-3) || count >= 64 {
            return Ok(elapsed / count as f64);
        }
        count *= 8;
    }
}

/// Executions that fill a block.
pub fn block_executions(each: Seconds, work: &Work) -> u64 {
    let wanted = (BLOCK / each.max(Seconds::new(1e-6))).ceil() as usize;
    wanted.clamp(1, (MOST_LAUNCHES / work.launches()).max(1)) as u64
}

impl Queue {
    /// Records the block. `host` is the mean host time to launch one execution.
    ///
    /// # Errors
    /// When a launch fails or cannot be recorded.
    pub fn new(gpu: &Gpu, work: Work, executions: u64, launch: Launch) -> Result<(Self, Seconds), DeviceError> {
        let timed = executions.min(16) as usize;
        gpu.synchronize()?;
        let begin = Instant::now();
        for i in 0..timed {
            work.launch(gpu, i)?;
        }
        let host = Seconds::new(begin.elapsed().as_secs_f64() / timed as f64);
        gpu.synchronize()?;
        let graph = match launch {
            Launch::Eager => None,
            Launch::Graph => Some(record(gpu, &work, executions)?),
        };
        Ok((Self { work, graph, executions, pending: VecDeque::new(), spare: Vec::new() }, host))
    }

    /// Queues one block.
    ///
    /// # Errors
    /// When the launch fails.
    pub fn enqueue(&mut self, gpu: &Gpu) -> Result<(), DeviceError> {
        let (begin, end) = match self.spare.pop() {
            Some(pair) => pair,
            None => (gpu.event()?, gpu.event()?),
        };
        begin.record(gpu.stream()).map_err(driver("cuEventRecord"))?;
        match &self.graph {
            Some(graph) => graph.launch().map_err(driver("cuGraphLaunch"))?,
            None => {
                for i in 0..self.executions {
                    self.work.launch(gpu, i as usize)?;
                }
            }
        }
        end.record(gpu.stream()).map_err(driver("cuEventRecord"))?;
        self.pending.push_back((begin, end));
        Ok(())
    }

    /// Blocks that finished; with `wait`, at least one if any is queued.
    ///
    /// # Errors
    /// When something queued has failed.
    pub fn finished(&mut self, wait: bool) -> Result<Vec<Block>, DeviceError> {
        let mut blocks = Vec::new();
        while let Some((begin, end)) = self.pending.pop_front() {
            if wait && blocks.is_empty() {
                end.synchronize().map_err(driver("cuEventSynchronize"))?;
            } else if !end.try_is_complete().map_err(driver("cuEventQuery"))? {
                self.pending.push_front((begin, end));
                break;
            }
            let elapsed = begin.elapsed_ms(&end).map_err(driver("cuEventElapsedTime"))?;
            let duration = Seconds::new(f64::from(elapsed) * 1e-3);
            blocks.push(Block { executions: self.executions, duration });
            self.spare.push((begin, end));
        }
        Ok(blocks)
    }

    /// How blocks are launched.
    pub fn method(&self) -> &'static str {
        if self.graph.is_some() { "graph" } else { "loop" }
    }
}

fn record(gpu: &Gpu, work: &Work, executions: u64) -> Result<CudaGraph, DeviceError> {
    let stream = gpu.stream();
    stream
        .begin_capture(sys::CUstreamCaptureMode_enum::CU_STREAM_CAPTURE_MODE_RELAXED)
        .map_err(driver("cuStreamBeginCapture"))?;
    let launched = (0..executions).try_for_each(|i| work.launch(gpu, i as usize));
    // The capture is ended whatever happened in it.
    let ended = stream.end_capture(sys::CUgraphInstantiate_flags(0));
    launched?;
    let graph = ended
        .map_err(driver("cuStreamEndCapture"))?
        .ok_or_else(|| super::failure::call("cuStreamEndCapture", "nothing was recorded"))?;
    graph.upload().map_err(driver("cuGraphUpload"))?;
    gpu.synchronize()?;
    Ok(graph)
}
