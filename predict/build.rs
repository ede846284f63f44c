//! Which commit a program is built from, for `--version`: the variable `JOULECAST_COMMIT` of the build, empty where nobody
//! knows. No program is run for it.
//!
//! In order: what `JOULECAST_COMMIT` says, for those who package it; what `cargo package` (`.cargo_vcs_info.json`) or
//! `git archive` (`commit.txt`) wrote; the checkout's `HEAD`. Builds without optimisation, tests above all, ask no checkout:
//! each commit would compile them again.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

/// Digits that are shown.
const DIGITS: usize = 12;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=JOULECAST_COMMIT");
    let here = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default());
    let optimised = env::var("OPT_LEVEL").is_ok_and(|level| level != "0");
    let given = env::var("JOULECAST_COMMIT").ok().as_deref().and_then(hash);
    let found = given
        .or_else(|| packaged(&here.join(".cargo_vcs_info.json")))
        .or_else(|| read(&here.join("commit.txt")).as_deref().and_then(hash))
        .or_else(|| optimised.then(|| checkout(here.parent()?)).flatten());
    println!("cargo::rustc-env=JOULECAST_COMMIT={}", found.unwrap_or_default());
}

/// The first digits of a hash, where a text is one.
fn hash(text: &str) -> Option<String> {
    let text = text.trim();
    (text.len() >= DIGITS && text.bytes().all(|b| b.is_ascii_hexdigit())).then(|| text[..DIGITS].to_string())
}

/// A file's text, which cargo watches where it is there.
fn read(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    println!("cargo::rerun-if-changed={}", path.display());
    Some(text)
}

/// `{ "git": { "sha1": "…" } }`
fn packaged(path: &Path) -> Option<String> {
    let text = read(path)?;
    hash(text.split("\"sha1\"").nth(1)?.split('"').nth(1)?)
}

/// The commit that is checked out, in a repository's own folder or in a further working tree of it.
fn checkout(root: &Path) -> Option<String> {
    // Of ours, not of whoever holds a copy of this crate.
    if !root.join("data/nets").is_dir() {
        return None;
    }
    let git = root.join(".git");
    let folder = match fs::read_to_string(&git) {
        Ok(text) => root.join(text.strip_prefix("gitdir:")?.trim()),
        Err(_) => git,
    };
    let common =
        fs::read_to_string(folder.join("commondir")).map_or_else(|_| folder.clone(), |of| folder.join(of.trim()));
    let head = read(&folder.join("HEAD"))?;
    let Some(name) = head.strip_prefix("ref:").map(str::trim) else { return hash(&head) };
    if let Some(commit) = read(&common.join(name)) {
        return hash(&commit);
    }
    let packed = read(&common.join("packed-refs"))?;
    packed.lines().find_map(|line| line.strip_suffix(name)?.strip_suffix(' ').and_then(hash))
}
