//! What is asked about steps: options that were read already, and what answers them.

use crate::answer::Answer;
use crate::failure::error;
use crate::prediction::Prediction;
use crate::session;
use crate::watched::watched;
use joulecast_model::base::shape::MAX_DIMENSION;
use joulecast_model::base::units::{Hertz, Watts};
use joulecast_model::step::predictor::OperatingPoint;
use joulecast_predict::request::{Batch, Request};
use joulecast_predict::{Failure, ask, typed};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// Questions that were read already.
const KEPT: usize = 1024;

/// What was asked by options alone, and for a step what it takes to answer that.
struct Question {
    typed: typed::Step,
    prepared: Mutex<Option<Arc<ask::Prepared>>>,
}

type Questions = Mutex<HashMap<Vec<String>, Arc<Question>>>;

fn questions() -> MutexGuard<'static, HashMap<Vec<String>, Arc<Question>>> {
    static READ: OnceLock<Questions> = OnceLock::new();
    READ.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner)
}

/// Options by name are read once; what most callers change from call to call is beside them.
fn read(words: Vec<String>) -> PyResult<Arc<Question>> {
    if let Some(known) = questions().get(&words) {
        return Ok(Arc::clone(known));
    }
    let typed = typed::predict(&words).map_err(error)?;
    let question = Arc::new(Question { typed, prepared: Mutex::default() });
    let mut known = questions();
    if known.len() >= KEPT {
        known.clear();
    }
    known.insert(words, Arc::clone(&question));
    Ok(question)
}

/// Forgets what was asked of a network.
pub fn forget(network: &str) {
    questions().retain(|_, question| !question.typed.request.networks.iter().any(|name| name == network));
}

impl Question {
    /// What answers it, read where it is not at hand, or a file of it has changed.
    fn prepared(&self) -> Result<Arc<ask::Prepared>, Failure> {
        let kept = || self.prepared.lock().unwrap_or_else(PoisonError::into_inner);
        let known = kept().clone();
        if let Some(known) = known.filter(|known| known.is_current()) {
            return Ok(known);
        }
        let prepared = Arc::new(ask::Prepared::new(session(), &self.typed.request)?);
        *kept() = Some(Arc::clone(&prepared));
        Ok(prepared)
    }

    /// The step at a batch and point: its sums where that will do, else all of it.
    fn step(&self, batch: Batch, point: OperatingPoint) -> Result<Prediction, Failure> {
        let prepared = self.prepared()?;
        let gpu = self.gpu();
        if let Some(brief) = prepared.brief(batch, point)? {
            return Ok(Prediction::of_brief(brief, gpu, prepared.source()));
        }
        let answer = prepared.step(batch, point)?;
        Ok(Prediction::of_step(answer, gpu))
    }

    fn gpu(&self) -> String {
        self.typed.request.teams.first().map_or(String::new(), |team| team.name.clone())
    }
}

/// A batch as Python says it, a whole number or words such as `max`.
///
/// # Errors
/// ValueError where it is out of range, TypeError where it is neither.
fn samples(batch: &Bound<'_, PyAny>) -> PyResult<Batch> {
    if let Some(n) = batch.extract::<u64>().ok().filter(|n| (1..=MAX_DIMENSION).contains(n)) {
        return Ok(Batch::Samples(n));
    }
    let wrong = |e| PyValueError::new_err(format!("batch {e}"));
    if let Ok(text) = batch.extract::<String>() {
        return text.parse().map_err(wrong);
    }
    // Whole numbers of whatever size, below zero too, say what they are.
    let kind = batch.get_type().name()?;
    match batch.call_method0("__index__") {
        Ok(number) => number.str()?.to_str()?.parse().map_err(wrong),
        Err(_) => Err(PyTypeError::new_err(format!("batch must be a whole number, or \"max\", not {kind}"))),
    }
}

/// A number above zero, where there is one.
///
/// # Errors
/// ValueError where it is none above zero, TypeError where it is no number.
fn positive(value: Option<&Bound<'_, PyAny>>, name: &str) -> PyResult<Option<f64>> {
    let Some(value) = value else { return Ok(None) };
    match value.extract::<f64>() {
        Ok(number) if number.is_finite() && number > 0.0 => Ok(Some(number)),
        Ok(_) => Err(PyValueError::new_err(format!("{name} must be a number above 0"))),
        Err(_) => Err(PyTypeError::new_err(format!("{name} must be a number, not {}", value.get_type().name()?))),
    }
}

/// What Python says of a step beside its options: batch, power limit in watts, core clock in MHz.
type Beside<'a, 'py> = (&'a Bound<'py, PyAny>, Option<&'a Bound<'py, PyAny>>, Option<&'a Bound<'py, PyAny>>);

/// What is asked beside the options.
fn beside(typed: &typed::Step, (batch, power_limit, clock): Beside<'_, '_>) -> PyResult<(Batch, OperatingPoint)> {
    let batch = samples(batch)?;
    let point = OperatingPoint {
        power_cap: positive(power_limit, "power_limit")?.map(Watts::new),
        core_clock: positive(clock, "clock")?.map(Hertz::from_mhz),
        memory_clock: typed.request.point.memory_clock,
    };
    Ok((batch, point))
}

/// The request as a whole.
fn request(typed: &typed::Step, (batch, point): (Batch, OperatingPoint)) -> Request {
    Request { batches: vec![batch], point, ..typed.request.clone() }
}

/// A step, or a language model's answer.
#[pyfunction]
pub fn predict(
    py: Python<'_>,
    words: Vec<String>,
    batch: &Bound<'_, PyAny>,
    power_limit: Option<&Bound<'_, PyAny>>,
    clock: Option<&Bound<'_, PyAny>>,
) -> PyResult<Prediction> {
    let question = read(words)?;
    let typed = &question.typed;
    let (batch, point) = beside(typed, (batch, power_limit, clock))?;
    let made = py.detach(|| match typed.generate {
        None => question.step(batch, point),
        Some(tokens) => ask::generate(session(), &request(typed, (batch, point)), tokens)
            .map(|generated| Prediction::of_answer(generated, question.gpu())),
    });
    made.map_err(error)
}

/// All layouts of a language model over a node.
#[pyfunction]
pub fn layouts(
    py: Python<'_>,
    words: Vec<String>,
    batch: &Bound<'_, PyAny>,
    power_limit: Option<&Bound<'_, PyAny>>,
    clock: Option<&Bound<'_, PyAny>>,
) -> PyResult<Answer> {
    let question = read(words)?;
    let asked = request(&question.typed, beside(&question.typed, (batch, power_limit, clock))?);
    let laid = watched(py, None, move |_| ask::layouts(session(), &asked, question.typed.generate.unwrap_or(1)));
    Ok(Answer::layouts(laid?))
}
