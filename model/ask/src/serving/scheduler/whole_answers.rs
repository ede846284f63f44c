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
        for answers in [true, false] {
            for place in first..self.running.len() {
                let number = self.running[place];
                let sequence = self.sequences[number];
                let new = self.fitting(sequence.missing(), budget);
                // Its step is under way, or there is no room.
                if new == 0 || sequence.grows() != answers {
                    continue;
                }
                let has_room = self.allocate(number, sequence.before() + new);
                debug_assert!(has_room, "what was promised is there");
                self.schedule_one(number, new, work);
                budget -= new;
            }
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

#[cfg(test)]
mod tests {
    use super::super::Limits;
    use super::super::tests::{request, steps};
    use super::*;
    use crate::serving::simulate::{check, simulate};
    use crate::serving::testing::{Drawn, Toy};
    use crate::serving::{Load, Request};
    use joulecast_model::base::random::Random;
    use joulecast_model::base::units::Joules;
    use joulecast_model::step::framework::Scheduling;

    fn limits(blocks: u64) -> Limits {
        let rule = Scheduling::WholeAnswers;
        Limits { rule, tokens: 100, sequences: 8, blocks, block: 10, chunked: false, ..Limits::AMPLE }
    }

    /// New tokens of prompts and number of answers, by steps.
    fn brief(limits: Limits, requests: &[Request]) -> Vec<(Vec<u64>, u64)> {
        let (found, scheduler) = steps(limits, requests);
        assert_eq!((scheduler.preemptions(), scheduler.used(), scheduler.is_idle()), (0, 0, true));
        let brief = |work: &StepWork| (work.chunks.iter().map(|c| c.new).collect(), work.decodes);
        found.iter().map(|(work, _)| brief(work)).collect()
    }

    /// By a pencil: ten blocks of ten tokens, of which 20 + 30 tokens take five.
    #[test]
    fn a_request_begins_where_its_whole_answer_has_room() {
        let both = brief(limits(10), &[request(20, 30), request(20, 30)]);
        assert_eq!((both[0].clone(), both.len()), ((vec![20, 20], 0), 30));
        // One more token is a sixth block; who comes later does not overtake.
        let waits = brief(limits(10), &[request(20, 30), request(20, 31), request(5, 5)]);
        assert_eq!(waits[0], (vec![20], 0));
        assert!(waits[1..30].iter().all(|step| *step == (vec![], 1)), "{waits:?}");
        assert_eq!((waits[30].clone(), waits[31].clone(), waits.len()), ((vec![20, 5], 0), (vec![], 2), 61));
    }

    #[test]
    fn answers_come_first_and_whole_prompts_as_they_fit() {
        let found = brief(limits(100), &[request(60, 3), request(70, 1), request(29, 1), request(100, 1)]);
        // 1 + 70 + 29 are a step; all of a step is one prompt's where no answer runs.
        assert_eq!(found, [(vec![60], 0), (vec![70, 29], 1), (vec![], 1), (vec![100], 0)]);
    }

    #[test]
    fn chunks_are_whole_blocks() {
        let chunked = Limits { chunked: true, block: 16, ..limits(100) };
        let found = brief(chunked, &[request(60, 2), request(170, 1), request(9, 1)]);
        // 32 of 40; 96 of 99, then what is left of both.
        assert_eq!(found, [(vec![60, 32], 0), (vec![96], 1), (vec![42, 9], 0)]);
    }

    #[test]
    fn no_more_run_than_allowed() {
        let few = Limits { sequences: 2, ..limits(100) };
        let found = brief(few, &[request(10, 3); 5]);
        assert_eq!(found.len(), 9, "{found:?}");
        assert!(found.iter().all(|(new, answers)| new.len() as u64 + answers <= 2));
    }

    #[test]
    fn a_prompt_longer_than_a_step_is_refused_where_none_is_cut() {
        let long = [request(101, 1)];
        let why = check(&long, &limits(100)).expect_err("too long").to_string();
        assert!(why.starts_with("a prompt of 101 tokens is longer than a step of 100"), "{why}");
        assert_eq!(check(&long, &Limits { chunked: true, ..limits(100) }), Ok(()));
        assert_eq!(check(&[request(100, 1)], &limits(100)), Ok(()));
    }

    /// Where the cache never decides, and chunks may have any length, it does what vLLM's rule does.
    #[test]
    fn with_room_for_all_it_is_vllm_s() {
        let (mut random, toy) = (Random::new(7), Toy { waiting: Joules::new(0.5) });
        let mut compared = 0;
        for _ in 0..200 {
            let drawn = Drawn::next(Scheduling::WholeAnswers, &mut random, 1.0);
            let Some(Drawn { limits, requests, load, .. }) = drawn else { continue };
            let ample = Limits { blocks: 1 << 20, block: 1, chunked: true, ..limits };
            let run = |rule| simulate(&toy, &requests, load, &Limits { rule, ..ample }).expect("runs");
            assert_eq!(run(Scheduling::WholeAnswers), run(Scheduling::AnswersFirst), "{ample:?}");
            compared += usize::from(load != Load::Open);
        }
        assert!(compared > 40, "{compared}");
    }
}
