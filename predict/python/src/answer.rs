//! Answers that are documents of rows: comparisons, optima, plans, loads, layouts.

use crate::failure::{undrawn, unwritten};
use crate::session;
use crate::table::Table;
use crate::watched::watched;
use anyhow::Context;
use joulecast_ask::capacity::PlanFile;
use joulecast_predict::ask::{self, Choice, Laid};
use joulecast_predict::request::{Request, Runner};
use joulecast_predict::{Failure, typed};
use joulecast_reports::export::{Export, ExportError, Format};
use joulecast_reports::figure::{FigureError, svg};
use joulecast_reports::optimum::Found;
use joulecast_reports::serving::Served;
use joulecast_reports::{compare as comparison, fleet, given, notebook};
use pyo3::prelude::*;
use serde_json::Value;

/// What was made of a question; figures draw no notes on how.
enum Kind {
    Compared(comparison::Comparison),
    Optimal(Vec<Found>, Box<(Request, Choice)>),
    Planned(Box<fleet::Plan>),
    Served(Box<Served>),
    Laid(Box<Laid>),
}

/// An answer with a row per setting, GPU or candidate, which Arrow's readers take. The whole of it: `to_dict()`.
#[pyclass(frozen, module = "joulecast")]
pub struct Answer {
    kind: Kind,
}

const MADE_BY: &str = "joulecast for Python";

impl Answer {
    /// Layouts over a node.
    pub fn layouts(laid: Laid) -> Self {
        Self { kind: Kind::Laid(Box::new(laid)) }
    }

    fn written(&self, format: Format) -> Result<String, ExportError> {
        match &self.kind {
            Kind::Compared(c) => c.export(format),
            Kind::Optimal(found, _) => found.as_slice().export(format),
            Kind::Planned(plan) => plan.export(format),
            Kind::Served(served) => served.export(format),
            Kind::Laid(laid) => laid.shown().export(format),
        }
    }

    fn text(&self, format: Format) -> PyResult<String> {
        self.written(format).map_err(unwritten)
    }

    fn value(&self, py: Python<'_>) -> PyResult<Value> {
        crate::rows::value(&self.to_dict(py)?)
    }

    fn drawn(&self) -> Result<String, FigureError> {
        match &self.kind {
            Kind::Compared(c) => comparison::figure(c, MADE_BY.into()),
            Kind::Optimal(found, asked) => {
                let (request, choice) = &**asked;
                let curves = ask::figure(session(), request, choice, found, MADE_BY.into());
                svg(&curves.map_err(|e| FigureError::Nothing(e.to_string()))?)
            }
            Kind::Planned(plan) => {
                let figures = fleet::figures(plan)?;
                let first = figures.into_iter().next();
                first.map(|(_, svg)| svg).ok_or_else(|| FigureError::Nothing("nothing to draw".into()))
            }
            Kind::Served(_) | Kind::Laid(_) => Err(FigureError::Nothing("this answer has none".into())),
        }
    }
}

/// A figure of the package.
///
/// # Errors
/// When the package is not whole.
pub fn figure(py: Python<'_>, svg: String) -> PyResult<Bound<'_, PyAny>> {
    py.import("joulecast._figure")?.getattr("Figure")?.call1((svg,))
}

/// The rows of a document: of a plan a row per candidate and setting.
fn rows(document: &Value) -> Vec<Value> {
    if let Some(candidates) = document["candidates"].as_array() {
        let named = |candidate: &Value| {
            let options = candidate["options"].as_array().cloned().unwrap_or_default();
            let named = |option: Value| {
                let mut row = serde_json::Map::new();
                row.insert("candidate".into(), candidate["name"].clone());
                row.insert("gpu".into(), candidate["gpu"].clone());
                row.extend(option.as_object().cloned().unwrap_or_default());
                Value::Object(row)
            };
            options.into_iter().map(named).collect::<Vec<_>>()
        };
        return candidates.iter().flat_map(named).collect();
    }
    if let Some(several) = document.as_array() {
        return several.iter().flat_map(rows).collect();
    }
    let known = ["rows", "points", "layouts"].into_iter().find_map(|key| document[key].as_array());
    match known {
        Some(rows) if !rows.is_empty() => rows.clone(),
        // A comparison by a budget alone: the answer for each network and GPU, where there is one.
        _ => match document["within_budget"].as_array() {
            Some(within) => within.iter().map(|w| w["largest"].clone()).filter(Value::is_object).collect(),
            None => vec![document.clone()],
        },
    }
}

#[pymethods]
impl Answer {
    /// A row per setting, GPU or candidate.
    #[getter]
    fn table(&self, py: Python<'_>) -> PyResult<Table> {
        Table::of(&rows(&self.value(py)?))
    }

    /// Arrow's C stream interface, of the table.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let table = Bound::new(py, self.table(py)?)?;
        table.call_method1("__arrow_c_stream__", (requested_schema,))
    }

    /// The document, as `predict --format json` writes it.
    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        py.import("json")?.call_method1("loads", (self.text(Format::Json)?,))
    }

    /// The document as text.
    fn to_json(&self) -> PyResult<String> {
        self.text(Format::Json)
    }

    /// A report in Markdown.
    fn to_markdown(&self) -> PyResult<String> {
        self.text(Format::Markdown)
    }

    /// Its figure.
    fn plot<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        figure(py, self.drawn().map_err(undrawn)?)
    }

    fn __str__(&self) -> PyResult<String> {
        self.text(Format::Table)
    }

    fn __repr__(&self) -> PyResult<String> {
        let text = self.text(Format::Table)?;
        Ok(format!("<joulecast.Answer: {}>", text.lines().next().unwrap_or_default()))
    }

    fn _repr_html_(&self) -> PyResult<String> {
        // Whoever has no figure shows its text.
        let drawn = self.drawn().ok();
        Ok(notebook::text(&self.text(Format::Table)?, drawn.as_deref()))
    }
}

fn answer(py: Python<'_>, made: impl FnOnce() -> Result<Kind, Failure> + Send + 'static) -> PyResult<Answer> {
    Ok(Answer { kind: watched(py, None, |_| made())? })
}

/// Networks on GPUs side by side.
#[pyfunction]
pub fn compare(py: Python<'_>, words: Vec<String>) -> PyResult<Answer> {
    answer(py, move || {
        let (request, question) = typed::compare(&words)?;
        Ok(Kind::Compared(ask::compare(session(), &request, &question)?))
    })
}

/// The best clock, power limit and batch.
#[pyfunction]
pub fn optimize(py: Python<'_>, words: Vec<String>) -> PyResult<Answer> {
    answer(py, move || {
        let (request, choice) = typed::optimize(&words)?;
        let found = ask::optimize(session(), &request, &choice)?;
        Ok(Kind::Optimal(found, Box::new((request, choice))))
    })
}

/// A language model under a load.
#[pyfunction]
pub fn serve(py: Python<'_>, words: Vec<String>) -> PyResult<Answer> {
    answer(py, move || {
        let (request, serving) = typed::serve(&words)?;
        Ok(Kind::Served(Box::new(ask::serve(session(), &request, &serving)?)))
    })
}

/// Fleets for a load; `text`: the file's, where it is at hand.
#[pyfunction]
pub fn plan(py: Python<'_>, words: Vec<String>, text: Option<String>) -> PyResult<Answer> {
    answer(py, move || {
        let typed = typed::plan(&words)?;
        let name = typed.file.display().to_string();
        let read = || -> anyhow::Result<PlanFile> {
            let text = match text {
                Some(text) => text,
                None => given::text(&typed.file)?,
            };
            PlanFile::from_toml(&text).with_context(|| name)
        };
        let file = read().map_err(Failure::Failed)?;
        let runner = Runner { framework: file.framework.clone(), ..typed.runner };
        let plan = ask::plan(session(), file, &typed.reading, &runner, MADE_BY.into())?;
        Ok(Kind::Planned(Box::new(plan)))
    })
}
