//! Comma-separated text with a header, read by column name.

use super::{ImportError, shown};
use csv::StringRecord;
use joulecast_model::base::text::closest;

/// A table in memory.
pub(super) struct Columns {
    file: String,
    header: StringRecord,
    records: Vec<StringRecord>,
}

/// A record with the line it begins on.
pub(super) struct Record<'t> {
    cells: &'t StringRecord,
    /// From 1, the header included.
    pub line: u64,
}

impl Record<'_> {
    /// A cell without blanks around it; a column that is absent or empty is `None`.
    pub fn get(&self, column: Option<usize>) -> Option<&str> {
        column.and_then(|i| self.cells.get(i)).filter(|text| !text.is_empty())
    }

    /// A cell as a number.
    pub fn number(&self, column: Option<usize>) -> Option<f64> {
        self.get(column)?.parse().ok()
    }
}

impl Columns {
    /// Reads the text.
    ///
    /// # Errors
    /// When there is no header, or a record has another number of cells than the header.
    pub fn read(file: &str, text: &str) -> Result<Self, ImportError> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let mut reader = csv::ReaderBuilder::new().trim(csv::Trim::All).from_reader(text.as_bytes());
        let fault = |error: csv::Error| match error.kind() {
            csv::ErrorKind::UnequalLengths { pos: Some(pos), expected_len, len } => ImportError::Line {
                file: file.to_string(),
                line: pos.line(),
                what: format!("{len} cells where the header has {expected_len}"),
            },
            _ => ImportError::File { file: file.to_string(), what: error.to_string().replace('\n', " ") },
        };
        let header = reader.headers().map_err(fault)?.clone();
        if header.iter().all(str::is_empty) {
            return Err(ImportError::File { file: file.to_string(), what: "no header line".to_string() });
        }
        let records = reader.records().collect::<Result<_, _>>().map_err(fault)?;
        Ok(Self { file: file.to_string(), header, records })
    }

    /// Position of a column.
    pub fn find(&self, name: &str) -> Option<usize> {
        self.header.iter().position(|h| h.eq_ignore_ascii_case(name))
    }

    /// Position of a column that must be there.
    ///
    /// # Errors
    /// When it is not; the message names the nearest one.
    pub fn require(&self, name: &str) -> Result<usize, ImportError> {
        self.find(name)
            .ok_or_else(|| self.fault(1, format!("no column {}{}", shown(name), closest(name, self.header.iter()))))
    }

    /// An error at a line.
    pub fn fault(&self, line: u64, what: String) -> ImportError {
        ImportError::Line { file: self.file.clone(), line, what }
    }

    /// All records after the header.
    pub fn records(&self) -> impl Iterator<Item = Record<'_>> {
        self.records.iter().map(|cells| Record { cells, line: cells.position().map_or(0, csv::Position::line) })
    }
}
