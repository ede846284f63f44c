//! Power and clocks that others published, beside what `predict` computes for them: `calibrate published`.

pub mod all_reduce;
pub mod average;
pub mod board;
pub mod caps;
pub mod kernels;
pub mod savings;
pub mod sweeps;
pub mod timm;
pub mod traces;
pub mod voltage;

use anyhow::{Context, Result, bail};
use joulecast_ask::papers::{self, Line, Paper};
use joulecast_model::base::precision::Precision;
use joulecast_model::catalog;
use joulecast_model::device::gpu::Gpu;
use joulecast_model::kernel::setting::Algorithm;
use joulecast_model::net::network::ShapedNetwork;
use joulecast_model::step::calibrations::Calibrations;
use joulecast_model::step::framework::{Framework, Launch};
use joulecast_model::step::predict::Predictor;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

/// A value of a paper's table (data/published/papers), and what its names stand for here (`papers.toml`).
#[derive(Clone, Debug)]
pub struct Cell {
    /// As printed.
    pub line: Line,
    /// The GPU.
    pub gpu: Option<String>,
    /// The network; of several readings the paper's text.
    pub network: Option<String>,
    /// Samples of a run.
    pub samples: Option<u64>,
}

impl Cell {
    fn of(line: Line, papers: &[(Paper, &str)]) -> Self {
        let paper = papers.iter().map(|(paper, _)| paper).find(|p| p.key == line.document);
        Self {
            gpu: paper.and_then(|p| p.gpu(&line.gpu)).map(str::to_string),
            network: paper.and_then(|p| p.network(&line.network)).map(str::to_string),
            samples: paper.and_then(|p| p.samples(&line.dataset)),
            line,
        }
    }

    /// The value, where it is a number.
    pub fn number(&self) -> Option<f64> {
        self.line.number()
    }

    /// Whether it is of a GPU of ours.
    pub fn is_of(&self, gpu: &str) -> bool {
        self.gpu.as_deref() == Some(gpu)
    }

    /// The network.
    ///
    /// # Errors
    /// When `papers.toml` does not know its name.
    pub fn known_network(&self) -> Result<&str> {
        self.network.as_deref().with_context(|| format!("papers.toml has no network \"{}\"", self.line.network))
    }
}

/// Cells of papers' tables; sentences of their text are left out.
///
/// # Errors
/// When a file cannot be read or lacks a column.
pub fn read(files: &[PathBuf]) -> Result<Vec<Cell>> {
    let papers = papers::shipped()?;
    let mut cells = Vec::new();
    for path in files {
        let name = || path.display().to_string();
        let text = fs::read_to_string(path).with_context(name)?;
        let lines = papers::lines(&text).with_context(name)?;
        let before = cells.len();
        let lines = lines.into_iter().map(|(_, line)| line).filter(|line| line.table != "text");
        cells.extend(lines.map(|line| Cell::of(line, &papers)));
        if cells.len() == before {
            bail!("{}: no cells of tables", name());
        }
    }
    Ok(cells)
}

/// What predictions of runs of others are made with: the shipped calibrations, kernels back to back.
pub struct Tools {
    framework: Arc<Framework>,
    calibrations: Arc<Calibrations>,
}

impl Tools {
    /// The shipped ones.
    ///
    /// # Errors
    /// When a shipped file is malformed.
    pub fn shipped() -> Result<Self> {
        let framework = catalog::framework("cudnn")?.into();
        Ok(Self { framework, calibrations: Calibrations::shipped() })
    }

    /// With convolutions by an algorithm.
    #[must_use]
    pub fn by(&self, algorithm: Algorithm) -> Self {
        let framework = Framework::clone(&self.framework).by(Some(algorithm)).into();
        Self { framework, calibrations: self.calibrations.clone() }
    }

    /// On a device.
    pub fn on(&self, gpu: &Gpu) -> Predictor {
        Predictor::with(gpu.clone(), self.calibrations.clone(), self.framework.clone()).launched(Some(Launch::Graph))
    }
}

/// A network of the zoo in fp32.
///
/// # Errors
/// When there is none of that name, or it cannot have that batch.
pub fn shaped(name: &str, batch: u64) -> Result<ShapedNetwork> {
    Ok(ShapedNetwork::new(&catalog::network(name)?, batch, Precision::Fp32, &[])?)
}

/// Mean of the absolute values.
pub fn mean_absolute(errors: &[f64]) -> f64 {
    errors.iter().map(|e| e.abs()).sum::<f64>() / errors.len().max(1) as f64
}

/// Percent by which a prediction is off.
pub fn percent(predicted: f64, measured: f64) -> f64 {
    100.0 * (predicted / measured - 1.0)
}
