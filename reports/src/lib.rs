//! Values into bytes: tables, JSON, CSV and Markdown. Nothing is computed here.

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
pub mod plan;
pub mod prediction;
mod record;
pub mod table;
pub mod transfer;

/// A chain of causes in one line, outermost first; what a cause already said is not said again.
pub fn error_line(chain: impl Iterator<Item = String>) -> String {
    let mut line = String::new();
    for cause in chain.map(|c| c.replace(['\n', '\r'], " ")) {
        if line.is_empty() {
            line = cause;
        } else if !line.contains(cause.trim()) {
            line = format!("{line}: {cause}");
        }
    }
    line
}

/// A text cell: quoted where needed, and never a formula for a spreadsheet.
pub fn csv_cell(text: &str) -> String {
    let safe = if text.starts_with(['=', '+', '-', '@', '\t', '\r']) { format!("'{text}") } else { text.to_string() };
    if safe.contains([',', '"', '\n', '\r']) { format!("\"{}\"", safe.replace('"', "\"\"")) } else { safe }
}

/// The command line of a program as it was typed, words quoted where a shell needs it.
pub fn command_line(program: &str) -> String {
    let quoted = |word: String| {
        let plain = word.chars().all(|c| c.is_alphanumeric() || "-_./,:=%+".contains(c)) && !word.is_empty();
        if plain { word } else { format!("'{}'", word.replace('\'', "'\\''")) }
    };
    let words = std::env::args_os().skip(1).map(|w| quoted(w.to_string_lossy().into_owned()));
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
}
