//! Rows as Parquet.

use super::columns::{Column, Columns, IDENTITY, rewrite};
use crate::ask::COLUMNS;
use anyhow::{Context, Result};
use parquet::basic::Compression;
use parquet::data_type::{BoolType, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

/// Writes values that are there, and for every row whether one is.
fn write_column<D: DataType>(
    writer: &mut SerializedColumnWriter<'_>,
    values: impl IntoIterator<Item = Option<D::T>>,
) -> Result<()> {
    let mut there = Vec::new();
    let defined = values.into_iter().map(|value| {
        let defined = i16::from(value.is_some());
        there.extend(value);
        defined
    });
    let defined: Vec<i16> = defined.collect();
    writer.typed::<D>().write_batch(&there, Some(&defined), None)?;
    Ok(())
}

fn write_group(columns: Columns, mut group: SerializedRowGroupWriter<'_, File>) -> Result<()> {
    let mut columns = columns.into_iter();
    while let Some(mut writer) = group.next_column()? {
        let to = &mut writer;
        match columns.next().context("more columns in the schema than in the rows")? {
            Column::Text(values) => {
                write_column::<ByteArrayType>(to, values.into_iter().map(|v| v.map(|text| text.into_bytes().into())))
            }
            Column::Whole(values) => write_column::<Int64Type>(to, values),
            Column::Number(values) => write_column::<DoubleType>(to, values),
            Column::Truth(values) => write_column::<BoolType>(to, values),
        }?;
        writer.close()?;
    }
    group.close()?;
    Ok(())
}

/// Writes rows that are in a CSV file as Parquet, with what they were made from in its metadata.
pub fn write(rows: &Path, output: &Path, identity: &str) -> Result<()> {
    let field = |name: &str| match Column::empty(name) {
        Column::Text(_) => format!("OPTIONAL BYTE_ARRAY {name} (UTF8);"),
        Column::Whole(_) => format!("OPTIONAL INT64 {name};"),
        Column::Number(_) => format!("OPTIONAL DOUBLE {name};"),
        Column::Truth(_) => format!("OPTIONAL BOOLEAN {name};"),
    };
    let fields: String = COLUMNS.iter().map(|name| field(name)).collect();
    let schema = Arc::new(parse_message_type(&format!("message sweep {{ {fields} }}"))?);
    let said = KeyValue::new(IDENTITY.to_string(), identity.to_string());
    let properties = WriterProperties::builder().set_compression(Compression::UNCOMPRESSED);
    let properties = Arc::new(properties.set_key_value_metadata(Some(vec![said])).build());
    rewrite(rows, output, |file, groups| {
        let mut file = SerializedFileWriter::new(file, schema, properties)?;
        for columns in groups {
            write_group(columns?, file.next_row_group()?)?;
        }
        file.close()?;
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::super::columns::tests::csv;
    use super::*;
    use parquet::file::reader::{FileReader, SerializedFileReader};

    #[test]
    fn rows_are_read_back() {
        let folder = tempfile::tempdir().expect("a folder");
        let (rows, path) = (folder.path().join("rows.csv"), folder.path().join("rows.parquet"));
        std::fs::write(&rows, csv(3)).expect("written");
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
    }
}
