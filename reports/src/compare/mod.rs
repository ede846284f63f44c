//! What `predict compare` found: `comparison/1`.

mod document;
#[cfg(feature = "figures")]
mod dots;
mod page;

pub use document::{Comparison, LeftOut};

use crate::export::{self, Export, ExportError, Format};
use crate::figure::FigureError;
#[cfg(feature = "figures")]
use crate::figure::svg;

/// Time, power and energy per sample of every prediction, with intervals, as SVG.
///
/// # Errors
/// Where there is nothing to draw, or nothing that draws.
#[cfg(feature = "figures")]
pub fn figure(c: &Comparison, command: String) -> Result<String, FigureError> {
    svg(&dots::dots(c, command)?)
}

/// The same as drawings for a page, which says itself what made it.
#[cfg(feature = "figures")]
fn drawn(c: &Comparison) -> Result<Vec<String>, FigureError> {
    crate::figure::drawn(&crate::figure::comparison::DotPlot { notes: Vec::new(), ..dots::dots(c, String::new())? })
}

#[cfg(not(feature = "figures"))]
fn drawn(_: &Comparison) -> Result<Vec<String>, FigureError> {
    Err(FigureError::Absent)
}

/// The same of a program that was built without what draws.
///
/// # Errors
/// Always.
#[cfg(not(feature = "figures"))]
pub fn figure(_: &Comparison, _: String) -> Result<String, FigureError> {
    Err(FigureError::Absent)
}

impl Comparison {
    /// Which GPU takes the least time and the least energy, as far as that is sure: a line for every network and batch.
    pub fn conclusions(&self) -> Vec<String> {
        page::conclusions(self)
    }
}

impl Export for Comparison {
    const FORMS: &'static [(Format, &'static str)] = &[
        (Format::Table, "Aligned text"),
        (Format::Json, "The document comparison/1"),
        (Format::Csv, "A header and a row per point"),
        (Format::Markdown, "For a report"),
        (Format::Html, "One file with its figure, for a browser"),
    ];

    fn export(&self, format: Format) -> Result<String, ExportError> {
        match format {
            Format::Table => Ok(page::text(self, false)),
            Format::Markdown => Ok(page::text(self, true)),
            Format::Json => export::json(&document::document(self)?),
            Format::Csv => Ok(document::csv(self)?),
            Format::Html => Ok(page::document(self)?.to_html()),
        }
    }
}
