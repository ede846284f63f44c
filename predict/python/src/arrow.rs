//! Arrow's C stream interface: tables to and from Python without copies of their columns.

use arrow_array::ffi_stream::{FFI_ArrowArrayStream, RecordBatchStreamReader};
use arrow_array::{RecordBatch, RecordBatchIterator};
use arrow_schema::SchemaRef;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use std::ffi::CStr;

const STREAM: &CStr = c"arrow_array_stream";

/// Batches for whoever takes the stream.
///
/// # Errors
/// When Python has no memory.
pub fn stream<'py>(py: Python<'py>, schema: SchemaRef, batches: Vec<RecordBatch>) -> PyResult<Bound<'py, PyCapsule>> {
    let reader = RecordBatchIterator::new(batches.into_iter().map(Ok), schema);
    PyCapsule::new_with_value(py, FFI_ArrowArrayStream::new(Box::new(reader)), STREAM)
}

/// The batches of an object with `__arrow_c_stream__`: a table of pyarrow, polars, pandas, duckdb, a reader.
///
/// # Errors
/// When it is none, or its stream is damaged.
pub fn batches(table: &Bound<'_, PyAny>) -> PyResult<(SchemaRef, Vec<RecordBatch>)> {
    let method = table.getattr("__arrow_c_stream__").map_err(|_| {
        let kind = table.get_type().name().map(|n| n.to_string()).unwrap_or_default();
        PyTypeError::new_err(format!(
            "a table with __arrow_c_stream__ is needed (pyarrow, polars, pandas 2.2, duckdb), not {kind}"
        ))
    })?;
    let capsule = method.call0()?.cast_into::<PyCapsule>()?;
    let pointer = capsule.pointer_checked(Some(STREAM))?.cast::<FFI_ArrowArrayStream>();
    let wrong = |e: arrow_schema::ArrowError| PyValueError::new_err(format!("the table's Arrow stream: {e}"));
    // SAFETY: a capsule of that name holds a stream, which this takes over; what is left there is released.
    let reader = unsafe { RecordBatchStreamReader::from_raw(pointer.as_ptr()) }.map_err(wrong)?;
    let schema = arrow_array::RecordBatchReader::schema(&reader);
    let batches = reader.collect::<Result<Vec<_>, _>>().map_err(wrong)?;
    Ok((schema, batches))
}
