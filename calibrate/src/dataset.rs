//! Datasets of measurement rows: `measurement/1` in Parquet.
//!
//! A dataset is a folder of append-only segments. A segment is written whole under another name and then renamed,
//! so that a reader never sees half of one; its SHA-256 stands beside it (`NAME.parquet.sha256`), and readers compare.
//! Rows of a run that has not ended are in a journal (see [`crate::journal`]).

use crate::import::sha256_hex;
use crate::{journal, whole};
use anyhow::{Context, Result, bail};
use joulecast_model::measurement::{LayerCase, Measurement, Regime};
use joulecast_model::precision::{Phase, Precision};
use polars::prelude::{Column, DataFrame, ParquetReader, ParquetWriter, SerReader, StringChunked};
use std::collections::HashSet;
use std::fs::{self, File};
use std::io::Cursor;
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

/// Writes a segment and its checksum; fails if it exists.
///
/// # Errors
/// When the folder cannot be written or the segment is there already.
pub fn append(folder: &Path, name: &str, rows: &[Measurement]) -> Result<PathBuf> {
    let path = segment(folder, name);
    if path.exists() {
        bail!("{} exists; a dataset is append-only", path.display());
    }
    fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    let mut frame = to_frame(rows)?;
    let mut bytes = Vec::new();
    ParquetWriter::new(&mut bytes).finish(&mut frame)?;
    // The checksum first: a segment without one counts as imported, and is not compared.
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
/// When it differs from its checksum or is damaged; the message names it.
pub fn read_segment(path: &Path) -> Result<Vec<Measurement>> {
    let name = path.display();
    let bytes = fs::read(path).with_context(|| name.to_string())?;
    match fs::read_to_string(sum_path(path)) {
        Ok(sum) if sum.split_whitespace().next() != Some(sha256_hex(&bytes).as_str()) => {
            bail!("{name} is damaged: its SHA-256 is not the one in {name}.sha256")
        }
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(e).with_context(|| format!("{name}.sha256")),
        _ => {}
    }
    let frame = ParquetReader::new(Cursor::new(bytes)).finish().with_context(|| format!("{name} is damaged"))?;
    from_frame(&frame).with_context(|| name.to_string())
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
    let entries = fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    let mut paths: Vec<PathBuf> = entries.collect::<std::io::Result<Vec<_>>>()?.iter().map(|e| e.path()).collect();
    paths.retain(|p| p.extension().is_some_and(|e| e == "parquet"));
    paths.sort();
    let journals = journal::pending(folder)?;
    if paths.is_empty() && journals.is_empty() {
        return Err(NoRows::Dataset(folder.to_path_buf()).into());
    }
    let mut rows = Vec::new();
    for path in paths {
        rows.extend(read_segment(&path)?);
    }
    for path in journals {
        rows.extend(journal::read(&path)?.rows);
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
    use joulecast_model::layer::{Layer, Linear};
    use joulecast_model::shape::Shape;

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
        let path = append(folder.path(), "one", &rows())?;
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt as _;
            let plain = folder.path().join("plain");
            fs::write(&plain, "x")?;
            let mode = |path: &Path| fs::metadata(path).map(|m| m.permissions().mode() & 0o777);
            assert_eq!((mode(&path)?, mode(&sum_path(&path))?), (mode(&plain)?, mode(&plain)?));
        }
        assert_eq!(read(folder.path())?, rows());
        assert!(append(folder.path(), "one", &rows()).is_err(), "append-only");
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
        let path = append(folder.path(), "one", &rows())?;
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
    fn a_changed_byte_is_noticed_and_a_missing_checksum_tolerated() -> Result<()> {
        let folder = tempfile::tempdir()?;
        let path = append(folder.path(), "one", &rows())?;
        fs::remove_file(sum_path(&path))?;
        assert_eq!(read(folder.path())?, rows());
        let other = append(folder.path(), "two", &rows())?;
        let mut bytes = fs::read(&other)?;
        let at = bytes.len() / 3;
        bytes[at] ^= 1;
        fs::write(&other, bytes)?;
        let error = format!("{:#}", read(folder.path()).expect_err("changed"));
        assert!(error.contains("two.parquet is damaged"), "{error}");
        Ok(())
    }
}
