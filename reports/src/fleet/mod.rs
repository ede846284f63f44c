//! What `predict plan` found: a fleet of GPUs for a load, `capacity_plan/1`.

mod cells;
mod document;
mod hours;
mod page;
#[cfg(feature = "figures")]
mod pictures;
#[cfg(not(feature = "figures"))]
#[path = "absent.rs"]
mod pictures;
mod services;
mod values;

pub use pictures::figures;
pub use values::{AtSetting, Candidate, FIGURE_NAMES, Plan};

use crate::export::{self, Export, ExportError, Format};
use page::Show;

impl Export for Plan {
    const FORMS: &'static [(Format, &'static str)] = &[
        (Format::Table, "Aligned text"),
        (Format::Markdown, "For a report"),
        (Format::Html, "One file with its figures, for a browser"),
        (Format::Json, "The document capacity_plan/1"),
        (Format::Csv, "A row per candidate and power limit or clock"),
    ];

    fn export(&self, format: Format) -> Result<String, ExportError> {
        let page = |show| page::document(self, show);
        match format {
            Format::Table => Ok(page(Show::Nothing)?.to_text()),
            Format::Markdown => Ok(page(self.figures.as_deref().map_or(Show::Nothing, Show::Beside))?.to_markdown()),
            Format::Html => Ok(page(Show::Within)?.to_html()),
            Format::Json => export::json(&document::document(self)),
            Format::Csv => Ok(document::csv(self)?),
        }
    }
}
