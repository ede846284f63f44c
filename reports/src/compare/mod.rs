//! What `predict compare` found: `comparison/1`.

mod page;

pub use page::{figure, text};

use joulecast_model::budget::{Bound, Budget};
use joulecast_model::predictor::{Estimate, NetworkPrediction};
use joulecast_model::units::Joules;
use serde::Serialize;

/// A network on a GPU at a batch.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The GPU as typed.
    pub gpu: String,
    /// The prediction.
    pub prediction: NetworkPrediction,
    /// Published top-1 error of trained weights.
    pub top1_error: Option<f64>,
    /// Energy-precision ratio.
    pub epr: Option<Joules>,
    /// Price of the GPU, where given.
    pub price_per_hour: Option<f64>,
    /// Price of a million samples.
    pub price_per_million: Option<f64>,
}

/// The largest batch within a budget.
#[derive(Clone, Debug)]
pub struct Largest {
    /// The network.
    pub network: String,
    /// The GPU as typed.
    pub gpu: String,
    /// With that batch; `None` where no batch keeps the budget.
    pub entry: Option<Entry>,
    /// What a larger batch would break, or what every batch does.
    pub stopped: Bound,
}

/// What was compared.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// Precision, mode and framework, in words.
    pub title: String,
    /// Weight of the error in the energy-precision ratio.
    pub alpha: f64,
    /// Networks in the order they were asked for, GPUs within, batches within.
    pub entries: Vec<Entry>,
    /// The budget, where there is one.
    pub budget: Option<Budget>,
    /// For every network and GPU, where there is a budget.
    pub largest: Vec<Largest>,
}

#[derive(Serialize)]
struct Row<'a> {
    network: &'a str,
    gpu: &'a str,
    batch: u64,
    precision: &'a str,
    mode: &'a str,
    time_tier: &'a str,
    power_tier: &'a str,
    core_clock_mhz: f64,
    time_s: f64,
    time_s_p05: f64,
    time_s_p95: f64,
    power_w: f64,
    power_w_p05: f64,
    power_w_p95: f64,
    energy_j: f64,
    energy_j_p05: f64,
    energy_j_p95: f64,
    edp_js: f64,
    samples_per_s: f64,
    energy_per_sample_j: f64,
    samples_per_s_per_w: f64,
    fits_in_memory: bool,
    top1_error: Option<f64>,
    epr_j: Option<f64>,
    price_per_hour: Option<f64>,
    price_per_million: Option<f64>,
}

#[derive(Serialize)]
struct Winner<'a> {
    network: &'a str,
    batch: u64,
    metric: &'static str,
    gpu: &'a str,
    value: f64,
    within_its_interval: Vec<&'a str>,
}

#[derive(Serialize)]
struct BudgetRow<'a> {
    network: &'a str,
    gpu: &'a str,
    stopped_by: String,
    largest: Option<Row<'a>>,
}

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    title: &'a str,
    alpha: f64,
    rows: Vec<Row<'a>>,
    best: Vec<Winner<'a>>,
    budget: Option<BudgetDocument>,
    within_budget: Vec<serde_json::Value>,
    most_accurate: Option<Choice<'a>>,
    cheapest: Vec<Choice<'a>>,
}

#[derive(Serialize)]
struct BudgetDocument {
    latency_s: Option<f64>,
    energy_per_sample_j: Option<f64>,
    power_w: Option<f64>,
    by_95_percent_quantiles: bool,
}

#[derive(Serialize)]
struct Choice<'a> {
    network: &'a str,
    gpu: &'a str,
    batch: u64,
}

fn row(e: &Entry) -> Row<'_> {
    let p = &e.prediction;
    Row {
        network: &p.network,
        gpu: &e.gpu,
        batch: p.batch,
        precision: p.precision.name(),
        mode: p.mode.name(),
        time_tier: p.time_tier.name(),
        power_tier: p.power_tier.name(),
        core_clock_mhz: p.clock.to_mhz(),
        time_s: p.time.value.get(),
        time_s_p05: p.time.p05.get(),
        time_s_p95: p.time.p95.get(),
        power_w: p.power.value.get(),
        power_w_p05: p.power.p05.get(),
        power_w_p95: p.power.p95.get(),
        energy_j: p.energy.value.get(),
        energy_j_p05: p.energy.p05.get(),
        energy_j_p95: p.energy.p95.get(),
        edp_js: p.edp().get(),
        samples_per_s: p.samples_per_second(),
        energy_per_sample_j: p.energy_per_sample().get(),
        samples_per_s_per_w: p.samples_per_joule(),
        fits_in_memory: p.fits_in_memory,
        top1_error: e.top1_error,
        epr_j: e.epr.map(Joules::get),
        price_per_hour: e.price_per_hour,
        price_per_million: e.price_per_million,
    }
}

/// A metric with its interval's share; less is better.
struct Measure {
    name: &'static str,
    unit: &'static str,
    of: fn(&Entry) -> Option<Estimate<f64>>,
}

fn scaled(estimate: (f64, f64, f64), by: f64) -> Option<Estimate<f64>> {
    let (value, p05, p95) = estimate;
    Some(Estimate { value: value * by, p05: p05 * by, p95: p95 * by })
}

fn time(e: &Entry) -> (f64, f64, f64) {
    let t = &e.prediction.time;
    (t.value.get(), t.p05.get(), t.p95.get())
}

fn energy(e: &Entry) -> (f64, f64, f64) {
    let j = &e.prediction.energy;
    (j.value.get(), j.p05.get(), j.p95.get())
}

/// What GPUs are compared by. Products of time and energy have the widths of energy, whose interval is the wider one.
const MEASURES: [Measure; 5] = [
    Measure { name: "time", unit: "s", of: |e| scaled(time(e), 1.0) },
    Measure { name: "energy per sample", unit: "J", of: |e| scaled(energy(e), 1.0 / e.prediction.batch as f64) },
    Measure { name: "EDP", unit: "J s", of: |e| scaled(energy(e), e.prediction.time.value.get()) },
    Measure {
        name: "power",
        unit: "W",
        of: |e| {
            let p = &e.prediction.power;
            scaled((p.value.get(), p.p05.get(), p.p95.get()), 1.0)
        },
    },
    Measure { name: "price per million", unit: "", of: |e| scaled(time(e), e.price_per_million? / time(e).0) },
];

/// The best of some entries by a measure, and those whose interval its value lies in.
fn best<'a>(entries: &[&'a Entry], measure: &Measure) -> Option<(&'a Entry, Estimate<f64>, Vec<&'a str>)> {
    let values: Vec<(&Entry, Estimate<f64>)> = entries.iter().filter_map(|e| Some((*e, (measure.of)(e)?))).collect();
    let (entry, least) = *values.iter().min_by(|a, b| a.1.value.total_cmp(&b.1.value))?;
    let near =
        values.iter().filter(|(e, v)| !std::ptr::eq(*e, entry) && v.p05 <= least.p95).map(|(e, _)| e.gpu.as_str());
    Some((entry, least, near.collect()))
}

/// Entries of one network and batch, over GPUs, in the order they came; those that do not fit left out.
fn groups(c: &Comparison) -> Vec<(&str, u64, Vec<&Entry>)> {
    let mut list: Vec<(&str, u64, Vec<&Entry>)> = Vec::new();
    for e in c.entries.iter().filter(|e| e.prediction.fits_in_memory) {
        let p = &e.prediction;
        match list.iter_mut().find(|(net, batch, _)| (*net, *batch) == (p.network.as_str(), p.batch)) {
            Some((_, _, group)) => group.push(e),
            None => list.push((&p.network, p.batch, vec![e])),
        }
    }
    list
}

fn winners(c: &Comparison) -> Vec<Winner<'_>> {
    let mut list = Vec::new();
    for (network, batch, entries) in groups(c) {
        for measure in &MEASURES {
            if let Some((entry, value, near)) = best(&entries, measure) {
                let (metric, value) = (measure.name, value.value);
                list.push(Winner { network, batch, metric, gpu: &entry.gpu, value, within_its_interval: near });
            }
        }
    }
    list
}

fn within(c: &Comparison) -> impl Iterator<Item = &Entry> {
    c.largest.iter().filter_map(|l| l.entry.as_ref())
}

/// The network with the least error that keeps the budget somewhere, where it takes the least energy per sample.
fn most_accurate(c: &Comparison) -> Option<&Entry> {
    let order = |e: &&Entry| (e.top1_error.unwrap_or(f64::INFINITY), e.prediction.energy_per_sample().get());
    within(c).filter(|e| e.top1_error.is_some()).min_by(|a, b| {
        let (a, b) = (order(a), order(b));
        a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1))
    })
}

/// For every network the GPU with the least price per million samples that keeps the budget.
fn cheapest(c: &Comparison) -> Vec<&Entry> {
    let mut list: Vec<&Entry> = Vec::new();
    for e in within(c).filter(|e| e.price_per_million.is_some()) {
        let price = |e: &Entry| e.price_per_million.unwrap_or(f64::INFINITY);
        match list.iter_mut().find(|other| other.prediction.network == e.prediction.network) {
            Some(other) => {
                if price(e) < price(other) {
                    *other = e;
                }
            }
            None => list.push(e),
        }
    }
    list
}

fn choice(e: &Entry) -> Choice<'_> {
    Choice { network: &e.prediction.network, gpu: &e.gpu, batch: e.prediction.batch }
}

/// The JSON document.
///
/// # Errors
/// Only if a number is not finite.
pub fn json(c: &Comparison) -> Result<String, serde_json::Error> {
    let budget = c.budget.map(|b| BudgetDocument {
        latency_s: b.latency.map(|v| v.get()),
        energy_per_sample_j: b.energy_per_sample.map(|v| v.get()),
        power_w: b.power.map(|v| v.get()),
        by_95_percent_quantiles: b.sure,
    });
    let budget_row = |l: &'_ Largest| -> serde_json::Result<serde_json::Value> {
        serde_json::to_value(BudgetRow {
            network: &l.network,
            gpu: &l.gpu,
            stopped_by: l.stopped.to_string(),
            largest: l.entry.as_ref().map(row),
        })
    };
    let document = Document {
        schema: "comparison/1",
        title: &c.title,
        alpha: c.alpha,
        rows: c.entries.iter().map(row).collect(),
        best: winners(c),
        budget,
        within_budget: c.largest.iter().map(budget_row).collect::<Result<_, _>>()?,
        most_accurate: most_accurate(c).map(choice),
        cheapest: cheapest(c).into_iter().map(choice).collect(),
    };
    Ok(serde_json::to_string_pretty(&document)? + "\n")
}

/// Every prediction as CSV, with the JSON's keys; with a budget and no batches, the largest within it.
///
/// # Errors
/// Only if a number is not finite.
pub fn csv(c: &Comparison) -> Result<String, csv::Error> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    let all: Vec<&Entry> = if c.entries.is_empty() { within(c).collect() } else { c.entries.iter().collect() };
    for entry in all {
        writer.serialize(row(entry))?;
    }
    let bytes = writer.into_inner().map_err(|e| csv::Error::from(e.into_error()))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
