//! The figures of a plan where the program was built without what draws: pages have none.

use super::values::Plan;
use crate::figure::FigureError;

/// Names and SVG documents of all figures of a plan.
///
/// # Errors
/// Always.
pub fn figures(_: &Plan) -> Result<Vec<(&'static str, String)>, FigureError> {
    Err(FigureError::Absent)
}

pub(super) fn drawn(_: &Plan, _: &str) -> Result<Option<Vec<String>>, FigureError> {
    Ok(None)
}

pub(super) fn title_of(_: &Plan, _: &str) -> Option<String> {
    None
}
