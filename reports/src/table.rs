//! Aligned text tables and their Markdown and CSV forms.

use crate::markup::escape;
use crate::markup::markdown_text;
use std::fmt::Write as _;

/// A longer text takes several lines of a page.
const LONG: usize = 36;
/// In the first column, which stays where it is when others are moved.
const LONG_NAME: usize = 24;

/// A column of a table: its name, what it shows of a value, and whether that is text or a number.
pub struct Column<R> {
    name: &'static str,
    cell: fn(&R) -> String,
    text: bool,
}

impl<R> Column<R> {
    /// Text, aligned to the left.
    pub const fn text(name: &'static str, cell: fn(&R) -> String) -> Self {
        Self { name, cell, text: true }
    }

    /// A number, aligned to the right.
    pub const fn number(name: &'static str, cell: fn(&R) -> String) -> Self {
        Self { name, cell, text: false }
    }
}

/// A value that is a row of a table.
pub trait Row: Sized + 'static {
    /// What is shown of it.
    const COLUMNS: &'static [Column<Self>];
}

/// A table of text cells.
#[derive(Clone, Debug, Default)]
pub struct Table {
    header: Vec<String>,
    /// All cells, row by row, a line each, in one text: thousands of rows would be tens of thousands of short ones.
    cells: String,
    /// By column.
    text: Vec<bool>,
}

impl Table {
    /// A table with these columns, of which the first `text_columns` hold text (left-aligned), the others numbers.
    pub fn new(header: &[&str], text_columns: usize) -> Self {
        let text = (0..header.len()).map(|i| i < text_columns).collect();
        Self { header: header.iter().map(|h| h.to_string()).collect(), text, ..Self::default() }
    }

    /// A row per value.
    pub fn of<'a, R: Row + 'a>(values: impl IntoIterator<Item = &'a R>) -> Self {
        let header = R::COLUMNS.iter().map(|c| c.name.to_string()).collect();
        let mut table = Self { header, text: R::COLUMNS.iter().map(|c| c.text).collect(), ..Self::default() };
        values.into_iter().for_each(|value| table.row(R::COLUMNS.iter().map(|c| (c.cell)(value)).collect()));
        table
    }

    /// The last `count` columns hold text, too.
    pub fn with_trailing_text(mut self, count: usize) -> Self {
        self.text.iter_mut().rev().take(count).for_each(|text| *text = true);
        self
    }

    /// Appends a row; missing cells are empty, none is of several lines.
    pub fn row(&mut self, cells: Vec<String>) {
        for i in 0..self.header.len() {
            let cell = cells.get(i).map_or("", String::as_str);
            self.cells.extend(cell.chars().map(|c| if c == '\n' { ' ' } else { c }));
            self.cells.push('\n');
        }
    }

    /// Whether it has no rows.
    pub fn is_empty(&self) -> bool {
        self.cells.is_empty()
    }

    /// The cells of each row.
    fn rows(&self) -> impl Iterator<Item = Vec<&str>> {
        let mut cells = self.cells.split_terminator('\n');
        std::iter::from_fn(move || {
            let row: Vec<&str> = cells.by_ref().take(self.header.len()).collect();
            (!row.is_empty()).then_some(row)
        })
    }

    fn heads(&self) -> Vec<&str> {
        self.header.iter().map(String::as_str).collect()
    }

    fn widths(&self) -> Vec<usize> {
        let mut widths = vec![0; self.header.len()];
        for row in std::iter::once(self.heads()).chain(self.rows()) {
            widths.iter_mut().zip(row).for_each(|(width, cell)| *width = cell.chars().count().max(*width));
        }
        widths
    }

    /// Aligned columns, two spaces apart, with a rule under the header.
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        self.append_text(&mut text);
        text
    }

    /// The same behind what a text says already.
    pub(crate) fn append_text(&self, text: &mut String) {
        let widths = self.widths();
        let rule: Vec<String> = widths.iter().map(|w| "-".repeat(*w)).collect();
        let rule = rule.iter().map(String::as_str).collect();
        for row in [self.heads(), rule].into_iter().chain(self.rows()) {
            let start = text.len();
            for (i, (cell, &width)) in row.into_iter().zip(&widths).enumerate() {
                let gap = if i == 0 { "" } else { "  " };
                let _ = match self.text[i] {
                    true => write!(text, "{gap}{cell:<width$}"),
                    false => write!(text, "{gap}{cell:>width$}"),
                };
            }
            text.truncate(start + text[start..].trim_end().len());
            text.push('\n');
        }
    }

    /// An HTML table, its numbers aligned to the right.
    pub fn to_html(&self) -> String {
        let line = |tag: &str, cells: Vec<&str>| {
            let cell = |(i, cell): (usize, &str)| match (self.text[i], tag) {
                (true, "th") => format!("<th scope=\"col\">{}</th>", escape(cell)),
                (false, "th") => format!("<th scope=\"col\" class=\"number\">{}</th>", escape(cell)),
                (true, _) if cell.chars().count() > if i == 0 { LONG_NAME } else { LONG } => {
                    format!("<td class=\"long\">{}</td>", escape(cell))
                }
                (text, _) => {
                    let shown = if text { cell.to_string() } else { thousands(cell) };
                    let (inside, pair) = parted(&shown);
                    let classes = [(!text).then_some("number"), pair.then_some("pair")];
                    match classes.into_iter().flatten().collect::<Vec<_>>().join(" ").as_str() {
                        "" => format!("<td>{inside}</td>"),
                        classes => format!("<td class=\"{classes}\">{inside}</td>"),
                    }
                }
            };
            format!("<tr>{}</tr>\n", cells.into_iter().enumerate().map(cell).collect::<String>())
        };
        let rows: String = self.rows().map(|row| line("td", row)).collect();
        format!("<table>\n<thead>{}</thead>\n<tbody>\n{rows}</tbody>\n</table>\n", line("th", self.heads()))
    }

    /// A Markdown table.
    pub fn to_markdown(&self) -> String {
        let line = |cells: Vec<&str>| {
            let cells = cells.into_iter().map(|c| markdown_text(c).replace('|', "\\|"));
            format!("| {} |\n", cells.collect::<Vec<_>>().join(" | "))
        };
        let rule = self.text.iter().map(|text| if *text { "---" } else { "---:" }).collect();
        let mut text = line(self.heads()) + &line(rule);
        self.rows().for_each(|row| text += &line(row));
        text
    }
}

/// A cell's text within HTML, and whether it is a value with its interval, or an interval: where a table is wider than its page,
/// these take two lines, and break nowhere else.
fn parted(cell: &str) -> (String, bool) {
    let at = cell.find(" (").or_else(|| cell.find(" to ")).filter(|_| cell.starts_with(|c: char| c.is_ascii_digit()));
    match at {
        Some(at) => {
            let (first, rest) = cell.split_at(at);
            (format!("<span>{}</span> <span>{}</span>", escape(first), escape(rest.trim_start())), true)
        }
        None => (escape(cell), false),
    }
}

/// Text with the thousands of whole numbers of five digits and more marked by commas: `45700` is `45,700`. Digits that belong to
/// a name, a fraction or an exponent stay as they are.
pub fn thousands(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut marked = String::with_capacity(text.len() + 4);
    let mut i = 0;
    while i < text.len() {
        let run = bytes[i..].iter().take_while(|b| b.is_ascii_digit()).count();
        if run == 0 {
            let next = text[i..].chars().next().map_or(1, char::len_utf8);
            marked.push_str(&text[i..i + next]);
            i += next;
            continue;
        }
        let before = i.checked_sub(1).map(|b| bytes[b]);
        let named = |b: u8| b.is_ascii_alphanumeric() || b"_.,:/".contains(&b) || !b.is_ascii();
        let after = bytes.get(i + run).is_some_and(|b| b.is_ascii_alphanumeric() || *b == b'_');
        let alone = !before.is_some_and(named) && !after;
        for (at, digit) in text[i..i + run].char_indices() {
            if alone && run >= 5 && at > 0 && (run - at) % 3 == 0 {
                marked.push(',');
            }
            marked.push(digit);
        }
        i += run;
    }
    marked
}

/// A number with so many significant digits, without exponent where it is readable.
pub fn significant(value: f64, digits: usize) -> String {
    if value == 0.0 || !value.is_finite() {
        return format!("{value}");
    }
    let magnitude = value.abs().log10().floor() as i64;
    let decimals = (digits as i64 - 1 - magnitude).max(0) as usize;
    format!("{value:.decimals$}")
}

/// A ratio's distance from 1 in percent, with its sign; nothing is less than nothing.
pub fn percent_more(ratio: f64) -> String {
    let text = format!("{:+.1}", 100.0 * (ratio - 1.0));
    if text == "-0.0" { "+0.0".into() } else { text }
}

/// A number with a decimal prefix and its unit: `12.3 ms`.
pub fn with_unit(value: f64, unit: &str) -> String {
    const PREFIXES: [(f64, &str); 8] =
        [(1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""), (1e-3, "m"), (1e-6, "u")];
    if value == 0.0 {
        return format!("0 {unit}");
    }
    let rounded: f64 = format!("{value:.2e}").parse().unwrap_or(value);
    let (factor, prefix) = PREFIXES.iter().copied().find(|(f, _)| rounded.abs() >= *f).unwrap_or((1e-9, "n"));
    format!("{} {prefix}{unit}", significant(rounded / factor, 3))
}

/// Both ends of an interval with their units: `12.3 ms to 1.05 s`.
pub fn interval(low: f64, high: f64, unit: &str) -> String {
    format!("{} to {}", with_unit(low, unit), with_unit(high, unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let mut table = Table::new(&["name", "ms"], 1);
        table.row(vec!["conv1".into(), "1.5".into()]);
        table.row(vec!["a".into(), "12.25".into()]);
        assert_eq!(table.to_text(), "name      ms\n-----  -----\nconv1    1.5\na      12.25\n");
        let row = "<tr><td>conv1</td><td class=\"number\">1.5</td></tr>";
        assert!(table.to_html().contains(row), "{}", table.to_html());
        assert_eq!(table.to_markdown(), "| name | ms |\n| --- | ---: |\n| conv1 | 1.5 |\n| a | 12.25 |\n");
    }

    #[test]
    fn a_cell_is_one_line_and_a_missing_one_empty() {
        let mut table = Table::new(&["name", "ms", "note"], 1).with_trailing_text(1);
        table.row(vec!["conv\n1".into(), String::new(), "b\r".into()]);
        table.row(vec!["a".into()]);
        assert_eq!(table.to_text(), "name    ms  note\n------  --  ----\nconv 1      b\na\n");
        assert_eq!(table.rows().map(|row| row.len()).collect::<Vec<_>>(), [3, 3]);
    }

    #[test]
    fn trailing_text_is_left_aligned() {
        let mut table = Table::new(&["n", "title"], 0).with_trailing_text(1);
        table.row(vec!["12".into(), "a".into()]);
        assert_eq!(table.to_text(), " n  title\n--  -----\n12  a\n");
        assert!(table.to_markdown().contains("| ---: | --- |"));
    }

    #[test]
    fn thousands_are_marked_in_numbers_alone() {
        for (text, expected) in [
            ("45700 (10000 to 123000)", "45,700 (10,000 to 123,000)"),
            ("1410", "1410"),
            ("524000000 EUR", "524,000,000 EUR"),
            ("-12345 %", "-12,345 %"),
            ("12345.6 of 0.123456", "12,345.6 of 0.123456"),
            ("gpt-j-123456x, v100000, 2026-11-25, 1,000,000", "gpt-j-123456x, v100000, 2026-11-25, 1,000,000"),
            ("µ12345 → 54321", "µ12345 → 54,321"),
        ] {
            assert_eq!(thousands(text), expected);
        }
    }

    #[test]
    fn numbers_keep_three_digits() {
        assert_eq!(with_unit(0.0123456, "s"), "12.3 ms");
        assert_eq!(with_unit(15.47e9, "op"), "15.5 Gop");
        assert_eq!(with_unit(999.9, "W"), "1.00 kW");
        assert_eq!(with_unit(0.0, "J"), "0 J");
        assert_eq!(significant(1234.5, 3), "1234");
        assert_eq!(
            (percent_more(1.1), percent_more(0.99999), percent_more(0.5)),
            ("+10.0".into(), "+0.0".into(), "-50.0".into())
        );
    }
}
