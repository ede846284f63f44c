//! `calibrate validate --report`: one HTML file of held-out predictions beside measurements, and its figures as SVG and
//! PNG. Values are computed here, drawn in `joulecast_reports::figure`.

mod layers;
mod networks;
mod verdicts;

pub use layers::add as add_layers;
pub use networks::{Framed, add as add_networks};
use verdicts::Verdict;
pub use verdicts::read as read_verdicts;

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
    verdicts: Vec<Verdict>,
    /// Those of an earlier report.
    since: Option<Vec<Verdict>>,
    /// Tables of all values, behind what is made of them.
    appendix: Vec<Block>,
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
        Ok(Self {
            folder,
            command,
            document: Document { title: "Validation".into(), blocks },
            files: Vec::new(),
            verdicts: Vec::new(),
            since: None,
            appendix: Vec::new(),
        })
    }

    /// Tells what changed since an earlier report.
    pub fn since(&mut self, earlier: Vec<Verdict>) {
        self.since = Some(earlier);
    }

    /// A table at the end of the page, with a heading and what it is.
    fn append(&mut self, heading: impl Into<String>, text: impl Into<String>, table: Table) {
        self.appendix.extend([Block::Heading(heading.into()), Block::Text(text.into()), Block::Table(table)]);
    }

    /// What the page begins with.
    fn head(&self) -> Vec<Block> {
        if self.verdicts.is_empty() {
            return Vec::new();
        }
        let mut blocks: Vec<Block> = verdicts::sentences(&self.verdicts).into_iter().map(Block::Lead).collect();
        blocks.push(Block::Heading("The verdict".into()));
        let since = match &self.since {
            Some(_) => {
                " \"since\": by how many points that changed since the earlier report; less is better, but for what is held."
            }
            None => "",
        };
        blocks.push(Block::Text(format!(
            "Mean absolute errors and the share of times within their 90 % interval, in percent; good is up to 20 % of time, fair up to 40 %.{since}"
        )));
        blocks.push(Block::Table(verdicts::table(&self.verdicts, self.since.as_deref())));
        blocks
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
        let head = self.head();
        self.document.blocks.splice(0..0, head);
        if !self.appendix.is_empty() {
            let tables = std::mem::take(&mut self.appendix);
            self.document.blocks.extend(tables);
        }
        let command = format!("Made by: {}", self.command);
        self.text(command);
        let kept = verdicts::document(&self.verdicts, &self.command)?;
        self.file(verdicts::FILE, kept)?;
        let page = self.document.to_html();
        self.file(PAGE, page)?;
        Ok(self.files)
    }
}
