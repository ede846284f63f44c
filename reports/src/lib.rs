//! Values into bytes: tables, JSON, CSV and Markdown, and bytes into files. Nothing is computed here.

pub mod accuracy;
pub mod calibration;
pub mod compare;
pub mod describe;
pub mod document;
pub mod exit;
pub mod figure;
pub mod generation;
pub mod optimum;
pub mod papers;
pub mod fleet;
pub mod prediction;
mod record;
mod standard;
pub mod table;
pub mod transfer;
pub mod warnings;
pub mod whole;

pub use standard::{print, say};

use joulecast_model::base::text::{printable, shortened};

/// Characters of an error's line: what files hold at length is not repeated at length.
const LONGEST_ERROR: usize = 300;

/// A chain of causes in one line, outermost first; what a cause already said is not said again. Without what would change a
/// terminal, and of a long one the middle is left out: where it is and what to do stand at its ends.
pub fn error_line(chain: impl Iterator<Item = String>) -> String {
    let mut line = String::new();
    for cause in chain.map(|c| printable(&c)) {
        if line.is_empty() {
            line = cause;
        } else if !line.contains(cause.trim()) {
            line = format!("{line}: {cause}");
        }
    }
    shortened(&line, LONGEST_ERROR)
}

/// Text within Markdown that is neither HTML nor a link there, whatever it holds: names that were typed, sources.
pub fn markdown_text(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    let mut before = ' ';
    for (i, c) in text.char_indices() {
        let next = text[i + c.len_utf8()..].chars().next();
        match c {
            '<' if next.is_some_and(|n| n.is_ascii_alphabetic() || "/!?".contains(n)) => safe.push_str("&lt;"),
            '(' | '[' if before == ']' => safe.extend(['\\', c]),
            c => safe.push(c),
        }
        before = c;
    }
    safe
}

/// A text cell: quoted where needed, and never a formula for a spreadsheet.
pub fn csv_cell(text: &str) -> String {
    let safe = if text.starts_with(['=', '+', '-', '@', '\t', '\r']) { format!("'{text}") } else { text.to_string() };
    if safe.contains([',', '"', '\n', '\r']) { format!("\"{}\"", safe.replace('"', "\"\"")) } else { safe }
}

/// The command line of a program as it was typed, words quoted where a shell needs it. That files may be written over
/// is no part of what makes them.
pub fn command_line(program: &str) -> String {
    let quoted = |word: String| {
        let plain = word.chars().all(|c| c.is_alphanumeric() || "-_./,:=%+".contains(c)) && !word.is_empty();
        if plain { word } else { format!("'{}'", word.replace('\'', "'\\''")) }
    };
    let words =
        std::env::args_os().skip(1).filter(|w| w != "--force").map(|w| quoted(w.to_string_lossy().into_owned()));
    std::iter::once(program.to_string()).chain(words).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::csv_cell;

    #[test]
    fn a_cell_is_never_a_formula() {
        assert_eq!(csv_cell("=1+1"), "'=1+1");
        assert_eq!(csv_cell("a,b"), "\"a,b\"");
        assert_eq!(csv_cell("say \"x\""), "\"say \"\"x\"\"\"");
        assert_eq!(csv_cell("plain"), "plain");
    }

    #[test]
    fn a_cause_is_said_once() {
        let chain = ["net.toml: layer a: too small", "too small", "disk\nfull"].map(String::from);
        assert_eq!(super::error_line(chain.into_iter()), "net.toml: layer a: too small: disk full");
    }

    #[test]
    fn an_error_is_short_and_changes_no_terminal() {
        let long = ["a.toml: \u{1b}[2J".to_string(), format!("{}; did you mean \"b\"?", "x".repeat(100_000))];
        let line = super::error_line(long.into_iter());
        assert_eq!(line.chars().count(), 300);
        assert!(line.starts_with("a.toml:  [2J: xxx") && line.ends_with("x; did you mean \"b\"?"), "{line}");
    }

    #[test]
    fn text_in_markdown_is_text() {
        for (text, expected) in [
            ("a < b, 2 * 3, `c` and [d]", "a < b, 2 * 3, `c` and [d]"),
            ("<script>x</script><!-- y", "&lt;script>x&lt;/script>&lt;!-- y"),
            ("![a](javascript:b) [c][d]", "![a]\\(javascript:b) [c]\\[d]"),
        ] {
            assert_eq!(super::markdown_text(text), expected);
        }
    }
}
