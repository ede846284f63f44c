//! Files of users, which are TOML, packed to be read.

use super::{Document, Error, Packed};
use crate::base::file::FileError;
use crate::base::text::{toml_error, toml_message_at, under};
use joulecast_data::pack::{Writer, tag};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::fmt;
use toml::de::{DeTable, DeValue};
use toml::value::Datetime;
use toml::{Spanned, Table, Value};

/// By which key readers of any value know a date ([`toml::value::Datetime`]).
const DATE: &str = "$__toml_private_datetime";

/// The fields of a user's file.
///
/// # Errors
/// For text that is not TOML, or has other fields.
pub fn from_toml<T: DeserializeOwned>(text: &str) -> Result<T, FileError> {
    Parsed::new(text)?.read()
}

/// A text of TOML.
pub(crate) struct Parsed<'t> {
    text: &'t str,
    packed: Vec<u8>,
    /// Where keys and values begin in the packed file's body, ascending, and where in the text.
    places: Vec<(usize, usize)>,
}

impl<'t> Parsed<'t> {
    /// # Errors
    /// For text that is not TOML.
    pub fn new(text: &'t str) -> Result<Self, FileError> {
        let root = DeTable::parse(text).map_err(|e| FileError::Syntax(toml_error(&e, text)))?;
        let mut file = Writer::default();
        file.mark(root.span().start);
        let overflown = |(place, why): (usize, &str)| FileError::Syntax(toml_message_at(why, place, text));
        write_table(root.get_ref(), &mut file).map_err(overflown)?;
        let (packed, places) = file.finish().map_err(FileError::Syntax)?;
        Ok(Self { text, packed, places })
    }

    /// The file's fields.
    ///
    /// # Errors
    /// When they are not those of the structure.
    pub fn read<'f, T: Deserialize<'f>>(&'f self) -> Result<T, FileError> {
        let document = Document::new(&self.packed)?;
        let root = document.root();
        root.read().map_err(|error| {
            let place = marked(&error, root, &self.places).unwrap_or(0);
            FileError::Syntax(toml_message_at(&error.0.message, place, self.text))
        })
    }
}

/// What was said of the key or value that is wrong.
fn marked(error: &Error, root: Packed<'_, '_>, marks: &[(usize, usize)]) -> Option<usize> {
    let here = error.0.place.map_or(0, |address| address.saturating_sub(root.rest.as_ptr().addr()));
    let last = marks.partition_point(|(at, _)| *at <= here).checked_sub(1)?;
    Some(marks[last].1)
}

/// What is wrong with the fields of a table.
#[derive(Debug)]
pub struct Wrong {
    /// As serde says it, neither shortened nor in one line.
    pub message: String,
    /// In the value of which of its keys.
    pub key: Option<String>,
}

/// With the key, unless the message names it.
impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&under(self.key.as_deref(), &self.message))
    }
}

/// The fields of a table, which a part of a user's file may be.
///
/// # Errors
/// When they are not those of the structure.
pub fn from_table<T: DeserializeOwned>(table: &Table) -> Result<T, Wrong> {
    let mut file = Writer::default();
    let outside = table.len();
    file.framed(tag::TABLE, table.len(), |file| {
        for (i, (key, value)) in table.iter().enumerate() {
            file.mark(outside);
            file.key(key);
            file.mark(i);
            write_value(value, file);
        }
    });
    let (packed, marks) = file.finish().map_err(|message| Wrong { message, key: None })?;
    let wrong = |error: Error, key: Option<String>| Wrong { message: error.0.message, key };
    let document = Document::new(&packed).map_err(|error| wrong(error, None))?;
    let root = document.root();
    root.read().map_err(|error| {
        let key = marked(&error, root, &marks).and_then(|i| table.keys().nth(i)).cloned();
        wrong(error, key)
    })
}

fn write_value(value: &Value, file: &mut Writer) {
    match value {
        Value::String(text) => file.text(text),
        Value::Integer(number) => file.integer((*number).into()),
        Value::Float(number) => file.float(*number),
        Value::Boolean(value) => file.truth(*value),
        Value::Datetime(date) => write_date(date, file),
        Value::Array(list) => {
            file.framed(tag::LIST, list.len(), |file| list.iter().for_each(|value| write_value(value, file)));
        }
        Value::Table(entries) => file.framed(tag::TABLE, entries.len(), |file| {
            entries.iter().for_each(|(key, value)| {
                file.key(key);
                write_value(value, file);
            });
        }),
    }
}

fn write_date(date: &Datetime, file: &mut Writer) {
    file.framed(tag::TABLE, 1, |file| {
        file.key(DATE);
        file.text(&date.to_string());
    });
}

/// A number that is none: where, and what is wrong with it.
type Overflow = (usize, &'static str);

fn write(value: &Spanned<DeValue<'_>>, file: &mut Writer) -> Result<(), Overflow> {
    let place = value.span().start;
    file.mark(place);
    match value.get_ref() {
        DeValue::String(text) => file.text(text),
        DeValue::Integer(number) => {
            let number = i128::from_str_radix(number.as_str(), number.radix());
            file.integer(number.map_err(|_| (place, "integer number overflowed"))?);
        }
        DeValue::Float(number) => {
            let text = number.as_str();
            let read = text
                .parse()
                .ok()
                .filter(|number: &f64| number.is_finite() || !text.contains(|c: char| c.is_ascii_digit()));
            file.float(read.ok_or((place, "floating-point number overflowed"))?);
        }
        DeValue::Boolean(value) => file.truth(*value),
        DeValue::Datetime(date) => write_date(date, file),
        DeValue::Array(list) => {
            file.framed(tag::LIST, list.len(), |file| list.iter().try_for_each(|value| write(value, file)))?;
        }
        DeValue::Table(entries) => write_table(entries, file)?,
    }
    Ok(())
}

fn write_table(entries: &DeTable<'_>, file: &mut Writer) -> Result<(), Overflow> {
    file.framed(tag::TABLE, entries.len(), |file| {
        entries.iter().try_for_each(|(key, value)| {
            file.mark(key.span().start);
            file.key(key.get_ref());
            write(value, file)
        })
    })
}
