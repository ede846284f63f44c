//! Workbooks into sheets of cells, in memory that is bounded before it is taken: a file of a kilobyte can claim a cell
//! in the last corner of a sheet, a billion strings, or parts that unpack to terabytes.

use crate::system::quiet::quietly;
use anyhow::{Context, Result, bail};
use calamine::{DataRef, Reader, Xlsx, XlsxError};
use joulecast_import::sheet::{Cell, Sheet};
use std::io::{Cursor, Read as _};
use zip::ZipArchive;

/// DeepBench's largest workbook has a twentieth of each of these, or less.
#[derive(Clone, Copy, Debug)]
struct Limits {
    /// Bytes of the file.
    packed: usize,
    /// Bytes of all parts, unpacked.
    unpacked: u64,
    /// Places of all sheets, from the first row and column to the last cell of each row.
    cells: usize,
    /// Bytes of all text cells: many may share one string.
    text: usize,
}

const LIMITS: Limits = Limits { packed: 4 << 20, unpacked: 16 << 20, cells: 1_000_000, text: 16 << 20 };
/// What a part that lists shared strings says of their number; the reader reserves room for as many.
const COUNT: &[u8] = b"uniqueCount";
/// The shortest element of a list of strings has as many bytes.
const SHORTEST_STRING: usize = 5;

/// The sheets of a workbook, with their cells where the spreadsheet shows them.
///
/// # Errors
/// When it is no workbook, is damaged, or is larger than any published one.
pub fn sheets(bytes: &[u8]) -> Result<Vec<Sheet>> {
    within(bytes, LIMITS)
}

fn within(bytes: &[u8], limits: Limits) -> Result<Vec<Sheet>> {
    if bytes.len() > limits.packed {
        bail!("{} bytes are more than any published workbook has", bytes.len());
    }
    quietly(|| {
        check_parts(bytes, limits.unpacked)?;
        read(bytes, limits)
    })
    .context("the reader of workbooks failed")?
}

/// Unpacks every part once, to see that none is larger than it may be or promises what it does not hold.
fn check_parts(bytes: &[u8], most: u64) -> Result<()> {
    let mut archive = ZipArchive::new(Cursor::new(bytes)).context("not a readable workbook")?;
    let mut left = most;
    let mut part = Vec::new();
    for index in 0..archive.len() {
        let file = archive.by_index(index).with_context(|| format!("part {}", index + 1))?;
        let name = file.name().map_or_else(|_| (index + 1).to_string(), |name| name.into_owned());
        part.clear();
        let read = file.take(left + 1).read_to_end(&mut part).with_context(|| format!("part {name}"))? as u64;
        if read > left {
            bail!("it unpacks to more than {} MiB, more than any published workbook", most >> 20);
        }
        left -= read;
        if let Some(count) = promised_strings(&part).filter(|count| *count > part.len() / SHORTEST_STRING) {
            bail!("part {name} promises {count} strings in {read} bytes");
        }
    }
    Ok(())
}

/// The largest number of shared strings that a part promises. One that does not fit a number is the largest number.
fn promised_strings(part: &[u8]) -> Option<usize> {
    // Without the zeros between letters in two bytes each.
    let part: Vec<u8> = part.iter().copied().filter(|b| *b != 0).collect();
    let places = part.windows(COUNT.len()).enumerate().filter(|(_, window)| *window == COUNT);
    let number = |(at, _): (usize, &[u8])| {
        let digits: Vec<u8> = part[at + COUNT.len()..]
            .iter()
            .copied()
            .skip_while(|b| !b.is_ascii_digit() && !b">/<".contains(b))
            .take_while(u8::is_ascii_digit)
            .collect();
        let text = String::from_utf8(digits).ok().filter(|text| !text.is_empty())?;
        Some(text.parse().unwrap_or(usize::MAX))
    };
    places.filter_map(number).max()
}

fn read(bytes: &[u8], limits: Limits) -> Result<Vec<Sheet>> {
    let mut workbook: Xlsx<_> = Xlsx::new(Cursor::new(bytes)).context("not a readable workbook")?;
    let mut sheets = Vec::new();
    let (mut places, mut text) = (0_usize, 0_usize);
    for name in workbook.sheet_names() {
        let fault = |what: String| format!("sheet {name}: {what}");
        let mut cells = match workbook.worksheet_cells_reader(&name) {
            Ok(cells) => cells,
            // A chart.
            Err(XlsxError::NotAWorksheet(_)) => {
                sheets.push(Sheet { name, rows: Vec::new() });
                continue;
            }
            Err(error) => return Err(error).with_context(|| fault("unreadable".into())),
        };
        let mut rows: Vec<Vec<Cell>> = Vec::new();
        while let Some(found) = cells.next_cell().with_context(|| fault("unreadable".into()))? {
            let (row, column) = (found.get_position().0 as usize, found.get_position().1 as usize);
            let value = match found.get_value() {
                DataRef::Empty => continue,
                other => cell(other),
            };
            if let Cell::Text(string) = &value {
                text += string.len();
                if text > limits.text {
                    bail!(fault(format!("more than {} MiB of text in its cells", limits.text >> 20)));
                }
            }
            // Room for the cell, counted before it is taken.
            let new_rows = (row + 1).saturating_sub(rows.len());
            let new_columns = (column + 1).saturating_sub(rows.get(row).map_or(0, Vec::len));
            places = places.saturating_add(new_rows).saturating_add(new_columns);
            if places > limits.cells {
                bail!(fault(format!(
                    "a cell in row {}, column {} makes it larger than any published workbook",
                    row + 1,
                    column + 1
                )));
            }
            if new_rows > 0 {
                rows.resize(row + 1, Vec::new());
            }
            if let Some(row) = rows.get_mut(row) {
                if new_columns > 0 {
                    row.resize(column + 1, Cell::Empty);
                }
                if let Some(place) = row.get_mut(column) {
                    *place = value;
                }
            }
        }
        sheets.push(Sheet { name, rows });
    }
    Ok(sheets)
}

fn cell(data: &DataRef<'_>) -> Cell {
    match data {
        DataRef::Int(i) => Cell::Number(*i as f64),
        DataRef::Float(f) => Cell::Number(*f),
        DataRef::String(s) => Cell::Text(s.clone()),
        DataRef::SharedString(s) => Cell::Text((*s).to_string()),
        _ => Cell::Empty,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;
    use zip::write::SimpleFileOptions;
    use zip::{CompressionMethod, ZipWriter};

    const TYPES: &str = r#"<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types"/>"#;
    const RELATIONS: &str = r#"<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships"><Relationship Id="r1" Type="http://schemas.openxmlformats.org/officeDocument/2006/relationships/officeDocument" Target="xl/workbook.xml"/></Relationships>"#;
    const BOOK: &str = r#"<workbook xmlns:r="http://schemas.openxmlformats.org/officeDocument/2006/relationships"><sheets><sheet name="S" sheetId="1" r:id="r1"/></sheets></workbook>"#;
    const SHEET: &str = r#"<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships"><Relationship Id="r1" Type="http://schemas.openxmlformats.org/officeDocument/2006/relationships/worksheet" Target="worksheets/sheet1.xml"/></Relationships>"#;

    /// A workbook of one sheet with these cells and shared strings.
    fn workbook(cells: &str, strings: &str, method: CompressionMethod) -> Vec<u8> {
        let mut file = ZipWriter::new(Cursor::new(Vec::new()));
        let sheet = format!("<worksheet><sheetData>{cells}</sheetData></worksheet>");
        for (name, text) in [
            ("[Content_Types].xml", TYPES),
            ("_rels/.rels", RELATIONS),
            ("xl/workbook.xml", BOOK),
            ("xl/_rels/workbook.xml.rels", SHEET),
            ("xl/sharedStrings.xml", strings),
            ("xl/worksheets/sheet1.xml", &sheet),
        ] {
            file.start_file(name, SimpleFileOptions::default().compression_method(method)).expect("a part");
            file.write_all(text.as_bytes()).expect("written");
        }
        file.finish().expect("a workbook").into_inner()
    }

    fn of(cells: &str) -> Vec<u8> {
        workbook(cells, r#"<sst uniqueCount="1"><si><t>abc</t></si></sst>"#, CompressionMethod::Deflated)
    }

    fn refused(bytes: &[u8], expected: &str) {
        let error = format!("{:#}", sheets(bytes).map(|_| ()).expect_err(expected));
        assert!(error.contains(expected) && error.lines().count() == 1, "{error}");
    }

    #[test]
    fn cells_stand_where_the_spreadsheet_shows_them() {
        let cells = concat!(
            r#"<row r="2"><c r="B2"><v>1.5</v></c><c r="D2" t="s"><v>0</v></c></row>"#,
            r#"<row r="4"><c r="A4" t="inlineStr"><is><t>x</t></is></c><c r="B4"/><c r="A4"><v>2</v></c></row>"#,
            r##"<row r="6"><c r="C6" t="e"><v>#N/A</v></c><c r="B6" t="b"><v>1</v></c></row>"##,
        );
        let found = sheets(&of(cells)).expect("a workbook");
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].name.as_str(), found[0].rows.len()), ("S", 6));
        let empty = Cell::Empty;
        assert_eq!(found[0].rows[0], []);
        assert_eq!(found[0].rows[1], [empty.clone(), Cell::Number(1.5), empty, Cell::Text("abc".into())]);
        assert_eq!(found[0].rows[3], [Cell::Number(2.0)], "the last of a place counts");
        assert!(found[0].rows[5].iter().all(|c| *c == Cell::Empty), "neither errors nor truth values are cells");
    }

    #[test]
    fn a_cell_in_the_last_corner_is_refused_before_there_is_room_for_it() {
        let far = of(r#"<row r="1"><c r="A1"><v>1</v></c></row><row r="1048576"><c r="XFD1048576"><v>1</v></c></row>"#);
        assert!(far.len() < 2000, "{}", far.len());
        refused(&far, "sheet S: a cell in row 1048576, column 16384 makes it larger than any published workbook");
        let wide: String =
            (1..=200).map(|row| format!(r#"<row r="{row}"><c r="XFD{row}"><v>1</v></c></row>"#)).collect();
        refused(&of(&wide), "row 62, column 16384 makes it larger than any published workbook");
    }

    #[test]
    fn a_place_that_is_given_often_is_one_place() {
        let cells = r#"<c r="C3"><v>7</v></c>"#.repeat(300_000);
        let found = sheets(&of(&format!(r#"<row r="3">{cells}</row>"#))).expect("a workbook");
        assert_eq!(found[0].rows.iter().map(Vec::len).sum::<usize>(), 3);
    }

    #[test]
    fn text_that_cells_share_counts_for_each() {
        let strings = format!(r#"<sst uniqueCount="1"><si><t>{}</t></si></sst>"#, "x".repeat(1 << 20));
        let cells: String =
            (1..=200).map(|row| format!(r#"<row r="{row}"><c r="A{row}" t="s"><v>0</v></c></row>"#)).collect();
        refused(&workbook(&cells, &strings, CompressionMethod::Deflated), "more than 16 MiB of text");
    }

    #[test]
    fn strings_that_are_promised_and_not_there_take_no_room() {
        for count in ["100000000000", "99999999999999999999999999", " 4000000000 "] {
            let strings = format!(r#"<sst count="1" uniqueCount = "{count}"><si><t>abc</t></si></sst>"#);
            let promising = workbook(r#"<row r="1"><c r="A1"><v>1</v></c></row>"#, &strings, CompressionMethod::Stored);
            refused(&promising, "xl/sharedStrings.xml promises");
            let wide: Vec<u8> = strings.encode_utf16().flat_map(u16::to_le_bytes).collect();
            assert!(promised_strings(&wide).is_some_and(|n| n >= 4_000_000_000));
        }
    }

    #[test]
    fn a_part_that_unpacks_without_end_is_refused() {
        let bomb = of(&" ".repeat(17 << 20));
        assert!(bomb.len() < 200_000, "{}", bomb.len());
        refused(&bomb, "unpacks to more than 16 MiB");
        refused(&vec![0; (4 << 20) + 1], "more than any published workbook has");
        // Parts count together.
        let small = Limits { unpacked: 600, ..LIMITS };
        let error = within(&of(""), small).err().map(|e| e.to_string()).unwrap_or_default();
        assert!(error.contains("unpacks to more"), "{error}");
    }

    #[test]
    fn attributes_in_one_tag_take_time_in_proportion() {
        // A library that compares each with each needs minutes for these in a test's build.
        let attributes: String = (0..300_000).map(|i| format!(" a{i}=\"\"")).collect();
        let cells = format!(r#"<row r="1"><c{attributes} r="A1"><v>3</v></c></row>"#);
        assert_eq!(sheets(&of(&cells)).expect("a workbook")[0].rows[0], [Cell::Number(3.0)]);
    }

    #[test]
    fn what_is_cut_or_is_no_workbook_is_one_line() {
        let whole = of(r#"<row r="1"><c r="A1"><v>1</v></c></row>"#);
        for end in (0..whole.len()).step_by(37) {
            let error = sheets(&whole[..end]).map(|_| ()).expect_err("cut");
            assert_eq!(format!("{error:#}").lines().count(), 1);
        }
        let unended = workbook("", "<sst", CompressionMethod::Stored);
        assert!(sheets(&unended).is_err());
    }
}
