//! Values of a mapping: literals, columns, products of columns, and maps.

use super::super::columns::{Columns, Record};
use super::super::{ImportError, shown, whole};
use std::collections::HashMap;

/// Where a value comes from, as a mapping file writes it: a literal, `"$column"`, a product such as `"$c * $h"`,
/// a list of values (a pair), or a table `{ column, map, unmapped }`.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    Literal(toml::Value),
    Column(String),
    Product(Vec<Value>),
    List(Vec<Value>),
    Map { column: String, map: HashMap<String, String>, must_cover: bool },
}

/// Why a row is not imported.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Outcome {
    /// Left out, and counted.
    Skip(String),
    /// The whole import stops.
    Fail(String),
}

impl From<String> for Outcome {
    fn from(reason: String) -> Self {
        Self::Skip(reason)
    }
}

impl From<&str> for Outcome {
    fn from(reason: &str) -> Self {
        Self::Skip(reason.to_string())
    }
}

impl Value {
    /// Reads a value of a mapping file; the error says what is wrong with it.
    pub fn parse(value: &toml::Value) -> Result<Self, String> {
        match value {
            toml::Value::String(text) if text.contains('*') && text.contains('$') => {
                Ok(Self::Product(text.split('*').map(factor).collect::<Result<_, _>>()?))
            }
            toml::Value::String(text) => Ok(match text.strip_prefix('$') {
                Some(column) => Self::Column(column.to_string()),
                None => Self::Literal(value.clone()),
            }),
            toml::Value::Array(items) => Ok(Self::List(items.iter().map(Self::parse).collect::<Result<_, _>>()?)),
            toml::Value::Table(table) => Self::parse_map(table),
            toml::Value::Integer(_) | toml::Value::Boolean(_) | toml::Value::Float(_) => {
                Ok(Self::Literal(value.clone()))
            }
            toml::Value::Datetime(_) => Err("a date is no value of a layer".to_string()),
        }
    }

    fn parse_map(table: &toml::Table) -> Result<Self, String> {
        if let Some(key) = table.keys().find(|key| !["column", "map", "unmapped"].contains(&key.as_str())) {
            return Err(format!("unknown key {}, expected column, map or unmapped", shown(key)));
        }
        let Some(toml::Value::String(column)) = table.get("column") else {
            return Err("a table needs the name of a column".to_string());
        };
        let Some(toml::Value::Table(map)) = table.get("map") else {
            return Err("a table needs a map; a column alone is written \"$column\"".to_string());
        };
        let text = |(from, to): (&String, &toml::Value)| match to {
            toml::Value::String(to) => Ok((from.clone(), to.clone())),
            _ => Err(format!("the map's {} must be text", shown(from))),
        };
        let must_cover = match table.get("unmapped").map(toml::Value::as_str) {
            None | Some(Some("error")) => true,
            Some(Some("skip")) => false,
            Some(_) => return Err("unmapped is neither \"skip\" nor \"error\"".to_string()),
        };
        Ok(Self::Map { column: column.clone(), map: map.iter().map(text).collect::<Result<_, _>>()?, must_cover })
    }

    /// Finds the columns in a table.
    pub fn bind(&self, table: &Columns) -> Result<Bound<'_>, ImportError> {
        Ok(match self {
            Self::Literal(value) => Bound::Literal(value),
            Self::Column(name) => Bound::Column(name, table.require(name)?),
            Self::Product(items) => Bound::Product(items.iter().map(|i| i.bind(table)).collect::<Result<_, _>>()?),
            Self::List(items) => Bound::List(items.iter().map(|i| i.bind(table)).collect::<Result<_, _>>()?),
            Self::Map { column, map, must_cover } => {
                Bound::Map { name: column, at: table.require(column)?, map, must_cover: *must_cover }
            }
        })
    }
}

fn factor(text: &str) -> Result<Value, String> {
    let text = text.trim();
    match (text.strip_prefix('$'), text.parse::<u32>()) {
        (Some(column), _) => Ok(Value::Column(column.to_string())),
        (None, Ok(number)) => Ok(Value::Literal(i64::from(number).into())),
        (None, Err(_)) => Err(format!("{} is neither a column ($name) nor a whole number", shown(text))),
    }
}

/// A value whose columns are found.
pub(super) enum Bound<'m> {
    Literal(&'m toml::Value),
    Column(&'m str, usize),
    Product(Vec<Bound<'m>>),
    List(Vec<Bound<'m>>),
    Map { name: &'m str, at: usize, map: &'m HashMap<String, String>, must_cover: bool },
}

impl Bound<'_> {
    /// As text; an empty cell is a reason to skip the row.
    pub fn text(&self, record: &Record<'_>) -> Result<String, Outcome> {
        self.optional(record)?.ok_or_else(|| match self {
            Self::Column(name, _) | Self::Map { name, .. } => format!("{name} is empty").into(),
            _ => "no text".into(),
        })
    }

    /// As text; an empty cell is unknown.
    pub fn optional(&self, record: &Record<'_>) -> Result<Option<String>, Outcome> {
        match self {
            Self::Literal(toml::Value::String(text)) => Ok(Some(text.clone())),
            Self::Literal(other) => Ok(Some(other.to_string())),
            Self::Column(_, at) => Ok(record.get(Some(*at)).map(str::to_string)),
            Self::Map { name, at, map, must_cover } => match record.get(Some(*at)) {
                None => Ok(None),
                Some(text) => match map.get(text) {
                    Some(mapped) => Ok(Some(mapped.clone())),
                    None if *must_cover => Err(Outcome::Fail(format!("{name} {} is not in the map", shown(text)))),
                    None => Err(Outcome::Skip(format!("{name} {} is not in the map", shown(text)))),
                },
            },
            Self::Product(_) | Self::List(_) => Err(Outcome::Fail("a product or list stands for text".to_string())),
        }
    }

    /// As a number.
    pub fn number(&self, record: &Record<'_>) -> Result<f64, Outcome> {
        match self {
            Self::Literal(toml::Value::Integer(number)) => Ok(*number as f64),
            Self::Literal(toml::Value::Float(number)) => Ok(*number),
            Self::Column(name, at) => record.number(Some(*at)).ok_or_else(|| format!("{name} is not a number").into()),
            Self::Product(items) => items.iter().map(|item| item.number(record)).product(),
            Self::Map { name, .. } => {
                self.text(record)?.parse().map_err(|_| Outcome::Skip(format!("{name} is not a number")))
            }
            Self::Literal(_) | Self::List(_) => Err(Outcome::Fail("text or a list stands for a number".to_string())),
        }
    }

    /// As a whole number from 0.
    pub fn whole(&self, record: &Record<'_>) -> Result<u64, Outcome> {
        whole(self.number(record)?).ok_or_else(|| match self {
            Self::Column(name, _) => format!("{name} is not a whole number from 0").into(),
            _ => "a size is not a whole number from 0".into(),
        })
    }

    /// As a field of a layer: columns are whole numbers.
    pub fn toml(&self, record: &Record<'_>) -> Result<toml::Value, Outcome> {
        match self {
            Self::Literal(value) => Ok((*value).clone()),
            Self::List(items) => {
                Ok(toml::Value::Array(items.iter().map(|item| item.toml(record)).collect::<Result<_, _>>()?))
            }
            Self::Map { .. } => Ok(toml::Value::String(self.text(record)?)),
            Self::Column(..) | Self::Product(_) => Ok(toml::Value::Integer(self.whole(record)? as i64)),
        }
    }
}
