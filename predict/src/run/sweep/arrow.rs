//! Rows as an Arrow IPC file, which is mapped into memory as it lies.

use super::columns::{Column, IDENTITY, rewrite};
use crate::ask::COLUMNS;
use anyhow::Result;
use arrow_array::{ArrayRef, BooleanArray, Float64Array, Int64Array, RecordBatch, StringArray};
use arrow_ipc::writer::FileWriter;
use arrow_schema::{DataType, Field, Schema};
use std::path::Path;
use std::sync::Arc;

fn field(name: &str) -> Field {
    let kind = match Column::empty(name) {
        Column::Text(_) => DataType::Utf8,
        Column::Whole(_) => DataType::Int64,
        Column::Number(_) => DataType::Float64,
        Column::Truth(_) => DataType::Boolean,
    };
    Field::new(name, kind, true)
}

fn array(column: Column) -> ArrayRef {
    match column {
        Column::Text(values) => Arc::new(StringArray::from(values)),
        Column::Whole(values) => Arc::new(Int64Array::from(values)),
        Column::Number(values) => Arc::new(Float64Array::from(values)),
        Column::Truth(values) => Arc::new(BooleanArray::from(values)),
    }
}

/// Writes rows that are in a CSV file as an Arrow IPC file, with what they were made from in its schema's metadata.
pub fn write(rows: &Path, output: &Path, identity: &str) -> Result<()> {
    let said = [(IDENTITY.to_string(), identity.to_string())];
    let schema = Arc::new(Schema::new(Vec::from(COLUMNS.map(field))).with_metadata(said));
    rewrite(rows, output, |file, groups| {
        let mut file = FileWriter::try_new_buffered(file, &schema)?;
        for columns in groups {
            let arrays = Vec::from(columns?.map(array));
            file.write(&RecordBatch::try_new(schema.clone(), arrays)?)?;
        }
        Ok(file.finish()?)
    })
}

#[cfg(test)]
mod tests {
    use super::super::columns::GROUP;
    use super::super::columns::tests::csv;
    use super::*;
    use arrow_array::Array as _;
    use arrow_array::cast::AsArray as _;
    use arrow_array::types::{Float64Type, Int64Type};
    use arrow_ipc::reader::FileReader;
    use std::fs::File;

    #[test]
    fn rows_are_read_back() {
        let folder = tempfile::tempdir().expect("a folder");
        let (rows, path) = (folder.path().join("rows.csv"), folder.path().join("rows.arrow"));
        for (count, sizes) in [(0, &[][..]), (3, &[3]), (GROUP + 2, &[GROUP, 2])] {
            std::fs::write(&rows, csv(count)).expect("written");
            write(&rows, &path, "what").expect("written");
            let reader = FileReader::try_new(File::open(&path).expect("there"), None).expect("an Arrow file");
            assert_eq!(reader.schema().metadata().get(IDENTITY).map(String::as_str), Some("what"));
            let batches: Vec<RecordBatch> = reader.map(|batch| batch.expect("rows")).collect();
            assert_eq!(batches.iter().map(RecordBatch::num_rows).collect::<Vec<_>>(), sizes);
            let mut read = 0;
            for batch in &batches {
                let column = |name: &str| batch.column_by_name(name).expect(name);
                let texts = column("network").as_string::<i32>();
                let (batches, powers) = (column("batch").as_primitive::<Int64Type>(), column("power_w"));
                let (powers, fits) = (powers.as_primitive::<Float64Type>(), column("fits_in_memory").as_boolean());
                for row in 0..batch.num_rows() {
                    read += 1;
                    assert_eq!((texts.value(row), batches.value(row)), ("a,b", read));
                    assert!(powers.value(row) == 0.1 && fits.value(row));
                }
                for name in ["gpu", "sequence", "time_s", "launch_bound", "error"] {
                    assert_eq!(column(name).null_count(), batch.num_rows(), "{name}");
                }
                assert_eq!(texts.null_count() + batches.null_count() + powers.null_count() + fits.null_count(), 0);
            }
            assert_eq!(read, count as i64);
        }
    }
}
