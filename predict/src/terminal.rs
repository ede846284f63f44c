//! Colours, where somebody reads a terminal that has them and NO_COLOR does not forbid it.

use anstream::{AutoStream, ColorChoice};
use anstyle::{AnsiColor, Style};

const HEADER: Style = Style::new().bold();
const RULE: Style = Style::new().dimmed();
const NOTE: Style = AnsiColor::Yellow.on_default();

/// Whether standard output shows colours.
pub fn has_colours() -> bool {
    AutoStream::choice(&std::io::stdout()) != ColorChoice::Never
}

fn is_rule(line: &str) -> bool {
    line.starts_with("--") && line.chars().all(|c| c == '-' || c == ' ')
}

/// Headers of tables bold, the rules under them faint, notes in yellow; the text itself stays.
pub fn paint(text: &str) -> String {
    let lines: Vec<&str> = text.split('\n').collect();
    let style = |i: usize| {
        if is_rule(lines[i]) {
            Some(RULE)
        } else if lines.get(i + 1).is_some_and(|next| is_rule(next)) {
            Some(HEADER)
        } else {
            lines[i].starts_with("note: ").then_some(NOTE)
        }
    };
    let painted = lines.iter().enumerate().map(|(i, line)| match style(i) {
        Some(style) => format!("{style}{line}{style:#}"),
        None => (*line).to_string(),
    });
    painted.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_and_notes_are_painted_and_nothing_else() {
        let text = "title\n\nname  ms\n----  --\na      1\nnote: b\n";
        let painted = paint(text);
        assert_eq!(anstream::adapter::strip_str(&painted).to_string(), text);
        for part in ["\u{1b}[1mname  ms", "\u{1b}[2m----  --", "\u{1b}[33mnote: b", "\na      1\n"] {
            assert!(painted.contains(part), "{painted:?}");
        }
        assert_eq!(paint("{\n  \"a\": -1\n}\n"), "{\n  \"a\": -1\n}\n");
    }
}
