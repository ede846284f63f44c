//! Why a question has no answer.

use anyhow::anyhow;
use joulecast_model::base::precision::Precision;
use joulecast_model::step::predictor::PredictError;
use joulecast_reports::error_line;
use std::fmt::{self, Display, Formatter};

/// Why a question has no answer, in one line.
#[derive(Debug)]
pub enum Failure {
    /// What was asked is wrong.
    Usage(anyhow::Error),
    /// Something else went wrong.
    Failed(anyhow::Error),
}

impl Failure {
    /// Of what was asked.
    pub(crate) fn usage(why: impl Display) -> Self {
        Self::Usage(anyhow!("{why}"))
    }

    /// Of anything else.
    pub(crate) fn failed(why: impl Into<anyhow::Error>) -> Self {
        Self::Failed(why.into())
    }
}

impl Display for Failure {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (Self::Usage(error) | Self::Failed(error)) = self;
        f.write_str(&error_line(error.chain().map(ToString::to_string)))
    }
}

impl std::error::Error for Failure {}

/// What the hardware does not do is for the user to ask otherwise; the rest is not.
impl From<PredictError> for Failure {
    fn from(error: PredictError) -> Self {
        match error {
            PredictError::Precision { .. } | PredictError::Operating(_) => Self::Usage(error.into()),
            PredictError::Beside { precision, .. } => {
                let stored = if precision == Precision::Int8 { " --weights int8" } else { "" };
                Self::usage(format_args!("{error}: --precision fp16{stored} runs"))
            }
            _ => Self::Failed(error.into()),
        }
    }
}
