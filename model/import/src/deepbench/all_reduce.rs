//! The all-reduce tables of DeepBench's workbooks: sums over several GPUs, the fastest of three libraries.

use super::super::sheet::{Cell, Sheet};
use super::super::{ImportError, count, seconds};
use joulecast_model::base::units::{Bytes, Seconds};

/// Bytes of a number that is summed.
const FLOAT: u64 = 4;
/// What an all-reduce table begins with, in column A.
const TITLE: &str = "All-Reduce";
const SIZE: &str = "size # floats";
const GPUS: &str = "# chips / accelerator cards";
const NODES: &str = "# nodes";
const TIME: &str = "mean all reduce time (msec)";
/// The column of nodes, whose header is empty in some workbooks, is right of that of cards.
const AFTER_GPUS: usize = 1;

/// A measured all-reduce.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AllReduce {
    /// GPUs that take part.
    pub gpus: u64,
    /// Machines that they are in.
    pub nodes: u64,
    /// Bytes that each GPU gives.
    pub bytes: Bytes,
    /// Mean time.
    pub time: Seconds,
}

/// The all-reduces of a workbook's sheets; none where they have no such table.
///
/// # Errors
/// When a table lacks a column or a row of it is malformed.
pub fn all_reduces(file: &str, sheets: &[Sheet]) -> Result<Vec<AllReduce>, ImportError> {
    let mut list = Vec::new();
    for sheet in sheets {
        let fault = |row: usize, what: String| ImportError::Sheet {
            file: file.to_string(),
            sheet: sheet.name.clone(),
            row: row + 1,
            what,
        };
        let titled = |row: &Vec<Cell>| row.first().and_then(Cell::text) == Some(TITLE);
        let Some(header_row) = sheet.rows.iter().position(titled) else { continue };
        let header = &sheet.rows[header_row];
        let column = |name: &str| header.iter().position(|c| c.text().is_some_and(|t| t.eq_ignore_ascii_case(name)));
        let need = |name: &str| column(name).ok_or_else(|| fault(header_row, format!("no column \"{name}\"")));
        let (size, gpus, time) = (need(SIZE)?, need(GPUS)?, need(TIME)?);
        let nodes = column(NODES).unwrap_or(gpus + AFTER_GPUS);
        for (i, row) in sheet.rows.iter().enumerate().skip(header_row + 1) {
            if row.first().and_then(Cell::text).is_some() {
                break;
            }
            let number = |column: usize| row.get(column).and_then(Cell::number);
            let (Some(floats), Some(cards), Some(ms)) = (number(size), number(gpus), number(time)) else { continue };
            let whole = |what: &str, value: f64| {
                count(value).ok_or_else(|| fault(i, format!("{what}: {value} is not a whole number from 1")))
            };
            list.push(AllReduce {
                gpus: whole("cards", cards)?,
                nodes: number(nodes).map_or(Ok(1), |n| whole("nodes", n))?,
                bytes: Bytes::new(whole("floats", floats)? * FLOAT),
                time: Seconds::new(seconds(ms, 1e-3).ok_or_else(|| fault(i, format!("{ms} ms is not a time")))?),
            });
        }
    }
    Ok(list)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sheet(rows: &[&[&str]]) -> Sheet {
        let cell = |text: &&str| match text.parse() {
            Ok(number) => Cell::Number(number),
            Err(_) if text.is_empty() => Cell::Empty,
            Err(_) => Cell::Text(text.to_string()),
        };
        Sheet { name: "Results".into(), rows: rows.iter().map(|row| row.iter().map(cell).collect()).collect() }
    }

    const HEADER: &[&str] =
        &["All-Reduce", "", "Size # floats", "# chips / accelerator cards", "", "", "Mean All Reduce Time (msec)"];

    #[test]
    fn rows_below_the_title_are_read_up_to_the_next_table() {
        let rows: &[&[&str]] = &[
            &["Convolution", "", "9"],
            HEADER,
            &[],
            &["", "", "100000", "2", "", "", "0.1"],
            &["", "", "100000", "16", "2", "", "0.4"],
            &["", "", "100000", "32", "4", "", ""],
            &["Next", "", "1", "2", "", "", "3"],
        ];
        let found = all_reduces("x.xlsx", &[sheet(rows)]).expect("readable");
        assert_eq!(found.len(), 2);
        assert_eq!((found[0].gpus, found[0].nodes, found[0].bytes.get()), (2, 1, 400_000));
        assert_eq!((found[1].nodes, found[1].time), (2, Seconds::from_ms(0.4)));
        assert!(all_reduces("x.xlsx", &[sheet(&[&["Convolution"]])]).expect("readable").is_empty());
    }

    #[test]
    fn what_is_malformed_names_its_row() {
        for (rows, expected) in [
            (vec![&["All-Reduce", "", "Size # floats"][..]], "row 1: no column \"# chips"),
            (vec![HEADER, &["", "", "1.5", "2", "", "", "0.1"]], "row 2: floats: 1.5"),
            (vec![HEADER, &["", "", "15", "2", "", "", "-1"]], "row 2: -1 ms"),
        ] {
            let error = all_reduces("x.xlsx", &[sheet(&rows)]).expect_err("malformed").to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
