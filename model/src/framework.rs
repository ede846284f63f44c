//! Framework profiles: what a framework adds to the kernels. `data/frameworks/*.toml`, `framework/1`.

use crate::catalog;
use crate::text::{check_schema, nearest, toml_error};
use crate::units::{Dimension, Seconds, parse_with_unit};
use serde::Deserialize;

/// A framework profile.
#[derive(Clone, Debug, PartialEq)]
pub struct Framework {
    /// Name on the command line.
    pub name: String,
    /// In words.
    pub title: String,
    /// Gap after every kernel.
    pub dispatch: Seconds,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    schema: String,
    name: String,
    title: String,
    dispatch: Entry,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    value: String,
    #[serde(rename = "source")]
    _source: String,
}

impl Framework {
    /// Reads a profile.
    ///
    /// # Errors
    /// One line that says where it is malformed.
    pub fn from_toml(text: &str) -> Result<Self, String> {
        let file: File = toml::from_str(text).map_err(|e| toml_error(&e, text))?;
        check_schema(&file.schema, "framework/1")?;
        let dispatch = parse_with_unit(&file.dispatch.value, Dimension::Time).map_err(|e| format!("dispatch: {e}"))?;
        Ok(Self { name: file.name, title: file.title, dispatch: Seconds::new(dispatch) })
    }

    /// A shipped profile.
    ///
    /// # Errors
    /// When there is none of that name; the message lists them.
    pub fn named(name: &str) -> Result<Self, String> {
        let table = catalog::frameworks();
        match table.iter().find(|(key, _)| *key == name) {
            Some((_, text)) => Self::from_toml(text),
            None => {
                let names = table.iter().map(|(key, _)| *key);
                let near = nearest(name, names.clone());
                let list = if near.is_empty() { names.collect::<Vec<_>>() } else { near };
                Err(format!("no framework profile named \"{name}\"; there is: {}", list.join(", ")))
            }
        }
    }
}
