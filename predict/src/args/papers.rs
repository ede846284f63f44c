//! `predict papers` as it is typed.

use super::shared::OutputArgs;
use clap::Args;
use joulecast_reports::export::{Format, format_of};
use joulecast_reports::papers::Beside;
use std::path::PathBuf;

#[derive(Args)]
pub struct PapersArgs {
    /// Only this paper; may be repeated (default: all that are shipped)
    #[arg(long, value_name = "KEY")]
    pub paper: Vec<String>,
    /// This framework profile instead of each paper's
    #[arg(long, value_name = "NAME")]
    pub framework: Option<String>,
    /// Take the newest libraries that the layer models saw instead of the age of each paper's
    #[arg(long)]
    pub newest: bool,
    /// A folder of calibrations instead of the built-in ones, such as `calibrate fit --evaluation` writes
    #[arg(long, value_name = "DIR")]
    pub calibrations: Option<PathBuf>,
    /// Table: show every value, not only mean errors (Markdown and JSON always have them all)
    #[arg(long)]
    pub rows: bool,
    /// How to print
    #[arg(long, value_name = "FORMAT", value_parser = format_of::<Beside>(), default_value_t = Format::Table)]
    pub format: Format,
    #[command(flatten)]
    pub output: OutputArgs,
}
