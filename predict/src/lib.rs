//! How long a network takes on a GPU, at which power, with how much energy: the questions of the program `predict`, for
//! Rust.
//!
//! A [`Request`] says what is asked, a [`Session`] keeps what was read, and the functions of [`ask`] answer with values.
//! The program (feature `program`) is a command line (`args`, as typed), which becomes a request, and text made of the
//! answer (`run`).

// These panic where nobody reads; `joulecast_reports::{say, print}` do not.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod failure;
mod kept;
mod ready;
pub mod request;
pub mod source;
pub mod cluster;
pub mod session;
pub mod ask;
#[cfg(feature = "program")]
pub mod typed;
#[cfg(feature = "program")]
mod args;
#[cfg(feature = "program")]
mod load;
#[cfg(feature = "program")]
mod output;
#[cfg(feature = "program")]
mod terminal;
#[cfg(feature = "program")]
mod run;

pub use failure::Failure;
pub use request::Request;
pub use session::Session;

/// Version, commit (where the build knew it) and version of the data, as `--version` says them.
pub fn version() -> &'static str {
    static VERSION: std::sync::OnceLock<String> = std::sync::OnceLock::new();
    VERSION.get_or_init(|| {
        let commit = match env!("JOULECAST_COMMIT") {
            "" => String::new(),
            commit => format!("commit {commit}, "),
        };
        format!("{} ({commit}data {})", env!("CARGO_PKG_VERSION"), joulecast_model::catalog::data_version())
    })
}

/// The program: parse, run, report. Exit statuses: `joulecast_reports::exit`.
#[cfg(feature = "program")]
pub fn main() -> std::process::ExitCode {
    std::process::ExitCode::from(program("predict", std::env::args_os().skip(1)))
}

/// The program as something else starts it: how it is called there, and the words behind that. Its exit status.
#[cfg(feature = "program")]
pub fn program(called: &'static str, words: impl IntoIterator<Item = std::ffi::OsString>) -> u8 {
    use clap::FromArgMatches as _;
    use joulecast_reports::{exit, say};
    use std::ffi::OsString;
    let mut words: Vec<OsString> = words.into_iter().collect();
    words.extend(form_of_file(&words));
    let asked = load::served(&words);
    let line = std::iter::once(OsString::from(called)).chain(asked.as_ref().unwrap_or(&words).iter().cloned());
    let mut command = args::command(called);
    let parsed = command.try_get_matches_from_mut(line).and_then(|matches| args::Cli::from_arg_matches(&matches));
    let cli = match parsed.map_err(|e| e.format(&mut command)) {
        Ok(cli) => cli,
        // Help is no error.
        Err(e) => {
            let _ = e.print();
            if let Some(hint) = hint(&e, &words, asked.is_some()) {
                say(args::as_called(&hint, called));
            }
            return u8::try_from(e.exit_code()).unwrap_or(exit::USAGE);
        }
    };
    let Err(failure) = run::run(cli, called, &words) else { return 0 };
    say(format_args!("error: {failure}"));
    match failure {
        Failure::Usage(_) => exit::USAGE,
        Failure::Failed(_) => exit::FAILED,
    }
}

/// `--format html` where the output's name ends in `.html` and no format was asked for; likewise Markdown and JSON.
#[cfg(feature = "program")]
fn form_of_file(words: &[std::ffi::OsString]) -> Vec<std::ffi::OsString> {
    let typed: Vec<&str> = words.iter().map_while(|word| word.to_str()).collect();
    let has = |name: &str| {
        typed.iter().any(|word| word.strip_prefix(name).is_some_and(|r| r.is_empty() || r.starts_with('=')))
    };
    let command = typed.first().filter(|word| !word.starts_with('-'));
    let writes = command.is_none_or(|name| ["compare", "optimize", "serve", "plan"].contains(name));
    if typed.len() < words.len() || !writes || has("--format") || has("--new") || typed.contains(&"--") {
        return Vec::new();
    }
    let file = typed.iter().enumerate().find_map(|(i, word)| match word.strip_prefix("--output")? {
        "" => typed.get(i + 1).copied(),
        rest => rest.strip_prefix('='),
    });
    let ending = file.and_then(|file| std::path::Path::new(file).extension()?.to_str()).map(str::to_ascii_lowercase);
    let form = match ending.as_deref() {
        Some("html") => "html",
        Some("json") => "json",
        Some("md") => "markdown",
        _ => return Vec::new(),
    };
    ["--format", form].map(Into::into).to_vec()
}

/// Whether a word is an option that `predict` takes and `predict optimize` does not.
#[cfg(feature = "program")]
fn is_of_steps_alone(word: &str) -> bool {
    let all = args::command("predict");
    let named = |option: &clap::Arg| option.get_long().is_some_and(|name| word.strip_prefix("--") == Some(name));
    let of = |command: &clap::Command| command.get_arguments().any(named);
    of(&all) && !all.find_subcommand("optimize").is_some_and(of)
}

/// What to type instead, for mistakes that newcomers make. `load`: whether `optimize` is of a load.
#[cfg(feature = "program")]
fn hint(error: &clap::Error, words: &[std::ffi::OsString], load: bool) -> Option<String> {
    use clap::error::{ContextKind, ContextValue, ErrorKind};
    let typed: Vec<String> = words.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let command = typed.first().map(String::as_str).filter(|word| !word.starts_with('-'));
    let wrong = match error.get(ContextKind::InvalidArg).or(error.get(ContextKind::InvalidSubcommand)) {
        Some(ContextValue::String(word)) => word.as_str(),
        _ => "",
    };
    let known = |name: &str| joulecast_model::catalog::network_names().any(|known| known == name);
    let is_network = |word: &str| known(word) || std::path::Path::new(word).extension().is_some();
    match (error.kind(), command) {
        (ErrorKind::InvalidSubcommand, _) if is_network(wrong) => {
            Some(format!("A network is named with --net: predict --net {wrong} --gpu v100 --batch 64"))
        }
        (ErrorKind::InvalidSubcommand, _) if wrong == "papers" && !cfg!(feature = "papers") => {
            Some("It is in the program of the repository alone: cargo install --path predict".into())
        }
        (ErrorKind::UnknownArgument, Some(command @ ("describe" | "optimize"))) if is_network(wrong) => {
            Some(format!("A network is named with --net: predict {command} --net {wrong}"))
        }
        (ErrorKind::UnknownArgument, Some("optimize")) if wrong == "--layers" => Some(
            "predict --layers lists the layers at one point, predict optimize --per-layer gives each layer a clock"
                .into(),
        ),
        (ErrorKind::UnknownArgument, Some("optimize")) if is_of_steps_alone(wrong) => Some(
            "optimize is for one step of one GPU, or for a load: --prompt N --answer N with --tpot or --rate. predict --layouts lists layouts, predict serve --over layout --objective compares them under a load"
                .into(),
        ),
        (ErrorKind::UnknownArgument, Some("convert")) if !wrong.starts_with('-') => {
            Some(format!("Where it is written: --output {wrong}"))
        }
        (ErrorKind::UnknownArgument, Some("compare" | "sweep")) if !wrong.starts_with('-') => {
            let option = match wrong.starts_with(|c: char| c.is_ascii_digit()) {
                true => "--batch 1",
                false if is_network(wrong) => "--net vgg16",
                false => "--gpu t4",
            };
            Some(format!("Several are separated by commas, without blanks or in quotes: {option},{wrong}"))
        }
        (ErrorKind::MissingRequiredArgument, Some("list")) => {
            Some("There are nets, gpus, interconnects, frameworks, inputs and calibrations: predict list gpus".into())
        }
        (ErrorKind::MissingRequiredArgument, Some("plan")) => {
            Some("To begin with: predict plan --new my_plan.toml, then predict plan my_plan.toml".into())
        }
        (ErrorKind::MissingRequiredArgument, None) => Some(
            "For example: predict --net resnet50 --gpu v100 --batch 64. Names: predict list nets, predict list gpus"
                .into(),
        ),
        (ErrorKind::MissingRequiredArgument, Some("compare")) => {
            Some("For example: predict compare --net resnet50 --gpu t4,v100,h100 --batch 1,64".into())
        }
        (ErrorKind::MissingRequiredArgument, Some("serve")) => {
            Some("For example: predict serve --net llama3_8b --gpu h100 --rate 4 --prompt 1024 --answer 256".into())
        }
        (ErrorKind::MissingRequiredArgument, Some("optimize")) if load => Some(
            "For example: predict optimize --net llama3_8b --gpu h100 --prompt 1024 --answer 256 --tpot 50ms".into(),
        ),
        (_, Some("optimize")) if load => Some(
            "Of a load it takes the options of predict serve, whose --objective is --metric here: predict serve --help".into(),
        ),
        (ErrorKind::MissingRequiredArgument, Some("optimize")) => {
            Some("For example: predict optimize --net resnet50 --gpu v100 --batch 64 --max-slowdown 5".into())
        }
        _ => None,
    }
}
