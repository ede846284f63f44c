//! Blocks, command lines, links and anchors of a Markdown text.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

/// A fenced block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// What stands behind the opening fence: `sh`, or `sh,norun=REASON`.
    pub info: String,
    /// Number of its first line of text, from 1.
    pub line: usize,
    /// Its lines.
    pub text: String,
}

/// The fenced blocks of a text, and the text with their lines left empty.
#[must_use]
pub fn blocks(text: &str) -> (Vec<Block>, String) {
    let (mut list, mut outside, mut open) = (Vec::new(), String::new(), None::<Block>);
    for (i, line) in text.lines().enumerate() {
        let fence = line.trim_start().strip_prefix("```");
        match (&mut open, fence) {
            (None, Some(info)) => {
                open = Some(Block { info: info.trim().to_string(), line: i + 2, text: String::new() });
            }
            (Some(_), Some("")) => list.extend(open.take()),
            (Some(block), _) => block.text += &format!("{line}\n"),
            (None, None) => outside += line,
        }
        outside.push('\n');
    }
    assert!(open.is_none(), "a fence is not closed: {open:?}");
    (list, outside)
}

/// A line that can be pasted into a shell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// Where it stands, from 1.
    pub line: usize,
    /// The line, without a remark that begins with two spaces and `#`.
    pub text: String,
    /// Why no test runs it.
    pub norun: Option<String>,
}

/// The lines of blocks that begin with `sh`; one that ends with a backslash goes on in the next.
#[must_use]
pub fn commands(text: &str) -> Vec<Command> {
    let mut list = Vec::new();
    for block in blocks(text).0 {
        let mut words = block.info.splitn(2, ',');
        if words.next() != Some("sh") {
            continue;
        }
        let norun = words.next().and_then(|rest| rest.strip_prefix("norun=")).map(str::to_string);
        let mut begun = None::<(usize, String)>;
        for (i, line) in block.text.lines().enumerate() {
            let line = line.split("  #").next().unwrap_or(line).trim();
            let (at, before) = begun.take().unwrap_or((block.line + i, String::new()));
            match line.strip_suffix('\\') {
                Some(part) => begun = Some((at, before + part)),
                None if line.is_empty() || line.starts_with('#') => {}
                None => list.push(Command { line: at, text: before + line, norun: norun.clone() }),
            }
        }
    }
    list
}

/// Links and pictures of a text: the line from 1, and where they lead. What is code is no link.
#[must_use]
pub fn links(text: &str) -> Vec<(usize, String)> {
    let mut list = Vec::new();
    for (i, line) in blocks(text).1.lines().enumerate() {
        // Every second part stands between back quotes.
        let plain: String = line
            .split('`')
            .enumerate()
            .map(|(part, text)| if part % 2 == 0 { text.to_string() } else { " ".repeat(text.len().min(1)) })
            .collect();
        for rest in plain.split("](").skip(1) {
            let target = rest.split(')').next().unwrap_or(rest);
            // With a title behind it, or in angle brackets.
            let target = target.split(' ').next().unwrap_or(target);
            list.push((i + 1, target.trim_start_matches('<').trim_end_matches('>').to_string()));
        }
    }
    list
}

/// The anchor of a heading: letters and digits in lower case, blanks as `-`; marks fall away.
fn anchor(heading: &str) -> String {
    let mut shown = String::new();
    // Of a link its text.
    let mut rest = heading;
    while let Some((before, after)) = rest.split_once("](") {
        shown += &before.replacen('[', "", 1);
        rest = after.split_once(')').map_or("", |(_, behind)| behind);
    }
    shown += rest;
    let kept = |c: char| match c {
        ' ' => Some('-'),
        '-' | '_' => Some(c),
        _ if c.is_alphanumeric() => c.to_lowercase().next(),
        _ => None,
    };
    shown.trim().chars().filter_map(kept).collect()
}

/// The anchors of a text's headings; one that is there again has a number behind it.
#[must_use]
pub fn anchors(text: &str) -> BTreeSet<String> {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let (_, outside) = blocks(text);
    let headings = outside.lines().filter_map(|line| {
        let rest = line.trim_start_matches('#');
        (rest.len() < line.len() && rest.starts_with(' ')).then(|| anchor(rest))
    });
    let mut found = BTreeSet::new();
    for name in headings {
        let again = seen.entry(name.clone()).and_modify(|n| *n += 1).or_default();
        found.insert(if *again == 0 { name } else { format!("{name}-{again}") });
    }
    found
}

/// A path from a repository's root that a link of a file leads to; `None` where it leaves the repository.
#[must_use]
pub fn target(file: &str, link: &str) -> Option<String> {
    let mut path = PathBuf::from(file).parent().unwrap_or(Path::new("")).to_path_buf();
    for part in Path::new(link).components() {
        match part {
            Component::ParentDir => path.pop().then_some(())?,
            Component::Normal(name) => path.push(name),
            Component::CurDir => {}
            Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    Some(path.to_string_lossy().into_owned())
}

/// Links of files that lead nowhere, one line each. Those with a scheme are not followed.
#[must_use]
pub fn broken(root: &Path, files: &[String]) -> Vec<String> {
    let mut list = Vec::new();
    for file in files {
        let text = crate::text(root, file);
        for (line, link) in links(&text) {
            if link.contains("://") || link.starts_with("mailto:") {
                continue;
            }
            let (path, fragment) =
                link.split_once('#').map_or((link.as_str(), None), |(path, part)| (path, Some(part)));
            let Some(path) = (if path.is_empty() { Some(file.clone()) } else { target(file, path) }) else {
                list.push(format!("{file}:{line}: {link} leads out of the repository"));
                continue;
            };
            if !root.join(&path).exists() {
                list.push(format!("{file}:{line}: {link}: there is no {path}"));
            } else if let Some(part) = fragment.filter(|_| path.ends_with(".md"))
                && !anchors(&crate::text(root, &path)).contains(part)
            {
                list.push(format!("{file}:{line}: {link}: {path} has no heading #{part}"));
            }
        }
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# One, `two`\n\nSee [a](b.md#c-d) and `[no](link)`.\n\n```sh\npredict x  # a remark\n\
        predict \\\n  --y\n```\n\n```sh,norun=a GPU\ncalibrate z\n```\n\n```toml\n[not](a link)\n```\n## One, two\n";

    #[test]
    fn commands_are_lines_of_shell_blocks() {
        let of = |line, text: &str, norun: Option<&str>| Command {
            line,
            text: text.to_string(),
            norun: norun.map(str::to_string),
        };
        let expected = [of(6, "predict x", None), of(7, "predict --y", None), of(12, "calibrate z", Some("a GPU"))];
        assert_eq!(commands(TEXT), expected);
    }

    #[test]
    fn links_and_anchors_are_those_of_the_text() {
        assert_eq!(links(TEXT), [(3, "b.md#c-d".to_string())]);
        let expected: BTreeSet<String> = ["one-two", "one-two-1"].map(str::to_string).into();
        assert_eq!(anchors(TEXT), expected);
        assert_eq!(anchor("13. Decisions, and [why](x.md)"), "13-decisions-and-why");
        assert_eq!(target("a/b/c.md", "../d.md"), Some("a/d.md".to_string()));
        assert_eq!(target("a.md", "../d.md"), None);
    }
}
