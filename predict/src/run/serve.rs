//! `predict serve`

use super::progress;
use crate::args::{ServeArgs, ServeOver};
use crate::ask::{self, Beside, Coming, Progress, Serving};
use crate::failure::Failure;
use crate::session::Session;
use anyhow::anyhow;
use indicatif::ProgressBar;
use joulecast_ask::capacity::{Goal, PlanFile, Tariff};
use joulecast_ask::serving::{Counted, Demand, Engine, FILLINGS, SPANS, Target};
use joulecast_model::base::units::Watts;
use joulecast_reports::given;
use joulecast_reports::serving::Priced;
use std::io::Write as _;
use std::ops::RangeInclusive;
use std::sync::OnceLock;

/// More requests than anybody waits for.
const MOST_REQUESTS: u64 = 10_000_000;
/// Requests where nobody says how many, or more where a replica is not full before they are over; of users who begin at once as
/// many for each as fill it, and count.
const USUAL_REQUESTS: u64 = 2000;
const USUAL_OF_USER: u64 = (FILLINGS + SPANS + 1) as u64;
const FEWEST_OF_USER: u64 = Counted::FEWEST_OF_USER as u64;
/// Rates per second at which requests come too seldom for their times to be told apart, or oftener than any replica answers.
const RATES: RangeInclusive<f64> = 1e-6..=1e6;

impl ServeArgs {
    /// How many requests are simulated.
    fn how_many(&self) -> Result<u64, Failure> {
        let users = self.concurrency.unwrap_or(0);
        let requests = self.requests.unwrap_or(USUAL_REQUESTS.max(users.saturating_mul(USUAL_OF_USER)));
        if requests > MOST_REQUESTS {
            return Err(Failure::usage(format_args!("--requests: at most {MOST_REQUESTS}")));
        }
        if requests < users.saturating_mul(FEWEST_OF_USER) {
            return Err(Failure::usage(format_args!(
                "--requests {requests}: users who begin at once say nothing of a usual load before they sent {FEWEST_OF_USER} each: at least {} of {users}",
                users.saturating_mul(FEWEST_OF_USER)
            )));
        }
        Ok(requests)
    }

    /// What is to be served.
    pub fn serving(&self) -> Result<Serving, Failure> {
        let demand = match (&self.trace, self.prompt, self.answer) {
            (Some(path), _, _) => {
                let text = given::text(path).map_err(Failure::failed)?;
                Demand::trace(&path.display().to_string(), &text).map_err(Failure::failed)?
            }
            (None, Some(prompt), Some(answer)) => {
                let requests = self.how_many()? as usize;
                let drawn = if self.requests.is_some() { Demand::poisson } else { Demand::at_least };
                drawn(requests, prompt, answer, self.seed)
            }
            _ => {
                return Err(Failure::usage("how long are prompts and answers? --prompt and --answer, or --trace FILE"));
            }
        };
        if self.rate.is_some_and(|rate| !RATES.contains(&rate)) {
            let (least, most) = (RATES.start(), RATES.end());
            return Err(Failure::usage(format_args!("--rate: from {least} to {most} requests a second")));
        }
        let target = Target { to_first: self.ttft, per_token: self.tpot, which: self.quantile };
        let is_burst = demand.recorded().is_some_and(f64::is_infinite);
        let asks_for_rate = self.rate.is_some() || target.to_first.is_some() || target.per_token.is_some();
        if let (Some(path), true, true) = (&self.trace, is_burst, asks_for_rate) {
            return Err(Failure::usage(format_args!(
                "all requests of {} come at one time, which has no rate: leave out --rate, --ttft and --tpot",
                path.display()
            )));
        }
        let coming = match (self.concurrency, self.rate.or(demand.recorded())) {
            (Some(users), _) => Coming::Users(users as usize),
            _ if is_burst => Coming::Burst,
            _ if target.to_first.is_some() || target.per_token.is_some() => Coming::Within(target),
            (None, Some(rate)) => Coming::Rate(rate),
            (None, None) => {
                return Err(Failure::usage(
                    "which load? --rate, --concurrency or --trace, or a target: --ttft, --tpot",
                ));
            }
        };
        let lengths = match (&self.trace, self.prompt, self.answer) {
            (Some(path), _, _) => format!("requests of {}", path.display()),
            (None, Some(prompt), Some(answer)) => format!("prompts of {prompt} tokens, answers of {answer}"),
            _ => String::new(),
        };
        let described = match coming {
            Coming::Rate(rate) if self.trace.is_some() => format!("{lengths}, {rate:.4} a second"),
            Coming::Burst => format!("{lengths}, all at one time"),
            Coming::Rate(rate) => format!("{rate} requests/s (Poisson), {lengths}"),
            Coming::Users(users) => format!("{users} users who wait for their answers, {lengths}"),
            Coming::Within(_) => lengths,
        };
        Ok(Serving {
            demand,
            described,
            seed: self.seed,
            coming,
            engine: Engine {
                tokens: self.max_num_batched_tokens,
                sequences: self.max_num_seqs,
                block: self.block_size,
                memory: self.gpu_memory_utilization,
                chunked: (self.enable_chunked_prefill || self.no_chunked_prefill)
                    .then_some(self.enable_chunked_prefill),
                reserve: !self.no_scheduler_reserve_full_isl,
            },
            apart: self.disaggregate,
            priced: self.priced()?,
            objective: self.objective.map(|goal| (goal, self.quantile)),
            over: Beside {
                caps: self.over.contains(&ServeOver::Cap),
                clocks: self.over.contains(&ServeOver::Clock),
                layouts: self.over.contains(&ServeOver::Layout),
                stages: self.over.contains(&ServeOver::Stages),
                copies: self.over.contains(&ServeOver::Replicas),
                sequences: self.over.contains(&ServeOver::Seqs),
                tokens: self.over.contains(&ServeOver::Tokens),
            },
        })
    }
}

impl ServeArgs {
    /// What GPUs and electricity cost.
    fn priced(&self) -> Result<Option<Priced>, Failure> {
        let Some(path) = &self.prices else {
            let of = |per_gpu_hour| {
                let (per_kwh, overhead) = (self.price_kwh.unwrap_or(0.0), Watts::ZERO);
                Priced { tariff: Tariff { per_gpu_hour, per_kwh, pue: self.pue, overhead }, currency: None }
            };
            if self.price.is_none() && self.objective == Some(Goal::Cost) {
                return Err(Failure::usage(
                    "--objective cost: what does a GPU cost? --price 2.5 an hour, or --prices PLAN.toml, as predict plan reads it",
                ));
            }
            return Ok(self.price.map(of));
        };
        let called = |why: anyhow::Error| Failure::Failed(why.context(path.display().to_string()));
        let plan = PlanFile::from_toml(&given::text(path).map_err(Failure::failed)?).map_err(|e| called(e.into()))?;
        let gpu = self.typed_gpu();
        let Some(candidate) = plan.candidates.iter().find(|c| c.gpu == gpu) else {
            let known: Vec<&str> = plan.candidates.iter().map(|c| c.gpu.as_str()).collect();
            let why = anyhow!("no price of {gpu}, only of {}: add a [[candidate]], or give --price", known.join(", "));
            return Err(called(why));
        };
        let tariff = Tariff::of(candidate.price, &candidate.server, &plan.site);
        Ok(Some(Priced { tariff, currency: Some(plan.currency) }))
    }
}

/// How much there is to wait for, before it is simulated. A search asks for some ten rates of each setting, and as many at both
/// ends of its interval.
fn told(settings: usize, searches: bool) -> String {
    let rates = if searches { ", each at some thirty rates to find the highest that keeps the target" } else { "" };
    format!("{settings} settings are simulated{rates}")
}

/// Simulates and prints; that no setting carries the load is a failure, all the same.
pub fn serve(session: &Session, args: &ServeArgs) -> Result<(), Failure> {
    args.output.check([])?;
    let bar = OnceLock::new();
    let serving = args.serving()?;
    let searches = matches!(serving.coming, Coming::Within(_));
    let tell = |Progress { done, all }: Progress| {
        let begin = || {
            if all > 1 {
                // Who closed standard error wants to know nothing.
                let _ = writeln!(std::io::stderr(), "{}", told(all, searches));
            }
            progress::bar(all as u64, "settings", "", all > 1)
        };
        let bar: &ProgressBar = bar.get_or_init(begin);
        bar.set_position(done as u64);
    };
    let served = ask::serve_telling(session, &args.request()?, &serving, &tell);
    if let Some(bar) = bar.get() {
        bar.finish_and_clear();
    }
    let served = served?;
    args.output.export(&served, args.format)?;
    served.unserved().map_or(Ok(()), |why| Err(Failure::Failed(anyhow!(why))))
}
