//! Networks that are no files: bytes that Python holds.

use crate::failure::error;
use crate::session;
use joulecast_model::net::network::folding::Folding;
use joulecast_predict::request::Reading;
use joulecast_predict::session::Held;
use pyo3::prelude::*;
use std::borrow::Cow;
use std::sync::atomic::{AtomicU64, Ordering};

/// A network that was read from memory. It is forgotten with the last reference to it.
#[pyclass(frozen, module = "joulecast")]
pub struct Network {
    typed: String,
    /// What it is called.
    #[pyo3(get)]
    name: String,
    /// Where it came from: `file`, `onnx`, `prototxt` or `huggingface`.
    #[pyo3(get)]
    source: &'static str,
    /// Trained values.
    #[pyo3(get)]
    parameters: u64,
}

impl Drop for Network {
    fn drop(&mut self) {
        session().forget(&self.typed);
        crate::question::forget(&self.typed);
    }
}

#[pymethods]
impl Network {
    /// Takes the content of a network file, of which `ending` says what it is. `unfolded`: batch norms that an export folded are
    /// layers of their own, where nothing else is asked for.
    #[new]
    #[pyo3(signature = (content, name, ending, unfolded=false))]
    fn new(py: Python<'_>, content: Cow<'_, [u8]>, name: &str, ending: &str, unfolded: bool) -> PyResult<Self> {
        static COUNT: AtomicU64 = AtomicU64::new(1);
        // A comma would part it in lists, a slash in paths.
        let clean = |c: char| if c.is_alphanumeric() || "._-+ ".contains(c) { c } else { '_' };
        let name: String = name.chars().map(clean).collect();
        let file = if ending == "json" { format!("{name}/config.json") } else { format!("{name}.{ending}") };
        let typed = format!("memory:{}/{file}", COUNT.fetch_add(1, Ordering::Relaxed));
        let folding = if unfolded { Folding::Unfold } else { Folding::Open };
        let held = Held { content: content.into_owned().into(), folding };
        let read = || {
            session().hold(&typed, held);
            let source = session().network(&typed, &Reading::default()).inspect_err(|_| session().forget(&typed))?;
            let shaped = source.shaped(1, joulecast_model::base::precision::Precision::Fp32);
            Ok((source, shaped.map_or(0, |s| s.parameters())))
        };
        let (source, parameters) = py.detach(read).map_err(error)?;
        Ok(Self { name: source.network.name.clone(), source: source.kind, parameters, typed })
    }

    /// What stands for it where networks are named.
    #[getter]
    fn _typed(&self) -> &str {
        &self.typed
    }

    fn __repr__(&self) -> String {
        format!("<joulecast.Network {} from {}: {} parameters>", self.name, self.source, self.parameters)
    }
}
