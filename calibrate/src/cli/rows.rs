//! What commands read: rows of datasets, without the shapes that a fit may not know, and measured runs of networks.

use super::DatasetsArg;
use crate::fit::choice::{Choices, foresee, learned};
use crate::fit::{recipe, workspace};
use crate::judge::networks;
use crate::rows::choices;
use crate::rows::dataset;
use crate::rows::prepare::{Row, prepare, prepare_alike_taking, prepare_taking};
use crate::system::memory;
use anyhow::Result;
use joulecast_model::net::case::LayerCase;
use joulecast_model::rows::measurement::Measurement;
use std::path::PathBuf;

/// Rows of several datasets, each once.
pub(super) fn read_unique(folders: &[PathBuf]) -> Result<Vec<Measurement>> {
    let mut rows = Vec::new();
    for folder in folders {
        rows.extend(dataset::read(folder)?);
    }
    Ok(dataset::unique(rows))
}

/// Rows ready for fitting, and measurements that they are made of.
pub(super) struct Rows {
    pub(super) rows: Vec<Row>,
    pub(super) measurements: Vec<Measurement>,
}

/// Reads rows, and foresees their engines.
pub(super) fn rows_for(datasets: &DatasetsArg, unseen: Unseen<'_>) -> Result<Rows> {
    let measurements = read_unique(&datasets.dataset)?;
    let rows = unseen.left(prepare(&measurements)?)?;
    let choices = choices_from(datasets, &rows)?;
    Ok(Rows { rows: foreseen(rows, &choices), measurements })
}

/// Gives the rows of datasets, anew each time: read twice they take less memory than kept beside what is made of them.
pub(super) type Read<'a> = &'a dyn Fn() -> Result<Vec<Measurement>>;

/// What is learned from the answers beside datasets, and of what they lack from measurements.
pub(super) fn choices_of(datasets: &DatasetsArg, read: Read<'_>, unseen: Unseen<'_>) -> Result<Choices> {
    match datasets.choices.is_empty() {
        true => Ok(Choices::default()),
        false => choices_from(datasets, &unseen.left(prepare_taking(read()?)?)?),
    }
}

fn choices_from(datasets: &DatasetsArg, rows: &[Row]) -> Result<Choices> {
    if datasets.choices.is_empty() {
        return Ok(Choices::default());
    }
    let mut choices = learned(&choices::read(&datasets.choices)?, rows)?;
    workspace::learn(&mut choices, rows);
    Ok(choices)
}

/// Rows ready for fitting, and the measurements of them that say what power was drawn.
pub(super) fn prepared(read: Read<'_>, unseen: Unseen<'_>, choices: &Choices) -> Result<Rows> {
    let all = read()?;
    let measurements = all.iter().filter(|m| m.power_w.is_some()).cloned().collect();
    let rows = unseen.left(prepare_taking(all)?)?;
    memory::give_back();
    Ok(Rows { rows: foreseen(rows, choices), measurements })
}

fn foreseen(mut rows: Vec<Row>, choices: &Choices) -> Vec<Row> {
    foresee(&mut rows, choices);
    rows
}

/// Shapes that a fit may not know.
#[derive(Clone, Copy)]
pub(super) enum Unseen<'a> {
    /// It may know all.
    None,
    /// Those of networks that are held out, and of further layers.
    HeldOutAnd(&'a [LayerCase]),
}

impl<'a> Unseen<'a> {
    pub(super) fn of(evaluation: bool, further: &'a [LayerCase]) -> Self {
        if evaluation { Self::HeldOutAnd(further) } else { Self::None }
    }

    fn left(self, rows: Vec<Row>) -> Result<Vec<Row>> {
        match self {
            Self::None => Ok(rows),
            Self::HeldOutAnd(further) => recipe::without_held_out_shapes(rows, further),
        }
    }
}

/// The same rows as if nothing but its data sheet were known of each GPU.
pub(super) fn alike_rows(read: Read<'_>, unseen: Unseen<'_>) -> Result<Vec<Row>> {
    let rows = unseen.left(prepare_alike_taking(read()?)?)?;
    memory::give_back();
    Ok(rows)
}

/// Measured runs of several files.
pub(super) fn read_runs(files: &[PathBuf]) -> Result<Vec<networks::Run>> {
    Ok(files.iter().map(|file| networks::read_runs(file)).collect::<Result<Vec<_>>>()?.concat())
}
