"""Parameters of language models as transformers builds them on PyTorch's `meta` device, without weights or network.

Writes OUT/NAME.json (the structure) and OUT/parameters.csv: name, parameters (tied ones once), source.
    huggingface_parameters.py OUT
"""
import csv
import json
import pathlib
import sys

import torch
import transformers
from transformers import AutoModelForCausalLM

L = dict(model_type="llama")
MODELS = {
    "llama3_1_8b": (dict(L, vocab_size=128256, hidden_size=4096, intermediate_size=14336, num_hidden_layers=32, num_attention_heads=32, num_key_value_heads=8, tie_word_embeddings=False), 8030261248),
    "mistral_7b": (dict(model_type="mistral", vocab_size=32000, hidden_size=4096, intermediate_size=14336, num_hidden_layers=32, num_attention_heads=32, num_key_value_heads=8, tie_word_embeddings=False), 7241732096),
    "qwen2_5_0_5b": (dict(model_type="qwen2", vocab_size=151936, hidden_size=896, intermediate_size=4864, num_hidden_layers=24, num_attention_heads=14, num_key_value_heads=2, tie_word_embeddings=True), 494032768),
    "qwen3_8b": (dict(model_type="qwen3", vocab_size=151936, hidden_size=4096, intermediate_size=12288, num_hidden_layers=36, num_attention_heads=32, num_key_value_heads=8, head_dim=128, tie_word_embeddings=False), 8190735360),
    "gemma2_9b": (dict(model_type="gemma2", vocab_size=256000, hidden_size=3584, intermediate_size=14336, num_hidden_layers=42, num_attention_heads=16, num_key_value_heads=8, head_dim=256, tie_word_embeddings=True), 9241705984),
    "phi_2": (dict(model_type="phi", vocab_size=51200, hidden_size=2560, intermediate_size=10240, num_hidden_layers=32, num_attention_heads=32, num_key_value_heads=32, partial_rotary_factor=0.4, tie_word_embeddings=False), 2779683840),
    "mixtral_8x7b": (dict(model_type="mixtral", vocab_size=32000, hidden_size=4096, intermediate_size=14336, num_hidden_layers=32, num_attention_heads=32, num_key_value_heads=8, num_local_experts=8, num_experts_per_tok=2, tie_word_embeddings=False), 46702792704),
}
out = pathlib.Path(sys.argv[1])
rows = []
for name, (config, published) in MODELS.items():
    fields = dict(config)
    made = transformers.AutoConfig.for_model(fields.pop("model_type"), **fields)
    with torch.device("meta"):
        counted = sum(p.numel() for p in AutoModelForCausalLM.from_config(made).parameters())
    print(name, counted, "as published" if counted == published else f"published: {published}", flush=True)
    (out / f"{name}.json").write_text(json.dumps(config, indent=1) + "\n")
    same = counted == published
    rows.append([name, counted, f"transformers {transformers.__version__} on meta" + ("; the published total, from memory" if same else "")])
with open(out / "parameters.csv", "w", newline="") as f:
    w = csv.writer(f, lineterminator="\n")
    w.writerow(["name", "parameters", "source"])
    w.writerows(rows)
