//! The keys of `serving/1`.

use super::{At, Priced, Served};
use crate::warnings::words;
use joulecast_ask::capacity::Tariff;
use joulecast_ask::serving::{Outlook, Quantiles, Split, Summary};
use joulecast_model::base::units::Seconds;
use serde::Serialize;
use serde_json::Value;

#[derive(Serialize)]
struct Times {
    mean: f64,
    p50: f64,
    p90: f64,
    p99: f64,
}

impl Times {
    fn of(q: &Quantiles) -> Self {
        let [mean, p50, p90, p99] = [q.mean, q.p50, q.p90, q.p99].map(Seconds::get);
        Self { mean, p50, p90, p99 }
    }
}

#[derive(Serialize)]
struct Shares {
    prefill: f64,
    decode: f64,
    idle: f64,
}

impl Shares {
    fn of(split: &Split) -> Self {
        let share = |part| part / split.total();
        Self { prefill: share(split.prefill), decode: share(split.decode), idle: share(split.idle) }
    }
}

#[derive(Serialize)]
pub(super) struct Figures {
    simulated_requests: usize,
    counted_requests: usize,
    counted_span_s: f64,
    time_to_first_token_s: Times,
    time_per_token_s: Option<Times>,
    end_to_end_s: Times,
    requests_per_s: f64,
    tokens_per_s: f64,
    prompt_tokens_per_s: f64,
    busy: f64,
    mean_batch: f64,
    mean_waiting: f64,
    mean_blocks: f64,
    preemptions_per_request: f64,
    queue_grows: bool,
    power_w: f64,
    energy_per_token_j: f64,
    energy_per_request_j: f64,
    energy_shares: Shares,
    cost_per_hour: Option<f64>,
    cost_per_million_tokens: Option<f64>,
}

impl Figures {
    pub(super) fn of(s: &Summary, gpus: u64, tariff: Option<&Tariff>) -> Self {
        let per_hour = |tariff: &Tariff| {
            let (hardware, electricity) = tariff.per_hour(gpus, s.power);
            hardware + electricity
        };
        Self {
            simulated_requests: s.simulated,
            counted_requests: s.requests,
            counted_span_s: s.span.get(),
            time_to_first_token_s: Times::of(&s.to_first),
            time_per_token_s: s.per_token.as_ref().map(Times::of),
            end_to_end_s: Times::of(&s.to_last),
            requests_per_s: s.requests_per_s,
            tokens_per_s: s.tokens_per_s,
            prompt_tokens_per_s: s.prompt_tokens_per_s,
            busy: s.busy,
            mean_batch: s.batch,
            mean_waiting: s.queue,
            mean_blocks: s.blocks,
            preemptions_per_request: s.preemptions,
            queue_grows: s.grows,
            power_w: s.power.get(),
            energy_per_token_j: s.per_answer_token.get(),
            energy_per_request_j: s.per_request.get(),
            energy_shares: Shares::of(&s.energy_per_s),
            cost_per_hour: tariff.map(per_hour),
            cost_per_million_tokens: tariff.map(|tariff| tariff.per_million(gpus, s)),
        }
    }
}

#[derive(Serialize)]
pub(super) struct Point {
    gpus: u64,
    tensor_parallel: u64,
    pipeline_parallel: u64,
    expert_parallel: u64,
    data_parallel: u64,
    max_num_seqs: u64,
    max_num_batched_tokens: u64,
    clock_mhz: Option<f64>,
    memory_clock_mhz: Option<f64>,
    power_cap_w: Option<f64>,
    rate_per_s: Option<f64>,
    /// Of the most that keep the target.
    rate_per_s_p05: Option<f64>,
    rate_per_s_p95: Option<f64>,
    /// The most that the replica carries, and what it carries if all steps take as long as their 95 and 5 % quantiles.
    most_per_s: Option<f64>,
    most_per_s_p05: Option<f64>,
    most_per_s_p95: Option<f64>,
    overloaded: Option<bool>,
    value: Option<Figures>,
    steps_p05: Option<Figures>,
    steps_p95: Option<Figures>,
}

impl Point {
    pub(super) fn of(at: &At, priced: Option<&Priced>) -> Self {
        let tariff = priced.map(|priced| &priced.tariff);
        let figures = |pick: fn(&Outlook) -> &Option<Summary>| {
            at.outlook.as_ref().and_then(|o| pick(o).as_ref()).map(|s| Figures::of(s, at.gpus, tariff))
        };
        let most = at.outlook.as_ref().map(|o| o.most);
        Self {
            gpus: at.gpus,
            tensor_parallel: at.layout.tensor(),
            pipeline_parallel: at.layout.pipeline(),
            expert_parallel: at.layout.expert(),
            data_parallel: at.layout.data(),
            max_num_seqs: at.sequences,
            max_num_batched_tokens: at.tokens,
            clock_mhz: at.point.core_clock.map(|c| c.to_mhz()),
            memory_clock_mhz: at.point.memory_clock.map(|c| c.to_mhz()),
            power_cap_w: at.point.power_cap.map(|w| w.get()),
            rate_per_s: at.rate,
            rate_per_s_p05: at.highest.map(|rate| rate.p05),
            rate_per_s_p95: at.highest.map(|rate| rate.p95),
            most_per_s: most.map(|m| m.value),
            most_per_s_p05: most.map(|m| m.p05),
            most_per_s_p95: most.map(|m| m.p95),
            overloaded: at.outlook.as_ref().map(Outlook::is_overloaded),
            value: figures(|o| &o.value),
            steps_p05: figures(|o| &o.low),
            steps_p95: figures(|o| &o.high),
        }
    }
}

#[derive(Serialize)]
struct Asked {
    time_to_first_token_s: Option<f64>,
    time_per_token_s: Option<f64>,
    of: &'static str,
}

#[derive(Serialize)]
pub(super) struct Document<'a> {
    schema: &'static str,
    network: &'a str,
    gpu: &'a str,
    tensor_interconnect: Option<&'a str>,
    precision: &'a str,
    framework: &'a str,
    load: &'a str,
    requests: usize,
    seed: u64,
    scheduling: &'static str,
    block_size: u64,
    blocks: u64,
    chunked_prefill: bool,
    scheduler_reserve_full_isl: bool,
    weights_bytes: u64,
    cache_bytes: u64,
    cache_bytes_per_token: u64,
    time_tier: String,
    power_tier: String,
    target: Option<Asked>,
    prefill_replicas: Option<usize>,
    decode_replicas: Option<usize>,
    interconnect: Option<&'a str>,
    price_per_gpu_hour: Option<f64>,
    price_per_kwh: Option<f64>,
    pue: Option<f64>,
    currency: Option<&'a str>,
    #[serde(flatten)]
    base: Point,
    points: Vec<Point>,
    best: Option<Best>,
    left_out: Vec<LeftOut>,
    warnings: Vec<String>,
}

#[derive(Serialize)]
struct Best {
    objective: &'static str,
    /// Whether intervals do not overlap those of any other setting.
    sure: bool,
    setting: Point,
}

#[derive(Serialize)]
struct LeftOut {
    tensor_parallel: u64,
    pipeline_parallel: u64,
    expert_parallel: u64,
    why: String,
}

impl Served {
    pub(super) fn document(&self) -> Document<'_> {
        let target = self.target.map(|t| Asked {
            time_to_first_token_s: t.to_first.map(Seconds::get),
            time_per_token_s: t.per_token.map(Seconds::get),
            of: t.which.name(),
        });
        Document {
            schema: "serving/1",
            network: &self.network,
            gpu: &self.gpu.0,
            tensor_interconnect: self.layout.as_ref().map(|l| l.1.as_str()),
            precision: &self.precision,
            framework: &self.framework,
            load: &self.load,
            requests: self.requests,
            seed: self.seed,
            scheduling: self.limits.rule.name(),
            block_size: self.limits.block,
            blocks: self.limits.blocks,
            chunked_prefill: self.limits.chunked,
            scheduler_reserve_full_isl: self.limits.reserve,
            weights_bytes: self.room.footprint.weights.get(),
            cache_bytes: self.room.cache.get(),
            cache_bytes_per_token: self.room.per_token.get(),
            time_tier: self.tiers.0.to_string(),
            power_tier: self.tiers.1.to_string(),
            target,
            prefill_replicas: self.pools.as_ref().map(|p| p.0),
            decode_replicas: self.pools.as_ref().map(|p| p.1),
            interconnect: self.pools.as_ref().map(|p| p.2.as_str()),
            price_per_gpu_hour: self.priced.as_ref().map(|p| p.tariff.per_gpu_hour),
            price_per_kwh: self.priced.as_ref().map(|p| p.tariff.per_kwh),
            pue: self.priced.as_ref().map(|p| p.tariff.pue),
            currency: self.priced.as_ref().and_then(|p| p.currency.as_deref()),
            base: self.point(&self.base),
            points: self.points.iter().map(|at| self.point(at)).collect(),
            best: self.objective.and_then(|objective| {
                let (at, sure) = self.best(objective)?;
                Some(Best { objective: objective.0.name(), sure, setting: self.point(at) })
            }),
            left_out: self
                .left_out
                .iter()
                .map(|(l, why)| LeftOut {
                    tensor_parallel: l.tensor(),
                    pipeline_parallel: l.pipeline(),
                    expert_parallel: l.expert(),
                    why: why.clone(),
                })
                .collect(),
            warnings: self.short().into_iter().chain(self.warnings.iter().map(words)).collect(),
        }
    }
}

/// A value with all keys of another one, null where it has none: a line of CSV has every column.
pub(super) fn with_all(columns: &Value, value: &Value) -> Value {
    match columns {
        Value::Object(keys) => keys
            .iter()
            .map(|(key, column)| (key.clone(), with_all(column, value.get(key).unwrap_or(&Value::Null))))
            .collect(),
        _ => value.clone(),
    }
}
