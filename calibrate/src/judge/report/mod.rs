//! `calibrate validate --report`: one HTML file of held-out predictions beside measurements, and its figures as SVG and
//! PNG. Values are computed here, drawn in `joulecast_reports::figure`.

mod layers;
mod networks;

pub use layers::add as add_layers;
pub use networks::{Framed, add as add_networks};

use crate::system::whole;
use anyhow::{Context, Result};
use joulecast_reports::document::{Block, Document};
use joulecast_reports::figure::{Figure, png, svg};
use joulecast_reports::table::Table;
use std::fs;
use std::path::PathBuf;

/// Name of the page within its folder.
pub const PAGE: &str = "report.html";

/// A report that is being written into a folder.
pub struct Report {
    folder: PathBuf,
    command: String,
    document: Document,
    files: Vec<PathBuf>,
}

impl Report {
    /// An empty one. Every figure and the page carry the command that makes it.
    ///
    /// # Errors
    /// When the folder cannot be made.
    pub fn new(folder: PathBuf, command: String) -> Result<Self> {
        fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
        let blocks = vec![Block::Text(
            "Every prediction here was made by a fit that had not seen what it predicts: layers by fits without their fold, \
             whole networks by fits without any layer of a shape that occurs in one of them."
                .into(),
        )];
        Ok(Self { folder, command, document: Document { title: "Validation".into(), blocks }, files: Vec::new() })
    }

    fn heading(&mut self, text: &str) {
        self.document.blocks.push(Block::Heading(text.into()));
    }

    fn text(&mut self, text: impl Into<String>) {
        self.document.blocks.push(Block::Text(text.into()));
    }

    fn table(&mut self, table: Table) {
        self.document.blocks.push(Block::Table(table));
    }

    fn notes(&self) -> Vec<String> {
        vec![self.command.clone()]
    }

    /// Draws a figure into the page, and into `name.svg` and `name.png`.
    fn figure(&mut self, name: &str, figure: &impl Figure) -> Result<()> {
        let drawn = svg(figure).with_context(|| name.to_string())?;
        self.file(&format!("{name}.svg"), &drawn)?;
        self.file(&format!("{name}.png"), png(figure).with_context(|| name.to_string())?)?;
        self.document.blocks.push(Block::Figure(vec![drawn]));
        Ok(())
    }

    fn file(&mut self, name: &str, content: impl AsRef<[u8]>) -> Result<()> {
        let path = self.folder.join(name);
        whole::write(&path, content)?;
        self.files.push(path);
        Ok(())
    }

    /// Writes the page; gives every file that was written.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn finish(mut self) -> Result<Vec<PathBuf>> {
        let command = format!("Made by: {}", self.command);
        self.text(command);
        let page = self.document.to_html();
        self.file(PAGE, page)?;
        Ok(self.files)
    }
}
