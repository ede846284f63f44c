//! Rows on their way into a dataset: an append-only file `NAME.rows`, one checksummed line per row, on disk before
//! the next trial begins. When the run ends it becomes the Parquet segment of the same name.
//!
//! A line is the first 16 hexadecimal digits of the SHA-256 of the JSON, a space, and the row's JSON. Whoever writes
//! holds a lock on the file, too, so that what is still growing is not converted.

use crate::rows::segment;
use crate::rows::writer::Writer;
use crate::system::hash::sha256_hex;
use crate::system::whole::sync_folder;
use anyhow::{Context, Result, bail};
use joulecast_model::rows::measurement::Measurement;
use std::fs::{self, File, TryLockError};
use std::io::Write as _;
use std::path::{Path, PathBuf};

/// Extension of journals.
pub const EXTENSION: &str = "rows";
/// Most segments of one campaign.
const MOST_SEGMENTS: u32 = 100_000;

/// A journal that grows.
#[derive(Debug)]
pub struct Journal {
    file: File,
    path: PathBuf,
}

impl Journal {
    /// Begins the next segment of a campaign: `CAMPAIGN-001`, `CAMPAIGN-002` ...
    ///
    /// # Errors
    /// When the folder cannot be written.
    pub fn begin(writer: &Writer, campaign: &str) -> Result<Self> {
        let folder = writer.folder();
        for number in 1..MOST_SEGMENTS {
            let name = format!("{campaign}-{number:03}");
            let path = folder.join(format!("{name}.{EXTENSION}"));
            if segment::path(folder, &name).exists() || path.with_extension("rows.damaged").exists() {
                continue;
            }
            match File::options().write(true).create_new(true).open(&path) {
                Ok(file) => {
                    file.try_lock().with_context(|| format!("{} cannot be locked", path.display()))?;
                    sync_folder(folder)?;
                    return Ok(Self { file, path });
                }
                Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(e) => return Err(e).with_context(|| path.display().to_string()),
            }
        }
        bail!("{}: campaign {campaign} has {MOST_SEGMENTS} segments", folder.display())
    }

    /// Appends the rows of one trial and waits until they are on disk.
    ///
    /// # Errors
    /// When the disk is full or fails.
    pub fn append(&mut self, rows: &[Measurement]) -> Result<()> {
        let lines = rows.iter().map(line).collect::<Result<String>>()?;
        let written = self.file.write_all(lines.as_bytes()).and_then(|()| self.file.sync_data());
        written.with_context(|| self.path.display().to_string())
    }

    /// Makes it a segment; `None` where it has no rows.
    ///
    /// # Errors
    /// When the segment cannot be written; the journal then stays.
    pub fn finish(self, writer: &Writer) -> Result<Option<PathBuf>> {
        let converted = convert(writer, &self.path)?;
        Ok((converted.rows > 0).then(|| self.path.with_extension("parquet")))
    }
}

fn line(row: &Measurement) -> Result<String> {
    let json = serde_json::to_string(row)?;
    Ok(format!("{} {json}\n", &sha256_hex(json.as_bytes())[..16]))
}

/// What a journal holds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Contents {
    /// The whole rows.
    pub rows: Vec<Measurement>,
    /// What was skipped, in words.
    pub damaged: Vec<String>,
}

/// Reads a journal. A line that is cut off or does not have its checksum is skipped and said.
///
/// # Errors
/// When the file cannot be read.
pub fn read(path: &Path) -> Result<Contents> {
    let bytes = fs::read(path).with_context(|| path.display().to_string())?;
    let mut contents = Contents::default();
    for (number, line) in bytes.split_inclusive(|b| *b == b'\n').enumerate() {
        match row(line) {
            Some(row) => contents.rows.push(row),
            None => {
                let what = if line.ends_with(b"\n") { "damaged" } else { "cut off" };
                contents.damaged.push(format!("{}: line {} is {what} and skipped", path.display(), number + 1));
            }
        }
    }
    Ok(contents)
}

fn row(line: &[u8]) -> Option<Measurement> {
    let text = std::str::from_utf8(line).ok()?.strip_suffix('\n')?;
    let (sum, json) = text.split_once(' ')?;
    if sha256_hex(json.as_bytes()).get(..16) != Some(sum) {
        return None;
    }
    serde_json::from_str(json).ok().map(Measurement::sorted)
}

/// Journals of a folder that have not become segments, in the order of their names.
///
/// # Errors
/// When the folder cannot be read.
pub fn pending(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    let mut paths: Vec<PathBuf> = entries.collect::<std::io::Result<Vec<_>>>()?.iter().map(|e| e.path()).collect();
    paths.retain(|p| p.extension().is_some_and(|e| e == EXTENSION) && !p.with_extension("parquet").exists());
    paths.sort();
    Ok(paths)
}

/// All journals of a folder, in the order of their names.
fn all(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    let mut paths: Vec<PathBuf> = entries.collect::<std::io::Result<Vec<_>>>()?.iter().map(|e| e.path()).collect();
    paths.retain(|p| p.extension().is_some_and(|e| e == EXTENSION));
    paths.sort();
    Ok(paths)
}

/// Makes segments of the journals that killed runs left behind; says what it did.
///
/// # Errors
/// When a segment cannot be written.
pub fn recover(writer: &Writer) -> Result<Vec<String>> {
    let mut said = Vec::new();
    for path in all(writer.folder())? {
        let file = File::open(&path).with_context(|| path.display().to_string())?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => continue,
            Err(TryLockError::Error(e)) => return Err(e).with_context(|| path.display().to_string()),
        }
        let converted = convert(writer, &path)?;
        said.extend(converted.damaged);
        said.push(format!("{}: {} rows of an unfinished run recovered", path.display(), converted.rows));
    }
    Ok(said)
}

/// The same for who only reads: nothing is done where there is no journal, another process writes, or this one may not.
///
/// # Errors
/// When the folder cannot be read, or a segment not be written.
pub fn recover_if_free(folder: &Path) -> Result<Vec<String>> {
    if !folder.exists() || all(folder)?.is_empty() {
        return Ok(Vec::new());
    }
    match Writer::try_open(folder) {
        Ok(Some(writer)) => recover(&writer),
        Ok(None) | Err(_) => Ok(Vec::new()),
    }
}

struct Converted {
    rows: usize,
    damaged: Vec<String>,
}

/// Writes the segment, then removes the journal; one with damaged lines is kept as `NAME.rows.damaged`.
fn convert(writer: &Writer, path: &Path) -> Result<Converted> {
    let contents = read(path)?;
    let folder = writer.folder();
    let name = path.file_stem().context("a journal has a name")?.to_string_lossy();
    let converted = segment::path(folder, &name);
    if converted.exists() {
        // The conversion was interrupted after the segment was in place.
        let there = segment::read(&converted)?.len();
        if there != contents.rows.len() {
            bail!("{} has {there} rows, {} has {}", converted.display(), path.display(), contents.rows.len());
        }
    } else if !contents.rows.is_empty() {
        segment::append(writer, &name, &contents.rows)?;
    }
    if contents.damaged.is_empty() {
        fs::remove_file(path)
    } else {
        fs::rename(path, path.with_extension("rows.damaged"))
    }
    .with_context(|| path.display().to_string())?;
    sync_folder(folder)?;
    Ok(Converted { rows: contents.rows.len(), damaged: contents.damaged })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::dataset;
    use joulecast_model::base::precision::Phase;
    use joulecast_model::base::shape::Shape;
    use joulecast_model::net::case::LayerCase;
    use joulecast_model::net::layer::{Layer, Linear};

    fn rows() -> Vec<Measurement> {
        let case = |features| LayerCase {
            inputs: vec![Shape::new(&[64]).expect("shape")],
            layer: Layer::Linear(Linear { features, bias: true }),
        };
        (1..6u64)
            .map(|i| Measurement::imported("s", &i.to_string(), "h200", case(i), Phase::Forward, i, 1e-5 / i as f64))
            .collect()
    }

    fn written(writer: &Writer) -> Result<PathBuf> {
        let mut journal = Journal::begin(writer, "c")?;
        for row in rows() {
            journal.append(std::slice::from_ref(&row))?;
        }
        Ok(journal.path.clone())
    }

    #[test]
    fn a_finished_journal_becomes_a_segment() -> Result<()> {
        let folder = tempfile::tempdir()?;
        let writer = Writer::open(folder.path())?;
        let mut journal = Journal::begin(&writer, "c")?;
        journal.append(&rows())?;
        assert_eq!(dataset::read(folder.path())?, rows(), "readable while it grows");
        for said in [recover(&writer)?, recover_if_free(folder.path())?] {
            assert_eq!(said, Vec::<String>::new(), "not touched while it grows");
        }
        let segment = journal.finish(&writer)?.expect("rows");
        assert!(segment.ends_with("c-001.parquet"));
        assert_eq!(dataset::read(folder.path())?, rows());
        assert!(pending(folder.path())?.is_empty());
        let empty = Journal::begin(&writer, "c")?;
        assert!(empty.path.ends_with("c-002.rows"));
        assert_eq!(empty.finish(&writer)?, None);
        Ok(())
    }

    #[test]
    fn a_cut_journal_keeps_its_whole_rows_wherever_it_is_cut() -> Result<()> {
        let folder = tempfile::tempdir()?;
        let writer = Writer::open(folder.path())?;
        let path = written(&writer)?;
        let bytes = fs::read(&path)?;
        for cut in (1..bytes.len()).step_by(97) {
            fs::write(&path, &bytes[..cut])?;
            let whole = bytes[..cut].iter().filter(|b| **b == b'\n').count();
            let contents = read(&path)?;
            assert_eq!(contents.rows, rows()[..whole]);
            assert_eq!(contents.damaged.len(), usize::from(bytes[cut - 1] != b'\n'));
        }
        Ok(())
    }

    #[test]
    fn damage_in_the_middle_is_said_and_the_journal_kept() -> Result<()> {
        let folder = tempfile::tempdir()?;
        let writer = Writer::open(folder.path())?;
        let path = written(&writer)?;
        let mut bytes = fs::read(&path)?;
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        fs::write(&path, &bytes)?;
        assert_eq!(recover_if_free(folder.path())?, Vec::<String>::new(), "left to who writes");
        drop(writer);
        let said = recover_if_free(folder.path())?.join("\n");
        assert!(said.contains("c-001.rows: line 3 is damaged") && said.contains("4 rows"), "{said}");
        assert_eq!(dataset::read(folder.path())?.len(), 4);
        assert!(folder.path().join("c-001.rows.damaged").exists());
        let writer = Writer::open(folder.path())?;
        assert!(Journal::begin(&writer, "c")?.path.ends_with("c-002.rows"));
        Ok(())
    }

    #[test]
    fn an_interrupted_conversion_is_completed() -> Result<()> {
        let folder = tempfile::tempdir()?;
        let writer = Writer::open(folder.path())?;
        let path = written(&writer)?;
        segment::append(&writer, "c-001", &rows())?;
        assert_eq!(dataset::read(folder.path())?.len(), 5, "not twice");
        recover(&writer)?;
        assert!(!path.exists());
        assert_eq!(dataset::read(folder.path())?.len(), 5);
        Ok(())
    }
}
