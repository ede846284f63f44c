//! Pages of `reports/published` hold only for what they were made from: each carries a stamp of it
//! (`calibrate/tools/publish.sh`), and nothing of that may have changed since.

use joulecast_calibrate::import::sha256_hex;
use joulecast_tests::{ok, root};
use std::fs;
use std::path::Path;
use std::process::Command;

/// Names of a folder's files as the script lists them: without hidden ones and README.md, in the order of their bytes.
fn files(folder: &Path) -> Vec<String> {
    let entries = ok(fs::read_dir(folder)).map(ok);
    let mut names: Vec<String> = entries
        .filter(|e| e.path().is_file())
        .map(|e| e.file_name().to_string_lossy().into_owned())
        .filter(|name| !name.starts_with('.') && name != "README.md")
        .collect();
    names.sort();
    names
}

/// SHA-256 of a file, or of the list of a folder's files' sums; `None` where it is gone.
fn sum(path: &Path) -> Option<String> {
    if !path.is_dir() {
        return Some(sha256_hex(&fs::read(path).ok()?));
    }
    let line = |name: String| Some(format!("{}  {name}\n", sum(&path.join(&name))?));
    Some(sha256_hex(files(path).into_iter().map(line).collect::<Option<String>>()?.as_bytes()))
}

/// Sums and paths in a page's stamp; lines of a comment and strings of a list read alike.
fn stamp(page: &str) -> Vec<(String, String)> {
    let from = page.rfind("<!-- made by calibrate/tools/publish.sh").or(page.find("\"made_from\": ["));
    let parts = page[from.unwrap_or(page.len())..].split(['\n', '"']).filter_map(|part| part.split_once("  "));
    let is_sum = |sum: &str| sum.len() == 64 && sum.chars().all(|c| c.is_ascii_hexdigit());
    parts.filter(|(sum, _)| is_sum(sum)).map(|(sum, path)| (sum.to_string(), path.to_string())).collect()
}

/// What a page's script says that the page is made from; nothing where there is no script.
fn declared(root: &Path, name: &str) -> Vec<String> {
    let script = fs::read_to_string(root.join(format!("calibrate/tools/{name}_report.sh"))).unwrap_or_default();
    let lines = script.lines().filter_map(|line| line.strip_prefix("# inputs:"));
    lines.flat_map(|line| line.split_whitespace().map(str::to_string).collect::<Vec<_>>()).collect()
}

/// What is wrong with a repository's published pages, one line each.
fn stale(root: &Path) -> Vec<String> {
    let folder = root.join("reports/published");
    let mut list = Vec::new();
    for file in files(&folder) {
        let name = file.split('.').next().unwrap_or_default();
        let (stamp, declared) = (stamp(&ok(fs::read_to_string(folder.join(&file)))), declared(root, name));
        let changed: Vec<&str> = stamp
            .iter()
            .filter(|(was, path)| sum(&root.join(path)).as_ref() != Some(was))
            .map(|(_, path)| path.as_str())
            .collect();
        let what = if declared.is_empty() {
            format!("has no calibrate/tools/{name}_report.sh with a line \"# inputs:\"")
        } else if stamp.is_empty() {
            "does not say what it was made from".to_string()
        } else if !stamp.iter().map(|(_, path)| path).eq(&declared) {
            "was made from other files than its script names".to_string()
        } else if !changed.is_empty() {
            format!("is stale, since these changed: {}", changed.join(", "))
        } else {
            continue;
        };
        list.push(format!("reports/published/{file} {what}; make it again: calibrate/tools/publish.sh {name}"));
    }
    list
}

#[test]
fn published_pages_are_of_today() {
    let list = stale(&root());
    assert!(list.is_empty(), "\n{}\n", list.join("\n"));
}

/// A repository of one script, whose page is a page or an object.
fn toy(output: &str) -> tempfile::TempDir {
    let folder = ok(tempfile::tempdir());
    let path = |part: &str| folder.path().join(part);
    for part in ["calibrate/tools", "reports/published", "data/rows"] {
        ok(fs::create_dir_all(path(part)));
    }
    ok(fs::copy(root().join("calibrate/tools/publish.sh"), path("calibrate/tools/publish.sh")));
    let script = format!("#!/bin/sh\n# inputs: data/splits.toml\n# inputs: data/rows\ncat <<'END'\n{output}\nEND\n");
    let name = path("calibrate/tools/toy_report.sh");
    ok(fs::write(&name, script));
    ok(Command::new("chmod").arg("+x").arg(&name).status());
    for (part, text) in [("data/splits.toml", "x"), ("data/rows/b.csv", "1"), ("data/rows/C.csv", "2")] {
        ok(fs::write(path(part), text));
    }
    folder
}

fn publish(root: &Path, arguments: &[&str]) {
    let output = ok(Command::new("bash").arg(root.join("calibrate/tools/publish.sh")).args(arguments).output());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_page_is_stale_when_anything_it_was_made_from_changes() {
    for (output, file) in [("# Toy\n\n| a |\n", "toy.md"), ("{\n  \"a\": 1\n}", "toy.json")] {
        let folder = toy(output);
        let root = folder.path();
        let page = root.join("reports/published").join(file);
        let text = || ok(fs::read_to_string(&page));
        publish(root, &[]);
        assert_eq!(stale(root), [""; 0], "{}", text());
        if file == "toy.json" {
            let value: serde_json::Value = ok(serde_json::from_str(&text()));
            assert_eq!((&value["a"], value["made_from"].as_array().map(Vec::len)), (&1.into(), Some(3)));
        }
        let first = text();
        for change in ["data/rows/C.csv", "data/rows/new.csv", "data/splits.toml"] {
            ok(fs::write(root.join(change), "y"));
            let list = stale(root);
            let input = if change.starts_with("data/rows") { "data/rows" } else { change };
            assert!(list.len() == 1 && list[0].contains(file) && list[0].contains(input), "{list:?}");
            assert!(list[0].ends_with("make it again: calibrate/tools/publish.sh toy"), "{list:?}");
            publish(root, &["--stamp", "toy"]);
            assert_eq!(stale(root), [""; 0]);
        }
        assert_eq!(text().lines().count(), first.lines().count(), "stamped anew, not twice");
        ok(fs::remove_file(root.join("data/splits.toml")));
        assert!(stale(root)[0].contains("data/splits.toml"));
        ok(fs::write(&page, output));
        assert!(stale(root)[0].contains("does not say"), "{:?}", stale(root));
    }
}
