//! Rows that gathered as CSV by column, for files that are whole or nothing: rows gather first, since a CSV file can be
//! gone on with.

use crate::ask::COLUMNS;
use anyhow::{Context, Result};
use joulecast_reports::whole;
use std::fs::File;
use std::path::Path;

/// The key under which a file says what its rows were made from.
pub const IDENTITY: &str = "joulecast.sweep";
/// Columns of text, whole numbers and truth values; all others are numbers.
const TEXT: [&str; 10] = [
    "network",
    "gpu",
    "precision",
    "mode",
    "framework",
    "launch",
    "conv_algorithm",
    "time_tier",
    "power_tier",
    "error",
];
const WHOLE: [&str; 4] = ["batch", "sequence", "ops", "memory_bytes"];
const TRUTH: [&str; 2] = ["fits_in_memory", "launch_bound"];
/// Rows of a group.
pub const GROUP: usize = 1 << 16;

/// What a column has of every row: a value, or none where its cell is empty.
pub enum Column {
    Text(Vec<Option<String>>),
    Whole(Vec<Option<i64>>),
    Number(Vec<Option<f64>>),
    Truth(Vec<Option<bool>>),
}

impl Column {
    /// Without rows.
    pub fn empty(name: &str) -> Self {
        if TEXT.contains(&name) {
            Self::Text(Vec::new())
        } else if WHOLE.contains(&name) {
            Self::Whole(Vec::new())
        } else if TRUTH.contains(&name) {
            Self::Truth(Vec::new())
        } else {
            Self::Number(Vec::new())
        }
    }

    fn push(&mut self, cell: &str) -> Result<()> {
        let there = (!cell.is_empty()).then_some(cell);
        match self {
            Self::Text(values) => values.push(there.map(str::to_string)),
            Self::Whole(values) => values.push(there.map(str::parse).transpose()?),
            Self::Number(values) => values.push(there.map(str::parse).transpose()?),
            Self::Truth(values) => values.push(there.map(str::parse).transpose()?),
        }
        Ok(())
    }
}

/// A group of rows, in the order of [`COLUMNS`].
pub type Columns = [Column; COLUMNS.len()];

fn group(records: impl Iterator<Item = (usize, csv::Result<csv::StringRecord>)>) -> Result<Columns> {
    let mut columns = COLUMNS.map(Column::empty);
    for (i, record) in records {
        for (column, cell) in columns.iter_mut().zip(&record?) {
            column.push(cell).with_context(|| format!("row {}: \"{cell}\"", i + 1))?;
        }
    }
    Ok(columns)
}

/// Rows of a CSV file in groups of at most so many, as they are read.
fn groups(rows: &Path, most: usize) -> Result<impl Iterator<Item = Result<Columns>>> {
    let mut records = csv::Reader::from_path(rows)?.into_records().enumerate().peekable();
    Ok(std::iter::from_fn(move || {
        records.peek()?;
        Some(group(records.by_ref().take(most)))
    }))
}

/// Makes a file of rows that are in a CSV file, under another name first, so that it is whole or not there. `write` is
/// handed the rows in groups.
pub fn rewrite(
    rows: &Path,
    output: &Path,
    write: impl FnOnce(File, &mut dyn Iterator<Item = Result<Columns>>) -> Result<()>,
) -> Result<()> {
    let unnamed = whole::begin(output)?;
    let write = || -> Result<()> {
        write(unnamed.as_file().try_clone()?, &mut groups(rows, GROUP)?)?;
        Ok(unnamed.as_file().sync_all()?)
    };
    write().with_context(|| output.display().to_string())?;
    Ok(whole::persist(unnamed, output)?)
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// As many rows as a CSV file has them, a batch each; most of their cells are empty.
    pub fn csv(rows: usize) -> String {
        let line = |batch: usize| {
            let cell = |name: &&str| match *name {
                "network" => "\"a,b\"".to_string(),
                "batch" => batch.to_string(),
                "power_w" => "0.1".into(),
                "fits_in_memory" => "true".into(),
                _ => String::new(),
            };
            COLUMNS.iter().map(cell).collect::<Vec<_>>().join(",") + "\n"
        };
        COLUMNS.join(",") + "\n" + &(1..=rows).map(line).collect::<String>()
    }

    #[test]
    fn rows_come_in_groups_and_empty_cells_are_none() {
        let folder = tempfile::tempdir().expect("a folder");
        let rows = folder.path().join("rows.csv");
        for (count, sizes) in [(0, &[][..]), (2, &[2]), (5, &[2, 2, 1])] {
            std::fs::write(&rows, csv(count)).expect("written");
            let groups: Result<Vec<Columns>> = groups(&rows, 2).expect("rows").collect();
            let batches: Vec<Vec<Option<i64>>> = groups
                .expect("columns")
                .into_iter()
                .map(|[network, _, batch, .., error]| match (network, batch, error) {
                    (Column::Text(networks), Column::Whole(batches), Column::Text(errors)) => {
                        assert!(networks.iter().all(|name| name.as_deref() == Some("a,b")));
                        assert!(errors.len() == batches.len() && errors.iter().all(Option::is_none));
                        batches
                    }
                    _ => panic!("columns of other kinds"),
                })
                .collect();
            assert_eq!(batches.iter().map(Vec::len).collect::<Vec<_>>(), sizes);
            assert!(batches.into_iter().flatten().eq((1..=count as i64).map(Some)));
        }
    }

    #[test]
    fn a_cell_that_is_no_number_is_named_and_no_file_is_left() {
        let folder = tempfile::tempdir().expect("a folder");
        let (rows, output) = (folder.path().join("rows.csv"), folder.path().join("rows.other"));
        std::fs::write(&rows, csv(2).replace(",2,", ",two,")).expect("written");
        let read = |_, groups: &mut dyn Iterator<Item = Result<Columns>>| {
            for group in groups {
                group?;
            }
            Ok(())
        };
        let error = format!("{:#}", rewrite(&rows, &output, read).expect_err("no number"));
        assert!(error.contains("rows.other: row 2: \"two\""), "{error}");
        assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 1);
    }
}
