//! Where results go: standard output, or files that are written whole and not over others unasked.

use crate::args::OutputArgs;
use crate::failure::Failure;
use crate::terminal;
use anyhow::{Result, anyhow};
use joulecast_reports::export::{Export, Format};
use joulecast_reports::{print, whole};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Says that a file would be lost.
///
/// # Errors
/// Where there is one with something in it.
pub fn keep(path: &Path, otherwise: &str) -> Result<(), Failure> {
    match whole::holds(path) {
        true => Err(Failure::Usage(anyhow!("{} is there already: {otherwise}", path.display()))),
        false => Ok(()),
    }
}

impl OutputArgs {
    /// Before anything is computed: whether --output and these files may be written.
    ///
    /// # Errors
    /// Where one is there and --force is not, two are one, or one of the others is a dash.
    pub fn check(&self, others: impl IntoIterator<Item = PathBuf>) -> Result<(), Failure> {
        let others: Vec<PathBuf> = others.into_iter().collect();
        if others.iter().any(|path| path == Path::new("-")) {
            return Err(Failure::usage("a dash is standard output, where the answer goes: name a file"));
        }
        let mut files = BTreeSet::new();
        for path in self.file().map(Path::to_path_buf).into_iter().chain(others) {
            if !self.force {
                keep(&path, "--force writes over it")?;
            }
            if let Some(twice) = files.replace(path) {
                return Err(Failure::usage(format_args!("{}: named for two results", twice.display())));
            }
        }
        Ok(())
    }

    /// Prints, in colours on a terminal that has them, or writes a file.
    pub fn emit(&self, text: &str) -> Result<(), Failure> {
        match self.file().is_none() && terminal::has_colours() {
            true => self.emit_bytes(terminal::paint(text).as_bytes()),
            false => self.emit_bytes(text.as_bytes()),
        }
    }

    /// Emits a result in a form that it has.
    pub fn export(&self, result: &(impl Export + ?Sized), format: Format) -> Result<(), Failure> {
        self.emit(&result.export(format).map_err(|e| Failure::Failed(e.into()))?)
    }

    /// As [`OutputArgs::emit`], for what is no text.
    pub fn emit_bytes(&self, bytes: &[u8]) -> Result<(), Failure> {
        match self.file() {
            Some(path) => self.write(path, bytes),
            None => print(bytes).map_err(|e| Failure::Failed(e.into())),
        }
    }

    /// Writes a file of the command besides its output: a figure.
    pub fn write(&self, path: &Path, content: impl AsRef<[u8]>) -> Result<(), Failure> {
        if !self.force {
            keep(path, "--force writes over it")?;
        }
        whole::write(path, content).map_err(|e| Failure::Failed(e.into()))
    }
}
