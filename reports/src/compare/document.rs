//! A comparison as `comparison/1` and as rows.

use crate::record::{self, Figures};
use crate::verdict::{Measurement, Statement};
use joulecast_ask::budget::{Bound, Budget};
use joulecast_ask::comparison::{Best, Entry, Largest, best, cheapest, most_accurate};
use joulecast_model::base::name::Name;
use joulecast_model::base::units::Joules;
use serde::Serialize;

/// What was compared.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// Precision, mode and framework, in words.
    pub title: String,
    /// Weight of the error in the energy-precision ratio.
    pub alpha: f64,
    /// Networks in the order they were asked for, GPUs within, batches within.
    pub entries: Vec<Entry>,
    /// What a reader of each entry should know, in words; those that are alike share their text. No document has it.
    pub notes: Vec<Vec<Name>>,
    /// GPUs that were asked for and cannot do what is compared.
    pub left_out: Vec<LeftOut>,
    /// The budget, where there is one.
    pub budget: Option<Budget>,
    /// For every network and GPU, where there is a budget.
    pub largest: Vec<Largest>,
}

/// A GPU that cannot do what is compared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LeftOut {
    /// The GPU as typed.
    pub gpu: String,
    /// Why, without its name where many share the reason.
    pub why: String,
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
    /// How far to trust time and energy, and their expected mean error as a share.
    time_grade: &'a str,
    expected_time_error: f64,
    energy_grade: &'a str,
    expected_energy_error: f64,
    core_clock_mhz: f64,
    #[serde(flatten)]
    figures: Figures,
    /// Whether the host decides how long the step takes, how many times as long as the profile says its launches take, and who
    /// says so; null where none launches.
    host_decides: Option<bool>,
    host_factor: Option<f64>,
    host_source: Option<&'a str>,
    fits_in_memory: bool,
    top1_error: Option<f64>,
    epr_j: Option<f64>,
    price_per_hour: Option<f64>,
    price_per_million: Option<f64>,
    /// Whether each bound of the budget is kept; null without it.
    meets_latency: Option<bool>,
    meets_energy_per_sample: Option<bool>,
    meets_power: Option<bool>,
    /// Whether it is the answer for its network and GPU; null without a budget.
    largest_within_budget: Option<bool>,
    /// What a larger batch would break, of the answer.
    stopped_by: Option<String>,
}

#[derive(Serialize)]
struct Winner<'a> {
    network: &'a str,
    batch: u64,
    metric: &'static str,
    gpu: &'a str,
    value: f64,
    within_its_interval: Vec<&'a str>,
    /// Whether no other one's interval reaches its own.
    sure: bool,
    /// What is to be measured, and of which GPU, where it is not.
    decided_by: Option<Decided<'a>>,
}

#[derive(Serialize)]
struct Decided<'a> {
    gpu: &'a str,
    measure: String,
    by: Option<&'static str>,
}

/// Where no GPU is the best, since the host decides on the one with the least.
#[derive(Serialize)]
struct OfHost<'a> {
    network: &'a str,
    batch: u64,
    metric: &'static str,
    least_on: &'a str,
}

#[derive(Serialize)]
struct BudgetRow<'a> {
    network: &'a str,
    gpu: &'a str,
    stopped_by: String,
    largest: Option<Row<'a>>,
}

#[derive(Serialize)]
pub(super) struct Document<'a> {
    schema: &'static str,
    title: &'a str,
    alpha: f64,
    rows: Vec<Row<'a>>,
    left_out: &'a [LeftOut],
    best: Vec<Winner<'a>>,
    none_best: Vec<OfHost<'a>>,
    /// Which GPU takes least time and energy, as far as that is sure, in words.
    verdict: Vec<String>,
    budget: Option<BudgetDocument>,
    within_budget: Vec<serde_json::Value>,
    most_accurate: Option<Choice<'a>>,
    cheapest: Vec<Cheapest<'a>>,
}

#[derive(Serialize)]
struct BudgetDocument {
    latency_s: Option<f64>,
    energy_per_sample_j: Option<f64>,
    power_w: Option<f64>,
    by_95_percent_quantiles: bool,
}

#[derive(Serialize)]
struct Cheapest<'a> {
    #[serde(flatten)]
    choice: Choice<'a>,
    within_its_interval: Vec<&'a str>,
    sure: bool,
}

#[derive(Serialize)]
struct Choice<'a> {
    network: &'a str,
    gpu: &'a str,
    batch: u64,
}

fn row<'a>(c: &Comparison, e: &'a Entry) -> Row<'a> {
    let (p, trust) = (&e.summary, &e.trust);
    let meets = |bound| e.kept(c.budget.as_ref()?).find(|(b, _)| *b == bound).map(|(_, kept)| kept);
    let answer = c.answer(e);
    Row {
        network: &e.network,
        gpu: &e.gpu,
        batch: e.batch,
        precision: e.precision.name(),
        mode: e.mode.name(),
        time_tier: p.time_tier.name(),
        power_tier: p.power_tier.name(),
        time_grade: trust.time.grade.name(),
        expected_time_error: trust.time.error,
        energy_grade: trust.energy.grade.name(),
        expected_energy_error: trust.energy.error,
        core_clock_mhz: p.clock.to_mhz(),
        figures: Figures::of(p, e.batch),
        host_decides: e.host.as_ref().map(|h| h.decides),
        host_factor: e.host.as_ref().map(|h| h.factor),
        host_source: e.host.as_ref().and_then(|h| h.source.as_deref()),
        fits_in_memory: e.fits_in_memory,
        top1_error: e.top1_error,
        epr_j: e.epr.map(Joules::get),
        price_per_hour: e.price_per_hour,
        price_per_million: e.price_per_million,
        meets_latency: meets(Bound::Latency),
        meets_energy_per_sample: meets(Bound::Energy),
        meets_power: meets(Bound::Power),
        largest_within_budget: c.budget.map(|_| answer.is_some()),
        stopped_by: answer.map(|l| l.stopped.to_string()),
    }
}

impl Comparison {
    /// The entries, or with a budget and no batches the largest within it.
    pub(super) fn shown(&self) -> Vec<&Entry> {
        let answers = || self.largest.iter().filter_map(|l| l.entry.as_ref()).collect();
        if self.entries.is_empty() { answers() } else { self.entries.iter().collect() }
    }

    /// What an entry is the answer to: the largest batch within the budget of its network and GPU.
    fn answer(&self, e: &Entry) -> Option<&Largest> {
        fn key(e: &Entry) -> (&str, &str, u64) {
            (&e.network, &e.gpu, e.batch)
        }
        self.largest.iter().find(|l| l.entry.as_ref().is_some_and(|a| key(a) == key(e)))
    }
}

fn choice(e: &Entry) -> Choice<'_> {
    Choice { network: &e.network, gpu: &e.gpu, batch: e.batch }
}

fn winner<'a>(b: &Best<'a>) -> Winner<'a> {
    Winner {
        network: &b.entry.network,
        batch: b.entry.batch,
        metric: b.measure.name(),
        gpu: &b.entry.gpu,
        value: b.value,
        within_its_interval: b.near.iter().map(|e| e.gpu.as_str()).collect(),
        sure: b.sure(),
        decided_by: decided(b),
    }
}

fn decided<'a>(b: &Best<'a>) -> Option<Decided<'a>> {
    let (e, doubt) = b.decided_by()?;
    let Measurement { what: measure, by } = Statement::from(e).measurement(doubt);
    Some(Decided { gpu: &e.gpu, measure, by })
}

fn price<'a>(b: &Best<'a>) -> Cheapest<'a> {
    let within_its_interval = b.near.iter().map(|e| e.gpu.as_str()).collect();
    Cheapest { choice: choice(b.entry), within_its_interval, sure: b.sure() }
}

fn of_host<'a>(b: &Best<'a>) -> OfHost<'a> {
    let (e, metric) = (b.entry, b.measure.name());
    OfHost { network: &e.network, batch: e.batch, metric, least_on: &e.gpu }
}

pub(super) fn document(c: &Comparison) -> Result<Document<'_>, serde_json::Error> {
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
            largest: l.entry.as_ref().map(|e| row(c, e)),
        })
    };
    let (gpus, hosts): (Vec<Best<'_>>, Vec<_>) = best(&c.entries).into_iter().partition(|b| b.by_gpu);
    Ok(Document {
        schema: "comparison/1",
        title: &c.title,
        alpha: c.alpha,
        rows: c.entries.iter().map(|e| row(c, e)).collect(),
        left_out: &c.left_out,
        best: gpus.iter().map(winner).collect(),
        none_best: hosts.iter().map(of_host).collect(),
        verdict: c.conclusions(),
        budget,
        within_budget: c.largest.iter().map(budget_row).collect::<Result<_, _>>()?,
        most_accurate: most_accurate(&c.largest).map(choice),
        cheapest: cheapest(&c.largest).iter().filter(|b| b.by_gpu).map(price).collect(),
    })
}

/// Every prediction as CSV, with the JSON's keys; with a budget and no batches, the largest within it, and an empty row
/// with what stops it for a network and GPU where no batch keeps it.
pub(super) fn csv(c: &Comparison) -> Result<String, serde_json::Error> {
    let mut text = String::new();
    let mut keys = ["network", "gpu", "stopped_by"].map(String::from).to_vec();
    for (i, e) in c.shown().into_iter().enumerate() {
        let value = serde_json::to_value(row(c, e))?;
        if let Some(row) = value.as_object().filter(|_| i == 0) {
            keys = row.keys().cloned().collect();
        }
        record::csv_line(&mut text, &value, &[]);
    }
    for l in c.largest.iter().filter(|l| l.entry.is_none()) {
        let value = |key: &String| match key.as_str() {
            "network" => l.network.as_str().into(),
            "gpu" => l.gpu.as_str().into(),
            "stopped_by" => l.stopped.to_string().into(),
            _ => serde_json::Value::Null,
        };
        let row = keys.iter().map(|key| (key.clone(), value(key))).collect::<serde_json::Map<_, _>>().into();
        record::csv_line(&mut text, &row, &[]);
    }
    Ok(text)
}
