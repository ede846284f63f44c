//! Questions in the words of the command line, as values: for what takes options by name and is no command line, such as the
//! Python package. Words are those behind the program's name or its command's; what is printed, and where, is left to the
//! caller, and no file of the user's home is read.

use crate::args::{Cli, Command};
use crate::ask::{Choice, Question, Serving};
use crate::failure::Failure;
use crate::request::{HostAsked, Reading, Request, Runner};
use clap::Parser;
use joulecast_model::base::precision::Precision;
use joulecast_model::base::shard::Shard;
use joulecast_model::step::predictor::OperatingPoint;
use std::path::PathBuf;

/// What `predict` itself is asked.
#[derive(Clone, Debug)]
pub struct Step {
    /// What runs.
    pub request: Request,
    /// Tokens of a language model's answer, where one is asked for.
    pub generate: Option<u64>,
    /// Whether all layouts over a node are asked for.
    pub layouts: bool,
}

/// What `predict sweep` is asked.
#[derive(Clone, Debug)]
pub struct Sweep {
    /// What is swept.
    pub request: Request,
    /// Tokens per sample.
    pub sequences: Vec<u64>,
    /// Clocks and limits of each step.
    pub points: Vec<OperatingPoint>,
    /// Which part of it.
    pub shard: Shard,
    /// Threads; all cores without.
    pub threads: Option<usize>,
}

/// What `predict describe` is asked.
#[derive(Clone, Debug)]
pub struct Describe {
    /// The network.
    pub net: String,
    /// How it is read.
    pub reading: Reading,
    /// Samples per step.
    pub batch: u64,
    /// Storage.
    pub precision: Precision,
}

/// What `predict plan` is asked besides its file.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The file.
    pub file: PathBuf,
    /// How networks are read.
    pub reading: Reading,
    /// What runs them; the file says through which profile.
    pub runner: Runner,
}

/// What clap says in a line, without what only a terminal has.
fn wrong(error: &clap::Error) -> Failure {
    let text = error.to_string();
    let told = text.split("\n\nUsage:").next().unwrap_or(&text).split("\n\nFor more").next().unwrap_or(&text);
    let told = told.strip_prefix("error: ").unwrap_or(told);
    Failure::usage(told.split_whitespace().collect::<Vec<_>>().join(" "))
}

fn parsed(command: Option<&str>, words: &[String]) -> Result<Cli, Failure> {
    let line = std::iter::once("predict").chain(command).chain(words.iter().map(String::as_str));
    Cli::try_parse_from(line).map_err(|e| wrong(&e))
}

/// Without what a user keeps at home.
fn nobodys(runner: Runner) -> Runner {
    match runner.host {
        HostAsked::Usual(_) => Runner { host: HostAsked::Profile, ..runner },
        _ => runner,
    }
}

fn homeless(request: Request) -> Request {
    Request { runner: nobodys(request.runner), ..request }
}

fn unlike(command: &str) -> Failure {
    Failure::usage(format_args!("these words are not of {command}"))
}

/// `predict --net … --gpu … --batch …`
///
/// # Errors
/// When an option is not known, or a value is wrong.
pub fn predict(words: &[String]) -> Result<Step, Failure> {
    let cli = parsed(None, words)?;
    let args = cli.predict;
    match cli.command {
        None => Ok(Step { request: homeless(args.request()?), generate: args.generate, layouts: args.layouts }),
        Some(_) => Err(unlike("predict")),
    }
}

/// `predict optimize`
///
/// # Errors
/// As [`predict`], and when options contradict each other.
pub fn optimize(words: &[String]) -> Result<(Request, Choice), Failure> {
    match parsed(Some("optimize"), words)?.command {
        Some(Command::Optimize(args)) => {
            args.check()?;
            Ok((homeless(args.request()), args.choice()))
        }
        _ => Err(unlike("optimize")),
    }
}

/// `predict compare`
///
/// # Errors
/// As [`predict`].
pub fn compare(words: &[String]) -> Result<(Request, Question), Failure> {
    match parsed(Some("compare"), words)?.command {
        Some(Command::Compare(args)) => Ok((homeless(args.request()?), args.question())),
        _ => Err(unlike("compare")),
    }
}

/// `predict sweep`
///
/// # Errors
/// As [`predict`].
pub fn sweep(words: &[String]) -> Result<Sweep, Failure> {
    match parsed(Some("sweep"), words)?.command {
        Some(Command::Sweep(args)) => Ok(Sweep {
            request: homeless(args.request()?),
            points: args.points(),
            shard: args.shard,
            threads: args.threads,
            sequences: args.sequence.clone(),
        }),
        _ => Err(unlike("sweep")),
    }
}

/// `predict serve`
///
/// # Errors
/// As [`predict`], and when a trace cannot be used.
pub fn serve(words: &[String]) -> Result<(Request, Serving), Failure> {
    match parsed(Some("serve"), words)?.command {
        Some(Command::Serve(args)) => Ok((homeless(args.request()?), args.serving()?)),
        _ => Err(unlike("serve")),
    }
}

/// `predict plan`
///
/// # Errors
/// As [`predict`].
pub fn plan(words: &[String]) -> Result<Plan, Failure> {
    match parsed(Some("plan"), words)?.command {
        Some(Command::Plan(args)) => {
            Ok(Plan { file: args.file.clone(), reading: args.reading(), runner: nobodys(args.runner("")) })
        }
        _ => Err(unlike("plan")),
    }
}

/// `predict describe`
///
/// # Errors
/// As [`predict`].
pub fn describe(words: &[String]) -> Result<Describe, Failure> {
    match parsed(Some("describe"), words)?.command {
        Some(Command::Describe(args)) => Ok(Describe {
            net: args.net.net().to_string(),
            reading: args.reading(),
            batch: args.batch,
            precision: args.precision,
        }),
        _ => Err(unlike("describe")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Batch;

    fn words(line: &str) -> Vec<String> {
        line.split(' ').map(str::to_string).collect()
    }

    #[test]
    fn options_by_name_are_the_requests_of_the_command_line() {
        let step = predict(&words("--net resnet50 --gpu v100 --batch 64 --power-cap 200")).expect("read");
        assert_eq!((step.request.batches, step.generate), (vec![Batch::Samples(64)], None));
        assert_eq!(step.request.runner.host, HostAsked::Profile);
        let swept = sweep(&words("--net a,b --gpu t4 --batch 1,8..16:8 --clock 600..700:50")).expect("read");
        assert_eq!((swept.request.batches.len(), swept.points.len()), (3, 3));
        assert_eq!(optimize(&words("--net a --gpu t4 --batch 1 --metric edp")).expect("read").0.networks, ["a"]);
        assert_eq!(compare(&words("--net a --gpu t4,v100 --batch 1")).expect("read").0.teams.len(), 2);
        assert_eq!(describe(&words("--net a --batch 3")).expect("read").batch, 3);
        assert!(
            plan(&words("file.toml")).is_ok()
                && serve(&words("--net a --gpu t4 --rate 1 --prompt 8 --answer 8")).is_ok()
        );
    }

    #[test]
    fn what_is_wrong_is_a_line() {
        let line = |text: &str| predict(&words(text)).expect_err("wrong").to_string();
        let told = line("--net resnet50 --gpu v100 --batch 0");
        assert!(told.starts_with("invalid value '0' for '--batch <N|max>'") && !told.contains('\n'), "{told}");
        assert!(line("--net a --gpu v100 --batch 1 --lots").contains("--lots"));
        assert!(line("list gpus").contains("not of predict"));
    }
}
