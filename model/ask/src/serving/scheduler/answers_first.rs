//! The rule of vLLM (v1: `vllm/v1/core/sched/scheduler.py`, from which it is, not the code): a budget of tokens for each step,
//! running sequences before waiting ones, each in order of arrival; where blocks run out, the youngest gives its own back and is
//! computed again later. Whose prompt, with what is known of the answer after it was sent back, does not fit whole in the blocks
//! that are free waits (`full_sequence_must_fit` of `vllm/v1/core/kv_cache_manager.py`, the default since early 2026): the
//! blocks are not kept for it.

use super::{Scheduler, StepWork};

impl Scheduler {
    /// Decides on the next step.
    pub(super) fn schedule_answers_first(&mut self, work: &mut StepWork) {
        let mut budget = self.limits.tokens;
        let before = self.preemptions;
        let first = self.grow_or_part(&mut budget, work);
        self.schedule_running(first, &mut budget, work);
        // Who was just sent back does not come in again.
        while self.preemptions == before && budget > 0 && self.running.len() < self.limits.sequences as usize {
            let Some(&number) = self.waiting.front() else { break };
            let sequence = self.sequences[number];
            let missing = sequence.missing();
            let alone = work.chunks.is_empty();
            let new = match (self.limits.chunked, missing > budget) {
                (_, false) => missing,
                (true, true) => budget,
                (false, true) if alone => missing,
                (false, true) => break,
            };
            let whole = if self.limits.reserve { self.limits.blocks_for(sequence.tokens()) } else { 0 };
            if whole > self.free || !self.allocate(number, sequence.cached + new) {
                break;
            }
            self.begin(number);
            self.schedule_one(number, new, work);
            budget = budget.saturating_sub(new);
        }
    }

    /// Running sequences come first, each in turn; where blocks run out, the youngest is sent back.
    fn schedule_running(&mut self, mut place: usize, budget: &mut u64, work: &mut StepWork) {
        while place < self.running.len() && *budget > 0 {
            let number = self.running[place];
            let sequence = self.sequences[number];
            // A prompt that runs whole began with all of its tokens.
            let new = sequence.missing().min(*budget);
            if new == 0 {
                place += 1;
                continue;
            }
            while !self.allocate(number, sequence.before() + new) {
                if self.preempt(place).is_none_or(|youngest| youngest == number) {
                    return;
                }
            }
            self.schedule_one(number, new, work);
            *budget -= new;
            place += 1;
        }
    }

    /// The youngest from a place on is sent back and waits before all others that are younger; none while its steps are under
    /// way.
    fn preempt(&mut self, from: usize) -> Option<usize> {
        let rests = |number: &usize| self.sequences[*number].flying == 0;
        let place = from + self.running.get(from..)?.iter().rposition(rests)?;
        let youngest = self.send_back(place);
        let before = self.waiting.partition_point(|number| *number < youngest);
        self.waiting.insert(before, youngest);
        Some(youngest)
    }
}
