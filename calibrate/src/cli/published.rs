//! `calibrate published`: power and clocks that others published, beside predictions.

use super::{print, show};
use crate::judge::published::{
    Tools, all_reduce, average, caps, kernels, read, savings, sweeps, timm, traces, voltage,
};
use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use joulecast_reports::export::Format;
use joulecast_reports::table::Table;
use std::path::PathBuf;

#[derive(Clone, Copy, ValueEnum)]
enum What {
    /// Time and energy under power limits, each network predicted without its own runs
    Caps,
    /// What the best core clock saves
    Savings,
    /// Average power at the default settings
    Power,
    /// ResNet-50 under power limits in the traces of Zeus
    Traces,
    /// Kernels over core clocks, three clocks given
    Sweeps,
    /// Whole networks on an RTX 3090, which no layer was measured on
    Timm,
    /// Core voltage and idle power over the clock: what [voltage] of data/gpus rests on
    Voltage,
    /// Sums over several GPUs: what data/interconnects rests on
    Allreduce,
    /// Power of long kernels in NVIDIA AIConfigurator's table
    Kernels,
}

#[derive(Args)]
pub struct PublishedArgs {
    /// Which comparison
    what: What,
    /// The tables or rows: krzywaniak2022.csv for caps, tang2019.csv for savings, castro2018.csv and nvidia2015.csv for
    /// power (data/published/papers); for traces and sweeps a CSV, for allreduce DeepBench's workbooks
    /// (DeepBench_NV_*.xlsx), of your own clone of their sources, a CSV of calibrate/tools/torch_parallel.py, or
    /// AIConfigurator's collectives in Parquet; for kernels its power; for timm a Parquet; for voltage a CSV and, to
    /// compare rises with energy rows, datasets
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Print Markdown
    #[arg(long)]
    markdown: bool,
}

pub fn published(args: &PublishedArgs) -> Result<()> {
    if args.files.is_empty() {
        let source = match args.what {
            What::Caps | What::Savings | What::Power => "name a table of data/published/papers",
            What::Traces => {
                "no traces given: they are made of trace/summary_power_*.csv of github.com/ml-energy/zeus (Apache-2.0)"
            }
            What::Sweeps => "no sweeps given: they are blackjack2015/NV-DVFS-Benchmark's, without a licence",
            What::Kernels => {
                "no table of power given: aic_power.parquet, made of ai-dynamo/aiconfigurator (Apache-2.0)"
            }
            What::Timm => {
                "no runs given: results/benchmark-*rtx3090*.csv of huggingface/pytorch-image-models (Apache-2.0) as one Parquet"
            }
            What::Voltage => {
                "no readings given: they are the tables of config/dvfs of the EnergAIzer artifact (MIT), as columns gpu, \
                 sm_clock_mhz, core_voltage_mv, idle_power_w"
            }
            What::Allreduce => "no workbooks given: results/train/DeepBench_NV_*.xlsx of baidu-research/DeepBench",
        };
        return print(&format!("skipped: {source}\n"));
    }
    let tools = Tools::shipped()?;
    let cells = || read(&args.files);
    let tables: Vec<Table> = match (args.what, args.files.as_slice()) {
        (What::Caps, _) => caps::tables(&cells()?, &tools)?,
        (What::Savings, _) => savings::tables(&cells()?, &tools)?,
        (What::Power, _) => average::tables(&cells()?, &tools)?,
        (What::Traces, [file]) => traces::tables(file, &tools)?,
        (What::Sweeps, [file]) => sweeps::tables(file)?,
        (What::Kernels, [file]) => kernels::tables(file, &tools)?,
        (What::Timm, [file]) => timm::tables(file)?,
        (What::Voltage, files) => voltage::tables(files)?,
        (What::Allreduce, files) => all_reduce::tables(files)?,
        _ => bail!("one file at a time"),
    };
    show(tables.as_slice(), if args.markdown { Format::Markdown } else { Format::Table })
}
