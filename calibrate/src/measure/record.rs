//! Rows of whole-network runs as CSV: the columns of `calibrate/tools/torch_networks.py`, and more after them.

use anyhow::{Context, Result, bail};
use joulecast_kernels::measure::{Burst, Sustained};
use joulecast_kernels::runner::{Identity, Loaded, NetworkTrial};
use joulecast_model::precision::Mode;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::HashSet;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};

/// One run of a network. Times are of one step over the batch.
#[derive(Clone, Debug, Default, PartialEq, Serialize, serde::Deserialize)]
pub struct NetworkRun {
    /// Network.
    pub network: String,
    /// `infer` or `train`.
    pub mode: String,
    /// Precision.
    pub precision: String,
    /// Layout of maps.
    pub layout: String,
    /// Samples.
    pub batch: u64,
    /// `eager` or `graph`.
    pub launch: String,
    /// Milliseconds of a step, sustained; of the burst where there is no meter.
    pub ms_per_iter: f64,
    /// 10 % quantile over blocks.
    pub ms_p10: f64,
    /// 90 % quantile over blocks.
    pub ms_p90: f64,
    /// Mean power.
    pub watts: Option<f64>,
    /// Energy of a step.
    pub joules_per_iter: Option<f64>,
    /// Core clock, mean of the window.
    pub sm_mhz_mean: Option<f64>,
    /// Lowest core clock of the window.
    pub sm_mhz_min: Option<f64>,
    /// Memory clock.
    pub mem_mhz: Option<f64>,
    /// Temperature at the end.
    pub temp_c: Option<f64>,
    /// Device memory for operands and scratch, in MiB.
    pub peak_mem_mib: Option<f64>,
    /// Scratch memory among it, in MiB.
    pub workspace_mib: Option<f64>,
    /// Steps timed.
    pub iters: Option<u64>,
    /// Reasons for which the clock was held back.
    pub throttle: Option<String>,
    /// Ticks of the energy counter in the window.
    pub ticks: Option<u64>,
    /// Product.
    pub device: String,
    /// Driver.
    pub driver: Option<String>,
    /// CUDA.
    pub cuda: Option<String>,
    /// cuDNN.
    pub cudnn: Option<String>,
    /// Milliseconds of a step in the first tens of milliseconds.
    pub burst_ms: Option<f64>,
    /// Core clock meanwhile.
    pub burst_mhz: Option<f64>,
    /// Mean of the instantaneous power over the window: the cross-check.
    pub integral_watts: Option<f64>,
    /// Host time to launch one step eagerly, in milliseconds.
    pub host_ms: Option<f64>,
    /// Reasons for doubt, joined by semicolons.
    pub flags: Option<String>,
}

/// What makes a run unique in a table.
pub fn key(trial: &NetworkTrial<'_>) -> String {
    let mode = if trial.mode == Mode::Inference { "infer" } else { "train" };
    let (name, launch) = (trial.network.name(), trial.launch.name());
    format!("{name},{mode},{},{},{},{launch}", trial.precision, trial.layout, trial.batch)
}

fn mib(bytes: joulecast_model::units::Bytes) -> f64 {
    bytes.get() as f64 / f64::from(1 << 20)
}

impl NetworkRun {
    /// A row before its times.
    pub fn new(trial: &NetworkTrial<'_>, loaded: &Loaded, identity: &Identity) -> Self {
        Self {
            network: trial.network.name().to_string(),
            mode: if trial.mode == Mode::Inference { "infer".into() } else { "train".into() },
            precision: trial.precision.to_string(),
            layout: trial.layout.to_string(),
            batch: trial.batch,
            launch: trial.launch.name().to_string(),
            peak_mem_mib: Some(mib(loaded.memory)),
            workspace_mib: loaded.workspace.map(mib),
            host_ms: loaded.host.map(|h| h.to_ms()),
            device: identity.product.clone(),
            driver: identity.driver.clone(),
            cuda: identity.cuda.clone(),
            cudnn: identity.cudnn.clone(),
            ..Self::default()
        }
    }

    /// Adds the burst.
    pub fn set_burst(&mut self, burst: &Burst) {
        let timing = &burst.timing;
        (self.ms_per_iter, self.ms_p10, self.ms_p90) = (timing.time.to_ms(), timing.p10.to_ms(), timing.p90.to_ms());
        self.iters = Some(timing.executions);
        self.burst_ms = Some(timing.time.to_ms());
        self.burst_mhz = burst.sample.and_then(|s| s.core).map(|c| c.to_mhz());
        self.add_flags(&burst.flags);
    }

    /// Adds the sustained run, whose time becomes the row's.
    pub fn set_sustained(&mut self, sustained: &Sustained) {
        let timing = &sustained.timing;
        (self.ms_per_iter, self.ms_p10, self.ms_p90) = (timing.time.to_ms(), timing.p10.to_ms(), timing.p90.to_ms());
        self.iters = Some(timing.executions);
        self.joules_per_iter = sustained.energy().map(|e| e.get());
        if let Some(reading) = &sustained.reading {
            self.watts = Some(reading.power.get());
            self.sm_mhz_mean = reading.core_mean.map(|c| c.to_mhz());
            self.sm_mhz_min = reading.core_min.map(|c| c.to_mhz());
            self.integral_watts = reading.power_integral.map(|p| p.get());
            self.throttle = reading.reason_names();
            self.ticks = Some(reading.ticks as u64);
        }
        self.mem_mhz = sustained.last.memory.map(|c| c.to_mhz());
        self.temp_c = sustained.last.temperature_c;
        self.add_flags(&sustained.flags);
    }

    fn add_flags(&mut self, flags: &[String]) {
        if !flags.is_empty() {
            let before = self.flags.take().map(|f| f + ";").unwrap_or_default();
            self.flags = Some(before + &flags.join(";"));
        }
    }
}

/// A CSV file that only grows: a row is on disk before the next is measured, and is never measured twice.
pub struct Table<R> {
    path: PathBuf,
    keys: HashSet<String>,
    row: std::marker::PhantomData<R>,
}

impl<R: Serialize + DeserializeOwned> Table<R> {
    /// Opens or begins a table; `key` names a row.
    ///
    /// # Errors
    /// When the file cannot be read or holds something else. A last line without its end is what a stopped run
    /// left: it is cut off.
    pub fn open(path: &Path, key: impl Fn(&R) -> String) -> Result<Self> {
        let mut keys = HashSet::new();
        if path.exists() {
            let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
            let whole = text.rfind('\n').map_or(0, |end| end + 1);
            if whole < text.len() {
                let file = OpenOptions::new().write(true).open(path).with_context(|| path.display().to_string())?;
                file.set_len(whole as u64).with_context(|| path.display().to_string())?;
            }
            let mut reader = csv::Reader::from_reader(text.as_bytes().get(..whole).unwrap_or_default());
            for (i, row) in reader.deserialize().enumerate() {
                let row: R = row.with_context(|| format!("{}, row {}", path.display(), i + 1))?;
                if !keys.insert(key(&row)) {
                    bail!("{}, row {}: measured twice", path.display(), i + 1);
                }
            }
        }
        Ok(Self { path: path.to_path_buf(), keys, row: std::marker::PhantomData })
    }

    /// Whether a row is there.
    pub fn holds(&self, key: &str) -> bool {
        self.keys.contains(key)
    }

    /// Writes a row and waits until it is on disk.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn append(&mut self, key: String, row: &R) -> Result<()> {
        let new = !self.path.exists() || std::fs::metadata(&self.path)?.len() == 0;
        let mut writer = csv::WriterBuilder::new().has_headers(new).from_writer(Vec::new());
        writer.serialize(row)?;
        let bytes = writer.into_inner().context("a row cannot be written")?;
        let mut file: File = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&self.path)
            .with_context(|| self.path.display().to_string())?;
        file.write_all(&bytes)?;
        file.sync_data()?;
        self.keys.insert(key);
        Ok(())
    }
}

impl NetworkRun {
    /// What makes the row unique in a table: see [`key`].
    pub fn key(&self) -> String {
        let Self { network, mode, precision, layout, batch, launch, .. } = self;
        format!("{network},{mode},{precision},{layout},{batch},{launch}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(network: &str) -> NetworkRun {
        NetworkRun { network: network.into(), batch: 4, ms_per_iter: 1.5, ..NetworkRun::default() }
    }

    #[test]
    fn a_table_resumes_after_a_row_that_was_cut() -> Result<()> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("runs.csv");
        let mut table = Table::open(&path, NetworkRun::key)?;
        for name in ["a", "b"] {
            table.append(row(name).key(), &row(name))?;
        }
        let bytes = std::fs::read(&path)?;
        std::fs::write(&path, &bytes[..bytes.len() - 3])?;
        let mut table = Table::open(&path, NetworkRun::key)?;
        assert!(table.holds(&row("a").key()) && !table.holds(&row("b").key()));
        table.append(row("b").key(), &row("b"))?;
        assert_eq!(std::fs::read(&path)?, bytes);
        Ok(())
    }
}
