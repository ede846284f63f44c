#!/usr/bin/env bash
# The worked page about serving language models.
# inputs: data/gpus data/frameworks data/calibrations data/interconnects
# inputs: data/nets/llama3_1_70b.toml data/nets/qwen3_30b_a3b.toml model/read/tests/huggingface/llama3_1_8b.json
# inputs: model/tests/golden/values.txt tests/golden/services.json
# code: model/ask/src/serving
set -euo pipefail
cd "$(dirname "$0")/../.."
cat <<'TEXT'
# Serving language models

`calibrate/tools/publish.sh serving`. A replica with continuous batching as vLLM does it, simulated step by step by `predict serve` (MODELLING, "Serving"): prompts of 512 to 1536 tokens (all alike likely), answers log-normal with a median of 256 and a deviation of the logarithm of 0.5, arrivals at random (Poisson, seed 1, 10,000 requests: `calibrate/tools/serving.py` has the command), bf16, the profile `vllm`. The target: nine of ten requests have their first token within 1 s, and a mean of at most 50 ms for each further one. GPUs that are several divide every block (`--tensor-parallel`), and watts and joules are those of all of them; servers' processors, fans and power supplies are not in them. Joules a token are all joules over the answers' tokens.

Nothing here was measured as a whole: steps of dense models in bf16 were on H100 and H200 (the book, "Language models"), the engine's own time is learned from servers on H100 and H200 ([vllm.toml](../../data/frameworks/vllm.toml)), power of serving by nobody. Intervals in brackets: all steps at once at their 5 % and 95 % quantiles. "to overload": with steps that long more requests come than are answered.

TEXT
python3 calibrate/tools/serving.py
