//! What a plan of a fleet holds, and what is told of it.

use joulecast_ask::capacity::{Change, Fleet, Limit, Part, PlanFile, Pool, Price, ReplicaPool, Server, objective};
use joulecast_model::base::units::{Hertz, Seconds, Watts};
use joulecast_model::step::framework::Launch;
use serde::Serialize;
use std::path::PathBuf;

pub(super) const COSTS: &str = "costs";
pub(super) const FLEETS: &str = "fleets";
pub(super) const DAY: &str = "day";
pub(super) const SENSITIVITY: &str = "sensitivity";

/// Names of all figures that a plan may have.
pub const FIGURE_NAMES: [&str; 4] = [COSTS, FLEETS, DAY, SENSITIVITY];

/// A candidate's fleet at a power limit or clock; the ends are where time and energy of every step are at theirs.
#[derive(Clone, Debug)]
pub struct AtSetting {
    /// Power limit of every board.
    pub cap: Watts,
    /// Clock of every board, where one is set.
    pub clock: Option<Hertz>,
    /// The fleet; `None` where none keeps the latency target.
    pub value: Option<Fleet>,
    /// With the 5 % quantiles.
    pub low: Option<Fleet>,
    /// With the 95 % quantiles.
    pub high: Option<Fleet>,
}

/// A candidate.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// What it is called in the plan.
    pub name: String,
    /// The GPU as typed.
    pub gpu: String,
    /// Its name.
    pub title: String,
    /// What it costs.
    pub price: Price,
    /// Who says so.
    pub price_source: String,
    /// The machine for it.
    pub server: Server,
    /// Embodied emissions of a board, kg.
    pub embodied_kg: Option<f64>,
    /// Power of a board that waits with a context, and who says so.
    pub waiting: (Watts, String),
    /// At every power limit and clock, the default first.
    pub options: Vec<AtSetting>,
    /// The one it would be taken with.
    pub chosen: Option<usize>,
    /// Why there is no fleet, where there is none.
    pub reason: Option<String>,
    /// Whether the site's power forbids a better one.
    pub site_bound: bool,
    /// The chosen fleet with every input changed.
    pub sensitivity: Vec<Change>,
    /// Per network, what times and power rest on.
    pub rests_on: Vec<String>,
    /// What predictions warn of.
    pub warnings: Vec<String>,
    /// What to measure to be surer of the network of which least is expected to be right, where that is known.
    pub surer: Option<String>,
}

/// A plan.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What was asked for.
    pub file: PlanFile,
    /// How steps are launched.
    pub launch: Launch,
    /// The candidates, in the file's order.
    pub candidates: Vec<Candidate>,
    /// The one to take.
    pub winner: Option<usize>,
    /// The command line.
    pub command: String,
    /// Folder that its figures are written to, which Markdown links.
    pub figures: Option<PathBuf>,
}

/// A figure of a fleet.
pub(super) type Value = fn(&Fleet) -> f64;

/// Key of the JSON document, and what it is of a fleet.
pub(super) const FIGURES: [(&str, Value); 13] = [
    ("gpus", |f| f.gpus as f64),
    ("spares", |f| f.spares as f64),
    ("servers", |f| f.servers as f64),
    ("it_peak_w", |f| f.it_peak.get()),
    ("facility_peak_w", |f| f.facility_peak.get()),
    ("facility_mean_w", |f| f.facility_mean.get()),
    ("kwh_per_year", Fleet::kwh_per_year),
    ("cost_per_year", |f| f.cost_per_year),
    ("energy_cost_per_year", |f| f.energy_cost_per_year),
    ("cost_per_million", Fleet::cost_per_million),
    ("carbon_g_per_year", Fleet::carbon_g_per_year),
    ("carbon_g_per_million", Fleet::carbon_g_per_million),
    ("energy_per_inference_j", |f| f.energy_per_request().get()),
];

/// What is told of a part of the day.
pub(super) type OfPart = fn(&Fleet, &Part) -> f64;

/// Key of the JSON document, and what it is.
pub(super) const OF_PARTS: [(&str, OfPart); 5] = [
    ("gpus_busy", |_, p| p.busy),
    ("utilisation", |f, p| p.busy / f.gpus as f64),
    ("facility_w", |_, p| p.facility.get()),
    ("cost_per_h", |_, p| p.cost_per_h),
    ("carbon_g_per_h", |_, p| p.carbon_g_per_h),
];

/// When a part begins, in hours.
pub(super) fn begin(part: usize, parts: usize) -> f64 {
    24.0 * part as f64 / parts as f64
}

/// What is told of a pool.
pub(super) type OfPool = fn(&Pool) -> f64;

/// Key of the JSON document, and what it is of a pool.
pub(super) const OF_POOLS: [(&str, OfPool); 5] = [
    ("batch", |p| p.batch as f64),
    ("gpus", |p| p.gpus as f64),
    ("utilisation", |p| p.utilisation),
    ("latency_s", |p| p.latency.get()),
    ("board_power_w", |p| p.power.get()),
];

/// What is told of a language model's replicas.
pub(super) type OfReplicas = fn(&ReplicaPool) -> Option<f64>;

/// Key of the JSON document, and what it is of a language model's replicas: at the peak, but for energy by what it is for,
/// which is in the mean over the day.
pub(super) const OF_REPLICAS: [(&str, OfReplicas); 10] = [
    ("replicas", |p| Some(p.replicas as f64)),
    ("gpus", |p| Some(p.gpus() as f64)),
    ("highest_rate_per_s", |p| Some(p.highest_per_s)),
    ("utilisation", |p| Some(p.peak.busy)),
    ("time_to_first_token_s", |p| Some(p.peak.to_first.get())),
    ("time_per_token_s", |p| p.peak.per_token.map(Seconds::get)),
    ("board_power_w", |p| Some(p.power().get())),
    ("prefill_w", |p| Some(p.energy_per_s.prefill.get())),
    ("decode_w", |p| Some(p.energy_per_s.decode.get())),
    ("idle_w", |p| Some(p.energy_per_s.idle.get())),
];

/// A value at the predicted steps, and the lowest and highest of it there and at both ends of their intervals: a fleet
/// that is sized anew for slower steps may be less busy. An end is `None` where there is no fleet.
#[derive(Clone, Copy, Serialize)]
pub(super) struct Figure {
    pub(super) value: Option<f64>,
    pub(super) p05: Option<f64>,
    pub(super) p95: Option<f64>,
}

impl AtSetting {
    /// What something is of the fleet and of those at both ends.
    pub(super) fn figure(&self, of: impl Fn(&Fleet) -> Option<f64>) -> Figure {
        let at = |fleet: &Option<Fleet>| fleet.as_ref().and_then(&of);
        let (value, low, high) = (at(&self.value), at(&self.low), at(&self.high));
        match (value, low, high) {
            (Some(v), Some(a), Some(b)) => Figure { value, p05: Some(a.min(b).min(v)), p95: Some(a.max(b).max(v)) },
            _ => Figure { value, p05: low, p95: high },
        }
    }

    /// What something is of a pool.
    pub(super) fn pool(&self, index: usize, of: impl Fn(&Pool) -> f64) -> Figure {
        self.figure(|f| f.pools.get(index).map(|(pool, _)| of(pool)))
    }

    /// What something is of a language model's replicas.
    pub(super) fn replicas(&self, index: usize, of: impl Fn(&ReplicaPool) -> Option<f64>) -> Figure {
        self.figure(|f| f.languages.get(index).and_then(&of))
    }

    /// What something is of a part of the day.
    pub(super) fn part(&self, index: usize, of: impl Fn(&Fleet, &Part) -> f64) -> Figure {
        self.figure(|f| f.day.get(index).map(|part| of(f, part)))
    }

    pub(super) fn racks(&self) -> Figure {
        self.figure(|f| f.racks.map(|r| r as f64))
    }

    /// The power limit, or the clock where that is set.
    pub(super) fn setting(&self) -> String {
        match self.clock {
            Some(clock) => format!("{:.0} MHz", clock.to_mhz()),
            None => format!("{:.0} W", self.cap.get()),
        }
    }
}

impl Candidate {
    /// Whether embodied emissions of its boards and of its servers are known.
    pub(super) fn embodied_known(&self) -> [bool; 2] {
        [self.embodied_kg, self.server.embodied_kg].map(|kg| kg.is_some())
    }

    pub(super) fn taken(&self) -> Option<&AtSetting> {
        self.options.get(self.chosen?)
    }

    /// What the plan makes small, of its fleet; none without a fleet.
    fn objective(&self, plan: &Plan) -> Option<Figure> {
        let figure = self.taken()?.figure(|f| Some(objective(f, plan.file.minimise)));
        figure.value.map(|_| figure)
    }

    /// What keeps the fleet from being smaller, pool by pool.
    pub(super) fn binding(&self, plan: &Plan, fleet: &Fleet) -> String {
        let mut words: Vec<String> = Vec::new();
        for limit in Limit::ALL {
            let pools = fleet.pools.iter().zip(&plan.file.networks).map(|((_, l), n)| (l, n.net.as_str()));
            let replicas = fleet.languages.iter().zip(&plan.file.languages).map(|(p, of)| (&p.limit, of.name.as_str()));
            let bound = pools.chain(replicas).filter(|(l, _)| **l == limit);
            let nets: Vec<&str> = bound.map(|(_, name)| name).collect();
            match nets.len() {
                0 => {}
                n if n == plan.file.networks.len() + plan.file.languages.len() => words.push(limit.to_string()),
                _ => words.push(format!("{limit} ({})", nets.join(", "))),
            }
        }
        words.extend(self.site_bound.then(|| "site power".to_string()));
        words.join(", ")
    }
}

impl Figure {
    /// Whether it reaches below another one's upper end: then it is not surely more.
    fn reaches(&self, other: &Self) -> bool {
        let (low, high) = (self.p05.or(self.value), other.p95);
        // Without an upper end there is no fleet where steps take longest: nothing is surely more than that.
        high.is_none_or(|high| low.is_none_or(|low| low <= high))
    }

    /// How wide it is, as the ratio of its ends; infinite where one is missing.
    fn width(&self) -> f64 {
        match (self.p05, self.p95) {
            (Some(low), Some(high)) if low > 0.0 => high / low,
            _ => f64::INFINITY,
        }
    }
}

impl Plan {
    /// Candidates other than the one to take whose figures do not say that they are worse, in the file's order.
    pub(super) fn rivals(&self) -> Vec<&Candidate> {
        let of = |i: usize| self.candidates.get(i)?.objective(self);
        let Some((winner, least)) = self.winner.and_then(|i| Some((i, of(i)?))) else { return Vec::new() };
        let near = |i: usize| i != winner && of(i).is_some_and(|figure| figure.reaches(&least));
        self.candidates.iter().enumerate().filter(|(i, _)| near(*i)).map(|(_, c)| c).collect()
    }

    /// What to measure to learn which candidate to take: what would make surer the one whose figure is the widest.
    pub(super) fn decided_by(&self) -> Option<&str> {
        let rivals = self.rivals();
        let winner = self.winner.and_then(|i| self.candidates.get(i)).filter(|_| !rivals.is_empty());
        let width = |c: &Candidate| c.objective(self).map_or(0.0, |figure| figure.width());
        let all = winner.into_iter().chain(rivals).filter_map(|c| Some((width(c), c.surer.as_deref()?)));
        all.max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, surer)| surer)
    }

    /// Which candidate to take, as far as that is sure: one line; none where there is no fleet.
    pub fn conclusion(&self) -> Option<String> {
        let winner = self.winner.and_then(|i| self.candidates.get(i))?;
        let (what, rivals) = (self.file.minimise.name(), self.rivals());
        let names: Vec<&str> = rivals.iter().map(|c| c.name.as_str()).collect();
        Some(match names.split_last() {
            _ if self.candidates.len() == 1 => format!("{} is the only candidate", winner.name),
            None => {
                format!("Sure: {} has the least {what}, with every step at either end of its interval", winner.name)
            }
            Some((last, others)) => {
                let others: String = others.iter().map(|name| format!(", {name}")).collect();
                let measure = self.decided_by().map_or(String::new(), |m| format!("; measure {m}"));
                format!("Not sure which has the least {what}, {}{others} or {last}{measure}", winner.name)
            }
        })
    }

    /// Candidates whose carbon lacks embodied emissions that others' has.
    pub(super) fn lacking_embodied(&self) -> Vec<&Candidate> {
        let some = |part: usize| self.candidates.iter().any(|c| c.embodied_known()[part]);
        let lacks = |c: &&Candidate| (0..2).any(|part| some(part) && !c.embodied_known()[part]);
        self.candidates.iter().filter(lacks).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::Figure;

    #[test]
    fn what_reaches_below_the_other_s_upper_end_is_not_surely_more() {
        let of = |low, value, high| Figure { value: Some(value), p05: low, p95: high };
        let least = of(Some(8.0), 10.0, Some(13.0));
        assert!(of(Some(12.0), 15.0, Some(20.0)).reaches(&least) && of(Some(13.0), 15.0, None).reaches(&least));
        assert!(!of(Some(14.0), 15.0, Some(20.0)).reaches(&least));
        // Where the least may keep no target, anything may turn out to be less.
        assert!(of(Some(99.0), 100.0, Some(101.0)).reaches(&of(Some(8.0), 10.0, None)));
        assert_eq!((least.width(), of(None, 1.0, Some(2.0)).width()), (13.0 / 8.0, f64::INFINITY));
    }
}
