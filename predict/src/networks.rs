//! Networks as users name them: of the zoo, or from a file of one of three formats.

use crate::cli::{FoldingArgs, NetworkArgs};
use crate::commands::Failure;
use crate::devices::{names, once, place};
use anyhow::{Result, anyhow};
use joulecast_model::base::shape::Shape;
use joulecast_model::catalog;
use joulecast_model::net::network::Network;
use joulecast_model::read::Format;
use joulecast_model::read::onnx::{self, OnnxError};
use joulecast_model::step::generation;
use std::collections::HashMap;
use std::fs;

/// A network, with so many tokens per sample where that is said; `folding` as in [`NetworkArgs`].
///
/// # Errors
/// When there is none, its file cannot be used, or it reads no sequence.
pub fn network(name: &str, sequence: Option<u64>, folding: FoldingArgs) -> Result<Network, Failure> {
    Ok(network_of(&NetworkArgs { sequence, folding, ..NetworkArgs::default() }, name)?.0)
}

/// What a typed network is, however it is written: a built-in one by its own name, a file by where it is.
fn identity(typed: &str, name: &str) -> String {
    if Format::of(typed) == Format::Zoo { name.to_string() } else { place(typed) }
}

/// Networks as typed, each once, whatever it is called there, read by `read`: with what was typed.
///
/// # Errors
/// Those of `read`; when two files hold networks of one name, whose results could not be told apart.
pub fn networks(
    typed: &[String],
    read: impl Fn(&str) -> Result<Network, Failure>,
) -> Result<Vec<(String, Network)>, Failure> {
    let all = names(typed, catalog::network_names());
    let all = all.into_iter().map(|name| Ok((read(&name)?, name))).collect::<Result<Vec<_>, Failure>>()?;
    let all = once(all, "--net", |(network, typed)| identity(typed, &network.name));
    let mut called: HashMap<&str, &str> = HashMap::new();
    for (network, typed) in &all {
        if let Some(other) = called.insert(&network.name, typed) {
            let name = &network.name;
            let why =
                anyhow!("--net: {other} and {typed} are both called {name}, so their rows would be alike: rename one");
            return Err(Failure::Usage(why));
        }
    }
    Ok(all.into_iter().map(|(network, typed)| (typed, network)).collect())
}

/// A network with what the arguments say of its inputs, and where it is from.
///
/// # Errors
/// When there is none, or its file cannot be used.
pub fn network_of(args: &NetworkArgs, name: &str) -> Result<(Network, &'static str), Failure> {
    let format = Format::of(name);
    let mut network = match format {
        Format::Zoo => catalog::network(name).map_err(|e| Failure::Usage(e.into()))?,
        _ => from_file(name, format, args)?,
    };
    if let (Some(tokens), Format::Zoo | Format::Toml) = (args.sequence, format) {
        network.bind(generation::SEQUENCE, tokens).map_err(|e| Failure::Usage(e.into()))?;
    }
    Ok((network.with_folding(args.folding.folding()), format.source()))
}

/// Shapes of inputs that are yet to be bound: those of an imported file already are, since other shapes follow from
/// them.
pub fn bindings(args: &NetworkArgs) -> &[(String, Shape)] {
    match Format::of(args.name()) {
        Format::Onnx | Format::Prototxt => &[],
        _ => &args.input,
    }
}

fn from_file(path: &str, format: Format, args: &NetworkArgs) -> Result<Network, Failure> {
    let failed = |error: anyhow::Error| Failure::Failed(error.context(path.to_string()));
    let open = || -> Result<fs::File> {
        if !fs::metadata(path)?.is_file() {
            return Err(anyhow!("not a regular file"));
        }
        Ok(fs::File::open(path)?)
    };
    let options = onnx::Options {
        name: Format::stem(path),
        inputs: &args.input,
        sequence: args.sequence,
        skip_unknown: args.skip_unknown,
        selected: args.selected,
    };
    Network::from_file(format, open().map_err(failed)?, &options).map_err(|error| match error {
        OnnxError::Usage(_) => Failure::Usage(anyhow::Error::from(error).context(path.to_string())),
        _ => failed(error.into()),
    })
}
