//! `host` and `detect`, which `calibrate` and the command of the Python package have in common.

use crate::gpu;
use crate::host::{self, Chains, FRAMEWORK, factors};
use anyhow::{Context, Result};
use clap::{Args, Parser, Subcommand};
use joulecast_model::catalog;
use joulecast_reports::export::{Export, Format};
use joulecast_reports::given::{host_file, text};
use joulecast_reports::{command_line, error_line, exit, say, whole};
use std::ffi::OsString;
use std::path::PathBuf;

/// What `host` is asked.
#[derive(Args)]
pub struct HostArgs {
    /// What machine/tools/torch_host.py measured, instead of measuring here
    #[arg(long, value_name = "FILE")]
    from: Option<PathBuf>,
    /// The Python that has PyTorch
    #[arg(long, value_name = "PROGRAM", default_value = "python3", conflicts_with = "from")]
    python: String,
    /// How long to measure, beside what importing PyTorch takes
    #[arg(long, value_name = "SECONDS", default_value_t = 12.0, conflicts_with = "from", value_parser = positive)]
    seconds: f64,
    /// Where to write it (default: ~/.config/joulecast/host.toml, which predictions take without being told)
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Write over a file that is there
    #[arg(long)]
    force: bool,
}

/// What `detect` is asked.
#[derive(Args)]
pub struct DetectArgs {
    /// The GPU that the boards count as, where their names do not say: a name or a file
    #[arg(long, value_name = "NAME|FILE", value_parser = gpu::gpu_or_file)]
    gpu: Option<String>,
}

/// A number above zero.
pub fn positive(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().ok().filter(|n| n.is_finite() && *n > 0.0);
    number.ok_or_else(|| "a number above 0".to_string())
}

fn print(text: &str) -> Result<()> {
    Ok(joulecast_reports::print(text.as_bytes())?)
}

/// Measures the host; `predict`: how the command that predicts is called.
///
/// # Errors
/// In one line: where nothing can be measured, or a file is there that would be lost.
pub fn host(args: &HostArgs, predict: &str) -> Result<()> {
    let usual = host_file();
    let out = args.out.clone().or_else(|| usual.clone());
    let out = out.context("no folder for it: neither HOME nor XDG_CONFIG_HOME is set; --out FILE")?;
    if args.from.is_none() {
        whole::check_free(&out, args.force)?;
    }
    let chains = match &args.from {
        Some(path) => Chains::from_json(&text(path)?).with_context(|| path.display().to_string())?,
        None => {
            say(format!("chains of small layers through PyTorch, about {:.0} s", args.seconds + 10.0));
            host::measure(&args.python, args.seconds)?
        }
    };
    let profile = catalog::framework(FRAMEWORK)?;
    let record = chains.record(&profile)?;
    print(&format!(
        "{} ({}, PyTorch {}), beside the {FRAMEWORK} profile\n\n",
        record.cpu, record.device, record.torch
    ))?;
    print(&chains.table(&profile)?.export(Format::Table)?)?;
    print("\n")?;
    print(&factors(&record).export(Format::Table)?)?;
    if let Some(share) = chains.disturbed() {
        let share = 100.0 * share;
        say(format!(
            "note: a chain computed in {share:.0} % of its time only: other processes had the cores meanwhile"
        ));
    }
    if let Some(folder) = out.parent() {
        std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    }
    let done = whole::write_new(&out, toml::to_string(&record)?, args.force)?;
    let gpu = gpu::gpu_name(&record.device.to_lowercase().replace("nvidia ", "")).unwrap_or_else(|_| "h200".into());
    let words = ["--net", "resnet50", "--gpu", &gpu, "--framework", FRAMEWORK].map(std::ffi::OsString::from);
    let named = (Some(&out) != usual.as_ref()).then(|| ["--host".into(), out.clone().into_os_string()]);
    let line = command_line(predict, words.into_iter().chain(named.into_iter().flatten()));
    let kept = if Some(&out) == usual.as_ref() { ", which predictions of eager steps take from now on" } else { "" };
    print(&format!("\n{}: {done}{kept}\n{line}\n", out.display()))
}

/// Names the boards and what is known of them.
///
/// # Errors
/// Without a driver or a board, and where nobody knows how to ask for one.
pub fn detect(args: &DetectArgs) -> Result<()> {
    #[cfg(target_os = "linux")]
    return print(&crate::detect::text(None, args.gpu.as_deref())?);
    #[cfg(not(target_os = "linux"))]
    anyhow::bail!("boards can be asked on Linux alone{}", args.gpu.as_ref().map_or("", |_| ", whatever they count as"))
}

#[derive(Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// How fast this machine's host launches PyTorch's operations: a file that predictions of eager steps take
    Host(HostArgs),
    /// Which GPU is here, and which calibration fits it
    Detect(DetectArgs),
}

/// Whether a word is the name of one of these commands.
pub fn is_command(word: &str) -> bool {
    matches!(word, "host" | "detect")
}

/// The commands as a program that is called so starts them; its exit status. `predict`: how the command is called there that
/// predicts.
pub fn program(called: &str, predict: &str, words: impl IntoIterator<Item = OsString>) -> u8 {
    let line = std::iter::once(OsString::from(called)).chain(words);
    let cli = match Cli::try_parse_from(line) {
        Ok(cli) => cli,
        // Help is no error.
        Err(e) => {
            let _ = e.print();
            return u8::try_from(e.exit_code()).unwrap_or(exit::USAGE);
        }
    };
    let done = match cli.command {
        Command::Host(args) => host(&args, predict),
        Command::Detect(args) => detect(&args),
    };
    let Err(why) = done else { return 0 };
    say(format_args!("error: {}", error_line(why.chain().map(ToString::to_string))));
    exit::FAILED
}
