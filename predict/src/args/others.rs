//! Commands that predict nothing, papers and fleets.

use super::shared::{LibraryArgs, MODEL, NetArgs, OUTPUT, OutputArgs, ReadingArgs, SequenceArgs};
use super::values::{parse_precision, parse_size};
use crate::failure::Failure;
use crate::request::{Reading, Runner};
use clap::{Args, ValueEnum};
use joulecast_model::base::precision::Precision;
use joulecast_read::Format as FileFormat;
use joulecast_reports::export::{Format, format_of};
use joulecast_reports::fleet::Plan;
use joulecast_reports::table::Table;
use std::path::{Path, PathBuf};

#[derive(Args)]
pub struct DescribeArgs {
    #[command(flatten)]
    pub net: NetArgs,
    #[command(flatten)]
    reading: ReadingArgs,
    #[command(flatten)]
    sequence: SequenceArgs,
    /// Samples per step
    #[arg(long, visible_alias = "batch-size", value_name = "N", default_value = "1", value_parser = parse_size, allow_negative_numbers = true, help_heading = MODEL)]
    pub batch: u64,
    /// Storage width for the traffic: fp32, tf32, fp16, bf16, int8 or fp8
    #[arg(long, value_name = "PRECISION", default_value = "fp32", value_parser = parse_precision, help_heading = MODEL)]
    pub precision: Precision,
    /// Whose rules: ours (a multiply-accumulate is two operations) or those of castro2018 (one; always per sample, in
    /// four-byte words)
    #[arg(long, value_enum, default_value_t = Counting::Own, help_heading = OUTPUT)]
    pub counting: Counting,
    /// How to print
    #[arg(long, value_name = "FORMAT", value_parser = format_of::<Table>(), default_value_t = Format::Table, help_heading = OUTPUT)]
    pub format: Format,
}

impl DescribeArgs {
    pub fn reading(&self) -> Reading {
        self.reading.reading(self.sequence.sequence)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Counting {
    /// Multiply-accumulate = 2
    Own,
    /// As Castro et al. 2018, Table 1
    Castro2018,
}

/// What to convert, and into what.
#[derive(Args)]
pub struct ConvertArgs {
    /// A network of the zoo, or a file: .toml, .onnx or Caffe's .prototxt
    #[arg(value_name = "NAME|FILE")]
    pub net: String,
    /// The format to write (default: as the output's name ends, else toml)
    #[arg(long, value_enum, help_heading = OUTPUT)]
    to: Option<Target>,
    #[command(flatten)]
    reading: ReadingArgs,
    #[command(flatten)]
    sequence: SequenceArgs,
    #[command(flatten)]
    pub output: OutputArgs,
}

impl ConvertArgs {
    /// The format to write.
    ///
    /// # Errors
    /// When the output's name says another than the option, or is that of a format that is read alone.
    pub fn target(&self) -> Result<Target, Failure> {
        let named =
            match self.output.file().and_then(Path::file_name).map(|name| FileFormat::of(&name.to_string_lossy())) {
                Some(FileFormat::Onnx) => Some(Target::Onnx),
                Some(FileFormat::Toml) => Some(Target::Toml),
                Some(format @ (FileFormat::Prototxt | FileFormat::HuggingFace)) => {
                    let format = format.source();
                    return Err(Failure::usage(format_args!(
                        "--output is named as {format}, which is read, not written: .toml or .onnx"
                    )));
                }
                _ => None,
            };
        match (self.to, named) {
            (Some(to), Some(named)) if to != named => {
                Err(Failure::usage("--to asks for one format, the output's name for another"))
            }
            (to, named) => Ok(to.or(named).unwrap_or(Target::Toml)),
        }
    }

    pub fn reading(&self) -> Reading {
        self.reading.reading(self.sequence.sequence)
    }
}

/// A format that can be written.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Target {
    /// The project's own network file, to be edited
    Toml,
    /// ONNX without weights
    Onnx,
}

#[derive(Args)]
pub struct PlanArgs {
    /// What to plan for (data/capacity/README.md); --new writes one to begin with
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Write a plan file with every field and what it means to FILE, to be edited, and plan nothing
    #[arg(long, conflicts_with_all = ["format", "figures", "output", "input", "skip_unknown", "unfold_batch_norm", "keep_folded",
        "selected", "sequence", "launch", "cudnn", "conv_algorithm", "best_algorithms", "calibration", "host"])]
    pub new: bool,
    #[command(flatten)]
    reading: ReadingArgs,
    #[command(flatten)]
    sequence: SequenceArgs,
    #[command(flatten)]
    library: LibraryArgs,
    /// How to print
    #[arg(long, value_name = "FORMAT", value_parser = format_of::<Plan>(), default_value_t = Format::Table, help_heading = OUTPUT)]
    pub format: Format,
    /// Also write the figures there as SVG; Markdown links them
    #[arg(long, value_name = "DIR", help_heading = OUTPUT)]
    pub figures: Option<PathBuf>,
    #[command(flatten)]
    pub output: OutputArgs,
}

impl PlanArgs {
    pub fn reading(&self) -> Reading {
        self.reading.reading(self.sequence.sequence)
    }

    /// The file's framework profile as the options say.
    pub fn runner(&self, framework: &str) -> Runner {
        self.library.runner(framework)
    }
}

#[derive(Args)]
pub struct ListArgs {
    /// nets, gpus, interconnects, frameworks, inputs or calibrations
    pub what: Listing,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Listing {
    /// Networks of the zoo
    Nets,
    /// Known devices
    Gpus,
    /// What joins GPUs
    Interconnects,
    /// Framework profiles
    Frameworks,
    /// Input pipelines whose rate the profiles know
    Inputs,
    /// Fitted models that are built in
    Calibrations,
}
