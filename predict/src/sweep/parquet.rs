//! Rows as Parquet, a row group per chunk of rows.

use super::rows::{COLUMNS, Cell, Row};
use anyhow::{Context, Result};
use parquet::basic::Compression;
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DoubleType, Int64Type};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

/// Columns of text, whole numbers and truth values; all others are numbers.
const TEXT: [&str; 7] = ["network", "gpu", "precision", "mode", "time_tier", "power_tier", "error"];
const WHOLE: [&str; 3] = ["batch", "ops", "memory_bytes"];
const TRUTH: [&str; 2] = ["fits_in_memory", "launch_bound"];
/// Rows of a group: small ones are gathered.
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

impl Column {
    fn push(&mut self, cell: &Cell<'_>) {
        let there = match (&mut *self, cell) {
            (Self::Text(values, _), Cell::Text(text)) => {
                values.push(ByteArray::from(*text));
                1
            }
            (Self::Whole(values, _), Cell::Whole(value)) => {
                values.push(i64::try_from(*value).unwrap_or(i64::MAX));
                1
            }
            (Self::Number(values, _), Cell::Number(value)) => {
                values.push(*value);
                1
            }
            (Self::Truth(values, _), Cell::Truth(value)) => {
                values.push(*value);
                1
            }
            _ => 0,
        };
        match self {
            Self::Text(_, defined) | Self::Whole(_, defined) | Self::Number(_, defined) | Self::Truth(_, defined) => {
                defined.push(there);
            }
        }
    }

    fn extend(&mut self, other: &Self) {
        match (self, other) {
            (Self::Text(a, x), Self::Text(b, y)) => (a.extend_from_slice(b), x.extend_from_slice(y)),
            (Self::Whole(a, x), Self::Whole(b, y)) => (a.extend_from_slice(b), x.extend_from_slice(y)),
            (Self::Number(a, x), Self::Number(b, y)) => (a.extend_from_slice(b), x.extend_from_slice(y)),
            (Self::Truth(a, x), Self::Truth(b, y)) => (a.extend_from_slice(b), x.extend_from_slice(y)),
            _ => ((), ()),
        };
    }
}

impl Columns {
    /// Rows turned into columns.
    pub fn of(rows: &[Row]) -> Self {
        let mut columns: Vec<Column> = COLUMNS.iter().map(|name| empty(name)).collect();
        for row in rows {
            columns.iter_mut().zip(row.cells()).for_each(|(column, cell)| column.push(&cell));
        }
        Self(columns, rows.len())
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

/// A file that rows are written to.
pub struct Rows {
    file: SerializedFileWriter<File>,
    waiting: Columns,
}

impl Rows {
    /// Creates the file.
    pub fn create(path: &Path) -> Result<Self> {
        let kind = |name: &str| match empty(name) {
            Column::Text(..) => format!("OPTIONAL BYTE_ARRAY {name} (UTF8);"),
            Column::Whole(..) => format!("OPTIONAL INT64 {name};"),
            Column::Number(..) => format!("OPTIONAL DOUBLE {name};"),
            Column::Truth(..) => format!("OPTIONAL BOOLEAN {name};"),
        };
        let fields: String = COLUMNS.iter().map(|name| kind(name)).collect();
        let schema = Arc::new(parse_message_type(&format!("message sweep {{ {fields} }}"))?);
        let properties = Arc::new(WriterProperties::builder().set_compression(Compression::UNCOMPRESSED).build());
        let file = File::create(path).with_context(|| path.display().to_string())?;
        Ok(Self { file: SerializedFileWriter::new(file, schema, properties)?, waiting: Columns::of(&[]) })
    }

    /// Appends rows.
    pub fn write(&mut self, columns: &Columns) -> Result<()> {
        self.waiting.0.iter_mut().zip(&columns.0).for_each(|(column, more)| column.extend(more));
        self.waiting.1 += columns.1;
        if self.waiting.1 >= GROUP { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<()> {
        let columns = std::mem::replace(&mut self.waiting, Columns::of(&[]));
        if columns.1 > 0 {
            columns.write(self.file.next_row_group()?)?;
        }
        Ok(())
    }

    /// Writes what is left and the footer.
    pub fn finish(mut self) -> Result<()> {
        self.flush()?;
        self.file.close()?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sweep::rows::Key;
    use joulecast_model::precision::{Mode, Precision};
    use joulecast_model::predictor::OperatingPoint;
    use parquet::file::reader::{FileReader, SerializedFileReader};

    #[test]
    fn rows_are_read_back() {
        let key = |batch| Key {
            network: "a".into(),
            gpu: "b".into(),
            batch,
            precision: Precision::Fp32,
            mode: Mode::Inference,
            point: OperatingPoint::default(),
        };
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("rows.parquet");
        let mut rows = Rows::create(&path).expect("created");
        for batch in 1..4 {
            rows.write(&Columns::of(&[Row::failed(key(batch), "why".into())])).expect("written");
        }
        rows.finish().expect("closed");
        let reader = SerializedFileReader::new(File::open(&path).expect("there")).expect("a Parquet file");
        let read: Vec<String> =
            reader.get_row_iter(None).expect("rows").map(|row| row.expect("a row").to_string()).collect();
        assert_eq!(read.len(), 3);
        assert!(read[2].contains("batch: 3") && read[2].contains("time_s: null"), "{}", read[2]);
        assert!(read[2].contains("error: \"why\""), "{}", read[2]);
    }
}
