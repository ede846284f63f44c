//! The rule of TensorRT-LLM's inflight batching (`tensorrt_llm/_torch/pyexecutor/scheduler/scheduler.py` of
//! NVIDIA/TensorRT-LLM, read in November 2026: `GuaranteedNoEvictPolicy.schedule`, `PyMicroBatchScheduler.schedule` and
//! `_chunk_fcfs` there, which say what the C++ of `cpp/tensorrt_llm/batch_manager` does; from which it is, not the code): a
//! request begins where its prompt and its whole answer have blocks beside those of all that run, in order of arrival; so
//! nobody is ever sent back. Running answers get their tokens first, then prompts as far as the budget of tokens goes: whole, or,
//! where chunks are asked for, cut to a multiple of a block.
//!
//! Left out: blocks that prompts share, the step by which its overlapped executor learns of an answer's end later, waiting for
//! fuller batches (off without a word).

use super::{Scheduler, StepWork};

impl Scheduler {
    /// Decides on the next step; `promised` are blocks of all prompts and whole answers that run, before and after.
    pub(super) fn schedule_whole_answers(&mut self, mut promised: u64, work: &mut StepWork) -> u64 {
        let mut budget = self.limits.tokens;
        let first = self.grow_or_part(&mut budget, work);
        for place in first..self.running.len() {
            let number = self.running[place];
            let sequence = self.sequences[number];
            let new = self.fitting(sequence.missing(), budget);
            // Its step is under way, or there is no room.
            if new == 0 {
                continue;
            }
            let has_room = self.allocate(number, sequence.before() + new);
            debug_assert!(has_room, "what was promised is there");
            self.schedule_one(number, new, work);
            budget -= new;
        }
        while self.running.len() < self.limits.sequences as usize {
            let Some(&number) = self.waiting.front() else { break };
            let sequence = self.sequences[number];
            let (whole, new) = (sequence.blocks_of_all(&self.limits), self.fitting(sequence.missing(), budget));
            if new == 0 || promised + whole > self.limits.blocks {
                break;
            }
            let has_room = self.allocate(number, sequence.cached + new);
            debug_assert!(has_room, "no more is promised than there is");
            promised += whole;
            self.begin(number);
            self.schedule_one(number, new, work);
            budget -= new;
        }
        promised
    }

    /// How many of the tokens that a sequence lacks a step with so much room computes.
    fn fitting(&self, missing: u64, budget: u64) -> u64 {
        let unit = self.limits.unit();
        match self.limits.chunked {
            _ if missing <= budget => missing,
            true => budget / unit * unit,
            false => 0,
        }
    }
}
