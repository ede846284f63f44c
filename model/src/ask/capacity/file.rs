//! The plan file, documented in `data/capacity/README.md`.

mod language;

use super::fleet::{Price, Server, Site};
use super::pool::Target;
use crate::base::file::{self, check_schema};
use crate::base::precision::Precision;
use crate::base::text::{names as shown_names, printable, prose, shown};
use crate::base::units::{Seconds, Watts};
pub use language::PlannedLanguage;
use language::ServiceFile;
use serde::Deserialize;
use std::collections::{HashMap, HashSet};

/// A plan file that cannot be used, in one line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct PlanError(String);

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
    schema: String,
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
    load: Option<LoadFile>,
    latency: Option<LatencyFile>,
    #[serde(default, rename = "network")]
    networks: Vec<PlannedNetwork>,
    #[serde(default, rename = "service")]
    services: Vec<ServiceFile>,
    #[serde(rename = "candidate")]
    candidates: Vec<Candidate>,
    site: SiteFile,
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
    Err(PlanError(format!("{field} must be {least}, not {value}")))
}

fn wrong<T>(why: impl Into<String>) -> Result<T, PlanError> {
    Err(PlanError(why.into()))
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
    /// One line that names the field: what is missing, unknown, or no possible value.
    pub fn from_toml(text: &str) -> Result<Self, PlanError> {
        let file: File = file::from_toml(text).map_err(|e| PlanError(e.to_string()))?;
        check_schema(&file.schema, "capacity/1").map_err(|e| PlanError(e.to_string()))?;
        few("[[candidate]]", file.candidates.len(), MOST_CANDIDATES)?;
        few("[[network]]", file.networks.len(), MOST_NETWORKS)?;
        few("pairs of a network and a candidate", file.networks.len() * file.candidates.len(), MOST_STEPS)?;
        few("[[service]]", file.services.len(), MOST_SERVICES)?;
        few("pairs of a service and a candidate", file.services.len() * file.candidates.len(), MOST_SIMULATED)?;
        let parts = |profile: &Option<Vec<f64>>| profile.as_ref().map_or(0, Vec::len);
        few("numbers in load.profile_per_s", file.load.as_ref().map_or(0, |l| parts(&l.profile_per_s)), MOST_PARTS)?;
        for service in &file.services {
            few(
                &format!("numbers in profile_per_s of {}", service.called()),
                parts(&service.profile_per_s),
                MOST_PARTS,
            )?;
        }
        place("framework", &file.framework)?;
        file.networks.iter().try_for_each(|n| place("net", &n.net))?;
        file.candidates.iter().try_for_each(|c| place("gpu", &c.gpu))?;
        let (peak_per_s, mut profile_per_s, target) = match (&file.load, &file.latency) {
            (None, None) if file.networks.is_empty() && file.services.is_empty() => {
                return wrong("there is no [[network]] and no [[service]]");
            }
            (None, None) if file.networks.is_empty() => (0.0, vec![0.0], None),
            _ if file.networks.is_empty() && !file.services.is_empty() => {
                return wrong("[load] and [latency] are of networks, and there is no [[network]]");
            }
            (None, _) => return wrong("networks need [load]"),
            (_, None) => return wrong("networks need [latency]"),
            (Some(coming), Some(latency)) => {
                let (peak_per_s, profile_per_s) = load(None, coming)?;
                (peak_per_s, profile_per_s, Some(latency.target()?))
            }
        };
        let mut languages =
            file.services.into_iter().map(ServiceFile::planned).collect::<Result<Vec<PlannedLanguage>, _>>()?;
        let mut taken: HashSet<&str> = HashSet::new();
        if let Some(twice) = languages.iter().find(|of| !taken.insert(&of.name)) {
            return wrong(format!("two services are called {}: give one another name", twice.name));
        }
        same_parts(&mut profile_per_s, &mut languages)?;
        let site = &file.site;
        if !(1.0..=5.0).contains(&site.pue) {
            return wrong(format!("site.pue is facility power over IT power, from 1 to 5, not {}", site.pue));
        }
        let kw = |field: &str, value: Option<f64>| -> Result<Option<Watts>, PlanError> {
            value.map(|v| number(field, v, false).map(|v| Watts::new(1000.0 * v))).transpose()
        };
        let site = Site {
            rack: kw("site.rack_kw", site.rack_kw)?,
            site: kw("site.site_kw", site.site_kw)?,
            pue: site.pue,
            price_per_kwh: number("site.price_per_kwh", site.price_per_kwh, true)?,
            carbon_g_per_kwh: number("site.carbon_g_per_kwh", site.carbon_g_per_kwh, true)?,
            amortisation_years: number("site.amortisation_years", site.amortisation_years, false)?,
        };
        let mut shares = 0.0;
        for n in &file.networks {
            shares += number(&format!("share of {}", shown(&n.net)), n.share, false)?;
        }
        if target.is_some() && (shares - 1.0).abs() > SHARES {
            return wrong(format!(
                "the networks' shares add up to {}, not to 1",
                (shares / SHARES).round() / SHARES.recip()
            ));
        }
        if file.candidates.is_empty() {
            return wrong("there is no [[candidate]]");
        }
        if file.largest_batch == 0 {
            return wrong("largest_batch must be above 0");
        }
        let names = names(&file.candidates)?;
        let candidates = file.candidates.into_iter().zip(names).map(|(c, name)| candidate(c, name, &file.vary));
        Ok(Self {
            title: file.title,
            currency: file.currency,
            minimise: file.minimise,
            precision: file.precision,
            framework: file.framework,
            largest_batch: file.largest_batch,
            peak_per_s,
            profile_per_s,
            target,
            networks: file.networks,
            languages,
            candidates: candidates.collect::<Result<_, _>>()?,
            site,
            carbon_source: file.site.carbon_source,
        })
    }
}

impl LatencyFile {
    fn target(&self) -> Result<Target, PlanError> {
        if !(50.0..=99.99).contains(&self.percentile) {
            return wrong(format!("latency.percentile must be from 50 to 99.99, not {}", self.percentile));
        }
        let latency = Seconds::from_ms(number("latency.target_ms", self.target_ms, false)?);
        Ok(Target { quantile: self.percentile / 100.0, latency })
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
    for name in candidates.iter().filter_map(|c| c.name.as_ref()) {
        if !taken.insert(name.clone()) {
            return wrong(format!("two candidates have the name {name:?}"));
        }
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

/// `vary`: what may be set where the candidate does not say.
fn candidate(c: Candidate, name: String, vary: &[Vary]) -> Result<CandidateFile, PlanError> {
    let field = |name: &str| format!("{name} of {}", shown(&c.gpu));
    let price = match (c.price, c.price_per_hour) {
        (Some(price), None) => Price::Buy(number(&field("price"), price, true)?),
        (None, Some(price)) => Price::PerHour(number(&field("price_per_hour"), price, true)?),
        _ => return wrong(format!("{} has either price or price_per_hour", shown(&c.gpu))),
    };
    if c.gpus_per_server == 0 {
        return wrong(format!("{} must be above 0", field("gpus_per_server")));
    }
    if matches!(price, Price::PerHour(_)) && c.server_price > 0.0 {
        return wrong(format!("{} is rented: its hour includes the server, leave out server_price", shown(&c.gpu)));
    }
    let kg = |name: &str, value: Option<f64>| value.map(|v| number(&field(name), v, true)).transpose();
    let server = Server {
        gpus: c.gpus_per_server,
        overhead: Watts::new(number(&field("server_overhead_w"), c.server_overhead_w, true)?),
        price: number(&field("server_price"), c.server_price, true)?,
        embodied_kg: kg("server_embodied_kg", c.server_embodied_kg)?,
    };
    let embodied_kg = kg("embodied_kg", c.embodied_kg)?;
    let vary = c.vary.unwrap_or_else(|| vary.to_vec());
    Ok(CandidateFile { name, price, price_source: c.price_source, embodied_kg, server, vary, gpu: c.gpu })
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
