//! `predict serve`

use crate::args::{ServeArgs, ServeOver};
use crate::ask::{self, Beside, Coming, Serving};
use crate::failure::Failure;
use crate::session::Session;
use joulecast_model::ask::serving::{Demand, Engine, Target};
use joulecast_reports::given;

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
                chunked: !self.no_chunked_prefill,
            },
            apart: self.disaggregate,
            over: Beside {
                caps: self.over.contains(&ServeOver::Cap),
                clocks: self.over.contains(&ServeOver::Clock),
                layouts: self.over.contains(&ServeOver::Layout),
                sequences: self.over.contains(&ServeOver::Seqs),
            },
        })
    }
}

/// Simulates and prints.
pub fn serve(session: &Session, args: &ServeArgs) -> Result<(), Failure> {
    args.output.check([])?;
    let served = ask::serve(session, &args.request()?, &args.serving()?)?;
    args.output.export(&served, args.format)
}
