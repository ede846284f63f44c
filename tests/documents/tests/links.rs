//! Links of every Markdown file lead somewhere, the book's contents are its chapters, and README stays short.

use joulecast_documents::{files, for_users, markdown, root, text};
use std::collections::BTreeSet;

#[test]
fn no_link_is_broken() {
    let root = root();
    let files = files(&root);
    assert!(files.len() > 30 && files.contains(&"README.md".to_string()), "{files:?}");
    // What a test compares a page with is no page: its figures are elsewhere.
    let pages: Vec<String> = files.into_iter().filter(|file| !file.starts_with("tests/golden/")).collect();
    let broken = markdown::broken(&root, &pages);
    assert!(broken.is_empty(), "\n{}", broken.join("\n"));
}

#[test]
fn the_contents_are_the_chapters() {
    const BOOK: &str = "reports/book/src/";
    let summary = text(&root(), &format!("{BOOK}SUMMARY.md"));
    let links = markdown::links(&summary).into_iter();
    let listed: BTreeSet<String> =
        links.filter_map(|(_, link)| markdown::target(&format!("{BOOK}SUMMARY.md"), &link)).collect();
    let chapters =
        for_users(&root()).into_iter().filter(|file| file.starts_with(BOOK) && !file.ends_with("SUMMARY.md"));
    let chapters: BTreeSet<String> = chapters.collect();
    assert!(chapters.len() > 10);
    let missing: Vec<_> = chapters.difference(&listed).collect();
    assert!(missing.is_empty(), "not in SUMMARY.md: {missing:?}");
}

/// README is one screen and a half, and counts no more than there is.
#[test]
fn readme_is_short_and_counts_right() {
    let readme = text(&root(), "README.md");
    let words = readme.split_whitespace().count();
    assert!(words <= 900, "{words} words");
    let there = |folder: &str| {
        let entries = std::fs::read_dir(root().join(folder)).unwrap_or_else(|e| panic!("{folder}: {e}")).flatten();
        entries.filter(|entry| entry.path().extension().is_some_and(|e| e == "toml")).count()
    };
    for (folder, what) in [("data/nets", " networks"), ("data/gpus", " GPUs and CPUs")] {
        let before = readme.split(what).next().unwrap_or_default();
        let said: usize =
            before.rsplit(' ').next().and_then(|n| n.parse().ok()).unwrap_or_else(|| panic!("no number of{what}"));
        // One that was added since is no mistake.
        assert!(said <= there(folder), "{said} of {}{what}", there(folder));
    }
}

/// A block of commands is run, or says why not; in README nothing but the tests' own command and what tests are built by.
#[test]
fn every_command_is_of_a_program_that_a_test_runs() {
    const RUN: [&str; 3] = ["predict ", "calibrate ", "cargo run --release --bin predict -- "];
    let mut run = 0;
    for file in for_users(&root()) {
        for command in markdown::commands(&text(&root(), &file)) {
            let known = RUN.iter().any(|program| command.text.starts_with(program));
            match &command.norun {
                None => assert!(known, "{file}:{}: {}", command.line, command.text),
                Some(reason) => assert!(reason.len() > 5, "{file}:{}: why?", command.line),
            }
            assert!(
                file != "README.md" || command.norun.is_none() || command.text.starts_with("cargo test "),
                "README.md:{}: {} is not run",
                command.line,
                command.text
            );
            run += usize::from(command.norun.is_none());
        }
        // Remarks in the old way would be taken for arguments.
        let (blocks, _) = markdown::blocks(&text(&root(), &file));
        let unmarked = blocks.iter().filter(|block| !block.info.starts_with("sh"));
        let unmarked: Vec<_> = unmarked.filter(|block| block.text.starts_with("predict ")).collect();
        assert!(unmarked.is_empty(), "{file}: mark as sh: {unmarked:?}");
    }
    assert!(run > 40, "{run}");
}
