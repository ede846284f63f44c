//! The Debian package as somebody installs it: program, manual pages, completions, notices.

mod program;

use joulecast_documents::root;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

fn has(tool: &str) -> bool {
    Command::new(tool).arg("--version").output().is_ok_and(|output| output.status.success())
}

fn works(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    output
}

fn has_files(folder: &Path, files: &[&str]) {
    for file in files {
        let path = folder.join(file);
        assert!(fs::metadata(&path).is_ok_and(|found| found.len() > 100), "{}", path.display());
    }
}

#[test]
fn a_debian_package_holds_a_program_that_predicts() {
    if !has("dpkg-deb") || !has("dpkg") {
        return joulecast_skipped::skipped("a_debian_package_holds_a_program_that_predicts", "no dpkg-deb");
    }
    let folder = tempfile::tempdir().expect("a folder");
    let (package, installed) = (folder.path().join("joulecast.deb"), folder.path().join("root"));
    let program = env!("CARGO_BIN_EXE_predict");
    let mut make = Command::new("bash");
    works(make.env("COMPRESSION", "none").arg(root().join("packaging/deb.sh")).arg(program).arg(&package));
    works(Command::new("dpkg-deb").arg("-x").arg(&package).arg(&installed));
    let mut command = Command::new(installed.join("usr/bin/predict"));
    command.args(["--net", "vgg16", "--gpu", "v100", "--batch", "64"]).current_dir(folder.path());
    let (there, here) = (works(&mut command), works(program::predict().args(command.get_args())));
    assert_eq!(there.stdout, here.stdout);
    has_files(
        &installed.join("usr/share"),
        &[
            "man/man1/predict.1.gz",
            "man/man1/predict-compare.1.gz",
            "man/man1/predict-serve.1.gz",
            "bash-completion/completions/predict",
            "zsh/vendor-completions/_predict",
            "fish/vendor_completions.d/predict.fish",
            "doc/joulecast/THIRD-PARTY.txt",
            "doc/joulecast/copyright",
            "doc/joulecast/LICENSE-MIT",
        ],
    );
}

/// As man shows them; what a page says is what the program says.
#[test]
fn manual_pages_can_be_read() {
    if !has("groff") {
        return joulecast_skipped::skipped("manual_pages_can_be_read", "no groff");
    }
    let folder = tempfile::tempdir().expect("a folder");
    works(
        Command::new("bash").arg(root().join("packaging/man.sh")).arg(env!("CARGO_BIN_EXE_predict")).arg(folder.path()),
    );
    let pages: Vec<_> = fs::read_dir(folder.path()).expect("a folder").flatten().map(|entry| entry.path()).collect();
    assert!(pages.len() > 8, "{pages:?}");
    for page in pages {
        let mut command = Command::new("groff");
        let shown = works(command.args(["-man", "-Tutf8", "-Kutf8", "-P-cbou"]).arg(&page));
        let (shown, said) = (String::from_utf8_lossy(&shown.stdout), String::from_utf8_lossy(&shown.stderr));
        assert!(shown.contains("Usage: predict") && shown.contains("--help"), "{}: {shown}", page.display());
        assert!(said.is_empty(), "{}: {said}", page.display());
    }
}
