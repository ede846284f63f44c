//! The program as tests run it: whatever the home of who runs them holds.

use std::process::Command;

/// `predict`, whose user keeps no file.
pub fn predict() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_predict"));
    command.env("XDG_CONFIG_HOME", concat!(env!("CARGO_TARGET_TMPDIR"), "/no-configuration"));
    command
}
