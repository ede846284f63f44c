//! What was measured of a sealed round: files of `calibrate/tools/torch_sealed.py` beside the predictions.

use super::round::{Key, Run, Step, one};
use super::seal::rows;
use anyhow::{Context, Result, bail, ensure};
use joulecast_model::base::precision::Mode;
use joulecast_model::catalog;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// A measured row; columns that are not needed are left out.
#[derive(Clone, Debug, Deserialize)]
pub struct Measured {
    network: String,
    mode: String,
    precision: String,
    batch: u64,
    launch: String,
    #[serde(default = "one")]
    gpus: u64,
    #[serde(default)]
    sequence: u64,
    #[serde(default)]
    cached: u64,
    /// Time of a step.
    pub ms_per_iter: Option<f64>,
    /// Mean power, of all its GPUs.
    pub watts: Option<f64>,
    /// Peak of what the allocator held.
    pub peak_mem_mib: Option<f64>,
    /// Why there is no time.
    #[serde(default)]
    pub error: String,
    /// When it was measured.
    pub utc: String,
    /// The GPU as its driver calls it.
    pub device: String,
    /// The GPU's own number.
    pub uuid: String,
    /// The driver.
    pub driver: String,
    /// Version of PyTorch.
    pub torch: String,
    /// Version of cuDNN.
    pub cudnn: String,
    /// Versions of the networks' libraries.
    pub libraries: String,
    round_sha256: String,
    /// Which part of the rows its process measured.
    pub shard: String,
}

impl Measured {
    /// What tells it from others.
    pub fn key(&self) -> Key {
        let Self { network, mode, precision, batch, launch, gpus, sequence, cached, .. } = self.clone();
        Key { network, step: Step { mode, precision, batch, launch, gpus, sequence, cached } }
    }
}

/// Measured rows by board and key.
pub type Boards = BTreeMap<String, BTreeMap<Key, Measured>>;

/// Files in a folder whose names begin and end so, by name.
fn files(folder: &Path, begin: &str, end: &str) -> Result<Vec<PathBuf>> {
    let name = || folder.display().to_string();
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder).with_context(name)? {
        let path = entry.with_context(name)?.path();
        let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if file.starts_with(begin) && file.ends_with(end) {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}

/// Reads the files `measured-*.csv` of a round's folder.
///
/// # Errors
/// When one is of another round's file than that of the hash, a row was measured twice, or a cell is none.
pub fn read(folder: &Path, round_sha256: &str) -> Result<Boards> {
    let mut boards = Boards::new();
    for path in files(folder, "measured-", ".csv")? {
        let name = path.display().to_string();
        let text = fs::read_to_string(&path).with_context(|| name.clone())?;
        for row in rows::<Measured>(&text, &name)? {
            let key = row.key();
            ensure!(row.round_sha256 == round_sha256, "{name}: {key} was measured by another round's file");
            let positive = |v: f64| v.is_finite() && v > 0.0;
            let numbers = [row.ms_per_iter, row.watts, row.peak_mem_mib];
            ensure!(numbers.into_iter().flatten().all(positive), "{name}: {key}: a number that is not above 0");
            ensure!(row.ms_per_iter.is_some() == row.error.is_empty(), "{name}: {key}: either a time or an error");
            let board =
                catalog::gpu(&row.device.to_lowercase().replace("nvidia ", "")).with_context(|| name.clone())?;
            if boards.entry(board.name).or_default().insert(key.clone(), row).is_some() {
                bail!("{name}: {key} was measured twice");
            }
        }
    }
    Ok(boards)
}

/// How many times as long as the profile's table a visit's host took, as `calibrate host` writes it.
#[derive(Clone, Debug, Deserialize)]
struct HostFile {
    factor: HostFactors,
    /// Files that do not tell them have those of chains as factors.
    chains: Option<HostFactors>,
}

/// By what the host does.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostFactors {
    /// Forward pass of inference.
    pub inference: f64,
    /// Training in 32 bits.
    pub training: f64,
    /// Training in mixed precision.
    pub autocast: f64,
    /// Whether these are factors of networks' launches, learned from those of chains, or of chains.
    #[serde(skip)]
    pub of_networks: bool,
}

impl HostFactors {
    /// That of a step.
    pub fn of(&self, run: &Run) -> f64 {
        match run.mode {
            Mode::Inference => self.inference,
            Mode::Training if run.precision.is_narrow() => self.autocast,
            Mode::Training => self.training,
        }
    }
}

/// Hosts of the visits to a board: the files `host-BOARD*.toml` of a round's folder.
///
/// # Errors
/// When one cannot be read, or a factor is not above 0.
pub fn hosts(folder: &Path, board: &str) -> Result<Vec<HostFactors>> {
    let mut list = Vec::new();
    for path in files(folder, &format!("host-{board}"), ".toml")? {
        let name = || path.display().to_string();
        let text = fs::read_to_string(&path).with_context(name)?;
        let HostFile { mut factor, chains } =
            toml::from_str(&text).map_err(|e| anyhow::anyhow!(e.message().to_string())).with_context(name)?;
        let all = [factor.inference, factor.training, factor.autocast];
        ensure!(all.iter().all(|f| f.is_finite() && *f > 0.0), "{}: a factor that is not above 0", name());
        factor.of_networks = chains.is_some();
        list.push(factor);
    }
    Ok(list)
}
