//! A language model on a replica under a load.

use super::replica::{Replica, instead, limits};
use super::tried::{Tried, is_same, points, replicas};
use crate::cluster::longer_than_made_for;
use crate::failure::Failure;
use crate::request::{Request, only};
use crate::session::Session;
use joulecast_ask::capacity::Goal;
use joulecast_ask::serving::times::StepTimes;
use joulecast_ask::serving::{Demand, Engine, Group, Limits, Pools, Service, ServingError, Target, Which};
use joulecast_model::base::precision::Mode;
use joulecast_model::law::calibration::Tier;
use joulecast_model::net::share::Layout;
use joulecast_model::step::predictor::{Estimate, Warning};
use joulecast_reports::error_line;
use joulecast_reports::serving::{At, Priced, Served};
use rayon::prelude::*;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How requests come.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Coming {
    /// So many a second.
    Rate(f64),
    /// Of so many users, who wait for their answers.
    Users(usize),
    /// All at one time.
    Burst,
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

/// How many settings there are, and how many of them were simulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// So many were.
    pub done: usize,
    /// Of so many.
    pub all: usize,
}

/// A replica on its layout with limits, as it is tried.
struct Trial {
    tried: Tried,
    replica: Replica,
    pools: Option<Pools>,
    demand: Demand,
    /// Which of those that are simulated alone it has copies of.
    alone: usize,
}

impl Trial {
    fn service<'s>(&'s self, times: &'s StepTimes, alone: Option<Estimate<f64>>) -> Service<'s> {
        let group = self.pools.as_ref().map_or(Group::Alike(self.tried.layout.data() as usize), Group::Apart);
        Service { times, limits: self.replica.limits, demand: &self.demand, group, alone }
    }

    /// At an operating point, under the load.
    fn at(&self, times: &StepTimes, coming: Coming, alone: Option<Estimate<f64>>) -> Result<At, ServingError> {
        let service = self.service(times, alone);
        let layout = self.tried.layout;
        let replicas = self.pools.as_ref().map_or(1, |pools| (pools.prefill + pools.decode) as u64);
        let Limits { sequences, tokens, .. } = self.replica.limits;
        let (gpus, point) = (layout.gpus() * replicas, times.point);
        let at = At { layout, gpus, sequences, tokens, point, rate: None, highest: None, outlook: None };
        Ok(match coming {
            Coming::Rate(rate) => At { rate: Some(rate), outlook: Some(service.open(rate)?), ..at },
            Coming::Burst => At { outlook: Some(service.burst()?), ..at },
            Coming::Users(users) => At { outlook: Some(service.closed(users)?), ..at },
            Coming::Within(target) => match service.within(&target)? {
                Some((highest, outlook)) => {
                    At { rate: Some(highest.value), highest: Some(highest), outlook: Some(outlook), ..at }
                }
                None => at,
            },
        })
    }
}

/// All that is tried, at all operating points, each as far as nothing is wrong with it.
fn simulated(
    trials: &[Trial],
    points: usize,
    coming: Coming,
    tell: &(dyn Fn(Progress) + Sync),
) -> Vec<Result<Vec<At>, ServingError>> {
    let places = |count: usize| (0..count).flat_map(|trial| (0..points).map(move |point| (trial, point)));
    let at =
        |(trial, point): (usize, usize)| trials[trial].replica.times.get(point).map(|times| (&trials[trial], times));
    // What a replica carries alone says it of its copies.
    let alone: Vec<usize> = (0..trials.len()).filter(|&i| trials[i].alone == i).collect();
    let many = |i: usize| trials.iter().filter(|trial| trial.alone == i).count() > 1;
    let carried: Vec<Vec<Option<Estimate<f64>>>> = alone
        .par_iter()
        .map(|&i| {
            let one = |times: &StepTimes| {
                let service = trials[i].service(times, None);
                Service { group: Group::ONE, ..service }.carries().ok()
            };
            let is_shared = many(i) && trials[i].pools.is_none();
            trials[i].replica.times.par_iter().map(|times| is_shared.then(|| one(times)).flatten()).collect()
        })
        .collect();
    let known = |trial: &Trial, point: usize| {
        let place = alone.iter().position(|i| *i == trial.alone)?;
        carried.get(place)?.get(point).copied()?
    };
    let (done, all) = (AtomicUsize::new(0), trials.len() * points);
    tell(Progress { done: 0, all });
    let places: Vec<(usize, usize)> = places(trials.len()).collect();
    let found: Vec<Option<Result<At, ServingError>>> = places
        .par_iter()
        .map(|&place| {
            let (trial, times) = at(place)?;
            let found = trial.at(times, coming, known(trial, place.1));
            tell(Progress { done: 1 + done.fetch_add(1, Ordering::Relaxed), all });
            Some(found)
        })
        .collect();
    let mut found = found.into_iter();
    trials.iter().map(|_| found.by_ref().take(points).flatten().collect()).collect()
}

/// How many requests were simulated of a setting.
fn simulated_of(at: &At) -> Option<usize> {
    Some(at.outlook.as_ref()?.value.as_ref()?.simulated)
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
    let has_one_token = asked.demand.requests().iter().all(|request| request.answer == 1);
    if let (Coming::Within(Target { per_token: Some(_), .. }), true) = (asked.coming, has_one_token) {
        return Err(Failure::usage(
            "answers of one token have no time for each further one: leave out --tpot; --ttft is a target for them",
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
    serve_telling(session, request, asked, &|_| ())
}

/// As [`serve`], and says how far it is, from any thread.
///
/// # Errors
/// As [`serve`].
pub fn serve_telling(
    session: &Session,
    request: &Request,
    asked: &Serving,
    tell: &(dyn Fn(Progress) + Sync),
) -> Result<Served, Failure> {
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
    let all = replicas(&cluster, network, Tried { layout, sequences, tokens }, asked.over)?;
    let at = points(gpu, request.point, asked.over);
    let load = |tried: &Tried| Engine { sequences: Some(tried.sequences), tokens: Some(tried.tokens), ..asked.engine };
    let mut left_out: Vec<(Layout, String)> = Vec::new();
    // Where nobody asked for a layout, another one may do.
    let mut leave_out = |tried: &Tried, failure: Failure| match failure {
        Failure::Usage(why) if asked.over.on_others() && (tried.layout != layout || request.layout.is_none()) => {
            // Copies of it are left out for the same reason.
            let one = tried.layout.of_replica();
            if left_out.iter().all(|(known, _)| *known != one) {
                left_out.push((one, why.to_string()));
            }
            Ok(())
        }
        Failure::Usage(why) => {
            let other = instead(&cluster, network, (&asked.demand, &load(tried)), tried.layout);
            let other = other.map_or(String::new(), |other| format!("; {other}"));
            Err(Failure::usage(format_args!("{}{other}", error_line(why.chain().map(ToString::to_string)))))
        }
        other => Err(other),
    };
    let mut trials: Vec<Trial> = Vec::new();
    for tried in all {
        let (one, engine) = (tried.layout.of_replica(), load(&tried));
        let within = |of: &Limits| tried.sequences <= of.sequences && tried.tokens <= of.tokens;
        let known = trials.iter().rev().find(|known| known.tried.layout.of_replica() == one);
        let predicted = match known.filter(|known| within(&known.replica.limits)) {
            Some(known) => known.replica.limited(&cluster, network, (&asked.demand, &engine), tried.layout),
            _ => Replica::of(&cluster, network, (&asked.demand, &engine), tried.layout, &at),
        };
        let trial = predicted.and_then(|replica| {
            let pools = asked.apart.map(|(prefill, decode)| {
                let fabric = cluster.fabric((prefill + decode) as u64)?;
                Ok::<_, Failure>(Pools { prefill, decode, fabric, per_token: replica.room.per_token })
            });
            let same = |known: &Trial| known.tried.layout.of_replica() == one && known.replica.limits == replica.limits;
            let alone = trials.iter().position(same).unwrap_or(trials.len());
            // Each of the replicas gets as many requests as one alone would.
            let demand = asked.demand.repeated(tried.layout.data() as usize);
            Ok(Trial { tried, replica, pools: pools.transpose()?, demand, alone })
        });
        match trial {
            Ok(trial) => trials.push(trial),
            Err(failure) => leave_out(&tried, failure)?,
        }
    }
    let found = simulated(&trials, at.len(), asked.coming, tell);
    let (mut points, mut first) = (Vec::new(), None);
    for (trial, found) in trials.iter().zip(found) {
        match found {
            Ok(found) => {
                let mut found = found.into_iter();
                if first.is_none() {
                    first = found.next().map(|base| (base, trial));
                }
                points.extend(found);
            }
            Err(error) => leave_out(&trial.tried, Failure::usage(error))?,
        }
    }
    let Some((base, first)) = first else {
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
    let layout = base.layout;
    // There is a point: that which is asked for.
    let times = first.replica.times.first();
    let (tiers, warned) =
        times.map_or(((Tier::Roofline, Tier::Roofline), Vec::new()), |t| (t.tiers, t.warnings.clone()));
    let joined = first.pools.as_ref().and_then(|pools| pools.fabric.note.clone());
    let longest = longer_than_made_for(network, asked.demand.longest());
    let told = cluster.notes().cloned().chain(longest);
    let mut notes: Vec<Warning> = told.chain(joined).chain(warned).collect();
    if points.iter().any(|at| at.layout.pipeline() > 1) && !notes.contains(&Warning::Handing) {
        notes.push(Warning::Handing);
    }
    Ok(Served {
        network: network.name.clone(),
        layout: (layout.gpus() > 1).then_some((layout, first.replica.interconnect.clone())),
        gpu: (only(&request.teams, "GPU")?.name.clone(), gpu.title.clone()),
        precision: precision.name().to_string(),
        framework: predictor.framework().name.clone(),
        load: asked.described.clone(),
        requests: simulated_of(&base).unwrap_or(first.demand.requests().len()),
        seed: asked.seed,
        limits: first.replica.limits,
        room: first.replica.room,
        tiers,
        target: match asked.coming {
            Coming::Within(target) => Some(target),
            _ => None,
        },
        pools: first.pools.as_ref().map(|p| (p.prefill, p.decode, p.fabric.name((p.prefill + p.decode) as u64))),
        priced: asked.priced.clone(),
        objective: asked.objective,
        base,
        points,
        left_out,
        warnings: notes,
    })
}
