//! What was measured of a sealed round: files of `calibrate/tools/torch_sealed.py` beside the predictions.

use super::round::{Key, Step};
use super::seal::rows;
use anyhow::{Context, Result, bail, ensure};
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
    /// Time of a step.
    pub ms_per_iter: Option<f64>,
    /// Mean power.
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
        let Self { network, mode, precision, batch, launch, .. } = self.clone();
        Key { network, step: Step { mode, precision, batch, launch } }
    }
}

/// Measured rows by board and key.
pub type Boards = BTreeMap<String, BTreeMap<Key, Measured>>;

/// Files of measured rows in a folder, by name.
fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let name = || folder.display().to_string();
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder).with_context(name)? {
        let path = entry.with_context(name)?.path();
        let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if file.starts_with("measured-") && file.ends_with(".csv") {
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
    for path in files(folder)? {
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

/// How many times as long as the profile's table a visit's host took (`hosts.csv`); an empty cell stands for all.
#[derive(Clone, Debug, Deserialize)]
pub struct HostFactor {
    board: String,
    shard: String,
    mode: String,
    precision: String,
    /// The factor.
    pub factor: f64,
}

/// Reads `hosts.csv` of a round's folder; nothing where it is not there.
///
/// # Errors
/// When it cannot be read.
pub fn hosts(folder: &Path) -> Result<Vec<HostFactor>> {
    let path = folder.join("hosts.csv");
    if !path.exists() {
        return Ok(Vec::new());
    }
    let name = path.display().to_string();
    let list: Vec<HostFactor> = rows(&fs::read_to_string(&path).with_context(|| name.clone())?, &name)?;
    ensure!(list.iter().all(|h| h.factor.is_finite() && h.factor > 0.0), "{name}: a factor that is not above 0");
    Ok(list)
}

impl HostFactor {
    /// Whether it is of the visit in which a row was measured.
    pub fn is_of(&self, board: &str, row: &Measured) -> bool {
        let alike = |cell: &str, of: &str| cell.is_empty() || cell == of;
        alike(&self.board, board)
            && alike(&self.shard, &row.shard)
            && alike(&self.mode, &row.mode)
            && alike(&self.precision, &row.precision)
    }
}
