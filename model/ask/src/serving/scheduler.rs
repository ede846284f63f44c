//! Which tokens the next step computes, as the schedulers of engines decide it: sequences in order of arrival, keys and values
//! in blocks. What they share is here; each rule ([`Scheduling`]) has a file: [`answers_first`], [`prompts_first`],
//! [`whole_answers`].

mod answers_first;
mod limits;
mod prompts_first;
mod whole_answers;

pub use limits::{Engine, Limits};

use super::replica::{Chunk, StepWork};
use super::requests::Request;
use joulecast_model::step::framework::Scheduling;
use prompts_first::PromptsFirst;
use std::collections::VecDeque;

/// A sequence between its arrival and its last token.
#[derive(Clone, Copy, Debug)]
struct Sequence {
    prompt: u64,
    answer: u64,
    /// Tokens whose keys and values are cached.
    cached: u64,
    /// Tokens after these whose steps are under way.
    flying: u64,
    /// Tokens of the answer that are known.
    made: u64,
    blocks: u64,
    /// Of one that grows together with others: the step from which on every step brought it a token, which `cached`, `made`
    /// and `blocks` do not have.
    since: Option<u64>,
}

impl Sequence {
    fn tokens(&self) -> u64 {
        self.prompt + self.made
    }

    /// Tokens before the next ones that are computed.
    fn before(&self) -> u64 {
        self.cached + self.flying
    }

    /// Tokens that are known and neither computed nor under way: one while the answer grows.
    fn missing(&self) -> u64 {
        self.tokens() - self.before()
    }

    fn grows(&self) -> bool {
        self.made > 0 && self.missing() == 1
    }

    /// Blocks of its prompt and its whole answer.
    fn blocks_of_all(&self, limits: &Limits) -> u64 {
        limits.blocks_for(self.prompt + self.answer)
    }
}

/// What a step brought.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Tokens of answers.
    pub tokens: u64,
    /// Sequences that got the first token of their answer, by their number.
    pub first: Vec<usize>,
    /// Those that got the last one.
    pub finished: Vec<usize>,
}

/// Running sequences whose answers grow by a token a step, all together.
#[derive(Clone, Debug, Default)]
struct Growing {
    count: u64,
    /// Tokens that they have cached.
    cached: u64,
    /// How many of them need a block when the step's number leaves this remainder.
    by_step: Vec<u64>,
    /// By steps from the next one on those whose answer it completes.
    ends: VecDeque<Vec<usize>>,
}

/// What a rule keeps from step to step.
#[derive(Clone, Copy, Debug)]
enum Rule {
    AnswersFirst,
    PromptsFirst(PromptsFirst),
    /// Blocks of the whole prompts and answers of those that run.
    WholeAnswers(u64),
}

/// Sequences that wait and run, and the blocks of the cache.
///
/// The plain way of every rule looks at sequence by sequence. Most steps only add a token to every answer: as long as budget and
/// blocks are enough for all of these, they are one entry.
#[derive(Clone, Debug)]
pub struct Scheduler {
    limits: Limits,
    rule: Rule,
    sequences: Vec<Sequence>,
    /// By number: oldest first, which is the order of the numbers.
    running: Vec<usize>,
    waiting: VecDeque<usize>,
    free: u64,
    /// Steps that are done in which those that grow were.
    step: u64,
    growing: Growing,
    /// Whether those that grow are in the step that runs.
    grows: bool,
    /// Numbers and new tokens of the others in it, oldest first.
    scheduled: Vec<(usize, u64)>,
    /// Whether steps overlap, as in a pipeline: each sequence is looked at by itself then.
    overlapping: bool,
    /// Of steps that are under way, numbers and new tokens, in the order of the steps.
    flying: VecDeque<Vec<(usize, u64)>>,
    preemptions: u64,
}

impl Scheduler {
    /// With nothing to do. One step follows the other: [`Self::schedule`], then [`Self::finish`].
    pub fn new(limits: Limits) -> Self {
        let growing = Growing { by_step: vec![0; limits.block as usize], ..Growing::default() };
        let (sequences, running, waiting, scheduled, flying) = Default::default();
        let rule = match limits.rule {
            Scheduling::AnswersFirst => Rule::AnswersFirst,
            Scheduling::PromptsFirst => Rule::PromptsFirst(PromptsFirst::default()),
            Scheduling::WholeAnswers => Rule::WholeAnswers(0),
        };
        Self {
            limits,
            rule,
            sequences,
            running,
            waiting,
            free: limits.blocks,
            step: 0,
            growing,
            grows: false,
            scheduled,
            overlapping: false,
            flying,
            preemptions: 0,
        }
    }

    /// With nothing to do, for steps that overlap: [`Self::schedule`], then [`Self::launch`]; [`Self::land`] when the oldest one
    /// is done. A sequence whose next token is under way waits for it; of a prompt the next chunk may follow at once.
    pub fn overlapping(limits: Limits) -> Self {
        Self { overlapping: true, ..Self::new(limits) }
    }

    /// A request comes; numbers count from 0. `cached`: tokens of its prompt whose keys and values come with it, and with them
    /// the first token of the answer. It must fit in the cache alone ([`Limits::capacity`]).
    pub fn add(&mut self, request: &Request, cached: bool) {
        let Request { prompt, answer, .. } = *request;
        let (cached, made) = if cached { (prompt, 1) } else { (0, 0) };
        self.waiting.push_back(self.sequences.len());
        self.sequences.push(Sequence { prompt, answer, cached, flying: 0, made, blocks: 0, since: None });
    }

    /// Sequences that wait for their first step, or for their next one since they were preempted.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Sequences that run.
    pub fn running(&self) -> usize {
        self.running.len()
    }

    /// Whether nothing is left to do.
    pub fn is_idle(&self) -> bool {
        self.running.is_empty() && self.waiting.is_empty()
    }

    /// Blocks in use.
    pub fn used(&self) -> u64 {
        self.limits.blocks - self.free
    }

    /// How often a sequence gave its blocks back.
    pub fn preemptions(&self) -> u64 {
        self.preemptions
    }

    /// Takes blocks for a sequence that has so many tokens cached; whether there are enough.
    fn allocate(&mut self, number: usize, tokens: u64) -> bool {
        let sequence = &mut self.sequences[number];
        let more = self.limits.blocks_for(tokens).saturating_sub(sequence.blocks);
        if more > self.free {
            return false;
        }
        self.free -= more;
        sequence.blocks += more;
        true
    }

    /// One that runs gives its blocks back, to be computed again.
    fn send_back(&mut self, place: usize) -> usize {
        let number = self.running.remove(place);
        let sequence = &mut self.sequences[number];
        self.free += std::mem::take(&mut sequence.blocks);
        sequence.cached = 0;
        self.preemptions += 1;
        number
    }

    /// One that waited runs.
    fn begin(&mut self, number: usize) {
        self.waiting.pop_front();
        let place = self.running.partition_point(|other| *other < number);
        self.running.insert(place, number);
    }

    fn schedule_one(&mut self, number: usize, new: u64, work: &mut StepWork) {
        let sequence = self.sequences[number];
        self.scheduled.push((number, new));
        if sequence.grows() {
            work.decodes += 1;
            work.cached += sequence.before();
        } else {
            work.chunks.push(Chunk { new, cached: sequence.before() });
        }
    }

    /// Whose prompt goes on in the next step, before any answer.
    fn cut(&self) -> Option<usize> {
        match &self.rule {
            Rule::PromptsFirst(kept) => kept.cut(),
            Rule::AnswersFirst | Rule::WholeAnswers(_) => None,
        }
    }

    /// The place in a list of steps by their remainder.
    fn remainder(&self, step: u64) -> usize {
        (step % self.limits.block) as usize
    }

    /// Schedules those that grow as one; false, with nothing done, where budget or blocks are not enough for all of them, or they
    /// are not the oldest.
    fn schedule_growing(&mut self, budget: &mut u64, work: &mut StepWork) -> bool {
        #[cfg(test)]
        if tests::PLAIN.get() {
            return false;
        }
        let others = self.running.len() as u64 - self.growing.count;
        let blocks = self.growing.by_step[self.remainder(self.step)];
        let last_grows = self.running.last().is_some_and(|&number| self.sequences[number].since.is_some());
        let are_oldest = others == 0 || others == 1 && !last_grows;
        if self.overlapping || self.growing.count > *budget || blocks > self.free || !are_oldest {
            return false;
        }
        self.free -= blocks;
        *budget -= self.growing.count;
        (work.decodes, work.cached) = (self.growing.count, self.growing.cached);
        self.grows = true;
        true
    }

    /// Schedules those that grow as one where that can be, else each is by itself: the place of the first that is left.
    fn grow_or_part(&mut self, budget: &mut u64, work: &mut StepWork) -> usize {
        if self.schedule_growing(budget, work) {
            return self.growing.count as usize;
        }
        self.part();
        0
    }

    /// Those that grow are each by itself.
    fn part(&mut self) {
        for &number in &self.running {
            let sequence = &mut self.sequences[number];
            if let Some(since) = sequence.since.take() {
                let tokens = self.step - since;
                sequence.cached += tokens;
                sequence.made += tokens;
                sequence.blocks = self.limits.blocks_for(sequence.cached);
            }
        }
        self.growing.by_step.fill(0);
        self.growing = Growing { by_step: std::mem::take(&mut self.growing.by_step), ..Growing::default() };
    }

    /// One whose answer grows joins the others.
    fn join(&mut self, number: usize) {
        // When the tokens that it has cached fill its blocks.
        let block = self.limits.block;
        let full = self.remainder(self.step + (block - self.sequences[number].cached % block));
        let sequence = &mut self.sequences[number];
        sequence.since = Some(self.step);
        let growing = &mut self.growing;
        growing.count += 1;
        growing.cached += sequence.cached;
        growing.by_step[full] += 1;
        let left = (sequence.answer - sequence.made) as usize;
        if growing.ends.len() < left {
            growing.ends.resize_with(left, Vec::new);
        }
        growing.ends[left - 1].push(number);
    }

    /// One of those that grow has its last token.
    fn leave(&mut self, number: usize) {
        let block = self.limits.block;
        let sequence = &mut self.sequences[number];
        let tokens = self.step - sequence.since.take().unwrap_or(self.step);
        sequence.cached += tokens;
        sequence.made += tokens;
        let cached = sequence.cached;
        self.free += self.limits.blocks_for(cached);
        sequence.blocks = 0;
        let full = self.remainder(self.step + (block - cached % block));
        self.growing.count -= 1;
        self.growing.cached -= cached;
        self.growing.by_step[full] -= 1;
    }

    /// Decides on the next step; `work` becomes what it computes. False where there is nothing to do.
    pub fn schedule(&mut self, work: &mut StepWork) -> bool {
        work.clear();
        self.scheduled.clear();
        self.grows = false;
        match self.rule {
            Rule::AnswersFirst => self.schedule_answers_first(work),
            Rule::PromptsFirst(kept) => self.rule = Rule::PromptsFirst(self.schedule_prompts_first(kept, work)),
            Rule::WholeAnswers(promised) => {
                self.rule = Rule::WholeAnswers(self.schedule_whole_answers(promised, work));
            }
        }
        work.tokens() > 0
    }

    /// Whether the step that was decided on only adds a token to every answer, completes none, and leaves nobody waiting.
    pub(super) fn is_quiet(&self) -> bool {
        let all = self.grows && self.scheduled.is_empty() && self.growing.count == self.running.len() as u64;
        all && self.waiting.is_empty() && self.growing.ends.front().is_some_and(Vec::is_empty)
    }

    /// Whether the step after so many, of which that which was decided on is the first, is as quiet if nobody comes; it has
    /// its blocks then.
    pub(super) fn stays_quiet(&mut self, steps: u64) -> bool {
        let blocks = self.growing.by_step[self.remainder(self.step + steps)];
        let quiet = blocks <= self.free && self.growing.ends.get(steps as usize).is_some_and(Vec::is_empty);
        if quiet {
            self.free -= blocks;
        }
        quiet
    }

    /// So many quiet steps are done.
    pub(super) fn grown(&mut self, steps: u64) {
        if let Rule::PromptsFirst(kept) = &mut self.rule {
            // The first one was decided on.
            kept.decay(steps - 1);
        }
        self.step += steps;
        self.growing.cached += self.growing.count * steps;
        self.growing.ends.drain(..steps as usize);
    }

    /// The step that was decided on is under way.
    pub fn launch(&mut self) {
        for (number, new) in &self.scheduled {
            self.sequences[*number].flying += new;
        }
        self.flying.push_back(std::mem::take(&mut self.scheduled));
    }

    /// Of the steps that are under way the oldest is done; `progress` becomes what it brought.
    pub fn land(&mut self, progress: &mut Progress) {
        self.scheduled = self.flying.pop_front().unwrap_or_default();
        for (number, new) in &self.scheduled {
            self.sequences[*number].flying -= new;
        }
        self.finish(progress);
        self.scheduled.clear();
    }

    /// The step that was decided on is done; `progress` becomes what it brought.
    pub fn finish(&mut self, progress: &mut Progress) {
        progress.tokens = 0;
        progress.first.clear();
        progress.finished.clear();
        if self.grows {
            self.step += 1;
            progress.tokens += self.growing.count;
            self.growing.cached += self.growing.count;
            for number in self.growing.ends.pop_front().unwrap_or_default() {
                self.leave(number);
                progress.finished.push(number);
            }
        }
        for &(number, new) in &self.scheduled {
            let sequence = &mut self.sequences[number];
            sequence.cached += new;
            if sequence.cached < sequence.tokens() {
                continue;
            }
            sequence.made += 1;
            progress.tokens += 1;
            if sequence.made == 1 {
                progress.first.push(number);
            }
            if sequence.made == sequence.answer {
                self.free += std::mem::take(&mut sequence.blocks);
                progress.finished.push(number);
            }
        }
        progress.finished.sort_unstable();
        for number in &progress.finished {
            if let Ok(place) = self.running.binary_search(number) {
                self.running.remove(place);
            }
        }
        match &mut self.rule {
            Rule::AnswersFirst => {}
            Rule::PromptsFirst(kept) => kept.finish(progress.finished.len()),
            Rule::WholeAnswers(promised) => {
                let blocks = |number: &usize| self.sequences[*number].blocks_of_all(&self.limits);
                *promised -= progress.finished.iter().map(blocks).sum::<u64>();
            }
        }
        if self.overlapping {
            return;
        }
        // From the youngest on, until those that grow already.
        for place in (0..self.running.len()).rev() {
            let number = self.running[place];
            match self.sequences[number] {
                Sequence { since: Some(_), .. } => break,
                // Of one that was sent back a single token may be left of a prompt.
                sequence if sequence.grows() && self.cut() != Some(number) => self.join(number),
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serving::simulate::{Book, Run, simulate_part};
    use crate::serving::testing::{Drawn, Toy, numbers};
    use joulecast_model::base::random::Random;
    use joulecast_model::base::units::{Joules, Seconds};
    use std::cell::Cell;

    thread_local! {
        /// Whether every running sequence is looked at by itself.
        pub(super) static PLAIN: Cell<bool> = const { Cell::new(false) };
    }

    /// Whether two books say the same but for the order of sums.
    fn near(a: &Book, b: &Book) -> bool {
        numbers(a).zip(numbers(b)).all(|(a, b)| (a - b).abs() <= 1e-12 * a.abs().max(b.abs()))
    }

    /// Loads from light to far too heavy, caches from ample to tight, steps of few and many tokens.
    #[test]
    fn those_that_grow_together_do_what_each_does_alone() {
        let toy = Toy { waiting: Joules::new(0.5) };
        for &rule in Scheduling::ALL {
            let (compared, preempted) = compared_with_each_alone(rule, &toy);
            assert!(compared > 250, "{rule}: {compared}");
            assert_eq!(preempted > 20, rule != Scheduling::WholeAnswers, "{rule}: {preempted}");
        }
    }

    /// How many random loads were compared, and how many of them with preemptions.
    fn compared_with_each_alone(rule: Scheduling, toy: &Toy) -> (usize, usize) {
        let mut random = Random::new(4);
        let (mut compared, mut preempted) = (0, 0);
        for round in 0..400 {
            let Some(Drawn { limits, requests, load, part }) = Drawn::next(rule, &mut random, 1.1) else { continue };
            let run = |plain: bool| {
                PLAIN.set(plain);
                simulate_part(toy, &requests, load, &limits, part).expect("runs")
            };
            let (plain, found) = (run(true), run(false));
            PLAIN.set(false);
            let what = || format!("round {round}: {limits:?} {load:?}");
            assert!(near(&found.whole, &plain.whole) && near(&found.counted, &plain.counted), "{}", what());
            assert_eq!(Run { whole: plain.whole, counted: plain.counted, ..found }, plain, "{}", what());
            compared += 1;
            preempted += usize::from(plain.preemptions > 0);
        }
        (compared, preempted)
    }

    /// A sum of everything that a run says, to the last bit.
    fn digest(sum: u64, run: &Run) -> u64 {
        let served = run.served.iter().flat_map(|s| [s.arrived.get(), s.first.get(), s.last.get()]);
        let books = numbers(&run.whole).chain(numbers(&run.counted));
        let bits = served.chain(books).map(f64::to_bits).chain([run.preemptions]);
        bits.fold(sum, |sum, bits| (sum ^ bits).wrapping_mul(0x100_0000_01b3).rotate_left(17))
    }

    /// What vLLM's rule made of random loads before there were others, all together; of loads that it refuses since, nothing.
    #[test]
    fn vllms_schedules_are_what_they_were_to_the_last_bit() {
        let (mut random, toy) = (Random::new(11), Toy { waiting: Joules::new(0.5) });
        let (mut found, mut preempted) = (0xcbf2_9ce4_8422_2325, 0);
        for _ in 0..400 {
            let drawn = Drawn::next(Scheduling::AnswersFirst, &mut random, 1.1);
            let Some(Drawn { limits, requests, load, part }) = drawn else { continue };
            let run = simulate_part(&toy, &requests, load, &limits, part).expect("runs");
            found = digest(found, &run);
            preempted += usize::from(run.preemptions > 0);
        }
        assert!(preempted > 50, "{preempted}");
        assert_eq!(found, 4_430_304_861_341_099_706);
    }

    pub(super) fn request(prompt: u64, answer: u64) -> Request {
        Request { at: Seconds::ZERO, prompt, answer }
    }

    fn limits() -> Limits {
        Limits { tokens: 100, sequences: 8, blocks: 64, ..Limits::AMPLE }
    }

    /// Steps until nothing is left: what each computes, and what finishes with it.
    pub(super) fn steps(limits: Limits, requests: &[Request]) -> (Vec<(StepWork, Vec<usize>)>, Scheduler) {
        let mut scheduler = Scheduler::new(limits);
        requests.iter().for_each(|r| scheduler.add(r, false));
        let (mut work, mut progress, mut steps) = (StepWork::default(), Progress::default(), Vec::new());
        while scheduler.schedule(&mut work) {
            scheduler.finish(&mut progress);
            steps.push((work.clone(), progress.finished.clone()));
            assert!(steps.len() < 10_000, "it ends");
        }
        (steps, scheduler)
    }

    impl Scheduler {
        /// Blocks of all that run, counted anew.
        fn held(&self) -> u64 {
            let blocks = |number: &usize| {
                let sequence = &self.sequences[*number];
                match sequence.since {
                    Some(since) => self.limits.blocks_for(sequence.cached + self.step - since),
                    None => sequence.blocks,
                }
            };
            self.running.iter().map(blocks).sum()
        }
    }

    /// What holds of a rule, step by step, of a random load that comes while it is served; how often somebody was sent back.
    fn kept_by(rule: Scheduling, Drawn { limits, requests, part, .. }: &Drawn, random: &mut Random) -> u64 {
        let mut scheduler = Scheduler::new(*limits);
        let (mut work, mut progress, mut come) = (StepWork::default(), Progress::default(), 0);
        let (mut computed, mut made) = (0, 0);
        let (mut first, mut finished) = (Vec::new(), Vec::new());
        loop {
            while come < requests.len() && random.uniform() < 0.4 {
                scheduler.add(&requests[come], part.cached);
                come += 1;
            }
            if !scheduler.schedule(&mut work) {
                assert!(scheduler.is_idle(), "{rule}: whoever waits while nobody runs begins");
                assert_eq!(scheduler.used(), 0);
                if come == requests.len() {
                    break;
                }
                continue;
            }
            let (prompts, answers) = (work.prompt_tokens(), work.decodes);
            let alone = !limits.chunked && work.chunks.len() == 1;
            match rule {
                Scheduling::AnswersFirst => assert!(work.tokens() <= limits.tokens || alone),
                Scheduling::PromptsFirst => {
                    assert!(prompts == 0 || answers == 0, "{limits:?}: {work:?}");
                    assert!(prompts <= limits.tokens || alone, "{limits:?}: {work:?}");
                }
                Scheduling::WholeAnswers => {
                    assert!(work.tokens() <= limits.tokens, "{limits:?}: {work:?}");
                    let whole = |number: &usize| scheduler.sequences[*number].blocks_of_all(limits);
                    let promised: u64 = scheduler.running.iter().map(whole).sum();
                    assert!(scheduler.used() <= promised && promised <= limits.blocks, "{limits:?}");
                    assert_eq!(scheduler.preemptions(), 0);
                }
            }
            assert!(scheduler.running() as u64 <= limits.sequences && scheduler.used() <= limits.blocks);
            scheduler.finish(&mut progress);
            assert_eq!(scheduler.used(), scheduler.held(), "{rule}: {limits:?}");
            computed += prompts;
            made += progress.tokens;
            first.extend(progress.first.iter().copied());
            finished.extend(progress.finished.iter().copied());
        }
        let sum = |pick: fn(&Request) -> u64| requests.iter().map(pick).sum::<u64>();
        let known = if part.cached { requests.len() as u64 } else { 0 };
        assert_eq!(made, sum(|r| r.answer) - known, "{rule}: every token once");
        let (prompts, sent_back) = (if part.cached { 0 } else { sum(|r| r.prompt) }, scheduler.preemptions());
        assert!(computed == prompts || computed > prompts && sent_back > 0, "{rule}: {computed} of {prompts}");
        let in_order: Vec<usize> = (0..requests.len()).collect();
        // What is too little for a block of one prompt may be all of the next one.
        let is_overtaken = rule == Scheduling::WholeAnswers && limits.chunked;
        if !part.cached && sent_back == 0 && !is_overtaken {
            assert_eq!(first, in_order, "{rule}: who came first begins first");
        }
        finished.sort_unstable();
        assert_eq!(finished, in_order, "{rule}: everybody is answered once");
        sent_back
    }

    #[test]
    fn every_rule_keeps_to_its_tokens_and_blocks() {
        for &rule in Scheduling::ALL {
            let mut random = Random::new(21);
            let (mut kept, mut sent_back) = (0, 0);
            for _ in 0..600 {
                let Some(drawn) = Drawn::next(rule, &mut random, 1.0) else { continue };
                sent_back += kept_by(rule, &drawn, &mut random);
                kept += 1;
            }
            assert!(kept > 400, "{rule}: {kept}");
            assert_eq!(sent_back > 30, rule != Scheduling::WholeAnswers, "{rule}: {sent_back}");
        }
    }

    #[test]
    fn decodes_come_first_and_prompts_fill_the_budget_in_order() {
        let (steps, scheduler) = steps(limits(), &[request(60, 2), request(70, 1)]);
        let chunk = |new, cached| Chunk { new, cached };
        assert_eq!(steps[0].0, StepWork { chunks: vec![chunk(60, 0), chunk(40, 0)], decodes: 0, cached: 0 });
        assert_eq!(steps[1].0, StepWork { chunks: vec![chunk(30, 40)], decodes: 1, cached: 60 });
        assert_eq!(steps[1].1, [0, 1]);
        assert_eq!((steps.len(), scheduler.used(), scheduler.is_idle()), (2, 0, true));
    }

    #[test]
    fn a_prompt_that_is_not_cut_runs_whole() {
        let whole = Limits { chunked: false, ..limits() };
        let (steps, _) = steps(whole, &[request(60, 2), request(70, 1), request(150, 1)]);
        let new = |i: usize| steps[i].0.chunks.iter().map(|c| c.new).collect::<Vec<_>>();
        assert_eq!((new(0), new(1), new(2)), (vec![60], vec![70], vec![150]));
        assert_eq!(steps[1].0.decodes, 1);
    }

    #[test]
    fn no_more_sequences_run_than_allowed() {
        let few = Limits { sequences: 2, ..limits() };
        let (steps, _) = steps(few, &[request(10, 3); 5]);
        assert!(steps.iter().all(|(work, _)| work.sequences() <= 2));
        assert_eq!(steps.iter().map(|(_, finished)| finished.len()).sum::<usize>(), 5);
    }

    #[test]
    fn the_youngest_gives_its_blocks_back_and_is_computed_again() {
        // Two sequences of 32 and, in the end, 62 tokens: four blocks each, of seven.
        let tight = Limits { blocks: 7, ..limits() };
        let (steps, scheduler) = steps(tight, &[request(32, 30), request(32, 30)]);
        assert_eq!(scheduler.preemptions(), 1);
        let finished: Vec<usize> = steps.iter().flat_map(|(_, finished)| finished.clone()).collect();
        assert_eq!(finished, [0, 1], "the older one first");
        // 17 tokens were known when the 49th of the older one needed the last block.
        let again: Vec<&Chunk> = steps[1..].iter().flat_map(|(work, _)| &work.chunks).collect();
        assert_eq!(again, [&Chunk { new: 32 + 17, cached: 0 }]);
        let decodes: u64 = steps.iter().map(|(work, _)| work.decodes).sum();
        assert_eq!(decodes + 3, 60, "the first tokens of both and one after preemption come of prompts");
    }

    /// By a pencil: 14 blocks, prompts of 128 tokens (8 blocks) in chunks of 100, answers of three.
    #[test]
    fn a_prompt_waits_until_all_of_it_fits() {
        let few = Limits { blocks: 14, ..limits() };
        let both = [request(128, 3), request(128, 3)];
        let new = |steps: &[(StepWork, Vec<usize>)]| {
            let of = |work: &StepWork| (work.chunks.iter().map(|c| c.new).collect::<Vec<_>>(), work.decodes);
            steps.iter().map(|(work, _)| of(work)).collect::<Vec<_>>()
        };
        // The first has 7 blocks of its first chunk, then 9; the second, which needs 8, comes when that one is answered.
        let (reserved, scheduler) = steps(few, &both);
        let alone = [(vec![100], 0), (vec![28], 0), (vec![], 1), (vec![], 1)];
        assert_eq!(new(&reserved), [&alone[..], &alone[..]].concat());
        assert_eq!(scheduler.preemptions(), 0);
        // Without the rule its first 72 tokens come into the second step, and are thrown away for the first one's blocks.
        let (greedy, scheduler) = steps(Limits { reserve: false, ..few }, &both);
        assert_eq!((new(&greedy)[1].clone(), scheduler.preemptions()), ((vec![28, 72], 0), 1));
    }

    #[test]
    fn who_was_sent_back_waits_until_all_of_its_known_tokens_fit() {
        // The second is sent back when the first one needs its fourth block, and needs four itself then.
        let tight = Limits { blocks: 7, tokens: 40, ..limits() };
        let both = [request(32, 30), request(34, 30)];
        let again = |limits: Limits| {
            let (steps, scheduler) = steps(limits, &both);
            let first_gone = steps.iter().position(|(_, finished)| finished.contains(&0)).expect("ends");
            let back =
                steps.iter().rposition(|(work, _)| work.chunks.iter().any(|c| c.cached == 0)).expect("came back");
            (back > first_gone, scheduler.preemptions())
        };
        assert_eq!(again(tight), (true, 1));
        // Blocks for the 39 tokens of a step are there sooner, and are lost again.
        assert!(again(Limits { reserve: false, ..tight }).1 > 1);
    }

    #[test]
    fn who_is_sent_back_comes_before_those_who_never_ran() {
        let tight = Limits { blocks: 7, sequences: 2, ..limits() };
        let (steps, scheduler) = steps(tight, &[request(32, 30), request(32, 30), request(32, 5)]);
        assert!(scheduler.preemptions() > 0);
        let finished: Vec<usize> = steps.iter().flat_map(|(_, finished)| finished.clone()).collect();
        assert_eq!(finished[0], 0);
        let starts = |tokens: u64| steps.iter().position(|(work, _)| work.chunks.iter().any(|c| c.new == tokens));
        let again = starts(32 + 17).expect("the second is computed again");
        let third = steps.iter().rposition(|(work, _)| work.chunks.iter().any(|c| c.new == 32)).expect("runs");
        assert!(again <= third, "{again} {third}: {finished:?}");
    }

    #[test]
    fn what_comes_with_its_cache_begins_with_its_second_token() {
        let mut scheduler = Scheduler::new(limits());
        scheduler.add(&request(40, 3), true);
        let (mut work, mut progress) = (StepWork::default(), Progress::default());
        assert!(scheduler.schedule(&mut work));
        assert_eq!(work, StepWork { chunks: vec![], decodes: 1, cached: 40 });
        scheduler.finish(&mut progress);
        assert_eq!((progress.tokens, &progress.first[..], scheduler.used()), (1, &[][..], 3));
    }
}
