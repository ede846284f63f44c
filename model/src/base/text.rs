//! Small helpers for messages, and what may stand in texts that come from files.

use crate::base::order::sort_by;
use serde::{Deserialize, Deserializer};
use std::collections::HashMap;

/// `, did you mean "x"?` for the nearest of the names, or nothing when none is near.
pub fn closest<'a>(wanted: &str, names: impl Iterator<Item = &'a str>) -> String {
    match nearest(wanted, names).first() {
        Some(name) => format!("; did you mean \"{name}\"?"),
        None => String::new(),
    }
}

/// Up to three names that resemble the wanted one, most similar first. Names come from files too: one that would
/// not read well in a message is not offered.
pub fn nearest<'a>(wanted: &str, names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let fold = |s: &str| s.to_ascii_lowercase().replace(['-', '_', ' '], "");
    let target = fold(wanted);
    let mut scored: Vec<(f64, &str)> = names
        .filter(|name| name.len() <= 60 && !name.chars().any(char::is_control))
        .map(|name| {
            let folded = fold(name);
            let shared =
                if !target.is_empty() && (folded.contains(&target) || target.contains(&folded)) { 0.2 } else { 0.0 };
            (strsim::jaro_winkler(&target, &folded) + shared, name)
        })
        .filter(|(score, _)| *score > 0.75)
        .collect();
    sort_by(&mut scored, |a, b| b.0.total_cmp(&a.0).then(a.1.cmp(b.1)));
    scored.into_iter().take(3).map(|(_, name)| name).collect()
}

/// A TOML error in one line: where, and what is wrong. What it quotes of the file is cut.
pub fn toml_error(error: &toml::de::Error, text: &str) -> String {
    match error.span() {
        Some(span) => toml_message_at(error.message(), span.start, text),
        None => toml_message(error.message()),
    }
}

/// What is wrong at a place of a text: the line, the key that stands there unless the words name it, and a short line of words.
pub(crate) fn toml_message_at(message: &str, place: usize, text: &str) -> String {
    let (head, tail) = text.split_at_checked(place).unwrap_or((text, ""));
    let line = head.matches('\n').count() + 1;
    let of_key = |c: char| c.is_alphanumeric() || "_-.".contains(c);
    let blank = [' ', '\t'];
    let key = match head.trim_end_matches(blank).strip_suffix('=').map(|before| before.trim_end_matches(blank)) {
        _ if message.starts_with("duplicate key") => match tail.strip_prefix('"') {
            Some(quoted) => quoted.split('"').next(),
            None => tail.split(|c| !of_key(c)).next(),
        },
        Some(before) => match before.strip_suffix('"') {
            Some(quoted) => quoted.rsplit('"').next(),
            None => before.rsplit(|c| !of_key(c)).next(),
        },
        None => None,
    };
    format!("line {line}: {}", toml_message(&under(key, message)))
}

/// What is wrong with the value of a key, which the words may name themselves.
pub(crate) fn under(key: Option<&str>, message: &str) -> String {
    let is_named = |key: &str| {
        let begins = message.strip_prefix(key).is_some_and(|rest| !rest.starts_with(char::is_alphanumeric));
        begins || message.contains(&format!("`{key}`"))
    };
    match key.filter(|key| !key.is_empty() && !is_named(key)) {
        Some(key) => format!("{key}: {message}"),
        None => message.to_string(),
    }
}

/// What is wrong, without where: one short line, however long the words of the file are.
pub fn toml_message(message: &str) -> String {
    let message = message.replace('\n', ", ");
    let in_words = message.rsplit_once("expected ").and_then(|(before, what)| Some((before, expected(what)?)));
    match in_words {
        Some((before, words)) => in_short(&format!("{before}expected {words}")),
        None => in_short(&message),
    }
}

/// What serde says that it expected, as who writes the file would; `None` of what is in words already.
fn expected(what: &str) -> Option<&'static str> {
    Some(match what {
        "u64" | "u32" | "usize" => "a whole number of at least 0",
        "i64" => "a whole number",
        "f64" => "a number",
        "a sequence" => "a list",
        "a map" => "a table",
        "a boolean" => "true or false",
        _ if what.starts_with("struct ") => "a table",
        _ if what.starts_with("enum ") => "one of its words",
        _ => return None,
    })
}

/// A message that quotes a file, in one short line.
pub fn in_short(message: &str) -> String {
    shortened(&printable(message), LONGEST_MESSAGE)
}

/// Characters of a name or title; a longer one is cut.
const LONGEST_NAME: usize = 160;
/// Characters of a message about a file.
const LONGEST_MESSAGE: usize = 200;

/// Characters that are not seen but change what is: of control, of direction, of no width.
fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}')
        || matches!(c, '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// Text in one line that changes nothing but itself wherever it is printed: without control characters, hence without a
/// terminal's escape sequences, and without invisible ones. A space stands in their place.
pub fn printable(text: &str) -> String {
    if text.contains(is_hidden) { text.replace(is_hidden, " ") } else { text.to_string() }
}

/// A name or title from a file as it may stand anywhere: in a table, a page, a message. One line without control
/// characters and without the characters that mark up Markdown and HTML, short. The same again when it is read again.
pub fn shown(name: &str) -> String {
    const MARKUP: &str = "<>[]|*`\\";
    // Most names are one plain word.
    let plain = |c: char| c.is_ascii_graphic() && !MARKUP.contains(c);
    if name.len() <= LONGEST_NAME && name.chars().all(plain) {
        return name.to_string();
    }
    let marks = |c: char| is_hidden(c) || MARKUP.contains(c);
    let words = name.split(|c: char| marks(c) || c.is_whitespace()).filter(|word| !word.is_empty());
    let text = words.collect::<Vec<_>>().join(" ");
    if text.is_empty() && !name.is_empty() {
        return "?".into();
    }
    match text.char_indices().nth(LONGEST_NAME) {
        Some(_) if text.chars().count() == LONGEST_NAME + CUT.len() && text.ends_with(CUT) => text,
        Some((end, _)) => format!("{}{CUT}", &text[..end]),
        None => text,
    }
}

/// Stands for what was cut.
const CUT: &str = "...";

/// A text of at most so many characters: of a longer one its middle is left out, since a message begins with where and
/// ends with what to do.
pub fn shortened(text: &str, most: usize) -> String {
    let count = text.chars().count();
    if count <= most {
        return text.to_string();
    }
    let kept = most.saturating_sub(CUT.len());
    let tail = kept * 2 / 5;
    let head: String = text.chars().take(kept - tail).collect();
    let tail: String = text.chars().skip(count - tail).collect();
    format!("{head}{CUT}{tail}")
}

/// Texts of a file that go into outputs: one, one that may be absent, lists of them, values of keys.
pub trait Texts {
    /// Each as `change` gives it.
    fn changed(self, change: fn(&str) -> String) -> Self;
}

impl Texts for String {
    fn changed(self, change: fn(&str) -> String) -> Self {
        change(&self)
    }
}

impl<T: Texts> Texts for Option<T> {
    fn changed(self, change: fn(&str) -> String) -> Self {
        self.map(|text| text.changed(change))
    }
}

impl<T: Texts> Texts for Vec<T> {
    fn changed(self, change: fn(&str) -> String) -> Self {
        self.into_iter().map(|text| text.changed(change)).collect()
    }
}

impl<T: Texts> Texts for HashMap<String, T> {
    fn changed(self, change: fn(&str) -> String) -> Self {
        self.into_iter().map(|(key, text)| (key, text.changed(change))).collect()
    }
}

/// Names and titles, where serde reads them (`deserialize_with`): as [`shown`].
///
/// # Errors
/// Those of serde, where there is no text.
pub fn names<'de, D: Deserializer<'de>, T: Deserialize<'de> + Texts>(from: D) -> Result<T, D::Error> {
    Ok(T::deserialize(from)?.changed(shown))
}

/// Sentences, such as sources, where serde reads them (`deserialize_with`): as [`printable`].
///
/// # Errors
/// Those of serde, where there is no text.
pub fn prose<'de, D: Deserializer<'de>, T: Deserialize<'de> + Texts>(from: D) -> Result<T, D::Error> {
    Ok(T::deserialize(from)?.changed(printable))
}

pub use joulecast_data::Fingerprint;

/// Names of a network that is read from another format.
#[derive(Debug, Default)]
pub struct Names {
    /// How often each was asked for, and those that were given.
    taken: std::collections::HashMap<String, u32>,
}

impl Names {
    /// A name as network files allow it (letters, digits, `.`, `_`, `/`, `-`) that was not given before, with a number
    /// behind it where it must be.
    pub fn unique(&mut self, name: &str) -> String {
        let legal = |c: char| if c.is_ascii_alphanumeric() || "._/-".contains(c) { c } else { '_' };
        let base: String = name.trim_start_matches('/').chars().map(legal).take(90).collect();
        let base = if base.is_empty() { "layer".to_string() } else { base };
        let mut name = base.clone();
        while self.taken.contains_key(&name) {
            let count = self.taken.entry(base.clone()).or_default();
            *count += 1;
            name = format!("{base}_{}", *count + 1);
        }
        self.taken.insert(name.clone(), 0);
        name
    }
}

/// Lists one after the other, when compiling; `N` is their [`total`].
pub(crate) const fn joined<const N: usize>(lists: &[&[&'static str]]) -> [&'static str; N] {
    let mut all = [""; N];
    let (mut at, mut list) = (0, 0);
    while list < lists.len() {
        let mut i = 0;
        while i < lists[list].len() {
            all[at] = lists[list][i];
            (at, i) = (at + 1, i + 1);
        }
        list += 1;
    }
    all
}

/// How many there are in all lists.
pub(crate) const fn total(lists: &[&[&str]]) -> usize {
    let (mut sum, mut list) = (0, 0);
    while list < lists.len() {
        sum += lists[list].len();
        list += 1;
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_names_are_offered_and_far_ones_not() {
        let names = ["vgg16", "vgg19", "resnet50"];
        assert_eq!(nearest("vgg-16", names.into_iter()).first(), Some(&"vgg16"));
        assert!(nearest("zzz", names.into_iter()).is_empty());
    }

    #[test]
    fn names_become_legal_and_stay_apart() {
        let mut names = Names::default();
        let given = ["/a b", "a_b", "a_b", "a_b_2", "", "\n"].map(|n| names.unique(n));
        assert_eq!(given, ["a_b", "a_b_2", "a_b_3", "a_b_2_2", "layer", "_"]);
    }

    #[test]
    fn what_is_shown_carries_nothing_but_itself() {
        for (name, expected) in [
            ("ResNet-50 v1.5 (torchvision), 224 x 224", "ResNet-50 v1.5 (torchvision), 224 x 224"),
            ("x\u{1b}]0;pwn\u{7}\r\n", "x 0;pwn"),
            ("a\nb", "a b"),
            ("<script>alert(1)</script>", "script alert(1) /script"),
            ("![x](javascript:y) **b** `c` | d\\", "! x (javascript:y) b c d"),
            ("\u{202e}gpj.exe\u{200b}\u{9b}2J", "gpj.exe 2J"),
            ("<>", "?"),
            ("", ""),
        ] {
            assert_eq!(shown(name), expected, "{name:?}");
            assert_eq!(shown(&shown(name)), shown(name), "{name:?}");
        }
        let long = shown(&"x".repeat(100_000));
        assert_eq!((long.len(), shown(&long)), (LONGEST_NAME + 3, long.clone()));
        assert_eq!(printable("a < b * [c]\u{1b}[31m\n"), "a < b * [c] [31m ");
    }

    #[test]
    fn of_a_long_message_both_ends_stay() {
        let text = format!("g.toml: line 4: {}, expected u64", "\u{e9}".repeat(100_000));
        let short = shortened(&text, 300);
        assert_eq!(short.chars().count(), 300);
        assert!(short.starts_with("g.toml: line 4: \u{e9}") && short.ends_with("\u{e9}, expected u64"), "{short}");
        assert_eq!(shortened("short", 300), "short");
    }

    #[test]
    fn the_key_is_named_unless_the_words_do() {
        let text = "title = 5\nlayers = [{ name = \"a\", kind = 3 }, 4]\ntitle = 6\n";
        let at = |what: &str, nth: usize| text.match_indices(what).nth(nth).expect("there").0;
        let said = |message, place| toml_message_at(message, place, text);
        assert_eq!(said("no string", at("5", 0)), "line 1: title: no string");
        assert_eq!(said("no string", at("3", 0)), "line 2: kind: no string");
        assert_eq!(said("no table", at("4", 0)), "line 2: no table");
        assert_eq!(said("duplicate key", at("title", 1)), "line 3: title: duplicate key");
        assert_eq!(said("unknown field `title`", at("6", 0)), "line 3: unknown field `title`");
        assert_eq!(said("ends too soon", 1000), "line 4: ends too soon");

        // A key that is part of a word, one in quotes, one that was set before.
        let text = "t = \"x\"\n\"a b\"\t=\t1\n[a]\n[a]\n\"a b\" = 2\n";
        let said = |message, place| toml_message_at(message, place, text);
        assert_eq!(said("invalid type", 4), "line 1: t: invalid type");
        assert_eq!(said("t is too small", 4), "line 1: t is too small");
        assert_eq!(said("invalid type", 16), "line 2: a b: invalid type");
        assert_eq!(said("duplicate key", 23), "line 4: a: duplicate key");
        assert_eq!(said("duplicate key", 26), "line 5: a b: duplicate key");
    }

    #[test]
    fn what_was_expected_is_said_in_words() {
        let told = |expected| toml_message(&format!("invalid type: string \"x\", expected {expected}"));
        for (expected, words) in [
            ("u64", "a whole number of at least 0"),
            ("f64", "a number"),
            ("struct Toy", "a table"),
            ("enum Toy", "one of its words"),
            ("a map", "a table"),
            ("one of `u64", "one of `u64"),
        ] {
            assert_eq!(told(expected), format!("invalid type: string \"x\", expected {words}"));
        }
        assert_eq!(toml_message("missing field `u64"), "missing field `u64");
    }

    #[test]
    fn fingerprints_are_those_of_the_authors() {
        use std::fmt::Write as _;
        let of = |parts: &[&str]| {
            let mut fingerprint = Fingerprint::default();
            parts.iter().for_each(|part| fingerprint.write_str(part).expect("never fails"));
            fingerprint.to_string()
        };
        // Test vectors of draft-eastlake-fnv.
        assert_eq!(of(&[]), "6c62272e07bb014262b821756295c58d");
        assert_eq!(of(&["a"]), "d228cb696f1a8caf78912b704e4a8964");
        assert_eq!(of(&["foobar"]), "343e1662793c64bf6f0d3597ba446f18");
        assert_eq!(of(&["foo", "bar"]), of(&["foobar"]));
    }
}
