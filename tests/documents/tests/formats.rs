//! Files that are shipped, and the answers that tests compare with, are as the book's JSON Schemas say.

use joulecast_documents::{root, schema, text};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};

fn schema_of(name: &str) -> Value {
    let text = text(&root(), &format!("reports/book/src/schemas/{name}.json"));
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{name}: {e}"))
}

/// A TOML text as the schemas see it.
fn json(text: &str, path: &Path) -> Value {
    let table: toml::Table = text.parse().unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_json::to_value(table).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// TOML files of a folder and the folders in it that begin with a line of a schema.
fn shipped(folder: &Path, schema: &str, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display())).flatten() {
        let path = entry.path();
        if path.is_dir() {
            shipped(&path, schema, found);
        } else if path.extension().is_some_and(|e| e == "toml") {
            let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
            if text.lines().take(20).any(|line| line.starts_with(&format!("schema = \"{schema}\""))) {
                found.push(path);
            }
        }
    }
}

#[test]
fn shipped_files_are_as_their_schemas_say() {
    for (format, name, at_least) in
        [("gpu/1", "gpu-1", 54), ("network/1", "network-1", 76), ("capacity/1", "capacity-1", 1)]
    {
        let schema = schema_of(name);
        let mut files = Vec::new();
        for folder in ["nets", "gpus", "capacity", "sealed"] {
            shipped(&root().join("data").join(folder), format, &mut files);
        }
        assert!(files.len() >= at_least, "{format}: {} files", files.len());
        let mut wrong = Vec::new();
        for path in files {
            let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
            let found = schema::wrong(&schema, &json(&text, &path));
            wrong.extend(found.into_iter().map(|what| format!("{}{what}", path.display())));
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }
}

/// The examples of the READMEs beside the files, too.
#[test]
fn examples_are_as_their_schemas_say() {
    for (document, name) in [("data/gpus/README.md", "gpu-1"), ("data/nets/README.md", "network-1")] {
        let (blocks, _) = joulecast_documents::markdown::blocks(&text(&root(), document));
        let example =
            blocks.iter().find(|block| block.info == "toml").unwrap_or_else(|| panic!("{document}: no example"));
        let found = schema::wrong(&schema_of(name), &json(&example.text, Path::new(document)));
        assert!(found.is_empty(), "{document}: {found:?}");
    }
}

#[test]
fn the_plan_that_tests_compare_with_is_as_its_schema_says() {
    let plan = text(&root(), "tests/golden/plan.json");
    let plan: Value = serde_json::from_str(&plan).unwrap_or_else(|e| panic!("{e}"));
    let found = schema::wrong(&schema_of("capacity_plan-1"), &plan);
    assert!(found.is_empty(), "{found:?}");
}

/// A mistake is found, in every schema.
#[test]
fn schemas_refuse_what_is_not_theirs() {
    for name in ["gpu-1", "network-1", "capacity-1", "prediction-1", "sweep-row", "capacity_plan-1"] {
        let found = schema::wrong(&schema_of(name), &serde_json::json!({ "schema": "other/1" }));
        assert!(found.len() > 1, "{name}: {found:?}");
    }
    let path = root().join("data/gpus/t4.toml");
    let file = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{e}"));
    let file = file.replacen("kind = \"vendor\"", "kind = \"guessed\"", 1);
    assert_eq!(schema::wrong(&schema_of("gpu-1"), &json(&file, &path)).len(), 1);
}
