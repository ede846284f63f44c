//! A prediction for each row of a table, for engines that hand tables on.

use crate::arrow;
use crate::failure::error;
use crate::session;
use crate::sweep::{Which, refused, threads};
use crate::table::Table;
use crate::watched::{Watch, watched};
use anyhow::anyhow;
use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowDictionaryKeyType, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type, UInt16Type,
    UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_schema::{DataType, Field, Schema};
use joulecast_model::base::units::{Hertz, Watts};
use joulecast_model::step::predictor::OperatingPoint;
use joulecast_predict::ask::{Row, Sweep};
use joulecast_predict::{Failure, typed};
use pyo3::exceptions::{PyKeyError, PyTypeError};
use pyo3::prelude::*;
use rayon::prelude::*;
use std::collections::HashMap;
use std::sync::Arc;

fn keyed<K: ArrowDictionaryKeyType>(column: &ArrayRef, row: usize) -> Option<String> {
    let column = column.as_dictionary::<K>();
    column.key(row).and_then(|key| text(column.values(), key))
}

/// A cell as an option of the command line would be typed.
fn text(column: &ArrayRef, row: usize) -> Option<String> {
    if column.is_null(row) {
        return None;
    }
    Some(match column.data_type() {
        DataType::Utf8 => column.as_string::<i32>().value(row).to_string(),
        DataType::LargeUtf8 => column.as_string::<i64>().value(row).to_string(),
        DataType::Utf8View => column.as_string_view().value(row).to_string(),
        DataType::Int8 => column.as_primitive::<Int8Type>().value(row).to_string(),
        DataType::Int16 => column.as_primitive::<Int16Type>().value(row).to_string(),
        DataType::Int32 => column.as_primitive::<Int32Type>().value(row).to_string(),
        DataType::Int64 => column.as_primitive::<Int64Type>().value(row).to_string(),
        DataType::UInt8 => column.as_primitive::<UInt8Type>().value(row).to_string(),
        DataType::UInt16 => column.as_primitive::<UInt16Type>().value(row).to_string(),
        DataType::UInt32 => column.as_primitive::<UInt32Type>().value(row).to_string(),
        DataType::UInt64 => column.as_primitive::<UInt64Type>().value(row).to_string(),
        DataType::Float32 => column.as_primitive::<Float32Type>().value(row).to_string(),
        DataType::Float64 => column.as_primitive::<Float64Type>().value(row).to_string(),
        DataType::Dictionary(key, _) => match **key {
            DataType::Int8 => keyed::<Int8Type>(column, row)?,
            DataType::Int16 => keyed::<Int16Type>(column, row)?,
            DataType::Int64 => keyed::<Int64Type>(column, row)?,
            DataType::UInt8 => keyed::<UInt8Type>(column, row)?,
            DataType::UInt16 => keyed::<UInt16Type>(column, row)?,
            DataType::UInt32 => keyed::<UInt32Type>(column, row)?,
            _ => keyed::<Int32Type>(column, row)?,
        },
        _ => return None,
    })
}

fn number(column: &ArrayRef, row: usize) -> Option<f64> {
    match column.data_type() {
        DataType::Float64 if !column.is_null(row) => Some(column.as_primitive::<Float64Type>().value(row)),
        _ => text(column, row).and_then(|t| t.parse().ok()),
    }
    .filter(|v| !v.is_nan())
}

/// Columns that say what a row is of, and the options that they are.
const TAKEN: [(&str, &str); 11] = [
    ("network", "--net"),
    ("net", "--net"),
    ("gpu", "--gpu"),
    ("batch", "--batch"),
    ("precision", "--precision"),
    ("mode", "--mode"),
    ("framework", "--framework"),
    ("launch", "--launch"),
    ("sequence", "--sequence"),
    ("conv_algorithm", "--conv-algorithm"),
    ("optimizer", "--optimizer"),
];

fn readable(kind: &DataType) -> bool {
    match kind {
        DataType::Dictionary(_, value) => readable(value),
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View | DataType::Null => true,
        other => other.is_numeric(),
    }
}

/// Rows of one step, at as many points.
struct Group {
    words: Vec<String>,
    rows: Vec<usize>,
    points: Vec<OperatingPoint>,
}

/// Rows that are alike but for clock and limit.
fn groups(batch: &RecordBatch, options: &[String]) -> Vec<Group> {
    let column = |name: &str| batch.column_by_name(name);
    let taken: Vec<(&ArrayRef, &str)> =
        TAKEN.iter().filter_map(|(name, option)| column(name).map(|c| (c, *option))).collect();
    let (clock, memory) = (column("clock_mhz"), column("mem_clock_mhz"));
    let cap = column("power_limit_w").or_else(|| column("power_cap_w"));
    let (mut known, mut groups): (HashMap<Vec<Option<String>>, usize>, Vec<Group>) = Default::default();
    for row in 0..batch.num_rows() {
        let key: Vec<Option<String>> = taken.iter().map(|(column, _)| text(column, row)).collect();
        let place = *known.entry(key).or_insert_with_key(|key| {
            let mut words = options.to_vec();
            for ((_, option), value) in taken.iter().zip(key) {
                if let Some(value) = value {
                    words.extend([option.to_string(), value.clone()]);
                }
            }
            if !taken.iter().any(|(_, option)| *option == "--batch") && !words.iter().any(|w| w == "--batch") {
                words.extend(["--batch".into(), "1".into()]);
            }
            groups.push(Group { words, rows: Vec::new(), points: Vec::new() });
            groups.len() - 1
        });
        let at = |column: Option<&ArrayRef>| column.and_then(|c| number(c, row));
        groups[place].rows.push(row);
        groups[place].points.push(OperatingPoint {
            core_clock: at(clock).map(Hertz::from_mhz),
            memory_clock: at(memory).map(Hertz::from_mhz),
            power_cap: at(cap).map(Watts::new),
        });
    }
    groups
}

/// What of a group is predicted, in its order, or why nothing of it is.
fn predicted(group: &Group) -> Result<RecordBatch, Failure> {
    let typed = typed::sweep(&group.words)?;
    let wrong = group.points.iter().any(|p| {
        let unusable = |v: f64| !(v.is_finite() && v > 0.0);
        p.power_cap.is_some_and(|w| unusable(w.get()))
            || [p.core_clock, p.memory_clock].into_iter().flatten().any(|f| unusable(f.get()))
    });
    if wrong {
        return Err(Failure::Usage(anyhow!("clocks and limits must be numbers above 0")));
    }
    let sweep = Sweep::new(session(), &typed.request, &typed.sequences, group.points.clone())?;
    if sweep.rows() != group.points.len() as u64 {
        return Err(Failure::Usage(anyhow!("a row is of one network, GPU, batch, precision and mode")));
    }
    let rows = sweep.here()?;
    Which::Results.batch(rows.iter()).map_err(refused)
}

/// Results of a table's rows, in their order.
fn results(batch: &RecordBatch, options: &[String], watch: &Watch) -> Result<RecordBatch, Failure> {
    let groups = groups(batch, options);
    let schema = Which::Results.schema();
    let empty = || Which::Results.batch(std::iter::empty::<&Row<'_>>());
    let parts: Vec<RecordBatch> = groups
        .par_iter()
        .map(|group| {
            if watch.is_stopped() {
                return Err(Failure::Failed(anyhow!("nobody waits for it")));
            }
            let made = predicted(group).or_else(|why| failed(group.rows.len(), &why).map_err(refused));
            watch.done(group.rows.len() as u64);
            made
        })
        .collect::<Result<_, Failure>>()?;
    let mut places = vec![(0, 0); batch.num_rows()];
    for (part, group) in groups.iter().enumerate() {
        for (i, row) in group.rows.iter().enumerate() {
            places[*row] = (part, i);
        }
    }
    if parts.is_empty() {
        return empty().map_err(refused);
    }
    let columns = (0..schema.fields().len()).map(|c| gathered(&parts, c, &places));
    RecordBatch::try_new(schema, columns.collect::<Result<Vec<_>, _>>().map_err(refused)?).map_err(refused)
}

/// Rows that all say why there is no prediction.
fn failed(rows: usize, why: &Failure) -> Result<RecordBatch, arrow_schema::ArrowError> {
    let schema = Which::Results.schema();
    let why = crate::failure::error_text(why);
    let column = |field: &Arc<Field>| -> ArrayRef {
        match field.name().as_str() {
            "error" => Arc::new(arrow_array::StringArray::from(vec![why.as_str(); rows])),
            _ => arrow_array::new_null_array(field.data_type(), rows),
        }
    };
    RecordBatch::try_new(Arc::clone(&schema), schema.fields().iter().map(column).collect())
}

/// A column of parts in the order of places.
fn gathered(
    parts: &[RecordBatch],
    column: usize,
    places: &[(usize, usize)],
) -> Result<ArrayRef, arrow_schema::ArrowError> {
    crate::gather::gathered(&parts.iter().map(|p| Arc::clone(p.column(column))).collect::<Vec<_>>(), places)
}

/// Whether options are some, and have values that they take, whatever the rows say beside them.
fn checked(py: Python<'_>, words: &[String]) -> PyResult<()> {
    let mut whole = words.to_vec();
    for (option, value) in [("--net", "-"), ("--gpu", "-"), ("--batch", "1")] {
        if !words.iter().any(|word| word == option) {
            whole.extend([option.to_string(), value.to_string()]);
        }
    }
    let Err(failure) = typed::sweep(&whole) else { return Ok(()) };
    // What options need beside them columns may have.
    let is_of_value = failure.to_string().starts_with("invalid value");
    let why = error(failure);
    if is_of_value || why.is_instance_of::<PyTypeError>(py) { Err(why) } else { Ok(()) }
}

/// The table with the columns of a sweep's results behind its own. `bar` is told as of a sweep.
#[pyfunction]
pub fn map_table(
    py: Python<'_>,
    table: &Bound<'_, PyAny>,
    words: Vec<String>,
    workers: Option<usize>,
    bar: Option<Bound<'_, PyAny>>,
) -> PyResult<Table> {
    let (schema, batches) = arrow::batches(table)?;
    if let Some(bar) = &bar {
        bar.setattr("total", batches.iter().map(RecordBatch::num_rows).sum::<usize>())?;
    }
    let given = |option: &str| words.iter().any(|w| w == option);
    for (names, option) in [(&["network", "net"][..], "--net"), (&["gpu"], "--gpu")] {
        if !names.iter().any(|name| schema.column_with_name(name).is_some()) && !given(option) {
            return Err(PyKeyError::new_err(format!("the table has no column {}", names[0])));
        }
    }
    checked(py, &words)?;
    let points = ["clock_mhz", "mem_clock_mhz", "power_limit_w", "power_cap_w"];
    for field in schema.fields() {
        let read = TAKEN.iter().map(|(name, _)| *name).chain(points).any(|name| name == field.name());
        if read && !readable(field.data_type()) {
            let why = format!("column {} is of type {}, not text or numbers", field.name(), field.data_type());
            return Err(PyTypeError::new_err(why));
        }
    }
    let added = Which::Results.schema();
    // A table that was made by this function is made anew.
    let kept: Vec<usize> =
        (0..schema.fields().len()).filter(|i| added.column_with_name(schema.field(*i).name()).is_none()).collect();
    let fields = kept.iter().map(|i| Arc::clone(&schema.fields()[*i])).chain(added.fields().iter().cloned());
    let whole = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    let schema = Arc::clone(&whole);
    let made = watched(py, bar.as_ref(), move |watch| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads(workers)?).build();
        let pool = pool.map_err(|e| Failure::Failed(e.into()))?;
        pool.install(|| {
            let made = |batch: &RecordBatch| -> Result<RecordBatch, Failure> {
                let results = results(batch, &words, watch)?;
                let columns = kept.iter().map(|i| Arc::clone(batch.column(*i)));
                let columns = columns.chain(results.columns().iter().cloned()).collect();
                RecordBatch::try_new(Arc::clone(&schema), columns).map_err(refused)
            };
            batches.iter().map(made).collect::<Result<Vec<_>, _>>()
        })
    });
    Ok(Table::new(whole, made?))
}
