//! Datasets of measurement rows: folders of append-only segments ([`crate::rows::segment`]), to which one process at a
//! time adds ([`crate::rows::writer::Writer`]). Rows of a run that has not ended are in a journal ([`crate::rows::journal`]).

use crate::rows::{journal, segment};
use anyhow::{Context, Result};
use joulecast_model::rows::measurement::{Measurement, Regime};
use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

/// There are no rows to work on: an exit status of its own, since nothing is wrong with the program or what was typed.
#[derive(Debug)]
pub enum NoRows {
    /// The folder is missing or holds no dataset.
    Dataset(PathBuf),
    /// The rows that there are were all left out by what was asked for, in words.
    Selection(String),
}

impl std::fmt::Display for NoRows {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Dataset(folder) => write!(
                f,
                "no dataset at {}: `calibrate run` measures one; for published rows clone the repositories that data/published/sources.toml names and import their files (README.md, Calibrations)",
                folder.display()
            ),
            Self::Selection(what) => write!(f, "no {what}"),
        }
    }
}

impl std::error::Error for NoRows {}

/// Reads all segments of a dataset, in the order of their names, then the whole rows of journals.
///
/// # Errors
/// [`NoRows`] when the folder is missing or has no segment; else when a segment is damaged: the message names it.
pub fn read(folder: &Path) -> Result<Vec<Measurement>> {
    if !folder.exists() {
        return Err(NoRows::Dataset(folder.to_path_buf()).into());
    }
    // Journals first: one that becomes a segment meanwhile is then in both lists, not in none.
    let mut journals = journal::pending(folder)?;
    let entries = fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    let mut paths: Vec<PathBuf> = entries.collect::<std::io::Result<Vec<_>>>()?.iter().map(|e| e.path()).collect();
    paths.retain(|p| p.extension().is_some_and(|e| e == "parquet"));
    paths.sort();
    journals.retain(|journal| !paths.contains(&journal.with_extension("parquet")));
    if paths.is_empty() && journals.is_empty() {
        return Err(NoRows::Dataset(folder.to_path_buf()).into());
    }
    let mut rows = Vec::new();
    for path in paths {
        rows.extend(segment::read(&path)?);
    }
    for path in journals {
        // A run that ends meanwhile makes a segment of its journal.
        let after = path.with_extension("parquet");
        let read = journal::read(&path).map(|contents| contents.rows);
        rows.extend(if read.is_err() && after.exists() { segment::read(&after) } else { read }?);
    }
    Ok(rows)
}

/// Rows without those that are there twice, the first of each kept: a published file may have been imported in two
/// forms, as its authors left it and as a table that rounds times to six digits. So published times count as equal
/// when their six leading digits are; of our own measurements no digit was dropped.
pub fn unique(mut rows: Vec<Measurement>) -> Vec<Measurement> {
    let mut seen = HashSet::new();
    rows.retain(|r| {
        let time = if r.regime == Regime::Import { leading_digits(r.time_s) } else { r.time_s };
        let layer = (r.gpu.clone(), r.case.fold_key(), r.batch, r.phase, r.precision, r.layout);
        seen.insert((layer, time.to_bits()))
    });
    rows
}

/// A number as it reads with six significant digits.
fn leading_digits(value: f64) -> f64 {
    format!("{value:.5e}").parse().unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::segment::append;
    use crate::rows::segment::tests::rows;
    use crate::rows::writer::Writer;

    #[test]
    fn a_time_printed_with_fewer_digits_is_the_same_row() {
        let with_time = |time_s| Measurement { time_s, ..rows().swap_remove(0) };
        // Two lines of NeuSight's V100 file as published and as tabled, and a true repeat that differs in the sixth digit.
        let published = [0.000_880_981_326_103_210_5, 4.781_866_570_313_772e-5, 4.781_88e-5].map(with_time);
        let tabled = [0.000_880_981, 4.781_87e-5].map(with_time);
        let all = [&published[..], &tabled[..]].concat();
        assert_eq!(unique(all.clone()), published, "the first of each stays");
        let own: Vec<Measurement> = all.into_iter().map(|r| Measurement { regime: Regime::Burst, ..r }).collect();
        assert_eq!(unique(own.clone()), own, "our own times are compared to the last digit");
        let other = Measurement { batch: 7, ..published[0].clone() };
        assert_eq!(unique(vec![published[0].clone(), other.clone()]).len(), 2);
    }

    #[test]
    fn one_writes_and_the_next_is_told_while_others_read() -> Result<()> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("rows");
        let writer = Writer::open(&path)?;
        append(&writer, "one", &rows())?;
        let told = Writer::open(&path).err().map(|e| e.to_string()).unwrap_or_default();
        assert!(told.contains("rows: another process is writing there"), "{told}");
        assert_eq!(read(&path)?, rows());
        drop(writer);
        drop(Writer::open(&path)?);
        let names: Vec<_> = fs::read_dir(&path)?.flatten().map(|e| e.file_name()).collect();
        assert_eq!(names.len(), 2, "a segment and its checksum: {names:?}");
        drop(Writer::open(&folder.path().join("other"))?);
        assert!(!folder.path().join("other").exists(), "where nothing was written, nothing is left");
        Ok(())
    }

    #[test]
    fn what_killed_writers_left_goes_with_the_next_and_nothing_else() -> Result<()> {
        let folder = tempfile::tempdir()?;
        let stray = folder.path().join(".tmpAb3dEf");
        let others =
            [".tmp", ".tmpAb3dEfg", ".tmpAb-dEf", "xtmpAb3dEf", ".tmpAb3dE.toml"].map(|n| folder.path().join(n));
        fs::write(&stray, "half a segment")?;
        for other in &others {
            fs::write(other, "x")?;
        }
        fs::create_dir(folder.path().join(".tmpFolder"))?;
        let _ = read(folder.path());
        assert!(stray.exists(), "readers remove nothing");
        drop(Writer::open(folder.path())?);
        assert!(!stray.exists() && folder.path().join(".tmpFolder").exists());
        assert!(others.iter().all(|other| other.exists()));
        Ok(())
    }
}
