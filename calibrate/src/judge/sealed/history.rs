//! What the repository's history bears out of a sealed round: that the predictions were committed before anything was measured.

use super::compare::{Board, Outcome};
use super::seal::SIDECAR;
use crate::system::git::{self, Committed};
use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use std::fs;
use std::path::Path;

/// File of a round whose first commits were lost.
pub const LOST: &str = "lost.toml";

const SCHEMA: &str = "lost/1";

/// Boards whose rows had been measured when the commits of a round were lost, so that no history shows what came first.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lost {
    schema: String,
    /// Names of the boards.
    pub boards: Vec<String>,
    /// How the commits were lost, a sentence.
    pub why: String,
}

impl Lost {
    fn read(path: &Path) -> Result<Option<Self>> {
        if !path.exists() {
            return Ok(None);
        }
        let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
        let lost: Self = toml::from_str(&text)
            .map_err(|e| anyhow::anyhow!(e.message().to_string()))
            .with_context(|| path.display().to_string())?;
        ensure!(lost.schema == SCHEMA, "{}: schema is \"{}\", expected \"{SCHEMA}\"", path.display(), lost.schema);
        Ok(Some(lost))
    }

    fn names(&self, board: &Board) -> bool {
        self.boards.contains(&board.name)
    }
}

/// What history says of a seal.
#[derive(Clone, Debug)]
pub struct History {
    /// The commit that holds it.
    pub committed: Committed,
    /// What history cannot show, where commits were lost.
    pub lost: Option<Lost>,
}

/// What history says of a seal.
///
/// # Errors
/// When its files are in no commit as they are, or something was measured before they were; when the commit that it was made at
/// is not one that the present one rests on. A round's `lost.toml` excuses the last, and for the boards that it names the rows
/// that came before; it is refused where nothing needs it.
pub fn history(folder: &Path, outcome: &Outcome) -> Result<History> {
    let seal = &outcome.verified.seal;
    let lost = Lost::read(&folder.join(LOST))?;
    let rests = git::is_ancestor(folder, &seal.commit)?;
    ensure!(rests || lost.is_some(), "the seal was made at {}, on which this history does not rest", seal.commit);
    ensure!(!rests || lost.is_none(), "{LOST}: this history rests on {}, the commit of the seal", seal.commit);
    let round = folder.with_extension("toml");
    let names = [SIDECAR.to_string()].into_iter().chain(seal.predictions.keys().cloned()).map(|name| folder.join(name));
    let mut last: Option<Committed> = None;
    for path in names.chain([round]) {
        let shown = path.display();
        let added = git::added(&path)?.with_context(|| format!("{shown} is in no commit as it is"))?;
        last = last.filter(|other| other.utc >= added.utc).or(Some(added));
    }
    let committed = last.context("a seal of no files")?;
    let measured = || outcome.boards.iter().filter(|board| !board.visit.first.is_empty());
    for board in measured().filter(|board| !lost.as_ref().is_some_and(|lost| lost.names(board))) {
        let first = &board.visit.first;
        ensure!(
            *first > committed.utc,
            "{}: measured from {first} on, sealed files were committed at {}",
            board.name,
            committed.utc
        );
    }
    for name in lost.iter().flat_map(|lost| &lost.boards) {
        ensure!(measured().any(|board| board.name == *name), "{LOST}: {name} was not measured");
    }
    Ok(History { committed, lost })
}
