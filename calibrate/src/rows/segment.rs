//! A segment of a dataset: measurement rows, `measurement/1` in Parquet, written once.
//!
//! It is written whole under another name and then renamed, so that a reader never sees half of one; its SHA-256 stands
//! beside it (`NAME.parquet.sha256`), and readers compare.

use crate::rows::writer::Writer;
use crate::system::hash::sha256_hex;
use crate::system::quiet::quietly;
use crate::system::{memory, whole};
use anyhow::{Context, Result, bail};
use joulecast_model::base::precision::{Mode, Phase, Precision};
use joulecast_model::kernel::setting::{Algorithm, Cache};
use joulecast_model::net::case::LayerCase;
use joulecast_model::net::layer::Optimizer;
use joulecast_model::rows::measurement::{Measurement, Order, Regime};
use polars::prelude::{Column, DataFrame, ParquetReader, ParquetWriter, SerReader, StringChunked};
use std::fs;
use std::io::{Cursor, ErrorKind};
use std::path::{Path, PathBuf};

/// Column types, one accessor pair each.
macro_rules! columns {
    (text: $($text:ident),*; optional_text: $($otext:ident),*; optional_name: $($oname:ident: $of:ty),*; optional_number: $($number:ident),*; optional_count: $($count:ident),* $(,)?) => {
        fn plain_columns(rows: &[Measurement]) -> Vec<Column> {
            vec![
                $(text_column(stringify!($text), rows, |r| Some(r.$text.clone())),)*
                $(text_column(stringify!($otext), rows, |r| r.$otext.clone()),)*
                $(text_column(stringify!($oname), rows, |r| r.$oname.map(|name| name.to_string())),)*
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
            $(if has(frame, stringify!($oname)) { let column = text(frame, stringify!($oname))?;
                for (i, row) in rows.iter_mut().enumerate() {
                    row.$oname = column.get(i).map(|name| named(stringify!($oname), name, <$of>::from_name)).transpose()
                        .with_context(|| format!("row {i}"))?;
                } })*
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
    optional_text: plan_id, board_uuid, form_factor, driver, cuda, cudnn, cublas, licence, math, algo, reasons, energy_method;
    optional_name: mode: Mode, layout: Order, cache: Cache, optimizer: Optimizer, algorithm: Algorithm;
    optional_number: time_p10_s, time_p90_s, power_w, energy_j, window_s, power_integral_w, power_limit_w, core_mhz_mean, core_mhz_min, core_mhz_requested, mem_mhz,
        temp_start_c, temp_end_c, throttle_s, host_s;
    optional_count: workspace_bytes, n,
);

fn missing(column: &str, row: usize) -> String {
    format!("column {column} is empty in row {row}")
}

/// A value by its name.
pub(super) fn named<T>(column: &str, name: &str, value: impl Fn(&str) -> Option<T>) -> Result<T> {
    value(name).with_context(|| format!("{column} {name}"))
}

fn text_column(name: &str, rows: &[Measurement], value: impl Fn(&Measurement) -> Option<String>) -> Column {
    Column::new(name.into(), rows.iter().map(value).collect::<Vec<Option<String>>>())
}

fn has(frame: &DataFrame, name: &str) -> bool {
    frame.get_column_index(name).is_some()
}

pub(super) fn text<'a>(frame: &'a DataFrame, name: &str) -> Result<&'a StringChunked> {
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
            let phase = named("phase", &phase, Phase::from_name).with_context(|| format!("row {i}"))?;
            let mut row = Measurement::imported("", "", "", case, phase, batch, time);
            row.precision = named("precision", &precision, Precision::from_name).with_context(|| format!("row {i}"))?;
            row.regime = named("regime", &regime, Regime::from_name).with_context(|| format!("row {i}"))?;
            row.repeat = repeats.get(i).with_context(|| missing("repeat", i))?;
            row.flags = flags.get(i).map(|f| f.split(';').map(str::to_string).collect()).unwrap_or_default();
            Ok(row)
        })
        .collect::<Result<Vec<_>>>()?;
    read_plain(frame, &mut rows)?;
    Ok(rows.into_iter().map(Measurement::sorted).collect())
}

/// Where a dataset has the segment of that name.
pub fn path(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}.parquet"))
}

/// Path of the checksum beside a segment.
fn sum_path(segment: &Path) -> PathBuf {
    let mut name = segment.as_os_str().to_owned();
    name.push(".sha256");
    PathBuf::from(name)
}

/// Writes a segment and its checksum; fails if it exists.
///
/// # Errors
/// When the folder cannot be written or the segment is there already.
pub fn append(writer: &Writer, name: &str, rows: &[Measurement]) -> Result<PathBuf> {
    let folder = writer.folder();
    let path = path(folder, name);
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
    whole::sync_folder(folder)?;
    Ok(path)
}

/// The rows of a segment.
///
/// # Errors
/// When it has no checksum, differs from it or is damaged; the message names it.
pub fn read(path: &Path) -> Result<Vec<Measurement>> {
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

#[cfg(test)]
pub(in crate::rows) mod tests {
    use super::*;
    use joulecast_model::base::shape::Shape;
    use joulecast_model::net::layer::{Layer, Linear};

    pub(in crate::rows) fn rows() -> Vec<Measurement> {
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
        assert_eq!(read(&path)?, rows());
        assert!(append(&Writer::open(folder.path())?, "one", &rows()).is_err(), "append-only");
        Ok(())
    }

    #[test]
    fn damage_is_an_error_that_names_the_segment() -> Result<()> {
        let folder = tempfile::tempdir()?;
        let path = append(&Writer::open(folder.path())?, "one", &rows())?;
        let bytes = fs::read(&path)?;
        for end in [0, 4, bytes.len() / 2, bytes.len() - 1] {
            fs::write(&path, &bytes[..end])?;
            let error = format!("{:#}", read(&path).expect_err("damaged"));
            assert!(error.contains("one.parquet"), "{error}");
        }
        assert!(read(&folder.path().join("nowhere.parquet")).is_err());
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
        let error = format!("{:#}", read(&path).expect_err("changed"));
        assert!(error.contains("one.parquet is damaged"), "{error}");
        bytes[at] ^= 1;
        fs::write(&path, &bytes)?;
        fs::remove_file(sum_path(&path))?;
        let error = format!("{:#}", read(&path).expect_err("no checksum"));
        assert!(error.contains("one.parquet has no checksum") && error.contains("sha256sum"), "{error}");
        fs::write(sum_path(&path), format!("{}  one.parquet\n", sha256_hex(&bytes)))?;
        assert_eq!(read(&path)?, rows(), "with the checksum that the message tells to make");
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
            if let Err(error) = read(&path) {
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
}
