//! `calibrate host`: how fast this machine's host is, and how far hosts differ.

use super::{misuse, names, print, show};
use crate::campaign::host::{self, Chains, FRAMEWORK, factors};
use crate::judge::hosts;
use crate::system::whole;
use anyhow::{Context, Result};
use clap::Args;
use joulecast_model::catalog;
use joulecast_model::law::calibration::Calibration;
use joulecast_model::step::framework::Framework;
use joulecast_reports::export::Format;
use joulecast_reports::given::{host_file, text};
use joulecast_reports::{command_line, say};
use std::path::{Path, PathBuf};

#[derive(Args)]
pub struct HostArgs {
    /// What calibrate/tools/torch_host.py measured, instead of measuring here
    #[arg(long, value_name = "FILE")]
    from: Option<PathBuf>,
    /// The Python that has PyTorch
    #[arg(long, value_name = "PROGRAM", default_value = "python3", conflicts_with = "from")]
    python: String,
    /// How long to measure, beside what importing PyTorch takes
    #[arg(long, value_name = "SECONDS", default_value_t = 12.0, conflicts_with = "from", value_parser = super::names::positive)]
    seconds: f64,
    /// Where to write it (default: ~/.config/joulecast/host.toml, which predictions take without being told)
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Write over a file that is there
    #[arg(long)]
    force: bool,
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

fn judge(args: &HostArgs) -> Result<()> {
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
pub fn host(args: &HostArgs) -> Result<()> {
    if !args.runs.is_empty() || args.learn.is_some() {
        return judge(args);
    }
    if args.calibrations.is_some() {
        return Err(misuse("--calibrations is of --runs and --learn"));
    }
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
    show(&chains.table(&profile)?, Format::Table)?;
    print("\n")?;
    show(&factors(&record), Format::Table)?;
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
    let gpu = names::gpu_name(&record.device.to_lowercase().replace("nvidia ", "")).unwrap_or_else(|_| "h200".into());
    let words = ["--net", "resnet50", "--gpu", &gpu, "--framework", FRAMEWORK].map(std::ffi::OsString::from);
    let named = (Some(&out) != usual.as_ref()).then(|| ["--host".into(), out.clone().into_os_string()]);
    let line = command_line("predict", words.into_iter().chain(named.into_iter().flatten()));
    let kept = if Some(&out) == usual.as_ref() { ", which predictions of eager steps take from now on" } else { "" };
    print(&format!("\n{}: {done}{kept}\n{line}\n", out.display()))
}
