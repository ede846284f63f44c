//! What `predict plan` found: `capacity_plan/1`.

mod hours;
mod page;
mod pictures;

pub use page::{html, markdown, text};
pub use pictures::{FIGURE_NAMES, figures};

use joulecast_model::ask::capacity::{Change, Fleet, Limit, Part, PlanFile, Pool, Price, Server};
use joulecast_model::base::units::{Hertz, Watts};
use joulecast_model::step::framework::Launch;
use serde::Serialize;

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
}

/// A figure of a fleet.
type Value = fn(&Fleet) -> f64;

/// Key of the JSON document, and what it is of a fleet.
const FIGURES: [(&str, Value); 12] = [
    ("gpus", |f| f.gpus as f64),
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

/// What is told of a pool.
type OfPool = fn(&Pool) -> f64;

/// Key of the JSON document, and what it is of a pool.
const OF_POOLS: [(&str, OfPool); 5] = [
    ("batch", |p| p.batch as f64),
    ("gpus", |p| p.gpus as f64),
    ("utilisation", |p| p.utilisation),
    ("latency_s", |p| p.latency.get()),
    ("board_power_w", |p| p.power.get()),
];

/// A value at the predicted steps, and the lowest and highest of it there and at both ends of their intervals: a fleet
/// that is sized anew for slower steps may be less busy. An end is `None` where there is no fleet.
#[derive(Clone, Copy, Serialize)]
struct Figure {
    value: Option<f64>,
    p05: Option<f64>,
    p95: Option<f64>,
}

impl AtSetting {
    /// What something is of the fleet and of those at both ends.
    fn figure(&self, of: impl Fn(&Fleet) -> Option<f64>) -> Figure {
        let at = |fleet: &Option<Fleet>| fleet.as_ref().and_then(&of);
        let (value, low, high) = (at(&self.value), at(&self.low), at(&self.high));
        match (value, low, high) {
            (Some(v), Some(a), Some(b)) => Figure { value, p05: Some(a.min(b).min(v)), p95: Some(a.max(b).max(v)) },
            _ => Figure { value, p05: low, p95: high },
        }
    }

    /// What something is of a pool.
    fn pool(&self, index: usize, of: impl Fn(&Pool) -> f64) -> Figure {
        self.figure(|f| f.pools.get(index).map(|(pool, _)| of(pool)))
    }

    /// What something is of a part of the day.
    fn part(&self, index: usize, of: impl Fn(&Fleet, &Part) -> f64) -> Figure {
        self.figure(|f| f.day.get(index).map(|part| of(f, part)))
    }

    fn racks(&self) -> Figure {
        self.figure(|f| f.racks.map(|r| r as f64))
    }

    /// The power limit, or the clock where that is set.
    fn setting(&self) -> String {
        match self.clock {
            Some(clock) => format!("{:.0} MHz", clock.to_mhz()),
            None => format!("{:.0} W", self.cap.get()),
        }
    }

    fn figures(&self) -> serde_json::Map<String, serde_json::Value> {
        if self.value.is_none() {
            return serde_json::Map::new();
        }
        let json = |of: Value| serde_json::to_value(self.figure(|f| Some(of(f)))).unwrap_or_default();
        FIGURES.iter().map(|(name, of)| (name.to_string(), json(*of))).collect()
    }

    /// A value under its name, its ends beside it.
    fn insert(map: &mut serde_json::Map<String, serde_json::Value>, name: &str, figure: Figure) {
        for (suffix, value) in [("", figure.value), ("_p05", figure.p05), ("_p95", figure.p95)] {
            map.insert(format!("{name}{suffix}"), value.into());
        }
    }

    fn pools(&self, plan: &Plan) -> Option<Vec<serde_json::Value>> {
        let fleet = self.value.as_ref()?;
        let each = fleet.pools.iter().zip(&plan.file.networks).enumerate().map(|(i, ((_, limit), network))| {
            let mut map = serde_json::Map::new();
            map.insert("network".into(), network.net.as_str().into());
            map.insert("share".into(), network.share.into());
            OF_POOLS.iter().for_each(|(name, of)| Self::insert(&mut map, name, self.pool(i, of)));
            map.insert("binding".into(), limit.to_string().into());
            map.into()
        });
        Some(each.collect())
    }

    fn day(&self) -> Option<Vec<serde_json::Value>> {
        let fleet = self.value.as_ref()?;
        let each = fleet.day.iter().enumerate().map(|(i, part)| {
            let mut map = serde_json::Map::new();
            map.insert("from_h".into(), hours::begin(i, fleet.day.len()).into());
            map.insert("requests_per_s".into(), part.rate_per_s.into());
            map.insert("batches".into(), part.batches.clone().into());
            hours::FIGURES.iter().for_each(|(name, of)| Self::insert(&mut map, name, self.part(i, of)));
            map.into()
        });
        Some(each.collect())
    }
}

impl Candidate {
    /// Whether embodied emissions of its boards and of its servers are known.
    fn embodied_known(&self) -> [bool; 2] {
        [self.embodied_kg, self.server.embodied_kg].map(|kg| kg.is_some())
    }

    fn taken(&self) -> Option<&AtSetting> {
        self.options.get(self.chosen?)
    }

    /// What keeps the fleet from being smaller, pool by pool.
    fn binding(&self, plan: &Plan, fleet: &Fleet) -> String {
        let mut words: Vec<String> = Vec::new();
        for limit in Limit::ALL {
            let pools = fleet.pools.iter().zip(&plan.file.networks).filter(|((_, l), _)| *l == limit);
            let nets: Vec<&str> = pools.map(|(_, n)| n.net.as_str()).collect();
            match nets.len() {
                0 => {}
                n if n == plan.file.networks.len() => words.push(limit.to_string()),
                _ => words.push(format!("{limit} ({})", nets.join(", "))),
            }
        }
        words.extend(self.site_bound.then(|| "site power".to_string()));
        words.join(", ")
    }
}

impl Plan {
    /// Candidates whose carbon lacks embodied emissions that others' has.
    fn lacking_embodied(&self) -> Vec<&Candidate> {
        let some = |part: usize| self.candidates.iter().any(|c| c.embodied_known()[part]);
        let lacks = |c: &&Candidate| (0..2).any(|part| some(part) && !c.embodied_known()[part]);
        self.candidates.iter().filter(lacks).collect()
    }
}

/// The JSON document: every figure with its interval; what is not known is null.
///
/// # Errors
/// Only if a number is not finite.
pub fn json(plan: &Plan) -> Result<String, serde_json::Error> {
    let option = |c: &Candidate, o: &AtSetting, taken: bool| {
        let fleet = o.value.as_ref();
        serde_json::json!({
            "power_cap_w": o.cap.get(), "clock_mhz": o.clock.map(Hertz::to_mhz), "chosen": taken, "figures": o.figures(),
            "racks": fleet.and_then(|f| f.racks), "racks_p05": o.racks().p05, "racks_p95": o.racks().p95,
            "within_site": fleet.map(|f| plan.file.site.site.is_none_or(|s| f.facility_peak <= s)),
            "embodied_included": fleet.map(|f| f.embodied_g_per_year.is_some()),
            "binding": fleet.map(|f| c.binding(plan, f)), "pools": o.pools(plan),
        })
    };
    let change = |base: &Fleet, change: &Change| {
        let ratios = |f: &Option<Fleet>| {
            f.as_ref().map(|f| {
                serde_json::json!({
                    "gpus": f.gpus as f64 / base.gpus as f64, "facility_peak": f.facility_peak / base.facility_peak,
                    "cost": f.cost_per_year / base.cost_per_year,
                    "carbon": f.carbon_g_per_year() / base.carbon_g_per_year(),
                })
            })
        };
        serde_json::json!({
            "input": change.input.to_string(), "with_10_percent_less": ratios(&change.less),
            "with_10_percent_more": ratios(&change.more),
        })
    };
    let candidate = |c: &Candidate| {
        let base = c.taken().and_then(|o| o.value.as_ref());
        serde_json::json!({
            "name": c.name, "gpu": c.gpu, "reason": c.reason, "waiting_w": c.waiting.0.get(), "rests_on": c.rests_on, "warnings": c.warnings,
            "options": c.options.iter().enumerate().map(|(i, o)| option(c, o, c.chosen == Some(i))).collect::<Vec<_>>(),
            "day": c.taken().and_then(AtSetting::day),
            "sensitivity": base.map(|b| c.sensitivity.iter().map(|s| change(b, s)).collect::<Vec<_>>()),
        })
    };
    let document = serde_json::json!({
        "schema": "capacity_plan/1", "title": plan.file.title, "currency": plan.file.currency,
        "minimise": plan.file.minimise.name(), "precision": plan.file.precision.name(), "framework": plan.file.framework,
        "peak_per_s": plan.file.peak_per_s,
        "percentile": 100.0 * plan.file.target.quantile, "latency_target_s": plan.file.target.latency.get(),
        "chosen_gpu": plan.winner.map(|i| plan.candidates[i].gpu.clone()),
        "chosen_candidate": plan.winner.map(|i| plan.candidates[i].name.clone()),
        "candidates": plan.candidates.iter().map(candidate).collect::<Vec<_>>(), "command": plan.command,
    });
    Ok(serde_json::to_string_pretty(&document)? + "\n")
}

/// A row per candidate and power limit or clock.
///
/// # Errors
/// Only if the writer refuses.
pub fn csv(plan: &Plan) -> Result<String, csv::Error> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    let mut header = ["gpu", "power_cap_w", "clock_mhz", "chosen"].map(String::from).to_vec();
    for name in ["racks"].into_iter().chain(FIGURES.map(|(name, _)| name)) {
        header.extend(["", "_p05", "_p95"].map(|suffix| format!("{name}{suffix}")));
    }
    header.push("candidate".into());
    writer.write_record(&header)?;
    for c in &plan.candidates {
        for (i, o) in c.options.iter().enumerate() {
            let number = |v: Option<f64>| v.map_or(String::new(), |v| v.to_string());
            let clock = number(o.clock.map(Hertz::to_mhz));
            let mut row = vec![c.gpu.clone(), o.cap.get().to_string(), clock, (c.chosen == Some(i)).to_string()];
            for figure in [o.racks()].into_iter().chain(FIGURES.map(|(_, of)| o.figure(|f| Some(of(f))))) {
                row.extend([figure.value, figure.p05, figure.p95].map(number));
            }
            row.push(c.name.clone());
            writer.write_record(&row)?;
        }
    }
    let bytes = writer.into_inner().map_err(|e| csv::Error::from(e.into_error()))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
