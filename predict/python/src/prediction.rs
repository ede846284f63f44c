//! A step or a language model's answer: `prediction/1`.

use crate::failure::{error, undrawn, unwritten};
use crate::rows;
use crate::table::Table;
use joulecast_model::base::precision::{Mode, Precision};
use joulecast_model::base::units::{Bytes, Hertz, Joules, Seconds, Watts};
use joulecast_model::step::generation::Generation;
use joulecast_model::step::predictor::{Estimate, NetworkPrediction, Summary};
use joulecast_model::step::training::Training;
use joulecast_predict::ask;
use joulecast_predict::cluster::Cluster;
use joulecast_reports::export::{Export, Format};
use joulecast_reports::prediction::{Asked, Shown};
use joulecast_reports::{notebook, warnings};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyAny, PyDict};
use std::sync::{Arc, OnceLock};

enum Result_ {
    /// The sums of a step, and all of it once somebody reads more.
    Brief(Box<ask::Brief>, OnceLock<Box<NetworkPrediction>>),
    Step(Box<NetworkPrediction>),
    Answer(Box<Generation>),
}

/// What most callers read.
struct Figures {
    time: Estimate<Seconds>,
    power: Estimate<Watts>,
    energy: Estimate<Joules>,
    clock: Hertz,
    batch: u64,
    precision: Precision,
    mode: Mode,
    memory: Bytes,
    fits_in_memory: bool,
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
    fn of(result: Result_, cluster: Arc<Cluster>, gpu: String, source: &'static str) -> Self {
        Self { result, cluster, gpu, source, training: None, document: PyOnceLock::new() }
    }

    /// Of a step's sums.
    pub fn of_brief(brief: ask::Brief, gpu: String, source: &'static str) -> Self {
        let cluster = Arc::clone(brief.cluster());
        Self::of(Result_::Brief(Box::new(brief), OnceLock::new()), cluster, gpu, source)
    }

    /// Of a step.
    pub fn of_step(ask::Answer { prediction, training, cluster, source }: ask::Answer, gpu: String) -> Self {
        Self { training, ..Self::of(Result_::Step(Box::new(prediction)), cluster, gpu, source) }
    }

    /// Of a language model's answer.
    pub fn of_answer(ask::Generated { generation, cluster, source }: ask::Generated, gpu: String) -> Self {
        Self::of(Result_::Answer(Box::new(generation)), cluster, gpu, source)
    }

    fn whole(&self) -> PyResult<&NetworkPrediction> {
        match &self.result {
            Result_::Brief(brief, whole) => {
                if let Some(whole) = whole.get() {
                    return Ok(whole);
                }
                let made = Box::new(brief.whole().map_err(error)?);
                Ok(whole.get_or_init(|| made))
            }
            Result_::Step(step) => Ok(step),
            Result_::Answer(answer) => Ok(&answer.total),
        }
    }

    fn figures(&self) -> Figures {
        let whole = match &self.result {
            Result_::Brief(brief, _) => {
                let Summary { time, power, energy, clock, .. } = brief.summary;
                let (network, mode) = (brief.network(), self.cluster.mode);
                let (batch, precision) = (network.batch(), network.precision());
                let (memory, fits_in_memory) = (brief.memory.total(), brief.fits_in_memory);
                return Figures { time, power, energy, clock, batch, precision, mode, memory, fits_in_memory };
            }
            Result_::Step(step) => step,
            Result_::Answer(answer) => &answer.total,
        };
        let NetworkPrediction { time, power, energy, clock, batch, precision, mode, fits_in_memory, .. } = *whole;
        let memory = whole.memory.total();
        Figures { time, power, energy, clock, batch, precision, mode, memory, fits_in_memory }
    }

    fn named(&self) -> &str {
        match &self.result {
            Result_::Brief(brief, _) => brief.network().name(),
            Result_::Step(step) => &step.network,
            Result_::Answer(answer) => &answer.total.network,
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
            Result_::Answer(prediction) => Shown { prediction: &**prediction, gpu, asked, layers }.export(format),
            _ => Shown { prediction: self.whole()?, gpu, asked, layers }.export(format),
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
        self.figures().time.value.get()
    }
    #[getter]
    fn time_s_p05(&self) -> f64 {
        self.figures().time.p05.get()
    }
    #[getter]
    fn time_s_p95(&self) -> f64 {
        self.figures().time.p95.get()
    }
    /// Mean power of all boards, watts.
    #[getter]
    fn power_w(&self) -> f64 {
        self.figures().power.value.get()
    }
    #[getter]
    fn power_w_p05(&self) -> f64 {
        self.figures().power.p05.get()
    }
    #[getter]
    fn power_w_p95(&self) -> f64 {
        self.figures().power.p95.get()
    }
    /// Energy of all boards, joules.
    #[getter]
    fn energy_j(&self) -> f64 {
        self.figures().energy.value.get()
    }
    #[getter]
    fn energy_j_p05(&self) -> f64 {
        self.figures().energy.p05.get()
    }
    #[getter]
    fn energy_j_p95(&self) -> f64 {
        self.figures().energy.p95.get()
    }
    #[getter]
    fn edp_js(&self) -> f64 {
        let Figures { energy, time, .. } = self.figures();
        (energy.value * time.value).get()
    }
    #[getter]
    fn samples_per_s(&self) -> f64 {
        let Figures { batch, time, .. } = self.figures();
        batch as f64 / time.value.get()
    }
    #[getter]
    fn energy_per_sample_j(&self) -> f64 {
        let Figures { batch, energy, .. } = self.figures();
        (energy.value / batch as f64).get()
    }
    #[getter]
    fn samples_per_s_per_w(&self) -> f64 {
        let Figures { batch, energy, .. } = self.figures();
        batch as f64 / energy.value.get()
    }
    #[getter]
    fn network(&self) -> &str {
        self.named()
    }
    #[getter]
    fn source(&self) -> &str {
        self.source
    }
    #[getter]
    fn batch(&self) -> u64 {
        self.figures().batch
    }
    #[getter]
    fn precision(&self) -> &str {
        self.figures().precision.name()
    }
    #[getter]
    fn mode(&self) -> &str {
        self.figures().mode.name()
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
    fn gpus(&self) -> PyResult<u64> {
        Ok(self.whole()?.devices.iter().map(|d| d.count).sum())
    }
    #[getter]
    fn core_clock_mhz(&self) -> f64 {
        self.figures().clock.to_mhz()
    }
    #[getter]
    fn memory_clock_mhz(&self) -> PyResult<Option<f64>> {
        Ok(self.whole()?.memory_clock.map(|c| c.to_mhz()))
    }
    #[getter]
    fn power_cap_w(&self) -> PyResult<Option<f64>> {
        Ok(self.whole()?.power_cap.map(|c| c.get()))
    }
    #[getter]
    fn waiting_s(&self) -> PyResult<f64> {
        let whole = self.whole()?;
        Ok(whole.waiting * whole.time.value.get())
    }
    #[getter]
    fn gflops_per_w(&self) -> PyResult<f64> {
        Ok(self.whole()?.ops_per_joule() / 1e9)
    }
    #[getter]
    fn ops(&self) -> PyResult<u64> {
        Ok(self.whole()?.ops.get())
    }
    #[getter]
    fn read_bytes(&self) -> PyResult<u64> {
        Ok(self.whole()?.read.get())
    }
    #[getter]
    fn written_bytes(&self) -> PyResult<u64> {
        Ok(self.whole()?.written.get())
    }
    #[getter]
    fn parameters(&self) -> PyResult<u64> {
        Ok(self.whole()?.parameters)
    }
    #[getter]
    fn memory_bytes(&self) -> u64 {
        self.figures().memory.get()
    }
    #[getter]
    fn fits_in_memory(&self) -> bool {
        self.figures().fits_in_memory
    }
    /// The roofline, seconds.
    #[getter]
    fn bound_s(&self) -> PyResult<f64> {
        Ok(self.whole()?.bound.get())
    }
    /// What a reader should know of this prediction.
    #[getter]
    fn warnings(&self) -> PyResult<Vec<String>> {
        Ok(self.whole()?.warnings.iter().map(warnings::words).collect())
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
        notebook::figure(self.whole()?).map_err(undrawn)
    }

    /// Where time and energy go, layer by layer.
    fn plot<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        crate::answer::figure(py, self._svg()?)
    }

    fn __str__(&self) -> PyResult<String> {
        self.export(Format::Table, false)
    }

    fn __repr__(&self) -> String {
        let Figures { time, power, energy, batch, precision, mode, .. } = self.figures();
        format!(
            "<joulecast.Prediction {} on {}, batch {batch}, {precision} {mode}: {:.4e} s ({:.4e} to {:.4e}), {:.1} W, {:.4e} J>",
            self.named(),
            self.gpu,
            time.value.get(),
            time.p05.get(),
            time.p95.get(),
            power.value.get(),
            energy.value.get()
        )
    }

    fn _repr_html_(&self) -> PyResult<String> {
        let (asked, gpu) = (self.asked(), self.cluster.first().gpu());
        let asked = &asked;
        Ok(match &self.result {
            Result_::Answer(prediction) => {
                notebook::answer(&Shown { prediction: &**prediction, gpu, asked, layers: false })
            }
            _ => notebook::step(&Shown { prediction: self.whole()?, gpu, asked, layers: false }),
        })
    }
}
