//! Limits of a scheduler, and what engines take where nothing is said.

use joulecast_model::device::gpu::Gpu;
use joulecast_model::step::framework::Scheduling;

/// Limits of a scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The rule by which it decides on steps.
    pub rule: Scheduling,
    /// Most tokens of a step (`max_num_batched_tokens` of vLLM, `max_num_tokens` of TensorRT-LLM); of SGLang those of a step of
    /// prompts (`chunked_prefill_size`, `max_prefill_tokens` where prompts run whole).
    pub tokens: u64,
    /// Most sequences that run (`max_num_seqs`, `max_batch_size`, `max_running_requests`).
    pub sequences: u64,
    /// Blocks of the cache.
    pub blocks: u64,
    /// Tokens of a block (`block_size`, `tokens_per_block`, `page_size`).
    pub block: u64,
    /// Whether a prompt may be computed in several steps. Otherwise it runs whole; SGLang runs one that is longer than the
    /// budget with no other prompt beside it, the others take none.
    pub chunked: bool,
    /// Of vLLM: whether a sequence comes in only where all of its known tokens fit in the cache beside what is there
    /// (`scheduler_reserve_full_isl`); otherwise where those of its first step do. The other rules ask for more.
    pub reserve: bool,
}

/// Limits of an engine as somebody asks for them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Engine {
    /// Most new tokens of a step; what the engine takes on such a GPU without.
    pub tokens: Option<u64>,
    /// Most sequences; likewise.
    pub sequences: Option<u64>,
    /// Tokens of a block of the cache; likewise.
    pub block: Option<u64>,
    /// Share of the memory that is used.
    pub memory: f64,
    /// Whether prompts may be computed in chunks; what the engine does without.
    pub chunked: Option<bool>,
    /// Whether a whole prompt must fit before it begins.
    pub reserve: bool,
}

impl Engine {
    /// The share of the memory that is used where nothing is said.
    pub const MEMORY: f64 = 0.9;
    /// No limit is higher: steps of so many tokens are predicted one by one.
    pub const MOST: u64 = 1 << 20;

    /// The limits of a scheduler of some rule on a GPU, with no blocks yet.
    pub fn limits(&self, rule: Scheduling, gpu: &Gpu) -> Limits {
        let usual = Limits::usual(rule, gpu);
        let chunked = self.chunked.unwrap_or(usual.chunked);
        let tokens = match rule {
            Scheduling::PromptsFirst if !chunked => WHOLE_PROMPTS,
            _ => usual.tokens,
        };
        Limits {
            tokens: self.tokens.unwrap_or(tokens),
            sequences: self.sequences.unwrap_or(usual.sequences),
            block: self.block.unwrap_or(usual.block),
            chunked,
            reserve: self.reserve,
            ..usual
        }
    }
}

/// GPUs with so much memory get large steps from vLLM.
const LARGE_MEMORY: f64 = 70.0;
/// What SGLang computes of prompts in a step, by the memory of the GPU in GiB: up to so much so many tokens
/// (`ServerArgs` of `python/sglang/srt/server_args.py`, the part on GPU memory).
const CHUNKS: [(f64, u64); 3] = [(35.0, 2048), (60.0, 4096), (160.0, 8192)];
/// On still larger ones.
const LARGEST_CHUNK: u64 = 16_384;
/// And where prompts are not cut (`max_prefill_tokens` there).
const WHOLE_PROMPTS: u64 = 16_384;

impl Limits {
    /// What the server of a rule's engine takes on a GPU where nothing is said (read in November 2026), with no blocks yet.
    ///
    /// * vLLM (`get_batch_defaults` of `vllm/engine/arg_utils.py`, usage `OPENAI_API_SERVER`): blocks of 16 tokens; large steps
    ///   on GPUs of 70 GiB and more, but not on A100s, which lost throughput by them (its pull request 17885).
    /// * SGLang: pages of one token, chunks by the GPU's memory; 2048 sequences, the fewest that `max_running_requests` is where
    ///   the cache decides on it (`init_memory_pool` of `model_runner`: 2048 to 4096).
    /// * TensorRT-LLM (`tensorrt_llm/llmapi/llm_args.py`): 8192 tokens, 2048 sequences, blocks of 32 tokens, no chunks.
    pub fn usual(rule: Scheduling, gpu: &Gpu) -> Self {
        let memory = gpu.memory.value.to_gib();
        let (tokens, sequences, block, chunked) = match rule {
            Scheduling::AnswersFirst if memory >= LARGE_MEMORY && !gpu.name.starts_with("a100") => {
                (8192, 1024, 16, true)
            }
            Scheduling::AnswersFirst => (2048, 256, 16, true),
            Scheduling::PromptsFirst => {
                let chunk = CHUNKS.iter().find(|(most, _)| memory < *most).map_or(LARGEST_CHUNK, |(_, chunk)| *chunk);
                (chunk, 2048, 1, true)
            }
            Scheduling::WholeAnswers => (8192, 2048, 32, false),
        };
        Self { rule, tokens, sequences, blocks: 0, block, chunked, reserve: true }
    }

    /// Limits that bind nothing, of vLLM's rule: each test names what of them it is about.
    #[cfg(test)]
    pub(crate) const AMPLE: Self = Self {
        rule: Scheduling::AnswersFirst,
        tokens: 1 << 20,
        sequences: 1 << 20,
        blocks: 1 << 40,
        block: 16,
        chunked: true,
        reserve: true,
    };

    /// Blocks for so many tokens.
    pub fn blocks_for(&self, tokens: u64) -> u64 {
        tokens.div_ceil(self.block)
    }

    /// Tokens of a request for which the cache has room: all that it holds; under SGLang's rule a page and a token less, which a
    /// request must leave.
    pub fn capacity(&self) -> u64 {
        let all = self.blocks.saturating_mul(self.block);
        match self.rule {
            Scheduling::PromptsFirst => all.saturating_sub(self.block + 1),
            Scheduling::AnswersFirst | Scheduling::WholeAnswers => all,
        }
    }

    /// Most tokens of a step where no sequence is longer than so many.
    pub fn largest_step(&self, longest: u64) -> u64 {
        let prompts = match self.rule {
            // A prompt that is not cut runs beside all answers.
            Scheduling::AnswersFirst if !self.chunked => self.tokens.max(longest + self.sequences),
            Scheduling::PromptsFirst if !self.chunked => self.tokens.max(longest),
            _ => self.tokens,
        };
        prompts.max(self.sequences)
    }

    /// Prompts are cut to a multiple of so many tokens.
    pub(super) fn unit(&self) -> u64 {
        self.block.min(self.tokens)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Scheduling::{AnswersFirst, PromptsFirst, WholeAnswers};
    use joulecast_model::catalog;

    fn usual(rule: Scheduling, gpu: &str) -> (u64, u64, u64, bool) {
        let Limits { tokens, sequences, block, chunked, .. } =
            Limits::usual(rule, &catalog::gpu(gpu).expect("shipped"));
        (tokens, sequences, block, chunked)
    }

    #[test]
    fn vllm_takes_large_steps_on_large_gpus_but_for_a100s() {
        let of = |gpu| usual(AnswersFirst, gpu);
        assert_eq!((of("h100"), of("h200")), ((8192, 1024, 16, true), (8192, 1024, 16, true)));
        assert_eq!((of("a100-sxm4-80gb"), of("l40s")), ((2048, 256, 16, true), (2048, 256, 16, true)));
    }

    #[test]
    fn sglang_cuts_prompts_by_the_gpu_s_memory() {
        let chunk = |gpu| usual(PromptsFirst, gpu);
        let gpus = ["l4", "l40s", "a100-sxm4-80gb", "h200", "b200"];
        let found = gpus.map(chunk);
        assert_eq!(found.map(|(tokens, ..)| tokens), [2048, 4096, 8192, 8192, 16_384]);
        assert!(found.iter().all(|(_, sequences, block, chunked)| (*sequences, *block, *chunked) == (2048, 1, true)));
    }

    #[test]
    fn what_is_asked_for_comes_before_what_an_engine_takes() {
        let gpu = catalog::gpu("l40s").expect("shipped");
        let nothing = Engine { tokens: None, sequences: None, block: None, memory: 0.9, chunked: None, reserve: true };
        for rule in [AnswersFirst, PromptsFirst, WholeAnswers] {
            assert_eq!(nothing.limits(rule, &gpu), Limits::usual(rule, &gpu));
            let all = Engine { tokens: Some(7), sequences: Some(5), block: Some(3), chunked: Some(true), ..nothing };
            let Limits { tokens, sequences, block, chunked, .. } = all.limits(rule, &gpu);
            assert_eq!((tokens, sequences, block, chunked), (7, 5, 3, true));
        }
        assert_eq!(usual(WholeAnswers, "l40s"), (8192, 2048, 32, false));
        let whole = Engine { chunked: Some(false), ..nothing };
        assert_eq!(whole.limits(PromptsFirst, &gpu).tokens, 16_384);
        assert_eq!(whole.limits(AnswersFirst, &gpu).tokens, 2048);
    }

    #[test]
    fn the_largest_step_holds_what_each_rule_puts_into_it() {
        let of = |rule, chunked| Limits { rule, tokens: 100, sequences: 8, chunked, ..Limits::AMPLE }.largest_step(500);
        assert_eq!([of(AnswersFirst, true), of(AnswersFirst, false)], [100, 508]);
        assert_eq!([of(PromptsFirst, true), of(PromptsFirst, false)], [100, 500]);
        assert_eq!([of(WholeAnswers, true), of(WholeAnswers, false)], [100, 100]);
    }
}
