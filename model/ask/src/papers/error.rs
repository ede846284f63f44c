//! Why a paper's tables cannot be compared.

use joulecast_model::base::file::FileError;
use joulecast_model::catalog::CatalogError;
use joulecast_model::device::interconnect::JoinError;

/// A defect of a paper's files, or a prediction that fails.
#[derive(Debug, thiserror::Error)]
pub enum PaperError {
    /// The mapping of all papers is malformed.
    #[error("papers.toml: {0}")]
    Mapping(FileError),
    /// The mapping names a paper that has no file of values.
    #[error("papers.toml: there is no {0}.csv")]
    NoValues(String),
    /// A file of values is malformed.
    #[error("{key}.csv: {why}")]
    Values {
        /// The paper's key.
        key: String,
        /// Which line, and what is wrong with it.
        why: FileError,
    },
    /// A device, profile, network or interconnect of the mapping is not to be had.
    #[error(transparent)]
    Catalog(#[from] CatalogError),
    /// Devices of a step cannot be joined.
    #[error(transparent)]
    Join(#[from] JoinError),
    /// A step cannot be predicted.
    #[error("{key}: {network} as {net}: {why}")]
    Step {
        /// The paper's key.
        key: String,
        /// The network, as printed.
        network: String,
        /// The network that was to be predicted.
        net: String,
        /// Of its shapes, models or operating point.
        why: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A run is printed of a dataset whose size is not known.
    #[error("{key}: no samples of \"{dataset}\"")]
    NoSamples {
        /// The paper's key.
        key: String,
        /// The dataset, as printed.
        dataset: String,
    },
}

/// Why a printed case is not predicted.
#[derive(Debug)]
pub(super) enum Refusal {
    /// What it is of is not known here; a reason to print.
    Case(String),
    /// A defect.
    Paper(PaperError),
}

impl<E: Into<PaperError>> From<E> for Refusal {
    fn from(error: E) -> Self {
        Self::Paper(error.into())
    }
}
