#!/usr/bin/env python3
"""Prints the page about serving language models, from what `predict serve` finds.

  cargo build --release -p joulecast-predict && calibrate/tools/serving.py

Only the standard library.
"""
import argparse
import json
import subprocess
import sys

# Title, file or name, and for each GPU how many of them divide every block: the fewest that leave a cache for the load.
MODELS = (
    ("Llama 3.1 8B", "model/read/tests/huggingface/llama3_1_8b.json", {"h100": 1, "h200": 1, "a100-sxm4-80gb": 1, "l40s": 1}),
    ("Llama 3.1 70B", "llama3_1_70b", {"h100": 4, "h200": 2, "a100-sxm4-80gb": 4, "l40s": 4}),
    ("Qwen3-30B-A3B", "qwen3_30b_a3b", {"h100": 2, "h200": 1, "a100-sxm4-80gb": 2, "l40s": 4}),
)
PROMPT, ANSWER = "512..1536", "lognormal:256:0.5"
TARGET = ["--ttft", "1s", "--tpot", "50ms"]
LOADS = (0.25, 0.5, 0.75, 0.9)
# So many that the replica is full before any counts, at the highest rate too.
REQUESTS = "10000"


class Asked:
    """`predict serve` of one model on so many GPUs."""

    def __init__(self, predict, net, gpu, gpus):
        self.of = [predict, "serve", "--net", net, "--gpu", gpu, "--precision", "bf16", "--prompt", PROMPT, "--answer", ANSWER,
                   "--requests", REQUESTS]
        self.of += ["--tensor-parallel", str(gpus)] if gpus > 1 else []

    def __call__(self, *options):
        done = subprocess.run([*self.of, *options, "--format", "json"], capture_output=True, text=True)
        # 1 with an answer: nothing that was tried carries the load or keeps the target.
        if done.returncode > 1 or not done.stdout.startswith("{"):
            sys.exit(f"{' '.join(done.args)}: {done.stderr}")
        return json.loads(done.stdout)


def number(x, digits=3):
    return f"{float(f'{x:.{digits}g}'):,.10g}"


def ms(seconds):
    return number(1e3 * seconds)


def ends(point, figure):
    """A figure at the value, with those at the ends of all steps' intervals; nothing where a queue has no end."""
    found = [figure(point[key]) if point[key] else None for key in ("steps_p05", "steps_p95")]
    low, high = sorted(found) if None not in found else (found[0], None)
    interval = f"{number(low)} to {number(high)}" if high is not None else f"{number(low)} to overload"
    return f"{number(figure(point['value']))} ({interval})"


def setting(point):
    return f"{point['power_cap_w']:.0f} W" if point["power_cap_w"] else "none"


def table(header, rows):
    print("| " + " | ".join(header) + " |")
    print("|" + "|".join("---" if i == 0 else "---:" for i in range(len(header))) + "|")
    for row in rows:
        print("| " + " | ".join(row) + " |")
    print()


def main():
    args = argparse.ArgumentParser()
    args.add_argument("--predict", default="target/release/predict")
    args = args.parse_args()
    notes = []
    for title, net, gpus in MODELS:
        print(f"## {title}\n")
        highest, loads = [], []
        for gpu, count in gpus.items():
            ask = Asked(args.predict, net, gpu, count)
            found = ask(*TARGET, "--over", "cap")
            name = f"{count} x {gpu}" if count > 1 else gpu
            notes += [(name, title, note) for note in found["warnings"]]
            if not found["value"]:
                highest.append([name, "none"] + ["" ] * 7)
                continue
            value, rate = found["value"], found["rate_per_s"]
            kept = [p for p in [found, *found["points"]] if p["value"]]
            best = min(kept, key=lambda p: p["value"]["energy_per_token_j"])
            highest.append([
                name, number(rate), number(value["tokens_per_s"]), ms(value["time_to_first_token_s"]["p90"]),
                ms(value["time_per_token_s"]["p90"]), ends(found, lambda f: f["power_w"]),
                ends(found, lambda f: f["energy_per_token_j"]),
                f"{setting(best)}: {number(best['rate_per_s'])} /s, {number(best['value']['energy_per_token_j'])} J",
            ])
            for load in LOADS:
                at = ask("--rate", str(float(f"{load * rate:.3g}")))
                v = at["value"]
                shares = v["energy_shares"]
                loads.append([
                    name, f"{number(at['rate_per_s'])} ({100 * load:.0f} %)", ms(v["time_to_first_token_s"]["p50"]),
                    ms(v["time_to_first_token_s"]["p99"]), ends(at, lambda f: 1e3 * f["time_per_token_s"]["p50"]),
                    number(v["power_w"]), ends(at, lambda f: f["energy_per_token_j"]),
                    ", ".join(f"{100 * shares[part]:.0f}" for part in ("prefill", "decode", "idle")),
                ])
        print("At the highest rate that keeps the target:\n")
        table(["GPUs", "requests/s", "tokens/s", "first token p90, ms", "each token p90, ms", "W (90 %)", "J a token (90 %)",
               "limit of least J a token"], highest)
        print("Below it:\n")
        table(["GPUs", "requests/s", "first token p50, ms", "p99, ms", "each token p50, ms (90 %)", "W", "J a token (90 %)",
               "prompts, answers, waiting, % of J"], loads)
    print("## What the predictions say of themselves\n")
    for note in sorted({note for _, _, note in notes}):
        where = sorted({f"{title} on {name}" for name, title, n in notes if n == note})
        print(f"- {note}: {', '.join(where) if len(where) < 4 else f'{len(where)} of them'}")


if __name__ == "__main__":
    main()
