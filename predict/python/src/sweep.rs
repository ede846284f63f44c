//! Many predictions as one table.

use crate::failure::error;
use crate::session;
use crate::table::Table;
use anyhow::anyhow;
use arrow_array::builder::{BooleanBuilder, Float64Builder, Int64Builder, StringBuilder};
use arrow_array::types::Int32Type;
use arrow_array::{ArrayRef, DictionaryArray, Int32Array, RecordBatch, StringArray};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};
use joulecast_predict::ask::{COLUMNS, Cell, KEYS, Row, Sweep};
use joulecast_predict::{Failure, typed};
use pyo3::prelude::*;
use std::sync::{Arc, OnceLock};

/// Texts of which there are few.
#[derive(Default)]
struct Names {
    keys: Vec<Option<i32>>,
    values: Vec<String>,
    last: usize,
}

impl Names {
    fn push(&mut self, text: Option<&str>) {
        let key = text.map(|text| {
            if self.values.get(self.last).is_none_or(|known| known != text) {
                self.last = self.values.iter().position(|known| known == text).unwrap_or_else(|| {
                    self.values.push(text.to_string());
                    self.values.len() - 1
                });
            }
            // As many names as a program holds.
            self.last as i32
        });
        self.keys.push(key);
    }

    fn finish(self) -> Result<ArrayRef, ArrowError> {
        let values = Arc::new(StringArray::from(self.values));
        Ok(Arc::new(DictionaryArray::<Int32Type>::try_new(Int32Array::from(self.keys), values)?))
    }
}

enum Column {
    Names(Names),
    Text(StringBuilder),
    Whole(Int64Builder),
    Number(Float64Builder),
    Truth(BooleanBuilder),
}

impl Column {
    fn of(name: &str, rows: usize) -> Self {
        match name {
            "network" | "gpu" | "precision" | "mode" | "framework" | "launch" | "conv_algorithm" | "time_tier"
            | "power_tier" => Self::Names(Names { keys: Vec::with_capacity(rows), ..Names::default() }),
            "error" => Self::Text(StringBuilder::new()),
            "batch" | "sequence" | "ops" | "memory_bytes" => Self::Whole(Int64Builder::with_capacity(rows)),
            "fits_in_memory" | "launch_bound" => Self::Truth(BooleanBuilder::with_capacity(rows)),
            _ => Self::Number(Float64Builder::with_capacity(rows)),
        }
    }

    fn kind(&self) -> DataType {
        match self {
            Self::Names(_) => DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8)),
            Self::Text(_) => DataType::Utf8,
            Self::Whole(_) => DataType::Int64,
            Self::Number(_) => DataType::Float64,
            Self::Truth(_) => DataType::Boolean,
        }
    }

    fn push(&mut self, cell: &Cell<'_>) {
        match (self, cell) {
            (Self::Names(b), Cell::Text(text)) => b.push(Some(text)),
            (Self::Names(b), _) => b.push(None),
            (Self::Text(b), Cell::Text(text)) => b.append_value(text),
            (Self::Text(b), _) => b.append_null(),
            (Self::Whole(b), Cell::Whole(n)) => b.append_option(i64::try_from(*n).ok()),
            (Self::Whole(b), _) => b.append_null(),
            (Self::Number(b), Cell::Number(v)) => b.append_value(*v),
            (Self::Number(b), _) => b.append_null(),
            (Self::Truth(b), Cell::Truth(v)) => b.append_value(*v),
            (Self::Truth(b), _) => b.append_null(),
        }
    }

    fn finish(self) -> Result<ArrayRef, ArrowError> {
        Ok(match self {
            Self::Names(b) => b.finish()?,
            Self::Text(mut b) => Arc::new(b.finish()),
            Self::Whole(mut b) => Arc::new(b.finish()),
            Self::Number(mut b) => Arc::new(b.finish()),
            Self::Truth(mut b) => Arc::new(b.finish()),
        })
    }
}

/// Which columns of a sweep.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Which {
    /// All.
    All,
    /// Those behind what a row is of.
    Results,
}

impl Which {
    fn names(self) -> &'static [&'static str] {
        match self {
            Self::All => &COLUMNS,
            Self::Results => &COLUMNS[KEYS..],
        }
    }

    /// Names and types.
    pub fn schema(self) -> SchemaRef {
        static SCHEMAS: [OnceLock<SchemaRef>; 2] = [const { OnceLock::new() }; 2];
        let made = || {
            let field = |name: &&str| Field::new(*name, Column::of(name, 0).kind(), true);
            Arc::new(Schema::new(self.names().iter().map(field).collect::<Vec<_>>()))
        };
        Arc::clone(SCHEMAS[usize::from(self == Self::Results)].get_or_init(made))
    }

    /// Rows as columns.
    ///
    /// # Errors
    /// When Arrow refuses.
    pub fn batch<'r, 'a: 'r>(
        self,
        rows: impl ExactSizeIterator<Item = &'r Row<'a>>,
    ) -> Result<RecordBatch, ArrowError> {
        let mut columns: Vec<Column> = self.names().iter().map(|name| Column::of(name, rows.len())).collect();
        for row in rows {
            let mut columns = columns.iter_mut();
            if self == Self::All {
                row.key.cells().iter().zip(&mut columns).for_each(|(cell, column)| column.push(cell));
            }
            row.results().iter().zip(columns).for_each(|(cell, column)| column.push(cell));
        }
        let arrays = columns.into_iter().map(Column::finish).collect::<Result<Vec<_>, _>>()?;
        RecordBatch::try_new(self.schema(), arrays)
    }
}

/// Arrow's refusal as a failure.
pub fn refused(why: ArrowError) -> Failure {
    Failure::Failed(anyhow!("{why}"))
}

/// All of a number of threads, or as many as there are cores.
///
/// # Errors
/// When it is 0.
pub fn threads(asked: Option<usize>) -> Result<usize, Failure> {
    match asked {
        Some(0) => Err(Failure::Usage(anyhow!("threads must be above 0"))),
        Some(n) => Ok(n),
        None => Ok(std::thread::available_parallelism().map_or(1, usize::from)),
    }
}

/// Every network on every GPU at every batch, precision, mode, clock and limit. `bar` is told how many rows there are, by
/// `total`, and each time how many more were made, by `update`.
#[pyfunction]
pub fn sweep(py: Python<'_>, words: Vec<String>, bar: Option<Py<PyAny>>) -> PyResult<Table> {
    let typed = typed::sweep(&words).map_err(error)?;
    // An exception of Python's, where that ends the sweep.
    let mut stopped: Option<PyErr> = None;
    let made = py.detach(|| {
        let threads = threads(typed.threads)?;
        let sweep = Sweep::new(session(), &typed.request, &typed.sequences, typed.points)?.shard(typed.shard);
        let mut tell = |rows: Option<u64>| {
            let told = Python::attach(|py| {
                py.check_signals()?;
                match (&bar, rows) {
                    (Some(bar), None) => bar.bind(py).setattr("total", sweep.rows()),
                    (Some(bar), Some(rows)) => bar.bind(py).call_method1("update", (rows,)).map(|_| ()),
                    (None, _) => Ok(()),
                }
            });
            told.map_err(|e| {
                stopped = Some(e);
                Failure::Failed(anyhow!("the sweep was stopped"))
            })
        };
        tell(None)?;
        let mut batches = Vec::new();
        sweep.run(
            0,
            threads,
            |rows| Which::All.batch(rows.iter()),
            |rows, batch| {
                batches.push(batch.map_err(refused)?);
                tell(Some(rows))
            },
        )?;
        Ok(batches)
    });
    match (stopped, made) {
        (Some(exception), _) => Err(exception),
        (None, Err(failure)) => Err(error(failure)),
        (None, Ok(batches)) => Ok(Table::new(Which::All.schema(), batches)),
    }
}
