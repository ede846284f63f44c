//! A copy of the repository with all mutants in it, built once.

use crate::rewrite::{Mutant, blamed, rewrite};
use anyhow::{Context, Result, anyhow, bail};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What asks which mutant is on, once per run; 0 is none.
const SWITCH: &str = "//! Which mutant is on.\n\n\
    /// Whether this one is.\n\
    pub fn on(id: usize) -> bool {\n    \
        static ON: std::sync::LazyLock<usize> = std::sync::LazyLock::new(|| {\n        \
            std::env::var(\"MUTANT\").ok().and_then(|text| text.parse().ok()).unwrap_or(0)\n    \
        });\n    *ON == id\n}\n";

/// Test programs with every mutant behind a switch.
pub struct Built {
    /// The mutants that compile, in the order of the draw.
    pub mutants: Vec<Mutant>,
    /// So many do not, or have no switch.
    pub left_out: usize,
    /// The library's tests and the integration tests.
    pub binaries: Vec<PathBuf>,
}

fn output(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("{command:?}"))?;
    if !output.status.success() {
        bail!("{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Copies what git knows of, and what it would.
fn copy(to: &Path) -> Result<()> {
    let list = output(Command::new("git").args(["ls-files", "-co", "--exclude-standard"]))?;
    let mut folders = BTreeSet::new();
    for file in list.lines().filter(|f| Path::new(f).is_file()) {
        let target = to.join(file);
        if let Some(folder) = target.parent()
            && folders.insert(folder.to_path_buf())
        {
            fs::create_dir_all(folder)?;
        }
        // An equal file keeps its time, so that what hangs on it is not built again.
        if fs::read(&target).ok() != Some(fs::read(file)?) {
            fs::copy(file, &target).with_context(|| file.to_string())?;
        }
    }
    Ok(())
}

fn cargo(tree: &Path, what: &[&str], package: &str) -> Result<Command> {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(tree).args(what).args(["--locked", "--offline", "--message-format=json", "-p", package]);
    // Built once and run hundreds of times.
    for name in ["model", "ask", "read"] {
        command.arg("--config").arg(format!("profile.dev.package.joulecast-{name}.opt-level=2"));
    }
    command.arg("--target-dir").arg(fs::canonicalize("target").context("no folder target")?);
    Ok(command)
}

fn messages(text: &str) -> Vec<Value> {
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// Writes all sources with their switches and says which mutants have none.
fn write(tree: &Path, mutants: &[Mutant], files: &BTreeSet<String>) -> Result<BTreeSet<usize>> {
    let mut without = BTreeSet::new();
    for file in files {
        let of: Vec<Mutant> = mutants.iter().filter(|m| &m.file == file).cloned().collect();
        let source = fs::read_to_string(file).with_context(|| file.clone())?;
        let (text, none) = rewrite(&source, &of).with_context(|| file.clone())?;
        without.extend(none);
        fs::write(tree.join(file), text)?;
    }
    Ok(without)
}

/// Builds the tests of a package with all mutants that compile.
pub fn all(copy_to: &Path, package: &str, tests: &[String], mut mutants: Vec<Mutant>) -> Result<Built> {
    let drawn = mutants.len();
    for (i, mutant) in mutants.iter_mut().enumerate() {
        mutant.id = i + 1;
    }
    let files: BTreeSet<String> = mutants.iter().map(|m| m.file.clone()).collect();
    let folder = files.first().and_then(|f| f.split("/src/").next()).ok_or_else(|| anyhow!("no mutants"))?.to_string();
    let tree = copy_to.join("tree");
    fs::create_dir_all(&tree)?;
    copy(&tree)?;
    fs::write(tree.join(&folder).join("src/mutant.rs"), SWITCH)?;
    let library = tree.join(&folder).join("src/lib.rs");
    let text = fs::read_to_string(Path::new(&folder).join("src/lib.rs"))?;
    fs::write(&library, format!("{text}\n#[doc(hidden)]\npub mod mutant;\n"))?;

    // One build names some errors; others show once these are gone. A later run knows them all.
    let known = copy_to.join("not_built.txt");
    let mut broken: BTreeSet<String> =
        fs::read_to_string(&known).unwrap_or_default().lines().map(str::to_string).collect();
    mutants.retain(|m| !broken.contains(&m.key()));
    loop {
        let without = write(&tree, &mutants, &files)?;
        if !without.is_empty() {
            mutants.retain(|m| !without.contains(&m.id));
            continue;
        }
        let checked = cargo(&tree, &["check", "--lib"], package)?.output()?;
        if checked.status.success() {
            break;
        }
        let guilty = guilty(&tree, &mutants, &messages(&String::from_utf8_lossy(&checked.stdout)))?;
        if guilty.is_empty() {
            bail!("it does not build:\n{}", String::from_utf8_lossy(&checked.stderr));
        }
        println!("{} do not compile", guilty.len());
        broken.extend(mutants.iter().filter(|m| guilty.contains(&m.id)).map(Mutant::key));
        fs::write(&known, broken.iter().map(|key| format!("{key}\n")).collect::<String>())?;
        mutants.retain(|m| !guilty.contains(&m.id));
    }
    let mut test = cargo(&tree, &["test", "--no-run", "--lib"], package)?;
    for name in tests {
        test.args(["--test", name]);
    }
    let built = messages(&output(&mut test)?);
    let program = |m: &Value| {
        let path = m.get("executable")?.as_str()?;
        m.pointer("/profile/test")?.as_bool()?.then(|| PathBuf::from(path))
    };
    let binaries: Vec<PathBuf> = built.iter().filter_map(program).collect();
    Ok(Built { left_out: drawn - mutants.len(), mutants, binaries })
}

/// The mutants that errors lie in.
fn guilty(tree: &Path, mutants: &[Mutant], messages: &[Value]) -> Result<BTreeSet<usize>> {
    let mut texts: BTreeMap<String, String> = BTreeMap::new();
    let mut guilty = BTreeSet::new();
    for message in messages.iter().filter(|m| m.pointer("/message/level").and_then(Value::as_str) == Some("error")) {
        let spans = message.pointer("/message/spans").and_then(Value::as_array).cloned().unwrap_or_default();
        for span in spans.iter().filter(|s| s.get("is_primary").and_then(Value::as_bool) == Some(true)) {
            let (Some(file), Some(byte)) =
                (span.get("file_name").and_then(Value::as_str), span.get("byte_start").and_then(Value::as_u64))
            else {
                continue;
            };
            if !texts.contains_key(file) {
                texts.insert(file.to_string(), fs::read_to_string(tree.join(file))?);
            }
            let text = &texts[file];
            let mut blamed = blamed(text, byte as usize);
            // A match that lacks an arm is named, not the arm: the next one that was taken out.
            if blamed.is_empty() {
                let arm = |id: &usize| mutants.iter().any(|m| m.id == *id && m.genre == "MatchArm");
                let marks =
                    text[byte as usize..].split("/*<N").skip(1).filter_map(|t| t.split("*/").next()?.parse().ok());
                blamed.extend(marks.into_iter().find(arm));
            }
            guilty.extend(blamed);
        }
    }
    Ok(guilty)
}
