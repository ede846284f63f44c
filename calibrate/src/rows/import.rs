//! `calibrate import`: published files into a dataset.

use crate::rows::workbook::sheets;
use crate::rows::writer::Writer;
use crate::rows::{aiconfigurator, segment};
use crate::system::hash::sha256_hex;
use crate::system::memory;
use anyhow::{Context, Result, bail};
use joulecast_import::table::Mapping;
use joulecast_import::{Imported, deepbench, neusight, table, torch};
use joulecast_model::base::precision::Precision;
use joulecast_model::catalog;
use std::fs;
use std::path::Path;

/// No published file is larger; more is refused before it is read.
const MOST_BYTES: u64 = 256 << 20;

/// Which format a file has.
#[derive(Clone, Debug)]
pub enum Format {
    /// A DeepBench workbook.
    Deepbench,
    /// One of NeuSight's original CSV files.
    Neusight,
    /// Any CSV, read by a mapping.
    Table(Box<Mapping>),
    /// Layers through PyTorch, as `calibrate/tools/torch_ops.py` writes them.
    Torch,
    /// A table of NVIDIA AIConfigurator in Parquet.
    Aiconfigurator,
}

/// What happened to a file.
#[derive(Clone, Debug)]
pub struct Report {
    /// Rows written, flagged ones included.
    pub rows: usize,
    /// Rows flagged.
    pub flagged: usize,
    /// Lines left out, by reason.
    pub skipped: Vec<(String, usize)>,
    /// Whether the same bytes were imported before; then nothing was written.
    pub known: bool,
}

/// Imports a file into the dataset.
///
/// # Errors
/// One line naming the file and what is wrong with it, or the dataset where another process writes to it; nothing is
/// written then.
pub fn import(path: &Path, format: &Format, gpu: Option<&str>, dataset: &Path) -> Result<Report> {
    let bytes = read_capped(path)?;
    let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    let imported =
        memory::reading(path, || read(&bytes, &name, format, gpu)).with_context(|| path.display().to_string())?;
    if imported.rows.is_empty() {
        bail!("{}: no rows of layer times found", path.display());
    }
    let label = match format {
        Format::Deepbench => "deepbench".to_string(),
        Format::Neusight => "neusight".to_string(),
        Format::Table(mapping) => mapping.name().to_string(),
        Format::Torch => torch::SOURCE.to_string(),
        Format::Aiconfigurator => joulecast_import::aiconfigurator::SOURCE.to_string(),
    };
    let digest = sha256_hex(&bytes);
    let segment_name = format!("{label}-{}-{}", gpu.unwrap_or("any"), &digest[..16]);
    // What is there is looked at by who alone may add to it.
    let writer = Writer::open(dataset)?;
    let known = segment::path(dataset, &segment_name).exists();
    if !known {
        segment::append(&writer, &segment_name, &imported.rows)?;
    }
    Ok(Report {
        rows: imported.rows.len(),
        flagged: imported.rows.iter().filter(|r| !r.usable()).count(),
        skipped: imported.skipped.into_iter().collect(),
        known,
    })
}

/// A file of no more than any published one has.
///
/// # Errors
/// When it cannot be read, or is larger.
pub fn read_capped(path: &Path) -> Result<Vec<u8>> {
    let metadata = fs::metadata(path).with_context(|| path.display().to_string())?;
    if !metadata.is_file() {
        bail!("{} is not a regular file", path.display());
    }
    let size = metadata.len();
    if size > MOST_BYTES {
        bail!("{}: {size} bytes are more than any published file has", path.display());
    }
    fs::read(path).with_context(|| path.display().to_string())
}

fn read(bytes: &[u8], name: &str, format: &Format, gpu: Option<&str>) -> Result<Imported> {
    if let Some(gpu) = gpu {
        catalog::gpu(gpu)?;
    }
    let text = || std::str::from_utf8(bytes).context("not UTF-8 text");
    let peak = |gpu: &str| catalog::gpu(gpu).ok()?.peak(Precision::Fp32).map(|p| p.get());
    match format {
        Format::Deepbench => Ok(deepbench::import(name, &sheets(bytes)?, gpu)?),
        Format::Neusight => Ok(neusight::import(name, text()?, gpu, &peak)?),
        Format::Table(mapping) => Ok(table::import(text()?, mapping)?),
        Format::Torch => {
            let gpu = gpu.context("the file does not say which GPU: --gpu NAME")?;
            Ok(torch::import(name, text()?, gpu)?)
        }
        Format::Aiconfigurator if gpu.is_some() => bail!("the file says which GPUs: no --gpu"),
        Format::Aiconfigurator => aiconfigurator::import(bytes),
    }
}
