#!/usr/bin/env python3
"""Prompts and steps of language models as torch_language.py measured them, beside predictions by the shipped calibrations.

    python3 calibrate/tools/language_steps.py PREDICT BOARD ROWS.csv... [--networks NAME,NAME]

PREDICT is the program `predict`, run from the root of the repository; BOARD the GPU that it knows the rows' card by. Prints, for each
network, prompts and steps of one token apart, the mean of absolute errors of time, power and energy, the mean signed error of time, all in
percent of the measurement, and how many 90 % intervals of time hold it. Needs nothing but Python.
"""
import argparse
import csv
import json
import statistics
import subprocess

CONFIGS = "model/read/tests/huggingface/"


def predicted(program, board, row):
    prompt = int(row["sequence"])
    words = [program, "--net", f"{CONFIGS}{row['network']}.json", "--gpu", board, "--precision", row["precision"]]
    words += ["--framework", "pytorch", "--launch", row["launch"], "--batch", row["batch"], "--format", "json"]
    words += ["--sequence", str(prompt or int(row["cached"])), "--generate", "1" if prompt else "2"]
    answer = json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)["generation"]
    return answer["prefill" if prompt else "decode"]


def errors(found, row):
    """Time, power and energy in shares of the measurement, and whether the interval holds the time."""
    time, joules = float(row["ms_per_iter"]) / 1e3, float(row["joules_per_iter"])
    of = (found["time_s"] / time - 1, found["energy_j"] / found["time_s"] / (joules / time) - 1, found["energy_j"] / joules - 1)
    return (*of, found["time_s_p05"] <= time <= found["time_s_p95"])


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("predict")
    arguments.add_argument("board")
    arguments.add_argument("rows", nargs="+")
    arguments.add_argument("--networks", help="these alone")
    args = arguments.parse_args()
    groups = {}
    for name in args.rows:
        with open(name, newline="") as file:
            for row in csv.DictReader(file):
                if row["error"] or args.networks and row["network"] not in args.networks.split(","):
                    continue
                part = "prompts" if int(row["sequence"]) else "steps"
                found = errors(predicted(args.predict, args.board, row), row)
                for group in ((row["network"], row["precision"], part), ("all", row["precision"], part)):
                    groups.setdefault(group, []).append(found)
    print("| network | precision | | rows | time, % | signed | power, % | energy, % | held |\n|---|---|---|---:|---:|---:|---:|---:|---:|")
    for group, list_ in sorted(groups.items()):
        mean = [100 * statistics.mean(abs(found[i]) for found in list_) for i in range(3)]
        signed = 100 * statistics.mean(found[0] for found in list_)
        held = sum(found[3] for found in list_)
        print(f"| {' | '.join(group)} | {len(list_)} | {mean[0]:.1f} | {signed:+.1f} | {mean[1]:.1f} | {mean[2]:.1f} | {held} |")


if __name__ == "__main__":
    main()
