//! `packaging/THIRD-PARTY.txt` names every crate that `predict` holds, with its licence, and whose measurements its
//! calibrations are computed from. `UPDATE_GOLDEN=1 cargo test -p joulecast-documents --test notices` writes it again.

use joulecast_documents::{root, text};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

fn field<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

fn list<'a>(value: &'a Value, pointer: &str) -> &'a [Value] {
    value.pointer(pointer).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// As cargo resolves them for Linux, with what released programs have on; other systems have some crates that talk to them instead.
fn metadata() -> Value {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let arguments = ["metadata", "--format-version", "1", "--offline", "--locked"];
    let output = Command::new(cargo)
        .args(arguments)
        .args(["--filter-platform", "x86_64-unknown-linux-gnu"])
        .args(["--features", "joulecast-predict/arrow,joulecast-predict/parquet"])
        .current_dir(root())
        .output()
        .unwrap_or_else(|e| panic!("{e}"));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}"))
}

/// Packages that a package is linked from, itself among them.
fn linked<'a>(all: &'a Value, name: &str) -> Vec<&'a Value> {
    let packages: BTreeMap<&str, &Value> = list(all, "/packages").iter().map(|p| (field(p, "id"), p)).collect();
    let nodes: BTreeMap<&str, &Value> = list(all, "/resolve/nodes").iter().map(|n| (field(n, "id"), n)).collect();
    let first = packages.values().find(|p| field(p, "name") == name).unwrap_or_else(|| panic!("no {name}"));
    let (mut reached, mut open) = (BTreeSet::new(), vec![field(first, "id")]);
    while let Some(id) = open.pop() {
        if reached.insert(id) {
            // Neither what builds nor what tests it.
            let runs = |dep: &&Value| list(dep, "/dep_kinds").iter().any(|kind| kind["kind"].is_null());
            open.extend(list(nodes[id], "/deps").iter().filter(runs).map(|dep| field(dep, "pkg")));
        }
    }
    let macros = |p: &&Value| {
        let kinds = list(p, "/targets").iter().flat_map(|t| list(t, "/kind"));
        !kinds.into_iter().any(|kind| kind == "proc-macro")
    };
    let mut found: Vec<&Value> = reached.into_iter().map(|id| packages[id]).filter(macros).collect();
    found.sort_by_key(|p| (field(p, "name"), field(p, "version")));
    found
}

/// Texts of a package's licences and notices; of a choice with MIT that one alone, of none the GPL.
fn texts(package: &Value) -> Vec<String> {
    let folder = Path::new(field(package, "manifest_path")).parent().unwrap_or(Path::new(""));
    let inside = |folder: &Path| -> Vec<_> {
        fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
    };
    let mut files = inside(folder);
    files.retain(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_uppercase();
        path.is_file() && ["LICENSE", "LICENCE", "COPYING", "NOTICE", "UNLICENSE"].iter().any(|n| name.starts_with(n))
    });
    files.sort();
    let is_mit = |path: &std::path::PathBuf| path.to_string_lossy().to_uppercase().contains("MIT");
    if files.iter().any(is_mit) {
        files.retain(|path| is_mit(path) || path.to_string_lossy().to_uppercase().contains("NOTICE"));
    }
    if field(package, "license").contains(" OR ") {
        files.retain(|path| !path.to_string_lossy().to_uppercase().contains("GPL"));
    }
    // What a crate brings along, such as fonts, has a licence of its own.
    let brought = inside(&folder.join("assets")).into_iter().flat_map(|folder| inside(&folder));
    files.extend(brought.filter(|path| path.file_name().is_some_and(|name| name == "LICENSE")));
    let plain = |text: String| text.lines().map(str::trim_end).collect::<Vec<_>>().join("\n").trim().to_string();
    files.into_iter().filter_map(|path| fs::read_to_string(path).ok()).map(plain).collect()
}

fn notices() -> String {
    let all = metadata();
    let crates: Vec<&Value> =
        linked(&all, "joulecast-predict").into_iter().filter(|p| !field(p, "name").starts_with("joulecast")).collect();
    assert!(crates.len() > 20, "{}", crates.len());
    let mut page = String::from(
        "What the program predict holds of others.\n\nMeasurements that calibrations are computed from (data/published/sources.toml):\n\n",
    );
    let sources: toml::Table = text(&root(), "data/published/sources.toml").parse().unwrap_or_else(|e| panic!("{e}"));
    for source in sources["sources"].as_array().into_iter().flatten() {
        let of = |key: &str| source.get(key).and_then(toml::Value::as_str).unwrap_or_default();
        let _ = writeln!(page, "* {}: {}. {}", of("title"), of("licence"), of("notice"));
    }
    page += "\nCrates, on Linux:\n\n";
    let mut by_text: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for package in crates {
        let name = format!("{} {}", field(package, "name"), field(package, "version"));
        let _ = writeln!(page, "* {name}: {}", field(package, "license"));
        for text in texts(package) {
            by_text.entry(text).or_default().push(name.clone());
        }
    }
    let mut by_name: Vec<_> = by_text.into_iter().map(|(text, names)| (names.join(", "), text)).collect();
    by_name.sort();
    for (names, text) in by_name {
        let _ = write!(page, "\n{}\n{names}\n\n{text}\n", "-".repeat(80));
    }
    page
}

#[test]
fn notices_are_those_of_today_s_dependencies() {
    let (path, now) = (root().join("packaging/THIRD-PARTY.txt"), notices());
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(&path, &now).unwrap_or_else(|e| panic!("{e}"));
    }
    let was = fs::read_to_string(&path).unwrap_or_default();
    let first = was.lines().zip(now.lines()).find(|(a, b)| a != b);
    assert!(was == now, "UPDATE_GOLDEN=1 writes it again: {first:?}");
}
