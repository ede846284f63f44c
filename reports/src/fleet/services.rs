//! Language models of a plan: their replicas, and where the fleet's joules go.

use super::cells::{span, whole};
use super::values::{AtSetting, Candidate, OF_REPLICAS, Plan};
use crate::serving::target_words;
use crate::table::{Table, significant};
use joulecast_ask::capacity::{Fleet, PlannedLanguage, ReplicaPool};
use joulecast_model::base::units::{Joules, Seconds, Watts};

/// GPUs that share a replica, in words.
fn shared(pool: &ReplicaPool) -> String {
    let layout = pool.layout;
    match (layout.gpus(), layout.expert()) {
        (1, _) => "1 GPU".into(),
        (gpus, 1) => format!("{gpus} GPUs"),
        (gpus, parts) => format!("{gpus} GPUs, experts in {parts} parts"),
    }
}

/// A row per language model of a fleet, at the peak.
pub(super) fn table(plan: &Plan, o: &AtSetting, fleet: &Fleet) -> Table {
    let header = [
        "service",
        "requests/s at peak",
        "replica",
        "replicas",
        "GPUs",
        "requests/s at most, each",
        "busy % at peak",
        "first token, ms",
        "each token, ms",
        "kW of boards",
        "binding",
    ];
    let mut table = Table::new(&header, 1).with_trailing_text(1);
    for (i, (pool, of)) in fleet.languages.iter().zip(&plan.file.languages).enumerate() {
        table.row(vec![
            of.name.clone(),
            significant(of.requests.peak_per_s, 4),
            shared(pool),
            whole(o.replicas(i, |p| Some(p.replicas as f64))),
            whole(o.replicas(i, |p| Some(p.gpus() as f64))),
            span(o.replicas(i, |p| Some(p.highest_per_s)), 1.0),
            whole(o.replicas(i, |p| Some(100.0 * p.peak.busy))),
            span(o.replicas(i, |p| Some(p.peak.to_first.to_ms())), 1.0),
            span(o.replicas(i, |p| p.peak.per_token.map(Seconds::to_ms)), 1.0),
            span(o.replicas(i, |p| Some(p.power().get())), 1e3),
            pool.limit.to_string(),
        ]);
    }
    table
}

/// A part of a fleet's power, in the mean over the day.
type Mean<'a> = Box<dyn Fn(&Fleet) -> Watts + 'a>;

/// Energy of a second of a language model's replicas, for something.
type Each = fn(&ReplicaPool) -> Joules;

/// What the facility's mean power is for: of each language model, of all networks, of servers, of what is around them.
fn parts<'a>(plan: &'a Plan, c: &'a Candidate) -> Vec<(String, Mean<'a>)> {
    let (pue, overhead) = (plan.file.site.pue, c.server.overhead);
    let servers = move |f: &Fleet| overhead * f.servers as f64;
    let mut list: Vec<(String, Mean<'a>)> = Vec::new();
    for (i, of) in plan.file.languages.iter().enumerate() {
        let each: [(&str, Each); 3] = [
            ("prompts (prefill)", |p| p.energy_per_s.prefill),
            ("answers (decode)", |p| p.energy_per_s.decode),
            ("idle", |p| p.energy_per_s.idle),
        ];
        for (what, joules) in each {
            let watts = move |f: &Fleet| Watts::new(f.languages.get(i).map_or(0.0, |pool| joules(pool).get()));
            list.push((format!("{}: {what}", of.name), Box::new(watts)));
        }
    }
    if !plan.file.networks.is_empty() {
        let boards = move |f: &Fleet| {
            let models = f.languages.iter().map(|pool| Watts::new(pool.energy_per_s.total().get())).sum::<Watts>();
            Watts::new(f.facility_mean.get() / pue) - servers(f) - models
        };
        list.push(("boards of the networks".into(), Box::new(boards)));
    }
    list.push(("servers besides boards".into(), Box::new(servers)));
    list.push(("cooling and distribution".into(), Box::new(move |f| f.facility_mean * (1.0 - 1.0 / pue))));
    list
}

/// Where the joules of a fleet go; parts add up to the facility's mean power.
pub(super) fn joules(plan: &Plan, c: &Candidate, o: &AtSetting, fleet: &Fleet) -> Table {
    let mut table = Table::new(&["for", "kW in the mean", "%"], 1);
    for (name, of) in parts(plan, c) {
        let share = 100.0 * of(fleet).get() / fleet.facility_mean.get();
        table.row(vec![name, span(o.figure(|f| Some(of(f).get())), 1e3), format!("{share:.1}")]);
    }
    table
}

/// What of a language model is assumed: what, and how much.
pub(super) fn assumed(of: &PlannedLanguage) -> Vec<(String, String)> {
    let day = &of.requests.profile_per_s;
    let mean = day.iter().sum::<f64>() / day.len() as f64;
    let load = format!("{} requests/s at peak, {} in the mean", of.requests.peak_per_s, significant(mean, 4));
    let stored =
        [of.stored.weights.map(|w| format!(", weights in {w}")), of.stored.cache.map(|c| format!(", cache in {c}"))];
    let stored = stored.into_iter().flatten().collect::<String>();
    vec![
        (format!("load of {}", of.name), load),
        (format!("prompts and answers of {}", of.name), format!("{} and {} tokens", of.prompt, of.answer)),
        (format!("target of {}", of.name), target_words(&of.target)),
        (
            format!("network and engine of {}", of.name),
            format!("{}, {}{stored}, {} profile", of.net, of.precision, of.framework),
        ),
        (format!("simulation of {}", of.name), format!("{} requests, seed {}", of.simulated, of.seed)),
    ]
}

/// Language models of a fleet as JSON.
pub(super) fn json(plan: &Plan, o: &AtSetting) -> Option<Vec<serde_json::Value>> {
    let fleet = o.value.as_ref()?;
    let each = fleet.languages.iter().zip(&plan.file.languages).enumerate().map(|(i, (pool, of))| {
        let mut map = serde_json::Map::new();
        map.insert("service".into(), of.name.as_str().into());
        map.insert("network".into(), of.net.as_str().into());
        for (key, count) in [
            ("gpus_per_replica", pool.layout.gpus()),
            ("tensor_parallel", pool.layout.tensor()),
            ("expert_parallel", pool.layout.expert()),
        ] {
            map.insert(key.into(), count.into());
        }
        OF_REPLICAS.iter().for_each(|(name, value)| AtSetting::insert(&mut map, name, o.replicas(i, value)));
        let mean = of.requests.profile_per_s.iter().sum::<f64>() / of.requests.profile_per_s.len() as f64;
        let per_request = o.replicas(i, |p| Some(p.energy_per_s.total().get() / mean));
        AtSetting::insert(&mut map, "board_energy_per_request_j", per_request);
        map.insert("binding".into(), pool.limit.to_string().into());
        map.into()
    });
    Some(each.collect())
}
