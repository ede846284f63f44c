//! Serving a language model with continuous batching: an event simulation of a replica over predicted step times.
//!
//! [`times`] says what a step takes, [`Scheduler`] what it computes, [`Demand`] what comes; [`simulate()`] puts them together
//! and [`Summary`] says what came out.

mod copies;
mod pipeline;
mod pools;
mod replica;
mod requests;
mod scheduler;
mod service;
mod simulate;
mod summary;
#[cfg(test)]
mod testing;
pub mod times;

pub use copies::{saturated_copies, simulate_copies};
pub use pools::Pools;
pub use replica::{Chunk, Replica, StepCost, StepWork};
pub use requests::{Demand, Lengths, MOST_TOKENS, Request};
pub use scheduler::{Engine, Limits, Progress, Scheduler};
pub use service::{Group, Outlook, Service, Steps, Target};
pub use simulate::{Book, Counted, Load, Run, Served, Split, check, saturated, simulate};
pub use summary::{FILLINGS, Quantiles, SPANS, Summary, Which};

/// Why requests cannot be served.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ServingError {
    /// A trace cannot be read.
    #[error("{file}, line {line}: {why}")]
    Trace {
        /// Its file.
        file: String,
        /// The line.
        line: usize,
        /// What is wrong there.
        why: String,
    },
    /// A request is longer than the cache.
    #[error("a request of {tokens} tokens does not fit in the cache, which holds {capacity}")]
    Cache {
        /// Of its prompt and answer.
        tokens: u64,
        /// Of the whole cache.
        capacity: u64,
    },
    /// Users, and replicas apart.
    #[error(
        "replicas of their own for prompts and answers are simulated for requests that come at a rate, not of users"
    )]
    Apart,
    /// A prompt is longer than a step, and prompts are not cut.
    #[error(
        "a prompt of {tokens} tokens is longer than a step of {most}, and this engine cuts none where chunks are not asked for"
    )]
    Prompt {
        /// Of the prompt.
        tokens: u64,
        /// Of a step.
        most: u64,
    },
    /// A pipeline under a rule that is simulated without.
    #[error(
        "stages of a pipeline are not simulated where prompts come before answers, as in SGLang: it has batches of its own for each stage"
    )]
    Staged,
    /// Limits that let nothing run.
    #[error("no request, or a limit of nothing: tokens of a step, sequences and tokens of a block are at least 1")]
    Nothing,
}
