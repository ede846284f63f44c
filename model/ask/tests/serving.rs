//! The rehearsal of queues: simulations of a replica against closed forms, against a second and plain simulator, and what
//! holds whatever is asked.

use joulecast_ask::serving::{
    Counted, Demand, Lengths, Limits, Load, Replica, Request, Run, StepCost, StepWork, Summary, saturated, simulate,
};
use joulecast_model::base::random::Random;
use joulecast_model::base::units::{Joules, Seconds, Watts};
use joulecast_model::step::framework::Scheduling;
use proptest::prelude::*;

/// Steps of a cost that a pencil gives, in seconds: for a step, a token of a prompt, a sequence, a token that is cached.
struct Toy {
    step: f64,
    prompt: f64,
    sequence: f64,
    cached: f64,
}

/// Watts while computing prompts, answers, nothing.
const DRAWN: (f64, f64, f64) = (600.0, 400.0, 100.0);

impl Replica for Toy {
    fn step(&self, work: &StepWork) -> StepCost {
        let prefill = self.prompt * work.prompt_tokens() as f64;
        let decode = self.sequence * work.decodes as f64 + self.cached * work.cached as f64;
        StepCost {
            time: Seconds::new(self.step + prefill + decode),
            prefill: Joules::new(DRAWN.0 * prefill),
            decode: Joules::new(DRAWN.1 * decode),
            waiting: Joules::new(DRAWN.2 * self.step),
        }
    }

    fn waiting(&self) -> Watts {
        Watts::new(DRAWN.2)
    }
}

const TOY: Toy = Toy { step: 2e-3, prompt: 2e-5, sequence: 4e-5, cached: 3e-8 };

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

/// One request at a time, prompts alone, each whole.
fn single() -> Limits {
    Limits {
        rule: Scheduling::AnswersFirst,
        tokens: u64::MAX,
        sequences: 1,
        blocks: u64::MAX / 16,
        block: 16,
        chunked: false,
        reserve: true,
    }
}

fn near(found: f64, expected: f64, share: f64, what: &str) {
    assert!((found / expected - 1.0).abs() < share, "{what}: {found}, expected {expected}");
}

/// Mean time until a request's first step begins, where requests are served one by one.
fn mean_wait(run: &Run, service: impl Fn(usize) -> f64) -> f64 {
    let counted = run.of.from..run.of.until;
    let waits = counted.clone().map(|i| run.served[i].to_first().get() - service(i));
    waits.sum::<f64>() / counted.len() as f64
}

#[test]
fn a_server_of_constant_time_makes_wait_as_pollaczek_and_khinchine_say() {
    let (tokens, replica) = (1000, Toy { step: 0.0, ..TOY });
    let service = replica.prompt * tokens as f64;
    // The mean over a run scatters by 1.5 % where waits are long.
    for (load, seeds) in [(0.3, 2), (0.6, 3), (0.8, 8)] {
        let (mut wait, mut busy) = (0.0, 0.0);
        for seed in 0..seeds {
            let demand = Demand::poisson(300_000, Lengths::Constant(tokens), Lengths::Constant(1), seed);
            let run = simulate(&replica, &demand.at_rate(load / service), Load::Open, &single()).expect("runs");
            wait += mean_wait(&run, |_| service) / seeds as f64;
            busy += run.counted.busy / run.counted.span / seeds as f64;
        }
        near(wait, service * load / (2.0 * (1.0 - load)), 0.02, "M/D/1");
        near(busy, load, 0.01, "busy");
    }
}

#[test]
fn a_server_of_exponential_time_makes_wait_as_erlang_says() {
    let (load, replica, mean) = (0.6, Toy { step: 0.0, ..TOY }, 100_000.0);
    let (mut random, service) = (Random::new(11), replica.prompt * mean);
    let mut at = Seconds::ZERO;
    let mut draw = || {
        at += Seconds::new(random.exponential() * service / load);
        Request { at, prompt: (random.exponential() * mean).ceil() as u64, answer: 1 }
    };
    let requests: Vec<Request> = (0..400_000).map(|_| draw()).collect();
    let run = simulate(&replica, &requests, Load::Open, &single()).expect("runs");
    let found = mean_wait(&run, |i| requests[i].prompt as f64 * replica.prompt);
    near(found, service * load / (1.0 - load), 0.02, "M/M/1");
}

/// A second simulator: sequences in lists, each looked at in every step, blocks counted anew. Times of the first and the last
/// token of each, joules, and how often a sequence was sent back.
fn plainly(replica: &Toy, requests: &[Request], limits: &Limits) -> (Vec<(f64, f64)>, f64, u64) {
    #[derive(Clone, Copy)]
    struct Seq {
        number: usize,
        /// Tokens that are known, in the cache, and of the answer.
        known: u64,
        cached: u64,
        made: u64,
    }
    let blocks = |tokens: u64| tokens.div_ceil(limits.block);
    let (mut now, mut next, mut joules, mut sent_back) = (requests[0].at.get(), 0, 0.0, 0);
    let (mut runs, mut waits): (Vec<Seq>, Vec<Seq>) = (Vec::new(), Vec::new());
    let mut times = vec![(0.0, 0.0); requests.len()];
    while next < requests.len() || !runs.is_empty() || !waits.is_empty() {
        if runs.is_empty() && waits.is_empty() && requests[next].at.get() > now {
            joules += DRAWN.2 * (requests[next].at.get() - now);
            now = requests[next].at.get();
        }
        while next < requests.len() && requests[next].at.get() <= now {
            waits.push(Seq { number: next, known: requests[next].prompt, cached: 0, made: 0 });
            next += 1;
        }
        // What each computes in this step, by its number. Blocks that are held: of what is cached and is computed.
        let mut step: Vec<(usize, u64)> = Vec::new();
        let mut room = limits.tokens;
        let held = |runs: &[Seq], step: &[(usize, u64)]| -> u64 {
            let new = |s: &Seq| step.iter().find(|(number, _)| *number == s.number).map_or(0, |(_, new)| *new);
            runs.iter().map(|s| blocks(s.cached + new(s))).sum()
        };
        let (mut i, mut lost) = (0, false);
        'running: while i < runs.len() && room > 0 {
            let new = (runs[i].known - runs[i].cached).min(room);
            step.push((runs[i].number, new));
            while held(&runs, &step) > limits.blocks {
                let Seq { number, known, made, .. } = runs.pop().expect("somebody runs");
                waits.push(Seq { number, known, cached: 0, made });
                waits.sort_by_key(|s| s.number);
                step.retain(|(other, _)| *other != number);
                (sent_back, lost) = (sent_back + 1, true);
                if i == runs.len() {
                    break 'running;
                }
            }
            (room, i) = (room - new, i + 1);
        }
        while !lost && room > 0 && runs.len() < limits.sequences as usize && !waits.is_empty() {
            let (seq, new) = (waits[0], (waits[0].known).min(room));
            let wanted = if limits.reserve { seq.known } else { new };
            if held(&runs, &step) + blocks(wanted) > limits.blocks {
                break;
            }
            runs.push(waits.remove(0));
            runs.sort_by_key(|s| s.number);
            step.push((seq.number, new));
            room -= new;
        }
        let (mut prompts, mut decodes, mut cached) = (0, 0, 0);
        for (number, new) in &step {
            let seq = runs.iter().find(|s| s.number == *number).expect("runs");
            if seq.made > 0 && seq.known - seq.cached == 1 {
                (decodes, cached) = (decodes + 1, cached + seq.cached);
            } else {
                prompts += new;
            }
        }
        let (prefill, decode) =
            (replica.prompt * prompts as f64, replica.sequence * decodes as f64 + replica.cached * cached as f64);
        now += replica.step + prefill + decode;
        joules += DRAWN.0 * prefill + DRAWN.1 * decode + DRAWN.2 * replica.step;
        for (number, new) in step {
            let seq = runs.iter_mut().find(|s| s.number == number).expect("runs");
            seq.cached += new;
            if seq.cached == seq.known {
                if seq.made == 0 {
                    times[number].0 = now;
                }
                (seq.known, seq.made, times[number].1) = (seq.known + 1, seq.made + 1, now);
            }
        }
        runs.retain(|s| s.made < requests[s.number].answer);
    }
    (times, joules, sent_back)
}

/// As [`plainly`], by SGLang's rule on pages of a token: batches as its loop keeps them, those that are done among them until
/// the next step of answers.
fn plainly_prompts_first(replica: &Toy, requests: &[Request], limits: &Limits) -> (Vec<(f64, f64)>, f64, u64) {
    #[derive(Clone, Copy)]
    struct Seq {
        number: usize,
        prompt: u64,
        answer: u64,
        cached: u64,
        made: u64,
    }
    impl Seq {
        fn is_done(&self) -> bool {
            self.made == self.answer
        }
        fn further(&self) -> u64 {
            (self.answer - self.made).min(4096)
        }
    }
    let (most, least) = (0.7, 0.7 * 0.14);
    let (mut now, mut next, mut joules, mut sent_back) = (requests[0].at.get(), 0, 0.0, 0);
    let (mut running, mut waits, mut cut): (Vec<Seq>, Vec<Seq>, Option<Seq>) = (Vec::new(), Vec::new(), None);
    let (mut share, mut full) = (most, false);
    let mut times = vec![(0.0, 0.0); requests.len()];
    loop {
        while next < requests.len() && requests[next].at.get() <= now {
            let Request { prompt, answer, .. } = requests[next];
            waits.push(Seq { number: next, prompt, answer, cached: 0, made: 0 });
            next += 1;
        }
        // A step of prompts, each with its new tokens.
        let mut batch: Vec<(Seq, u64)> = Vec::new();
        if cut.is_some() || !full && !waits.is_empty() {
            let taken: u64 = running.iter().chain(&cut).filter(|s| !s.is_done()).map(|s| s.cached).sum();
            let foreseen: u64 = running.iter().map(Seq::further).sum();
            let mut room = (limits.blocks - taken) as f64 - foreseen as f64 * share;
            let mut budget = limits.tokens;
            let mut add = |seq: Seq, budget: &mut u64, room: &mut f64| {
                let missing = seq.prompt + seq.made - seq.cached;
                let new = missing.min(*budget);
                *budget -= new;
                *room -= (new + 1 + if new == missing { seq.answer.min(4096) } else { 0 }) as f64;
                batch.push((seq, new));
                (new < missing).then_some(seq)
            };
            cut = cut.and_then(|seq| add(seq, &mut budget, &mut room));
            let before = running.len() + usize::from(budget < limits.tokens);
            let mut begun = 0;
            for &seq in &waits {
                if budget == 0 {
                    break;
                }
                let needs = seq.prompt + seq.made + seq.further() + 1;
                if before + begun >= limits.sequences as usize || needs as f64 >= room {
                    full = true;
                    break;
                }
                cut = add(seq, &mut budget, &mut room);
                begun += 1;
            }
            waits.drain(..begun);
        }
        if batch.is_empty() {
            let all = running.len();
            running.retain(|s| !s.is_done());
            full &= running.len() == all;
            if running.is_empty() {
                if !waits.is_empty() {
                    full = false;
                    continue;
                }
                let Some(request) = requests.get(next) else { break };
                joules += DRAWN.2 * (request.at.get() - now);
                (now, share, full) = (request.at.get(), most, false);
                continue;
            }
            let needs = |running: &[Seq]| running.iter().map(|s| s.cached + 1).sum::<u64>();
            if needs(&running) > limits.blocks {
                while needs(&running) > limits.blocks && running.len() > 1 {
                    // The last one by fewest tokens of the answer, longest prompt, latest place.
                    let key =
                        |i: &usize| (running[*i].made, -(running[*i].prompt as i64), -(running[*i].number as i64));
                    let place = (0..running.len()).min_by_key(key).expect("somebody");
                    waits.push(Seq { cached: 0, ..running.remove(place) });
                    sent_back += 1;
                }
                let made: u64 = running.iter().map(|s| s.made + 20).sum();
                let answers: u64 = running.iter().map(|s| s.answer).sum();
                (share, full) = ((made as f64 / (answers + 1) as f64).min(1.0), false);
            } else {
                share = (share - (most - least) / 600.0).max(least);
            }
            let cached: u64 = running.iter().map(|s| s.cached).sum();
            let decode = replica.sequence * running.len() as f64 + replica.cached * cached as f64;
            now += replica.step + decode;
            joules += DRAWN.1 * decode + DRAWN.2 * replica.step;
            for seq in &mut running {
                (seq.cached, seq.made, times[seq.number].1) = (seq.cached + 1, seq.made + 1, now);
            }
            continue;
        }
        let prefill = replica.prompt * batch.iter().map(|(_, new)| new).sum::<u64>() as f64;
        now += replica.step + prefill;
        joules += DRAWN.0 * prefill + DRAWN.2 * replica.step;
        for (mut seq, new) in batch {
            seq.cached += new;
            if cut.is_some_and(|cut| cut.number == seq.number) {
                cut = Some(seq);
                continue;
            }
            if seq.made == 0 {
                times[seq.number].0 = now;
            }
            (seq.made, times[seq.number].1) = (seq.made + 1, now);
            match seq.is_done() {
                true => full = false,
                false => running.push(seq),
            }
        }
    }
    (times, joules, sent_back)
}

#[test]
fn a_second_simulator_puts_prompts_first_alike() {
    let ample = limits().blocks;
    for (rate, tokens, sequences, blocks, seed) in [
        (2.0, 512, 64, ample, 1),
        (8.0, 512, 64, ample, 2),
        (14.0, 256, 16, ample, 3),
        (40.0, 2048, 8, ample, 4),
        (20.0, 512, 64, 4000, 5),
        (20.0, 128, 64, 3200, 6),
        (60.0, 512, 64, 6400, 7),
    ] {
        let demand = Demand::poisson(1500, Lengths::LogNormal(100, 0.8), Lengths::Uniform(1, 400), seed);
        let requests: Vec<Request> =
            demand.at_rate(rate).into_iter().map(|r| Request { prompt: r.prompt.min(1500), ..r }).collect();
        let rule = Scheduling::PromptsFirst;
        let limits = Limits { rule, tokens, sequences, blocks, block: 1, ..limits() };
        let run = simulate(&TOY, &requests, Load::Open, &limits).expect("runs");
        let (times, joules, sent_back) = plainly_prompts_first(&TOY, &requests, &limits);
        for (i, ((first, last), request)) in times.iter().zip(&requests).enumerate() {
            near(
                run.served[i].to_first().get(),
                first - request.at.get(),
                1e-6,
                &format!("{limits:?}: first token of {i}"),
            );
            near(
                run.served[i].to_last().get(),
                last - request.at.get(),
                1e-6,
                &format!("{limits:?}: last token of {i}"),
            );
        }
        near(run.whole.energy.total().get(), joules, 1e-6, "joules");
        assert_eq!(run.preemptions, sent_back, "{limits:?}");
        assert_eq!(sent_back > 5, blocks < ample, "{limits:?}: {sent_back}");
    }
}

#[test]
fn a_second_simulator_says_the_same() {
    let ample = limits().blocks;
    let mut rules_differ = 0;
    for (rate, tokens, sequences, blocks, seed) in [
        (2.0, 512, 64, ample, 1),
        (8.0, 512, 64, ample, 2),
        (14.0, 256, 16, ample, 3),
        (40.0, 2048, 8, ample, 4),
        // Caches that run out.
        (20.0, 512, 64, 300, 5),
        (20.0, 128, 64, 200, 6),
        (60.0, 512, 64, 400, 7),
    ] {
        let demand = Demand::poisson(1500, Lengths::LogNormal(300, 0.8), Lengths::Uniform(1, 80), seed);
        let requests: Vec<Request> =
            demand.at_rate(rate).into_iter().map(|r| Request { prompt: r.prompt.min(2500), ..r }).collect();
        let of = |reserve: bool| {
            let limits = Limits { tokens, sequences, blocks, reserve, ..limits() };
            let run = simulate(&TOY, &requests, Load::Open, &limits).expect("runs");
            let (times, joules, sent_back) = plainly(&TOY, &requests, &limits);
            let mean = |pick: &dyn Fn(usize) -> f64| (0..requests.len()).map(pick).sum::<f64>() / requests.len() as f64;
            let at = |i: usize| requests[i].at.get();
            near(mean(&|i| run.served[i].to_first().get()), mean(&|i| times[i].0 - at(i)), 1e-6, "first token");
            near(mean(&|i| run.served[i].to_last().get()), mean(&|i| times[i].1 - at(i)), 1e-6, "last token");
            near(run.whole.energy.total().get(), joules, 1e-6, "joules");
            assert_eq!(run.preemptions, sent_back, "{limits:?}");
            assert_eq!(sent_back > 0, blocks < ample, "{limits:?}: {sent_back}");
            sent_back
        };
        let (reserved, greedy) = (of(true), of(false));
        rules_differ += usize::from(reserved < greedy);
    }
    assert_eq!(rules_differ, 3, "whoever waits for room for a whole prompt is sent back less often");
}

#[test]
fn users_who_wait_for_their_answers_obey_little_s_law() {
    let demand = Demand::poisson(4000, Lengths::Constant(200), Lengths::Constant(50), 1);
    let run = simulate(&TOY, demand.requests(), Load::Closed(16), &limits()).expect("runs");
    let summary = Summary::of(&run).expect("counts");
    near(summary.requests_per_s * summary.to_last.mean.get(), 16.0, 0.02, "users");
    near(summary.batch, 16.0, 0.02, "all of them run");
    assert!((summary.busy - 1.0).abs() < 1e-9, "somebody always asks");
}

#[test]
fn what_a_replica_carries_at_most_is_where_its_queue_begins_to_grow() {
    let demand = Demand::poisson(6000, Lengths::Uniform(100, 500), Lengths::Uniform(10, 90), 9);
    let most = saturated(&TOY, demand.requests(), &limits()).expect("runs");
    let queue = |share: f64| {
        let run = simulate(&TOY, &demand.at_rate(share * most), Load::Open, &limits()).expect("runs");
        Summary::of(&run).expect("counts").queue
    };
    let (below, above) = (queue(0.9), queue(1.1));
    assert!(below < 5.0 && above > 100.0, "{below} {above}");
}

#[test]
fn a_cache_that_runs_out_sends_back_and_still_answers_all() {
    let demand = Demand::poisson(400, Lengths::Uniform(50, 200), Lengths::Uniform(50, 200), 2);
    let (requests, tight) = (demand.at_rate(50.0), Limits { blocks: 60, ..limits() });
    let run = simulate(&TOY, &requests, Load::Open, &tight).expect("runs");
    assert!(run.preemptions > 50, "{}", run.preemptions);
    let prompts: u64 = requests.iter().map(|r| r.prompt).sum();
    assert!(run.whole.prompt_tokens > 1.05 * prompts as f64, "what was sent back is computed again");
    assert_eq!(run.whole.finished, 400.0);
    let ample = simulate(&TOY, &requests, Load::Open, &limits()).expect("runs");
    assert_eq!(ample.preemptions, 0);
    assert!(ample.whole.span < run.whole.span);
}

#[test]
fn what_does_not_fit_is_refused_in_one_line() {
    let small = Limits { blocks: 4, ..limits() };
    let requests = Demand::poisson(3, Lengths::Constant(60), Lengths::Constant(5), 1);
    let why = |requests: &[Request], limits: Limits| {
        simulate(&TOY, requests, Load::Open, &limits).expect_err("too long").to_string()
    };
    assert_eq!(why(requests.requests(), small), "a request of 65 tokens does not fit in the cache, which holds 64");
    assert!(why(&[], limits()).starts_with("no request"));
    assert!(why(requests.requests(), Limits { tokens: 0, ..limits() }).contains("at least 1"));
}

#[test]
fn the_first_and_the_last_tenth_do_not_count() {
    assert_eq!(Counted::of(1000, Load::Open), Counted { from: 100, until: 900 });
    assert_eq!(Counted::of(1000, Load::Closed(200)), Counted { from: 200, until: 800 });
    assert_eq!(Counted::of(1000, Load::Closed(300)), Counted { from: 100, until: 900 });
    assert_eq!(Counted::of(3, Load::Open), Counted { from: 0, until: 3 });
}

fn lengths() -> impl Strategy<Value = Lengths> {
    prop_oneof![
        (1u64..600).prop_map(Lengths::Constant),
        (1u64..300, 0u64..300).prop_map(|(low, more)| Lengths::Uniform(low, low + more)),
        (1u64..200, 0.0..1.0f64).prop_map(|(median, spread)| Lengths::LogNormal(median, spread)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Every token is made once, joules are the sum of their parts, and every number is one.
    #[test]
    fn nothing_is_lost(
        (prompt, answer) in (lengths(), lengths()),
        (count, seed, rate) in (1usize..120, 0u64..1000, 0.01..1e4f64),
        (tokens, sequences, block, spare) in (1u64..2000, 1u64..40, 1u64..40, 0u64..400),
        (chunked, reserve, users) in (any::<bool>(), any::<bool>(), 0usize..30),
        rule in proptest::sample::select(Scheduling::ALL),
    ) {
        let demand = Demand::poisson(count, prompt, answer, seed);
        // What SGLang's rule wants besides.
        let blocks = demand.longest().div_ceil(block) + 2 + spare;
        // Only SGLang's takes whole prompts that are longer than a step.
        let tokens = if rule != Scheduling::PromptsFirst && !chunked { tokens.max(demand.longest()) } else { tokens };
        let limits = Limits { rule, tokens, sequences, blocks, block, chunked, reserve };
        let load = if users == 0 { Load::Open } else { Load::Closed(users) };
        let requests = demand.at_rate(rate);
        let run = simulate(&TOY, &requests, load, &limits).expect("it fits");
        prop_assert_eq!(run.served.len(), count);
        prop_assert_eq!(run.whole.finished as usize, count);
        let answers: u64 = requests.iter().map(|r| r.answer).sum();
        prop_assert_eq!(run.whole.answer_tokens as u64, answers);
        let prompts: u64 = requests.iter().map(|r| r.prompt).sum();
        prop_assert!(run.whole.prompt_tokens as u64 >= prompts);
        if run.preemptions == 0 {
            prop_assert_eq!(run.whole.prompt_tokens as u64, prompts);
        }
        prop_assert!(rule != Scheduling::WholeAnswers || run.preemptions == 0);
        prop_assert!(run.whole.blocks <= blocks as f64 * run.whole.span.get() * (1.0 + 1e-9));
        for served in &run.served {
            prop_assert!(served.arrived < served.first && served.first <= served.last);
        }
        let energy = run.whole.energy;
        let idle = DRAWN.2 * (run.whole.span - run.whole.busy).get() + DRAWN.2 * TOY.step * run.whole.steps;
        prop_assert!((energy.idle.get() / idle - 1.0).abs() < 1e-6, "{} and {}", energy.idle, idle);
        let parts = energy.prefill + energy.decode + energy.idle;
        prop_assert!((energy.total() / parts - 1.0).abs() < 1e-12);
        let end = run.served.iter().map(|s| s.last.get()).fold(0.0, f64::max);
        let start = run.served[0].arrived.get();
        prop_assert!((run.whole.span.get() / (end - start) - 1.0).abs() < 1e-6);
        prop_assert!(run.counted.span <= run.whole.span * (1.0 + 1e-9));
        prop_assert!(run.counted.energy.total() <= energy.total() * (1.0 + 1e-9));
        if let Some(summary) = Summary::of(&run) {
            let numbers = [summary.requests_per_s, summary.tokens_per_s, summary.busy, summary.batch, summary.queue,
                summary.power.get(), summary.per_request.get(), summary.to_last.p99.get(), summary.to_first.mean.get()];
            prop_assert!(numbers.iter().all(|n| n.is_finite() && *n >= 0.0), "{:?}", summary);
            prop_assert!(summary.busy <= 1.0 + 1e-9 && summary.to_first.p50 <= summary.to_first.p99);
            prop_assert!(summary.power.get() >= DRAWN.2 - 1e-9 && summary.power.get() <= DRAWN.0);
        }
        let most = saturated(&TOY, &requests, &limits).expect("it fits");
        prop_assert!(most.is_finite() && most > 0.0);
    }
}
