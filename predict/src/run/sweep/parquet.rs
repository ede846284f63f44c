//! Rows as Parquet. A Parquet file is whole or nothing, so rows gather as CSV first, which can be gone on with.

use crate::ask::COLUMNS;
use anyhow::{Context, Result};
use joulecast_reports::whole;
use parquet::basic::Compression;
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DoubleType, Int64Type};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

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
const GROUP: usize = 1 << 16;

/// Values of a column that are there, and for every row whether one is.
enum Column {
    Text(Vec<ByteArray>, Vec<i16>),
    Whole(Vec<i64>, Vec<i16>),
    Number(Vec<f64>, Vec<i16>),
    Truth(Vec<bool>, Vec<i16>),
}

/// Rows by column.
pub struct Columns(Vec<Column>, usize);

fn empty(name: &str) -> Column {
    if TEXT.contains(&name) {
        Column::Text(Vec::new(), Vec::new())
    } else if WHOLE.contains(&name) {
        Column::Whole(Vec::new(), Vec::new())
    } else if TRUTH.contains(&name) {
        Column::Truth(Vec::new(), Vec::new())
    } else {
        Column::Number(Vec::new(), Vec::new())
    }
}

/// Appends the value of a cell; an empty one is null.
fn append<T, E>(
    (values, defined): (&mut Vec<T>, &mut Vec<i16>),
    cell: &str,
    read: impl Fn(&str) -> Result<T, E>,
) -> Result<(), E> {
    if !cell.is_empty() {
        values.push(read(cell)?);
    }
    defined.push(i16::from(!cell.is_empty()));
    Ok(())
}

impl Column {
    fn push(&mut self, cell: &str) -> Result<()> {
        match self {
            Self::Text(values, defined) => append((values, defined), cell, |c| Ok(ByteArray::from(c))),
            Self::Whole(values, defined) => Ok(append((values, defined), cell, str::parse)?),
            Self::Number(values, defined) => Ok(append((values, defined), cell, str::parse)?),
            Self::Truth(values, defined) => Ok(append((values, defined), cell, str::parse)?),
        }
    }
}

impl Columns {
    fn empty() -> Self {
        Self(COLUMNS.iter().map(|name| empty(name)).collect(), 0)
    }

    /// Appends a row of text cells in the order of the columns; empty ones are null.
    fn push(&mut self, cells: &csv::StringRecord) -> Result<()> {
        for (column, cell) in self.0.iter_mut().zip(cells) {
            column.push(cell).with_context(|| format!("\"{cell}\""))?;
        }
        self.1 += 1;
        Ok(())
    }

    fn write(&self, mut group: SerializedRowGroupWriter<'_, File>) -> Result<()> {
        let mut columns = self.0.iter();
        while let Some(mut writer) = group.next_column()? {
            let column = columns.next().context("more columns in the schema than in the rows")?;
            match column {
                Column::Text(v, d) => writer.typed::<ByteArrayType>().write_batch(v, Some(d), None)?,
                Column::Whole(v, d) => writer.typed::<Int64Type>().write_batch(v, Some(d), None)?,
                Column::Number(v, d) => writer.typed::<DoubleType>().write_batch(v, Some(d), None)?,
                Column::Truth(v, d) => writer.typed::<BoolType>().write_batch(v, Some(d), None)?,
            };
            writer.close()?;
        }
        group.close()?;
        Ok(())
    }
}

/// The key under which a file says what its rows were made from.
const IDENTITY: &str = "joulecast.sweep";

/// Writes rows that are in a CSV file as Parquet, with what they were made from in its metadata: under another name first,
/// so that a file is whole or not there.
pub fn write(rows: &Path, output: &Path, identity: &str) -> Result<()> {
    let kind = |name: &str| match empty(name) {
        Column::Text(..) => format!("OPTIONAL BYTE_ARRAY {name} (UTF8);"),
        Column::Whole(..) => format!("OPTIONAL INT64 {name};"),
        Column::Number(..) => format!("OPTIONAL DOUBLE {name};"),
        Column::Truth(..) => format!("OPTIONAL BOOLEAN {name};"),
    };
    let fields: String = COLUMNS.iter().map(|name| kind(name)).collect();
    let schema = Arc::new(parse_message_type(&format!("message sweep {{ {fields} }}"))?);
    let said = KeyValue::new(IDENTITY.to_string(), identity.to_string());
    let properties = WriterProperties::builder().set_compression(Compression::UNCOMPRESSED);
    let properties = Arc::new(properties.set_key_value_metadata(Some(vec![said])).build());
    let unnamed = whole::begin(output)?;
    let write = || -> Result<()> {
        let mut file = SerializedFileWriter::new(unnamed.as_file().try_clone()?, schema, properties)?;
        let mut reader = csv::Reader::from_path(rows)?;
        let mut columns = Columns::empty();
        for (i, record) in reader.records().enumerate() {
            columns.push(&record?).with_context(|| format!("row {}", i + 1))?;
            if columns.1 == GROUP {
                std::mem::replace(&mut columns, Columns::empty()).write(file.next_row_group()?)?;
            }
        }
        if columns.1 > 0 {
            columns.write(file.next_row_group()?)?;
        }
        file.close()?;
        Ok(unnamed.as_file().sync_all()?)
    };
    write().with_context(|| output.display().to_string())?;
    Ok(whole::persist(unnamed, output)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use parquet::file::reader::{FileReader, SerializedFileReader};

    #[test]
    fn rows_are_read_back() {
        let folder = tempfile::tempdir().expect("a folder");
        let (rows, path) = (folder.path().join("rows.csv"), folder.path().join("rows.parquet"));
        let line = |batch: u64| {
            let cell = |name: &&str| match *name {
                "network" => "\"a,b\"".to_string(),
                "batch" => batch.to_string(),
                "power_w" => "0.1".into(),
                "fits_in_memory" => "true".into(),
                _ => String::new(),
            };
            COLUMNS.iter().map(cell).collect::<Vec<_>>().join(",")
        };
        let text: Vec<String> = [COLUMNS.join(",")].into_iter().chain((1..4).map(line)).collect();
        std::fs::write(&rows, text.join("\n")).expect("written");
        write(&rows, &path, "what").expect("written");
        let reader = SerializedFileReader::new(File::open(&path).expect("there")).expect("a Parquet file");
        let said = reader.metadata().file_metadata().key_value_metadata().expect("metadata");
        assert!(said.iter().any(|s| s.key == IDENTITY && s.value.as_deref() == Some("what")));
        let read: Vec<String> =
            reader.get_row_iter(None).expect("rows").map(|row| row.expect("a row").to_string()).collect();
        assert_eq!(read.len(), 3);
        for part in ["network: \"a,b\"", "batch: 3", "power_w: 0.1", "time_s: null", "fits_in_memory: true"] {
            assert!(read[2].contains(part), "{part}: {}", read[2]);
        }
        std::fs::write(&rows, format!("{}\n{}", COLUMNS.join(","), line(1).replace("0.1", "much"))).expect("written");
        assert!(format!("{:#}", write(&rows, &path, "").expect_err("no number")).contains("row 1: \"much\""));
    }
}
