//! Checksums of measured rows in CSV files: the last column holds the first 16 hexadecimal digits of the SHA-256 of the
//! row's cells, each after the name of its column. Cells count as they read, not as they are quoted. Files without the
//! column are older, or of other programs, and are not checked; an empty cell says that its row was edited on purpose.

use crate::system::hash::sha256_hex;
use anyhow::{Context, Result, bail};
use csv::StringRecord;
use serde::de::DeserializeOwned;
use std::path::Path;

/// Name of the column.
pub const COLUMN: &str = "checksum";
/// Digits of a checksum.
const DIGITS: usize = 16;

/// The checksum of a row whose columns are named so; its own column does not count.
pub fn of(columns: &StringRecord, cells: &StringRecord) -> String {
    let mut text = String::new();
    for (column, cell) in columns.iter().zip(cells).filter(|(column, _)| *column != COLUMN) {
        // Neither sign occurs in a cell that the program writes.
        text.extend([column, "\u{1f}", cell, "\u{1e}"]);
    }
    let mut sum = sha256_hex(text.as_bytes());
    sum.truncate(DIGITS);
    sum
}

/// What a file holds.
pub struct Read<R> {
    /// Names of its columns.
    pub columns: StringRecord,
    /// Rows, each with its line.
    pub rows: Vec<(u64, R)>,
}

/// Reads rows from the bytes of a file and compares those that have a checksum with it.
///
/// # Errors
/// When a row is damaged or not such a row: the message names the file and the line.
pub fn read<R: DeserializeOwned>(bytes: &[u8], path: &Path) -> Result<Read<R>> {
    let name = path.display();
    let mut reader = csv::Reader::from_reader(bytes);
    let columns = reader.headers().with_context(|| name.to_string())?.clone();
    let place = columns.iter().position(|c| c == COLUMN);
    let mut rows = Vec::new();
    for record in reader.records() {
        let record = record.with_context(|| name.to_string())?;
        let line = record.position().map_or(0, csv::Position::line);
        match place.and_then(|place| record.get(place)) {
            Some("") => {}
            Some(sum) if sum == of(&columns, &record) => {}
            Some(_) => bail!(
                "{name}, line {line}: damaged or edited, its checksum is another row's; delete the line, or the \
                 checksum alone to keep it"
            ),
            None if record.iter().next_back().is_some_and(is_checksum) => {
                bail!(
                    "{name}, line {line}: ends with a checksum, and no column is named {COLUMN}: the first line is damaged"
                )
            }
            None => {}
        }
        let row = record.deserialize(Some(&columns)).with_context(|| format!("{name}, line {line}"))?;
        rows.push((line, row));
    }
    Ok(Read { columns, rows })
}

fn is_checksum(cell: &str) -> bool {
    cell.len() == DIGITS && cell.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, serde::Deserialize)]
    struct Row {
        name: String,
        watts: Option<f64>,
    }

    fn file(rows: &[[&str; 2]], quote: csv::QuoteStyle) -> String {
        let columns = StringRecord::from(vec!["name", "watts", COLUMN]);
        let mut writer = csv::WriterBuilder::new().quote_style(quote).from_writer(Vec::new());
        writer.write_record(&columns).expect("written");
        for row in rows {
            let sum = of(&columns, &StringRecord::from(row.to_vec()));
            writer.write_record([row[0], row[1], sum.as_str()]).expect("written");
        }
        String::from_utf8(writer.into_inner().expect("bytes")).expect("text")
    }

    fn rows(text: &str) -> Result<Vec<Row>, String> {
        let read = read::<Row>(text.as_bytes(), Path::new("f.csv")).map_err(|e| format!("{e:#}"))?;
        Ok(read.rows.into_iter().map(|(_, row)| row).collect())
    }

    #[test]
    fn a_checksum_is_of_cells_and_not_of_how_they_are_written() {
        let data = [["a, \"b\"", "1.5"], ["c", ""]];
        let plain = file(&data, csv::QuoteStyle::Necessary);
        let expected = rows(&plain);
        assert_eq!(expected.as_ref().map(Vec::len), Ok(2), "{expected:?}");
        assert_eq!(rows(&file(&data, csv::QuoteStyle::Always)), expected);
        assert_eq!(rows(&plain.replace('\n', "\r\n")), expected);
        // Cells that move from one to the next are other cells.
        assert!(rows(&plain.replace("c,,", ",c,")).is_err());
        assert!(rows(&plain.replace("1.5", "1.50")).expect_err("edited").contains("f.csv, line 2: damaged or edited"));
        assert!(rows(&plain.replace("watts", "wbtts")).is_err(), "a column that may be missing has another name");
        assert!(
            rows(&plain.replace("checksum", "chicksum")).expect_err("unnamed").contains("no column is named checksum")
        );
    }

    #[test]
    fn rows_without_a_checksum_are_read() {
        assert_eq!(rows("name,watts\na,1\n").map(|r| r.len()), Ok(1));
        assert_eq!(rows("name,watts,checksum\na,1,\n").map(|r| r.len()), Ok(1), "edited on purpose");
        assert!(rows("name,watts,checksum\na,1,0\n").is_err());
    }
}
