//! The repository's Markdown as tests read it: command lines that are run, links that lead somewhere, tables and outputs
//! that are made from what they show; and a validator of JSON Schemas.

pub mod made;
pub mod markdown;
pub mod schema;

use std::fs;
use std::path::{Path, PathBuf};

/// The repository.
#[must_use]
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Folders that are not the repository's own, or hold what was built.
const OTHERS: [&str; 4] = ["target", "node_modules", "shared", "dist"];

/// Markdown files below a folder, by their paths from it, in order; hidden folders and built ones are left out.
///
/// # Panics
///
/// Where a folder cannot be read.
#[must_use]
pub fn files(root: &Path) -> Vec<String> {
    fn walk(folder: &Path, from: &str, found: &mut Vec<String>) {
        for entry in fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display())).flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
            if is_folder && !name.starts_with('.') && !OTHERS.contains(&name.as_str()) {
                walk(&entry.path(), &format!("{from}{name}/"), found);
            } else if !is_folder && name.ends_with(".md") {
                found.push(format!("{from}{name}"));
            }
        }
    }
    let mut found = Vec::new();
    walk(root, "", &mut found);
    found.sort();
    found
}

/// README and the book's chapters: what a new user reads, whose command lines run.
#[must_use]
pub fn for_users(root: &Path) -> Vec<String> {
    let read = |path: &String| path == "README.md" || path.starts_with("reports/book/src/");
    files(root).into_iter().filter(read).collect()
}

/// The text of a file of the repository.
///
/// # Panics
///
/// Where it cannot be read.
#[must_use]
pub fn text(root: &Path, path: &str) -> String {
    fs::read_to_string(root.join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}
