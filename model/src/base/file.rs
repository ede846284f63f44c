//! What a file of one of the project's schemas must be, and why it cannot be used.

use crate::base::text::shown;
use crate::base::units::{Dimension, UnitError, parse_with_unit};
use std::ops::RangeInclusive;

/// Why a file cannot be used, in one line without the file's name.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum FileError {
    /// Not TOML, or without the fields of its schema: where, and what.
    #[error("{0}")]
    Syntax(String),
    /// Of another schema than its reader knows.
    #[error("schema is \"{found}\", expected \"{expected}\"")]
    Schema {
        /// As the file says.
        found: String,
        /// Such as `gpu/1`.
        expected: &'static str,
    },
    /// A number that no such number can be.
    #[error("{field} is {value:?}, which is not a number from {low} to {high}")]
    Range {
        /// The field's name.
        field: String,
        /// What it says.
        value: f64,
        /// The least that it can be.
        low: f64,
        /// The most that it can be.
        high: f64,
    },
    /// A text that is no quantity of the field's dimension.
    #[error("{field}: {why}")]
    Quantity {
        /// The field's name.
        field: String,
        /// What is wrong with the text.
        why: UnitError,
    },
    /// A source that the file does not list.
    #[error("{field}: no source \"{key}\" under [sources]")]
    Source {
        /// The field's name.
        field: String,
        /// The source that it gives.
        key: String,
    },
    /// A value that makes no sense where it stands.
    #[error("{field}: {why}")]
    Value {
        /// The field's name, or that of its entry.
        field: String,
        /// In words.
        why: String,
    },
    /// In one of several parts, or of a file whose name is known.
    #[error("{place}: {why}")]
    At {
        /// The part's or the file's name.
        place: String,
        /// What is wrong there.
        why: Box<FileError>,
    },
}

impl FileError {
    /// The same in a part of a file, or in a file of a name.
    pub fn at(self, place: impl Into<String>) -> Self {
        Self::At { place: place.into(), why: Box::new(self) }
    }

    /// A field whose value makes no sense.
    pub fn value(field: impl Into<String>, why: impl Into<String>) -> Self {
        Self::Value { field: field.into(), why: why.into() }
    }
}

/// Whether a file is of the schema that its reader knows.
///
/// # Errors
/// Names both.
pub fn check_schema(found: &str, expected: &'static str) -> Result<(), FileError> {
    if found == expected { Ok(()) } else { Err(FileError::Schema { found: shown(found), expected }) }
}

/// A number of a file that lies within what any such number can be.
///
/// # Errors
/// Names the field, the number and the range; a number that is none lies in no range.
pub(crate) fn within(field: &str, value: f64, range: RangeInclusive<f64>) -> Result<f64, FileError> {
    if range.contains(&value) {
        return Ok(value);
    }
    let (low, high) = range.into_inner();
    Err(FileError::Range { field: field.into(), value, low, high })
}

/// A quantity of a file, in the base unit of its dimension.
///
/// # Errors
/// Names the field.
pub(crate) fn quantity(field: &str, text: &str, dimension: Dimension) -> Result<f64, FileError> {
    parse_with_unit(text, dimension).map_err(|why| FileError::Quantity { field: field.into(), why })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_are_none_are_within_nothing() {
        assert_eq!(within("x", -0.0, 0.0..=1.0), Ok(-0.0));
        for value in [f64::NAN, f64::INFINITY, 6e99, -1e-320] {
            let error = within("x", value, 0.0..=1.0).expect_err("outside").to_string();
            assert!(error.starts_with("x is ") && error.ends_with("from 0 to 1"), "{error}");
        }
    }

    #[test]
    fn what_is_wrong_is_said_with_its_place() {
        let error = quantity("hop", "5 parsecs", Dimension::Time).expect_err("no time").at("rule a").at("b.toml");
        assert!(error.to_string().starts_with("b.toml: rule a: hop: \"5 parsecs\""), "{error}");
        let schema = check_schema("gpu/2", "gpu/1").expect_err("another").to_string();
        assert_eq!(schema, "schema is \"gpu/2\", expected \"gpu/1\"");
    }
}
