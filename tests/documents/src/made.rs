//! Parts of a document that are made: between `<!-- made: WHAT -->` and `<!-- /made -->` stands what WHAT gives. A test
//! compares; with `UPDATE_GOLDEN=1` it writes what is made now in place.

use crate::{files, text};
use std::fs;
use std::path::Path;

/// At the beginning of a line.
const BEGIN: &str = "\n<!-- made: ";
const END: &str = "<!-- /made -->";

/// A text with every part that `make` knows made anew; parts that it gives nothing for stay.
///
/// # Panics
///
/// Where a part does not end.
pub fn again(text: &str, mut make: impl FnMut(&str) -> Option<String>) -> String {
    let mut result = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(BEGIN) {
        let (what, behind) = after.split_once(" -->\n").unwrap_or_else(|| panic!("{after}: the mark does not end"));
        let (was, behind) = behind.split_once(END).unwrap_or_else(|| panic!("{what}: the part does not end"));
        let now = make(what).map(|now| format!("{}\n", now.trim_end_matches('\n')));
        result += &format!("{before}{BEGIN}{what} -->\n{}{END}", now.as_deref().unwrap_or(was));
        rest = behind;
    }
    result + rest
}

/// Compares made parts of all Markdown files with what is made now, or writes it where `UPDATE_GOLDEN` is set. Returns how
/// many parts `make` knew.
///
/// # Panics
///
/// Where a part is not what is made now.
pub fn check(root: &Path, mut make: impl FnMut(&str) -> Option<String>) -> usize {
    let (mut known, mut stale) = (0, Vec::new());
    for file in files(root) {
        let was = text(root, &file);
        if !was.contains(BEGIN) {
            continue;
        }
        let now = again(&was, |what| {
            let made = make(what);
            known += usize::from(made.is_some());
            made
        });
        if now == was {
            continue;
        }
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            fs::write(root.join(&file), &now).unwrap_or_else(|e| panic!("{file}: {e}"));
        } else {
            let first = was.lines().zip(now.lines()).find(|(a, b)| a != b);
            stale.push(format!("{file}: {first:?}"));
        }
    }
    assert!(stale.is_empty(), "made anew with UPDATE_GOLDEN=1; the first lines that differ:\n{}", stale.join("\n"));
    known
}

/// Rows of the first table behind a heading (or of the text's first table without one): cells, the head first, the line of
/// dashes left out.
#[must_use]
pub fn table(text: &str, heading: &str) -> Vec<Vec<String>> {
    let from = if heading.is_empty() { Some(0) } else { text.find(&format!("\n{heading}\n")) };
    let lines = text[from.unwrap_or(text.len())..].lines();
    let rows = lines.skip_while(|line| !line.starts_with('|')).take_while(|line| line.starts_with('|'));
    let cells = |line: &str| line.trim_matches('|').split('|').map(|cell| cell.trim().to_string()).collect();
    rows.filter(|line| !line.starts_with("| ---") && !line.starts_with("|---")).map(cells).collect()
}

/// A table as Markdown; columns are to the right where `right` holds.
#[must_use]
pub fn markdown(head: &[&str], right: impl Fn(usize) -> bool, rows: &[Vec<String>]) -> String {
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let head: Vec<String> = head.iter().map(|cell| (*cell).to_string()).collect();
    let dashes: Vec<String> = (0..head.len()).map(|i| if right(i) { "---:" } else { "---" }.to_string()).collect();
    line(&head) + &line(&dashes) + &rows.iter().map(|row| line(row)).collect::<String>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_is_made_again() {
        let text = "a\n<!-- made: x -->\nold\n<!-- /made -->\n<!-- made: y -->\nold\n<!-- /made -->\nb";
        let now = again(text, |what| (what == "x").then(|| "new".to_string()));
        assert_eq!(now, text.replacen("old", "new", 1));
    }

    #[test]
    fn a_table_is_read_and_written() {
        let text = "# A\n\n| a | b |\n| --- | ---: |\n| 1 | 2 |\n\n## B\n\n| c |\n|---|\n| 3 |\n";
        assert_eq!(table(text, "## B"), [["c"], ["3"]]);
        let rows = table(text, "");
        assert_eq!(rows, [["a", "b"], ["1", "2"]]);
        assert!(text.contains(&markdown(&["a", "b"], |i| i == 1, &rows[1..])));
    }
}
