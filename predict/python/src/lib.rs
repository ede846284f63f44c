//! The module `joulecast._joulecast`: the questions of `joulecast_predict` for Python. What Python people call is the package
//! around it (`joulecast/`); here are its results and what turns its options into requests.

mod answer;
mod arrow;
mod failure;
mod gather;
mod held;
mod listing;
mod map;
mod prediction;
mod program;
mod question;
mod rows;
mod sweep;
mod table;
mod watched;

use joulecast_predict::Session;
use pyo3::prelude::*;
use std::sync::OnceLock;

/// What was read stays read as long as Python runs.
fn session() -> &'static Session {
    static SESSION: OnceLock<Session> = OnceLock::new();
    SESSION.get_or_init(Session::new)
}

#[pymodule(gil_used = false)]
mod _joulecast {
    #[pymodule_export]
    use super::answer::{Answer, compare, optimize, plan, serve};
    #[pymodule_export]
    use super::held::Network;
    #[pymodule_export]
    use super::listing::{describe, gpus, nets};
    #[pymodule_export]
    use super::map::map_table;
    #[pymodule_export]
    use super::prediction::Prediction;
    #[pymodule_export]
    use super::program::program;
    #[pymodule_export]
    use super::question::{layouts, predict};
    #[pymodule_export]
    use super::sweep::sweep;
    #[pymodule_export]
    use super::table::Table;

    use pyo3::prelude::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
