//! Language models of a plan: replicas of every layout on a GPU, at settings.

use super::super::replica::{Replica, layouts, limits};
use crate::cluster::{Cluster, longer_than_made_for};
use crate::failure::Failure;
use crate::request::{Reading, Request, Runner, Team};
use crate::session::Session;
use crate::source::Source;
use anyhow::anyhow;
use joulecast_ask::capacity::{CHANGES, CandidateFile, Carrier, Carriers, PlannedLanguage, Slower, Wanted};
use joulecast_ask::serving::times::{StepTimes, Times};
use joulecast_ask::serving::{Demand, Limits, Target};
use joulecast_model::base::order::sort_by;
use joulecast_model::base::precision::Mode;
use joulecast_model::net::share::Layout;
use joulecast_model::step::generation;
use joulecast_model::step::predictor::{OperatingPoint, Warning};
use joulecast_reports::error_line;
use joulecast_reports::warnings::words;
use rayon::prelude::*;
use std::sync::Arc;

/// Layouts that cannot be, and why.
type Unfit = Vec<(Layout, String)>;

/// A language model of a plan, and the requests that are simulated.
pub(super) struct Language<'p> {
    pub planned: &'p PlannedLanguage,
    source: Arc<Source>,
    demand: Demand,
}

impl<'p> Language<'p> {
    /// Reads the network.
    ///
    /// # Errors
    /// When it cannot be had, or generates no such sequences.
    pub fn read(session: &Session, planned: &'p PlannedLanguage, reading: &Reading) -> Result<Self, Failure> {
        // Sequences are as long as requests say.
        let source = session.network(&planned.net, &Reading { sequence: None, ..reading.clone() })?;
        let demand = planned.demand();
        let longest = demand.requests().iter().max_by_key(|r| r.prompt + r.answer);
        let (prompt, answer) = longest.map_or((1, 1), |r| (r.prompt, r.answer));
        let of = |why: anyhow::Error| Failure::Usage(why.context(format!("service {}", planned.name)));
        generation::check(&source.network, prompt, answer).map_err(|e| of(e.into()))?;
        if !source.bindings.is_empty() {
            return Err(of(anyhow!("a language model reads tokens: leave out --input")));
        }
        Ok(Self { planned, source, demand })
    }

    /// What predicts its steps on a GPU.
    ///
    /// # Errors
    /// When the profile or the GPU cannot be had, or does not do what is asked.
    pub fn cluster(&self, session: &Session, runner: &Runner, gpu: &str) -> Result<Cluster, Failure> {
        let PlannedLanguage { framework, precision, stored, net, .. } = self.planned;
        let runner = Runner { calibration: runner.calibration.clone(), ..Runner::through(framework) };
        let request = Request { runner, precisions: vec![*precision], stored: *stored, ..Request::new(net, gpu) };
        session.cluster(&request, &Team::of(1, gpu), *precision, Mode::Inference)
    }

    fn called(&self, failure: Failure) -> Failure {
        let name = self.planned.name.clone();
        match failure {
            Failure::Usage(why) => Failure::Usage(why.context(name)),
            Failure::Failed(why) => Failure::Failed(why.context(name)),
        }
    }

    /// Layouts to try on a candidate's server, rising, and those that it does not have.
    fn layouts(&self, c: &CandidateFile, cluster: &Cluster) -> Result<(Vec<Layout>, Unfit), Failure> {
        // What nothing joins serves alone.
        let node = layouts(cluster, &self.source.network, false).unwrap_or_else(|_| vec![Layout::ALONE]);
        let has = |layout: &Layout| layout.gpus() <= c.server.gpus;
        let Some(asked) = &self.planned.tensor else {
            return Ok((node.into_iter().filter(has).collect(), Vec::new()));
        };
        let mut all: Vec<Layout> = node.into_iter().filter(|layout| asked.contains(&layout.tensor())).collect();
        for &tensor in asked {
            if all.iter().all(|known| known.tensor() != tensor) {
                all.push(Layout::new(tensor, 1, 1, None).map_err(Failure::usage)?);
            }
        }
        sort_by(&mut all, |a, b| (a.gpus(), a.expert()).cmp(&(b.gpus(), b.expert())));
        all.dedup();
        let (fit, large): (Vec<Layout>, Vec<Layout>) = all.into_iter().partition(has);
        let why = format!("a server of {} has {} GPUs", c.name, c.server.gpus);
        Ok((fit, large.into_iter().map(|layout| (layout, why.clone())).collect()))
    }

    /// Its replicas on a candidate's GPUs, at settings.
    ///
    /// # Errors
    /// When there is none on any layout: why the last of them is none.
    pub fn laid(&self, c: &CandidateFile, cluster: &Cluster, settings: &[OperatingPoint]) -> Result<Laid<'_>, Failure> {
        limits(cluster, &self.planned.engine).map_err(|e| self.called(e))?;
        let longest = longer_than_made_for(&self.source.network, self.demand.longest());
        let told = longest.into_iter().collect();
        let (fit, mut left_out) = self.layouts(c, cluster).map_err(|e| self.called(e))?;
        let mut replicas = Vec::new();
        for layout in fit {
            let asked = (&self.demand, &self.planned.engine);
            match Replica::of(cluster, &self.source.network, asked, layout, settings) {
                Ok(replica) => replicas.push((layout, replica)),
                Err(Failure::Usage(why)) => {
                    left_out.push((layout, error_line(why.chain().map(ToString::to_string))));
                }
                Err(other) => return Err(self.called(other)),
            }
        }
        if replicas.is_empty() {
            let why = left_out.pop().map_or("no layout of a server is a replica's".into(), |(_, why)| why);
            return Err(Failure::usage(format_args!("{}: {why}", self.planned.name)));
        }
        let wanted = Wanted { demand: &self.demand, target: &self.planned.target };
        // Nobody asked for one of those that are tried without being listed.
        let left_out = if self.planned.tensor.is_some() { left_out } else { Vec::new() };
        Ok(Laid { name: &self.planned.name, wanted, replicas, left_out, told })
    }
}

/// A language model's replicas on all layouts that a server has.
pub(super) struct Laid<'l> {
    name: &'l str,
    wanted: Wanted<'l>,
    replicas: Vec<(Layout, Replica)>,
    left_out: Vec<(Layout, String)>,
    /// What to know of the service beside its steps.
    told: Vec<Warning>,
}

/// Where all steps are at the same end of their intervals.
type End = fn(&StepTimes) -> &Times;

impl Laid<'_> {
    /// The replicas at a setting.
    fn each(&self, setting: usize, of: End) -> impl Iterator<Item = (Layout, Limits, &Times)> {
        self.replicas.iter().filter_map(move |(layout, replica)| {
            let times = replica.times.get(setting)?;
            Some((*layout, replica.limits, of(times)))
        })
    }

    fn carriers(&self, wanted: &Wanted<'_>, setting: usize, of: End) -> Result<Vec<Carrier>, Failure> {
        wanted.carriers(self.each(setting, of)).map_err(Failure::usage)
    }

    /// At a setting; without the ends of the predictions' intervals where those are not asked for.
    pub fn at(&self, setting: usize, ends: bool) -> Result<Carriers, Failure> {
        let all: [End; 3] = [|t| &t.value, |t| &t.low, |t| &t.high];
        let list = &all[..if ends { 3 } else { 1 }];
        let found = list.par_iter().map(|of| self.carriers(&self.wanted, setting, *of));
        let mut found = found.collect::<Result<Vec<_>, Failure>>()?.into_iter();
        let mut next = || found.next().unwrap_or_default();
        Ok(Carriers { value: next(), low: next(), high: next(), ..Carriers::default() })
    }

    /// At a setting most likely, with targets and steps changed by [`CHANGES`].
    pub fn changed(&self, setting: usize, carriers: &mut Carriers) -> Result<(), Failure> {
        let ends = CHANGES.par_iter().map(|&factor| {
            let Target { to_first, per_token, which } = *self.wanted.target;
            let by = |limit: Option<_>| limit.map(|limit| limit * factor);
            let target = Target { to_first: by(to_first), per_token: by(per_token), which };
            let targets = self.carriers(&Wanted { target: &target, ..self.wanted }, setting, |t| &t.value)?;
            let slower = self.each(setting, |t| &t.value);
            let slower: Vec<_> = slower.map(|(at, limits, replica)| (at, limits, Slower { replica, factor })).collect();
            let steps = self.wanted.carriers(slower.iter().map(|(layout, limits, times)| (*layout, *limits, times)));
            Ok((targets, steps.map_err(Failure::usage)?))
        });
        let (targets, steps): (Vec<_>, Vec<_>) = ends.collect::<Result<Vec<_>, Failure>>()?.into_iter().unzip();
        (carriers.targets, carriers.steps) = (targets.try_into().ok(), steps.try_into().ok());
        Ok(())
    }

    /// What its predictions rest on, and what to know of them.
    pub fn tell(&self, rests_on: &mut Vec<String>, warnings: &mut Vec<String>) {
        let Some(first) = self.replicas.first().and_then(|(_, replica)| replica.times.first()) else { return };
        rests_on.push(format!("{}: times {}, power {} (decode)", self.name, first.tiers.0, first.tiers.1));
        let told = self.told.iter().chain(&first.warnings).map(|w| format!("{}, {}", self.name, words(w)));
        let out = self
            .left_out
            .iter()
            .map(|(layout, why)| format!("{} on {} GPUs ({layout}) is left out: {why}", self.name, layout.gpus()));
        for new in told.chain(out) {
            if !warnings.contains(&new) {
                warnings.push(new);
            }
        }
    }
}
