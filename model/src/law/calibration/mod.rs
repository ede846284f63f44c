//! Fitted models of a device and their passport: `calibration/1`, plain text.

mod bounds;
mod choice_file;
mod compiled;
mod file;
mod later;
mod layer_model;
mod models;
mod name;
mod network_spread;
mod part;
mod power_file;
mod term;
mod transfer;

pub use compiled::Compiled;
pub(crate) use compiled::{Bounded, Narrowings, Values};
pub use later::Later;
pub(crate) use layer_model::EDGE;
pub use layer_model::{Bucket, Cover, CrossValidation, Ellipsoid, EngineTerms, LayerModel, Range, Ratio, engine_alone};
pub use models::Models;
pub use network_spread::{Factors, NetworkSpread};
pub use part::Wanted;
pub use term::{Factor, Term};
pub use transfer::{Arithmetic, FewShot, Share, Siblings, Slope, Transfer};

use crate::base::precision::{Mode, Phase, Precision, named_enum};
use crate::kernel::key::ModelKey;
use crate::kernel::sizes::ConvSizes;
use crate::law::choice::{Choice, foreseen};
use crate::law::power::PowerModel;
use serde::{Deserialize, Serialize};

named_enum!(
    /// What a prediction rests on, best first.
    Tier {
        /// Microbenchmarks of our own on that GPU.
        Measured = "measured",
        /// Published per-layer measurements of that GPU.
        Imported = "imported",
        /// Measurements, our own or published, of another board of that chip.
        Sibling = "sibling",
        /// Models of other GPUs, or of another kind of layer on that GPU, with this one's sizes.
        Transferred = "transferred",
        /// No fit of that layer on that GPU: a roofline with a typical efficiency.
        Roofline = "roofline",
    }
);

impl Tier {
    /// What rests on it, on a board whose rows were among those fitted or not: no better than a sibling's where not.
    pub fn on_board(self, fitted: bool) -> Self {
        if fitted { self } else { self.max(Self::Sibling) }
    }
}

/// In place of a chip, in the calibration that holds efficiencies over all measured chips.
pub const ANY_CHIP: &str = "any";

/// Fitted models of one chip.
#[derive(Clone, Debug, PartialEq)]
pub struct Calibration {
    /// Unique name: chip, tier and version.
    pub id: String,
    /// The chip; boards of one chip share the models.
    pub chip: String,
    /// Boards (names in `data/gpus`) whose rows were fitted.
    pub boards: Vec<String>,
    /// What its models rest on.
    pub tier: Tier,
    /// Libraries behind the rows, in words.
    pub software: String,
    /// Sources of the rows (keys of `data/published/sources.toml`, or `own`).
    pub sources: Vec<String>,
    /// `shipped`: fitted on all rows; `evaluation`: without the shapes of networks that are held out.
    pub fit: String,
    /// Program and version that fitted it, such as `joulecast 0.1.0`.
    pub tool: String,
    /// SHA-256 over the row ids and values fitted.
    pub dataset_hash: String,
    /// SHA-256 of the shapes that it may not know (fold keys, one a line); `None` of a fit that may know all.
    pub held_out_hash: Option<String>,
    /// What cross-validation kept together.
    pub fold_key: String,
    /// The law of power, where energy was measured.
    pub power: Option<PowerModel>,
    /// How far whole networks were from their predictions, where any were measured.
    pub networks: Vec<NetworkSpread>,
    /// What is known of chips that were not among the rows; in the models of all chips.
    pub transfer: Option<Transfer>,
    /// Which engines the library chooses for convolutions on that chip, where it was asked.
    pub choices: Vec<Choice>,
    /// Models of layers, by kind, phase and precision.
    pub models: Models,
}

/// A calibration file that cannot be used, in one line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct CalibrationError(pub(crate) String);

impl CalibrationError {
    /// The efficiencies over all chips are not among the shipped files.
    pub(crate) fn missing() -> Self {
        Self("data/calibrations/all_chips.toml is missing".into())
    }
}

impl Calibration {
    /// The model of a kind, phase and precision as the vendor's library runs it.
    pub fn model(&self, key: ModelKey, phase: Phase, precision: Precision) -> Option<&LayerModel> {
        self.models.of(key, phase, precision, None)
    }

    /// The engine that the library is expected to choose for a convolution.
    pub fn engine(&self, sizes: &ConvSizes) -> Option<&str> {
        foreseen(&self.choices, sizes)
    }

    /// Whether rows of a board (its name in `data/gpus`) are among those that were fitted.
    pub fn is_of(&self, board: &str) -> bool {
        self.boards.iter().any(|b| b == board)
    }

    /// Whether any of its models predicts a kind, in whatever phase and precision.
    pub fn knows_kind(&self, key: ModelKey) -> bool {
        self.models.heads().any(|m| m.own.key == key || m.covers.iter().any(|c| c.key == key))
    }

    /// The library's model that kinds share, where it knows several of them in a phase and precision: of one or two it says
    /// little of others.
    pub fn shared(&self, key: ModelKey, phase: Phase, precision: Precision) -> Option<&LayerModel> {
        const SEVERAL: usize = 3;
        let kinds = |m: &models::Head| m.covers.iter().filter(|c| c.phase == phase && c.precision == precision).count();
        self.models.find(|m| m.own.key == key && m.framework.is_none() && kinds(m) >= SEVERAL)
    }

    /// What it rests on for a board of its chip (its name in `data/gpus`).
    pub fn tier_on(&self, board: &str) -> Tier {
        self.tier.on_board(self.is_of(board))
    }

    /// Whether rows of a board (its name in `data/gpus`) are among those that a model of this calibration was fitted to.
    pub fn knows(&self, model: &LayerModel, board: &str) -> bool {
        let boards = if model.boards.is_empty() { &self.boards } else { &model.boards };
        boards.iter().any(|b| b == board)
    }

    /// What is known of whole networks through a framework.
    pub fn network_spread(&self, framework: &str, mode: Mode, launch_bound: bool) -> Option<&NetworkSpread> {
        self.networks.iter().find(|n| n.framework == framework && n.mode == mode && n.launch_bound == launch_bound)
    }

    /// The model of a framework's own kernels.
    pub fn framework_model(
        &self,
        framework: &str,
        key: ModelKey,
        phase: Phase,
        precision: Precision,
    ) -> Option<&LayerModel> {
        self.models.of(key, phase, precision, Some(framework))
    }
}
