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

use super::{Scheduler, StepWork};
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
    /// An answer was done in the last step of answers.
    left: bool,
    /// Whose prompt goes on.
    cut: Option<usize>,
    /// Whether the step that was decided on is of prompts.
    prompts: bool,
}

impl Default for PromptsFirst {
    fn default() -> Self {
        Self { share: MOST_SHARE, full: false, left: false, cut: None, prompts: false }
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

    /// A step is done, with it some answer or none.
    pub(super) fn finish(&mut self, some: bool) {
        match self.prompts {
            true => self.full &= !some,
            false => self.left |= some,
        }
    }
}

impl Scheduler {
    /// Decides on the next step; `kept` is what the rule keeps, before and after.
    pub(super) fn schedule_prompts_first(&mut self, mut kept: PromptsFirst, work: &mut StepWork) -> PromptsFirst {
        kept.prompts = self.schedule_prompts(&mut kept, work);
        if kept.prompts {
            return kept;
        }
        if kept.left {
            (kept.left, kept.full) = (false, false);
        }
        if !self.running.is_empty() {
            self.schedule_answers(&mut kept, work);
        } else if self.waiting.is_empty() {
            // As its loop does where it is idle.
            kept = PromptsFirst::default();
        } else {
            kept.full = false;
            kept.prompts = self.schedule_prompts(&mut kept, work);
        }
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
            if self.running.len() >= self.limits.sequences as usize || needs as f64 >= room {
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
        self.schedule_one(number, new, work);
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
