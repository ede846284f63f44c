//! `predict convert`: a network in another format.

use crate::cli::{FoldingArgs, NetworkArgs, parse_batch, parse_input};
use crate::commands::Failure;
use crate::networks::{bindings, network_of};
use crate::output::OutputArgs;
use anyhow::{Context, anyhow};
use clap::{Args, ValueEnum};
use joulecast_model::base::precision::Precision;
use joulecast_model::base::shape::Shape;
use joulecast_model::net::network::ShapedNetwork;
use joulecast_model::read::onnx;
use joulecast_reports::say;
use std::io::IsTerminal as _;

/// What to convert, and into what.
#[derive(Args)]
pub struct ConvertArgs {
    /// A network of the zoo, or a file: .toml, .onnx or Caffe's .prototxt
    #[arg(value_name = "NAME|FILE")]
    pub net: String,
    /// The format to write
    #[arg(long, value_enum, default_value_t = Target::Toml)]
    pub to: Target,
    /// Another shape for a named input; may be repeated
    #[arg(long, value_name = "NAME=CxHxW", value_parser = parse_input)]
    pub input: Vec<(String, Shape)>,
    /// Tokens per sample, for networks that read a sequence
    #[arg(long, value_name = "N", value_parser = parse_batch, allow_negative_numbers = true)]
    pub sequence: Option<u64>,
    /// ONNX: leave out operators that are not known instead of failing; the file lists them
    #[arg(long)]
    pub skip_unknown: bool,
    #[command(flatten)]
    pub folding: FoldingArgs,
    /// ONNX: the most that operators select whose values decide how much (boxes, non-zero elements) [default: 1000]
    #[arg(long, value_name = "N", value_parser = parse_batch, allow_negative_numbers = true)]
    pub selected: Option<u64>,
    #[command(flatten)]
    pub output: OutputArgs,
}

/// A format that can be written.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Target {
    /// The project's own network file, to be edited
    Toml,
    /// ONNX without weights
    Onnx,
}

/// Reads a network and writes it.
pub fn convert(args: ConvertArgs) -> Result<(), Failure> {
    let ConvertArgs { net, to, input, sequence, skip_unknown, folding, selected, output } = args;
    output.check([])?;
    let named = NetworkArgs { net: Some(net), input, skip_unknown, folding, selected, sequence };
    let (mut network, _) = network_of(&named, named.name())?;
    let given = bindings(&named);
    let unfit = |e| Failure::Usage(anyhow::Error::from(e).context(network.name.clone()));
    ShapedNetwork::new(&network, 1, Precision::Fp32, given).map_err(unfit)?;
    for input in &mut network.inputs {
        if let Some((_, shape)) = given.iter().find(|(name, _)| *name == input.name) {
            (input.shape, input.symbols) = (*shape, vec![None; shape.dims().len()]);
        }
    }
    let terminal = output.file().is_none() && std::io::stdout().is_terminal();
    let bytes = match to {
        Target::Toml => network.to_toml().into_bytes(),
        Target::Onnx if terminal => {
            return Err(Failure::Usage(anyhow!(
                "an ONNX file is not for a terminal: --output FILE says where to write it"
            )));
        }
        Target::Onnx => onnx::write(&network).with_context(|| network.name.clone()).map_err(Failure::Failed)?,
    };
    // Where folding was undone, there is none left.
    if to == Target::Onnx && network.folded() > 0 && !folding.unfold_batch_norm {
        let count = network.folded();
        say(format_args!(
            "note: {count} layers hold a folded batch norm, which an ONNX file cannot say: --unfold-batch-norm writes it as an \
             operator of its own"
        ));
    }
    output.emit_bytes(&bytes)
}
