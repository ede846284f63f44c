//! What an engine that serves language models adds to the kernels of its steps.

use crate::base::file::{FileError, quantity};
use crate::base::precision::named_enum;
use crate::base::units::{Dimension, Seconds};
use serde::{Deserialize, Serialize};

named_enum!(
    /// The rule by which an engine's scheduler decides on steps.
    Scheduling {
        /// Answers go on, prompts fill what is left of a step: vLLM.
        AnswersFirst = "answers_first",
        /// Prompts come in steps of their own, before answers go on: SGLang.
        PromptsFirst = "prompts_first",
        /// As the first, but a request begins where its whole answer has room, too: TensorRT-LLM.
        WholeAnswers = "whole_answers",
    }
);

impl Default for Scheduling {
    /// That of profiles that serve nothing: what came first.
    fn default() -> Self {
        Self::AnswersFirst
    }
}

/// What an engine adds to a step: its scheduler, sampling, launches, whatever the GPU waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Serving {
    /// For each step.
    pub step: Seconds,
    /// For each sequence in it.
    pub sequence: Seconds,
    /// How it schedules.
    pub rule: Scheduling,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ServingFile {
    step: String,
    sequence: String,
    #[serde(rename = "source")]
    _source: String,
    scheduler: SchedulerFile,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SchedulerFile {
    rule: Scheduling,
    #[serde(rename = "source")]
    _source: String,
}

impl ServingFile {
    pub(super) fn read(&self) -> Result<Serving, FileError> {
        let time = |what: &str, text: &str| quantity(what, text, Dimension::Time).map(Seconds::new);
        Ok(Serving {
            step: time("serving step", &self.step)?,
            sequence: time("serving sequence", &self.sequence)?,
            rule: self.scheduler.rule,
        })
    }
}
