//! What serves a language model: a replica on GPUs that divide every block, with its limits, memory and steps.

use super::layouts::over_node;
use crate::cluster::{Cluster, of_generation};
use crate::failure::Failure;
use joulecast_ask::serving::times::{Extent, Room, StepTimes};
use joulecast_ask::serving::{Demand, Engine, Limits, ServingError, check};
use joulecast_model::base::precision::Precision;
use joulecast_model::catalog;
use joulecast_model::net::network::Network;
use joulecast_model::net::share::{Layout, shares};
use joulecast_model::step::framework::Scheduling;
use joulecast_model::step::layout::Deployment;
use joulecast_model::step::predictor::{OperatingPoint, PredictError};
use std::sync::Arc;

/// A replica of a network on a layout.
#[derive(Clone)]
pub(super) struct Replica {
    /// What its steps take at every operating point, in their order.
    pub times: Arc<Vec<StepTimes>>,
    /// Its scheduler's.
    pub limits: Limits,
    /// Memory of each GPU.
    pub room: Room,
    /// What joins its GPUs.
    pub interconnect: String,
}

/// Why a layout serves no load.
enum Unfit {
    /// It has too little memory, in words.
    Memory(String),
    Other(Failure),
}

impl From<Unfit> for Failure {
    fn from(unfit: Unfit) -> Self {
        match unfit {
            Unfit::Memory(why) => Self::usage(why),
            Unfit::Other(why) => why,
        }
    }
}

/// The limits of a cluster's engine, with no blocks yet.
///
/// # Errors
/// When the profile is of no engine that serves, or of one without what is asked of it, or the GPU does not compute in the
/// precision.
pub(super) fn limits(cluster: &Cluster, engine: &Engine) -> Result<Limits, Failure> {
    let (gpu, framework) = (cluster.first().gpu(), cluster.first().framework());
    if gpu.computes_in(cluster.precision).is_none() {
        let available = gpu.peaks.keys().map(|p| p.name()).collect::<Vec<_>>().join(", ");
        let why = PredictError::Precision { gpu: gpu.name.clone(), precision: cluster.precision, available };
        let halves = [Precision::Bf16, Precision::Fp16].into_iter().find(|p| gpu.computes_in(*p).is_some());
        let instead = halves.unwrap_or(Precision::Fp32);
        return Err(Failure::usage(format_args!("{why}: --precision {instead}")));
    }
    let Some(serving) = framework.serving else {
        let known =
            catalog::framework_names().filter(|name| catalog::framework(name).is_ok_and(|f| f.serving.is_some()));
        return Err(Failure::usage(format_args!(
            "the {} profile does not say what serving language models takes; these do: {}",
            framework.name,
            known.collect::<Vec<_>>().join(", ")
        )));
    };
    if !engine.reserve && serving.rule != Scheduling::AnswersFirst {
        return Err(Failure::usage(format_args!(
            "{} always asks for room for a whole prompt: --no-scheduler-reserve-full-isl is vLLM's",
            framework.name
        )));
    }
    Ok(engine.limits(serving.rule, gpu))
}

/// A layout whose memory has room for a load.
struct Fitting<'c> {
    deployment: Deployment<'c>,
    extent: Extent,
    limits: Limits,
    room: Room,
}

impl<'c> Fitting<'c> {
    fn of(
        cluster: &'c Cluster,
        network: &Network,
        (demand, engine): (&Demand, &Engine),
        layout: Layout,
        point: OperatingPoint,
    ) -> Result<Self, Unfit> {
        let (gpu, longest) = (cluster.first().gpu(), demand.longest());
        let limits = limits(cluster, engine).map_err(Unfit::Other)?;
        if limits.rule == Scheduling::PromptsFirst && layout.pipeline() > 1 {
            return Err(Unfit::Other(Failure::usage(ServingError::Staged)));
        }
        let extent = Extent { tokens: limits.largest_step(longest), sequences: limits.sequences, length: longest };
        let deployment = cluster.deployment(layout.of_replica(), point).map_err(Unfit::Other)?;
        let room = Room::of(&deployment, network, extent, engine.memory);
        let room = room.map_err(|why| Unfit::Other(of_generation(why)))?;
        let limits = Limits { blocks: room.blocks(limits.block), ..limits };
        if limits.blocks == 0 {
            return Err(Unfit::Memory(format!(
                "{} does not fit in the memory of {}: weights and a step take {:.1} GiB{} of {:.1}, and a cache is beside them",
                network.name,
                gpu.name,
                room.footprint.total().to_gib(),
                if layout.of_replica().gpus() > 1 { " on each GPU" } else { "" },
                gpu.memory.value.to_gib()
            )));
        }
        check(demand.requests(), &limits).map_err(|why| match why {
            ServingError::Cache { .. } => Unfit::Memory(why.to_string()),
            other => Unfit::Other(Failure::usage(other)),
        })?;
        Ok(Self { deployment, extent, limits, room })
    }
}

impl Replica {
    /// One that answers some requests; of a layout of several, one of them.
    ///
    /// # Errors
    /// When the network generates nothing or cannot be laid out so, or neither it nor a request fits in memory.
    pub fn of(
        cluster: &Cluster,
        network: &Network,
        asked: (&Demand, &Engine),
        layout: Layout,
        points: &[OperatingPoint],
    ) -> Result<Self, Failure> {
        if layout.exchanging() > 1 {
            shares(network, &layout).map_err(Failure::usage)?;
            return Err(Failure::usage(exchanging(network, layout)));
        }
        let point = points.first().copied().unwrap_or_default();
        let Fitting { deployment, extent, limits, room } = Fitting::of(cluster, network, asked, layout, point)?;
        let times = StepTimes::of(&deployment, network, extent, points).map_err(of_generation)?;
        Ok(Self { times: times.into(), limits, room, interconnect: deployment.interconnect.name.clone() })
    }

    /// The same on its layout with fewer sequences or tokens of a step: what steps take is known.
    ///
    /// # Errors
    /// When a request does not fit in memory.
    pub fn limited(
        &self,
        cluster: &Cluster,
        network: &Network,
        asked: (&Demand, &Engine),
        layout: Layout,
    ) -> Result<Self, Failure> {
        let Fitting { limits, room, .. } = Fitting::of(cluster, network, asked, layout, OperatingPoint::default())?;
        Ok(Self { limits, room, ..self.clone() })
    }
}

/// Why groups of GPUs that share experts are not simulated, and what to ask instead.
fn exchanging(network: &Network, layout: Layout) -> String {
    let (expert, tensor) = (layout.expert(), layout.tensor());
    let divides = |tensor: &u64| Layout::new(*tensor, 1, expert, None).is_ok_and(|one| shares(network, &one).is_ok());
    let instead = match divides(&expert) {
        true => format!("--tensor-parallel {expert} --expert-parallel {expert} divides attention among them, too"),
        false => format!("at most as many parts of experts as --tensor-parallel, here {tensor}"),
    };
    format!(
        "--expert-parallel {expert} with --tensor-parallel {tensor}: groups of GPUs with requests of their own that share experts take their steps together, which is not simulated; {instead}"
    )
}

/// Where a load has too little memory on a layout: which option leaves too little, or which layout of a node has enough, as
/// options that ask for it, or that none has; nothing where memory is not what is wrong.
pub(super) fn instead(
    cluster: &Cluster,
    network: &Network,
    asked: (&Demand, &Engine),
    layout: Layout,
) -> Option<String> {
    let with = |engine: &Engine, layout: &Layout| {
        Fitting::of(cluster, network, (asked.0, engine), *layout, OperatingPoint::default())
    };
    let on = |layout: &Layout| with(asked.1, layout);
    if layout.exchanging() > 1 || !matches!(on(&layout), Err(Unfit::Memory(_))) {
        return None;
    }
    let engine = asked.1;
    let usual = Engine { memory: engine.memory.max(Engine::MEMORY), ..*engine };
    if engine.memory < usual.memory && with(&usual, &layout).is_ok() {
        let left = cluster.first().gpu().memory.value.to_gib() * engine.memory;
        return Some(format!(
            "--gpu-memory-utilization {} leaves {left:.1} GiB: {} has room",
            engine.memory, usual.memory
        ));
    }
    let usual = Engine { block: None, ..*engine };
    if let (Some(block), Ok(fitting)) = (engine.block, with(&usual, &layout)) {
        let room = fitting.limits.block;
        return Some(format!("a block of --block-size {block} is more than the cache: {room} has room"));
    }
    let node = layouts(cluster, network, false).unwrap_or_default();
    Some(match node.iter().find(|layout| on(layout).is_ok()) {
        Some(one) if one.expert() > 1 => {
            format!("--tensor-parallel {} --expert-parallel {} has room", one.tensor(), one.expert())
        }
        Some(one) => format!("--tensor-parallel {} has room", one.tensor()),
        None => "no layout of a node without stages has room; --weights fp8 or int4 take less".into(),
    })
}

/// Layouts that a replica may have over the GPUs of a node: no groups with samples of their own; stages where they are asked for.
pub(super) fn layouts(cluster: &Cluster, network: &Network, staged: bool) -> Result<Vec<Layout>, Failure> {
    let all = over_node(cluster, network)?.1.into_iter();
    Ok(all.filter(|layout| layout.data() == 1 && (staged || layout.pipeline() == 1)).collect())
}
