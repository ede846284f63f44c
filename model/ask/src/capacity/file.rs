//! The plan file, documented in `data/capacity/README.md`.

mod language;
mod mistakes;

use super::fleet::{Price, Server, Site};
use super::pool::Target;
use joulecast_model::base::file::check_schema;
use joulecast_model::base::packed::from_toml;
use joulecast_model::base::precision::Precision;
use joulecast_model::base::text::{names as shown_names, printable, prose, shown};
use joulecast_model::base::units::{Seconds, Watts};
pub use language::PlannedLanguage;
use language::ServiceFile;
use mistakes::{Mistakes, Section};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::collections::{HashMap, HashSet};

/// A plan file that cannot be used: all that is wrong with it, each in one line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.join("; "))]
pub struct PlanError(Vec<String>);

impl PlanError {
    fn one(mistake: impl Into<String>) -> Self {
        Self(vec![mistake.into()])
    }

    /// Its mistakes, in the order of the file; at least one.
    pub fn mistakes(&self) -> &[String] {
        &self.0
    }
}

/// What a plan makes small.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Minimise {
    /// Cost of a year.
    #[default]
    Cost,
    /// The facility's energy.
    Energy,
    /// Carbon, operational and embodied.
    Carbon,
    /// GPUs.
    Gpus,
}

impl Minimise {
    /// What it is called in a plan.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cost => "cost",
            Self::Energy => "energy",
            Self::Carbon => "carbon",
            Self::Gpus => "gpus",
        }
    }
}

/// What of a board may be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Vary {
    /// The power limit.
    Cap,
    /// The core clock.
    Clock,
}

/// A network of the load.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlannedNetwork {
    /// Its name or file.
    pub net: String,
    /// Its share of the requests.
    pub share: f64,
}

/// A GPU that the fleet may be made of.
#[derive(Clone, Debug, PartialEq)]
pub struct CandidateFile {
    /// What it is called in the plan; no two are called the same.
    pub name: String,
    /// Its name or device file.
    pub gpu: String,
    /// What it costs.
    pub price: Price,
    /// Who says so.
    pub price_source: String,
    /// Embodied emissions of a board, kg of CO2 equivalent.
    pub embodied_kg: Option<f64>,
    /// The machine for it.
    pub server: Server,
    /// What may be set on it.
    pub vary: Vec<Vary>,
    /// Spare boards, as a share of those in pools.
    pub spares: f64,
}

/// A plan file.
#[derive(Clone, Debug, PartialEq)]
pub struct PlanFile {
    /// What is planned.
    pub title: String,
    /// Of all prices.
    pub currency: String,
    /// What is made small.
    pub minimise: Minimise,
    /// Storage and arithmetic of all networks.
    pub precision: Precision,
    /// Framework profile.
    pub framework: String,
    /// No larger batch is tried.
    pub largest_batch: u64,
    /// Share of the time that GPUs are busy at most, at the peak.
    pub utilisation: f64,
    /// Requests per second to all networks at the worst moment.
    pub peak_per_s: f64,
    /// Requests per second to all networks through the day, in equal parts of it.
    pub profile_per_s: Vec<f64>,
    /// What requests to networks may take; `None` where there are no networks.
    pub target: Option<Target>,
    /// Networks; shares add up to one where there are any.
    pub networks: Vec<PlannedNetwork>,
    /// Language models; their days have as many parts.
    pub languages: Vec<PlannedLanguage>,
    /// Candidates.
    pub candidates: Vec<CandidateFile>,
    /// Where it stands.
    pub site: Site,
    /// Who says what the grid emits.
    pub carbon_source: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(rename = "schema")]
    _schema: String,
    #[serde(deserialize_with = "shown_names")]
    title: String,
    #[serde(deserialize_with = "shown_names")]
    currency: String,
    #[serde(default)]
    minimise: Minimise,
    #[serde(default = "precision")]
    precision: Precision,
    #[serde(default = "framework")]
    framework: String,
    #[serde(default = "largest_batch")]
    largest_batch: u64,
    #[serde(default = "vary")]
    vary: Vec<Vary>,
    #[serde(default = "utilisation")]
    utilisation: f64,
    #[serde(default = "spares")]
    spares: f64,
}

/// Busier pools have little slack for what varies: requests, steps, a GPU that fails.
fn utilisation() -> f64 {
    0.9
}

/// Boards fail, some percent of them a year, and take weeks to come back.
fn spares() -> f64 {
    0.05
}

fn precision() -> Precision {
    Precision::Fp32
}

fn framework() -> String {
    "cudnn".into()
}

fn largest_batch() -> u64 {
    256
}

fn vary() -> Vec<Vary> {
    vec![Vary::Cap, Vary::Clock]
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LoadFile {
    mean_per_s: Option<f64>,
    peak_per_s: Option<f64>,
    profile_per_s: Option<Vec<f64>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LatencyFile {
    percentile: f64,
    target_ms: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Candidate {
    #[serde(default, deserialize_with = "shown_names")]
    name: Option<String>,
    gpu: String,
    price: Option<f64>,
    price_per_hour: Option<f64>,
    #[serde(deserialize_with = "prose")]
    price_source: String,
    embodied_kg: Option<f64>,
    gpus_per_server: u64,
    server_overhead_w: f64,
    #[serde(default)]
    server_price: f64,
    server_embodied_kg: Option<f64>,
    vary: Option<Vec<Vary>>,
    spares: Option<f64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SiteFile {
    rack_kw: Option<f64>,
    site_kw: Option<f64>,
    pue: f64,
    price_per_kwh: f64,
    carbon_g_per_kwh: f64,
    #[serde(deserialize_with = "prose")]
    carbon_source: String,
    amortisation_years: f64,
}

/// A number of a plan: finite, and above zero or at least zero.
fn number(field: &str, value: f64, zero: bool) -> Result<f64, PlanError> {
    if value.is_finite() && (value > 0.0 || zero && value == 0.0) {
        return Ok(value);
    }
    let least = if zero { "at least 0" } else { "above 0" };
    Err(PlanError::one(format!("{field} must be {least}, not {value}")))
}

fn wrong<T>(why: impl Into<String>) -> Result<T, PlanError> {
    Err(PlanError::one(why))
}

/// What a plan may list at most: every network on every candidate takes tens of milliseconds, and nobody reads more rows.
const MOST_CANDIDATES: usize = 200;
const MOST_NETWORKS: usize = 50;
const MOST_SERVICES: usize = 20;
/// A language model on a candidate takes seconds: every layout and setting is simulated.
const MOST_SIMULATED: usize = 100;
const MOST_STEPS: usize = 1000;
const MOST_PARTS: usize = 1440;

/// Refuses more of something than a plan is made for.
fn few(what: &str, count: usize, most: usize) -> Result<(), PlanError> {
    match count <= most {
        true => Ok(()),
        false => wrong(format!("{count} {what}: a plan is made for at most {most}; divide the file")),
    }
}

/// Shares may be off by so much from adding up to one.
const SHARES: f64 = 1e-6;

impl PlanFile {
    /// Reads a plan file.
    ///
    /// # Errors
    /// All mistakes, each in a line that names the field: what is missing, unknown, or no possible value.
    pub fn from_toml(text: &str) -> Result<Self, PlanError> {
        let mut top: toml::Table = from_toml(text).map_err(|e| PlanError::one(e.to_string()))?;
        if let Some(schema) = top.get("schema").and_then(toml::Value::as_str) {
            check_schema(schema, "capacity/1").map_err(|e| PlanError::one(e.to_string()))?;
        }
        let mut found = Mistakes::of(text);
        let mut lists = |name: &str| match top.remove(name) {
            Some(toml::Value::Array(list)) => list,
            // Written as [name]: there is one.
            other => other.into_iter().collect(),
        };
        let (candidates, networks, services) = (lists("candidate"), lists("network"), lists("service"));
        few("[[candidate]]", candidates.len(), MOST_CANDIDATES)?;
        few("[[network]]", networks.len(), MOST_NETWORKS)?;
        few("pairs of a network and a candidate", networks.len() * candidates.len(), MOST_STEPS)?;
        few("[[service]]", services.len(), MOST_SERVICES)?;
        few("pairs of a service and a candidate", services.len() * candidates.len(), MOST_SIMULATED)?;
        let (has_networks, has_services, has_candidates) =
            (!networks.is_empty(), !services.is_empty(), !candidates.is_empty());
        let [load_of, latency, site] = ["load", "latency", "site"].map(|name| top.remove(name));
        let (has_load, has_latency) = (load_of.is_some(), latency.is_some());
        let one = |name| Section { name, place: None };
        let file: Option<File> = found.section(one("top"), toml::Value::Table(top));
        let load_of: Option<LoadFile> = load_of.and_then(|value| found.section(one("load"), value));
        let latency: Option<LatencyFile> = latency.and_then(|value| found.section(one("latency"), value));
        let networks: Vec<Option<PlannedNetwork>> = each(&mut found, "network", networks);
        let services: Vec<Option<ServiceFile>> = each(&mut found, "service", services);
        let candidates: Vec<Option<Candidate>> = each(&mut found, "candidate", candidates);
        let site: Option<SiteFile> = match site {
            Some(value) => found.section(one("site"), value),
            None => {
                found
                    .add("there is no [site]: pue, price_per_kwh, carbon_g_per_kwh, carbon_source, amortisation_years");
                None
            }
        };
        let parts = |profile: &Option<Vec<f64>>| profile.as_ref().map_or(0, Vec::len);
        few("numbers in load.profile_per_s", load_of.as_ref().map_or(0, |l| parts(&l.profile_per_s)), MOST_PARTS)?;
        for service in services.iter().flatten() {
            let whose = format!("numbers in profile_per_s of {}", service.called());
            few(&whose, parts(&service.profile_per_s), MOST_PARTS)?;
        }
        if let Some(file) = &file {
            found.keep(place("framework", &file.framework));
            if file.largest_batch == 0 {
                found.add("largest_batch must be above 0");
            }
            if !(file.utilisation > 0.0 && file.utilisation <= 1.0) {
                found.add(format!("utilisation must be above 0 and at most 1, not {}", file.utilisation));
            }
            found.keep(spare("spares", file.spares));
        }
        for of in networks.iter().flatten() {
            found.keep(place("net", &of.net));
        }
        for of in candidates.iter().flatten() {
            found.keep(place("gpu", &of.gpu));
        }
        match (has_load, has_latency) {
            (false, false) if !has_networks && !has_services => found.add("there is no [[network]] and no [[service]]"),
            (false, false) if !has_networks => {}
            _ if !has_networks && has_services => {
                found.add("[load] and [latency] are of networks, and there is no [[network]]");
            }
            (load, latency) => {
                if !has_networks {
                    found.add("there is no [[network]] and no [[service]]");
                }
                if !load {
                    found.add("networks need [load]");
                }
                if !latency {
                    found.add("networks need [latency]");
                }
            }
        }
        let coming = load_of.as_ref().and_then(|coming| found.keep(load(None, coming)));
        let target = latency.and_then(|latency| latency.target(&mut found));
        let (peak_per_s, mut profile_per_s) = coming.unwrap_or((0.0, vec![0.0]));
        let planned: Vec<Option<PlannedLanguage>> = services.into_iter().map(|s| s?.planned(&mut found)).collect();
        let (all, mut languages) =
            (planned.iter().all(Option::is_some), planned.into_iter().flatten().collect::<Vec<_>>());
        let mut taken: HashSet<&str> = HashSet::new();
        for twice in languages.iter().filter(|of| !taken.insert(&of.name)) {
            found.add(format!("two services are called {}: give one another name", twice.name));
        }
        if all {
            found.keep(same_parts(&mut profile_per_s, &mut languages));
        }
        let mut shares = 0.0;
        for n in networks.iter().flatten() {
            shares += found.keep(number(&format!("share of {}", shown(&n.net)), n.share, false)).unwrap_or(f64::NAN);
        }
        if has_networks && networks.iter().all(Option::is_some) && (shares - 1.0).abs() > SHARES {
            let sum = (shares / SHARES).round() / SHARES.recip();
            found.add(format!("the networks' shares add up to {sum}, not to 1"));
        }
        if !has_candidates {
            found.add("there is no [[candidate]]");
        }
        let (carbon_source, site) =
            site.and_then(|site| Some((site.carbon_source.clone(), site.checked(&mut found)?))).unzip();
        let candidates: Vec<Candidate> = candidates.into_iter().flatten().collect();
        let names = found.keep(names(&candidates)).unwrap_or_default();
        let (vary, spares) = file.as_ref().map(|file| (file.vary.clone(), file.spares)).unwrap_or_default();
        let candidates: Vec<CandidateFile> = candidates
            .into_iter()
            .zip(names)
            .filter_map(|(c, name)| candidate(c, name, &vary, spares, &mut found))
            .collect();
        found.none()?;
        let (Some(file), Some(site), Some(carbon_source)) = (file, site, carbon_source) else {
            return wrong("nothing is known of the file");
        };
        Ok(Self {
            title: file.title,
            currency: file.currency,
            minimise: file.minimise,
            precision: file.precision,
            framework: file.framework,
            largest_batch: file.largest_batch,
            utilisation: file.utilisation,
            peak_per_s,
            profile_per_s,
            target,
            networks: networks.into_iter().flatten().collect(),
            languages,
            candidates,
            site,
            carbon_source,
        })
    }
}

/// All sections of a name; nothing in place of each that is wrong.
fn each<T: DeserializeOwned>(found: &mut Mistakes<'_>, name: &str, list: Vec<toml::Value>) -> Vec<Option<T>> {
    let section = |(place, value)| found.section(Section { name, place: Some(place) }, value);
    list.into_iter().enumerate().map(section).collect()
}

/// A share of spare boards.
fn spare(field: &str, share: f64) -> Result<f64, PlanError> {
    match (0.0..=1.0).contains(&share) {
        true => Ok(share),
        false => wrong(format!("{field} are a share of the GPUs, from 0 to 1, not {share}")),
    }
}

impl SiteFile {
    fn checked(&self, found: &mut Mistakes<'_>) -> Option<Site> {
        if !(1.0..=5.0).contains(&self.pue) {
            found.add(format!("site.pue is facility power over IT power, from 1 to 5, not {}", self.pue));
        }
        let mut checked = |field: &str, value: f64, zero| found.keep(number(field, value, zero));
        let mut kw = |field: &str, value: Option<f64>| match value {
            Some(kw) => checked(field, kw, false).map(|kw| Some(Watts::new(1000.0 * kw))),
            None => Some(None),
        };
        let (rack, site) = (kw("site.rack_kw", self.rack_kw), kw("site.site_kw", self.site_kw));
        let price = checked("site.price_per_kwh", self.price_per_kwh, true);
        let carbon = checked("site.carbon_g_per_kwh", self.carbon_g_per_kwh, true);
        let years = checked("site.amortisation_years", self.amortisation_years, false);
        Some(Site {
            rack: rack?,
            site: site?,
            pue: self.pue,
            price_per_kwh: price?,
            carbon_g_per_kwh: carbon?,
            amortisation_years: years?,
        })
    }
}

impl LatencyFile {
    fn target(&self, found: &mut Mistakes<'_>) -> Option<Target> {
        if !(50.0..=99.99).contains(&self.percentile) {
            found.add(format!("latency.percentile must be from 50 to 99.99, not {}", self.percentile));
        }
        let latency = Seconds::from_ms(found.keep(number("latency.target_ms", self.target_ms, false))?);
        Some(Target { quantile: self.percentile / 100.0, latency })
    }
}

/// Makes all days of as many parts: what comes at one rate all day does so in every part of it.
fn same_parts(profile: &mut Vec<f64>, languages: &mut [PlannedLanguage]) -> Result<(), PlanError> {
    let days = || std::iter::once(profile.len()).chain(languages.iter().map(|of| of.requests.profile_per_s.len()));
    let parts = days().max().unwrap_or(1);
    let another = days().find(|n| *n != 1).unwrap_or(1);
    if let Some(of) = languages.iter().find(|of| ![1, another].contains(&of.requests.profile_per_s.len())) {
        let own = of.requests.profile_per_s.len();
        return wrong(format!(
            "the day of {} has {own} parts, another one {another}: give all the same, or one",
            of.name
        ));
    }
    let all = languages.iter_mut().map(|of| &mut of.requests.profile_per_s).chain([profile]);
    all.filter(|day| day.len() == 1).for_each(|day| day.resize(parts, day[0]));
    Ok(())
}

/// The highest rate and those through the day; `of`: the service that they are of, where it is one.
fn load(of: Option<&str>, load: &LoadFile) -> Result<(f64, Vec<f64>), PlanError> {
    let name = of.map_or("load".to_string(), |of| format!("load of {of}"));
    let whose = of.unwrap_or("load");
    let profile = match (&load.profile_per_s, load.mean_per_s) {
        (Some(_), Some(_)) => return wrong(format!("{whose} has either mean_per_s or profile_per_s, not both")),
        (Some(list), None) if !list.is_empty() => list.clone(),
        (_, None) => return wrong(format!("{whose} needs mean_per_s and peak_per_s, or profile_per_s")),
        (_, Some(mean)) => vec![mean],
    };
    for rate in &profile {
        number(&name, *rate, true)?;
    }
    let highest = profile.iter().copied().fold(0.0, f64::max);
    if highest <= 0.0 {
        return wrong(format!("{name} is never above 0"));
    }
    let key = |field: &str| of.map_or(format!("load.{field}"), |of| format!("{field} of {of}"));
    let peak = match load.peak_per_s {
        Some(peak) => number(&key("peak_per_s"), peak, false)?,
        None if load.mean_per_s.is_some() => {
            return wrong(format!("{} needs {}", key("mean_per_s"), key("peak_per_s")));
        }
        None => highest,
    };
    if peak < highest {
        return wrong(format!("{} of {peak} is below the load of {highest}", key("peak_per_s")));
    }
    Ok((peak, profile))
}

/// What the candidates are called: as they say, else by their GPU, with how it is paid for or a number where that is not enough.
fn names(candidates: &[Candidate]) -> Result<Vec<String>, PlanError> {
    let mut taken: HashSet<String> = HashSet::new();
    let named = candidates.iter().filter_map(|c| c.name.as_ref());
    let twice: Vec<String> = named
        .filter(|name| !taken.insert((*name).clone()))
        .map(|name| format!("two candidates have the name {name:?}"))
        .collect();
    if !twice.is_empty() {
        return Err(PlanError(twice));
    }
    let mut nameless: HashMap<&str, usize> = HashMap::new();
    for c in candidates.iter().filter(|c| c.name.is_none()) {
        *nameless.entry(&c.gpu).or_default() += 1;
    }
    let paid = |c: &Candidate| if c.price_per_hour.is_some() { "per hour" } else { "to buy" };
    // The number to try next, by name: those before it are taken.
    let mut next: HashMap<String, usize> = HashMap::new();
    let mut name = |c: &Candidate| {
        if let Some(name) = &c.name {
            return name.clone();
        }
        let gpu = shown(&c.gpu);
        let plain = if nameless.get(&c.gpu[..]) > Some(&1) { format!("{gpu} ({})", paid(c)) } else { gpu };
        let number = next.entry(plain.clone()).or_insert(1);
        loop {
            let name = if *number == 1 { plain.clone() } else { format!("{plain} {number}") };
            *number += 1;
            if taken.insert(name.clone()) {
                return name;
            }
        }
    };
    Ok(candidates.iter().map(&mut name).collect())
}

/// A name or path of a plan, which is printed wherever the plan is.
fn place(field: &str, text: &str) -> Result<(), PlanError> {
    match printable(text) == *text {
        true => Ok(()),
        false => wrong(format!("{field} {:?} holds control characters", shown(text))),
    }
}

/// `vary`, `spares`: where the candidate does not say; rented boards are replaced by who rents them out.
fn candidate(
    c: Candidate,
    name: String,
    vary: &[Vary],
    spares: f64,
    found: &mut Mistakes<'_>,
) -> Option<CandidateFile> {
    let field = |name: &str| format!("{name} of {}", shown(&c.gpu));
    let price = match (c.price, c.price_per_hour) {
        (Some(price), None) => number(&field("price"), price, true).map(Price::Buy),
        (None, Some(price)) => number(&field("price_per_hour"), price, true).map(Price::PerHour),
        _ => wrong(format!("{} has either price or price_per_hour", shown(&c.gpu))),
    };
    let price = found.keep(price);
    let rented = c.price_per_hour.is_some();
    if c.gpus_per_server == 0 {
        found.add(format!("{} must be above 0", field("gpus_per_server")));
    }
    if rented && c.server_price > 0.0 {
        found.add(format!("{} is rented: its hour includes the server, leave out server_price", shown(&c.gpu)));
    }
    let kg = |name: &str, value: Option<f64>| value.map(|v| number(&field(name), v, true)).transpose();
    let overhead = found.keep(number(&field("server_overhead_w"), c.server_overhead_w, true));
    let server_price = found.keep(number(&field("server_price"), c.server_price, true));
    let server_kg = found.keep(kg("server_embodied_kg", c.server_embodied_kg));
    let embodied_kg = found.keep(kg("embodied_kg", c.embodied_kg));
    let spares = found.keep(spare(&field("spares"), c.spares.unwrap_or(if rented { 0.0 } else { spares })));
    let server = Server {
        gpus: c.gpus_per_server,
        overhead: Watts::new(overhead?),
        price: server_price?,
        embodied_kg: server_kg?,
    };
    let vary = c.vary.unwrap_or_else(|| vary.to_vec());
    Some(CandidateFile {
        name,
        price: price?,
        price_source: c.price_source,
        embodied_kg: embodied_kg?,
        server,
        vary,
        spares: spares?,
        gpu: c.gpu,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"
schema = "capacity/1"
title = "toy"
currency = "EUR"
[load]
mean_per_s = 100.0
peak_per_s = 300.0
[latency]
percentile = 95.0
target_ms = 50.0
[[network]]
net = "resnet50"
share = 1.0
[[candidate]]
gpu = "t4"
price = 1000.0
price_source = "a"
gpus_per_server = 4
server_overhead_w = 300.0
[site]
pue = 1.3
price_per_kwh = 0.2
carbon_g_per_kwh = 300.0
carbon_source = "b"
amortisation_years = 4.0
"#;

    #[test]
    fn a_plan_is_read() {
        let plan = PlanFile::from_toml(TEXT).expect("a valid plan");
        assert_eq!((plan.peak_per_s, plan.profile_per_s.as_slice()), (300.0, &[100.0][..]));
        assert_eq!(plan.candidates[0].price, Price::Buy(1000.0));
        assert_eq!(plan.minimise, Minimise::Cost);
        assert_eq!(plan.candidates[0].vary, [Vary::Cap, Vary::Clock]);
        assert_eq!((plan.precision, plan.framework.as_str(), plan.largest_batch), (Precision::Fp32, "cudnn", 256));
    }

    #[test]
    fn what_may_be_set_is_said_for_all_or_for_one() {
        let of = |from: &str, to: &str| {
            let plan = PlanFile::from_toml(&TEXT.replace(from, to)).expect("a valid plan");
            plan.candidates[0].vary.clone()
        };
        let all = "currency = \"EUR\"\nvary = [\"cap\"]";
        assert_eq!(of("currency = \"EUR\"", all), [Vary::Cap]);
        assert!(of("gpus_per_server = 4", "gpus_per_server = 4\nvary = []").is_empty());
    }

    #[test]
    fn candidates_of_one_gpu_are_told_apart() {
        let bought = "[[candidate]]\ngpu = \"t4\"\nprice = 1.0\nprice_source = \"a\"\ngpus_per_server = 4\nserver_overhead_w = 1.0\n";
        let rented = bought.replace("price = ", "price_per_hour = ");
        let named = rented.replace("gpu =", "name = \"cloud\"\ngpu =");
        let names = |more: &str| -> Vec<String> {
            let plan = PlanFile::from_toml(&format!("{TEXT}{more}")).expect("a valid plan");
            plan.candidates.into_iter().map(|c| c.name).collect()
        };
        assert_eq!(names(""), ["t4"]);
        assert_eq!(names(&rented), ["t4 (to buy)", "t4 (per hour)"]);
        assert_eq!(names(&named), ["t4", "cloud"]);
        assert_eq!(names(&format!("{bought}{rented}")), ["t4 (to buy)", "t4 (to buy) 2", "t4 (per hour)"]);
        assert_eq!(names(&named.replace("cloud", "t4")), ["t4 2", "t4"]);
        let error = PlanFile::from_toml(&format!("{TEXT}{named}{named}")).expect_err("one name twice");
        assert_eq!(error.to_string(), "two candidates have the name \"cloud\"");
    }

    #[test]
    fn a_plan_is_of_few_candidates() {
        let one = "[[candidate]]\ngpu = \"t4\"\nprice = 1.0\nprice_source = \"a\"\ngpus_per_server = 4\nserver_overhead_w = 1.0\n";
        let plan = |more: usize| PlanFile::from_toml(&format!("{TEXT}{}", one.repeat(more)));
        let names = plan(MOST_CANDIDATES - 1).expect("a plan").candidates;
        assert_eq!(names[MOST_CANDIDATES - 1].name, format!("t4 (to buy) {MOST_CANDIDATES}"));
        let error = plan(9000).expect_err("too many").to_string();
        assert_eq!(error, "9001 [[candidate]]: a plan is made for at most 200; divide the file");
        let network = "[[network]]\nnet = \"vgg16\"\nshare = 0.1\n";
        let networks = |n: usize| PlanFile::from_toml(&format!("{TEXT}{}", network.repeat(n))).expect_err("too many");
        assert!(networks(60).to_string().starts_with("61 [[network]]"));
        let pairs = format!("{TEXT}{}{}", network.repeat(20), one.repeat(60));
        assert!(PlanFile::from_toml(&pairs).is_err_and(|e| e.to_string().starts_with("1281 pairs")));
        let parts = format!("profile_per_s = {:?}", vec![1.0; MOST_PARTS + 1]);
        let parts = TEXT.replace("mean_per_s = 100.0", &parts);
        assert!(PlanFile::from_toml(&parts).is_err_and(|e| e.to_string().starts_with("1441 numbers in load.profile")));
    }

    #[test]
    fn names_and_titles_carry_nothing_but_themselves() {
        let text = TEXT
            .replace("\"toy\"", "\"\\u001b[2JA | <script>\"")
            .replace("gpu = \"t4\"", "gpu = \"./<b>.toml\"")
            .replace("price_source = \"a\"", "price_source = \"a\\r\\nb\"");
        let plan = PlanFile::from_toml(&text).expect("a valid plan");
        assert_eq!(plan.title, "2JA script");
        let candidate = &plan.candidates[0];
        assert_eq!((&candidate.name[..], &candidate.gpu[..]), ("./ b .toml", "./<b>.toml"));
        assert_eq!(candidate.price_source, "a  b");
        for (from, to) in [("gpu = \"t4\"", "gpu = \"t\\u001b4\""), ("\"resnet50\"", "\"a\\nb\"")] {
            let error = PlanFile::from_toml(&TEXT.replace(from, to)).expect_err(to).to_string();
            assert!(error.contains("holds control characters") && !error.contains('\u{1b}'), "{error}");
        }
    }

    #[test]
    fn mistakes_are_named() {
        for (from, to, expected) in [
            ("carbon_g_per_kwh = 300.0", "", "carbon_g_per_kwh"),
            ("carbon_source = \"b\"", "", "carbon_source"),
            ("server_overhead_w = 300.0", "", "server_overhead_w"),
            ("pue = 1.3", "pue = 0.9", "site.pue"),
            ("share = 1.0", "share = 0.9", "add up to 0.9"),
            ("share = 1.0", "share = 0.8999999999999999", "add up to 0.9,"),
            ("peak_per_s = 300.0", "peak_per_s = 30.0", "below"),
            ("peak_per_s = 300.0", "", "peak_per_s"),
            ("mean_per_s = 100.0", "mean_per_s = -1.0", "load"),
            ("price = 1000.0", "price = 1000.0\nprice_per_hour = 1.0", "either price"),
            ("percentile = 95.0", "percentile = 0.95", "percentile"),
            ("target_ms = 50.0", "target_ms = nan", "target_ms"),
            ("currency = \"EUR\"", "currency = \"EUR\"\nvary = [\"fan\"]", "fan"),
            ("capacity/1", "capacity/2", "capacity/2"),
            ("title = \"toy\"", "titel = \"toy\"", "titel"),
        ] {
            let error = PlanFile::from_toml(&TEXT.replace(from, to)).expect_err(to).to_string();
            assert!(error.contains(expected), "{error:?} should name {expected:?}");
            assert!(!error.contains('\n'), "{error:?} is one line");
        }
    }

    #[test]
    fn all_mistakes_are_told_at_once_with_their_lines() {
        let text = TEXT
            .replace("currency = \"EUR\"\n", "")
            .replace("peak_per_s = 300.0", "peak_per_s = 30.0")
            .replace("target_ms = 50.0", "target_ms = \"soon\"\npercentil = 3")
            .replace("share = 1.0", "share = 0.0")
            .replace(
                "gpus_per_server = 4\nserver_overhead_w = 300.0",
                "gpus_per_server = 0\nserver_overhead = 300.0\nspares = 7",
            )
            .replace("pue = 1.3", "pue = 0.3\nsite_kw = -1.0");
        let error = PlanFile::from_toml(&text).expect_err("a dozen");
        let expected = [
            "missing field `currency`",
            "line 9: [latency]: target_ms: invalid type: string \"soon\", expected a number",
            "line 10: [latency]: unknown field `percentil`",
            "line 19: [[candidate]] 1: unknown field `server_overhead`",
            "line 14: [[candidate]] 1: missing field `server_overhead_w`",
            "load.peak_per_s of 30 is below the load of 100",
            "share of resnet50 must be above 0, not 0",
            "site.pue is facility power over IT power, from 1 to 5, not 0.3",
            "site.site_kw must be above 0, not -1",
        ];
        for part in expected {
            assert!(error.mistakes().iter().any(|m| m.contains(part)), "no {part:?} in {:#?}", error.mistakes());
        }
        assert_eq!(error.mistakes().len(), expected.len(), "{:#?}", error.mistakes());
        // What a section's own mistakes hide comes when they are gone.
        let text = text.replace("server_overhead =", "server_overhead_w =");
        let error = PlanFile::from_toml(&text).expect_err("others").to_string();
        assert!(error.contains("spares of t4 are a share of the GPUs, from 0 to 1, not 7"), "{error}");
        assert!(error.contains("gpus_per_server of t4 must be above 0"), "{error}");
    }

    #[test]
    fn both_numbers_of_a_latency_and_every_name_that_is_there_twice_are_told() {
        let text =
            TEXT.replace("percentile = 95.0", "percentile = 0.95").replace("target_ms = 50.0", "target_ms = -5.0");
        let one = |name: &str| {
            format!(
                "[[candidate]]\nname = \"{name}\"\ngpu = \"t4\"\nprice = 1.0\nprice_source = \"a\"\ngpus_per_server = 4\nserver_overhead_w = 1.0\n"
            )
        };
        let error =
            PlanFile::from_toml(&format!("{text}{}", ["a", "b", "a", "b"].map(one).concat())).expect_err("four");
        let expected = [
            "latency.percentile must be from 50 to 99.99, not 0.95",
            "latency.target_ms must be above 0, not -5",
            "two candidates have the name \"a\"",
            "two candidates have the name \"b\"",
        ];
        assert_eq!(error.mistakes(), expected);
    }

    #[test]
    fn headroom_is_said_or_sane() {
        let plan = |from: &str, to: &str| PlanFile::from_toml(&TEXT.replace(from, to));
        let spares = |plan: &PlanFile| plan.candidates[0].spares;
        let usual = plan("", "").expect("valid");
        assert_eq!((usual.utilisation, spares(&usual)), (0.9, 0.05));
        let said = plan("currency = \"EUR\"", "currency = \"EUR\"\nutilisation = 0.7\nspares = 0.1").expect("valid");
        assert_eq!((said.utilisation, spares(&said)), (0.7, 0.1));
        let rented = plan("price = 1000.0", "price_per_hour = 1.0").expect("valid");
        assert_eq!(spares(&rented), 0.0);
        let own = plan("price = 1000.0", "price_per_hour = 1.0\nspares = 0.2").expect("valid");
        assert_eq!(spares(&own), 0.2);
        for utilisation in ["0.0", "1.1", "nan"] {
            let error = plan("currency = \"EUR\"", &format!("currency = \"EUR\"\nutilisation = {utilisation}"));
            assert!(error.is_err_and(|e| e.to_string().starts_with("utilisation must be above 0")), "{utilisation}");
        }
    }

    #[test]
    fn numbers_units_and_peaks_are_as_the_file_says() {
        let told = |text: &str| PlanFile::from_toml(text).err().map(|e| e.to_string()).unwrap_or_default();
        for value in [f64::NAN, f64::INFINITY, -1.0] {
            assert!(number("x", value, true).is_err() && number("x", value, false).is_err(), "{value}");
        }
        assert!(number("x", 0.0, true).is_ok() && number("x", 0.0, false).is_err());
        let limits = TEXT.replace("pue = 1.3", "pue = 1.3\nrack_kw = 12.5\nsite_kw = 40.0");
        let plan = PlanFile::from_toml(&limits).expect("valid");
        assert_eq!((plan.site.rack, plan.site.site), (Some(Watts::new(12_500.0)), Some(Watts::new(40_000.0))));
        // A load that is as high as its peak is one; above it is not.
        let flat = |mean: &str| TEXT.replace("mean_per_s = 100.0", &format!("mean_per_s = {mean}"));
        assert_eq!(told(&flat("300.0")), "");
        assert!(told(&flat("301.0")).contains("below the load"), "{}", told(&flat("301.0")));
        assert!(told(&TEXT.replace("peak_per_s = 300.0\n", "")).contains("needs load.peak_per_s"));
    }
}
