//! `predict serve`

use crate::args::{ServeArgs, ServeOver};
use crate::ask::{self, Beside, Coming, Serving};
use crate::failure::Failure;
use crate::session::Session;
use anyhow::anyhow;
use joulecast_model::ask::capacity::{Goal, PlanFile, Tariff};
use joulecast_model::ask::serving::{Demand, Engine, Target};
use joulecast_model::base::units::Watts;
use joulecast_reports::given;
use joulecast_reports::serving::Priced;

/// More requests than anybody waits for.
const MOST_REQUESTS: u64 = 10_000_000;

impl ServeArgs {
    /// What is to be served.
    pub fn serving(&self) -> Result<Serving, Failure> {
        let demand = match (&self.trace, self.prompt, self.answer) {
            (Some(path), _, _) => {
                let text = given::text(path).map_err(Failure::failed)?;
                Demand::trace(&path.display().to_string(), &text).map_err(Failure::failed)?
            }
            (None, Some(prompt), Some(answer)) => {
                if self.requests > MOST_REQUESTS {
                    return Err(Failure::usage(format_args!("--requests: at most {MOST_REQUESTS}")));
                }
                Demand::poisson(self.requests as usize, prompt, answer, self.seed)
            }
            _ => {
                return Err(Failure::usage("how long are prompts and answers? --prompt and --answer, or --trace FILE"));
            }
        };
        let target = Target { to_first: self.ttft, per_token: self.tpot, which: self.quantile };
        let coming = match (self.concurrency, self.rate.or(demand.recorded())) {
            (Some(users), _) => Coming::Users(users as usize),
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

/// Simulates and prints.
pub fn serve(session: &Session, args: &ServeArgs) -> Result<(), Failure> {
    args.output.check([])?;
    let served = ask::serve(session, &args.request()?, &args.serving()?)?;
    args.output.export(&served, args.format)
}
