//! A step or a language model's answer: `prediction/1`.

use crate::answer::Answer;
use crate::failure::{error, undrawn, unwritten};
use crate::rows;
use crate::session;
use crate::table::Table;
use crate::watched::watched;
use joulecast_model::base::shape::MAX_DIMENSION;
use joulecast_model::base::units::{Hertz, Watts};
use joulecast_model::step::generation::Generation;
use joulecast_model::step::predictor::{NetworkPrediction, OperatingPoint};
use joulecast_model::step::training::Training;
use joulecast_predict::cluster::Cluster;
use joulecast_predict::request::{Batch, Request};
use joulecast_predict::{Failure, ask, typed};
use joulecast_reports::export::{Export, Format};
use joulecast_reports::prediction::{Asked, Shown};
use joulecast_reports::{notebook, warnings};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyAny, PyDict};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

enum Result_ {
    Step(Box<NetworkPrediction>),
    Answer(Box<Generation>),
}

/// Time, power, energy and memory of a step, with 90 % intervals. Names are those of the JSON document `prediction/1`; seconds,
/// watts, joules, bytes.
#[pyclass(frozen, module = "joulecast")]
pub struct Prediction {
    result: Result_,
    cluster: Arc<Cluster>,
    gpu: String,
    source: &'static str,
    training: Option<Training>,
    document: PyOnceLock<Py<PyDict>>,
}

impl Prediction {
    fn whole(&self) -> &NetworkPrediction {
        match &self.result {
            Result_::Step(step) => step,
            Result_::Answer(answer) => &answer.total,
        }
    }

    fn asked(&self) -> Asked<'_> {
        let first = self.cluster.first();
        Asked {
            gpu: &self.gpu,
            source: self.source,
            framework: &first.framework().name,
            launch: first.launch(),
            training: self.training,
        }
    }

    fn export(&self, format: Format, layers: bool) -> PyResult<String> {
        let (asked, gpu) = (self.asked(), self.cluster.first().gpu());
        let asked = &asked;
        let text = match &self.result {
            Result_::Step(prediction) => Shown { prediction: &**prediction, gpu, asked, layers }.export(format),
            Result_::Answer(prediction) => Shown { prediction: &**prediction, gpu, asked, layers }.export(format),
        };
        text.map_err(unwritten)
    }

    fn document<'py>(&self, py: Python<'py>) -> PyResult<&Bound<'py, PyDict>> {
        let made = self.document.get_or_try_init(py, || {
            let text = self.export(Format::Json, true)?;
            let value = py.import("json")?.call_method1("loads", (text,))?;
            Ok::<_, PyErr>(value.cast_into::<PyDict>()?.unbind())
        })?;
        Ok(made.bind(py))
    }

    /// A part of the document; none where it has no such key.
    fn part<'py>(&self, py: Python<'py>, key: &str) -> PyResult<Bound<'py, PyAny>> {
        match self.document(py)?.get_item(key)? {
            // Whoever changes what was handed out changes nothing here.
            Some(value) => py.import("copy")?.call_method1("deepcopy", (value,)),
            None => Ok(py.None().into_bound(py)),
        }
    }
}

#[pymethods]
impl Prediction {
    /// Seconds of a step.
    #[getter]
    fn time_s(&self) -> f64 {
        self.whole().time.value.get()
    }
    #[getter]
    fn time_s_p05(&self) -> f64 {
        self.whole().time.p05.get()
    }
    #[getter]
    fn time_s_p95(&self) -> f64 {
        self.whole().time.p95.get()
    }
    /// Mean power of all boards, watts.
    #[getter]
    fn power_w(&self) -> f64 {
        self.whole().power.value.get()
    }
    #[getter]
    fn power_w_p05(&self) -> f64 {
        self.whole().power.p05.get()
    }
    #[getter]
    fn power_w_p95(&self) -> f64 {
        self.whole().power.p95.get()
    }
    /// Energy of all boards, joules.
    #[getter]
    fn energy_j(&self) -> f64 {
        self.whole().energy.value.get()
    }
    #[getter]
    fn energy_j_p05(&self) -> f64 {
        self.whole().energy.p05.get()
    }
    #[getter]
    fn energy_j_p95(&self) -> f64 {
        self.whole().energy.p95.get()
    }
    #[getter]
    fn edp_js(&self) -> f64 {
        self.whole().edp().get()
    }
    #[getter]
    fn samples_per_s(&self) -> f64 {
        self.whole().samples_per_second()
    }
    #[getter]
    fn energy_per_sample_j(&self) -> f64 {
        self.whole().energy_per_sample().get()
    }
    #[getter]
    fn samples_per_s_per_w(&self) -> f64 {
        self.whole().samples_per_joule()
    }
    #[getter]
    fn network(&self) -> &str {
        &self.whole().network
    }
    #[getter]
    fn source(&self) -> &str {
        self.source
    }
    #[getter]
    fn batch(&self) -> u64 {
        self.whole().batch
    }
    #[getter]
    fn precision(&self) -> &str {
        self.whole().precision.name()
    }
    #[getter]
    fn mode(&self) -> &str {
        self.whole().mode.name()
    }
    #[getter]
    fn framework(&self) -> String {
        self.cluster.first().framework().name.clone()
    }
    #[getter]
    fn launch(&self) -> &str {
        self.cluster.first().launch().name()
    }
    #[getter]
    fn gpu(&self) -> &str {
        &self.gpu
    }
    #[getter]
    fn gpus(&self) -> u64 {
        self.whole().devices.iter().map(|d| d.count).sum()
    }
    #[getter]
    fn core_clock_mhz(&self) -> f64 {
        self.whole().clock.to_mhz()
    }
    #[getter]
    fn memory_clock_mhz(&self) -> Option<f64> {
        self.whole().memory_clock.map(|c| c.to_mhz())
    }
    #[getter]
    fn power_cap_w(&self) -> Option<f64> {
        self.whole().power_cap.map(|c| c.get())
    }
    #[getter]
    fn waiting_s(&self) -> f64 {
        self.whole().waiting * self.whole().time.value.get()
    }
    #[getter]
    fn gflops_per_w(&self) -> f64 {
        self.whole().ops_per_joule() / 1e9
    }
    #[getter]
    fn ops(&self) -> u64 {
        self.whole().ops.get()
    }
    #[getter]
    fn read_bytes(&self) -> u64 {
        self.whole().read.get()
    }
    #[getter]
    fn written_bytes(&self) -> u64 {
        self.whole().written.get()
    }
    #[getter]
    fn parameters(&self) -> u64 {
        self.whole().parameters
    }
    #[getter]
    fn memory_bytes(&self) -> u64 {
        self.whole().memory.total().get()
    }
    #[getter]
    fn fits_in_memory(&self) -> bool {
        self.whole().fits_in_memory
    }
    /// The roofline, seconds.
    #[getter]
    fn bound_s(&self) -> f64 {
        self.whole().bound.get()
    }
    /// What a reader should know of this prediction.
    #[getter]
    fn warnings(&self) -> Vec<String> {
        self.whole().warnings.iter().map(warnings::words).collect()
    }
    #[getter]
    fn schema<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.part(py, "schema")
    }
    #[getter]
    fn ctc_ops_per_byte<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.part(py, "ctc_ops_per_byte")
    }
    #[getter]
    fn host<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.part(py, "host")
    }
    #[getter]
    fn devices<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.part(py, "devices")
    }
    #[getter]
    fn calibration<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.part(py, "calibration")
    }
    /// What it comes to, and how far to trust it.
    #[getter]
    fn verdict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.part(py, "verdict")
    }
    #[getter]
    fn memory<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.part(py, "memory")
    }
    #[getter]
    fn communication<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.part(py, "communication")
    }
    #[getter]
    fn input<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.part(py, "input")
    }
    #[getter]
    fn training<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.part(py, "training")
    }
    #[getter]
    fn phases<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.part(py, "phases")
    }
    #[getter]
    fn layout<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.part(py, "layout")
    }
    #[getter]
    fn generation<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.part(py, "generation")
    }

    /// A row per kernel.
    #[getter]
    fn layers(&self, py: Python<'_>) -> PyResult<Table> {
        let layers = match self.document(py)?.get_item("layers")? {
            Some(layers) => rows::value(&layers)?,
            None => serde_json::Value::Null,
        };
        Table::of(layers.as_array().into_iter().flatten())
    }

    /// The document `prediction/1`.
    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        py.import("copy")?.call_method1("deepcopy", (self.document(py)?,))
    }

    /// The document `prediction/1` as text.
    fn to_json(&self) -> PyResult<String> {
        self.export(Format::Json, true)
    }

    /// A report in Markdown.
    #[pyo3(signature = (layers=false))]
    fn to_markdown(&self, layers: bool) -> PyResult<String> {
        self.export(Format::Markdown, layers)
    }

    fn _svg(&self) -> PyResult<String> {
        notebook::figure(self.whole()).map_err(undrawn)
    }

    /// Where time and energy go, layer by layer.
    fn plot<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        crate::answer::figure(py, self._svg()?)
    }

    fn __str__(&self) -> PyResult<String> {
        self.export(Format::Table, false)
    }

    fn __repr__(&self) -> String {
        let p = self.whole();
        format!(
            "<joulecast.Prediction {} on {}, batch {}, {} {}: {:.4e} s ({:.4e} to {:.4e}), {:.1} W, {:.4e} J>",
            p.network,
            self.gpu,
            p.batch,
            p.precision,
            p.mode,
            p.time.value.get(),
            p.time.p05.get(),
            p.time.p95.get(),
            p.power.value.get(),
            p.energy.value.get()
        )
    }

    fn _repr_html_(&self) -> String {
        let (asked, gpu) = (self.asked(), self.cluster.first().gpu());
        let asked = &asked;
        match &self.result {
            Result_::Step(prediction) => {
                notebook::step(&Shown { prediction: &**prediction, gpu, asked, layers: false })
            }
            Result_::Answer(prediction) => {
                notebook::answer(&Shown { prediction: &**prediction, gpu, asked, layers: false })
            }
        }
    }
}

/// Questions that were read already.
const KEPT: usize = 1024;

/// What was asked by options alone, and for a step what it takes to answer that.
struct Question {
    typed: typed::Step,
    prepared: OnceLock<ask::Prepared>,
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
    let question = Arc::new(Question { typed, prepared: OnceLock::new() });
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
    /// What answers it, read where it is not yet at hand.
    fn prepared(&self) -> Result<&ask::Prepared, Failure> {
        if let Some(prepared) = self.prepared.get() {
            return Ok(prepared);
        }
        let prepared = ask::Prepared::new(session(), &self.typed.request)?;
        Ok(self.prepared.get_or_init(|| prepared))
    }
}

/// A batch as Python says it: a number, or `max`.
#[derive(FromPyObject)]
pub enum Samples {
    /// So many.
    Number(u64),
    /// In words.
    Text(String),
}

fn positive(value: Option<f64>, name: &str) -> PyResult<Option<f64>> {
    match value {
        Some(v) if !(v.is_finite() && v > 0.0) => {
            Err(PyValueError::new_err(format!("{name} must be a number above 0")))
        }
        other => Ok(other),
    }
}

/// What is asked beside the options.
fn beside(batch: Samples, power_limit: Option<f64>, clock: Option<f64>) -> PyResult<(Batch, OperatingPoint)> {
    let wrong = |e| PyValueError::new_err(format!("batch {e}"));
    let batch = match batch {
        Samples::Number(n) if (1..=MAX_DIMENSION).contains(&n) => Batch::Samples(n),
        Samples::Number(n) => n.to_string().parse().map_err(wrong)?,
        Samples::Text(text) => text.parse().map_err(wrong)?,
    };
    let point = OperatingPoint {
        power_cap: positive(power_limit, "power_limit")?.map(Watts::new),
        core_clock: positive(clock, "clock")?.map(Hertz::from_mhz),
        memory_clock: None,
    };
    Ok((batch, point))
}

/// The request as a whole.
fn request(typed: &typed::Step, (batch, point): (Batch, OperatingPoint)) -> Request {
    let memory_clock = typed.request.point.memory_clock;
    Request { batches: vec![batch], point: OperatingPoint { memory_clock, ..point }, ..typed.request.clone() }
}

/// A step, or a language model's answer.
#[pyfunction]
pub fn predict(
    py: Python<'_>,
    words: Vec<String>,
    batch: Samples,
    power_limit: Option<f64>,
    clock: Option<f64>,
) -> PyResult<Prediction> {
    let question = read(words)?;
    let typed = &question.typed;
    let (batch, point) = beside(batch, power_limit, clock)?;
    let made = py.detach(|| match typed.generate {
        None => {
            let point = OperatingPoint { memory_clock: typed.request.point.memory_clock, ..point };
            let answer = question.prepared()?.step(batch, point)?;
            Ok((Result_::Step(Box::new(answer.prediction)), answer.cluster, answer.source, answer.training))
        }
        Some(tokens) => ask::generate(session(), &request(typed, (batch, point)), tokens)
            .map(|a| (Result_::Answer(Box::new(a.generation)), a.cluster, a.source, None)),
    });
    let (result, cluster, source, training) = made.map_err(error)?;
    let gpu = typed.request.teams.first().map_or(String::new(), |team| team.name.clone());
    Ok(Prediction { result, cluster, gpu, source, training, document: PyOnceLock::new() })
}

/// All layouts of a language model over a node.
#[pyfunction]
pub fn layouts(
    py: Python<'_>,
    words: Vec<String>,
    batch: Samples,
    power_limit: Option<f64>,
    clock: Option<f64>,
) -> PyResult<Answer> {
    let question = read(words)?;
    let asked = request(&question.typed, beside(batch, power_limit, clock)?);
    let laid = watched(py, None, move |_| ask::layouts(session(), &asked, question.typed.generate.unwrap_or(1)));
    Ok(Answer::layouts(laid?))
}
