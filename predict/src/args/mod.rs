//! The command line as it is typed. What of it several commands take is written once, in `shared`.

mod late;
mod others;
#[cfg(feature = "papers")]
mod papers;
mod predict;
mod serve;
mod shared;
mod several;
pub mod values;

pub use others::{ConvertArgs, Counting, DescribeArgs, ListArgs, Listing, PlanArgs, Target};
#[cfg(feature = "papers")]
pub use papers::PapersArgs;
pub use predict::{OptimizeArgs, Over, PredictArgs};
pub use serve::{ServeArgs, ServeOver};
pub use several::{CompareArgs, SweepArgs, SweepFormat};
pub use shared::OutputArgs;

use clap::{CommandFactory as _, Parser, Subcommand};
use late::Late;

/// How long will a network take on a GPU, at which power, with how much energy?
#[derive(Parser)]
#[command(
    name = "predict",
    version = crate::version(),
    about,
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true
)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Option<Command>,
    #[command(flatten)]
    pub predict: PredictArgs,
}

const EXAMPLES: &str = "Examples:
  predict --net vgg16 --gpu v100 --batch 64              time, power, energy and the costliest layers
  predict --net resnet50 --gpu t4 --batch 16 --layers    every layer
  predict --net resnet50 --gpu v100 --batch 32 --mode training
  predict --net resnet50 --gpu v100 --gpus 8 --batch 512 --mode training --epochs 90 --dataset-size 1281167 --price-kwh 0.3
  predict --net my_net.toml --gpu my_gpu.toml --batch 8 --format json
  predict --net inception_v3 --gpu p100 --batch 8 --input image=3x320x320
  predict --net resnet50 --gpu v100 --batch 64 --power-cap 200    also --clock, --mem-clock
  predict --net resnet50 --gpu h200 --batch 1 --framework pytorch --host host.toml    as fast as a machine's host (`calibrate host`)
  predict --net gpt2 --gpu h200 --batch 8 --sequence 512 --generate 128
  predict optimize --net resnet50 --gpu v100 --batch 64 --metric edp --max-slowdown 5%
  predict optimize --net llama3_8b --gpu h100 --prompt 1024 --answer 256 --tpot 50ms    as serve --over … --objective energy
  predict compare --net resnet50,vgg16 --gpu v100,t4 --batch 1,64    also --target-latency, --energy-budget, --max-power
  predict sweep --net all --gpu all --batch 1,16,64 --output rows.csv    also --clock 600..1500:15, --power-cap
  predict serve --net llama3_8b --gpu h100 --rate 4 --prompt 1024 --answer 256    also --ttft 500ms --tpot 50ms, --trace
  predict plan data/capacity/tagging.toml                   GPUs, racks, kW, cost and carbon for a load; --format html
  predict describe --net caffenet --counting castro2018  operations and traffic, layer by layer
  predict --net model.onnx --gpu t4 --batch 8             also Caffe's .prototxt; --input ids=1x128 binds open sizes
  predict convert model.onnx --output my_net.toml        into a network file, to be edited
  predict papers --paper castro2018                      what a paper printed, beside predictions
  predict list nets                                      what --net knows; also: gpus, interconnects, frameworks, inputs, calibrations
  predict completions bash                               a completion script
  predict mcp                                            for assistants: a server of the Model Context Protocol on stdio";

/// The command line of a program that is called so; its examples are to be typed as they stand.
pub fn command(called: &'static str) -> clap::Command {
    let here = |line: &&str| cfg!(feature = "papers") || !line.contains("predict papers ");
    let examples: Vec<&str> = EXAMPLES.lines().filter(here).collect();
    let command = Cli::command().name(called).after_help(as_called(&examples.join("\n"), called));
    let command = command.mut_subcommand("serve", |serve| serve.after_help(as_called(serve::EXAMPLES, called)));
    command.mut_subcommand("optimize", |optimize| optimize.after_help(as_called(predict::OPTIMIZED, called)))
}

/// A text that names the program, where that is called otherwise.
pub fn as_called(text: &str, called: &str) -> String {
    text.replace("predict ", &format!("{called} "))
}

#[derive(Subcommand)]
pub enum Command {
    /// The clock, power limit and batch with the least energy, time or product of them; with --prompt and --answer, of a
    /// language model under a load, what serve --over --objective finds
    Optimize(Late<OptimizeArgs>),
    /// Networks on GPUs side by side, which GPU is best for what, and the largest batch within a budget
    Compare(Late<CompareArgs>),
    /// Many predictions: networks, GPUs, batches, precisions, clocks, limits; CSV or JSON Lines
    Sweep(Late<SweepArgs>),
    /// A language model under a load: latencies, tokens per second, power and joules per token with continuous batching
    Serve(Late<ServeArgs>),
    /// How many GPUs a load needs, at which power, cost and carbon
    Plan(Late<PlanArgs>),
    /// A network's layers: shapes, operations, traffic, parameters
    Describe(Late<DescribeArgs>),
    /// A network in another format: a file of one's own to edit, or ONNX
    Convert(Late<ConvertArgs>),
    /// What papers printed of whole networks, beside predictions
    #[cfg(feature = "papers")]
    Papers(Late<PapersArgs>),
    /// What is built in
    List(Late<ListArgs>),
    /// Answers an assistant over the Model Context Protocol on standard input and output
    Mcp,
    /// A completion script for a shell
    Completions {
        /// Which shell
        shell: clap_complete::Shell,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Options without a heading stand before all others in help, those of a part that others take at its end.
    #[test]
    fn options_stand_under_headings() {
        let mut all = command("predict");
        all.build();
        let with_headings = ["optimize", "compare", "sweep", "serve", "plan", "describe", "convert"];
        let commands = with_headings.map(|name| all.find_subcommand(name).expect(name)).into_iter().chain([&all]);
        for command in commands {
            let bare = command.get_arguments().filter(|option| option.get_help_heading().is_none());
            let bare: Vec<&str> = bare.filter_map(|option| option.get_long()).collect();
            let known: &[&str] = if command.get_name() == "plan" { &["help", "new"] } else { &["help", "version"] };
            assert!(bare.iter().all(|name| known.contains(name)), "{}: {bare:?}", command.get_name());
        }
        let heading = |command: &str, option: &str| {
            let command = all.find_subcommand(command).expect(command);
            let mut options = command.get_arguments().filter(|o| o.get_long() == Some(option));
            options.next().and_then(|o| o.get_help_heading()).map(str::to_string)
        };
        for (command, option, expected) in [
            ("plan", "format", "Output"),
            ("serve", "rate", "Load"),
            ("serve", "ttft", "Goal"),
            ("describe", "batch", "Model"),
            ("convert", "to", "Output"),
        ] {
            assert_eq!(heading(command, option).as_deref(), Some(expected), "{command} --{option}");
        }
    }

    /// What `optimize` refuses is not offered.
    #[test]
    fn optimize_offers_what_it_takes() {
        let mut all = command("predict");
        all.build();
        let optimize = all.find_subcommand("optimize").expect("there");
        let offered: Vec<&str> = optimize.get_arguments().filter_map(|option| option.get_long()).collect();
        let predicts: Vec<&str> = all.get_arguments().filter_map(|option| option.get_long()).collect();
        let of_others: Vec<&str> = predicts.into_iter().filter(|name| !offered.contains(name)).collect();
        let expected = "gpus interconnect scaling tensor-parallel pipeline-parallel expert-parallel data-parallel weights cache epochs dataset-size price-kwh program-start layers generate layouts version";
        assert_eq!(of_others, expected.split(' ').collect::<Vec<_>>());
        let required = optimize.get_arguments().filter(|option| option.is_required_set());
        assert_eq!(required.filter_map(|option| option.get_long()).collect::<Vec<_>>(), ["net", "batch", "gpu"]);
    }
}
