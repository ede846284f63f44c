//! Prompts and answers on replicas of their own: a pool computes prompts, keys and values go over an interconnect, another pool
//! makes the answers. Each pool's replicas take requests in turn.

use super::ServingError;
use super::copies::{SideBySide, span_of};
use super::replica::Replica;
use super::requests::Request;
use super::scheduler::Limits;
use super::simulate::{Counted, Load, Part, Run, Served, saturated_part, simulate_part};
use joulecast_model::base::order::sort_by;
use joulecast_model::base::units::{Bytes, Seconds};
use joulecast_model::step::parallel::Fabric;

/// How prompts and answers are shared out.
#[derive(Clone, Debug, PartialEq)]
pub struct Pools {
    /// Replicas that compute prompts, at least one.
    pub prefill: usize,
    /// Replicas that make answers, at least one.
    pub decode: usize,
    /// What joins them.
    pub fabric: Fabric,
    /// Keys and values of a token.
    pub per_token: Bytes,
}

/// Requests of a pool's replica, with their numbers among all.
fn share(requests: &[(usize, Request)], replica: usize, replicas: usize) -> Vec<(usize, Request)> {
    requests.iter().skip(replica).step_by(replicas).copied().collect()
}

impl Pools {
    /// How long the cache of a prompt is under way.
    fn transfer(&self, prompt: u64) -> Seconds {
        self.fabric.send(Bytes::new(self.per_token.get().saturating_mul(prompt)))
    }

    /// Simulates requests until all are answered. A prompt's first token comes with it.
    ///
    /// # Errors
    /// When a request does not fit in the cache of a replica, or there is none.
    pub fn simulate(&self, replica: &impl Replica, requests: &[Request], limits: &Limits) -> Result<Run, ServingError> {
        self.simulate_filled(replica, requests, limits, 0)
    }

    /// As [`Self::simulate`], after so many requests that fill the replicas.
    pub(super) fn simulate_filled(
        &self,
        replica: &impl Replica,
        requests: &[Request],
        limits: &Limits,
        filling: usize,
    ) -> Result<Run, ServingError> {
        super::simulate::check(requests, limits)?;
        let of = Counted::after(filling, requests.len(), Load::Open);
        let mut served: Vec<Served> =
            requests.iter().map(|r| Served { arrived: r.at, first: r.at, last: r.at, answer: r.answer }).collect();
        // Nobody is waited for: whoever comes first at the second pool begins there first.
        let prompts: Vec<(usize, Request)> = requests.iter().map(|r| Request { answer: 1, ..*r }).enumerate().collect();
        let no_end = Seconds::new(f64::MAX);
        let mut side = SideBySide::default();
        let mut pool = |all: &[(usize, Request)], replicas: usize, cached: bool, served: &mut Vec<Served>| {
            for i in 0..replicas {
                let (numbers, part): (Vec<usize>, Vec<Request>) = share(all, i, replicas).into_iter().unzip();
                if part.is_empty() {
                    continue;
                }
                let part_of = Part { cached, span: Some(span_of(requests, &of, no_end)), ..Part::default() };
                let run = simulate_part(replica, &part, Load::Open, limits, part_of)?;
                for (&number, found) in numbers.iter().zip(&run.served) {
                    if !cached {
                        served[number].first = found.last;
                    }
                    served[number].last = found.last;
                }
                side.add(&run);
            }
            Ok::<_, ServingError>(())
        };
        pool(&prompts, self.prefill, false, &mut served)?;
        let mut answers: Vec<(usize, Request)> = Vec::with_capacity(requests.len());
        for (number, request) in requests.iter().enumerate().filter(|(_, r)| r.answer > 1) {
            let at = served[number].first + self.transfer(request.prompt);
            answers.push((number, Request { at, ..*request }));
        }
        sort_by(&mut answers, |a, b| a.1.at.get().total_cmp(&b.1.at.get()));
        if !answers.is_empty() {
            pool(&answers, self.decode, true, &mut served)?;
        }
        let start = requests[0].at;
        let end = served.iter().fold(start, |end, s| end.max(s.last));
        let replicas = self.prefill + self.decode;
        let counted = span_of(requests, &of, end);
        let (mut whole, mut counted) = side.books((replica.waiting(), replicas), (start, end), counted);
        // A request is answered once, though both pools say so.
        (whole.finished, counted.finished) = (requests.len() as f64, (of.until - of.from) as f64);
        Ok(Run { served, whole, counted, of, replicas, preemptions: side.preemptions })
    }

    /// Requests a second that both pools carry at most: the least of what each carries.
    ///
    /// # Errors
    /// As [`Self::simulate`].
    pub fn saturated(
        &self,
        replica: &impl Replica,
        requests: &[Request],
        limits: &Limits,
    ) -> Result<f64, ServingError> {
        let prompts: Vec<Request> = requests.iter().map(|r| Request { answer: 1, ..*r }).collect();
        let prefill = self.prefill as f64 * saturated_part(replica, &prompts, limits, false)?;
        let answers: Vec<Request> = requests.iter().copied().filter(|r| r.answer > 1).collect();
        if answers.is_empty() {
            return Ok(prefill);
        }
        let share = answers.len() as f64 / requests.len() as f64;
        let decode = self.decode as f64 * saturated_part(replica, &answers, limits, true)? / share;
        Ok(prefill.min(decode))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serving::{Demand, Lengths, StepCost, StepWork, Summary, simulate};
    use joulecast_model::base::units::Joules;
    use joulecast_model::base::units::Watts;
    use joulecast_model::catalog;

    struct Toy;

    impl Replica for Toy {
        fn step(&self, work: &StepWork) -> StepCost {
            let (prompt, decode) = (2e-5 * work.prompt_tokens() as f64, 4e-5 * work.decodes as f64);
            StepCost {
                time: Seconds::new(2e-3 + prompt + decode),
                prefill: Joules::new(600.0 * prompt),
                decode: Joules::new(400.0 * decode),
                waiting: Joules::new(0.2),
            }
        }

        fn waiting(&self) -> Watts {
            Watts::new(100.0)
        }
    }

    const LIMITS: Limits = Limits { tokens: 2048, sequences: 64, blocks: 10_000, ..Limits::AMPLE };

    fn pools(prefill: usize, decode: usize) -> Pools {
        let fabric = catalog::interconnect("nvlink4").expect("shipped").into();
        Pools { prefill, decode, fabric, per_token: Bytes::new(131_072) }
    }

    #[test]
    fn a_lone_request_takes_its_prompt_its_transfer_and_its_answer() {
        let requests = [Request { at: Seconds::new(3.0), prompt: 1000, answer: 11 }];
        let run = pools(1, 1).simulate(&Toy, &requests, &LIMITS).expect("runs");
        let [served] = run.served[..] else { panic!("one") };
        let near = |a: Seconds, b: f64| assert!((a.get() - b).abs() < 1e-9, "{a} and {b}");
        near(served.to_first(), 2e-3 + 0.02);
        let sent = 36.6e-6 + 3.4e-6 + 131_072.0 * 1000.0 / 347e9;
        near(served.to_last(), 2e-3 + 0.02 + sent + 10.0 * (2e-3 + 4e-5));
        assert_eq!((run.whole.finished, run.whole.answer_tokens, run.whole.prompt_tokens), (1.0, 11.0, 1000.0));
        // Each waits while the other computes.
        let waited = 100.0 * 2.0 * run.whole.span.get() - 100.0 * (0.02 + 10.0 * 4e-5);
        assert!((run.whole.energy.idle.get() - waited).abs() < 1e-6, "{} and {waited}", run.whole.energy.idle);
    }

    #[test]
    fn answers_go_on_without_prompts_between_their_tokens() {
        let demand = Demand::poisson(600, Lengths::Uniform(500, 4000), Lengths::Uniform(1, 200), 4);
        let requests = demand.at_rate(10.0);
        let apart = Summary::of(&pools(1, 1).simulate(&Toy, &requests, &LIMITS).expect("runs")).expect("counts");
        let together = Summary::of(&simulate(&Toy, &requests, Load::Open, &LIMITS).expect("runs")).expect("counts");
        let p90 = |s: &Summary| s.per_token.map_or(0.0, |q| q.p90.get());
        assert!(p90(&apart) < 0.5 * p90(&together), "{} and {}", p90(&apart), p90(&together));
        assert!((apart.requests_per_s / together.requests_per_s - 1.0).abs() < 1e-9);
        assert!((apart.tokens_per_s / together.tokens_per_s - 1.0).abs() < 0.02);
    }

    #[test]
    fn the_scarcer_pool_bounds_the_rate() {
        let demand = Demand::poisson(500, Lengths::Constant(4000), Lengths::Constant(50), 4);
        let most = |prefill, decode| pools(prefill, decode).saturated(&Toy, demand.requests(), &LIMITS).expect("runs");
        let (one, two, more) = (most(1, 1), most(2, 1), most(1, 2));
        assert!((two / one - 2.0).abs() < 0.01 && (more / one - 1.0).abs() < 0.01, "{one} {two} {more}");
    }
}
