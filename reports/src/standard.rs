//! What is written to standard output and standard error, where nobody need be reading, and what was typed.

use joulecast_model::base::text::{printable, shortened};
use std::ffi::OsString;
use std::fmt::Display;
use std::io::{self, Write as _};

/// A line on standard error; nothing where it is closed, on which `eprintln!` would panic.
pub fn say(line: impl Display) {
    let _ = writeln!(io::stderr().lock(), "{line}");
}

/// Bytes on standard output, at once. Whoever closed it has seen enough: that is no error.
///
/// # Errors
/// When it cannot be written for another reason, such as a full disk.
pub fn print(bytes: &[u8]) -> io::Result<()> {
    let mut output = io::stdout().lock();
    match output.write_all(bytes).and_then(|()| output.flush()) {
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}

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

/// The command line of a program with what was typed after its name; words are quoted where a shell needs it. That files may
/// be written over is no part of what makes them.
pub fn command_line(program: &str, typed: impl Iterator<Item = OsString>) -> String {
    let quoted = |word: String| {
        let plain = word.chars().all(|c| c.is_alphanumeric() || "-_./,:=%+".contains(c)) && !word.is_empty();
        if plain { word } else { format!("'{}'", word.replace('\'', "'\\''")) }
    };
    let words = typed.filter(|w| w != "--force").map(|w| quoted(w.to_string_lossy().into_owned()));
    std::iter::once(program.to_string()).chain(words).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
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
    fn a_command_line_is_what_a_shell_would_take() {
        let typed = ["--net", "it's", "--force", "--batch", "1,2", ""].map(Into::into);
        assert_eq!(super::command_line("predict", typed.into_iter()), "predict --net 'it'\\''s' --batch 1,2 ''");
    }
}
