//! Objects of our JSON documents as columns.

use arrow_array::builder::{BooleanBuilder, Float64Builder, Int64Builder, StringBuilder};
use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{ArrowError, DataType, Field, Schema};
use pyo3::prelude::*;
use pyo3::types::{PyAny, PyBool, PyDict, PyInt, PyList, PyString};
use serde_json::{Map, Value};
use std::sync::Arc;

/// Nested keys joined by dots, lists of texts by semicolons; other lists are left out.
fn flat(key: &str, value: &Value, cells: &mut Map<String, Value>) {
    match value {
        Value::Object(map) => map.iter().for_each(|(k, v)| flat(&format!("{key}.{k}"), v, cells)),
        Value::Array(items) if items.iter().all(Value::is_string) => {
            let text = items.iter().filter_map(Value::as_str).collect::<Vec<_>>().join("; ");
            cells.insert(key.into(), Value::String(text));
        }
        Value::Array(_) => {}
        other => {
            cells.insert(key.into(), other.clone());
        }
    }
}

/// What a column without a value would hold: quantities carry their unit in the name.
fn of_name(name: &str) -> DataType {
    let units =
        ["_s", "_w", "_j", "_js", "_mhz", "_g", "_kg", "_ms", "_bytes", "_p05", "_p95", "_error", "_hour", "_million"];
    if units.iter().any(|unit| name.ends_with(unit)) { DataType::Float64 } else { DataType::Utf8 }
}

fn type_of<'a>(name: &str, values: impl Iterator<Item = Option<&'a Value>>) -> DataType {
    let mut found: Option<DataType> = None;
    for value in values.flatten() {
        let this = match value {
            Value::Null => continue,
            Value::Bool(_) => DataType::Boolean,
            Value::Number(n) if n.is_i64() => DataType::Int64,
            Value::Number(_) => DataType::Float64,
            _ => DataType::Utf8,
        };
        found = Some(match (found, this) {
            (None, this) => this,
            (Some(a), b) if a == b => a,
            (Some(DataType::Int64 | DataType::Float64), DataType::Int64 | DataType::Float64) => DataType::Float64,
            _ => DataType::Utf8,
        });
    }
    found.unwrap_or_else(|| of_name(name))
}

fn column<'a>(kind: &DataType, values: impl Iterator<Item = Option<&'a Value>>) -> ArrayRef {
    let values = values.map(|v| v.filter(|v| !v.is_null()));
    match kind {
        DataType::Boolean => {
            let mut builder = BooleanBuilder::new();
            values.for_each(|v| builder.append_option(v.and_then(Value::as_bool)));
            Arc::new(builder.finish())
        }
        DataType::Int64 => {
            let mut builder = Int64Builder::new();
            values.for_each(|v| builder.append_option(v.and_then(Value::as_i64)));
            Arc::new(builder.finish())
        }
        DataType::Float64 => {
            let mut builder = Float64Builder::new();
            values.for_each(|v| builder.append_option(v.and_then(Value::as_f64)));
            Arc::new(builder.finish())
        }
        _ => {
            let mut builder = StringBuilder::new();
            values.for_each(|v| match v {
                Some(Value::String(text)) => builder.append_value(text),
                Some(other) => builder.append_value(other.to_string()),
                None => builder.append_null(),
            });
            Arc::new(builder.finish())
        }
    }
}

/// A value of Python's `json`, with every digit: serde_json's own reader may miss the last one.
///
/// # Errors
/// When it is none that JSON has.
pub fn value(of: &Bound<'_, PyAny>) -> PyResult<Value> {
    if of.is_none() {
        return Ok(Value::Null);
    }
    if let Ok(dict) = of.cast::<PyDict>() {
        let entry = |(key, of): (Bound<'_, PyAny>, Bound<'_, PyAny>)| Ok((key.extract::<String>()?, value(&of)?));
        return Ok(Value::Object(dict.iter().map(entry).collect::<PyResult<_>>()?));
    }
    if let Ok(list) = of.cast::<PyList>() {
        return Ok(Value::Array(list.iter().map(|of| value(&of)).collect::<PyResult<_>>()?));
    }
    if let Ok(text) = of.cast::<PyString>() {
        return Ok(Value::String(text.extract()?));
    }
    if let Ok(truth) = of.cast::<PyBool>() {
        return Ok(Value::Bool(truth.is_true()));
    }
    match of.extract::<i64>() {
        Ok(whole) if of.is_instance_of::<PyInt>() => Ok(whole.into()),
        _ => Ok(of.extract::<f64>()?.into()),
    }
}

/// A row per object, a column per key of any.
///
/// # Errors
/// Never of objects; Arrow may refuse.
pub fn batch<'a>(objects: impl IntoIterator<Item = &'a Value>) -> Result<RecordBatch, ArrowError> {
    let mut rows: Vec<Map<String, Value>> = Vec::new();
    let mut names: Vec<String> = Vec::new();
    for object in objects {
        let mut cells = Map::new();
        object.as_object().into_iter().flatten().for_each(|(k, v)| flat(k, v, &mut cells));
        for name in cells.keys().filter(|name| !names.contains(name)).cloned().collect::<Vec<_>>() {
            names.push(name);
        }
        rows.push(cells);
    }
    let columns: Vec<(Field, ArrayRef)> = names
        .iter()
        .map(|name| {
            let kind = type_of(name, rows.iter().map(|r| r.get(name)));
            let array = column(&kind, rows.iter().map(|r| r.get(name)));
            (Field::new(name, kind, true), array)
        })
        .collect();
    let (fields, arrays): (Vec<Field>, Vec<ArrayRef>) = columns.into_iter().unzip();
    let options = arrow_array::RecordBatchOptions::new().with_row_count(Some(rows.len()));
    RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), arrays, &options)
}
