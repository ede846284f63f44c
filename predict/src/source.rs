//! Networks as users name them: of the zoo, or from a file of one of four formats.

use crate::failure::Failure;
use crate::request::Reading;
use anyhow::{Result, anyhow};
use joulecast_model::base::precision::Precision;
use joulecast_model::base::shape::Shape;
use joulecast_model::catalog;
use joulecast_model::net::network::{Network, ShapedNetwork, ShapingError};
use joulecast_model::read::onnx::{self, OnnxError};
use joulecast_model::read::{CONFIG, Format};
use joulecast_model::step::generation;
use std::fs;
use std::io::{Cursor, Read, Seek};
use std::path::Path;

/// A network that was read.
#[derive(Debug)]
pub struct Source {
    /// As it was typed.
    pub typed: String,
    /// The network.
    pub network: Network,
    /// As [`Format::source`] says it.
    pub kind: &'static str,
    /// Shapes of inputs that are yet to be bound.
    pub bindings: Vec<(String, Shape)>,
    /// Whether shapes or tokens were asked for, so that what does not fit them is for the user to mend.
    pub asked: bool,
}

impl Source {
    /// A network of the zoo, of a file, or of a folder that holds Hugging Face's file.
    ///
    /// # Errors
    /// When there is none, its file cannot be used, or it reads no sequence.
    pub fn read(name: &str, reading: &Reading) -> Result<Self, Failure> {
        let file = config_in(name)?;
        let path = file.as_deref().unwrap_or(name);
        let format = Format::of(path);
        let network = match format {
            Format::Zoo => catalog::network(name).map_err(|e| Failure::Usage(e.into()))?,
            _ => from_file(path, format, reading)?,
        };
        Self::bound(name, network, format, reading)
    }

    /// A network of a file's bytes, in the format that its name says.
    ///
    /// # Errors
    /// When they cannot be used, or it reads no sequence.
    pub fn of(name: &str, bytes: &[u8], reading: &Reading) -> Result<Self, Failure> {
        let format = Format::of(name);
        Self::bound(name, parsed(name, format, Cursor::new(bytes), reading)?, format, reading)
    }

    /// With what was asked of its inputs.
    fn bound(name: &str, mut network: Network, format: Format, reading: &Reading) -> Result<Self, Failure> {
        if let (Some(tokens), Format::Zoo | Format::Toml | Format::HuggingFace) = (reading.sequence, format) {
            network.bind(generation::SEQUENCE, tokens).map_err(|e| Failure::Usage(e.into()))?;
        }
        // Inputs of an imported file are bound already, since other shapes follow from them.
        let bindings = match format {
            Format::Onnx | Format::Prototxt => Vec::new(),
            _ => reading.inputs.clone(),
        };
        let asked = !reading.inputs.is_empty() || reading.sequence.is_some();
        let network = network.with_folding(reading.folding);
        Ok(Self { typed: name.to_string(), network, kind: format.source(), bindings, asked })
    }

    /// The network with shapes.
    ///
    /// # Errors
    /// When it cannot have that batch or what was asked for.
    pub fn shaped(&self, batch: u64, precision: Precision) -> Result<ShapedNetwork, Failure> {
        ShapedNetwork::new(&self.network, batch, precision, &self.bindings).map_err(|error| {
            // What is too large at batch 1 is the file's own fault.
            let counted = matches!(error, ShapingError::Batch(_) | ShapingError::TooLarge { .. });
            let kind = if self.asked || counted && batch > 1 { Failure::Usage } else { Failure::Failed };
            let of =
                if counted { format!("{} at batch {batch}", self.network.name) } else { self.network.name.clone() };
            kind(anyhow::Error::from(error).context(of))
        })
    }
}

/// The file of a folder that somebody names; a network of the zoo comes first.
///
/// # Errors
/// When the folder has none.
fn config_in(name: &str) -> Result<Option<String>, Failure> {
    let folder = Path::new(name);
    if !folder.is_dir() || Format::of(name) == Format::Zoo && catalog::network(name).is_ok() {
        return Ok(None);
    }
    let file = folder.join(CONFIG);
    match file.exists() {
        true => Ok(Some(file.display().to_string())),
        false => Err(Failure::Failed(anyhow!("{name}: a folder without a {CONFIG}"))),
    }
}

fn from_file(path: &str, format: Format, reading: &Reading) -> Result<Network, Failure> {
    let open = || -> Result<fs::File> {
        if !fs::metadata(path)?.is_file() {
            return Err(anyhow!("not a regular file"));
        }
        Ok(fs::File::open(path)?)
    };
    let file = open().map_err(|error| Failure::Failed(error.context(path.to_string())))?;
    parsed(path, format, file, reading)
}

fn parsed(path: &str, format: Format, file: impl Read + Seek, reading: &Reading) -> Result<Network, Failure> {
    let options = onnx::Options {
        name: Format::stem(path),
        inputs: &reading.inputs,
        sequence: reading.sequence,
        skip_unknown: reading.skip_unknown,
        selected: reading.selected,
    };
    Network::from_file(format, file, &options).map_err(|error| {
        let kind = if matches!(error, OnnxError::Usage(_)) { Failure::Usage } else { Failure::Failed };
        kind(anyhow::Error::from(error).context(path.to_string()))
    })
}
