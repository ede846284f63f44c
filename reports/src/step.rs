//! A step in every form.

use crate::export::{Export, ExportError, Format};
use crate::page;
use crate::prediction::{Shown, data, markdown, text};

impl Export for Shown<'_> {
    const FORMS: &'static [(Format, &'static str)] = &[
        (Format::Table, "Aligned text"),
        (Format::Json, "The stable document: prediction/1"),
        (Format::Csv, "A header and a row; of layers a row for each"),
        (Format::Markdown, "For a report"),
        (Format::Html, "One file for a browser, with figures"),
    ];

    fn export(&self, format: Format) -> Result<String, ExportError> {
        match format {
            Format::Table => Ok(text(self.prediction, self.gpu, self.asked, self.layers)),
            Format::Markdown => Ok(markdown(self.prediction, self.gpu, self.asked, self.layers)),
            Format::Html => Ok(page::step(self)?.to_html()),
            Format::Json | Format::Csv => data(self.prediction, self.asked, None, self.layers, format),
        }
    }
}
