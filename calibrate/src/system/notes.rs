//! What is said beside the results, on standard error. Whether anybody reads it never decides how a run goes on: `eprintln!`
//! would end it where the pipe is closed, while limits are set.

use std::fmt::Display;
use std::io::Write as _;

/// Says a line.
pub fn note(line: impl Display) {
    let _ = writeln!(std::io::stderr(), "{line}");
}
