//! Networks as users name them: of the zoo, or from a file of one of three formats.

use crate::cli::NetworkArgs;
use crate::commands::{Failure, read};
use anyhow::{Context, Result, anyhow};
use joulecast_model::caffe;
use joulecast_model::catalog;
use joulecast_model::generation;
use joulecast_model::network::Network;
use joulecast_model::onnx::{self, OnnxError};
use joulecast_model::shape::Shape;
use std::fs;
use std::path::Path;

/// What a name on the command line means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// One of the networks that are built in.
    Zoo,
    /// The project's own format.
    Toml,
    /// ONNX.
    Onnx,
    /// Caffe's.
    Prototxt,
}

impl Format {
    /// By the extension; any other path is read as the project's own format.
    pub fn of(name: &str) -> Self {
        let extension = Path::new(name).extension().and_then(|e| e.to_str()).unwrap_or_default().to_ascii_lowercase();
        match &extension[..] {
            "onnx" => Self::Onnx,
            "prototxt" => Self::Prototxt,
            "toml" => Self::Toml,
            _ if name.contains(['/', '\\']) => Self::Toml,
            _ => Self::Zoo,
        }
    }

    /// As the key `source` of a prediction says it.
    fn source(self) -> &'static str {
        match self {
            Self::Zoo => "zoo",
            Self::Toml => "file",
            Self::Onnx => "onnx",
            Self::Prototxt => "prototxt",
        }
    }
}

/// A network, with so many tokens per sample where that is said.
///
/// # Errors
/// When there is none, its file cannot be used, or it reads no sequence.
pub fn network(name: &str, sequence: Option<u64>) -> Result<Network, Failure> {
    Ok(network_of(&NetworkArgs { sequence, ..NetworkArgs::default() }, name)?.0)
}

/// A network with what the arguments say of its inputs, and where it is from.
///
/// # Errors
/// When there is none, or its file cannot be used.
pub fn network_of(args: &NetworkArgs, name: &str) -> Result<(Network, &'static str), Failure> {
    let format = Format::of(name);
    let mut network = match format {
        Format::Zoo => catalog::network(name).map_err(|e| Failure::Usage(e.into()))?,
        Format::Toml => toml(name).map_err(Failure::Failed)?,
        Format::Onnx => from_onnx(name, args)?,
        Format::Prototxt => prototxt(name, &args.input).map_err(Failure::Failed)?,
    };
    if let (Some(tokens), Format::Zoo | Format::Toml) = (args.sequence, format) {
        network.bind(generation::SEQUENCE, tokens).map_err(|e| Failure::Usage(e.into()))?;
    }
    Ok((network, format.source()))
}

/// Shapes of inputs that are yet to be bound: those of an imported file already are, since other shapes follow from
/// them.
pub fn bindings(args: &NetworkArgs) -> &[(String, Shape)] {
    match Format::of(args.name()) {
        Format::Onnx | Format::Prototxt => &[],
        _ => &args.input,
    }
}

fn toml(path: &str) -> Result<Network> {
    Network::from_toml(&read(path)?).with_context(|| path.to_string())
}

fn stem(path: &str) -> &str {
    Path::new(path).file_stem().and_then(|s| s.to_str()).unwrap_or("network")
}

fn prototxt(path: &str, shapes: &[(String, Shape)]) -> Result<Network> {
    caffe::read(&read(path)?, stem(path), shapes).with_context(|| path.to_string())
}

fn from_onnx(path: &str, args: &NetworkArgs) -> Result<Network, Failure> {
    let failed = |error: anyhow::Error| Failure::Failed(error.context(path.to_string()));
    let open = || -> Result<fs::File> {
        if !fs::metadata(path)?.is_file() {
            return Err(anyhow!("not a regular file"));
        }
        Ok(fs::File::open(path)?)
    };
    let options = onnx::Options {
        name: stem(path),
        inputs: &args.input,
        sequence: args.sequence,
        skip_unknown: args.skip_unknown,
    };
    onnx::read(open().map_err(failed)?, &options).map_err(|error| match error {
        OnnxError::Usage(_) => Failure::Usage(anyhow::Error::from(error).context(path.to_string())),
        _ => failed(error.into()),
    })
}
