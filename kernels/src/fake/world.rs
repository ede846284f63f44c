//! What the fake simulates: one board on a virtual clock that only its callers move.

use super::Faults;
use super::law::{ACTIVE_IDLE, Effort};
use crate::DeviceError;
use crate::meter::{Sample, ThrottleTimes};
use crate::runner::Block;
use joulecast_model::base::units::{Hertz, Joules, Seconds, Watts};
use joulecast_model::device::gpu::Gpu;
use std::collections::VecDeque;

/// Power and energy readings change this often.
const TICK: f64 = 0.1;
/// How long a heavy load runs before the power limit lowers the clock.
const CAP_DELAY: f64 = 0.05;
/// An idle time after which the power limit's delay begins anew.
const RESTED: f64 = 0.02;
/// Host time to prepare a trial.
const LOADING: f64 = 0.05;
/// Host time of one reading of all sensors.
const READING: f64 = 0.003;
/// Standard deviation of a block's time, as a share.
const TIME_NOISE: f64 = 0.005;
/// Standard deviation of a power reading, as a share.
const POWER_NOISE: f64 = 0.002;
/// Share by which a drifting board's power grows in a second.
const DRIFT: f64 = 0.05;
/// Step of the clock grid.
const CLOCK_STEP_MHZ: f64 = 15.0;

/// NVML's reason bits that the fake gives.
const REASON_IDLE: u64 = 1;
const REASON_POWER_CAP: u64 = 4;

struct Queued {
    work: Effort,
    executions: u64,
    noise: f64,
    /// Share of the block done, and when it began.
    done: f64,
    began: Option<f64>,
}

/// The board.
pub(super) struct World {
    pub(super) faults: Faults,
    pub(super) limit: Watts,
    pub(super) lock: Option<Hertz>,
    pub(super) clocks: Vec<Hertz>,
    pub(super) loaded: Option<(Effort, u64)>,
    memory_clock: Option<Hertz>,
    now: f64,
    queue: VecDeque<Queued>,
    finished: Vec<Block>,
    busy_since: f64,
    idle_since: Option<f64>,
    core: Hertz,
    temperature: f64,
    energy: f64,
    held_back: f64,
    published_energy: f64,
    published_power: f64,
    next_tick: u64,
    calls: u64,
    random: SplitMix,
}

impl World {
    pub(super) fn new(gpu: &Gpu, seed: u64, faults: Faults) -> Self {
        let highest = gpu.core_clock.maximum.as_ref().map_or(gpu.core_clock.boost.value, |m| m.value);
        let count = (highest.to_mhz() / CLOCK_STEP_MHZ) as u64;
        let from = count / 5;
        let clocks: Vec<Hertz> =
            (from..count).map(|i| highest - Hertz::from_mhz(CLOCK_STEP_MHZ) * (count - 1 - i) as f64).collect();
        Self {
            faults,
            limit: gpu.power.limit.value,
            lock: None,
            clocks,
            loaded: None,
            memory_clock: gpu.memory_clock.as_ref().map(|m| m.value),
            now: 0.0,
            queue: VecDeque::new(),
            finished: Vec::new(),
            busy_since: 0.0,
            idle_since: Some(0.0),
            core: highest,
            temperature: 35.0,
            energy: 1e6,
            held_back: 0.0,
            published_energy: 1e6,
            published_power: ACTIVE_IDLE.get(),
            next_tick: 1,
            calls: 0,
            random: SplitMix(seed),
        }
    }

    pub(super) fn now(&self) -> Seconds {
        Seconds::new(self.now)
    }

    /// Counts a call; past the number at which the board is lost every call fails.
    pub(super) fn call(&mut self) -> Result<(), DeviceError> {
        self.calls += 1;
        match self.faults.lost_after {
            Some(limit) if self.calls > limit => Err(DeviceError::Lost("GPU is lost (simulated)".into())),
            _ => Ok(()),
        }
    }

    /// Replaces what is loaded; what was queued runs out first.
    pub(super) fn load(&mut self, work: Effort, executions: u64) {
        while !self.queue.is_empty() {
            self.advance(LOADING);
        }
        self.finished.clear();
        self.advance(LOADING);
        self.loaded = Some((work, executions));
    }

    pub(super) fn enqueue(&mut self) -> Result<(), DeviceError> {
        let Some((work, executions)) = self.loaded else {
            return Err(DeviceError::Call { call: "enqueue".into(), why: "nothing is loaded".into() });
        };
        let noise = (TIME_NOISE * self.random.normal()).exp();
        self.queue.push_back(Queued { work, executions, noise, done: 0.0, began: None });
        Ok(())
    }

    pub(super) fn finished(&mut self, wait: bool) -> Vec<Block> {
        while wait && self.finished.is_empty() && !self.queue.is_empty() {
            self.step(f64::INFINITY);
        }
        std::mem::take(&mut self.finished)
    }

    pub(super) fn sample(&mut self) -> Sample {
        self.advance(READING / 2.0);
        let busy = !self.queue.is_empty();
        let capped = busy && self.is_capped();
        let frozen = self.faults.frozen_counter;
        let sample = Sample {
            at: self.now(),
            counter: Some(Joules::new(if frozen { 1e6 } else { (self.published_energy * 1e3).floor() * 1e-3 })),
            power: Some(Watts::new(self.published_power)),
            core: Some(self.core),
            memory: self.memory_clock,
            temperature_c: Some(self.temperature.round()),
            reasons: Some(if capped { REASON_POWER_CAP } else { u64::from(!busy) * REASON_IDLE }),
            throttled: Some(ThrottleTimes { power: Seconds::new(self.held_back), ..ThrottleTimes::default() }),
            limit: Some(self.limit),
            others: Some(0),
        };
        self.advance(READING / 2.0);
        sample
    }

    fn highest(&self) -> Hertz {
        self.clocks.last().copied().unwrap_or(self.core)
    }

    fn is_capped(&self) -> bool {
        self.core < self.lock.unwrap_or(self.highest())
    }

    fn advance(&mut self, by: f64) {
        let until = self.now + by;
        while self.now < until {
            self.step(until);
        }
    }

    /// Moves the clock to the next event: the end of a block, a tick, the onset of the cap, or `until`.
    fn step(&mut self, until: f64) {
        let highest = self.highest();
        let wanted = self.lock.unwrap_or(highest);
        let tick = self.next_tick as f64 * TICK;
        let mut next = until.min(tick);
        let mut power = ACTIVE_IDLE.get();
        let mut rate = None;
        let running = self.queue.front().map(|b| (b.work, b.executions as f64 * b.noise, 1.0 - b.done));
        if let Some((work, repeats, left)) = running {
            if let Some(idle) = self.idle_since.take()
                && self.now - idle > RESTED
            {
                self.busy_since = self.now;
            }
            let onset = self.busy_since + CAP_DELAY;
            self.core = if self.now >= onset {
                work.clock_under(self.limit, &self.clocks).unwrap_or(wanted).min(wanted)
            } else {
                next = next.min(onset);
                wanted
            };
            let clock = self.core / highest;
            let duration = work.time(clock).get() * repeats;
            next = next.min(self.now + left * duration);
            power = work.power(clock).get();
            if self.faults.drifting {
                power *= 1.0 + DRIFT * (self.now - self.busy_since);
            }
            rate = Some(duration);
        } else {
            self.idle_since.get_or_insert(self.now);
            self.core = wanted;
        }
        self.pass(next, power, rate);
        if self.now >= tick {
            self.published_energy = self.energy;
            self.published_power = power * (1.0 + POWER_NOISE * self.random.normal());
            self.next_tick += 1;
        }
    }

    /// Lets time pass at one power; `duration` is that of the block that runs.
    fn pass(&mut self, next: f64, power: f64, duration: Option<f64>) {
        let passed = (next - self.now).max(0.0);
        let began = self.now;
        self.now = next;
        self.energy += power * passed;
        self.temperature += (30.0 + 0.05 * power - self.temperature) * (passed / 20.0).min(1.0);
        if self.is_capped() {
            self.held_back += passed;
        }
        let (Some(duration), Some(block)) = (duration, self.queue.front_mut()) else { return };
        let start = *block.began.get_or_insert(began);
        block.done += passed / duration;
        if block.done >= 1.0 - 1e-6 {
            let executions = block.executions;
            self.queue.pop_front();
            self.finished.push(Block { executions, duration: Seconds::new(next - start) });
        }
    }
}

/// A small seeded generator (Steele, Lea, Flood 2014).
struct SplitMix(u64);

impl SplitMix {
    fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Standard normal (Box and Muller).
    fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.uniform()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.uniform()).cos()
    }
}
