//! What the repository's history says, asked of `git`.

use anyhow::{Context, Result, bail};
use std::path::Path;
use std::process::Command;

/// The standard output of a command of `git` in a folder, without its last line's end.
fn git(folder: &Path, arguments: &[&str]) -> Result<String> {
    let output = Command::new("git").arg("-C").arg(folder).args(arguments).output().context("git cannot be run")?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("git {}: {}", arguments.join(" "), said.lines().next_back().unwrap_or("failed"));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_string())
}

/// The commit that is checked out where a folder lies.
///
/// # Errors
/// When the folder is in no repository.
pub fn head(folder: &Path) -> Result<String> {
    git(folder, &["rev-parse", "HEAD"])
}

/// Files that differ from that commit, those that are not ignored and not in it among them.
///
/// # Errors
/// As [`head`].
pub fn changes(folder: &Path) -> Result<Vec<String>> {
    Ok(git(folder, &["status", "--porcelain"])?.lines().map(str::to_string).collect())
}

/// The uppermost folder of the repository that a folder lies in.
///
/// # Errors
/// As [`head`].
pub fn root(folder: &Path) -> Result<String> {
    git(folder, &["rev-parse", "--show-toplevel"])
}

/// Whether a commit is one that the present one rests on.
///
/// # Errors
/// As [`head`]; a commit that is not there is none.
pub fn is_ancestor(folder: &Path, commit: &str) -> Result<bool> {
    head(folder)?;
    Ok(git(folder, &["merge-base", "--is-ancestor", commit, "HEAD"]).is_ok())
}

/// A commit, and when it was made, in UTC.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Committed {
    /// Its hash.
    pub commit: String,
    /// As [`crate::system::utc`] writes moments.
    pub utc: String,
}

/// The commit that added a file with the content that it has; `None` where the content is in no commit yet.
///
/// # Errors
/// As [`head`].
pub fn added(path: &Path) -> Result<Option<Committed>> {
    let folder = super::whole::folder(path);
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    if !git(folder, &["status", "--porcelain", "--", &name])?.is_empty() {
        return Ok(None);
    }
    let said = git(folder, &["log", "-1", "--format=%H %ct", "--", &name])?;
    let Some((commit, seconds)) = said.split_once(' ') else { return Ok(None) };
    let seconds = seconds.parse().with_context(|| format!("git log: {said}"))?;
    Ok(Some(Committed { commit: commit.to_string(), utc: super::utc::text(seconds) }))
}
