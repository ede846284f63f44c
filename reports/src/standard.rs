//! What is written to standard output and standard error: nobody need be reading.

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
