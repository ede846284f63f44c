//! What `predict compare` found: `comparison/1`.

mod document;
#[cfg(feature = "figures")]
mod dots;
mod page;

pub use document::Comparison;
#[cfg(feature = "figures")]
pub use dots::figure;

use crate::export::{self, Export, ExportError, Format};

impl Export for Comparison {
    const FORMS: &'static [(Format, &'static str)] = &[
        (Format::Table, "Aligned text"),
        (Format::Json, "The document comparison/1"),
        (Format::Csv, "A header and a row per point"),
        (Format::Markdown, "For a report"),
    ];

    fn export(&self, format: Format) -> Result<String, ExportError> {
        match format {
            Format::Table => Ok(page::text(self, false)),
            Format::Markdown => Ok(page::text(self, true)),
            Format::Json => export::json(&document::document(self)?),
            Format::Csv => Ok(document::csv(self)?),
            Format::Html => Err(ExportError::Absent(format)),
        }
    }
}
