//! What tests of schedules share: a replica whose steps are counted, not predicted, and random loads.

use super::simulate::{Book, Load, Part, Split, check};
use super::{Limits, Replica, Request, StepCost, StepWork};
use joulecast_model::base::random::Random;
use joulecast_model::base::units::{Joules, Seconds, Watts};
use joulecast_model::step::framework::Scheduling;

/// A step that takes longer with everything it holds.
pub(super) struct Toy {
    /// What a step spends waiting.
    pub waiting: Joules,
}

impl Replica for Toy {
    fn step(&self, work: &StepWork) -> StepCost {
        let chunks: u64 = work.chunks.iter().map(|c| 3 * c.new + c.cached / 7).sum();
        let time = Seconds::new(1e-3 * (5 + chunks + work.decodes + work.cached / 50) as f64);
        let (prefill, decode) = (Joules::new(chunks as f64), Joules::new((work.decodes + work.cached) as f64));
        StepCost { time, prefill, decode, waiting: self.waiting }
    }

    fn waiting(&self) -> Watts {
        Watts::new(1.0)
    }
}

/// All that a book says.
pub(super) fn numbers(book: &Book) -> impl Iterator<Item = f64> + use<> {
    let Book { span, busy, steps, energy, prompt_tokens, answer_tokens, finished, running, waiting, blocks } = *book;
    let Split { prefill, decode, idle } = energy;
    let energies = [prefill, decode, idle].map(Joules::get);
    let others = [steps, prompt_tokens, answer_tokens, finished, running, waiting, blocks];
    [span.get(), busy.get()].into_iter().chain(energies).chain(others)
}

/// What comes to a replica.
pub(super) struct Drawn {
    pub limits: Limits,
    pub requests: Vec<Request>,
    pub load: Load,
    pub part: Part,
}

impl Drawn {
    /// Loads from light to far too heavy, caches from ample to tight, steps of few and many tokens; none that is refused. What
    /// counts of a part may end after `until` of the time in which requests come.
    pub fn next(rule: Scheduling, random: &mut Random, until: f64) -> Option<Self> {
        let mut draw = |from: u64, to: u64| from + (random.uniform() * (to - from + 1) as f64).ceil() as u64 - 1;
        let (block, length) = ([1, 3, 16][draw(0, 2) as usize], draw(4, 120));
        let blocks = (2 * length).div_ceil(block) * draw(1, 8);
        let (chunked, reserve) = (draw(0, 3) > 0, draw(0, 3) > 0);
        let limits = Limits { rule, tokens: draw(4, 200), sequences: draw(1, 40), blocks, block, chunked, reserve };
        let (mut at, gap) = (Seconds::ZERO, draw(0, 400));
        let cached = draw(0, 2) == 0;
        let requests: Vec<Request> = (0..draw(1, 60))
            .map(|_| {
                at += Seconds::new(1e-3 * draw(0, gap) as f64);
                Request { at, prompt: draw(1, length), answer: draw(1 + u64::from(cached), length) }
            })
            .collect();
        check(&requests, &limits).ok()?;
        let load = if cached || draw(0, 1) == 0 { Load::Open } else { Load::Closed(draw(1, 30) as usize) };
        let middle = |share: f64| requests[0].at + at * share;
        let span = (cached && draw(0, 1) == 0).then(|| (middle(0.15), middle(until)));
        Some(Self { limits, requests, load, part: Part { cached, span, filling: 0 } })
    }
}
