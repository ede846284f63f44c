//! Figures: values into drawings, one file per figure. Nothing is computed here but where a mark goes.
//!
//! Colours are Okabe and Ito's, told apart by most colour-blind readers and never the only difference: lines differ by
//! their dashes, marks by their shapes. On a dark screen paper, ink and grid are exchanged by a style sheet in the SVG;
//! in print they are not.
//!
//! Without the feature `figures` nothing is drawn: what programs call is there, and says so.

#[cfg(feature = "figures")]
mod axes;
#[cfg(feature = "bitmap")]
mod bitmap;
#[cfg(feature = "figures")]
mod cloud;
#[cfg(feature = "figures")]
mod marks;
#[cfg(feature = "figures")]
mod sheet;
#[cfg(feature = "figures")]
pub mod breakdown;
#[cfg(feature = "figures")]
pub mod comparison;
#[cfg(feature = "figures")]
pub mod costs;
#[cfg(feature = "figures")]
pub mod coverage;
pub mod curves;
#[cfg(feature = "figures")]
pub mod day;
#[cfg(feature = "figures")]
pub mod errors;
#[cfg(feature = "figures")]
pub mod fleet;
#[cfg(feature = "figures")]
pub mod histogram;
#[cfg(feature = "figures")]
pub mod residuals;
#[cfg(feature = "figures")]
pub mod roofline;
#[cfg(feature = "figures")]
pub mod scatter;
#[cfg(feature = "figures")]
pub mod sensitivity;

#[cfg(feature = "bitmap")]
pub use bitmap::png;
#[cfg(feature = "figures")]
pub use sheet::{Figure, drawn, svg};

/// Vector graphics for a page, which this program was built without.
///
/// # Errors
/// Always.
#[cfg(not(feature = "figures"))]
pub fn drawn<F>(_: &F) -> Result<Vec<String>, FigureError> {
    Err(FigureError::Absent)
}

#[cfg(feature = "figures")]
use self::{axes::*, marks::*, sheet::*};

/// Why a figure was not drawn.
#[derive(Debug, thiserror::Error)]
pub enum FigureError {
    /// There is nothing to draw, or values that no axis shows.
    #[error("no figure: {0}")]
    Nothing(String),
    /// The program was built without what draws.
    #[error("no figure: this program was built without the feature \"figures\"")]
    Absent,
    /// The drawing library refused.
    #[error("the figure could not be drawn: {0}")]
    Drawing(String),
}

/// Vector graphics, which this program was built without.
///
/// # Errors
/// Always.
#[cfg(not(feature = "figures"))]
pub fn svg<F>(_: &F) -> Result<String, FigureError> {
    Err(FigureError::Absent)
}
