//! Datasets of measurement rows: `measurement/1` in Parquet.
//!
//! A dataset is a folder of append-only segments. A segment is written whole under another name and then renamed,
//! so that a reader never sees half of one.

use anyhow::{Context, Result, bail};
use joulecast_model::measurement::{LayerCase, Measurement, Regime};
use joulecast_model::precision::{Phase, Precision};
use polars::prelude::{Column, DataFrame, ParquetReader, ParquetWriter, SerReader, StringChunked};
use std::fs::{self, File};
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
            $({ let column = text(frame, stringify!($otext))?;
                for (i, row) in rows.iter_mut().enumerate() { row.$otext = column.get(i).map(str::to_string); } })*
            $({ let column = frame.column(stringify!($number))?.f64()?;
                for (i, row) in rows.iter_mut().enumerate() { row.$number = column.get(i); } })*
            $({ let column = frame.column(stringify!($count))?.u64()?;
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

/// Writes a segment; fails if it exists.
///
/// # Errors
/// When the folder cannot be written or the segment is there already.
pub fn append(folder: &Path, name: &str, rows: &[Measurement]) -> Result<PathBuf> {
    let path = segment(folder, name);
    if path.exists() {
        bail!("{} exists; a dataset is append-only", path.display());
    }
    fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    let temporary = tempfile::NamedTempFile::new_in(folder).with_context(|| folder.display().to_string())?;
    let mut frame = to_frame(rows)?;
    ParquetWriter::new(temporary.as_file()).finish(&mut frame)?;
    temporary.as_file().sync_all()?;
    temporary.persist_noclobber(&path).with_context(|| path.display().to_string())?;
    Ok(path)
}

/// Reads all segments of a dataset, in the order of their names.
///
/// # Errors
/// When the folder is missing or empty, or a segment is damaged; the message names it.
pub fn read(folder: &Path) -> Result<Vec<Measurement>> {
    let entries = fs::read_dir(folder).with_context(|| format!("no dataset at {}", folder.display()))?;
    let mut paths: Vec<PathBuf> = entries.collect::<std::io::Result<Vec<_>>>()?.iter().map(|e| e.path()).collect();
    paths.retain(|p| p.extension().is_some_and(|e| e == "parquet"));
    paths.sort();
    if paths.is_empty() {
        bail!("no dataset at {}: the folder has no .parquet segment", folder.display());
    }
    let mut rows = Vec::new();
    for path in paths {
        let file = File::open(&path).with_context(|| path.display().to_string())?;
        let frame = ParquetReader::new(file).finish().with_context(|| format!("{} is damaged", path.display()))?;
        rows.extend(from_frame(&frame).with_context(|| path.display().to_string())?);
    }
    Ok(rows)
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
        append(folder.path(), "one", &rows())?;
        assert_eq!(read(folder.path())?, rows());
        assert!(append(folder.path(), "one", &rows()).is_err(), "append-only");
        Ok(())
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
}
