//! Power and clocks that others published, beside what `predict` computes for them: `calibrate published`.

pub mod all_reduce;
pub mod average;
pub mod board;
pub mod caps;
pub mod savings;
pub mod sweeps;
pub mod traces;

use anyhow::{Context, Result, bail};
use joulecast_model::base::precision::Precision;
use joulecast_model::catalog;
use joulecast_model::device::gpu::Gpu;
use joulecast_model::kernel::setting::Algorithm;
use joulecast_model::net::network::ShapedNetwork;
use joulecast_model::step::calibrations::Calibrations;
use joulecast_model::step::framework::{Framework, Launch};
use joulecast_model::step::predict::Predictor;
use serde::Deserialize;
use std::path::Path;
use std::sync::Arc;

/// A cell of a published table (data/published/papers).
#[derive(Clone, Debug, Deserialize)]
pub struct Cell {
    /// Which table.
    pub table: String,
    /// GPU, as the paper calls it.
    pub gpu: String,
    /// Network, as the paper calls it.
    pub network: String,
    /// train, inference, forward ...
    pub phase: String,
    /// Samples per step; text where the paper has a range.
    pub batch: String,
    /// GPUs.
    pub n_gpus: Option<f64>,
    /// Core clock, MHz; text where the paper has a range.
    pub core_mhz: String,
    /// Power limit, W.
    pub power_cap_w: Option<f64>,
    /// What.
    pub metric: String,
    /// Its value; text in some tables.
    pub value: String,
    /// Remark of the transcription.
    pub note: String,
}

impl Cell {
    /// The value, where it is a number.
    pub fn number(&self) -> Option<f64> {
        self.value.parse().ok()
    }
}

/// Cells of the tables of a paper; sentences of its text are left out.
///
/// # Errors
/// When the file cannot be read or lacks a column.
pub fn read(path: &Path) -> Result<Vec<Cell>> {
    let name = || path.display().to_string();
    let mut reader = csv::Reader::from_path(path).with_context(name)?;
    let cells: Vec<Cell> = reader.deserialize().collect::<Result<_, _>>().with_context(name)?;
    let cells: Vec<Cell> = cells.into_iter().filter(|c| c.table != "text").collect();
    if cells.is_empty() {
        bail!("{}: no cells of tables", name());
    }
    Ok(cells)
}

/// What papers call networks of the zoo.
const NETWORKS: [(&str, &str); 17] = [
    ("Alexnet", "alexnet"),
    ("AlexNet", "alexnet_bvlc"),
    ("VGG-19", "vgg19"),
    ("VggNet-16", "vgg16"),
    ("Inception3", "inception_v3"),
    ("Inception4", "inception_v4"),
    ("Resnet50", "resnet50"),
    ("ResNet-50", "resnet50"),
    ("Resnet152", "resnet152"),
    ("GoogleNet", "googlenet"),
    ("GoogLeNet", "googlenet"),
    ("CaffeNet", "caffenet"),
    ("CaffeNet (reported as AlexNet)", "caffenet"),
    ("ResNet", "gait_resnet_text"),
    ("2D-CNN", "gait_cnn2d_text"),
    ("ResNetIm", "castro_resnetim_text"),
    ("resnet50", "resnet50"),
];

/// Name in the zoo.
pub fn zoo(name: &str) -> Option<&'static str> {
    NETWORKS.iter().find(|(theirs, _)| *theirs == name).map(|(_, ours)| *ours)
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
