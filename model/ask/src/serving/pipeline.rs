//! Requests through a pipeline, as vLLM runs one (v1: `step_with_batch_queue` of `vllm/v1/engine/core.py`, from which the rules
//! below are, not the code): as many steps are under way as there are stages, one in each. The scheduler decides on the next
//! one as soon as there is room for it, of all that is not under way; where it finds nothing it waits for the oldest to come
//! out, and who comes meanwhile waits with it. So answers that got into one step stay in one: what fills only one step leaves
//! the other stages idle.

use super::replica::{Replica, StepCost, StepWork};
use super::requests::Request;
use super::scheduler::{Limits, Progress, Scheduler};
use super::simulate::{Book, Books, Coming, Load, Part, Run, Served, Split};
use joulecast_model::base::units::Seconds;
use std::collections::VecDeque;

/// A step on its way through the stages.
struct Flight {
    /// By stage: when it began there, and what it takes.
    stages: Vec<(Seconds, StepCost)>,
    sequences: f64,
    prompt_tokens: f64,
}

impl Flight {
    /// When it comes out.
    fn end(&self) -> Seconds {
        self.stages.last().map_or(Seconds::ZERO, |(start, cost)| *start + cost.time)
    }

    /// Written down, once it is out, with what it brought. Times are means over the stages.
    fn book(&self, books: &mut Books, progress: &Progress) {
        let share = 1.0 / self.stages.len() as f64;
        for (start, cost) in &self.stages {
            let busy = cost.time * share;
            let entry = Book {
                span: cost.time,
                busy,
                steps: share,
                energy: Split { prefill: cost.prefill, decode: cost.decode, idle: cost.waiting },
                prompt_tokens: self.prompt_tokens * share,
                answer_tokens: progress.tokens as f64 * share,
                finished: progress.finished.len() as f64 * share,
                running: self.sequences * busy.get(),
                ..Book::default()
            };
            books.add(*start, &entry);
        }
    }
}

/// Simulates requests that were checked until all are answered, or until a step's progress says that it is enough: nothing then.
pub(super) fn simulate_while(
    replica: &impl Replica,
    requests: &[Request],
    load: Load,
    limits: &Limits,
    part: Part,
    mut is_enough: impl FnMut(&[Served], &Progress) -> bool,
) -> Option<Run> {
    let stages = replica.stages();
    let mut books = Books::default();
    let mut coming = Coming::new(requests, load, part, &mut books);
    let of = coming.counted();
    let mut scheduler = Scheduler::overlapping(*limits);
    let mut served: Vec<Served> = Vec::with_capacity(requests.len());
    let (mut work, mut progress) = (StepWork::default(), Progress::default());
    let start = requests.first()?.at;
    let mut now = start;
    // When each stage is free again.
    let mut free = vec![start; stages];
    let mut flights: VecDeque<Flight> = VecDeque::with_capacity(stages);
    loop {
        coming.admit(now, &mut books, &mut served, &mut scheduler);
        if flights.len() < stages && scheduler.schedule(&mut work) {
            let mut ready = now;
            let through = |(stage, free): (usize, &mut Seconds)| {
                let (begin, cost) = (ready.max(*free), replica.stage(stage, &work));
                ready = begin + cost.time;
                *free = ready;
                (begin, cost)
            };
            let through = free.iter_mut().enumerate().map(through).collect();
            let (sequences, prompt_tokens) = (work.sequences() as f64, work.prompt_tokens() as f64);
            flights.push_back(Flight { stages: through, sequences, prompt_tokens });
            scheduler.launch();
            continue;
        }
        let Some(flight) = flights.pop_front() else {
            // Whatever comes next comes later, or never.
            let Some(next) = coming.next() else { break };
            now = next.at;
            continue;
        };
        let (before, used) = (now, scheduler.used());
        now = now.max(flight.end());
        scheduler.land(&mut progress);
        progress.first.iter().for_each(|&number| served[number].first = now);
        progress.finished.iter().for_each(|&number| served[number].last = now);
        if is_enough(&served, &progress) {
            return None;
        }
        coming.answered(progress.finished.len());
        flight.book(&mut books, &progress);
        let span = now - before;
        if span > Seconds::ZERO {
            let (waiting, blocks) = (scheduler.waiting() as f64 * span.get(), used as f64 * span.get());
            books.add(before, &Book { span, waiting, blocks, ..Book::default() });
        }
    }
    let Books { mut whole, mut counted, from, until } = books;
    let (from, until) = (from.map_or(now, |from| from.max(start)), until.map_or(now, |until| until.min(now)));
    (whole.span, counted.span) = (now - start, (until - from).max(Seconds::ZERO));
    for book in [&mut whole, &mut counted] {
        // All stages wait alike.
        book.energy.idle += replica.waiting() * (book.span - book.busy).max(Seconds::ZERO);
    }
    Some(Run { served, whole, counted, of, replicas: 1, preemptions: scheduler.preemptions() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serving::simulate::simulate_part;
    use crate::serving::testing::{Drawn, Toy, numbers};
    use crate::serving::{Replica, StepCost, StepWork};
    use joulecast_model::base::random::Random;
    use joulecast_model::base::units::{Joules, Watts};
    use joulecast_model::step::framework::Scheduling;

    const TOY: Toy = Toy { waiting: Joules::new(1e-3 * 5.0) };

    /// Loads from light to far too heavy, caches from ample to tight, steps of few and many tokens.
    #[test]
    fn a_pipeline_of_one_stage_is_none() {
        for rule in [Scheduling::AnswersFirst, Scheduling::WholeAnswers] {
            let (compared, preempted) = compared_with_none(rule);
            assert!(compared > 250, "{rule}: {compared}");
            assert_eq!(preempted > 50, rule == Scheduling::AnswersFirst, "{rule}: {preempted}");
        }
    }

    /// How many random loads were compared, and how many of them with preemptions.
    fn compared_with_none(rule: Scheduling) -> (usize, usize) {
        let mut random = Random::new(5);
        let (mut compared, mut preempted) = (0, 0);
        for round in 0..400 {
            let Some(Drawn { limits, requests, load, part }) = Drawn::next(rule, &mut random, 0.8) else { continue };
            let plain = simulate_part(&TOY, &requests, load, &limits, part).expect("runs");
            let found = simulate_while(&TOY, &requests, load, &limits, part, |_, _| false).expect("runs");
            let what = || format!("round {round}: {limits:?} {load:?}");
            assert_eq!((&found.served, found.preemptions), (&plain.served, plain.preemptions), "{}", what());
            for (a, b) in [(&found.whole, &plain.whole), (&found.counted, &plain.counted)] {
                let scale = plain.whole.span.get();
                let near = |(a, b): (f64, f64)| (a - b).abs() <= 1e-9 * a.abs().max(b.abs()).max(scale);
                assert!(numbers(a).zip(numbers(b)).all(near), "{}: {a:?} and {b:?}", what());
            }
            compared += 1;
            preempted += usize::from(plain.preemptions > 0);
        }
        (compared, preempted)
    }

    #[test]
    fn stages_are_refused_where_prompts_come_first() {
        struct Two;
        impl Replica for Two {
            fn step(&self, work: &StepWork) -> StepCost {
                TOY.step(work)
            }
            fn stages(&self) -> usize {
                2
            }
            fn waiting(&self) -> Watts {
                Watts::new(1.0)
            }
        }
        let limits = |rule| Limits { rule, tokens: 64, sequences: 4, blocks: 99, block: 1, ..Limits::AMPLE };
        let requests = [Request { at: Seconds::ZERO, prompt: 9, answer: 3 }];
        let run = |rule| simulate_part(&Two, &requests, Load::Open, &limits(rule), Part::default());
        let why = run(Scheduling::PromptsFirst).expect_err("not simulated").to_string();
        assert!(why.contains("SGLang") && why.lines().count() == 1, "{why}");
        assert!(run(Scheduling::WholeAnswers).is_ok() && run(Scheduling::AnswersFirst).is_ok());
    }

    /// Two stages of which each takes half of a step, whatever cache there is: all is answered, and nothing twice.
    #[test]
    fn a_tight_cache_sends_back_and_still_answers_all() {
        struct Halves;
        impl Replica for Halves {
            fn step(&self, work: &StepWork) -> StepCost {
                TOY.step(work)
            }
            fn stages(&self) -> usize {
                3
            }
            fn stage(&self, _: usize, work: &StepWork) -> StepCost {
                let cost = TOY.step(work);
                StepCost { time: cost.time / 3.0, prefill: cost.prefill / 3.0, decode: cost.decode / 3.0, ..cost }
            }
            fn waiting(&self) -> Watts {
                Watts::new(1.0)
            }
        }
        let requests: Vec<Request> =
            (0..200).map(|i| Request { at: Seconds::ZERO, prompt: 20 + i % 37, answer: 1 + i % 61 }).collect();
        for (blocks, tokens) in [(8, 64), (12, 16), (20, 128), (40, 30)] {
            let limits = Limits { tokens, sequences: 30, blocks, ..Limits::AMPLE };
            let run = simulate_part(&Halves, &requests, Load::Open, &limits, Part::default()).expect("runs");
            assert!(run.served.iter().all(|s| s.last >= s.first && s.first > s.arrived));
            let answers: u64 = requests.iter().map(|r| r.answer).sum();
            assert!((run.whole.answer_tokens / answers as f64 - 1.0).abs() < 1e-9);
            assert!(run.preemptions > 0 && run.whole.blocks <= blocks as f64 * run.whole.span.get(), "{blocks}");
        }
    }
}
