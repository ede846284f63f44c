//! `calibrate measure`, `detect`, `check`, `restore`, and the guardian that a settings session starts.

use super::{names, print};
use crate::campaign::device::{Device, Kind as DeviceKind, open_cuda};
use crate::campaign::measure::layers::{self, LayerRun};
use crate::campaign::measure::record::{NetworkRun, Table};
use crate::campaign::{check, costs, measure, restore};
use anyhow::{Context, Result, bail};
use clap::Args;
use joulecast_kernels::runner::Launch;
use joulecast_kernels::{LayerRunner, PowerMeter, settings};
use joulecast_machine::cli::DetectArgs;
use joulecast_model::base::precision::{Mode, Precision};
use joulecast_model::base::units::Seconds;
use joulecast_model::catalog;
use joulecast_model::net::network::Network;
use joulecast_read::Format;
use joulecast_read::onnx::Options;
use joulecast_reports::say;
use std::path::PathBuf;

#[derive(Args)]
pub struct MeasureArgs {
    /// Networks of the zoo or network files, separated by commas
    #[arg(long, value_name = "NAME|FILE", required = true, value_delimiter = ',', value_parser = names::network_or_file)]
    net: Vec<String>,
    /// Batches, separated by commas
    #[arg(long, value_name = "N", default_value = "1,16,64", value_delimiter = ',',
        value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    batch: Vec<u64>,
    /// Precisions, separated by commas
    #[arg(long, value_name = "PRECISION", default_value = "fp32,fp16", value_delimiter = ',', value_parser = precision)]
    precision: Vec<Precision>,
    /// inference, training, or both separated by a comma
    #[arg(long, value_name = "MODE", default_value = "inference", value_delimiter = ',', value_parser = mode)]
    mode: Vec<Mode>,
    /// graph (one recorded graph), eager (launches from the host), or both separated by a comma
    #[arg(long, value_name = "LAUNCH", default_value = "graph", value_delimiter = ',', value_parser = launch)]
    launch: Vec<Launch>,
    /// Measure each layer alone instead of the network as a whole
    #[arg(long)]
    layers: bool,
    /// With --layers: share of the step's time whose layers also get power and energy
    #[arg(long, value_name = "SHARE", default_value_t = 0.0, requires = "layers", value_parser = share)]
    energy_share: f64,
    /// With --layers: window of an energy reading
    #[arg(long, value_name = "SECONDS", default_value_t = 1.5, requires = "layers", value_parser = super::names::positive)]
    window: f64,
    /// What to run on
    #[arg(long, value_enum, default_value_t = DeviceKind::Cuda)]
    device: DeviceKind,
    /// The GPU that it counts as, where its name does not say: a name or a file
    #[arg(long, value_name = "NAME|FILE", value_parser = names::gpu_or_file)]
    gpu: Option<String>,
    /// CSV file; rows are added, and those that it holds are not measured again
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// Begin nothing after this time
    #[arg(long, value_name = "SECONDS", value_parser = super::names::positive)]
    budget: Option<f64>,
}

#[derive(Args)]
pub struct CheckArgs {
    /// Skip the comparison with the reference
    #[arg(long)]
    no_agreement: bool,
    /// Skip ceilings and bandwidths
    #[arg(long, conflicts_with = "no_agreement")]
    no_ceilings: bool,
}

#[derive(Args)]
pub struct RestoreArgs {
    /// Folder of the journals; default: where `calibrate run` writes them
    #[arg(long, value_name = "DIR")]
    journals: Option<PathBuf>,
}

#[derive(Args)]
pub struct GuardianArgs {
    /// The session's journal
    journal: PathBuf,
}

pub(super) fn precision(text: &str) -> Result<Precision, String> {
    match Precision::from_name(text) {
        Some(Precision::Int8 | Precision::Fp8) | None => Err("fp32, tf32, fp16 or bf16".to_string()),
        Some(known) => Ok(known),
    }
}

pub(super) fn mode(text: &str) -> Result<Mode, String> {
    Mode::from_name(text).ok_or_else(|| "inference or training".to_string())
}

fn launch(text: &str) -> Result<Launch, String> {
    [Launch::Graph, Launch::Eager].into_iter().find(|l| l.name() == text).ok_or_else(|| "graph or eager".to_string())
}

fn share(text: &str) -> Result<f64, String> {
    text.parse().ok().filter(|s| (0.0..=1.0).contains(s)).ok_or_else(|| "a share between 0 and 1".to_string())
}

pub(super) fn network(name: &str) -> Result<Network> {
    let format = Format::of(name);
    if format == Format::Zoo {
        return Ok(catalog::network(name)?);
    }
    let file = std::fs::File::open(name).with_context(|| name.to_string())?;
    let options = Options { name: Format::stem(name), ..Options::default() };
    format.read(file, &options).with_context(|| match format {
        Format::Onnx => format!("{name} (open sizes are bound by `predict convert {name} --output FILE.toml`)"),
        _ => name.to_string(),
    })
}

/// Measures whole networks, or their layers one by one.
pub fn measure(args: &MeasureArgs) -> Result<()> {
    let networks = args.net.iter().map(|name| network(name)).collect::<Result<Vec<_>>>()?;
    let budget = args.budget.map(Seconds::new);
    let mut progress = |what: &str| say(what);
    // The file before the device, whose use would disturb what another process measures.
    if args.layers {
        let (mut table, _) = Table::open(&args.out, LayerRun::key)?;
        let (mut runner, mut meter) = opened(args)?;
        let request = layers::Request {
            networks,
            batches: args.batch.clone(),
            precisions: args.precision.clone(),
            modes: args.mode.clone(),
            energy_share: args.energy_share,
            window: Seconds::new(args.window),
            budget,
        };
        let meter = meter.as_mut().map(|m| &mut **m as &mut dyn PowerMeter);
        let written = layers::run(runner.as_mut(), meter, &request, &mut table, &mut progress)?;
        return print(&format!("{}: {written} rows added\n", args.out.display()));
    }
    let (mut table, _) = Table::open(&args.out, NetworkRun::key)?;
    let (mut runner, mut meter) = opened(args)?;
    let request = measure::Request {
        networks,
        batches: args.batch.clone(),
        precisions: args.precision.clone(),
        modes: args.mode.clone(),
        launches: args.launch.clone(),
        budget,
    };
    let meter = meter.as_mut().map(|m| &mut **m as &mut dyn PowerMeter);
    let summary = measure::run(runner.as_mut(), meter, &request, &mut table, &mut progress)?;
    for (what, why) in &summary.skipped {
        say(format!("skipped {what}: {why}"));
    }
    let (added, known, left) = (summary.measured, summary.known, summary.left);
    print(&format!("{}: {added} rows added, {known} were there, {left} left for another run\n", args.out.display()))
}

/// What runs networks and what reads their power.
type Opened = (Box<dyn LayerRunner>, Option<Box<dyn PowerMeter>>);

fn opened(args: &MeasureArgs) -> Result<Opened> {
    let Device { runner, meter, notes, .. } = Device::open(args.device, args.gpu.as_deref(), &[])?;
    notes.iter().for_each(say);
    Ok((runner, meter))
}

/// Names the GPU, what is known of it, and what a calibration of its own would take.
pub fn detect(args: &DetectArgs) -> Result<()> {
    joulecast_machine::cli::detect(args)?;
    print(&format!("\n{}", costs::text()?))
}

/// Checks the kernels of this GPU.
pub fn check(args: &CheckArgs) -> Result<()> {
    let mut runner = open_cuda()?;
    let mut agrees = true;
    if !args.no_agreement {
        let (text, all) = check::agreement(&mut runner)?;
        print(&text)?;
        agrees = all;
    }
    if !args.no_ceilings {
        print(&check::ceilings(&mut runner)?)?;
        print(&check::bandwidths(&mut runner)?)?;
    }
    if !agrees {
        bail!("this GPU does not compute what the layers mean");
    }
    Ok(())
}

/// Restores settings that a killed session left behind.
pub fn restore(args: &RestoreArgs) -> Result<()> {
    let folder = match &args.journals {
        Some(folder) => folder.clone(),
        None => settings::default_folder().context("no folder for journals: neither HOME nor XDG_STATE_HOME is set")?,
    };
    for line in restore::restore(&folder, None)? {
        print(&format!("{line}\n"))?;
    }
    Ok(())
}

/// Waits until the session's end and restores what it left.
pub fn guardian(args: &GuardianArgs) -> Result<()> {
    Ok(settings::guardian::main(&args.journal)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_come_from_the_zoo_and_from_files_of_every_format() {
        let file = |name: &str| format!("{}/../{name}", env!("CARGO_MANIFEST_DIR"));
        let layers = |name: &str| network(name).map(|n| n.nodes.len()).unwrap_or_default();
        assert_eq!(layers(&file("data/nets/resnet50.toml")), layers("resnet50"));
        assert!(layers(&file("model/read/tests/onnx/resnet50.onnx")) > 100);
        let open = network(&file("model/read/tests/onnx/odd/open_size.onnx")).expect_err("an open size");
        assert!(format!("{open:#}").contains("predict convert"), "{open:#}");
        assert!(network("resnet51").is_err() && network("no_such.prototxt").is_err());
    }
}
