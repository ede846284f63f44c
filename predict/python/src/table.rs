//! Tables.

use crate::arrow;
use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int32Type, Int64Type};
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_schema::{DataType, SchemaRef};
use pyo3::exceptions::{PyIndexError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict, PyList};
use std::sync::Arc;

/// Rows that a notebook shows.
const SHOWN: usize = 20;

/// Rows and columns, for whatever reads Arrow: `polars.DataFrame(table)`, `pyarrow.table(table)`, `duckdb.from_arrow`.
#[pyclass(frozen, module = "joulecast")]
pub struct Table {
    schema: SchemaRef,
    batches: Vec<RecordBatch>,
}

impl Table {
    /// Batches of one schema.
    pub fn new(schema: SchemaRef, batches: Vec<RecordBatch>) -> Self {
        Self { schema, batches }
    }

    /// A row per JSON object.
    ///
    /// # Errors
    /// When Arrow refuses.
    pub fn of<'a>(objects: impl IntoIterator<Item = &'a serde_json::Value>) -> PyResult<Self> {
        let batch = crate::rows::batch(objects).map_err(|e| PyValueError::new_err(e.to_string()))?;
        Ok(Self { schema: batch.schema(), batches: vec![batch] })
    }

    fn row<'py>(&self, py: Python<'py>, batch: &RecordBatch, row: usize) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        for (field, column) in self.schema.fields().iter().zip(batch.columns()) {
            dict.set_item(field.name(), cell(py, column, row)?)?;
        }
        Ok(dict)
    }

    fn count(&self) -> usize {
        self.batches.iter().map(RecordBatch::num_rows).sum()
    }
}

/// A cell as Python's value. Columns of others, which [`crate::map`] passes on, are shown by Arrow's readers alone.
fn cell<'py>(py: Python<'py>, column: &ArrayRef, row: usize) -> PyResult<Bound<'py, PyAny>> {
    if column.is_null(row) {
        return Ok(py.None().into_bound(py));
    }
    Ok(match column.data_type() {
        DataType::Utf8 => column.as_string::<i32>().value(row).into_pyobject(py)?.into_any(),
        DataType::LargeUtf8 => column.as_string::<i64>().value(row).into_pyobject(py)?.into_any(),
        DataType::Utf8View => column.as_string_view().value(row).into_pyobject(py)?.into_any(),
        DataType::Int64 => column.as_primitive::<Int64Type>().value(row).into_pyobject(py)?.into_any(),
        DataType::Float64 => column.as_primitive::<Float64Type>().value(row).into_pyobject(py)?.into_any(),
        DataType::Boolean => column.as_boolean().value(row).into_pyobject(py)?.to_owned().into_any(),
        DataType::Dictionary(key, _) if **key == DataType::Int32 => {
            let column = column.as_dictionary::<Int32Type>();
            let key = column.keys().value(row);
            cell(py, column.values(), usize::try_from(key).unwrap_or_default())?
        }
        other => format!("<{other}>").into_pyobject(py)?.into_any(),
    })
}

#[pymethods]
impl Table {
    /// How many rows it has.
    #[getter]
    fn num_rows(&self) -> usize {
        self.count()
    }

    /// Names of its columns.
    #[getter]
    fn column_names(&self) -> Vec<String> {
        self.schema.fields().iter().map(|f| f.name().clone()).collect()
    }

    fn __len__(&self) -> usize {
        self.count()
    }

    /// A row as a dictionary; below zero from the end on.
    fn __getitem__<'py>(&self, py: Python<'py>, row: isize) -> PyResult<Bound<'py, PyDict>> {
        let place = if row < 0 { self.count().checked_add_signed(row) } else { usize::try_from(row).ok() };
        let mut left = place.unwrap_or(usize::MAX);
        for batch in &self.batches {
            if left < batch.num_rows() {
                return self.row(py, batch, left);
            }
            left -= batch.num_rows();
        }
        Err(PyIndexError::new_err(format!("the table has {} rows, and none is {row}", self.count())))
    }

    /// A dictionary for each row.
    #[pyo3(signature = (limit=None))]
    fn to_pylist<'py>(&self, py: Python<'py>, limit: Option<usize>) -> PyResult<Bound<'py, PyList>> {
        let list = PyList::empty(py);
        for batch in &self.batches {
            for row in 0..batch.num_rows() {
                if limit.is_some_and(|most| list.len() >= most) {
                    return Ok(list);
                }
                list.append(self.row(py, batch, row)?)?;
            }
        }
        Ok(list)
    }

    /// Arrow's C stream interface.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        // A wish that a producer may leave unheard.
        let _ = requested_schema;
        arrow::stream(py, Arc::clone(&self.schema), self.batches.clone())
    }

    fn __repr__(&self) -> String {
        format!("<joulecast.Table: {} rows of {}>", self.count(), self.column_names().join(", "))
    }

    fn _repr_html_(&self, py: Python<'_>) -> PyResult<String> {
        let names = self.column_names();
        let mut shown = joulecast_reports::table::Table::new(&names.iter().map(String::as_str).collect::<Vec<_>>(), 0);
        for row in self.to_pylist(py, Some(SHOWN))? {
            let cells = names.iter().map(|name| {
                let value = row.get_item(name)?;
                match value.extract::<f64>() {
                    Ok(number) if value.get_type().name()? == "float" => {
                        Ok(joulecast_reports::table::significant(number, 4))
                    }
                    _ if value.is_none() => Ok(String::new()),
                    _ => Ok(value.str()?.to_string()),
                }
            });
            shown.row(cells.collect::<PyResult<Vec<_>>>()?);
        }
        let more = self.count().saturating_sub(SHOWN);
        let title = format!("{} rows", self.count());
        let below = if more > 0 { format!("the first {SHOWN}") } else { String::new() };
        Ok(joulecast_reports::notebook::table(&title, &below, &shown))
    }
}
