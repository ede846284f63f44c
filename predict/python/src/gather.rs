//! Cells of several columns of one type as one column.

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int32Type, Int64Type};
use arrow_array::{Array, ArrayRef, BooleanArray, DictionaryArray, Float64Array, Int32Array, Int64Array, StringArray};
use arrow_schema::{ArrowError, DataType};
use std::collections::HashMap;
use std::sync::Arc;

/// The cells at places, each a part and a row in it, of the types that a sweep has.
///
/// # Errors
/// When the type is another.
pub fn gathered(parts: &[ArrayRef], places: &[(usize, usize)]) -> Result<ArrayRef, ArrowError> {
    let Some(first) = parts.first() else { return Err(ArrowError::InvalidArgumentError("no columns".into())) };
    Ok(match first.data_type() {
        DataType::Float64 => {
            let parts: Vec<_> = parts.iter().map(|p| p.as_primitive::<Float64Type>()).collect();
            let cell = |(p, i): &(usize, usize)| parts[*p].is_valid(*i).then(|| parts[*p].value(*i));
            Arc::new(Float64Array::from_iter(places.iter().map(cell)))
        }
        DataType::Int64 => {
            let parts: Vec<_> = parts.iter().map(|p| p.as_primitive::<Int64Type>()).collect();
            let cell = |(p, i): &(usize, usize)| parts[*p].is_valid(*i).then(|| parts[*p].value(*i));
            Arc::new(Int64Array::from_iter(places.iter().map(cell)))
        }
        DataType::Boolean => {
            let parts: Vec<_> = parts.iter().map(|p| p.as_boolean()).collect();
            let cell = |(p, i): &(usize, usize)| parts[*p].is_valid(*i).then(|| parts[*p].value(*i));
            Arc::new(BooleanArray::from_iter(places.iter().map(cell)))
        }
        DataType::Utf8 => {
            let parts: Vec<_> = parts.iter().map(|p| p.as_string::<i32>()).collect();
            let cell = |(p, i): &(usize, usize)| parts[*p].is_valid(*i).then(|| parts[*p].value(*i));
            Arc::new(StringArray::from_iter(places.iter().map(cell)))
        }
        DataType::Dictionary(..) => {
            let parts: Vec<_> = parts.iter().map(|p| p.as_dictionary::<Int32Type>()).collect();
            let (mut known, mut values): (HashMap<&str, i32>, Vec<&str>) = Default::default();
            // What each part's keys are among all names.
            let mut renamed: Vec<Vec<i32>> = Vec::with_capacity(parts.len());
            for part in &parts {
                let names = part.values().as_string::<i32>();
                let mut of = |i: usize| {
                    *known.entry(names.value(i)).or_insert_with_key(|name| {
                        values.push(name);
                        values.len() as i32 - 1
                    })
                };
                renamed.push((0..names.len()).map(&mut of).collect());
            }
            let cell = |(p, i): &(usize, usize)| parts[*p].key(*i).map(|key| renamed[*p][key]);
            let keys = Int32Array::from_iter(places.iter().map(cell));
            Arc::new(DictionaryArray::<Int32Type>::try_new(keys, Arc::new(StringArray::from(values)))?)
        }
        other => return Err(ArrowError::InvalidArgumentError(format!("no cells of type {other}"))),
    })
}
