//! What papers printed beside what is predicted.

use crate::failure::Failure;
use joulecast_ask::papers::{self, Comparison, Options, Paper, PaperError};
use joulecast_model::catalog;
use joulecast_model::step::calibrations::Calibrations;
use joulecast_reports::given;
use std::path::PathBuf;

/// Which papers, and which predictor stands beside them.
#[derive(Clone, Debug, Default)]
pub struct Papers {
    /// Keys; all that are shipped where there are none.
    pub keys: Vec<String>,
    /// This framework profile, instead of each paper's.
    pub framework: Option<String>,
    /// The newest libraries that the layer models saw, whatever the papers ran.
    pub newest_library: bool,
    /// A folder of calibrations, instead of the shipped ones.
    pub calibrations: Option<PathBuf>,
}

/// Predicts every printed value that can be predicted; with the papers that were compared.
///
/// # Errors
/// When there is no such paper, profile or folder, or a prediction fails.
pub fn papers(asked: &Papers) -> Result<(Vec<Paper>, Comparison), Failure> {
    if let Some(name) = &asked.framework {
        catalog::framework(name).map_err(Failure::usage)?;
    }
    let failed = |e: PaperError| Failure::Failed(e.into());
    let shipped = papers::shipped().map_err(failed)?;
    if let Some(unknown) = asked.keys.iter().find(|key| !shipped.iter().any(|(paper, _)| paper.key == **key)) {
        let keys = shipped.iter().map(|(paper, _)| paper.key.as_str()).collect::<Vec<_>>().join(", ");
        return Err(Failure::usage(format_args!("no paper \"{unknown}\"; there are {keys}")));
    }
    let given = |folder: &PathBuf| Ok(Calibrations::given(given::calibrations(folder)?)?);
    let options = Options {
        framework: asked.framework.as_deref(),
        newest_library: asked.newest_library,
        calibrations: asked.calibrations.as_ref().map(given).transpose().map_err(Failure::Failed)?,
    };
    let (mut compared, mut comparison) = (Vec::new(), Comparison::default());
    for (paper, text) in shipped {
        if asked.keys.is_empty() || asked.keys.contains(&paper.key) {
            let one = papers::compare(&paper, text, &options).map_err(failed)?;
            comparison.rows.extend(one.rows);
            comparison.not_predicted.extend(one.not_predicted);
            compared.push(paper);
        }
    }
    Ok((compared, comparison))
}
