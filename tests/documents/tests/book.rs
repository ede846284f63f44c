//! The book as mdbook makes it: no link of its pages leads nowhere.

use joulecast_documents::root;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Values of an attribute.
fn values<'a>(page: &'a str, attribute: &'a str) -> impl Iterator<Item = &'a str> {
    let begin = format!(" {attribute}=\"");
    let parts: Vec<&str> = page.split(&begin).skip(1).collect();
    parts.into_iter().filter_map(|rest| rest.split('"').next())
}

fn pages(folder: &Path, found: &mut BTreeMap<PathBuf, String>) {
    // Of no chapter: all chapters in one, the frame of the contents, what servers answer instead of a page.
    const OTHERS: [&str; 3] = ["print.html", "toc.html", "404.html"];
    for entry in fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display())).flatten() {
        let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
        if path.is_dir() {
            pages(&path, found);
        } else if name.ends_with(".html") && !OTHERS.contains(&name.as_str()) {
            let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{name}: {e}"));
            found.insert(path, text);
        }
    }
}

/// A path without `..`.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        if part == std::path::Component::ParentDir {
            plain.pop();
        } else {
            plain.push(part);
        }
    }
    plain
}

#[test]
fn the_book_is_built_and_its_links_lead_somewhere() {
    // Nothing is installed on who runs the tests at home.
    let install = std::env::var_os("CI").map(|_| "--install");
    let output = Command::new("bash")
        .arg(root().join("reports/book/build.sh"))
        .args(install)
        .stdin(std::process::Stdio::null())
        .output()
        .unwrap_or_else(|e| panic!("{e}"));
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.code() == Some(77) {
        joulecast_skipped::skipped("the_book_is_built_and_its_links_lead_somewhere", said.trim());
        return;
    }
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    let folder = said.lines().last().map(Path::new).and_then(Path::parent).unwrap_or_else(|| panic!("{said}"));
    let mut pages_of = BTreeMap::new();
    pages(folder, &mut pages_of);
    let anchors: BTreeMap<&PathBuf, BTreeSet<&str>> =
        pages_of.iter().map(|(path, text)| (path, values(text, "id").collect())).collect();
    let (mut followed, mut broken) = (0, Vec::new());
    for (page, text) in &pages_of {
        for link in values(text, "href").chain(values(text, "src")) {
            if link.contains("://") || link.starts_with("data:") || link.starts_with("mailto:") {
                continue;
            }
            let (path, anchor) = link.split_once('#').map_or((link, None), |(path, anchor)| (path, Some(anchor)));
            let target = if path.is_empty() { page.clone() } else { plain(&page.with_file_name("").join(path)) };
            let known = anchor.zip(anchors.get(&target));
            if !target.exists() || known.is_some_and(|(anchor, of)| !anchor.is_empty() && !of.contains(anchor)) {
                broken.push(format!("{}: {link}", page.display()));
            }
            followed += 1;
        }
    }
    assert!(followed > 500 && broken.is_empty(), "{followed} followed; {}", broken.join("\n"));
}
