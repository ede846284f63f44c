//! What is built in, and what a network is made of.

use crate::failure::error;
use crate::session;
use crate::table::Table;
use joulecast_model::base::precision::{Mode, Phase, Precision};
use joulecast_predict::{Failure, ask, typed};
use pyo3::prelude::*;
use serde_json::{Value, json};

fn table(made: Result<Vec<Value>, Failure>) -> PyResult<Table> {
    Table::of(&made.map_err(error)?)
}

/// GPUs and processors.
#[pyfunction]
pub fn gpus(py: Python<'_>) -> PyResult<Table> {
    table(py.detach(|| {
        let gpus = ask::gpus().map_err(Failure::Failed)?;
        let row = |(gpu, tier): &(joulecast_model::device::gpu::Gpu, _)| {
            let peak = |precision| gpu.peak(precision).map(|p| p.get());
            json!({
                "name": gpu.name, "title": gpu.title, "vendor": gpu.vendor.title(), "architecture": gpu.architecture,
                "chip": gpu.chip, "time_tier": joulecast_model::law::calibration::Tier::name(*tier),
                "fp32_flops": peak(Precision::Fp32), "fp16_flops": peak(Precision::Fp16),
                "bandwidth_bytes_per_s": gpu.bandwidth.value.get(), "memory_bytes": gpu.memory.value.get(),
                "power_limit_w": gpu.power.limit.value.get(),
                "idle_power_w": gpu.power.idle.as_ref().map(|p| p.value.get()),
                "boost_clock_mhz": gpu.core_clock.boost.value.to_mhz(),
                "aliases": gpu.aliases,
            })
        };
        Ok(gpus.iter().map(row).collect())
    }))
}

/// Networks of the zoo.
#[pyfunction]
pub fn nets(py: Python<'_>) -> PyResult<Table> {
    table(py.detach(|| {
        let nets = ask::nets().map_err(Failure::Failed)?;
        let rows = nets.iter().map(|(network, _, shaped)| {
            let inputs: Vec<String> = network.inputs.iter().map(|i| format!("{}={}", i.name, i.shape)).collect();
            json!({
                "name": network.name, "title": network.title, "inputs": inputs, "layers": shaped.layers().len(),
                "parameters": shaped.parameters(), "macs": shaped.macs(), "aliases": network.aliases,
                "top1_error": network.published.top1_error,
            })
        });
        Ok(rows.collect())
    }))
}

/// A network's layers: shapes, operations, traffic, parameters, of a forward pass.
#[pyfunction]
pub fn describe(py: Python<'_>, words: Vec<String>) -> PyResult<Table> {
    table(py.detach(|| {
        let asked = typed::describe(&words)?;
        let network = session().network(&asked.net, &asked.reading)?.shaped(asked.batch, asked.precision)?;
        let row = |layer: &joulecast_model::net::network::ShapedLayer| {
            let cost = network.cost(layer, Phase::Forward, Mode::Inference);
            json!({
                "name": layer.name.as_str(), "kind": layer.case.layer.kind(), "output": layer.output.to_string(),
                "parameters": layer.parameters(), "macs": cost.map(|c| c.macs), "ops": cost.map(|c| c.ops.get()),
                "read_bytes": cost.map(|c| c.read.get()), "written_bytes": cost.map(|c| c.written.get()),
            })
        };
        Ok(network.layers().iter().map(row).collect())
    }))
}
