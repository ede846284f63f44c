//! The folder of `calibrate all`, and its record `all.json` of what was made there from which rows: a step whose files are
//! there and of these rows is not done again, and a file that somebody changed is not written over unasked.

use crate::system::hash::sha256_hex;
use crate::system::whole;
use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Name of the record.
pub const RECORD: &str = "all.json";
const SCHEMA: &str = "all/1";

/// What was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measured {
    /// Plan that is measured to its end.
    pub plan_id: String,
    /// Hash of the rows then.
    pub rows: String,
}

/// A step that is done.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Made {
    /// Hash of what it was made from.
    of: String,
    /// SHA-256 of its files, by path within the folder.
    files: BTreeMap<String, String>,
    /// How long it took.
    seconds: f64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Record {
    schema: String,
    /// What the rows are of.
    gpu: String,
    /// Their source: `own`, or `fake`.
    source: String,
    measured: Option<Measured>,
    steps: BTreeMap<String, Made>,
    /// SHA-256 of what was about to be written, so that a call that was killed meanwhile knows its own files.
    pending: BTreeSet<String>,
}

/// The folder, which this process alone writes.
pub struct Folder {
    path: PathBuf,
    force: bool,
    record: Option<Record>,
}

impl Folder {
    /// Reads what was done.
    ///
    /// # Errors
    /// When the record cannot be read.
    pub fn open(path: &Path, force: bool) -> Result<Self> {
        let file = path.join(RECORD);
        let record = if file.exists() {
            let name = || format!("{} (without it all is made anew but the rows)", file.display());
            let text = fs::read_to_string(&file).with_context(name)?;
            let record: Record = serde_json::from_str(&text).with_context(name)?;
            ensure!(record.schema == SCHEMA, "{}: schema is {}, expected {SCHEMA}", file.display(), record.schema);
            Some(record)
        } else {
            None
        };
        Ok(Self { path: path.to_path_buf(), force, record })
    }

    /// Path of what is in it.
    pub fn join(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// The GPU and the source of its rows, where something was measured.
    pub fn of(&self) -> Option<(&str, &str)> {
        self.record.as_ref().map(|r| (r.gpu.as_str(), r.source.as_str()))
    }

    /// What was measured to its end.
    pub fn measured(&self) -> Option<&Measured> {
        self.record.as_ref()?.measured.as_ref()
    }

    /// Says whose rows it holds, and, where that is so, that a plan is measured.
    ///
    /// # Errors
    /// When the record cannot be written.
    pub fn set_measured(&mut self, gpu: &str, source: &str, measured: Option<Measured>) -> Result<()> {
        let (steps, pending) = self.record.take().map(|r| (r.steps, r.pending)).unwrap_or_default();
        let (schema, gpu, source) = (SCHEMA.to_string(), gpu.to_string(), source.to_string());
        self.record = Some(Record { schema, gpu, source, measured, steps, pending });
        self.save()
    }

    /// How long a step took; `None` where it was never done.
    pub fn took(&self, step: &str) -> Option<Duration> {
        Duration::try_from_secs_f64(self.record.as_ref()?.steps.get(step)?.seconds).ok()
    }

    /// Whether a step was made of this, and its files are there as they were written.
    pub fn is_done(&self, step: &str, of: &str) -> bool {
        let made = self.record.as_ref().and_then(|r| r.steps.get(step)).filter(|made| made.of == of);
        made.is_some_and(|made| made.files.iter().all(|(name, hash)| self.hash(name).as_ref() == Some(hash)))
    }

    fn hash(&self, name: &str) -> Option<String> {
        fs::read(self.join(name)).ok().map(|bytes| sha256_hex(&bytes))
    }

    /// Makes sure that what a step is about to write loses nothing of somebody else's.
    ///
    /// # Errors
    /// When one of the files of the step was changed since it was written.
    pub fn check_free(&self, step: &str) -> Result<()> {
        let Some(record) = self.record.as_ref().filter(|_| !self.force) else { return Ok(()) };
        let names = record.steps.get(step).into_iter().flat_map(|made| made.files.keys());
        names.into_iter().try_for_each(|name| self.check_own(record, name))
    }

    fn check_own(&self, record: &Record, name: &str) -> Result<()> {
        let Some(hash) = self.hash(name) else { return Ok(()) };
        let made = record.steps.values().any(|made| made.files.get(name) == Some(&hash));
        if !(made || record.pending.contains(&hash)) {
            bail!(
                "{} was changed since it was written, or by others: --force writes over it",
                self.join(name).display()
            );
        }
        Ok(())
    }

    /// Writes the files of a step, of which those that are no longer made go.
    ///
    /// # Errors
    /// When one is there that is not of an earlier call, or cannot be written.
    pub fn put(&mut self, step: &str, of: &str, files: Vec<(String, Vec<u8>)>, took: Duration) -> Result<()> {
        let hashes: BTreeMap<String, String> =
            files.iter().map(|(name, bytes)| (name.clone(), sha256_hex(bytes))).collect();
        let record = self.record.as_mut().context("nothing was measured")?;
        record.pending.extend(hashes.values().cloned());
        self.save()?;
        let record = self.record.as_ref().context("nothing was measured")?;
        if !self.force {
            files.iter().try_for_each(|(name, _)| self.check_own(record, name))?;
        }
        for (name, bytes) in &files {
            let path = self.join(name);
            let folder = path.parent().unwrap_or(&self.path);
            fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
            whole::write(&path, bytes)?;
        }
        let before = record.steps.get(step).map(|made| made.files.clone()).unwrap_or_default();
        for (name, hash) in before.iter().filter(|(name, _)| !hashes.contains_key(*name)) {
            if self.hash(name).as_ref() == Some(hash) {
                fs::remove_file(self.join(name)).with_context(|| self.join(name).display().to_string())?;
            }
        }
        let made = Made { of: of.to_string(), files: hashes, seconds: took.as_secs_f64() };
        if let Some(record) = &mut self.record {
            record.steps.insert(step.to_string(), made);
            record.pending.clear();
        }
        self.save()
    }

    fn save(&self) -> Result<()> {
        let text = serde_json::to_string_pretty(&self.record)? + "\n";
        Ok(whole::write(&self.join(RECORD), text)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(texts: &[(&str, &str)]) -> Vec<(String, Vec<u8>)> {
        texts.iter().map(|(name, text)| (name.to_string(), text.as_bytes().to_vec())).collect()
    }

    #[test]
    fn a_step_is_done_while_its_files_are_there_and_of_the_same_rows() -> Result<()> {
        let place = tempfile::tempdir()?;
        let mut folder = Folder::open(place.path(), false)?;
        folder.set_measured("h200", "fake", None)?;
        assert!(!folder.is_done("fit", "a"));
        folder.put("fit", "a", files(&[("fits/x", "1"), ("fits/y", "2")]), Duration::from_secs(3))?;
        let mut folder = Folder::open(place.path(), false)?;
        assert_eq!((folder.of(), folder.took("fit")), (Some(("h200", "fake")), Some(Duration::from_secs(3))));
        assert!(folder.is_done("fit", "a") && !folder.is_done("fit", "b"));
        fs::remove_file(folder.join("fits/y"))?;
        assert!(!folder.is_done("fit", "a"));
        folder.put("fit", "b", files(&[("fits/y", "3")]), Duration::ZERO)?;
        assert!(folder.is_done("fit", "b") && !folder.join("fits/x").exists(), "what is no longer made goes");
        Ok(())
    }

    #[test]
    fn what_others_changed_is_kept_unless_forced() -> Result<()> {
        let place = tempfile::tempdir()?;
        let mut folder = Folder::open(place.path(), false)?;
        folder.set_measured("h200", "own", None)?;
        folder.put("fit", "a", files(&[("x", "1")]), Duration::ZERO)?;
        fs::write(folder.join("x"), "edited")?;
        let told = folder.check_free("fit").err().map(|e| e.to_string()).unwrap_or_default();
        assert!(told.contains("x was changed") && told.contains("--force"), "{told}");
        assert!(folder.put("fit", "b", files(&[("x", "2")]), Duration::ZERO).is_err());
        assert_eq!(fs::read_to_string(folder.join("x"))?, "edited");
        let mut forced = Folder::open(place.path(), true)?;
        forced.put("fit", "b", files(&[("x", "2")]), Duration::ZERO)?;
        assert_eq!(fs::read_to_string(forced.join("x"))?, "2");
        Ok(())
    }

    /// Killed after some of its files were written and before that was recorded.
    #[test]
    fn a_call_that_was_killed_knows_its_own_files() -> Result<()> {
        let place = tempfile::tempdir()?;
        let mut folder = Folder::open(place.path(), false)?;
        folder.set_measured("h200", "own", None)?;
        folder.put("fit", "a", files(&[("x", "1"), ("y", "1")]), Duration::ZERO)?;
        if let Some(record) = &mut folder.record {
            record.pending.insert(sha256_hex(b"2"));
        }
        folder.save()?;
        fs::write(folder.join("x"), "2")?;
        let mut next = Folder::open(place.path(), false)?;
        assert!(!next.is_done("fit", "b"));
        next.put("fit", "b", files(&[("x", "2"), ("y", "2")]), Duration::ZERO)?;
        assert!(next.is_done("fit", "b"));
        Ok(())
    }

    #[test]
    fn a_record_that_cannot_be_read_is_named() -> Result<()> {
        let place = tempfile::tempdir()?;
        fs::write(place.path().join(RECORD), "{")?;
        let told = Folder::open(place.path(), false).err().map(|e| format!("{e:#}")).unwrap_or_default();
        assert!(told.contains("all.json"), "{told}");
        Ok(())
    }
}
