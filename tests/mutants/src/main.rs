//! Would the tests notice a mistake? Mutants of `model` and `calibrate`, drawn by a seed from the list of
//! [cargo-mutants](https://mutants.rs), and which of them a test notices.
//!
//! ```text
//! cargo install cargo-mutants --locked
//! tests/mutants/list.sh > target/list.json
//! cargo run -p joulecast-mutants -- --list target/list.json --package joulecast-model --test values --test oracles --slow 1.5 --results target/mutants.csv
//! ```
//!
//! A build per mutant takes a minute, a run of the quick tests a second. So all drawn mutants are built at once, each
//! behind a switch that an environment variable sets ([`rewrite`]), in a copy of the repository; those that do not
//! compile drop out. What is slow without a mutant (`--slow`) is left out at first and run for survivors only with `--all`.
//! Results are appended line by line, and a run goes on where the last one stopped.

mod build;
mod rewrite;
mod run;

use anyhow::{Context, Result, bail};
use clap::Parser;
use rewrite::Mutant;
use std::fs;
use std::path::PathBuf;

/// Which mutants of the code do the tests notice?
#[derive(Debug, Parser)]
struct Arguments {
    /// What `cargo mutants --list --json` printed.
    #[arg(long)]
    list: PathBuf,
    /// The package whose sources are changed and whose tests run.
    #[arg(long)]
    package: String,
    /// Integration tests that run besides the library's own.
    #[arg(long = "test")]
    tests: Vec<String>,
    /// Seed of the draw.
    #[arg(long, default_value_t = 16)]
    seed: u64,
    /// So many mutants that compile.
    #[arg(long, default_value_t = 300)]
    count: usize,
    /// Stop after so many minutes of running tests.
    #[arg(long, default_value_t = 60.0)]
    minutes: f64,
    /// Leave out tests that take longer than so many seconds without a mutant.
    #[arg(long, default_value_t = 0.5)]
    slow: f64,
    /// Run the slow tests too where the quick ones notice nothing.
    #[arg(long)]
    all: bool,
    /// Where lines `file,line,column,what,result,test` are appended.
    #[arg(long)]
    results: PathBuf,
    /// Where the copy of the repository is made.
    #[arg(long, default_value = "target/mutants")]
    copy: PathBuf,
}

/// The next number of a sequence that a seed decides (splitmix64).
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Brings a list into the order of the draw.
fn shuffle<T>(list: &mut [T], seed: u64) {
    let mut state = seed;
    for i in (1..list.len()).rev() {
        list.swap(i, (next(&mut state) % (i as u64 + 1)) as usize);
    }
}

fn main() -> Result<()> {
    let a = Arguments::parse();
    let text = fs::read_to_string(&a.list).with_context(|| a.list.display().to_string())?;
    let mut mutants: Vec<Mutant> = rewrite::listed(&text, &a.package)?;
    let population = mutants.len();
    if population == 0 {
        bail!("{} lists no mutant of {}", a.list.display(), a.package);
    }
    shuffle(&mut mutants, a.seed);
    // Some do not compile, or stand where no switch can be put.
    mutants.truncate(a.count + a.count / 4 + 10);
    let drawn = mutants.len();
    let built = build::all(&a.copy, &a.package, &a.tests, mutants)?;
    let mutants = &built.mutants[..built.mutants.len().min(a.count)];
    println!(
        "{} of {population} mutants: {} built of {drawn} drawn, without {}",
        mutants.len(),
        built.mutants.len(),
        built.left_out
    );
    run::all(&built.binaries, mutants, &run::How { minutes: a.minutes, slow: a.slow, all: a.all, results: &a.results })
}
