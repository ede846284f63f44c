//! How a language model lies on several GPUs: the object `layout` of `prediction/1`, and a table of it.

use crate::table::{Table, significant, with_unit};
use joulecast_model::base::units::Bytes;
use joulecast_model::step::layout::{LayoutOf, StageOf};
use joulecast_model::step::predictor::NetworkPrediction;
use serde::Serialize;

/// Keys are added, never renamed. Times and energies of exchanges are of the whole answer, stages of a step of it.
#[derive(Serialize)]
pub(crate) struct Document {
    tensor_parallel: u64,
    pipeline_parallel: u64,
    expert_parallel: u64,
    data_parallel: u64,
    replicas: u64,
    gpus: u64,
    interconnect: String,
    microbatch: u64,
    microbatches: u64,
    bubble: f64,
    exchange_s: f64,
    exchange_energy_j: f64,
    stages: Vec<Stage>,
}

/// Of each GPU of it.
#[derive(Serialize)]
struct Stage {
    time_s: f64,
    parameters: u64,
    weights_bytes: u64,
    cache_bytes: u64,
    activations_bytes: u64,
    memory_bytes: u64,
}

impl Stage {
    fn of(stage: &StageOf) -> Self {
        Self {
            time_s: stage.time.get(),
            parameters: stage.parameters,
            weights_bytes: stage.memory.weights.get(),
            cache_bytes: stage.memory.cache.get(),
            activations_bytes: stage.memory.activations.get(),
            memory_bytes: stage.memory.total().get(),
        }
    }
}

impl Document {
    pub fn of(l: &LayoutOf) -> Self {
        Self {
            tensor_parallel: l.layout.tensor(),
            pipeline_parallel: l.layout.pipeline(),
            expert_parallel: l.layout.expert(),
            data_parallel: l.layout.data(),
            replicas: l.layout.replicas(),
            gpus: l.layout.gpus(),
            interconnect: l.interconnect.clone(),
            microbatch: l.micro,
            microbatches: l.microbatches,
            bubble: l.bubble,
            exchange_s: l.communication.get(),
            exchange_energy_j: l.communication_energy.get(),
            stages: l.stages.iter().map(Stage::of).collect(),
        }
    }
}

/// What lies on GPUs, and what they exchange in all of `p`.
pub(crate) fn table(p: &NetworkPrediction, l: &LayoutOf) -> Table {
    let mut table = Table::new(&["on the GPUs", "", ""], 3);
    let mut row = |label: &str, value: String, more: String| table.row(vec![label.into(), value, more]);
    row("layout", l.layout.to_string(), format!("{} GPUs over {}", l.layout.gpus(), l.interconnect));
    if let Some(whole) = &p.layout {
        let share = 100.0 * (whole.communication / p.time.value);
        let exchanged = with_unit(whole.communication.get(), "s");
        row(
            "exchanges",
            exchanged,
            format!("{share:.1} % of the time, {}", with_unit(whole.communication_energy.get(), "J")),
        );
    }
    if let Some(d) = p.devices.first() {
        row("each GPU", with_unit(d.power.value.get(), "W"), with_unit(d.energy.value.get(), "J"));
    }
    let gib = |bytes: Bytes| significant(bytes.to_gib(), 3);
    let (m, name) = (&p.memory, if l.layout.gpus() > 1 { "fullest GPU" } else { "GPU" });
    let parts = (gib(m.weights), gib(m.cache), gib(m.activations));
    let parts = format!("weights {}, cache {}, activations {} GiB", parts.0, parts.1, parts.2);
    row(name, format!("{} GiB", gib(m.total())), parts);
    if l.stages.len() > 1 {
        let times = l.stages.iter().map(|s| with_unit(s.time.get(), "s")).collect::<Vec<_>>().join(", ");
        row("stages", l.stages.len().to_string(), times);
        let micro = format!("{} of {} samples", l.microbatches, l.micro);
        row("microbatches", micro, format!("stages idle for {:.0} %", 100.0 * l.bubble));
    }
    if l.layout.replicas() > 1 {
        row("replicas", l.layout.replicas().to_string(), "the batch is divided among them".into());
    }
    table
}
