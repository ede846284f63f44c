#!/usr/bin/env python3
"""Parameters of language models as transformers builds them on PyTorch's `meta` device: no weights, no network, no GPU.

Writes OUT/NAME.json, the configuration as transformers writes it from the numbers below, and OUT/parameters.csv: name,
architecture, parameters (tied ones once, with buffers that are saved beside them, such as a router's corrections), source. The numbers below are those of the published config.json files, written
down from memory, as are the published totals; a total is named as a source only where it equals the count.

    huggingface_parameters.py OUT [NAME ...]
"""
import csv
import json
import pathlib
import sys

import torch
import transformers
from transformers import AutoModelForCausalLM


def llama(h, i, layers, heads, kv, vocabulary, tied=False, kind="llama", **more):
    return dict(model_type=kind, vocab_size=vocabulary, hidden_size=h, intermediate_size=i, num_hidden_layers=layers,
                num_attention_heads=heads, num_key_value_heads=kv, tie_word_embeddings=tied, **more)


def experts(of, config, **more):
    return dict(config, model_type=of, **more)


def gpt2(h, layers, heads):
    return dict(model_type="gpt2", vocab_size=50257, n_positions=1024, n_embd=h, n_layer=layers, n_head=heads)


def neox(h, layers, heads, vocabulary, **more):
    return dict(model_type="gpt_neox", vocab_size=vocabulary, hidden_size=h, intermediate_size=4 * h, num_hidden_layers=layers,
                num_attention_heads=heads, tie_word_embeddings=False, **more)


def deepseek(kind, h, i, layers, heads, vocabulary, rank, routed, shared, active, inner, first, query_rank, **more):
    return dict(model_type=kind, vocab_size=vocabulary, hidden_size=h, intermediate_size=i, num_hidden_layers=layers,
                num_attention_heads=heads, num_key_value_heads=heads, kv_lora_rank=rank, q_lora_rank=query_rank,
                qk_nope_head_dim=128, qk_rope_head_dim=64, v_head_dim=128, n_routed_experts=routed, n_shared_experts=shared,
                num_experts_per_tok=active, moe_intermediate_size=inner, first_k_dense_replace=first, tie_word_embeddings=False, **more)


def gemma3(h, i, layers, heads, kv, vocabulary, window, head=256):
    return dict(llama(h, i, layers, heads, kv, vocabulary, True, "gemma3_text"), head_dim=head, sliding_window=window)


def gpt_oss(layers, count):
    return dict(model_type="gpt_oss", vocab_size=201088, hidden_size=2880, intermediate_size=2880, num_hidden_layers=layers,
                num_attention_heads=64, num_key_value_heads=8, head_dim=64, num_local_experts=count, num_experts_per_tok=4,
                sliding_window=128, tie_word_embeddings=False)


def whisper(d, layers, heads, vocabulary, encoder=None):
    """The decoder and its logits alone, which transformers counts where the model is no encoder's."""
    return dict(model_type="whisper", d_model=d, decoder_layers=layers, decoder_attention_heads=heads, decoder_ffn_dim=4 * d,
                encoder_layers=encoder or layers, encoder_attention_heads=heads, encoder_ffn_dim=4 * d, vocab_size=vocabulary,
                max_source_positions=1500, max_target_positions=448, is_encoder_decoder=False)


Q3 = dict(kind="qwen3", head_dim=128)
# Name: configuration, published total.
MODELS = {
    "llama2_7b": (llama(4096, 11008, 32, 32, 32, 32000), 6738415616),
    "llama3_1_8b": (llama(4096, 14336, 32, 32, 8, 128256), 8030261248),
    "llama3_1_70b": (llama(8192, 28672, 80, 64, 8, 128256), 70553706496),
    "llama3_1_405b": (llama(16384, 53248, 126, 128, 8, 128256), 405853388800),
    "llama3_2_1b": (llama(2048, 8192, 16, 32, 8, 128256, True, head_dim=64), 1235814400),
    "llama3_2_3b": (llama(3072, 8192, 28, 24, 8, 128256, True, head_dim=128), 3212749824),
    "tinyllama_1_1b": (llama(2048, 5632, 22, 32, 4, 32000), 1100048384),
    "mistral_7b": (llama(4096, 14336, 32, 32, 8, 32000, kind="mistral", sliding_window=4096), 7241732096),
    "mistral_nemo_12b": (llama(5120, 14336, 40, 32, 8, 131072, kind="mistral", head_dim=128, sliding_window=None), 12247782400),
    "mixtral_8x7b": (llama(4096, 14336, 32, 32, 8, 32000, kind="mixtral", num_local_experts=8, num_experts_per_tok=2), 46702792704),
    "mixtral_8x22b": (llama(6144, 16384, 56, 48, 8, 32768, kind="mixtral", num_local_experts=8, num_experts_per_tok=2), 140630071296),
    "qwen2_5_0_5b": (llama(896, 4864, 24, 14, 2, 151936, True, "qwen2"), 494032768),
    "qwen2_5_7b": (llama(3584, 18944, 28, 28, 4, 152064, kind="qwen2"), 7615616512),
    "qwen2_5_14b": (llama(5120, 13824, 48, 40, 8, 152064, kind="qwen2"), 14770033664),
    "qwen2_5_72b": (llama(8192, 29568, 80, 64, 8, 152064, kind="qwen2"), 72706203648),
    "qwen3_0_6b": (llama(1024, 3072, 28, 16, 8, 151936, True, **Q3), 596049920),
    "qwen3_4b": (llama(2560, 9728, 36, 32, 8, 151936, True, **Q3), 4022468096),
    "qwen3_8b": (llama(4096, 12288, 36, 32, 8, 151936, **Q3), 8190735360),
    "qwen3_14b": (llama(5120, 17408, 40, 40, 8, 151936, **Q3), 14768307200),
    "qwen3_32b": (llama(5120, 25600, 64, 64, 8, 151936, **Q3), 32762123264),
    "qwen1_5_moe_a2_7b": (llama(2048, 5632, 24, 16, 16, 151936, kind="qwen2_moe", moe_intermediate_size=1408, num_experts=60,
                                shared_expert_intermediate_size=5632, num_experts_per_tok=4), 14315784192),
    "qwen3_30b_a3b": (llama(2048, 6144, 48, 32, 4, 151936, kind="qwen3_moe", head_dim=128, moe_intermediate_size=768, num_experts=128,
                            num_experts_per_tok=8), 30532122624),
    "qwen3_235b_a22b": (llama(4096, 12288, 94, 64, 4, 151936, kind="qwen3_moe", head_dim=128, moe_intermediate_size=1536, num_experts=128,
                              num_experts_per_tok=8), 235093634560),
    "gemma_2b": (llama(2048, 16384, 18, 8, 1, 256000, True, "gemma", head_dim=256), 2506172416),
    "gemma_7b": (llama(3072, 24576, 28, 16, 16, 256000, True, "gemma", head_dim=256), 8537680896),
    "gemma2_2b": (llama(2304, 9216, 26, 8, 4, 256000, True, "gemma2", head_dim=256), 2614341888),
    "gemma2_9b": (llama(3584, 14336, 42, 16, 8, 256000, True, "gemma2", head_dim=256), 9241705984),
    "gemma2_27b": (llama(4608, 36864, 46, 32, 16, 256000, True, "gemma2", head_dim=128), 27227128320),
    "gemma3_1b": (gemma3(1152, 6912, 26, 4, 1, 262144, 512), 999885952),
    "gemma3_4b_text": (gemma3(2560, 10240, 34, 8, 4, 262208, 1024), None),
    "gemma3_12b_text": (gemma3(3840, 15360, 48, 16, 8, 262208, 1024), None),
    "gemma3_27b_text": (gemma3(5376, 21504, 62, 32, 16, 262208, 1024, 128), None),
    "phi_1_5": (llama(2048, 8192, 24, 32, 32, 51200, kind="phi", partial_rotary_factor=0.5), 1418270720),
    "phi_2": (llama(2560, 10240, 32, 32, 32, 51200, kind="phi", partial_rotary_factor=0.4), 2779683840),
    "phi_3_mini": (llama(3072, 8192, 32, 32, 32, 32064, kind="phi3", sliding_window=2047), 3821079552),
    "phi_4": (llama(5120, 17920, 40, 40, 10, 100352, kind="phi3", sliding_window=None, pad_token_id=0), 14659507200),
    "phi_4_mini": (llama(3072, 8192, 32, 24, 8, 200064, True, "phi3", partial_rotary_factor=0.75, sliding_window=262144), 3836021760),
    "gpt2": (gpt2(768, 12, 12), 124439808),
    "gpt2_xl": (gpt2(1600, 48, 25), 1557611200),
    "pythia_70m": (neox(512, 6, 8, 50304), 70426624),
    "pythia_6_9b": (neox(4096, 32, 32, 50432), 6857302016),
    "gpt_neox_20b": (neox(6144, 44, 64, 50432), 20554567680),
    "gpt_oss_20b": (gpt_oss(24, 32), 20914757184),
    "gpt_oss_120b": (gpt_oss(36, 128), 116829156672),
    "deepseek_v2_lite": (deepseek("deepseek_v2", 2048, 10944, 27, 16, 102400, 512, 64, 2, 6, 1408, 1, None, n_group=1, topk_group=1,
                                  topk_method="greedy"), 15706484224),
    "deepseek_v2": (deepseek("deepseek_v2", 5120, 12288, 60, 128, 102400, 512, 160, 2, 6, 1536, 1, 1536, n_group=8, topk_group=3,
                             topk_method="group_limited_greedy"), 235741434880),
    "deepseek_v3": (deepseek("deepseek_v3", 7168, 18432, 61, 128, 129280, 512, 256, 1, 8, 2048, 3, 1536, n_group=8, topk_group=4),
                    671026419200),
    "olmo2_1b": (llama(2048, 8192, 16, 16, 16, 100352, kind="olmo2"), 1484916736),
    "olmo2_7b": (llama(4096, 11008, 32, 32, 32, 100352, kind="olmo2"), 7298617344),
    "whisper_tiny": (whisper(384, 4, 6, 51865), None),
    "whisper_small": (whisper(768, 12, 12, 51865), None),
    "whisper_large_v3": (whisper(1280, 32, 20, 51866), None),
    "whisper_large_v3_turbo": (whisper(1280, 4, 20, 51866, 32), None),
    "olmoe_1b_7b": (llama(2048, 1024, 16, 16, 16, 50304, kind="olmoe", num_experts=64, num_experts_per_tok=8), 6919161856),
}
out = pathlib.Path(sys.argv[1])
wanted = sys.argv[2:] or list(MODELS)
rows = []
for name in wanted:
    config, published = MODELS[name]
    fields = dict(config)
    made = transformers.AutoConfig.for_model(fields.pop("model_type"), **fields)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(made)
    saved = model.state_dict()
    counted = sum(p.numel() for p in model.parameters()) + sum(b.numel() for n, b in model.named_buffers() if n in saved)
    said = "not known" if published is None else "as published" if counted == published else f"published: {published}"
    print(name, counted, said, flush=True)
    written = made.to_diff_dict()
    written.pop("transformers_version", None)
    (out / f"{name}.json").write_text(json.dumps(written, indent=1, sort_keys=True) + "\n")
    source = f"counted by transformers {transformers.__version__} on PyTorch's meta device"
    if counted == published:
        source += "; equals the published total, which was written down from memory"
    rows.append([name, config["model_type"], counted, source])
if not sys.argv[2:]:
    with open(out / "parameters.csv", "w", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(["name", "architecture", "parameters", "source"])
        table.writerows(rows)
