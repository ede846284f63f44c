//! A language model on a replica under a load.

use super::settings::{caps, clocks};
use crate::failure::Failure;
use crate::request::{Request, only};
use crate::session::Session;
use joulecast_model::ask::serving::times::{Extent, Room, StepTimes};
use joulecast_model::ask::serving::{Demand, Limits, Pools, Service, ServingError, Target};
use joulecast_model::base::precision::Mode;
use joulecast_model::base::units::Bytes;
use joulecast_model::catalog;
use joulecast_model::device::gpu::Gpu;
use joulecast_model::net::share::Layout;
use joulecast_model::step::generation::GenerationError;
use joulecast_model::step::parallel::Fabric;
use joulecast_model::step::predictor::OperatingPoint;
use joulecast_reports::serving::{At, Served};

/// How requests come.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Coming {
    /// So many a second.
    Rate(f64),
    /// Of so many users, who wait for their answers.
    Users(usize),
    /// As many as keep a target.
    Within(Target),
}

/// What is to be served, and how.
#[derive(Clone, Debug)]
pub struct Serving {
    /// The requests.
    pub demand: Demand,
    /// Where they come from, in words.
    pub described: String,
    /// What decides them.
    pub seed: u64,
    /// How they come.
    pub coming: Coming,
    /// Most new tokens of a step; what vLLM takes on such a GPU without.
    pub tokens: Option<u64>,
    /// Most sequences; likewise.
    pub sequences: Option<u64>,
    /// Tokens of a block.
    pub block: u64,
    /// Share of the memory that is used.
    pub memory: f64,
    /// Whether prompts may be computed in chunks.
    pub chunked: bool,
    /// Also other power limits, and clocks.
    pub over: (bool, bool),
    /// So many replicas for prompts and so many for answers; without, one does both.
    pub apart: Option<(usize, usize)>,
}

/// So many other limits, and clocks, are tried.
const TRIED: usize = 6;

/// A few of a list, evenly, its last one among them.
fn few<T: Copy>(list: &[T]) -> Vec<T> {
    let count = list.len().min(TRIED);
    (1..=count).map(|i| list[i * list.len() / count - 1]).collect()
}

/// The points that are tried, the one that is asked for first.
fn points(gpu: &Gpu, base: OperatingPoint, (cap, clock): (bool, bool)) -> Vec<OperatingPoint> {
    let mut points = vec![base];
    if cap && base.power_cap.is_none() {
        points.extend(few(&caps(gpu)).into_iter().map(|cap| OperatingPoint { power_cap: Some(cap), ..base }));
    }
    if clock && base.core_clock.is_none() {
        let all = clocks(gpu, 4 * TRIED);
        points.extend(few(&all).into_iter().map(|clock| OperatingPoint { core_clock: Some(clock), ..base }));
    }
    points
}

/// Pools of replicas and what joins them.
fn pools(request: &Request, gpu: &Gpu, (prefill, decode): (usize, usize), per_token: Bytes) -> Result<Pools, Failure> {
    let asked = request.interconnect.as_deref().map(catalog::interconnect).transpose();
    let asked = asked.map_err(|e| Failure::Usage(e.into()))?;
    let known = catalog::interconnects().map_err(Failure::failed)?;
    let fabric = Fabric::of(&known, &[gpu], (prefill + decode) as u64, asked).map_err(Failure::usage)?;
    Ok(Pools { prefill, decode, fabric, per_token })
}

/// A replica of a language model under a load, at one or several operating points.
///
/// # Errors
/// When what is asked is wrong, the network generates nothing, or neither it nor a request fits in memory.
pub fn serve(session: &Session, request: &Request, asked: &Serving) -> Result<Served, Failure> {
    let precision = *only(&request.precisions, "precision")?;
    let cluster = session.cluster(request, only(&request.teams, "GPU")?, precision, Mode::Inference)?;
    let source = session.network(only(&request.networks, "network")?, &request.reading)?;
    let (predictor, network) = (cluster.first(), &source.network);
    let gpu = predictor.gpu();
    let usual = Limits::usual(gpu);
    let longest = asked.demand.longest();
    let sequences = asked.sequences.unwrap_or(usual.sequences);
    let tokens = asked.tokens.unwrap_or(usual.tokens);
    // A prompt that is not cut runs beside all answers.
    let largest = if asked.chunked { tokens } else { tokens.max(longest + sequences) };
    let extent = Extent { tokens: largest.max(sequences), sequences, length: longest };
    let failure = |error: GenerationError| match error {
        GenerationError::Predict(error) => Failure::from(error),
        other => Failure::Usage(anyhow::Error::from(other)),
    };
    let layout = request.layout.unwrap_or(Layout::ALONE);
    if request.interconnect.is_some() && layout.gpus() == 1 && asked.apart.is_none() {
        return Err(Failure::usage("--interconnect joins several GPUs: --tensor-parallel N, or --disaggregate N:N"));
    }
    let deployment = cluster.deployment(layout, request.point)?;
    let room = Room::of(&deployment, network, extent, asked.memory).map_err(failure)?;
    let limits =
        Limits { tokens, sequences, blocks: room.blocks(asked.block), block: asked.block, chunked: asked.chunked };
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
    let wrong = |error: ServingError| Failure::usage(error);
    joulecast_model::ask::serving::check(asked.demand.requests(), &limits).map_err(wrong)?;
    let pools = asked.apart.map(|apart| pools(request, gpu, apart, room.per_token)).transpose()?;
    if let (Some(_), Coming::Users(_)) = (&pools, asked.coming) {
        return Err(Failure::usage("--disaggregate is for requests that come at a rate: leave out --concurrency"));
    }
    let points = points(gpu, request.point, asked.over);
    let times = StepTimes::of(&deployment, network, extent, &points).map_err(failure)?;
    let at = |times: &StepTimes| -> Result<At, ServingError> {
        let service = Service { times, limits, demand: &asked.demand, pools: pools.as_ref() };
        let rate = match asked.coming {
            Coming::Rate(rate) => Some(rate),
            Coming::Users(users) => {
                return Ok(At { point: times.point, rate: None, outlook: Some(service.closed(users)?) });
            }
            Coming::Within(target) => service.highest(&target)?,
        };
        let outlook = rate.map(|rate| service.open(rate)).transpose()?;
        Ok(At { point: times.point, rate, outlook })
    };
    let mut all = times.iter().map(at).collect::<Result<Vec<_>, _>>().map_err(wrong)?;
    let base = all.remove(0);
    let first = &times[0];
    let joined = pools.as_ref().and_then(|pools| pools.fabric.note.clone());
    let notes = cluster.notes().cloned().chain(joined).chain(first.warnings.iter().cloned()).collect();
    Ok(Served {
        network: network.name.clone(),
        layout: (layout.gpus() > 1).then(|| (layout, deployment.interconnect.name.clone())),
        gpu: (only(&request.teams, "GPU")?.name.clone(), gpu.title.clone()),
        precision: precision.name().to_string(),
        framework: predictor.framework().name.clone(),
        load: asked.described.clone(),
        requests: asked.demand.requests().len(),
        seed: asked.seed,
        limits,
        room,
        tiers: first.tiers,
        target: match asked.coming {
            Coming::Within(target) => Some(target),
            _ => None,
        },
        pools: pools.map(|p| (p.prefill, p.decode, p.fabric.name((p.prefill + p.decode) as u64))),
        base,
        points: all,
        warnings: notes,
    })
}
