//! `calibrate host`: how fast this machine's host is, and how far hosts differ.

use super::{misuse, show};
use crate::judge::hosts;
use anyhow::{Context, Result};
use clap::Args;
use joulecast_machine::host::FRAMEWORK;
use joulecast_model::catalog;
use joulecast_model::law::calibration::Calibration;
use joulecast_model::step::framework::Framework;
use joulecast_reports::export::Format;
use std::path::{Path, PathBuf};

#[derive(Args)]
pub struct HostsArgs {
    #[command(flatten)]
    here: joulecast_machine::cli::HostArgs,
    /// Instead: how far networks that the host decides are from their predictions, visit by visit, in files of runs as
    /// calibrate/tools/torch_networks.py writes them; may be repeated
    #[arg(long, value_name = "FILE", conflicts_with_all = ["from", "python", "seconds", "out", "force"])]
    runs: Vec<PathBuf>,
    /// With --runs: the host that ran them
    #[arg(long, value_name = "FILE", requires = "runs")]
    host: Option<PathBuf>,
    /// Instead: how launches of networks follow those of the chains that are measured here, from visits whose hosts were
    /// measured, as data/measurements/sealed/hosts.toml lists them
    #[arg(long, value_name = "FILE", conflicts_with_all = ["from", "python", "seconds", "out", "force", "runs"])]
    learn: Option<PathBuf>,
    /// With --runs or --learn: a folder of calibrations (default: the shipped ones)
    #[arg(long, value_name = "DIR")]
    calibrations: Option<PathBuf>,
}

/// A profile, on the host of a file where one is named.
pub(super) fn through(framework: &str, host: Option<&Path>) -> Result<Framework> {
    let profile = catalog::framework(framework)?;
    let Some(path) = host else { return Ok(profile) };
    let (speed, theirs) = joulecast_reports::given::host(path)?;
    if theirs != framework {
        return Err(misuse(&format!("--host: {} is of the {theirs} profile, not of {framework}", path.display())));
    }
    Ok(profile.on_host(speed))
}

fn shipped() -> Result<Vec<Calibration>> {
    let read = |(name, text): &(&str, &str)| Calibration::from_toml(text).with_context(|| name.to_string());
    catalog::calibrations().iter().map(read).collect()
}

fn judge(args: &HostsArgs) -> Result<()> {
    let calibrations = match &args.calibrations {
        Some(folder) => joulecast_reports::given::calibrations(folder)?,
        None => shipped()?,
    };
    let framework = through(FRAMEWORK, args.host.as_deref())?;
    if let Some(visits) = &args.learn {
        return show(&hosts::learned(visits, &calibrations, &framework)?, Format::Table);
    }
    show(hosts::tables(&args.runs, &calibrations, &framework)?.as_slice(), Format::Table)
}

/// Measures the host, or judges predictions of steps that hosts decide.
pub fn host(args: &HostsArgs) -> Result<()> {
    if !args.runs.is_empty() || args.learn.is_some() {
        return judge(args);
    }
    if args.calibrations.is_some() {
        return Err(misuse("--calibrations is of --runs and --learn"));
    }
    joulecast_machine::cli::host(&args.here, "predict")
}
