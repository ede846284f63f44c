//! The formats that networks come in.

use crate::caffe;
use crate::huggingface;
use crate::onnx::{self, OnnxError, Options};
use joulecast_model::net::network::{Network, NetworkError};
use joulecast_model::read::check_names;
use std::io::{Read, Seek};
use std::path::Path;

/// No text file of a network is larger.
const MOST_BYTES: u64 = 16 << 20;

/// What Hugging Face calls the file that describes a model, in a folder of the model's name.
pub const CONFIG: &str = "config.json";

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
    /// Hugging Face's `config.json`.
    HuggingFace,
}

impl Format {
    /// By the extension; any other path is read as the project's own format.
    pub fn of(name: &str) -> Self {
        let extension = Path::new(name).extension().and_then(|e| e.to_str()).unwrap_or_default().to_ascii_lowercase();
        match &extension[..] {
            "onnx" => Self::Onnx,
            "prototxt" => Self::Prototxt,
            "json" => Self::HuggingFace,
            "toml" => Self::Toml,
            _ if name.contains(['/', '\\']) => Self::Toml,
            _ => Self::Zoo,
        }
    }

    /// As the key `source` of a prediction says it.
    pub fn source(self) -> &'static str {
        match self {
            Self::Zoo => "zoo",
            Self::Toml => "file",
            Self::Onnx => "onnx",
            Self::Prototxt => "prototxt",
            Self::HuggingFace => "huggingface",
        }
    }

    /// What a network of a file is called: as the file, or as its folder where all files of the format have one name.
    pub fn stem(path: &str) -> &str {
        let path = Path::new(path);
        let folder = path.parent().and_then(Path::file_name).filter(|_| path.ends_with(CONFIG));
        folder.or(path.file_stem()).and_then(|s| s.to_str()).unwrap_or("network")
    }

    /// Reads an opened file of this format; a text file where that is [`Format::Zoo`].
    ///
    /// # Errors
    /// One line that says what is damaged, missing or not known, and where.
    pub fn read(self, file: impl Read + Seek, options: &Options<'_>) -> Result<Network, OnnxError> {
        let network = self.unchecked(file, options)?;
        check_names(&network.inputs, &network.nodes)?;
        Ok(network)
    }

    /// As [`Format::read`], without the rules that hold for every format.
    fn unchecked(self, file: impl Read + Seek, options: &Options<'_>) -> Result<Network, OnnxError> {
        if self == Self::Onnx {
            return onnx::read(file, options);
        }
        let mut text = String::new();
        let read = file.take(MOST_BYTES + 1).read_to_string(&mut text).map_err(|e| OnnxError::Format(e.to_string()))?;
        if read as u64 > MOST_BYTES {
            return Err(OnnxError::Format(format!("more than {MOST_BYTES} bytes, which no such file has")));
        }
        let network: Result<Network, NetworkError> = match self {
            Self::Prototxt => caffe::read(&text, options.name, options.inputs),
            Self::HuggingFace => return huggingface::read(&text, options.name).map_err(OnnxError::Format),
            _ => Network::from_toml(&text),
        };
        Ok(network?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_format_is_told_by_the_name() {
        for (name, format) in [
            ("resnet50", Format::Zoo),
            ("net.toml", Format::Toml),
            ("NET.TOML", Format::Toml),
            ("folder/net", Format::Toml),
            ("a.onnx", Format::Onnx),
            ("folder/deploy.prototxt", Format::Prototxt),
            ("v1.1", Format::Zoo),
            ("folder/config.json", Format::HuggingFace),
            ("llama.json", Format::HuggingFace),
        ] {
            assert_eq!(Format::of(name), format, "{name}");
        }
        let stems = ["a/b.onnx", "Llama-3.1-8B/config.json", "config.json", "a/llama.json"].map(Format::stem);
        assert_eq!(stems, ["b", "Llama-3.1-8B", "config", "llama"]);
    }
}
