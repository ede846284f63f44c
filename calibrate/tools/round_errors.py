#!/usr/bin/env python3
"""Steps of measured rounds beside what the program says of them today: of networks that were learned from, so no test.

    python3 calibrate/tools/round_errors.py PREDICT data/measurements/sealed/round_*.csv [--each FILE] [--only WORD]

PREDICT is the program `predict`, run from the root of the repository. Takes CUDA graphs, whose networks lie in the folder of the
round's name; with `--eager` also eager steps that are foreseen to be bound by the GPU, with the host of their visit (hosts.toml
beside the rows).
Prints mean, median and mean signed error of time in percent by mode and precision; `--each` writes every row, worst first.
`--power` compares mean power instead; `--memory` the peak of PyTorch's allocator, less the context that the prediction has besides.
Needs nothing but Python.
"""
import argparse
import collections
import concurrent.futures
import csv
import json
import os
import statistics
import subprocess
import tomllib

import host_files

HALVES = {"fp16", "bf16"}


def hosts(path):
    """Factors of a visit's host by group, by the file of runs and the visit's name."""
    found = {}
    if os.path.exists(path):
        with open(path, "rb") as file:
            visits = tomllib.load(file)["visit"]
        for visit in visits:
            found[visit["runs"], visit["name"]] = host_files.factors(os.path.join(os.path.dirname(path), name) for name in visit["hosts"])
    return found


def predicted(program, row, folder):
    words = [program, "--net", os.path.join(folder, row["network"] + ".toml"), "--gpu", row["board"], "--precision", row["precision"]]
    words += ["--framework", "pytorch", "--launch", row["launch"], "--batch", row["batch"], "--format", "json"]
    if row["mode"] == "train":
        words += ["--mode", "training"]
    if row["launch"] == "eager" and row["factors"]:
        words += ["--host", f"{row['factors'][host_files.group(row['mode'], row['precision'])]:.4f}"]
    answer = subprocess.run(words, capture_output=True, text=True)
    if answer.returncode:
        return None, answer.stderr.strip().splitlines()[-1:]
    return json.loads(answer.stdout), None


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("predict")
    arguments.add_argument("rows", nargs="+")
    arguments.add_argument("--each")
    arguments.add_argument("--only", default="", help="networks whose name has this")
    arguments.add_argument("--eager", action="store_true")
    other = arguments.add_mutually_exclusive_group()
    other.add_argument("--memory", action="store_true")
    other.add_argument("--power", action="store_true")
    args = arguments.parse_args()
    rows = []
    for path in args.rows:
        folder = os.path.splitext(path)[0]
        known = hosts(os.path.join(os.path.dirname(path), "hosts.toml"))
        with open(path, newline="") as file:
            for row in csv.DictReader(file):
                row["board"] = "h100" if "H100" in row["device"] else "h200"
                row["factors"] = known.get((os.path.basename(path), row.get("visit")))
                wanted = row["launch"] == "graph" or args.eager
                if wanted and args.only in row["network"] and os.path.exists(os.path.join(folder, row["network"] + ".toml")):
                    rows.append((row, folder))
    found, failed = [], collections.Counter()
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for (row, folder), (answer, error) in zip(rows, pool.map(lambda r: predicted(args.predict, *r), rows)):
            if error is not None:
                failed[str(error)[:120]] += 1
                continue
            time = float(row["ms_per_iter"]) / 1e3
            if args.eager and row["launch"] == "eager" and answer["host"]["decides"]:
                continue
            error = answer["time_s"] / time - 1
            if args.memory:
                if not row["peak_mem_mib"]:
                    continue
                error = (answer["memory_bytes"] - answer["memory"]["context"]) / (float(row["peak_mem_mib"]) * 2**20) - 1
            if args.power:
                if not row["watts"]:
                    continue
                error = answer["power_w"] / float(row["watts"]) - 1
            found.append((error, row, os.path.basename(folder)))
    groups = collections.defaultdict(list)
    for error, row, name in found:
        bits = "16 bits" if row["precision"] in HALVES else "32 bits"
        groups[row["mode"], bits].append(error)
        groups["all", ""].append(error)
    for key, errors in sorted(groups.items()):
        sizes = [100 * abs(e) for e in errors]
        print(f"{' '.join(key):16} {len(errors):5} rows  mean {statistics.mean(sizes):5.1f}  median {statistics.median(sizes):5.1f}  "
              f"signed {100 * statistics.mean(errors):+5.1f}")
    for error, count in failed.items():
        print(count, "not predicted:", error)
    if args.each:
        with open(args.each, "w", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow("error,round,network,board,mode,precision,launch,batch,ms".split(","))
            for error, row, name in sorted(found, key=lambda f: -abs(f[0])):
                writer.writerow([f"{100 * error:+.1f}", name, *(row[k] for k in ("network", "board", "mode", "precision", "launch", "batch", "ms_per_iter"))])


if __name__ == "__main__":
    main()
