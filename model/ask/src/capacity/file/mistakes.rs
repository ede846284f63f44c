//! All mistakes of a plan file at once: each section is read on its own, and after a mistake read again without it.

use super::PlanError;
use joulecast_model::base::packed::{Wrong, from_table};
use joulecast_model::base::text::toml_message;
use serde::de::DeserializeOwned;
use toml::{Table, Value};

/// What stands in for what a section lacks, so that the rest of it can be read; nothing of it is used.
const SAMPLES: &str = r#"
[top]
schema = "capacity/1"
title = "-"
currency = "-"
[latency]
percentile = 99.0
target_ms = 1.0
[network]
net = "-"
share = 1.0
[service]
net = "-"
prompt = 1
answer = 1
[candidate]
gpu = "-"
price = 1.0
price_source = "-"
gpus_per_server = 1
server_overhead_w = 1.0
[site]
pue = 1.0
price_per_kwh = 1.0
carbon_g_per_kwh = 1.0
carbon_source = "-"
amortisation_years = 1.0
"#;

/// More mistakes of a section are not looked for.
const MOST: usize = 24;

/// A section: its name, and of several of that name its place among them, from 0.
#[derive(Clone, Copy)]
pub(super) struct Section<'a> {
    pub(super) name: &'a str,
    pub(super) place: Option<usize>,
}

impl Section<'_> {
    /// As a message begins: `[[candidate]] 2: `; nothing of the top.
    fn words(self) -> String {
        match self.place {
            _ if self.name == "top" => String::new(),
            None => format!("[{}]: ", self.name),
            Some(place) => format!("[[{}]] {}: ", self.name, place + 1),
        }
    }

    /// The line that it begins at and the lines of it, counted from 1; of what is written in another way nothing.
    fn lines(self, text: &str) -> Vec<(usize, &str)> {
        let header = match self.place {
            Some(_) => format!("[[{}]]", self.name),
            None => format!("[{}]", self.name),
        };
        let (mut seen, mut within, mut found) = (0, self.name == "top", Vec::new());
        for (i, line) in text.lines().enumerate() {
            let bare = line.split('#').next().unwrap_or_default().trim();
            if bare.starts_with('[') && bare.ends_with(']') && !bare.contains('=') {
                within = bare == header && seen == self.place.unwrap_or(0);
                seen += usize::from(bare == header);
            }
            if within {
                found.push((i + 1, line));
            }
        }
        found
    }

    /// `line 12: ` of a key, or of the section where that is not written there.
    fn line(self, text: &str, key: Option<&str>) -> String {
        let lines = self.lines(text);
        let has =
            |line: &str, key: &str| line.split_once('=').is_some_and(|(name, _)| name.trim().trim_matches('"') == key);
        let found = lines.iter().find(|(_, line)| key.is_some_and(|key| has(line, key)));
        let first = lines.first().filter(|_| self.name != "top");
        found.or(first).map_or(String::new(), |(i, _)| format!("line {i}: "))
    }
}

/// What is wrong with a file, as far as it was found.
pub(super) struct Mistakes<'t> {
    text: &'t str,
    found: Vec<String>,
}

/// The text between the first two marks.
fn quoted(message: &str, mark: char) -> Option<&str> {
    message.split(mark).nth(1)
}

impl<'t> Mistakes<'t> {
    pub(super) fn of(text: &'t str) -> Self {
        Self { text, found: Vec::new() }
    }

    pub(super) fn add(&mut self, mistake: impl Into<String>) {
        self.found.push(mistake.into());
    }

    /// The value, or nothing and one mistake more.
    pub(super) fn keep<T>(&mut self, result: Result<T, PlanError>) -> Option<T> {
        result.map_err(|e| self.found.extend(e.0)).ok()
    }

    /// # Errors
    /// All that was found.
    pub(super) fn none(self) -> Result<(), PlanError> {
        if self.found.is_empty() { Ok(()) } else { Err(PlanError(self.found)) }
    }

    /// A section's fields, and nothing where one of them is wrong: each is told.
    pub(super) fn section<T: DeserializeOwned>(&mut self, section: Section<'_>, value: Value) -> Option<T> {
        let samples: Table = toml::from_str(SAMPLES).unwrap_or_default();
        let sample = |key: &str| samples.get(section.name)?.get(key).cloned();
        let Value::Table(mut table) = value else {
            self.add(format!("{} is written as a section of its own", section.words().trim_end_matches(": ")));
            return None;
        };
        for round in 0..MOST {
            let wrong = match from_table::<T>(&table) {
                Ok(fields) => return (round == 0).then_some(fields),
                Err(wrong) => wrong,
            };
            let said = toml_message(&wrong.to_string());
            let Wrong { message, key: inner } = wrong;
            let unknown = message.starts_with("unknown field");
            let missing = message.starts_with("missing field");
            let key = if unknown || missing { quoted(&message, '`') } else { inner.as_deref() };
            let key = key.map(str::to_string);
            let at = if unknown || inner.is_some() { key.as_deref() } else { None };
            let line = section.line(self.text, at);
            self.add(format!("{line}{}{said}", section.words()));
            let key = key?;
            match sample(&key) {
                Some(value) if !unknown => drop(table.insert(key, value)),
                // Of what is not needed the default stands in.
                _ => {
                    table.remove(&key)?;
                }
            }
        }
        None
    }
}
