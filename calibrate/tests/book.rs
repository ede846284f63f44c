//! Every `calibrate` command of the book that needs no GPU works as it is written.

use joulecast_documents::{for_users, markdown, root, text};
use std::fs;
use std::process::Command;

#[test]
fn every_command_works_as_written() {
    let mut run = 0;
    for file in for_users(&root()) {
        let folder = tempfile::tempdir().expect("a folder");
        let plan = "data/plans/choices.toml";
        fs::create_dir_all(folder.path().join("data/plans")).expect("a folder");
        fs::copy(root().join(plan), folder.path().join(plan)).expect("a copy");
        for command in markdown::commands(&text(&root(), &file)) {
            let Some(rest) = command.text.strip_prefix("calibrate ").filter(|_| command.norun.is_none()) else {
                continue;
            };
            let arguments = rest.split_whitespace();
            let output = Command::new(env!("CARGO_BIN_EXE_calibrate"))
                .args(arguments)
                .current_dir(folder.path())
                .output()
                .expect("calibrate starts");
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{file}:{}: {}: {said}", command.line, command.text);
            run += 1;
        }
    }
    assert!(run >= 3, "{run}");
}
