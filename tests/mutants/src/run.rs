//! Tests with one mutant on after another.

use crate::rewrite::Mutant;
use anyhow::{Context, Result, bail};
use std::collections::HashMap;
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How long, and where to.
pub struct How<'a> {
    /// Minutes in all.
    pub minutes: f64,
    /// Seconds beyond which a test is slow.
    pub slow: f64,
    /// Slow ones too, for survivors.
    pub all: bool,
    /// The table that is appended to.
    pub results: &'a Path,
}

/// A program with tests, by how long they take.
struct Program<'a> {
    path: &'a Path,
    quick: Vec<String>,
    slow: Vec<String>,
    /// What the quick ones take, and the slow ones.
    seconds: [f64; 2],
}

/// The first test that fails, or what else ended the run; `None` where all pass.
fn failing(program: &Path, tests: &[String], mutant: usize, limit: Duration) -> Result<Option<String>> {
    if tests.is_empty() {
        return Ok(None);
    }
    let output = tempfile(program)?;
    let mut child = Command::new(program)
        .args(["--exact", "--test-threads", "2"])
        .args(tests)
        .env("MUTANT", mutant.to_string())
        .stdin(Stdio::null())
        .stdout(fs::File::create(&output)?)
        .stderr(Stdio::null())
        .spawn()
        .with_context(|| program.display().to_string())?;
    let start = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if start.elapsed() > limit {
            child.kill()?;
            child.wait()?;
            return Ok(Some("time".into()));
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    if status.success() {
        return Ok(None);
    }
    let text = fs::read_to_string(&output)?;
    let named = text.lines().find_map(|l| l.strip_prefix("test ")?.strip_suffix(" ... FAILED"));
    Ok(Some(named.map_or_else(|| status.to_string(), str::to_string)))
}

fn tempfile(program: &Path) -> Result<PathBuf> {
    let name = program.file_name().context("a program has a name")?;
    Ok(std::env::temp_dir().join(format!("{}.{}.txt", name.to_string_lossy(), std::process::id())))
}

impl<'a> Program<'a> {
    /// Tests of a program, one at a time without a mutant.
    fn timed(path: &'a Path, slow: f64) -> Result<Self> {
        let list = Command::new(path).args(["--list", "--format", "terse"]).output()?;
        let list = String::from_utf8_lossy(&list.stdout).into_owned();
        let mut program = Self { path, quick: Vec::new(), slow: Vec::new(), seconds: [0.0; 2] };
        for test in list.lines().filter_map(|l| l.strip_suffix(": test")) {
            let start = Instant::now();
            if let Some(why) = failing(path, &[test.to_string()], 0, Duration::from_secs(600))? {
                bail!("{test} fails without a mutant: {why}");
            }
            let seconds = start.elapsed().as_secs_f64();
            if seconds > slow {
                program.slow.push(test.to_string());
            } else {
                program.quick.push(test.to_string());
            }
            program.seconds[usize::from(seconds > slow)] += seconds;
        }
        println!(
            "{}: {} quick tests, {} slow: {}",
            path.display(),
            program.quick.len(),
            program.slow.len(),
            program.slow.join(", ")
        );
        Ok(program)
    }
}

/// Runs the tests with each mutant that the results do not have yet.
pub fn all(binaries: &[PathBuf], mutants: &[Mutant], how: &How<'_>) -> Result<()> {
    let done = fs::read_to_string(how.results).unwrap_or_default();
    let line = |m: &Mutant| done.lines().find(|l| l.starts_with(&format!("{},", m.key()))).map(str::to_string);
    let programs = binaries.iter().map(|b| Program::timed(b, how.slow)).collect::<Result<Vec<_>>>()?;
    let mut table = OpenOptions::new().create(true).append(true).open(how.results)?;
    if done.is_empty() {
        writeln!(table, "file,line,column,what,result,test")?;
    }
    let (start, mut counts) = (Instant::now(), HashMap::<&str, usize>::new());
    for mutant in mutants {
        if let Some(line) = line(mutant) {
            *counts.entry(if line.contains(",caught,") { "caught" } else { "missed" }).or_default() += 1;
            continue;
        }
        if start.elapsed().as_secs_f64() > 60.0 * how.minutes {
            *counts.entry("not run").or_default() += 1;
            continue;
        }
        let mut found = None;
        for slow in [false, true].into_iter().take(1 + usize::from(how.all)) {
            for program in &programs {
                let limit = Duration::from_secs_f64(15.0 + 4.0 * program.seconds[usize::from(slow)]);
                let tests = if slow { &program.slow } else { &program.quick };
                if found.is_none() {
                    found = failing(program.path, tests, mutant.id, limit)?;
                }
            }
        }
        let result = if found.is_some() { "caught" } else { "missed" };
        *counts.entry(result).or_default() += 1;
        writeln!(table, "{},{result},{}", mutant.key(), found.unwrap_or_default())?;
    }
    let count = |what| counts.get(what).copied().unwrap_or(0);
    let (caught, missed) = (count("caught"), count("missed"));
    let share = 100.0 * caught as f64 / (caught + missed).max(1) as f64;
    println!("{caught} caught, {missed} missed ({share:.1} %), {} not run", count("not run"));
    Ok(())
}
