//! A language model on a replica under a load.

use super::replica::{Replica, layouts};
use super::settings::{caps, clocks};
use crate::cluster::Cluster;
use crate::failure::Failure;
use crate::request::{Request, only};
use crate::session::Session;
use joulecast_model::ask::capacity::Goal;
use joulecast_model::ask::serving::times::{Room, StepTimes};
use joulecast_model::ask::serving::{Demand, Engine, Group, Limits, Pools, Service, ServingError, Target, Which};
use joulecast_model::base::precision::Mode;
use joulecast_model::device::gpu::Gpu;
use joulecast_model::law::calibration::Tier;
use joulecast_model::net::network::Network;
use joulecast_model::net::share::Layout;
use joulecast_model::step::predictor::{OperatingPoint, Warning};
use joulecast_reports::serving::{At, Priced, Served};

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

/// Settings that are tried beside the one that is asked for: every one of them with every other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Beside {
    /// Power limits.
    pub caps: bool,
    /// Core clocks.
    pub clocks: bool,
    /// GPUs of a node that divide every block.
    pub layouts: bool,
    /// Pipelines over them.
    pub stages: bool,
    /// Several replicas on them.
    pub copies: bool,
    /// Fewer sequences of a step.
    pub sequences: bool,
}

impl Beside {
    /// Whether other layouts are tried than the one that is asked for.
    fn on_others(self) -> bool {
        self.layouts || self.stages || self.copies
    }
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
    /// Limits of the engine.
    pub engine: Engine,
    /// What else is tried.
    pub over: Beside,
    /// So many replicas for prompts and so many for answers; without, one does both.
    pub apart: Option<(usize, usize)>,
    /// What GPUs and electricity cost, where that is known.
    pub priced: Option<Priced>,
    /// What settings are compared by, and which requests' latencies.
    pub objective: Option<(Goal, Which)>,
}

/// So many other limits, and clocks, are tried.
const TRIED: usize = 6;

/// A few of a list, evenly, its last one among them.
fn few<T: Copy>(list: &[T]) -> Vec<T> {
    let count = list.len().min(TRIED);
    (1..=count).map(|i| list[i * list.len() / count - 1]).collect()
}

/// The points that are tried, the one that is asked for first.
fn points(gpu: &Gpu, base: OperatingPoint, over: Beside) -> Vec<OperatingPoint> {
    let mut points = vec![base];
    if over.caps && base.power_cap.is_none() {
        points.extend(few(&caps(gpu)).into_iter().map(|cap| OperatingPoint { power_cap: Some(cap), ..base }));
    }
    if over.clocks && base.core_clock.is_none() {
        let all = clocks(gpu, 4 * TRIED);
        points.extend(few(&all).into_iter().map(|clock| OperatingPoint { core_clock: Some(clock), ..base }));
    }
    points
}

/// The largest batch is halved so often.
const HALVED: u32 = 3;

/// Layouts and most sequences that are tried, those that are asked for first.
fn replicas(
    cluster: &Cluster,
    network: &Network,
    asked: (Layout, u64),
    over: Beside,
) -> Result<Vec<(Layout, u64)>, Failure> {
    let mut all = vec![asked.0];
    if over.on_others() {
        let node = layouts(cluster, network, over.stages)?;
        let most = node.iter().map(Layout::gpus).max().unwrap_or(1);
        let divided = |layout: &Layout| (layout.tensor(), layout.expert());
        for one in node.into_iter().filter(|one| over.layouts || divided(one) == divided(&asked.0)) {
            let powers = (0..).map(|i| 1 << i).take_while(|n| n * one.gpus() <= most && (over.copies || *n == 1));
            let copied = powers.filter_map(|n| one.copied(n).ok());
            all.extend(copied.filter(|layout| *layout != asked.0));
        }
    }
    let mut sequences = vec![asked.1];
    if over.sequences {
        sequences.extend((1..=HALVED).map(|i| asked.1 >> i).filter(|n| *n > 0));
    }
    let mut tried: Vec<(Layout, u64)> = all.iter().flat_map(|layout| sequences.iter().map(|n| (*layout, *n))).collect();
    // Copies of a replica one after the other: its steps are predicted once.
    if let Some(others) = tried.get_mut(1..) {
        let of = |(layout, n): &(Layout, u64)| {
            let one = layout.of_replica();
            (one.gpus(), one.pipeline(), one.expert(), std::cmp::Reverse(*n), layout.data())
        };
        others.sort_by_key(of);
    }
    Ok(tried)
}

/// A replica at all operating points.
struct Found {
    all: Vec<At>,
    limits: Limits,
    room: Room,
    pools: Option<Pools>,
    interconnect: String,
    tiers: (Tier, Tier),
    warnings: Vec<Warning>,
}

/// A layout with so many sequences at most, all of whose replicas are the one that is given.
fn found(
    cluster: &Cluster,
    asked: &Serving,
    (layout, sequences): (Layout, u64),
    Replica { times, limits, room, interconnect }: &Replica,
) -> Result<Found, Failure> {
    let wrong = |error: ServingError| Failure::usage(error);
    let pools = asked.apart.map(|(prefill, decode)| {
        let fabric = cluster.fabric((prefill + decode) as u64)?;
        Ok::<_, Failure>(Pools { prefill, decode, fabric, per_token: room.per_token })
    });
    let pools = pools.transpose()?;
    // Each of the replicas gets as many requests as one alone would.
    let demand = asked.demand.repeated(layout.data() as usize);
    let group = pools.as_ref().map_or(Group::Alike(layout.data() as usize), Group::Apart);
    let replicas = asked.apart.map_or(1, |(prefill, decode)| (prefill + decode) as u64);
    let at = |times: &StepTimes| -> Result<At, ServingError> {
        let service = Service { times, limits: *limits, demand: &demand, group };
        let gpus = layout.gpus() * replicas;
        let found = At { layout, gpus, sequences, point: times.point, rate: None, outlook: None };
        let rate = match asked.coming {
            Coming::Rate(rate) => Some(rate),
            Coming::Users(users) => return Ok(At { outlook: Some(service.closed(users)?), ..found }),
            Coming::Within(target) => service.highest(&target)?,
        };
        let outlook = rate.map(|rate| service.open(rate)).transpose()?;
        Ok(At { rate, outlook, ..found })
    };
    let all = times.iter().map(at).collect::<Result<Vec<_>, _>>().map_err(wrong)?;
    // There is a point: that which is asked for.
    let usual = ((Tier::Roofline, Tier::Roofline), Vec::new());
    let (tiers, warnings) = times.first().map_or(usual, |t| (t.tiers, t.warnings.clone()));
    let (limits, room, interconnect) = (*limits, *room, interconnect.clone());
    Ok(Found { all, limits, room, pools, interconnect, tiers, warnings })
}

/// What does not go together.
fn check(layout: Layout, asked: &Serving) -> Result<(), Failure> {
    if let (Some(_), Coming::Users(_)) = (asked.apart, asked.coming) {
        return Err(Failure::usage("--disaggregate is for requests that come at a rate: leave out --concurrency"));
    }
    if asked.apart.is_some() && (layout.replicas() > 1 || asked.over.copies) {
        return Err(Failure::usage(
            "--disaggregate says how many replicas there are: leave out --data-parallel, and --over replicas",
        ));
    }
    Ok(())
}

/// A replica of a language model under a load, at one or several operating points, on one or several layouts.
///
/// # Errors
/// When what is asked is wrong, the network generates nothing, or neither it nor a request fits in memory. Of other layouts
/// than the one that is asked for the reason is told instead.
pub fn serve(session: &Session, request: &Request, asked: &Serving) -> Result<Served, Failure> {
    let precision = *only(&request.precisions, "precision")?;
    let cluster = session.cluster(request, only(&request.teams, "GPU")?, precision, Mode::Inference)?;
    let source = session.network(only(&request.networks, "network")?, &request.reading)?;
    let (predictor, network) = (cluster.first(), &source.network);
    let gpu = predictor.gpu();
    let layout = request.layout.unwrap_or(Layout::ALONE);
    if request.interconnect.is_some() && layout.gpus() == 1 && asked.apart.is_none() && !asked.over.on_others() {
        return Err(Failure::usage(
            "--interconnect joins several GPUs: --tensor-parallel N, --pipeline-parallel N, or --disaggregate N:N",
        ));
    }
    let sequences = asked.engine.limits(gpu).sequences;
    check(layout, asked)?;
    let tried = replicas(&cluster, network, (layout, sequences), asked.over)?;
    let at = points(gpu, request.point, asked.over);
    let (mut left_out, mut points, mut first) = (Vec::new(), Vec::new(), None);
    // The last one that was predicted.
    let mut known: Option<(Layout, u64, Replica)> = None;
    for replica in tried {
        let (one, sequences) = (replica.0.of_replica(), replica.1);
        let predicted = match known.take().filter(|(layout, n, _)| (*layout, *n) == (one, sequences)) {
            Some((.., replica)) => Ok(replica),
            None => {
                let engine = Engine { sequences: Some(sequences), ..asked.engine };
                Replica::of(&cluster, network, (&asked.demand, &engine), replica.0, &at)
            }
        };
        let outcome = predicted.and_then(|predicted| {
            let outcome = found(&cluster, asked, replica, &predicted);
            known = Some((one, sequences, predicted));
            outcome
        });
        match outcome {
            Ok(mut found) if first.is_none() => {
                let base = found.all.remove(0);
                points.append(&mut found.all);
                first = Some((replica.0, base, found));
            }
            Ok(found) => points.extend(found.all),
            // Where nobody asked for a layout, another one may do.
            Err(Failure::Usage(why)) if asked.over.on_others() && (replica.0 != layout || request.layout.is_none()) => {
                // Copies of it are left out for the same reason.
                let one = replica.0.of_replica();
                if left_out.iter().all(|(known, _)| *known != one) {
                    left_out.push((one, why.to_string()));
                }
            }
            Err(other) => return Err(other),
        }
    }
    let Some((layout, base, first)) = first else {
        let why = left_out.pop().map_or("there is none".into(), |(_, why)| why);
        return Err(Failure::usage(format_args!("no layout of a node serves {}: {why}", network.name)));
    };
    let joined = first.pools.as_ref().and_then(|pools| pools.fabric.note.clone());
    let mut notes: Vec<Warning> = cluster.notes().cloned().chain(joined).chain(first.warnings).collect();
    if points.iter().any(|at| at.layout.pipeline() > 1) && !notes.contains(&Warning::Handing) {
        notes.push(Warning::Handing);
    }
    Ok(Served {
        network: network.name.clone(),
        layout: (layout.gpus() > 1).then_some((layout, first.interconnect)),
        gpu: (only(&request.teams, "GPU")?.name.clone(), gpu.title.clone()),
        precision: precision.name().to_string(),
        framework: predictor.framework().name.clone(),
        load: asked.described.clone(),
        requests: asked.demand.repeated(layout.data() as usize).requests().len(),
        seed: asked.seed,
        limits: first.limits,
        room: first.room,
        tiers: first.tiers,
        target: match asked.coming {
            Coming::Within(target) => Some(target),
            _ => None,
        },
        pools: first.pools.map(|p| (p.prefill, p.decode, p.fabric.name((p.prefill + p.decode) as u64))),
        priced: asked.priced.clone(),
        objective: asked.objective,
        base,
        points,
        left_out,
        warnings: notes,
    })
}
