//! The rule of SGLang (`python/sglang/srt/managers` of sgl-project/sglang, read in November 2026: `get_next_batch_to_run`,
//! `get_new_batch_prefill` and `update_running_batch` of `scheduler.py`, `PrefillAdder` of `schedule_policy.py`,
//! `PrefillBudget` of the cache, `retract_decode` of `schedule_batch.py`; from which it is, not the code), with
//! `--enable-mixed-chunk` off and requests in order of arrival, as they are without a word:
//!
//! * where prompts can be computed they are, in a step of their own; else all answers get a token;
//! * a prompt that is longer than what is left of a step's tokens is cut to pages, one at a time, and goes on first;
//! * a prompt begins where its tokens, those of its answer (of 4096 at most) and a page fit in what is free less a share of what
//!   running answers may still take: the share begins at 0.7 and falls to 0.098 in 600 steps of answers;
//! * who found no room, or no place among the sequences, waits until an answer is done and answers have made a step without it;
//! * where answers have no room for their next tokens, those with the fewest go back, of several the longest prompt, and wait
//!   behind all others; the share rises to what those that are left have made, and 20 tokens more each, of their answers.
//!
//! Left out: prompts that share a beginning, results that its overlapped loop looks at a step later, steps without CUDA graphs
//! where more sequences run than there are graphs for.

use super::{Chunk, Scheduler, StepWork};
use std::cmp::Reverse;

/// The share of running answers' further tokens that is kept free at first (`SGLANG_INIT_NEW_TOKEN_RATIO`, at a
/// `schedule_conservativeness` of 1).
const MOST_SHARE: f64 = 0.7;
/// At last (by `SGLANG_MIN_NEW_TOKEN_RATIO_FACTOR`).
const LEAST_SHARE: f64 = MOST_SHARE * 0.14;
/// After so many steps of answers (`SGLANG_NEW_TOKEN_RATIO_DECAY_STEPS`).
const DECAY: f64 = (MOST_SHARE - LEAST_SHARE) / 600.0;
/// Of no answer more tokens are foreseen (`SGLANG_CLIP_MAX_NEW_TOKENS_ESTIMATION`).
const FORESEEN: u64 = 4096;
/// Tokens of each that are foreseen after somebody was sent back (`SGLANG_RETRACT_DECODE_STEPS`).
const AHEAD: u64 = 20;

/// What the rule keeps from step to step.
#[derive(Clone, Copy, Debug)]
pub(super) struct PromptsFirst {
    share: f64,
    /// Somebody found no room.
    full: bool,
    /// Answers that were done in the last step of answers: they keep their places until the next one.
    left: usize,
    /// Whose prompt goes on.
    cut: Option<usize>,
    /// Whether the step that was decided on is of prompts.
    prompts: bool,
}

impl Default for PromptsFirst {
    fn default() -> Self {
        Self { share: MOST_SHARE, full: false, left: 0, cut: None, prompts: false }
    }
}

impl PromptsFirst {
    /// So many steps of answers had room.
    pub(super) fn decay(&mut self, steps: u64) {
        for _ in 0..steps {
            if self.share <= LEAST_SHARE {
                break;
            }
            self.share = (self.share - DECAY).max(LEAST_SHARE);
        }
    }

    /// A step is done, with it so many answers.
    pub(super) fn finish(&mut self, answers: usize) {
        match self.prompts {
            true => self.full &= answers == 0,
            false => self.left = answers,
        }
    }

    /// Whose prompt goes on.
    pub(super) fn cut(&self) -> Option<usize> {
        self.cut
    }

    /// The places of those that are done are free.
    fn clear(&mut self) {
        (self.full, self.left) = (false, 0);
    }
}

impl Scheduler {
    /// Decides on the next step; `kept` is what the rule keeps, before and after.
    pub(super) fn schedule_prompts_first(&mut self, mut kept: PromptsFirst, work: &mut StepWork) -> PromptsFirst {
        kept.prompts = self.schedule_prompts(&mut kept, work);
        if kept.full && self.running.is_empty() {
            // Its loop looks once more where no answer is left.
            kept.clear();
            kept.prompts = self.schedule_prompts(&mut kept, work);
        }
        if kept.prompts {
            return kept;
        }
        if kept.left > 0 {
            kept.clear();
        }
        if self.running.is_empty() {
            // As its loop does where it is idle.
            return PromptsFirst::default();
        }
        self.schedule_answers(&mut kept, work);
        kept
    }

    /// Prompts of the next step, where there are any.
    fn schedule_prompts(&mut self, kept: &mut PromptsFirst, work: &mut StepWork) -> bool {
        if kept.cut.is_none() && (kept.full || self.waiting.is_empty()) {
            return false;
        }
        let block = self.limits.block;
        let mut budget = self.limits.tokens;
        let mut room = (self.free * block) as f64 - self.foreseen(kept.cut) as f64 * kept.share;
        if let Some(number) = kept.cut.take() {
            let missing = self.sequences[number].missing();
            let new = self.piece(missing, budget);
            let has_room = self.allocate(number, self.sequences[number].cached + new);
            debug_assert!(has_room, "no answer took a block since it began");
            room -= self.schedule_piece(number, new, kept, work);
            budget = budget.saturating_sub(self.pages(new));
        }
        while budget > 0 {
            let Some(&number) = self.waiting.front() else { break };
            let sequence = self.sequences[number];
            let further = (sequence.answer - sequence.made).min(FORESEEN);
            let needs = sequence.tokens() + further + block;
            if self.running.len() + kept.left >= self.limits.sequences as usize || needs as f64 >= room {
                kept.full = true;
                break;
            }
            // Its prompt was computed elsewhere.
            if sequence.grows() {
                self.allocate(number, sequence.cached);
                self.begin(number);
                room -= needs as f64;
                continue;
            }
            let missing = sequence.missing();
            let alone = work.chunks.is_empty();
            let new = match self.limits.chunked {
                true => self.piece(missing, budget),
                false if alone || self.pages(missing) < budget => missing,
                false => 0,
            };
            if new == 0 {
                break;
            }
            let has_room = self.allocate(number, new);
            debug_assert!(has_room, "all of it fits");
            self.begin(number);
            room -= self.schedule_piece(number, new, kept, work);
            budget = budget.saturating_sub(self.pages(new));
        }
        !work.chunks.is_empty()
    }

    /// Tokens in whole pages.
    fn pages(&self, tokens: u64) -> u64 {
        self.limits.blocks_for(tokens) * self.limits.block
    }

    /// How many of the tokens that a prompt lacks a step with so much room computes: all, or whole pages.
    fn piece(&self, missing: u64, budget: u64) -> u64 {
        let unit = self.limits.unit();
        if missing.next_multiple_of(unit) <= budget { missing } else { missing.min(budget / unit * unit) }
    }

    /// Tokens of a prompt's step, with the room that it takes: of the answer, too, where the prompt is done.
    fn schedule_piece(&mut self, number: usize, new: u64, kept: &mut PromptsFirst, work: &mut StepWork) -> f64 {
        let sequence = self.sequences[number];
        let is_cut = new < sequence.missing();
        kept.cut = is_cut.then_some(number);
        self.scheduled.push((number, new));
        work.chunks.push(Chunk { new, cached: sequence.cached });
        let answer = if is_cut { 0 } else { sequence.answer.min(FORESEEN) };
        (self.pages(new) + self.limits.block + answer) as f64
    }

    /// Tokens that running answers may still take, but of one whose prompt goes on.
    fn foreseen(&self, but: Option<usize>) -> u64 {
        let others = self.running.iter().filter(|number| Some(**number) != but);
        let further = |number: &usize| (self.sequences[*number].answer - self.made(*number)).min(FORESEEN);
        others.map(further).sum()
    }

    /// Tokens that an answer has.
    fn made(&self, number: usize) -> u64 {
        let sequence = &self.sequences[number];
        sequence.made + sequence.since.map_or(0, |since| self.step - since)
    }

    /// A token for every answer; where there is no room for all, some are sent back.
    fn schedule_answers(&mut self, kept: &mut PromptsFirst, work: &mut StepWork) {
        // No budget holds answers back.
        let mut budget = u64::MAX;
        let all_grow = self.growing.count == self.running.len() as u64;
        if all_grow && self.schedule_growing(&mut budget, work) {
            return kept.decay(1);
        }
        self.part();
        let before = self.preemptions;
        while self.running.len() > 1 && self.lacking() > self.free {
            let Some(place) = (0..self.running.len()).min_by_key(|place| {
                let sequence = &self.sequences[self.running[*place]];
                (sequence.made, Reverse(sequence.prompt), Reverse(*place))
            }) else {
                break;
            };
            let number = self.send_back(place);
            self.waiting.push_back(number);
        }
        if self.preemptions == before {
            kept.decay(1);
        } else {
            let of = |pick: fn(&super::Sequence) -> u64| -> u64 {
                self.running.iter().map(|number| pick(&self.sequences[*number])).sum()
            };
            let (made, answers) = (of(|sequence| sequence.made), of(|sequence| sequence.answer));
            kept.share = ((made + AHEAD * self.running.len() as u64) as f64 / (answers + 1) as f64).min(1.0);
            kept.full = false;
        }
        for place in 0..self.running.len() {
            let number = self.running[place];
            let has_room = self.allocate(number, self.sequences[number].cached + 1);
            debug_assert!(has_room, "there are blocks for all that are left");
            self.schedule_one(number, 1, work);
        }
    }

    /// Blocks that a token for every answer needs.
    fn lacking(&self) -> u64 {
        let blocks = |number: &usize| {
            let sequence = &self.sequences[*number];
            self.limits.blocks_for(sequence.cached + 1).saturating_sub(sequence.blocks)
        };
        self.running.iter().map(blocks).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{request, steps};
    use super::super::{Limits, Progress, Rule, Scheduler};
    use super::*;
    use crate::serving::Request;
    use joulecast_model::step::framework::Scheduling;

    fn limits(blocks: u64) -> Limits {
        let rule = Scheduling::PromptsFirst;
        Limits { rule, tokens: 100, sequences: 8, blocks, block: 1, ..Limits::AMPLE }
    }

    /// New tokens of prompts and number of answers, by steps.
    fn brief(work: &StepWork) -> (Vec<u64>, u64) {
        (work.chunks.iter().map(|c| c.new).collect(), work.decodes)
    }

    /// Requests by the step before which they come.
    fn stepped(limits: Limits, requests: &[(usize, Request)]) -> (Vec<(Vec<u64>, u64)>, Scheduler) {
        let mut scheduler = Scheduler::new(limits);
        let (mut work, mut progress, mut found) = (StepWork::default(), Progress::default(), Vec::new());
        loop {
            requests.iter().filter(|(at, _)| *at == found.len()).for_each(|(_, r)| scheduler.add(r, false));
            if !scheduler.schedule(&mut work) {
                return (found, scheduler);
            }
            scheduler.finish(&mut progress);
            found.push(brief(&work));
            assert!(found.len() < 1000, "it ends");
        }
    }

    #[test]
    fn prompts_fill_steps_of_their_own_and_the_one_that_is_cut_goes_on_first() {
        let (found, scheduler) = steps(limits(1000), &[request(60, 2), request(70, 1), request(30, 3)]);
        let chunk = |new, cached| Chunk { new, cached };
        let expected = [
            (StepWork { chunks: vec![chunk(60, 0), chunk(40, 0)], decodes: 0, cached: 0 }, vec![]),
            (StepWork { chunks: vec![chunk(30, 40), chunk(30, 0)], decodes: 0, cached: 0 }, vec![1]),
            (StepWork { chunks: vec![], decodes: 2, cached: 90 }, vec![0]),
            (StepWork { chunks: vec![], decodes: 1, cached: 31 }, vec![2]),
        ];
        assert_eq!(found, expected);
        assert_eq!((scheduler.used(), scheduler.is_idle()), (0, true));
    }

    #[test]
    fn answers_wait_for_prompts_that_come() {
        let requests = [(0, request(10, 4)), (2, request(250, 2))];
        let (found, _) = stepped(limits(1000), &requests);
        let alone = |new: u64| (vec![new], 0);
        let expected = [alone(10), (vec![], 1), alone(100), alone(100), alone(50), (vec![], 2), (vec![], 1)];
        assert_eq!(found, expected);
    }

    /// By a pencil: of 100 tokens 40 are taken and 39 may still be, of which seven tenths are kept free: 32.7 are left.
    #[test]
    fn a_share_of_running_answers_is_kept_free() {
        let second = |prompt| stepped(limits(100), &[(0, request(40, 40)), (1, request(prompt, 10))]).0;
        // 20 + 10 and a page.
        assert_eq!(second(20)[1], (vec![20], 0));
        // With 22 not; and nobody looks again before the first one is done.
        let waited = second(22);
        assert!(waited[1..40].iter().all(|step| *step == (vec![], 1)), "{waited:?}");
        assert_eq!(waited[40], (vec![22], 0));
        // Whole answers count of those that begin together: 100 - 81 have no room for 31.
        let (together, _) = stepped(limits(100), &[(0, request(40, 40)), (0, request(20, 10))]);
        assert_eq!((together[0].clone(), together[40].clone()), ((vec![40], 0), (vec![20], 0)));
    }

    #[test]
    fn the_share_falls_while_answers_grow_and_begins_anew_where_nothing_is_left() {
        let mut kept = PromptsFirst::default();
        kept.decay(1);
        assert!((kept.share - (0.7 - 0.602 / 600.0)).abs() < 1e-12);
        kept.decay(5000);
        assert_eq!(kept.share, 0.7 * 0.14);
        let share = |scheduler: &Scheduler| match scheduler.rule {
            Rule::PromptsFirst(kept) => kept.share,
            _ => 0.0,
        };
        let (mut work, mut progress, mut scheduler) =
            (StepWork::default(), Progress::default(), Scheduler::new(limits(1000)));
        scheduler.add(&request(9, 101), false);
        while scheduler.schedule(&mut work) {
            scheduler.finish(&mut progress);
            if progress.finished == [0] {
                // 100 of them were steps of answers.
                assert!((share(&scheduler) - (0.7 - 0.602 / 6.0)).abs() < 1e-9);
            }
        }
        assert_eq!(share(&scheduler), 0.7);
    }

    /// By a pencil: of 100 tokens the first takes 1 and 57 more may come; 99 - 39.9 have room for 1 + 57 and a page. After 49
    /// steps of answers each has 50 tokens cached.
    #[test]
    fn of_equal_answers_the_youngest_is_sent_back() {
        let (found, scheduler) = stepped(limits(100), &[(0, request(1, 58)), (1, request(1, 57))]);
        assert_eq!((found[0].clone(), found[1].clone()), ((vec![1], 0), (vec![1], 0)));
        assert!(found[2..51].iter().all(|step| *step == (vec![], 2)), "{found:?}");
        // 51 tokens of it are known; it needs 59 with the rest and finds 49, then 48.
        assert!(found[51..59].iter().all(|step| *step == (vec![], 1)), "{found:?}");
        assert_eq!(found[59], (vec![51], 0));
        assert!(found[60..].iter().all(|step| *step == (vec![], 1)));
        assert_eq!((found.len(), scheduler.preemptions()), (66, 1));
    }

    #[test]
    fn of_equal_answers_the_longest_prompt_is_sent_back_before() {
        let (found, scheduler) = stepped(limits(100), &[(0, request(3, 58)), (1, request(1, 55))]);
        let again = found[2..].iter().find(|(new, _)| !new.is_empty()).expect("computed again");
        assert_eq!((again, scheduler.preemptions()), (&(vec![3 + 49], 0), 1));
    }

    #[test]
    fn whoever_has_made_least_is_sent_back() {
        // Of 100 tokens 21 are taken and 48 may still be, of which 0.699 are kept free: 45.4 are left, and 45 are needed. After 37
        // steps of answers 99 are taken; the first has the longer prompt, but made one more.
        let (found, scheduler) = stepped(limits(100), &[(0, request(20, 50)), (2, request(4, 40))]);
        let again: Vec<u64> = found[3..].iter().flat_map(|(new, _)| new.clone()).collect();
        assert_eq!((found[2].clone(), scheduler.preemptions(), again), ((vec![4], 0), 1, vec![4 + 38]), "{found:?}");
    }

    /// As before, but steps hold 41 of the 42 tokens that are computed again.
    #[test]
    fn a_last_token_of_a_prompt_is_no_answer() {
        let few = Limits { tokens: 41, ..limits(100) };
        let (found, scheduler) = stepped(few, &[(0, request(20, 50)), (2, request(4, 40))]);
        assert_eq!(scheduler.preemptions(), 1);
        assert_eq!(found[found.len() - 3..], [(vec![41], 0), (vec![1], 0), (vec![], 1)]);
    }

    #[test]
    fn who_finds_no_place_waits_for_an_answer_and_a_step_without_it() {
        let few = Limits { sequences: 2, ..limits(1000) };
        let (found, _) = stepped(few, &[(0, request(10, 2)), (0, request(10, 4)), (0, request(10, 1))]);
        assert_eq!(found, [(vec![10, 10], 0), (vec![], 2), (vec![], 1), (vec![10], 0), (vec![], 1)]);
    }

    #[test]
    fn prompts_that_are_not_cut_run_whole_the_longest_alone() {
        let whole = Limits { chunked: false, ..limits(1000) };
        let (found, _) =
            stepped(whole, &[(0, request(60, 2)), (0, request(40, 1)), (0, request(39, 1)), (0, request(150, 1))]);
        assert_eq!(found, [(vec![60], 0), (vec![40, 39], 0), (vec![150], 0), (vec![], 1)]);
    }

    #[test]
    fn prompts_are_cut_to_pages() {
        let pages = Limits { block: 16, ..limits(1000) };
        let (found, _) = stepped(pages, &[(0, request(60, 1)), (0, request(70, 1))]);
        // 60 tokens are four pages; 32 of the other 36 are whole ones.
        assert_eq!(found, [(vec![60, 32], 0), (vec![38], 0)]);
    }

    #[test]
    fn a_prompt_that_comes_with_its_cache_only_answers() {
        let mut scheduler = Scheduler::new(limits(100));
        scheduler.add(&request(40, 3), true);
        let (mut work, mut progress) = (StepWork::default(), Progress::default());
        assert!(scheduler.schedule(&mut work));
        assert_eq!(work, StepWork { chunks: vec![], decodes: 1, cached: 40 });
        scheduler.finish(&mut progress);
        assert_eq!((progress.tokens, &progress.first[..], scheduler.used()), (1, &[][..], 41));
    }
}
