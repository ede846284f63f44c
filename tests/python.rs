//! The Python package: its wheel is built, installed and tested by `predict/python/check.sh`.

use joulecast_tests::{ok, root};
use std::process::Command;

const NAME: &str = "python::the_package_is_tested_from_python";

/// Skipped where there is no Python, or no package index and nothing installed yet.
#[test]
fn the_package_is_tested_from_python() {
    let mut command = Command::new("bash");
    command.arg(root().join("predict/python/check.sh")).arg("dev");
    // What cargo sets for this test is not for the cargo that builds the wheel.
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("CARGO_PKG_") || name == "CARGO_MANIFEST_DIR")
    {
        command.env_remove(name);
    }
    let output = ok(command.output());
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let last = String::from_utf8_lossy(&output.stdout).lines().last().unwrap_or_default().to_string();
    if output.status.code() == Some(77) {
        return joulecast_skipped::skipped(NAME, &last);
    }
    assert!(output.status.success(), "{text}");
    let said = text.lines().rev().find(|line| line.ends_with("skipped") && line.contains(" passed, "));
    println!("{}", said.unwrap_or_else(|| panic!("no count:\n{text}")));
    for line in text.lines().filter_map(|l| l.strip_prefix("SKIPPED ")) {
        joulecast_skipped::skipped("python", line);
    }
}
