//! What serves a language model: a replica on GPUs that divide every block, with its limits, memory and steps.

use super::layouts::over_node;
use crate::cluster::{Cluster, of_generation};
use crate::failure::Failure;
use joulecast_model::ask::serving::times::{Extent, Room, StepTimes};
use joulecast_model::ask::serving::{Demand, Engine, Limits, check};
use joulecast_model::net::network::Network;
use joulecast_model::net::share::{Layout, shares};
use joulecast_model::step::predictor::OperatingPoint;

/// A replica of a network on a layout.
pub(super) struct Replica {
    /// What its steps take at every operating point, in their order.
    pub times: Vec<StepTimes>,
    /// Its scheduler's.
    pub limits: Limits,
    /// Memory of each GPU.
    pub room: Room,
    /// What joins its GPUs.
    pub interconnect: String,
}

impl Replica {
    /// One that answers some requests; of a layout of several, one of them.
    ///
    /// # Errors
    /// When the network generates nothing or cannot be laid out so, or neither it nor a request fits in memory.
    pub fn of(
        cluster: &Cluster,
        network: &Network,
        (demand, engine): (&Demand, &Engine),
        layout: Layout,
        points: &[OperatingPoint],
    ) -> Result<Self, Failure> {
        let (gpu, longest) = (cluster.first().gpu(), demand.longest());
        let limits = engine.limits(gpu);
        // A prompt that is not cut runs beside all answers.
        let largest = if limits.chunked { limits.tokens } else { limits.tokens.max(longest + limits.sequences) };
        let extent = Extent { tokens: largest.max(limits.sequences), sequences: limits.sequences, length: longest };
        if layout.exchanging() > 1 {
            shares(network, &layout).map_err(Failure::usage)?;
            return Err(Failure::usage(format_args!(
                "--expert-parallel {} with --tensor-parallel {}: groups of GPUs that share experts take their steps together, which is not simulated; at most as many parts of experts as --tensor-parallel",
                layout.expert(),
                layout.tensor()
            )));
        }
        let layout = layout.of_replica();
        let deployment = cluster.deployment(layout, points.first().copied().unwrap_or_default())?;
        let room = Room::of(&deployment, network, extent, engine.memory).map_err(of_generation)?;
        let limits = Limits { blocks: room.blocks(limits.block), ..limits };
        if limits.blocks == 0 {
            return Err(Failure::usage(format_args!(
                "{} does not fit in the memory of {}: weights and a step take {:.1} GiB{} of {:.1}, and a cache is beside them",
                network.name,
                gpu.name,
                room.footprint.total().to_gib(),
                if layout.gpus() > 1 { " on each GPU" } else { "" },
                gpu.memory.value.to_gib()
            )));
        }
        check(demand.requests(), &limits).map_err(Failure::usage)?;
        let times = StepTimes::of(&deployment, network, extent, points).map_err(of_generation)?;
        Ok(Self { times, limits, room, interconnect: deployment.interconnect.name.clone() })
    }
}

/// Layouts that a replica may have over the GPUs of a node: no groups with samples of their own; stages where they are asked for.
pub(super) fn layouts(cluster: &Cluster, network: &Network, staged: bool) -> Result<Vec<Layout>, Failure> {
    let all = over_node(cluster, network)?.1.into_iter();
    Ok(all.filter(|layout| layout.data() == 1 && (staged || layout.pipeline() == 1)).collect())
}
