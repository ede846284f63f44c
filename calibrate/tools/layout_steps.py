#!/usr/bin/env python3
"""Time per token of language models on several GPUs, predicted and as servers measured it.

    python3 calibrate/tools/layout_steps.py PREDICT silicon_serving.csv

PREDICT is the program `predict`, run from the root of the repository. The table is development truth of NVIDIA AIConfigurator
(Apache-2.0; github.com/ai-dynamo/aiconfigurator, silicon_sample.csv) with the columns model_group, system, backend, gemm_quant_mode,
mode, isl, osl, concurrency, tp_size and tpot_ms. Taken are rows of Llama 3.1 8B and Qwen3 32B with prefill and decode on the same
GPUs, no quantisation stated, answers of 500 tokens and more, and at most 32 requests at once, which says little of queues. A server
also fills prompts between tokens: the prompt's step of all requests, spread over the answer's tokens, is the second figure.
Needs nothing but Python.
"""

import csv
import json
import statistics
import subprocess
import sys

CONFIGS = "model/read/tests/huggingface/"
NETWORKS = {"llama-3.1-8b": "llama3_1_8b", "qwen3-32b": "qwen3_32b"}


def wanted(row):
    plain = row["mode"] == "agg" and row["model_group"] in NETWORKS and not row["gemm_quant_mode"]
    return plain and int(row["osl"]) >= 500 and int(row["concurrency"]) <= 32


def predicted(program, row):
    """Milliseconds per token, those of prompts between tokens, and the share of exchanges."""
    words = [program, "--net", f"{CONFIGS}{NETWORKS[row['model_group']]}.json", "--gpu", row["system"].split("_")[0]]
    words += ["--precision", "bf16", "--batch", row["concurrency"], "--sequence", row["isl"], "--generate", row["osl"]]
    words += ["--tensor-parallel", row["tp_size"], "--format", "json"]
    answer = json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)
    parts = answer["generation"]
    prompts = parts["prefill"]["time_s"] * 1e3 / int(row["osl"])
    return parts["time_per_step_s"] * 1e3, prompts, answer["layout"]["exchange_s"] / answer["time_s"]


def main():
    program, table = sys.argv[1:]
    groups, errors, known = {}, [], {}
    with open(table, newline="") as file:
        for row in filter(wanted, csv.DictReader(file)):
            key = tuple(row[c] for c in ["model_group", "system", "isl", "osl", "concurrency", "tp_size"])
            if key not in known:
                known[key] = predicted(program, row)
            step, prompts, exchanged = known[key]
            measured = float(row["tpot_ms"])
            ratios = (step / measured, (step + prompts) / measured, exchanged)
            groups.setdefault((row["model_group"], row["backend"], int(row["tp_size"])), []).append(ratios)
            errors.append(abs(ratios[1] - 1))
    print("| network | server | GPUs | rows | step over measured | with prompts | exchanges |")
    print("|---|---|---:|---:|---:|---:|---:|")
    for (network, server, gpus), rows in sorted(groups.items()):
        step, whole, exchanged = (statistics.median(row[i] for row in rows) for i in range(3))
        print(f"| {network} | {server} | {gpus} | {len(rows)} | {step:.2f} | {whole:.2f} | {100 * exchanged:.0f} % |")
    print(f"\nmean error with prompts {100 * statistics.mean(errors):.1f} %, median {100 * statistics.median(errors):.1f} %, {len(errors)} rows")


if __name__ == "__main__":
    main()
