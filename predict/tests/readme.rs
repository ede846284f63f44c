//! Every `predict` command of README and the book works as it is written, and what they show of answers is what is printed.

mod program;

use joulecast_documents::{for_users, made, markdown, root, text};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Output;

/// A line without the program: pasted from README, or as the book has it once it is installed.
fn arguments(line: &str) -> Option<Vec<String>> {
    let rest = ["cargo run --release --bin predict -- ", "predict "].iter().find_map(|p| line.strip_prefix(p))?;
    Some(rest.split_whitespace().map(str::to_string).collect())
}

fn predict(folder: &Path, line: &str) -> Output {
    let arguments = arguments(line).unwrap_or_else(|| panic!("{line}: no command"));
    program::predict().args(arguments).current_dir(folder).output().expect("predict starts")
}

/// A folder that looks like a clone to who reads in it, and can be written to.
fn clone() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    for path in ["data/capacity/tagging.toml", "model/read/tests/huggingface/qwen3_8b.json"] {
        let to = folder.path().join(path);
        fs::create_dir_all(to.parent().expect("a folder")).expect("a folder");
        fs::copy(root().join(path), to).expect("a copy");
    }
    folder
}

#[test]
fn every_command_works_as_written() {
    let (mut seen, mut failed) = (BTreeSet::new(), Vec::new());
    for file in for_users(&root()) {
        // Commands of a chapter may use what those before them wrote.
        let folder = clone();
        for command in markdown::commands(&text(&root(), &file)) {
            if command.norun.is_some() || arguments(&command.text).is_none() {
                continue;
            }
            let output = predict(folder.path(), &command.text);
            if !output.status.success() {
                let said = String::from_utf8_lossy(&output.stderr).into_owned();
                failed.push(format!("{file}:{}: {}\n{said}", command.line, command.text));
            }
            seen.insert(command.text);
        }
    }
    assert!(failed.is_empty(), "\n{}", failed.join("\n"));
    assert!(seen.len() > 60, "{seen:?}");
}

/// What a command prints, from one line to another.
fn shown(what: &str) -> Option<String> {
    let (line, from, to) = what.split_once(" | ").and_then(|(line, lines)| {
        let (from, to) = lines.split_once('-')?;
        Some((line, from.parse::<usize>().ok()?, to.parse::<usize>().ok()?))
    })?;
    arguments(line)?;
    let output = predict(clone().path(), line);
    assert!(output.status.success(), "{what}: {}", String::from_utf8_lossy(&output.stderr));
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let all = printed.lines().count();
    let mut lines: Vec<&str> = printed.lines().skip(from - 1).take(to + 1 - from).map(str::trim_end).collect();
    if to < all {
        lines.push("…");
    }
    Some(format!("```text\n{}\n```", lines.join("\n")))
}

/// `UPDATE_GOLDEN=1 cargo test -p joulecast-predict --test readme` shows what is printed now.
#[test]
fn what_is_shown_of_answers_is_the_program_s() {
    let parts = made::check(&root(), shown);
    assert!(parts >= 3, "{parts}");
}

/// The picture of README is what its command draws; `UPDATE_GOLDEN=1` draws it again.
#[cfg(feature = "figures")]
#[test]
fn the_picture_is_what_its_command_draws() {
    let readme = text(&root(), "README.md");
    let commands = markdown::commands(&readme);
    let command = commands.iter().find(|c| c.text.contains("--figure compare.svg")).expect("a command");
    let folder = clone();
    let output = predict(folder.path(), &command.text);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let drawn = text(folder.path(), "compare.svg");
    let picture = root().join("reports/figures/compare.svg");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(&picture, &drawn).expect("written");
    }
    assert!(fs::read_to_string(&picture).is_ok_and(|was| was == drawn), "{} is another one", command.text);
}
