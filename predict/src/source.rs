//! Networks as users name them: of the zoo, or from a file of one of four formats.

use crate::failure::Failure;
use crate::request::Reading;
use crate::session::Held;
use anyhow::{Result, anyhow};
use joulecast_model::base::precision::Precision;
use joulecast_model::base::shape::Shape;
use joulecast_model::catalog;
use joulecast_model::net::network::folding::Folding;
use joulecast_model::net::network::{Network, ShapedNetwork, ShapingError};
use joulecast_model::step::generation;
use joulecast_read::onnx::{self, OnnxError};
use joulecast_read::{CONFIG, Format};
use std::fs;
use std::io::{self, Cursor};
use std::path::{Path, PathBuf};

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
    /// A network of the zoo, of a file, or of a folder that holds Hugging Face's file; `held`: a file's content, where it is at hand.
    ///
    /// # Errors
    /// When there is none, its file cannot be used, or it reads no sequence.
    pub fn read(name: &str, held: Option<&Held>, reading: &Reading) -> Result<Self, Failure> {
        let file = if held.is_some() { None } else { config_in(name)? };
        let path = file.as_deref().unwrap_or(name);
        let format = Format::of(path);
        if let Some(why) = weights_alone(path) {
            return Err(Failure::usage(why));
        }
        let mut network = match format {
            Format::Zoo => catalog::network(name).map_err(|e| Failure::Usage(e.into()))?,
            _ => from_file(path, held.map(|h| &h.content[..]), format, reading)?,
        };
        if let (Some(tokens), Format::Zoo | Format::Toml | Format::HuggingFace) = (reading.sequence, format) {
            network.bind(generation::SEQUENCE, tokens).map_err(|e| Failure::Usage(e.into()))?;
        }
        if let Some(imbalance) = reading.imbalance {
            network.set_imbalance(imbalance).map_err(|e| Failure::Usage(e.into()))?;
        }
        // Inputs of an imported file are bound already, since other shapes follow from them.
        let bindings = match format {
            Format::Onnx | Format::Prototxt => Vec::new(),
            _ => reading.inputs.clone(),
        };
        let asked = !reading.inputs.is_empty() || reading.sequence.is_some();
        let folding = match held {
            Some(held) if reading.folding == Folding::Open => held.folding,
            _ => reading.folding,
        };
        let network = network.with_folding(folding);
        Ok(Self { typed: name.to_string(), network, kind: format.source(), bindings, asked })
    }

    /// The file that a network of this name is read of, where it is of one.
    pub(crate) fn file(name: &str) -> Option<PathBuf> {
        let of_folder = config_in(name).ok().flatten().map(PathBuf::from);
        of_folder.or_else(|| (Format::of(name) != Format::Zoo).then(|| PathBuf::from(name)))
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

/// What to do with a file of weights, or of a framework's own graph, which no reader takes; none of other names.
fn weights_alone(path: &str) -> Option<String> {
    let ending = Path::new(path).extension()?.to_str()?.to_ascii_lowercase();
    let export = match ending.as_str() {
        "pt" | "pth" | "ckpt" | "bin" | "safetensors" | "pkl" => {
            "export it to ONNX where the model is made: torch.onnx.export(model, (example_input,), \"model.onnx\"), then --net \
             model.onnx; of a language model of Hugging Face its config.json says enough"
        }
        "h5" | "keras" | "pb" | "tflite" => {
            "export it to ONNX: python -m tf2onnx.convert --saved-model DIR --output model.onnx, then --net model.onnx"
        }
        "gguf" => "the config.json beside the weights that it was made from says enough: --net config.json",
        _ => return None,
    };
    Some(format!("{path}: a .{ending} file holds weights, not which layers run in what order; {export}"))
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

/// Why a file that is not there is none, and what was perhaps meant.
fn absent(path: &str) -> &'static str {
    let ends = [".toml", ".onnx", ".json", ".prototxt"].iter().any(|ending| path.ends_with(ending));
    match ends || path.starts_with(['.', '/']) || path.split('/').count() != 2 {
        true => "there is no such file",
        false => {
            "there is no such folder, and nothing is downloaded: a model of Hugging Face is given by its config.json, \
             or see `predict list nets`"
        }
    }
}

fn from_file(path: &str, content: Option<&[u8]>, format: Format, reading: &Reading) -> Result<Network, Failure> {
    let failed = |error: anyhow::Error| Failure::Failed(error.context(path.to_string()));
    let open = || -> Result<fs::File> {
        if content.is_none() && !Path::new(path).exists() {
            return Err(io::Error::new(io::ErrorKind::NotFound, absent(path)).into());
        }
        if !fs::metadata(path)?.is_file() {
            return Err(anyhow!("not a regular file"));
        }
        Ok(fs::File::open(path)?)
    };
    let options = onnx::Options {
        name: Format::stem(path),
        inputs: &reading.inputs,
        sequence: reading.sequence,
        skip_unknown: reading.skip_unknown,
        selected: reading.selected,
    };
    let read = match content {
        Some(bytes) => format.read(Cursor::new(bytes), &options),
        None => format.read(open().map_err(failed)?, &options),
    };
    read.map_err(|error| match error {
        OnnxError::Usage(_) => Failure::Usage(anyhow::Error::from(error).context(path.to_string())),
        _ => failed(error.into()),
    })
}
