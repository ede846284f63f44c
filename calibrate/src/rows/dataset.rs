//! Datasets of measurement rows: `measurement/1` in Parquet.
//!
//! A dataset is a folder of append-only segments. A segment is written whole under another name and then renamed,
//! so that a reader never sees half of one; its SHA-256 stands beside it (`NAME.parquet.sha256`), and readers compare.
//! Rows of a run that has not ended are in a journal (see [`crate::rows::journal`]). One process at a time writes: [`Writer`].

use crate::rows::journal;
use crate::system::hash::sha256_hex;
use crate::system::lock::{Lock, held};
use crate::system::quiet::quietly;
use crate::system::{memory, whole};
use anyhow::{Context, Result, bail};
use joulecast_model::base::precision::{Phase, Precision};
use joulecast_model::net::case::LayerCase;
use joulecast_model::rows::measurement::{Measurement, Regime};
use polars::prelude::{Column, DataFrame, ParquetReader, ParquetWriter, SerReader, StringChunked};
use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{Cursor, Error, ErrorKind};
use std::path::{Path, PathBuf};

/// Column types, one accessor pair each.
macro_rules! columns {
    (text: $($text:ident),*; optional_text: $($otext:ident),*; optional_number: $($number:ident),*; optional_count: $($count:ident),* $(,)?) => {
        fn plain_columns(rows: &[Measurement]) -> Vec<Column> {
            vec![
                $(text_column(stringify!($text), rows, |r| Some(r.$text.clone())),)*
                $(text_column(stringify!($otext), rows, |r| r.$otext.clone()),)*
                $(Column::new(stringify!($number).into(), rows.iter().map(|r| r.$number).collect::<Vec<Option<f64>>>()),)*
                $(Column::new(stringify!($count).into(), rows.iter().map(|r| r.$count).collect::<Vec<Option<u64>>>()),)*
            ]
        }

        fn read_plain(frame: &DataFrame, rows: &mut [Measurement]) -> Result<()> {
            $({ let column = text(frame, stringify!($text))?;
                for (i, row) in rows.iter_mut().enumerate() {
                    row.$text = column.get(i).with_context(|| missing(stringify!($text), i))?.to_string();
                } })*
            // Nullable columns may be added to the format: a segment from before has none.
            $(if has(frame, stringify!($otext)) { let column = text(frame, stringify!($otext))?;
                for (i, row) in rows.iter_mut().enumerate() { row.$otext = column.get(i).map(str::to_string); } })*
            $(if has(frame, stringify!($number)) { let column = frame.column(stringify!($number))?.f64()?;
                for (i, row) in rows.iter_mut().enumerate() { row.$number = column.get(i); } })*
            $(if has(frame, stringify!($count)) { let column = frame.column(stringify!($count))?.u64()?;
                for (i, row) in rows.iter_mut().enumerate() { row.$count = column.get(i); } })*
            Ok(())
        }
    };
}

columns!(
    text: row_id, trial_id, campaign, gpu, source, method;
    optional_text: plan_id, board_uuid, form_factor, driver, cuda, cudnn, cublas, licence, mode, math, layout, algo, cache,
        reasons, energy_method;
    optional_number: time_p10_s, time_p90_s, power_w, energy_j, window_s, power_integral_w, power_limit_w, core_mhz_mean, core_mhz_min, core_mhz_requested, mem_mhz,
        temp_start_c, temp_end_c, throttle_s, host_s;
    optional_count: workspace_bytes, n,
);

fn missing(column: &str, row: usize) -> String {
    format!("column {column} is empty in row {row}")
}

fn text_column(name: &str, rows: &[Measurement], value: impl Fn(&Measurement) -> Option<String>) -> Column {
    Column::new(name.into(), rows.iter().map(value).collect::<Vec<Option<String>>>())
}

fn has(frame: &DataFrame, name: &str) -> bool {
    frame.get_column_index(name).is_some()
}

fn text<'a>(frame: &'a DataFrame, name: &str) -> Result<&'a StringChunked> {
    Ok(frame.column(name)?.str()?)
}

/// Rows as a table with one column per field.
fn to_frame(rows: &[Measurement]) -> Result<DataFrame> {
    let cases = rows.iter().map(|r| r.case.to_json()).collect::<Result<Vec<_>, _>>()?;
    let mut columns = plain_columns(rows);
    columns.push(Column::new("schema".into(), vec!["measurement/1"; rows.len()]));
    columns.push(Column::new("kind".into(), rows.iter().map(|r| r.case.layer.kind()).collect::<Vec<_>>()));
    columns.push(Column::new("params_json".into(), cases));
    columns.push(text_column("phase", rows, |r| Some(r.phase.name().into())));
    columns.push(text_column("precision", rows, |r| Some(r.precision.name().into())));
    columns.push(text_column("regime", rows, |r| Some(r.regime.name().into())));
    columns.push(text_column("flags", rows, |r| (!r.flags.is_empty()).then(|| r.flags.join(";"))));
    columns.push(Column::new("repeat".into(), rows.iter().map(|r| r.repeat).collect::<Vec<_>>()));
    columns.push(Column::new("batch".into(), rows.iter().map(|r| r.batch).collect::<Vec<_>>()));
    columns.push(Column::new("time_s".into(), rows.iter().map(|r| r.time_s).collect::<Vec<_>>()));
    Ok(DataFrame::new(rows.len(), columns)?)
}

fn from_frame(frame: &DataFrame) -> Result<Vec<Measurement>> {
    let schema = text(frame, "schema")?;
    if let Some(other) = schema.iter().flatten().find(|s| *s != "measurement/1") {
        bail!("schema is {other}, expected measurement/1");
    }
    let (cases, phases, precisions) = (text(frame, "params_json")?, text(frame, "phase")?, text(frame, "precision")?);
    let (regimes, flags) = (text(frame, "regime")?, text(frame, "flags")?);
    let repeats = frame.column("repeat")?.u32()?;
    let (batches, times) = (frame.column("batch")?.u64()?, frame.column("time_s")?.f64()?);
    let mut rows = (0..frame.height())
        .map(|i| {
            let cell = |column: &StringChunked, name: &str| -> Result<String> {
                Ok(column.get(i).with_context(|| missing(name, i))?.to_string())
            };
            let case = LayerCase::from_json(&cell(cases, "params_json")?).with_context(|| format!("row {i}"))?;
            let phase = cell(phases, "phase")?;
            let precision = cell(precisions, "precision")?;
            let regime = cell(regimes, "regime")?;
            let batch = batches.get(i).with_context(|| missing("batch", i))?;
            let time = times.get(i).with_context(|| missing("time_s", i))?;
            let phase = Phase::from_name(&phase).with_context(|| format!("row {i}: phase {phase}"))?;
            let mut row = Measurement::imported("", "", "", case, phase, batch, time);
            row.precision =
                Precision::from_name(&precision).with_context(|| format!("row {i}: precision {precision}"))?;
            row.regime = Regime::from_name(&regime).with_context(|| format!("row {i}: regime {regime}"))?;
            row.repeat = repeats.get(i).with_context(|| missing("repeat", i))?;
            row.flags = flags.get(i).map(|f| f.split(';').map(str::to_string).collect()).unwrap_or_default();
            Ok(row)
        })
        .collect::<Result<Vec<_>>>()?;
    read_plain(frame, &mut rows)?;
    Ok(rows)
}

/// Path of a dataset's segment.
pub fn segment(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}.parquet"))
}

/// Path of the checksum beside a segment.
fn sum_path(segment: &Path) -> PathBuf {
    let mut name = segment.as_os_str().to_owned();
    name.push(".sha256");
    PathBuf::from(name)
}

/// Makes names in a folder durable.
///
/// # Errors
/// When the folder cannot be synchronized.
pub fn sync_folder(folder: &Path) -> Result<()> {
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    File::open(folder).and_then(|f| f.sync_all()).with_context(|| folder.display().to_string())
}

/// Name of the file that a writer locks; nothing is in it, and it is gone when the writer is.
const LOCK: &str = ".lock";
/// How the names of files begin that have none yet, and how many characters follow.
const TEMPORARY: (&str, usize) = (".tmp", 6);
/// How often a folder may be taken away while its lock is asked for.
const TRIES: u32 = 100;

/// The right to add to a dataset, which one process at a time has. Readers need none.
#[derive(Debug)]
pub struct Writer {
    folder: PathBuf,
    made: bool,
    lock: Option<Lock>,
}

impl Writer {
    /// Takes the dataset in hand, whose folder is made where it is not there, and removes what killed writers left of
    /// files that had no name yet.
    ///
    /// # Errors
    /// When another process writes to it, or the folder cannot be written.
    pub fn open(folder: &Path) -> Result<Self> {
        Self::try_open(folder)?.with_context(|| held(folder))
    }

    /// The same; `None` where another process writes.
    ///
    /// # Errors
    /// When the folder cannot be written.
    pub fn try_open(folder: &Path) -> Result<Option<Self>> {
        for _ in 0..TRIES {
            let made = !folder.exists();
            let folder_and_lock = || -> Result<Option<Lock>> {
                fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
                Lock::try_take(&folder.join(LOCK))
            };
            let taken = folder_and_lock();
            // A writer that had nothing to write takes the folder with it, even between two looks at it.
            let kind = taken.as_ref().err().and_then(|e| e.downcast_ref::<Error>()).map(Error::kind);
            if kind == Some(ErrorKind::NotFound) || (kind == Some(ErrorKind::AlreadyExists) && !folder.is_file()) {
                continue;
            }
            let Some(mut lock) = taken? else { return Ok(None) };
            lock.remove_at_end();
            let writer = Self { folder: folder.to_path_buf(), made, lock: Some(lock) };
            writer.remove_temporaries()?;
            return Ok(Some(writer));
        }
        bail!("{} comes and goes", folder.display())
    }

    /// The dataset's folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    fn remove_temporaries(&self) -> Result<()> {
        let name = || self.folder.display().to_string();
        for entry in fs::read_dir(&self.folder).with_context(name)? {
            let entry = entry.with_context(name)?;
            let random = entry.file_name().to_str().and_then(|n| n.strip_prefix(TEMPORARY.0)).map(str::to_string);
            let ours = |r: &String| r.len() == TEMPORARY.1 && r.chars().all(|c| c.is_ascii_alphanumeric());
            if random.as_ref().is_some_and(ours) && entry.file_type().is_ok_and(|t| t.is_file()) {
                fs::remove_file(entry.path()).with_context(|| entry.path().display().to_string())?;
            }
        }
        Ok(())
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.lock = None;
        if self.made {
            // Fails where there is something in it, as it should.
            let _ = fs::remove_dir(&self.folder);
        }
    }
}

/// Writes a segment and its checksum; fails if it exists.
///
/// # Errors
/// When the folder cannot be written or the segment is there already.
pub fn append(writer: &Writer, name: &str, rows: &[Measurement]) -> Result<PathBuf> {
    let folder = writer.folder();
    let path = segment(folder, name);
    if path.exists() {
        bail!("{} exists; a dataset is append-only", path.display());
    }
    let mut frame = to_frame(rows)?;
    let mut bytes = Vec::new();
    ParquetWriter::new(&mut bytes).finish(&mut frame)?;
    // The checksum first: a segment without one is not read.
    let sum = format!("{}  {name}.parquet\n", sha256_hex(&bytes));
    whole::nameless(folder, sum.as_bytes())?
        .persist(sum_path(&path))
        .with_context(|| sum_path(&path).display().to_string())?;
    whole::nameless(folder, &bytes)?.persist_noclobber(&path).with_context(|| path.display().to_string())?;
    sync_folder(folder)?;
    Ok(path)
}

/// Reads one segment.
///
/// # Errors
/// When it has no checksum, differs from it or is damaged; the message names it.
pub fn read_segment(path: &Path) -> Result<Vec<Measurement>> {
    let name = path.display();
    let bytes = fs::read(path).with_context(|| name.to_string())?;
    match fs::read_to_string(sum_path(path)) {
        Ok(sum) if sum.split_whitespace().next() != Some(sha256_hex(&bytes).as_str()) => {
            bail!("{name} is damaged: its SHA-256 is not the one in {name}.sha256")
        }
        Ok(_) => {}
        Err(e) if e.kind() == ErrorKind::NotFound => bail!(
            "{name} has no checksum beside it, so nothing tells whether it is whole; if you know that it is, \
             `sha256sum {name} > {name}.sha256` makes one"
        ),
        Err(e) => return Err(e).with_context(|| format!("{name}.sha256")),
    }
    // A checksum tells chance, not whoever made both: polars panics on some damaged files.
    memory::reading(path, || quietly(|| from_frame(&ParquetReader::new(Cursor::new(bytes)).finish()?)))
        .and_then(|read| read)
        .with_context(|| format!("{name} is damaged"))
}

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
        rows.extend(read_segment(&path)?);
    }
    for path in journals {
        // A run that ends meanwhile makes a segment of its journal.
        let segment = path.with_extension("parquet");
        let read = journal::read(&path).map(|contents| contents.rows);
        rows.extend(if read.is_err() && segment.exists() { read_segment(&segment) } else { read }?);
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
        let layer = (r.gpu.clone(), r.case.fold_key(), r.batch, r.phase, r.precision, r.layout.clone());
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
    use joulecast_model::base::shape::Shape;
    use joulecast_model::net::layer::{Layer, Linear};
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn rows() -> Vec<Measurement> {
        let case = |features| LayerCase {
            inputs: vec![Shape::new(&[64]).expect("shape")],
            layer: Layer::Linear(Linear { features, bias: true }),
        };
        let mut rows: Vec<Measurement> = (1..4u64)
            .map(|i| {
                Measurement::imported("s", &i.to_string(), "v100", case(i * 8), Phase::Forward, i, 1e-3 * i as f64)
            })
            .collect();
        rows[1].flags = vec!["a".into(), "b".into()];
        rows[1].power_w = Some(123.5);
        rows[2].workspace_bytes = Some(7);
        rows[2].cudnn = Some("8.9".into());
        rows
    }

    #[test]
    fn rows_come_back_as_they_were_written() -> Result<()> {
        let folder = tempfile::tempdir()?;
        let path = append(&Writer::open(folder.path())?, "one", &rows())?;
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt as _;
            let plain = folder.path().join("plain");
            fs::write(&plain, "x")?;
            let mode = |path: &Path| fs::metadata(path).map(|m| m.permissions().mode() & 0o777);
            assert_eq!((mode(&path)?, mode(&sum_path(&path))?), (mode(&plain)?, mode(&plain)?));
        }
        assert_eq!(read(folder.path())?, rows());
        assert!(append(&Writer::open(folder.path())?, "one", &rows()).is_err(), "append-only");
        Ok(())
    }

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
    fn damage_is_an_error_that_names_the_segment() -> Result<()> {
        let folder = tempfile::tempdir()?;
        let path = append(&Writer::open(folder.path())?, "one", &rows())?;
        let bytes = fs::read(&path)?;
        for end in [0, 4, bytes.len() / 2, bytes.len() - 1] {
            fs::write(&path, &bytes[..end])?;
            let error = format!("{:#}", read(folder.path()).expect_err("damaged"));
            assert!(error.contains("one.parquet"), "{error}");
        }
        assert!(read(&folder.path().join("nowhere")).is_err());
        Ok(())
    }

    #[test]
    fn a_segment_from_before_a_nullable_column_reads() -> Result<()> {
        let mut frame = to_frame(&rows())?;
        for added in ["cudnn", "power_w", "workspace_bytes"] {
            frame.drop_in_place(added)?;
        }
        let read = from_frame(&frame)?;
        assert!(read.iter().all(|r| r.cudnn.is_none() && r.power_w.is_none() && r.workspace_bytes.is_none()));
        frame.drop_in_place("gpu")?;
        assert!(from_frame(&frame).is_err(), "a column that every row needs");
        Ok(())
    }

    #[test]
    fn a_changed_byte_is_noticed_and_a_missing_checksum_said() -> Result<()> {
        let folder = tempfile::tempdir()?;
        let path = append(&Writer::open(folder.path())?, "one", &rows())?;
        let mut bytes = fs::read(&path)?;
        let at = bytes.len() / 3;
        bytes[at] ^= 1;
        fs::write(&path, &bytes)?;
        let error = format!("{:#}", read(folder.path()).expect_err("changed"));
        assert!(error.contains("one.parquet is damaged"), "{error}");
        bytes[at] ^= 1;
        fs::write(&path, &bytes)?;
        fs::remove_file(sum_path(&path))?;
        let error = format!("{:#}", read(folder.path()).expect_err("no checksum"));
        assert!(error.contains("one.parquet has no checksum") && error.contains("sha256sum"), "{error}");
        fs::write(sum_path(&path), format!("{}  one.parquet\n", sha256_hex(&bytes)))?;
        assert_eq!(read(folder.path())?, rows(), "with the checksum that the message tells to make");
        Ok(())
    }

    /// Whoever damages a segment may make its checksum anew.
    #[test]
    fn damage_under_a_right_checksum_is_an_error_and_no_panic() -> Result<()> {
        let folder = tempfile::tempdir()?;
        let path = append(&Writer::open(folder.path())?, "one", &rows())?;
        let whole = fs::read(&path)?;
        let (mut panics, mut errors) = (0, 0);
        let mut try_bytes = |bytes: &[u8]| -> Result<()> {
            fs::write(&path, bytes)?;
            fs::write(sum_path(&path), sha256_hex(bytes))?;
            if let Err(error) = read_segment(&path) {
                let error = format!("{error:#}");
                assert!(error.contains("one.parquet is damaged") && error.lines().count() == 1, "{error}");
                errors += 1;
                let bytes = bytes.to_vec();
                let alone = quietly(|| from_frame(&ParquetReader::new(Cursor::new(bytes)).finish()?).map(|_| ()));
                panics += usize::from(alone.is_err());
            }
            Ok(())
        };
        // The length of the first page's levels, at which polars 0.55 panics, and the footer, where other lengths are.
        for (at, mask) in (0..300).map(|i| (whole.len() - 2700 + 9 * i, 0xff)).chain([(50, 0x10)]) {
            let mut bytes = whole.clone();
            bytes[at] ^= mask;
            try_bytes(&bytes)?;
        }
        for end in (0..whole.len()).step_by(411) {
            try_bytes(&whole[..end])?;
        }
        assert!(errors > 100, "{errors}");
        assert!(panics > 0, "none of {errors} is a panic of polars any more: find another one for this test");
        Ok(())
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

    /// Each takes its folder and its lock with it, while others are about to take the lock.
    #[test]
    fn writers_that_come_and_go_never_meet() -> Result<()> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("rows");
        let (here, served) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let come_and_go = || -> Result<()> {
            for _ in 0..300 {
                if let Some(writer) = Writer::try_open(&path)? {
                    assert_eq!(here.fetch_add(1, Ordering::SeqCst), 0, "two write at once");
                    served.fetch_add(1, Ordering::SeqCst);
                    here.fetch_sub(1, Ordering::SeqCst);
                    drop(writer);
                }
            }
            Ok(())
        };
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(come_and_go)).collect();
            threads.into_iter().try_for_each(|t| t.join().expect("no panic"))
        })?;
        assert!(served.into_inner() > 0);
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
