//! The GPU's state: a file that every process using the library shares, locked for each call.

use crate::law;
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io::{Error, Read, Seek, Write};
use std::path::Path;

/// Environment variable with the state file's path.
pub const VARIABLE: &str = "FAKE_NVML_STATE";

/// What goes wrong on request.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Faults {
    /// Setters answer "no permission".
    pub denied: bool,
    /// Every call about the board answers "GPU is lost".
    pub lost: bool,
    /// The energy counter stands still.
    pub frozen: bool,
    /// The energy counter goes down.
    pub falling: bool,
    /// There is no energy counter.
    pub no_counter: bool,
    /// There is no field of instantaneous power.
    pub no_instant: bool,
    /// There are no counters of throttle times.
    pub no_throttle_times: bool,
    /// The core clock stays at or below this, whatever is locked.
    pub clamp_mhz: Option<u32>,
    /// Setting the power limit is accepted and has no effect.
    pub limit_ignored: bool,
    /// The hardware holds the clock back by temperature.
    pub hot: bool,
}

/// The GPU.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct State {
    /// Load from 0 to 1.
    pub load: f64,
    /// Locked core clocks in MHz, lowest and highest.
    pub lock_mhz: Option<(u32, u32)>,
    /// Power limit in mW.
    pub limit_mw: u32,
    /// NVML's code of the architecture; 9 is Hopper.
    pub architecture: u32,
    /// CUDA compute capability.
    pub capability: (i32, i32),
    /// Processes that compute on the GPU, beside the caller.
    pub others: Vec<u32>,
    /// Whether the caller itself is listed as computing on the GPU.
    pub lists_caller: bool,
    /// What goes wrong.
    pub faults: Faults,
    /// Setter calls that changed something, in order.
    pub calls: Vec<String>,
    /// Time in seconds, where a test lets it pass; else the system's monotonic clock.
    pub time_s: Option<f64>,
    updated_s: Option<f64>,
    energy_j: f64,
    counter_j: f64,
    capped_s: f64,
    hot_s: f64,
}

impl Default for State {
    fn default() -> Self {
        Self {
            load: 1.0,
            lock_mhz: None,
            limit_mw: law::LIMIT_MAX_MW,
            architecture: 9,
            capability: (9, 0),
            others: Vec::new(),
            lists_caller: true,
            faults: Faults::default(),
            calls: Vec::new(),
            time_s: None,
            updated_s: None,
            energy_j: 0.0,
            counter_j: 0.0,
            capped_s: 0.0,
            hot_s: 0.0,
        }
    }
}

impl State {
    fn highest_mhz(&self) -> u32 {
        let locked = self.lock_mhz.map_or(law::CORE_MAX_MHZ, |(_, high)| high);
        locked.min(self.faults.clamp_mhz.unwrap_or(law::CORE_MAX_MHZ))
    }

    /// Core clock now, in MHz.
    pub fn core_mhz(&self) -> u32 {
        if self.load > 0.0 {
            law::core_mhz(self.highest_mhz(), self.load, f64::from(self.limit_mw) * 1e-3)
        } else {
            self.lock_mhz.map_or(law::CORE_MIN_MHZ, |(low, _)| low)
        }
    }

    /// Power now, in watts.
    pub fn power_w(&self) -> f64 {
        law::power_w(self.core_mhz(), self.load)
    }

    /// Whether the power limit holds the clock down.
    pub fn is_capped(&self) -> bool {
        self.load > 0.0 && self.core_mhz() < self.highest_mhz()
    }

    /// The energy counter in mJ.
    pub fn counter_mj(&self) -> u64 {
        let joules = if self.faults.falling { 1e6 - self.counter_j } else { self.counter_j };
        (joules.max(0.0) * 1e3) as u64
    }

    /// Time that the power limit held the clock down, in nanoseconds.
    pub fn capped_ns(&self) -> u64 {
        (self.capped_s * 1e9) as u64
    }

    /// Time that the hardware held the clock down, in nanoseconds.
    pub fn hot_ns(&self) -> u64 {
        (self.hot_s * 1e9) as u64
    }

    /// Lets time pass: between two calls nothing changes, so energy is power times time, and the counter takes the
    /// energy of the last tick.
    fn advance(&mut self) {
        let now = self.time_s.unwrap_or_else(monotonic_s);
        let before = self.updated_s.unwrap_or(now);
        let (power, passed) = (self.power_w(), (now - before).max(0.0));
        let tick = (now / law::TICK_S + 1e-6).floor() * law::TICK_S;
        if tick > before && !self.faults.frozen {
            self.counter_j = self.energy_j + power * (tick - before);
        }
        self.energy_j += power * passed;
        self.capped_s += if self.is_capped() { passed } else { 0.0 };
        self.hot_s += if self.faults.hot { passed } else { 0.0 };
        self.updated_s = Some(now);
    }
}

fn monotonic_s() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a valid place to write to.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

/// Lets time pass, then lets `change` read and change the state; a missing file is a new GPU.
///
/// # Errors
/// When the file cannot be opened, read or written.
pub fn update<R>(path: &Path, change: impl FnOnce(&mut State) -> R) -> Result<R, Error> {
    let mut file: File = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
    file.lock()?;
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    let mut state: State = if text.is_empty() { State::default() } else { serde_json::from_str(&text)? };
    state.advance();
    let result = change(&mut state);
    // A change of the time itself passes it, too.
    state.advance();
    file.rewind()?;
    file.set_len(0)?;
    file.write_all(&serde_json::to_vec(&state)?)?;
    Ok(result)
}
