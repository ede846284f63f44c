//! Pages of `reports/published` hold only for what they were made from: each carries a stamp of it
//! (`calibrate/tools/publish.sh`), and nothing of that may have changed since.

use joulecast_calibrate::system::hash::sha256_hex;
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

/// Sources in a folder and its folders, by their paths from it, but for those that are tests alone.
fn sources(folder: &Path, from: &str, found: &mut Vec<String>) {
    for entry in ok(fs::read_dir(folder)).map(ok) {
        let name = entry.file_name().to_string_lossy().into_owned();
        if entry.path().is_dir() {
            sources(&entry.path(), &format!("{from}/{name}"), found);
        } else if name.ends_with(".rs") && !TESTS.contains(&name.as_str()) {
            found.push(format!("{from}/{name}"));
        }
    }
    found.sort();
}

/// Files that hold nothing but tests.
const TESTS: [&str; 2] = ["tests.rs", "oracles.rs"];

/// A source up to its tests.
fn untested(text: &str) -> &str {
    const MARK: &str = "mod tests {\n";
    if text.starts_with(MARK) {
        return "";
    }
    text.find(&format!("\n{MARK}")).map_or(text, |at| &text[..=at])
}

/// SHA-256 of the sources of a folder, as the script forms it; `None` where it is gone.
fn code(folder: &Path) -> Option<String> {
    let mut list = Vec::new();
    folder.is_dir().then(|| sources(folder, ".", &mut list))?;
    let line = |path: &String| {
        let text = fs::read_to_string(folder.join(path)).ok()?;
        Some(format!("{}  {path}\n", sha256_hex(untested(&text).as_bytes())))
    };
    Some(sha256_hex(list.iter().map(line).collect::<Option<String>>()?.as_bytes()))
}

/// SHA-256 of a file, or of the list of a folder's files' sums; `None` where it is gone.
fn sum(path: &Path) -> Option<String> {
    // Of FILE#A|B the lines that end with = "A" or = "B".
    if let Some((file, roles)) = path.to_str().and_then(|p| p.split_once('#')) {
        let text = fs::read_to_string(file).ok()?;
        let of = |line: &&str| roles.split('|').any(|role| line.ends_with(&format!("= \"{role}\"")));
        let mut lines: Vec<&str> = text.lines().filter(of).collect();
        lines.sort_unstable();
        return Some(sha256_hex(lines.iter().map(|line| format!("{line}\n")).collect::<String>().as_bytes()));
    }
    if path.ends_with("**") {
        return code(path.parent()?);
    }
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
    let words = |mark: &str| -> Vec<String> {
        let lines = script.lines().filter_map(|line| line.strip_prefix(mark));
        lines.flat_map(|line| line.split_whitespace().map(str::to_string).collect::<Vec<_>>()).collect()
    };
    let code = words("# code:").into_iter().map(|folder| format!("{folder}/**"));
    words("# inputs:").into_iter().chain(code).collect()
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

fn script(output: &str) -> String {
    format!(
        "#!/bin/sh\n# inputs: data/splits.toml data/roles.toml#test|other\n# inputs: data/rows\n# code: src\ncat <<'END'\n{output}\nEND\n"
    )
}

const CODE: &str = "fn a() {}\n\n#[cfg(test)]\nmod tests {\n    // One\n}\n";

/// A repository of one script, whose page is a page or an object.
fn toy(output: &str) -> tempfile::TempDir {
    let folder = ok(tempfile::tempdir());
    let path = |part: &str| folder.path().join(part);
    for part in ["calibrate/tools", "reports/published", "data/rows", "src/deep"] {
        ok(fs::create_dir_all(path(part)));
    }
    ok(fs::copy(root().join("calibrate/tools/publish.sh"), path("calibrate/tools/publish.sh")));
    let name = path("calibrate/tools/toy_report.sh");
    ok(fs::write(&name, script(output)));
    ok(Command::new("chmod").arg("+x").arg(&name).status());
    for (part, text) in [
        ("data/splits.toml", "x"),
        ("data/roles.toml", "b = \"test\"\na = \"layer\"\n"),
        ("data/rows/b.csv", "1"),
        ("data/rows/C.csv", "2"),
    ]
    .into_iter()
    .chain([("src/a.rs", CODE), ("src/deep/b.rs", "fn b() {}"), ("src/deep/tests.rs", "t")])
    {
        ok(fs::write(path(part), text));
    }
    folder
}

fn publish(root: &Path, arguments: &[&str]) {
    let (text, works) = published(root, arguments);
    assert!(works, "{text}");
}

fn published(root: &Path, arguments: &[&str]) -> (String, bool) {
    let output = ok(Command::new("bash").arg(root.join("calibrate/tools/publish.sh")).args(arguments).output());
    (String::from_utf8_lossy(&output.stderr).into_owned(), output.status.success())
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
            assert_eq!((&value["a"], value["made_from"].as_array().map(Vec::len)), (&1.into(), Some(5)));
        }
        let first = text();
        // A network with a role that the page does not use.
        ok(fs::write(root.join("data/roles.toml"), "b = \"test\"\nnew = \"layer\"\n"));
        assert_eq!(stale(root), [""; 0]);
        ok(fs::write(root.join("data/roles.toml"), "b = \"test\"\nnew = \"other\"\n"));
        assert!(stale(root).len() == 1 && stale(root)[0].contains("data/roles.toml#test|other"), "{:?}", stale(root));
        publish(root, &["--stamp", "toy"]);
        for change in ["data/rows/C.csv", "data/rows/new.csv", "data/splits.toml", "src/deep/b.rs", "src/deep/new.rs"] {
            ok(fs::write(root.join(change), "y"));
            let list = stale(root);
            let input = match change.split('/').next() {
                Some("src") => "src/**",
                _ if change.starts_with("data/rows") => "data/rows",
                _ => change,
            };
            assert!(list.len() == 1 && list[0].contains(file) && list[0].contains(input), "{list:?}");
            assert!(list[0].ends_with("make it again: calibrate/tools/publish.sh toy"), "{list:?}");
            publish(root, &["--stamp", "toy"]);
            assert_eq!(stale(root), [""; 0]);
        }
        assert_eq!(text().lines().count(), first.lines().count(), "stamped anew, not twice");
        // Tests make no page.
        ok(fs::write(root.join("src/deep/tests.rs"), "other"));
        ok(fs::write(root.join("src/a.rs"), CODE.replace("One", "Another")));
        assert_eq!(stale(root), [""; 0]);

        // A page that would be another one is not stamped; one that cannot be made says so until it is made.
        ok(fs::write(root.join("src/a.rs"), "fn other() {}"));
        let before = text();
        ok(fs::write(root.join("calibrate/tools/toy_report.sh"), script(&output.replace('a', "b"))));
        let (said, works) = published(root, &["--stamp", "toy"]);
        assert!(!works && said.contains("not what is made now") && said.contains('b'), "{said}");
        assert_eq!(text(), before);
        publish(root, &["--unmade", "no rows here", "toy"]);
        assert_eq!((stale(root), text().matches("not made again: no rows here").count()), (vec![], 1), "{}", text());
        ok(fs::write(root.join("calibrate/tools/toy_report.sh"), script(output)));
        publish(root, &["--stamp", "toy"]);
        assert!(!text().contains("not made again") && stale(root).is_empty(), "{}", text());
        assert!(!published(root, &["--unmade", "toy"]).1 && !published(root, &["--unmade", "a -- b", "toy"]).1);

        ok(fs::remove_file(root.join("data/splits.toml")));
        assert!(stale(root)[0].contains("data/splits.toml"));
        ok(fs::write(&page, output));
        assert!(stale(root)[0].contains("does not say"), "{:?}", stale(root));
    }
}

/// Nothing but tests follows where a stamp stops to look, and files that it leaves out are tests.
#[test]
fn what_stamps_leave_out_of_the_code_is_tests() {
    let items =
        ["pub ", "fn ", "impl", "struct ", "enum ", "const ", "static ", "use ", "mod ", "trait ", "type ", "macro"];
    let mut looked = 0;
    for crate_name in ["model", "model/ask", "model/import", "model/read", "reports", "calibrate", "predict"] {
        let folder = root().join(crate_name).join("src");
        let mut list = Vec::new();
        sources(&folder, ".", &mut list);
        for path in list {
            let text = ok(fs::read_to_string(folder.join(&path)));
            let (counted, tests) = text.split_at(untested(&text).len());
            let mut before = counted.lines().last().unwrap_or_default();
            for line in tests.lines() {
                let item = items.iter().any(|item| line.starts_with(item));
                assert!(
                    !item || before == "#[cfg(test)]" || before.starts_with("#[cfg(all(test, "),
                    "{crate_name}/src/{path}: {line}, after tests"
                );
                before = line;
            }
            looked += usize::from(!tests.is_empty());
            for name in TESTS.map(|t| format!("mod {};", t.trim_end_matches(".rs"))) {
                let declared = text.lines().zip(text.lines().skip(1)).filter(|(_, line)| line.ends_with(&name));
                assert!(
                    declared.clone().all(|(before, _)| before == "#[cfg(test)]"),
                    "{crate_name}/src/{path}: {name}"
                );
            }
        }
    }
    assert!(looked > 100);
}
