//! A language model on a replica under a load.

use super::replica::{Replica, instead, limits};
use super::tried::{Tried, is_same, points, replicas};
use crate::cluster::{Cluster, longer_than_made_for};
use crate::failure::Failure;
use crate::request::{Request, only};
use crate::session::Session;
use joulecast_model::ask::capacity::Goal;
use joulecast_model::ask::serving::times::{Room, StepTimes};
use joulecast_model::ask::serving::{Demand, Engine, Group, Limits, Pools, Service, ServingError, Target, Which};
use joulecast_model::base::precision::Mode;
use joulecast_model::law::calibration::Tier;
use joulecast_model::net::share::Layout;
use joulecast_model::step::predictor::Warning;
use joulecast_reports::error_line;
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
    /// Fewer tokens of a step.
    pub tokens: bool,
}

impl Beside {
    /// Whether other layouts are tried than the one that is asked for.
    pub(super) fn on_others(self) -> bool {
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
    layout: Layout,
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
        let Limits { sequences, tokens, .. } = *limits;
        let point = times.point;
        let found = At { layout, gpus, sequences, tokens, point, rate: None, highest: None, outlook: None };
        let (rate, highest) = match asked.coming {
            Coming::Rate(rate) => (Some(rate), None),
            Coming::Users(users) => return Ok(At { outlook: Some(service.closed(users)?), ..found }),
            Coming::Within(target) => {
                let highest = service.highest(&target)?;
                (highest.map(|rate| rate.value), highest)
            }
        };
        let outlook = rate.map(|rate| service.open(rate)).transpose()?;
        Ok(At { rate, highest, outlook, ..found })
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
    let request = &session.settled(request)?;
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
    check(layout, asked)?;
    let Limits { sequences, tokens, .. } = limits(&cluster, &asked.engine)?;
    let tried = replicas(&cluster, network, Tried { layout, sequences, tokens }, asked.over)?;
    let at = points(gpu, request.point, asked.over);
    let (mut left_out, mut points, mut first) = (Vec::new(), Vec::new(), None);
    // The last one that was predicted.
    let mut known: Option<(Layout, Replica)> = None;
    for tried in tried {
        let one = tried.layout.of_replica();
        let engine = Engine { sequences: Some(tried.sequences), tokens: Some(tried.tokens), ..asked.engine };
        let load = (&asked.demand, &engine);
        let within = |of: &Limits| tried.sequences <= of.sequences && tried.tokens <= of.tokens;
        let predicted = match &known {
            Some((layout, replica)) if *layout == one && within(&replica.limits) => {
                replica.limited(&cluster, network, load, tried.layout)
            }
            _ => Replica::of(&cluster, network, load, tried.layout, &at).inspect(|replica| {
                known = Some((one, replica.clone()));
            }),
        };
        let outcome = predicted.and_then(|predicted| found(&cluster, asked, tried.layout, &predicted));
        match outcome {
            Ok(mut found) if first.is_none() => {
                let base = found.all.remove(0);
                points.append(&mut found.all);
                first = Some((tried.layout, base, found));
            }
            Ok(found) => points.extend(found.all),
            // Where nobody asked for a layout, another one may do.
            Err(Failure::Usage(why))
                if asked.over.on_others() && (tried.layout != layout || request.layout.is_none()) =>
            {
                // Copies of it are left out for the same reason.
                let one = tried.layout.of_replica();
                if left_out.iter().all(|(known, _)| *known != one) {
                    left_out.push((one, why.to_string()));
                }
            }
            Err(Failure::Usage(why)) => {
                let other =
                    instead(&cluster, network, load, tried.layout).map_or(String::new(), |other| format!("; {other}"));
                return Err(Failure::usage(format_args!(
                    "{}{other}",
                    error_line(why.chain().map(ToString::to_string))
                )));
            }
            Err(other) => return Err(other),
        }
    }
    let Some((layout, base, first)) = first else {
        let why = left_out.pop().map_or("there is none".into(), |(_, why)| why);
        return Err(Failure::usage(format_args!("no layout of a node serves {}: {why}", network.name)));
    };
    // Limits that decide nothing: the layout with the largest steps stands for them.
    let mut shown: Vec<At> = Vec::with_capacity(points.len());
    for at in points {
        if !std::iter::once(&base).chain(&shown).any(|other| is_same(&at, other)) {
            shown.push(at);
        }
    }
    let points = shown;
    let joined = first.pools.as_ref().and_then(|pools| pools.fabric.note.clone());
    let longest = longer_than_made_for(network, asked.demand.longest());
    let told = cluster.notes().cloned().chain(longest);
    let mut notes: Vec<Warning> = told.chain(joined).chain(first.warnings).collect();
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
