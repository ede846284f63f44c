//! What `predict plan` found: `capacity_plan/1`.

mod page;

pub use page::{fleets, html, markdown, text};

use joulecast_model::capacity::{Change, Fleet, Limit, PlanFile, Price, Server};
use joulecast_model::framework::Launch;
use joulecast_model::units::Watts;
use serde::Serialize;

/// A candidate's fleet at a power limit; the ends are where time and energy of every step are at theirs.
#[derive(Clone, Debug)]
pub struct AtLimit {
    /// Power limit of every board.
    pub cap: Watts,
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
    /// At every power limit, the default one first.
    pub options: Vec<AtLimit>,
    /// The one it would be taken with.
    pub chosen: Option<usize>,
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

#[derive(Serialize)]
struct Figure {
    value: f64,
    p05: Option<f64>,
    p95: Option<f64>,
}

impl AtLimit {
    fn figures(&self) -> serde_json::Map<String, serde_json::Value> {
        let Some(fleet) = &self.value else { return serde_json::Map::new() };
        let one =
            |of: Value| Figure { value: of(fleet), p05: self.low.as_ref().map(of), p95: self.high.as_ref().map(of) };
        let json = |of| serde_json::to_value(one(of)).unwrap_or_default();
        FIGURES.iter().map(|(name, of)| (name.to_string(), json(*of))).collect()
    }
}

impl Candidate {
    fn taken(&self) -> Option<&AtLimit> {
        self.options.get(self.chosen?)
    }

    /// What keeps the fleet from being smaller, pool by pool.
    fn binding(&self, plan: &Plan, fleet: &Fleet) -> String {
        let mut words: Vec<String> = Vec::new();
        for limit in [Limit::Latency, Limit::Throughput, Limit::Memory] {
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

/// The JSON document: every figure with its interval; what is not known is null.
///
/// # Errors
/// Only if a number is not finite.
pub fn json(plan: &Plan) -> Result<String, serde_json::Error> {
    let pools = |fleet: &Fleet| -> Vec<serde_json::Value> {
        let each = fleet.pools.iter().zip(&plan.file.networks).map(|((pool, limit), network)| {
            serde_json::json!({
                "network": network.net, "share": network.share, "batch": pool.batch, "gpus": pool.gpus,
                "utilisation": pool.utilisation, "latency_s": pool.latency.get(), "board_power_w": pool.power.get(),
                "binding": limit.to_string(),
            })
        });
        each.collect()
    };
    let option = |c: &Candidate, o: &AtLimit, taken: bool| {
        let fleet = o.value.as_ref();
        serde_json::json!({
            "power_cap_w": o.cap.get(), "chosen": taken, "figures": o.figures(), "racks": fleet.and_then(|f| f.racks),
            "within_site": fleet.map(|f| plan.file.site.site.is_none_or(|s| f.facility_peak <= s)),
            "embodied_included": fleet.map(|f| f.embodied_g_per_year.is_some()),
            "binding": fleet.map(|f| c.binding(plan, f)), "pools": fleet.map(pools),
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
            "gpu": c.gpu, "rests_on": c.rests_on, "warnings": c.warnings,
            "options": c.options.iter().enumerate().map(|(i, o)| option(c, o, c.chosen == Some(i))).collect::<Vec<_>>(),
            "sensitivity": base.map(|b| c.sensitivity.iter().map(|s| change(b, s)).collect::<Vec<_>>()),
        })
    };
    let document = serde_json::json!({
        "schema": "capacity_plan/1", "title": plan.file.title, "currency": plan.file.currency,
        "minimise": plan.file.minimise.name(), "precision": plan.file.precision.name(), "framework": plan.file.framework,
        "peak_per_s": plan.file.peak_per_s,
        "percentile": 100.0 * plan.file.target.quantile, "latency_target_s": plan.file.target.latency.get(),
        "chosen_gpu": plan.winner.map(|i| plan.candidates[i].gpu.clone()),
        "candidates": plan.candidates.iter().map(candidate).collect::<Vec<_>>(), "command": plan.command,
    });
    Ok(serde_json::to_string_pretty(&document)? + "\n")
}

/// A row per candidate and power limit.
///
/// # Errors
/// Only if the writer refuses.
pub fn csv(plan: &Plan) -> Result<String, csv::Error> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    let mut header = vec!["gpu".to_string(), "power_cap_w".into(), "chosen".into(), "racks".into()];
    for (name, _) in FIGURES {
        header.extend([name.to_string(), format!("{name}_p05"), format!("{name}_p95")]);
    }
    writer.write_record(&header)?;
    for c in &plan.candidates {
        for (i, o) in c.options.iter().enumerate() {
            let number = |v: Option<f64>| v.map_or(String::new(), |v| v.to_string());
            let racks = o.value.as_ref().and_then(|f| f.racks).map(|r| r as f64);
            let mut row =
                vec![c.gpu.clone(), o.cap.get().to_string(), (c.chosen == Some(i)).to_string(), number(racks)];
            for (_, of) in FIGURES {
                row.extend([&o.value, &o.low, &o.high].map(|f| number(f.as_ref().map(of))));
            }
            writer.write_record(&row)?;
        }
    }
    let bytes = writer.into_inner().map_err(|e| csv::Error::from(e.into_error()))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
