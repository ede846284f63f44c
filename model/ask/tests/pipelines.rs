//! Pipelines and replicas side by side, against closed forms and against a second and plain simulator.

use joulecast_ask::serving::{
    Demand, Group, Lengths, Limits, Load, Replica, Request, Run, StepCost, StepWork, Steps, Summary, saturated,
    simulate, simulate_copies,
};
use joulecast_model::base::units::{Joules, Seconds, Watts};
use joulecast_model::step::framework::Scheduling;
use proptest::prelude::*;

/// Stages of which a step takes so many seconds, and a new token so many more.
#[derive(Clone)]
struct Staged {
    step: Vec<f64>,
    token: Vec<f64>,
}

/// Watts while computing prompts, answers, and of all stages while they wait.
const DRAWN: (f64, f64, f64) = (600.0, 400.0, 300.0);

impl Staged {
    fn time(&self, stage: usize, tokens: u64) -> f64 {
        self.step[stage] + self.token[stage] * tokens as f64
    }
}

impl Replica for Staged {
    fn step(&self, work: &StepWork) -> StepCost {
        (0..self.stages()).fold(StepCost::default(), |sum, stage| sum.plus(self.stage(stage, work)))
    }

    fn stages(&self) -> usize {
        self.step.len()
    }

    fn stage(&self, stage: usize, work: &StepWork) -> StepCost {
        let (prompts, answers) = (work.prompt_tokens() as f64, work.decodes as f64);
        StepCost {
            time: Seconds::new(self.time(stage, work.tokens())),
            prefill: Joules::new(DRAWN.0 * self.token[stage] * prompts),
            decode: Joules::new(DRAWN.1 * self.token[stage] * answers),
            waiting: Joules::new(DRAWN.2 / self.stages() as f64 * self.step[stage]),
        }
    }

    fn waiting(&self) -> Watts {
        Watts::new(DRAWN.2)
    }
}

fn staged(step: &[f64], token: f64) -> Staged {
    Staged { step: step.to_vec(), token: vec![token; step.len()] }
}

fn limits() -> Limits {
    Limits {
        rule: Scheduling::AnswersFirst,
        tokens: 512,
        sequences: 64,
        blocks: 100_000,
        block: 16,
        chunked: true,
        reserve: true,
    }
}

fn near(found: f64, expected: f64, share: f64, what: &str) {
    assert!((found / expected - 1.0).abs() < share, "{what}: {found}, expected {expected}");
}

#[test]
fn a_lone_request_goes_through_all_stages_for_every_token() {
    let replica = staged(&[1e-3, 3e-3, 2e-3], 1e-5);
    let requests = [Request { at: Seconds::new(2.0), prompt: 100, answer: 11 }];
    let run = simulate(&replica, &requests, Load::Open, &limits()).expect("runs");
    let served = run.served[0];
    near(served.to_first().get(), 6e-3 + 3.0 * 100.0 * 1e-5, 1e-9, "first token");
    near(served.per_token().expect("several").get(), 6e-3 + 3e-5, 1e-9, "each token");
    // A stage works while the two others wait, each with a third of the power.
    near(run.whole.busy / run.whole.span, 1.0 / 3.0, 1e-9, "busy");
    let computing = 3e-5 * (DRAWN.0 * 100.0 + DRAWN.1 * 10.0);
    let steps = DRAWN.2 / 3.0 * 6e-3 * 11.0;
    let resting = DRAWN.2 * 2.0 / 3.0 * run.whole.span.get();
    near(run.whole.energy.total().get(), computing + steps + resting, 1e-9, "joules");
}

#[test]
fn a_prompt_s_chunks_follow_each_other_through_the_stages() {
    let replica = staged(&[1e-3, 1e-3, 1e-3, 1e-3], 1e-5);
    let requests = [Request { at: Seconds::ZERO, prompt: 4 * 512, answer: 1 }];
    let run = simulate(&replica, &requests, Load::Open, &limits()).expect("runs");
    // Four chunks through four stages: seven times what one takes in one.
    near(run.served[0].to_first().get(), 7.0 * (1e-3 + 512.0 * 1e-5), 1e-9, "first token");
}

/// A token takes so many seconds for each one before it.
struct Attends(f64);

impl Replica for Attends {
    fn step(&self, work: &StepWork) -> StepCost {
        let one = self.stage(0, work);
        one.plus(one)
    }

    fn stages(&self) -> usize {
        2
    }

    fn stage(&self, _: usize, work: &StepWork) -> StepCost {
        let before: u64 = work.cached + work.chunks.iter().map(|chunk| chunk.cached).sum::<u64>();
        StepCost { time: Seconds::new(1e-3 + self.0 * before as f64), ..StepCost::default() }
    }

    fn waiting(&self) -> Watts {
        Watts::new(1.0)
    }
}

#[test]
fn a_chunk_attends_to_those_that_are_still_under_way() {
    let requests = [Request { at: Seconds::ZERO, prompt: 4 * 512, answer: 2 }];
    let run = simulate(&Attends(1e-6), &requests, Load::Open, &limits()).expect("runs");
    let chunk = |i: u64| 1e-3 + 1e-6 * (512 * i) as f64;
    // Each takes longer than the one before it, so that the second stage waits for every one.
    let first = (0..4).map(chunk).sum::<f64>() + chunk(3);
    near(run.served[0].to_first().get(), first, 1e-9, "first token");
    near(run.served[0].to_last().get(), first + 2.0 * chunk(4), 1e-9, "second token");
}

#[test]
fn a_saturated_pipeline_is_as_fast_as_its_slowest_stage() {
    for step in [vec![1e-3, 4e-3, 2e-3], vec![5e-3, 1e-3], vec![2e-3; 4]] {
        let slowest = step.iter().copied().fold(0.0, f64::max);
        let replica = staged(&step, 2e-6);
        // Prompts that fill a step each.
        let prompts = Demand::poisson(500, Lengths::Constant(512), Lengths::Constant(1), 1);
        let most = saturated(&replica, prompts.requests(), &limits()).expect("runs");
        near(most, 1.0 / (slowest + 512.0 * 2e-6), 0.02, "prompts");
        // So many sequences that each step has its part of them.
        let stages = step.len() as u64;
        let few = Limits { tokens: 16, sequences: 16 * stages, ..limits() };
        let answers = Demand::poisson(2000, Lengths::Constant(1), Lengths::Constant(200), 1);
        let most = saturated(&replica, answers.requests(), &few).expect("runs");
        near(most * 200.0, 16.0 / (slowest + 16.0 * 2e-6), 0.02, "answers");
    }
}

#[test]
fn what_fits_in_one_step_stays_in_it() {
    // As vLLM does it: users whose prompts came together get their tokens together, and one stage works at a time.
    let replica = staged(&[2e-3, 2e-3], 1e-6);
    let demand = Demand::poisson(400, Lengths::Constant(10), Lengths::Constant(50), 1);
    let run = simulate(&replica, demand.requests(), Load::Closed(20), &limits()).expect("runs");
    let summary = Summary::of(&run).expect("counts");
    near(summary.busy, 0.5, 0.02, "busy");
    near(summary.batch, 20.0, 0.02, "sequences of a step");
}

#[test]
fn steady_arrivals_slower_than_the_slowest_stage_wait_for_nobody() {
    let replica = staged(&[1e-3, 4e-3, 2e-3], 0.0);
    let at = |i: usize| Seconds::new(8e-3 * i as f64);
    let requests: Vec<Request> = (0..200).map(|i| Request { at: at(i), prompt: 100, answer: 1 }).collect();
    let summary = Summary::of(&simulate(&replica, &requests, Load::Open, &limits()).expect("runs")).expect("counts");
    near(summary.to_first.p99.get(), 7e-3, 1e-9, "first token");
    near(summary.busy, 7.0 / 8.0 / 3.0, 1e-6, "busy");
    near(summary.requests_per_s, 125.0, 1e-6, "requests");
}

/// A second simulator: sequences in a list, each looked at in every step. No cache runs out.
fn plainly(replica: &Staged, requests: &[Request], limits: &Limits) -> Vec<(f64, f64)> {
    struct Seq {
        number: usize,
        prompt_left: u64,
        prompt_flying: u64,
        answer_flying: bool,
        answer_left: u64,
    }
    let stages = replica.stages();
    let (mut now, mut next) = (requests[0].at.get(), 0);
    let mut list: Vec<Seq> = Vec::new();
    let mut times = vec![(0.0, 0.0); requests.len()];
    let mut free = vec![0.0f64; stages];
    // When each comes out, and whose tokens of prompts and answers it brings.
    let mut flights: Vec<(f64, Vec<(usize, u64)>)> = Vec::new();
    loop {
        while next < requests.len() && requests[next].at.get() <= now {
            let Request { prompt, answer, .. } = requests[next];
            list.push(Seq {
                number: next,
                prompt_left: prompt,
                prompt_flying: 0,
                answer_flying: false,
                answer_left: answer,
            });
            next += 1;
        }
        if flights.len() < stages {
            let (mut room, mut parts) = (limits.tokens, Vec::new());
            for seq in list.iter_mut().take(limits.sequences as usize) {
                let part = seq.prompt_left.min(room);
                if part > 0 {
                    (seq.prompt_left, seq.prompt_flying) = (seq.prompt_left - part, seq.prompt_flying + part);
                    parts.push((seq.number, part));
                    room -= part;
                } else if seq.prompt_left + seq.prompt_flying == 0 && !seq.answer_flying && room > 0 {
                    seq.answer_flying = true;
                    parts.push((seq.number, 1));
                    room -= 1;
                }
            }
            if !parts.is_empty() {
                let tokens = parts.iter().map(|part| part.1).sum();
                let mut ready = now;
                for (stage, free) in free.iter_mut().enumerate() {
                    ready = ready.max(*free) + replica.time(stage, tokens);
                    *free = ready;
                }
                flights.push((ready, parts));
                continue;
            }
        }
        if flights.is_empty() {
            let Some(request) = requests.get(next) else { break };
            now = request.at.get();
            continue;
        }
        let (end, parts) = flights.remove(0);
        now = now.max(end);
        for (number, part) in parts {
            let seq = list.iter_mut().find(|seq| seq.number == number).expect("is there");
            if seq.answer_flying {
                seq.answer_flying = false;
            } else {
                seq.prompt_flying -= part;
                if seq.prompt_left + seq.prompt_flying > 0 {
                    continue;
                }
                times[number].0 = now;
            }
            seq.answer_left -= 1;
            times[number].1 = now;
        }
        list.retain(|seq| seq.answer_left > 0);
    }
    times
}

#[test]
fn a_second_simulator_says_the_same() {
    for (stages, rate, tokens, sequences, seed) in
        [(2, 4.0, 512, 64, 1), (2, 40.0, 512, 64, 2), (4, 60.0, 128, 64, 3), (3, 80.0, 512, 8, 4), (8, 90.0, 64, 64, 5)]
    {
        let step: Vec<f64> = (0..stages).map(|i| 1e-3 * (1.0 + (i % 3) as f64 / 2.0)).collect();
        let replica = staged(&step, 1e-5);
        let demand = Demand::poisson(1500, Lengths::LogNormal(200, 0.8), Lengths::Uniform(1, 40), seed);
        let (requests, limits) = (demand.at_rate(rate), Limits { tokens, sequences, ..limits() });
        let run = simulate(&replica, &requests, Load::Open, &limits).expect("runs");
        let times = plainly(&replica, &requests, &limits);
        let mean = |pick: &dyn Fn(usize) -> f64| (0..requests.len()).map(pick).sum::<f64>() / requests.len() as f64;
        let at = |i: usize| requests[i].at.get();
        let what = format!("{stages} stages at {rate}");
        near(mean(&|i| run.served[i].to_first().get()), mean(&|i| times[i].0 - at(i)), 1e-6, &what);
        near(mean(&|i| run.served[i].to_last().get()), mean(&|i| times[i].1 - at(i)), 1e-6, &what);
    }
}

#[test]
fn replicas_share_what_comes_evenly() {
    let one = staged(&[3e-3], 2e-5);
    for (replica, copies, rate) in [(&one, 2, 20.0), (&one, 5, 8.0), (&staged(&[2e-3, 1e-3], 1e-5), 3, 10.0)] {
        let every = |rate: f64, n: usize| -> Vec<Request> {
            (0..n).map(|i| Request { at: Seconds::new(i as f64 / rate), prompt: 300, answer: 20 }).collect()
        };
        let of = |requests: &[Request], copies| {
            let run = simulate_copies(replica, requests, Load::Open, &limits(), copies).expect("runs");
            Summary::of(&run).expect("counts")
        };
        let (alone, all) = (of(&every(rate, 800), 1), of(&every(rate * copies as f64, 800 * copies), copies));
        let n = copies as f64;
        near(all.to_first.p90.get(), alone.to_first.p90.get(), 1e-6, "first token");
        near(all.to_last.mean.get(), alone.to_last.mean.get(), 1e-6, "last token");
        near(all.busy, alone.busy, 0.02, "busy");
        near(all.batch, alone.batch, 0.02, "sequences of a step");
        near(all.power.get(), n * alone.power.get(), 0.02, "power");
        near(all.tokens_per_s, n * alone.tokens_per_s, 0.02, "tokens");
        near(all.per_answer_token.get(), alone.per_answer_token.get(), 0.02, "joules for each token");
        let steps = |copies| {
            Steps {
                replica,
                limits: &limits(),
                demand: &Demand::poisson(200, Lengths::Constant(300), Lengths::Constant(20), 1),
                group: Group::Alike(copies),
            }
            .most()
            .expect("runs")
        };
        near(steps(copies), n * steps(1), 1e-9, "carried");
    }
}

#[test]
fn users_keep_to_their_replica() {
    let replica = staged(&[3e-3], 2e-5);
    let demand = Demand::poisson(3000, Lengths::Constant(100), Lengths::Constant(30), 1);
    let of = |users, copies| {
        let run = simulate_copies(&replica, demand.requests(), Load::Closed(users), &limits(), copies).expect("runs");
        assert!(run.served.windows(2).all(|w| w[0].arrived <= w[1].arrived), "in the order of arrival");
        Summary::of(&run).expect("counts")
    };
    let (alone, three) = (of(8, 1), of(24, 3));
    near(three.requests_per_s, 3.0 * alone.requests_per_s, 0.02, "requests");
    near(three.power.get(), 3.0 * alone.power.get(), 0.02, "power");
    near(three.to_last.mean.get(), alone.to_last.mean.get(), 0.02, "last token");
    // Seven users of two replicas: four of one, three of the other.
    near(of(7, 2).requests_per_s, of(4, 1).requests_per_s + of(3, 1).requests_per_s, 0.02, "seven of two");
    // Two users of five replicas: three of these wait.
    let idle = of(2, 5);
    near(idle.requests_per_s, 2.0 * of(1, 1).requests_per_s, 0.02, "two of five");
    near(idle.busy, 0.4, 0.02, "busy");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Every token is made once, joules are the sum of their parts, and every number is one.
    #[test]
    fn nothing_is_lost(
        (stages, copies) in (1usize..5, 1usize..4),
        (prompt, answer) in ((1u64..300, 0u64..300), (1u64..60, 0u64..60)),
        (count, seed, rate) in (1usize..120, 0u64..1000, 0.01..1e4f64),
        (tokens, sequences, block, spare) in (1u64..1000, 1u64..40, 1u64..40, 0u64..100),
        (chunked, reserve, users) in (any::<bool>(), any::<bool>(), 0usize..30),
        rule in proptest::sample::select(&[Scheduling::AnswersFirst, Scheduling::WholeAnswers][..]),
    ) {
        let step: Vec<f64> = (0..stages).map(|i| 1e-3 * (1 + i % 3) as f64).collect();
        let replica = staged(&step, 1e-5);
        let lengths = |(low, more)| Lengths::Uniform(low, low + more);
        let demand = Demand::poisson(count, lengths(prompt), lengths(answer), seed);
        let blocks = demand.longest().div_ceil(block) + spare;
        let tokens = if chunked { tokens } else { tokens.max(demand.longest()) };
        let limits = Limits { rule, tokens, sequences, blocks, block, chunked, reserve };
        let load = if users == 0 { Load::Open } else { Load::Closed(users) };
        let requests = demand.at_rate(rate);
        let run: Run = simulate_copies(&replica, &requests, load, &limits, copies).expect("it fits");
        let close = |a: f64, b: f64| (a - b).abs() <= 1e-6 * a.abs().max(b.abs());
        prop_assert_eq!(run.served.len(), count);
        prop_assert!(close(run.whole.finished, count as f64));
        prop_assert!(close(run.whole.answer_tokens, requests.iter().map(|r| r.answer).sum::<u64>() as f64));
        let prompts = requests.iter().map(|r| r.prompt).sum::<u64>() as f64;
        prop_assert!(run.whole.prompt_tokens >= prompts * (1.0 - 1e-9));
        prop_assert!(run.preemptions > 0 || close(run.whole.prompt_tokens, prompts));
        for served in &run.served {
            prop_assert!(served.arrived < served.first && served.first <= served.last);
        }
        let end = run.served.iter().map(|s| s.last.get()).fold(0.0, f64::max);
        let start = run.served.iter().map(|s| s.arrived.get()).fold(f64::MAX, f64::min);
        prop_assert!(close(run.whole.span.get(), end - start));
        // Of all the time of all stages what they do not compute in.
        let computing = run.whole.energy.prefill.get() / DRAWN.0 + run.whole.energy.decode.get() / DRAWN.1;
        let waiting = run.whole.span.get() * copies as f64 - computing / stages as f64;
        prop_assert!(close(run.whole.energy.idle.get(), DRAWN.2 * waiting), "{} and {}", run.whole.energy.idle, waiting);
        prop_assert!(run.counted.energy.total() <= run.whole.energy.total() * (1.0 + 1e-9));
        prop_assert!(run.counted.span <= run.whole.span * (1.0 + 1e-9));
        if let Some(summary) = Summary::of(&run) {
            let numbers = [summary.requests_per_s, summary.tokens_per_s, summary.busy, summary.batch, summary.queue,
                summary.power.get(), summary.per_request.get(), summary.to_last.p99.get(), summary.to_first.mean.get()];
            prop_assert!(numbers.iter().all(|n| n.is_finite() && *n >= 0.0), "{:?}", summary);
            prop_assert!(summary.busy <= 1.0 + 1e-9);
        }
    }
}
