//! How one trial is measured: the burst at full clock, and the sustained run between ticks of the energy counter.
//!
//! Pure logic over [`LayerRunner`] and [`PowerMeter`]: what to queue, when to read, when to stop, what to flag.
//! A flagged result is kept; whoever fits decides.

use crate::DeviceError;
use crate::energy::{self, Reading, Rejection};
use crate::meter::{PowerMeter, Sample};
use crate::nvml::reasons;
use crate::runner::{Block, LayerRunner};
use joulecast_model::base::units::{Joules, Seconds};

/// The times of blocks scatter more than the rules allow.
pub const SPREAD: &str = "spread";
/// Power did not become steady.
pub const DRIFTING: &str = "drifting";
/// The device ran dry between blocks, so that power is not that of the layer.
pub const IDLE_GAPS: &str = "idle_gaps";
/// The clock that was read cannot be the one it ran at: `t f` exceeds its value in the burst.
pub const CLOCK_BELOW: &str = "clock_below_reported";

/// Blocks that stand queued at least while sensors are read.
const AHEAD: u64 = 2;
/// Most blocks queued ahead when sensors read slowly.
const MOST_AHEAD: u64 = 16;
/// Share of the window that must be covered by blocks.
const BUSY: f64 = 0.95;
/// What `t f` may exceed its value at full clock by.
const CLOCK_TOLERANCE: f64 = 1.05;

/// When to stop.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rules {
    /// Fewest blocks of a burst.
    pub blocks: usize,
    /// Least device time of a burst.
    pub burst: Seconds,
    /// A block that takes longer than this counts as long.
    pub long_block: Seconds,
    /// Fewest blocks of a burst where they are long.
    pub long_blocks: usize,
    /// Largest p90/p10 - 1 of the blocks' times.
    pub spread: f64,
    /// Device time after which a burst ends whatever its spread.
    pub burst_budget: Seconds,
    /// Longest wait for the clock to recover from what ran before.
    pub recover: Seconds,
    /// Time under load before the first reading that counts: by then the power limit has lowered the clock, and
    /// sensors that show a past period no longer show the time before.
    pub settle: Seconds,
    /// Window that must be steady.
    pub window: Seconds,
    /// Time after which a sustained run ends whatever its drift.
    pub timeout: Seconds,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            blocks: 5,
            burst: Seconds::from_ms(15.0),
            long_block: Seconds::from_ms(100.0),
            long_blocks: 3,
            spread: 0.04,
            burst_budget: Seconds::from_ms(60.0),
            recover: Seconds::from_ms(200.0),
            settle: Seconds::from_ms(200.0),
            window: Seconds::new(1.5),
            timeout: Seconds::new(5.0),
        }
    }
}

/// Times of one execution over blocks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Timing {
    /// The value: the median of a burst, the mean of a sustained run.
    pub time: Seconds,
    /// 10 % quantile over blocks.
    pub p10: Seconds,
    /// 90 % quantile over blocks.
    pub p90: Seconds,
    /// Blocks.
    pub blocks: usize,
    /// Executions in them.
    pub executions: u64,
}

impl Timing {
    /// Median and quantiles; `None` without blocks.
    fn of(blocks: &[Block]) -> Option<Self> {
        let mut each: Vec<f64> = blocks.iter().map(|b| b.each().get()).collect();
        each.sort_by(f64::total_cmp);
        Some(Self {
            time: quantile(&each, 0.5)?,
            p10: quantile(&each, 0.1)?,
            p90: quantile(&each, 0.9)?,
            blocks: blocks.len(),
            executions: blocks.iter().map(|b| b.executions).sum(),
        })
    }

    /// p90 / p10 - 1.
    pub fn spread(&self) -> f64 {
        self.p90 / self.p10 - 1.0
    }
}

/// Quantile of sorted values, linear between them; `None` of an empty list.
fn quantile(sorted: &[f64], share: f64) -> Option<Seconds> {
    let at = share * sorted.len().checked_sub(1)? as f64;
    let (low, high) = (sorted[at.floor() as usize], sorted[at.ceil() as usize]);
    Some(Seconds::new(low + (high - low) * at.fract()))
}

/// A burst: the first tens of milliseconds, at the clock seen.
#[derive(Clone, Debug, PartialEq)]
pub struct Burst {
    /// Median and quantiles over blocks.
    pub timing: Timing,
    /// Sensors read while blocks were queued; `None` without a meter.
    pub sample: Option<Sample>,
    /// Reasons to leave it out of fits.
    pub flags: Vec<String>,
}

/// Keeps blocks queued, and counts them.
struct Queue<'a> {
    runner: &'a mut dyn LayerRunner,
    waiting: u64,
}

impl Queue<'_> {
    fn fill(&mut self, blocks: u64) -> Result<(), DeviceError> {
        while self.waiting < blocks {
            self.runner.enqueue()?;
            self.waiting += 1;
        }
        Ok(())
    }

    fn finished(&mut self, wait: bool) -> Result<Vec<Block>, DeviceError> {
        let blocks = self.runner.finished(wait)?;
        if wait && blocks.is_empty() && self.waiting > 0 {
            let why = format!("{} blocks are queued and none finishes", self.waiting);
            return Err(DeviceError::Call { call: "finished".into(), why });
        }
        self.waiting = self.waiting.saturating_sub(blocks.len() as u64);
        Ok(blocks)
    }

    fn drain(&mut self) -> Result<(), DeviceError> {
        while self.waiting > 0 {
            self.finished(true)?;
        }
        Ok(())
    }
}

/// Waits, with nothing queued, until the power limit no longer holds the clock back from what ran before.
fn recover(meter: &mut dyn PowerMeter, rules: &Rules) -> Result<(), DeviceError> {
    let first = meter.sample()?;
    let mut now = first;
    while now.reasons.is_some_and(|bits| bits & reasons::POWER_LIMIT != 0) && now.at - first.at < rules.recover {
        now = meter.sample()?;
    }
    Ok(())
}

/// Times what is loaded at full clock: a warm-up block, then blocks until the rules are met. Blocks that finish
/// after that are left out, since the power limit may have lowered the clock by then.
///
/// # Errors
/// When the device fails.
pub fn burst(
    runner: &mut dyn LayerRunner,
    mut meter: Option<&mut dyn PowerMeter>,
    rules: &Rules,
) -> Result<Burst, DeviceError> {
    if let Some(meter) = meter.as_mut() {
        recover(*meter, rules)?;
    }
    let mut queue = Queue { runner, waiting: 0 };
    let (mut blocks, mut warm, mut sample) = (Vec::new(), false, None);
    let timing = loop {
        queue.fill(AHEAD)?;
        if warm
            && sample.is_none()
            && let Some(meter) = meter.as_mut()
        {
            queue.fill(AHEAD + 1)?;
            sample = Some(meter.sample()?);
        }
        let mut finished = queue.finished(true)?;
        if !warm {
            finished.remove(0);
            warm = true;
        }
        blocks.append(&mut finished);
        if let Some(timing) = Timing::of(&blocks)
            && enough(&blocks, &timing, rules)
        {
            break timing;
        }
    };
    queue.drain()?;
    let mut flags = Vec::new();
    if timing.spread() > rules.spread {
        flags.push(SPREAD.to_string());
    }
    flags.extend(sample.iter().flat_map(disturbances).map(|r| r.name().to_string()));
    Ok(Burst { timing, sample, flags })
}

/// What a single sample tells against a measurement.
fn disturbances(sample: &Sample) -> Vec<Rejection> {
    let others = sample.others.filter(|n| *n > 0).map(Rejection::OtherProcesses);
    let brake = sample.reasons.filter(|bits| bits & reasons::HARDWARE != 0);
    let brake = brake.map(|_| Rejection::HardwareThrottle(Seconds::ZERO));
    others.into_iter().chain(brake).collect()
}

/// Whether a burst's blocks suffice.
fn enough(blocks: &[Block], timing: &Timing, rules: &Rules) -> bool {
    let total: Seconds = blocks.iter().map(|b| b.duration).sum();
    let long = blocks.iter().any(|b| b.duration > rules.long_block);
    let fewest = if long { rules.long_blocks } else { rules.blocks };
    let settled = timing.spread() <= rules.spread || total >= rules.burst_budget;
    blocks.len() >= fewest && total >= rules.burst && settled
}

/// A sustained run: what the layer takes when nothing else runs for seconds.
#[derive(Clone, Debug, PartialEq)]
pub struct Sustained {
    /// Device time per execution over the window: mean, and quantiles over blocks.
    pub timing: Timing,
    /// Power, clocks and temperatures of the window; `None` where the samples support no reading, and then a flag
    /// says why.
    pub reading: Option<Reading>,
    /// The last sample: what is known where there is no reading.
    pub last: Sample,
    /// Reasons to leave it out of fits.
    pub flags: Vec<String>,
}

impl Sustained {
    /// Energy of one execution: mean power times the time of one execution.
    pub fn energy(&self) -> Option<Joules> {
        self.reading.as_ref().map(|r| r.power * self.timing.time)
    }
}

/// A block and the host time of the first reading after its end.
type Finished = (Seconds, Block);

/// Runs what is loaded, reading sensors all the while, until power is steady over the rules' window.
///
/// # Errors
/// When the device fails.
pub fn sustained(
    runner: &mut dyn LayerRunner,
    meter: &mut dyn PowerMeter,
    rules: &Rules,
) -> Result<Sustained, DeviceError> {
    let mut queue = Queue { runner, waiting: 0 };
    let mut samples: Vec<Sample> = Vec::new();
    let mut blocks: Vec<Finished> = Vec::new();
    let mut ahead = AHEAD;
    let mut checked = Seconds::ZERO;
    let mut begun = None;
    let (reading, last, drifting) = loop {
        queue.fill(ahead)?;
        let sample = meter.sample()?;
        if sample.at - *begun.get_or_insert(sample.at) >= rules.settle {
            samples.push(sample);
        }
        blocks.extend(queue.finished(false)?.into_iter().map(|block| (sample.at, block)));
        // Everything ran out during the reading: such gaps would lower the power.
        if queue.waiting == 0 {
            ahead = (ahead * 2).min(MOST_AHEAD);
        }
        let elapsed = samples.first().map_or(Seconds::ZERO, |first| sample.at - first.at);
        if elapsed >= rules.window && sample.at - checked >= Seconds::from_ms(50.0) {
            checked = sample.at;
            if let Some(reading) = energy::steady(&samples, rules.window) {
                break (Ok(reading), sample, false);
            }
            if let Err(hopeless @ (Rejection::CounterFrozen(_) | Rejection::CounterFalling(..) | Rejection::NoSensor)) =
                energy::reading(&samples)
            {
                break (Err(hopeless), sample, false);
            }
        }
        if elapsed >= rules.timeout {
            break (energy::reading(last_window(&samples, rules.window)), sample, true);
        }
    };
    // A block may take longer than the window; one has to finish.
    while blocks.is_empty() && queue.waiting > 0 {
        blocks.extend(queue.finished(true)?.into_iter().map(|block| (last.at, block)));
    }
    queue.drain()?;
    let mut flags = Vec::new();
    if drifting {
        flags.push(DRIFTING.to_string());
    }
    if let Err(rejection) = &reading {
        flags.push(rejection.name().to_string());
    }
    let reading = reading.ok();
    let (from, to) = reading.as_ref().map_or((last.at - rules.window, last.at), |r| (r.start, r.end));
    let timing = window_timing(&blocks, from, to)
        .ok_or_else(|| DeviceError::Call { call: "finished".into(), why: "no block finished".into() })?;
    if has_gaps(&blocks, from, to) {
        flags.push(IDLE_GAPS.to_string());
    }
    Ok(Sustained { timing, reading, last, flags })
}

/// Samples of the last `window`, and what precedes them by a tick.
fn last_window(samples: &[Sample], window: Seconds) -> &[Sample] {
    let Some(last) = samples.last() else { return samples };
    let from = samples.partition_point(|s| last.at - s.at > window);
    &samples[from..]
}

/// Timing of the blocks that finished within the window, or of the last where none did.
fn window_timing(blocks: &[Finished], from: Seconds, to: Seconds) -> Option<Timing> {
    let within: Vec<Block> = blocks.iter().filter(|(at, _)| from < *at && *at <= to).map(|(_, b)| *b).collect();
    let within = if within.is_empty() { vec![blocks.last()?.1] } else { within };
    let timing = Timing::of(&within)?;
    let total: Seconds = within.iter().map(|b| b.duration).sum();
    Some(Timing { time: total / timing.executions as f64, ..timing })
}

/// Whether blocks cover too little of the time between the first and the last that finished within the window.
fn has_gaps(blocks: &[Finished], from: Seconds, to: Seconds) -> bool {
    let within: Vec<&Finished> = blocks.iter().filter(|(at, _)| from < *at && *at <= to).collect();
    let (Some((first, _)), Some((last, _))) = (within.first(), within.last()) else { return false };
    let span = *last - *first;
    if span < (to - from) / 2.0 {
        return false;
    }
    // Blocks seen by the first reading ended before it.
    let busy: Seconds = within.iter().filter(|(at, _)| at > first).map(|(_, b)| b.duration).sum();
    busy / span < BUSY
}

/// Flags a sustained run whose clock cannot have been what was read: at a lower clock a layer takes at most the
/// burst's time times the ratio of the clocks.
pub fn check_clock(burst: &Burst, sustained: &mut Sustained) {
    let burst_clock = burst.sample.and_then(|s| s.core);
    let clock = sustained.reading.as_ref().and_then(|r| r.core_mean);
    if let (Some(fast), Some(slow)) = (burst_clock, clock)
        && slow <= fast
        && sustained.timing.time.get() * slow.get() > CLOCK_TOLERANCE * burst.timing.time.get() * fast.get()
    {
        sustained.flags.push(CLOCK_BELOW.to_string());
    }
}

#[cfg(test)]
mod tests;
