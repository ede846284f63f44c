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

/// The commit that a build script finds, in the ways that a program is built: it is run as cargo runs it.
#[test]
fn the_commit_is_found_without_git() {
    let folder = tempfile::tempdir().expect("a folder");
    let script = folder.path().join("script");
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let built = Command::new(rustc)
        .args(["--edition", "2024", "-o"])
        .arg(&script)
        .arg(root().join("predict/build.rs"))
        .output();
    let Ok(built) = built else {
        return joulecast_skipped::skipped("the_commit_is_found_without_git", "no rustc");
    };
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let said = |crate_folder: &Path, level: &str, given: Option<&str>| {
        let mut command = Command::new(&script);
        command.env("CARGO_MANIFEST_DIR", crate_folder).env("OPT_LEVEL", level).env_remove("JOULECAST_COMMIT");
        given.map(|commit| command.env("JOULECAST_COMMIT", commit));
        let output = String::from_utf8(works(&mut command).stdout).expect("UTF-8");
        let commit = output.lines().find_map(|line| line.strip_prefix("cargo::rustc-env=JOULECAST_COMMIT="));
        (commit.expect("a commit, if an empty one").to_string(), output)
    };
    let [packed, loose, other] = ["a", "b", "c"].map(|digit| digit.repeat(40));
    let write = |path: &Path, text: &str| {
        fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        fs::write(path, text).expect("written");
    };
    let checkout = folder.path().join("checkout");
    let (git, own) = (checkout.join(".git"), checkout.join("predict"));
    fs::create_dir_all(&own).expect("made");
    write(&git.join("HEAD"), "ref: refs/heads/main\n");
    write(
        &git.join("packed-refs"),
        &format!("# pack-refs with: peeled\n{other} refs/heads/other-main\n{packed} refs/heads/main\n"),
    );
    // Of somebody else's repository that holds a copy.
    assert_eq!(said(&own, "3", None).0, "");
    fs::create_dir_all(checkout.join("data/nets")).expect("made");
    let (commit, output) = said(&own, "3", None);
    assert_eq!(commit, packed[..12]);
    assert!(output.contains("rerun-if-changed=") && output.contains("packed-refs"), "{output}");
    // Tests are not compiled again for each commit.
    let (commit, output) = said(&own, "0", None);
    assert!(commit.is_empty() && !output.contains(".git"), "{output}");
    write(&git.join("refs/heads/main"), &format!("{loose}\n"));
    assert_eq!(said(&own, "3", None).0, loose[..12]);
    write(&git.join("HEAD"), &format!("{other}\n"));
    assert_eq!(said(&own, "3", None).0, other[..12], "no branch");
    // A further working tree.
    let tree = folder.path().join("tree");
    write(&tree.join(".git"), &format!("gitdir: {}\n", git.join("worktrees/tree").display()));
    write(&git.join("worktrees/tree/HEAD"), "ref: refs/heads/main\n");
    write(&git.join("worktrees/tree/commondir"), "../..\n");
    fs::create_dir_all(tree.join("data/nets")).expect("made");
    assert_eq!(said(&tree.join("predict"), "3", None).0, loose[..12]);
    // Packages and archives know theirs; who builds one may say another.
    write(&own.join("commit.txt"), "$Format:%H$\n");
    assert_eq!(said(&own, "3", None).0, other[..12], "a checkout's file says nothing");
    write(&own.join("commit.txt"), &format!("{packed}\n"));
    assert_eq!(said(&own, "0", None).0, packed[..12]);
    write(
        &own.join(".cargo_vcs_info.json"),
        &format!("{{\n  \"git\": {{\n    \"sha1\": \"{loose}\"\n  }},\n  \"path_in_vcs\": \"predict\"\n}}\n"),
    );
    assert_eq!(said(&own, "0", None).0, loose[..12]);
    assert_eq!(said(&own, "0", Some(&other)).0, other[..12]);
    assert_eq!(said(&own, "0", Some("$(rm)")).0, loose[..12], "what is no commit");
}

#[test]
fn a_program_says_its_version_and_that_of_its_data() {
    let said = String::from_utf8(works(program::predict().arg("--version")).stdout).expect("UTF-8");
    let data = joulecast_model::catalog::data_version();
    assert!(said.starts_with("predict ") && said.contains(env!("CARGO_PKG_VERSION")), "{said}");
    assert!(said.ends_with(&format!("data {data})\n")) && said.lines().count() == 1, "{said}");
}
