//! Rows of whole-network runs as CSV: the columns of `calibrate/tools/torch_networks.py`, and more after them.

use super::checksum;
use anyhow::{Context, Result, bail};
use csv::StringRecord;
use joulecast_kernels::measure::{Burst, Sustained};
use joulecast_kernels::runner::{Identity, Loaded, NetworkTrial};
use joulecast_model::base::precision::Mode;
use joulecast_reports::lock::Lock;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::HashSet;
use std::io::{Read as _, Write as _};
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

fn mib(bytes: joulecast_model::base::units::Bytes) -> f64 {
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

/// A CSV file that only grows and that this process alone writes: a row is on disk before the next is measured, and is
/// never measured twice. Each row ends with its checksum, but in files that were begun without.
pub struct Table<R> {
    path: PathBuf,
    lock: Lock,
    empty: bool,
    sealed: bool,
    keys: HashSet<String>,
    row: std::marker::PhantomData<R>,
}

impl<R: Serialize + DeserializeOwned + Default> Table<R> {
    /// Opens or begins a table, and gives the rows that it holds; `key` names a row.
    ///
    /// # Errors
    /// When another process writes to the file, it cannot be read, holds something else, or a row is damaged. A last
    /// line without its end is what a stopped run left: it is cut off.
    pub fn open(path: &Path, key: impl Fn(&R) -> String) -> Result<(Self, Vec<R>)> {
        let name = || path.display().to_string();
        let mut lock = Lock::take(path)?;
        // Read after the lock is taken: whoever held it may have added rows until then.
        let mut bytes = Vec::new();
        lock.file().read_to_end(&mut bytes).with_context(name)?;
        let whole = bytes.iter().rposition(|b| *b == b'\n').map_or(0, |end| end + 1);
        if whole < bytes.len() {
            lock.file().set_len(whole as u64).with_context(name)?;
            bytes.truncate(whole);
        }
        let read = checksum::read::<R>(&bytes, path)?;
        let (ours, _) = cells(&R::default())?;
        if !bytes.is_empty() && read.columns.iter().filter(|c| *c != checksum::COLUMN).ne(ours.iter()) {
            bail!("{} has other columns than are measured here; name another file", path.display());
        }
        let mut keys = HashSet::new();
        for (line, row) in &read.rows {
            if !keys.insert(key(row)) {
                bail!("{}, line {line}: measured twice; delete one of the lines", path.display());
            }
        }
        let sealed = bytes.is_empty() || read.columns.iter().next_back() == Some(checksum::COLUMN);
        let table = Self {
            path: path.to_path_buf(),
            lock,
            empty: bytes.is_empty(),
            sealed,
            keys,
            row: std::marker::PhantomData,
        };
        Ok((table, read.rows.into_iter().map(|(_, row)| row).collect()))
    }

    /// Whether a row is there.
    pub fn holds(&self, key: &str) -> bool {
        self.keys.contains(key)
    }

    /// Writes a row and waits until it is on disk.
    ///
    /// # Errors
    /// When the file cannot be written, or was removed or replaced meanwhile.
    pub fn append(&mut self, key: String, row: &R) -> Result<()> {
        let name = self.path.display().to_string();
        if !self.lock.is_there() {
            bail!("{name} was removed or replaced while it was measured");
        }
        let (mut columns, mut cells) = cells(row)?;
        if self.sealed {
            let sum = checksum::of(&columns, &cells);
            columns.push_field(checksum::COLUMN);
            cells.push_field(&sum);
        }
        let mut writer = csv::Writer::from_writer(Vec::new());
        if self.empty {
            writer.write_record(&columns)?;
        }
        writer.write_record(&cells)?;
        let bytes = writer.into_inner().context("a row cannot be written")?;
        let file = self.lock.file();
        file.write_all(&bytes).and_then(|()| file.sync_data()).with_context(|| name)?;
        self.empty = false;
        self.keys.insert(key);
        Ok(())
    }
}

/// The columns of a row and its cells, as they stand in a file.
fn cells(row: &impl Serialize) -> Result<(StringRecord, StringRecord)> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.serialize(row)?;
    let bytes = writer.into_inner().context("a row cannot be written")?;
    let mut reader = csv::Reader::from_reader(bytes.as_slice());
    let columns = reader.headers()?.clone();
    let cells = reader.records().next().context("a row has no cells")??;
    Ok((columns, cells))
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

    /// A file of two rows.
    fn written(path: &Path) -> Result<Vec<u8>> {
        let (mut table, _) = Table::open(path, NetworkRun::key)?;
        for name in ["a", "b"] {
            table.append(row(name).key(), &row(name))?;
        }
        Ok(std::fs::read(path)?)
    }

    fn refused(path: &Path) -> String {
        let error = Table::open(path, NetworkRun::key).map(|_| ()).expect_err("refused");
        let error = format!("{error:#}");
        assert_eq!(error.lines().count(), 1, "{error}");
        error
    }

    #[test]
    fn a_table_resumes_after_a_row_that_was_cut() -> Result<()> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("runs.csv");
        let bytes = written(&path)?;
        std::fs::write(&path, &bytes[..bytes.len() - 3])?;
        let (mut table, rows) = Table::open(&path, NetworkRun::key)?;
        assert_eq!(rows, [row("a")]);
        assert!(table.holds(&row("a").key()) && !table.holds(&row("b").key()));
        table.append(row("b").key(), &row("b"))?;
        assert_eq!(std::fs::read(&path)?, bytes);
        Ok(())
    }

    #[test]
    fn a_table_is_one_writers_until_it_is_closed() -> Result<()> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("runs.csv");
        let (mut table, _) = Table::open(&path, NetworkRun::key)?;
        assert!(refused(&path).contains("runs.csv: another process is writing"), "{}", refused(&path));
        table.append(row("a").key(), &row("a"))?;
        std::fs::rename(&path, folder.path().join("moved.csv"))?;
        let lost = table.append(row("b").key(), &row("b")).err().map(|e| e.to_string()).unwrap_or_default();
        assert!(lost.contains("removed or replaced"), "{lost}");
        drop(table);
        drop(Table::open(&path, NetworkRun::key)?);
        assert!(!path.exists(), "no empty file stays");
        Ok(())
    }

    #[test]
    fn every_changed_bit_is_noticed() -> Result<()> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("runs.csv");
        let bytes = written(&path)?;
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut changed = bytes.clone();
                changed[at] ^= 1 << bit;
                std::fs::write(&path, &changed)?;
                // The end of the last line: what was cut off is measured again. Ends of lines may be written as \r.
                match Table::open(&path, NetworkRun::key) {
                    Ok((_, rows)) if at + 1 == bytes.len() => assert_eq!(rows, [row("a")]),
                    Ok((_, rows)) => panic!("byte {at}, bit {bit}: {rows:?}"),
                    Err(error) => {
                        let error = format!("{error:#}");
                        assert!(error.contains("runs.csv") && error.lines().count() == 1, "{error}");
                    }
                }
            }
        }
        Ok(())
    }

    #[test]
    fn a_file_from_before_checksums_goes_on_without_them() -> Result<()> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("runs.csv");
        let old = |names: &[&str]| -> Result<Vec<u8>> {
            let mut writer = csv::Writer::from_writer(Vec::new());
            names.iter().try_for_each(|name| writer.serialize(row(name)))?;
            Ok(writer.into_inner().expect("bytes"))
        };
        std::fs::write(&path, old(&["a"])?)?;
        let (mut table, rows) = Table::open(&path, NetworkRun::key)?;
        assert_eq!(rows, [row("a")]);
        table.append(row("b").key(), &row("b"))?;
        drop(table);
        assert_eq!(std::fs::read(&path)?, old(&["a", "b"])?);
        std::fs::write(&path, old(&["a", "a"])?)?;
        assert!(refused(&path).contains("line 3: measured twice"), "{}", refused(&path));
        std::fs::write(&path, "network,batch\na,1\n")?;
        assert!(refused(&path).contains("runs.csv"), "{}", refused(&path));
        Ok(())
    }
}
