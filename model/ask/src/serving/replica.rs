//! What a step of a replica holds, and what it takes.

use joulecast_model::base::units::{Joules, Seconds, Watts};

/// Tokens of one sequence's prompt that a step computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// So many, at least one.
    pub new: u64,
    /// Tokens of the sequence before them, whose keys and values are cached.
    pub cached: u64,
}

/// What one step of a replica computes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StepWork {
    /// Prompts, or parts of them.
    pub chunks: Vec<Chunk>,
    /// Sequences that get their next token.
    pub decodes: u64,
    /// Tokens that these have cached, all together.
    pub cached: u64,
}

impl StepWork {
    /// Nothing.
    pub fn clear(&mut self) {
        self.chunks.clear();
        (self.decodes, self.cached) = (0, 0);
    }

    /// New tokens, of prompts and answers.
    pub fn tokens(&self) -> u64 {
        self.prompt_tokens() + self.decodes
    }

    /// New tokens of prompts.
    pub fn prompt_tokens(&self) -> u64 {
        self.chunks.iter().map(|chunk| chunk.new).sum()
    }

    /// Sequences, each of which gets the logits of its last token.
    pub fn sequences(&self) -> u64 {
        self.chunks.len() as u64 + self.decodes
    }
}

/// What a step takes, or one stage of it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StepCost {
    /// From its beginning to the next one's, at the earliest.
    pub time: Seconds,
    /// Energy of computing prompts.
    pub prefill: Joules,
    /// Energy of computing answers.
    pub decode: Joules,
    /// Energy while the GPU waits for the engine.
    pub waiting: Joules,
}

impl StepCost {
    /// One after the other.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            time: self.time + other.time,
            prefill: self.prefill + other.prefill,
            decode: self.decode + other.decode,
            waiting: self.waiting + other.waiting,
        }
    }
}

/// What runs steps: a GPU, or several that share one network. One step follows the other; in a pipeline of several stages one
/// step is in each of them.
pub trait Replica {
    /// What a step takes; `work` holds at least one token. Of a pipeline, what all of its stages take together.
    fn step(&self, work: &StepWork) -> StepCost;

    /// Stages that a step goes through, at least one.
    fn stages(&self) -> usize {
        1
    }

    /// What a step takes in one of the stages, handing it on included.
    fn stage(&self, _stage: usize, work: &StepWork) -> StepCost {
        self.step(work)
    }

    /// What steps take, of answers alone, each of which adds a token to all of them: the first is `work`, further ones are
    /// asked for until `each` says that it has enough.
    fn growing(&self, work: &StepWork, mut each: impl FnMut(StepCost) -> bool) {
        let mut work = work.clone();
        while each(self.step(&work)) {
            work.cached += work.decodes;
        }
    }

    /// Power between steps, of all stages together.
    fn waiting(&self) -> Watts;
}
