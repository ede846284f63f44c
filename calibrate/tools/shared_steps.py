#!/usr/bin/env python3
"""Training steps that two GPUs share, as measured, beside what the program says of them today; and how much longer sharing makes them.

  calibrate/tools/shared_steps.py target/release/predict [--each]

Rows: pairs of steps of one and two GPUs of the zoo's networks (data/measurements/*/torch_ddp*.csv), and those of sealed rounds that
became development (data/sealed/round-N/measured-*pair*.csv, networks of data/measurements/sealed/round_N, the visit's host by
its files). Prints mean, median and mean signed error of time, power and energy in percent, by what decides.

Then, of pairs that the GPU decides and whose step on one GPU was measured in the same visit: by least squares, which share of the
step (the slower of two GPUs decides) and which of the time of sums (kernels beside them run slower) the step is longer by, besides
copies of gradients and sums that nothing hides: `waits` of `[parallel]` in data/frameworks/pytorch.toml. That profile's own
`waits` must be zero for it.
Needs nothing but Python.
"""
import argparse
import concurrent.futures
import csv
import glob
import json
import os
import statistics
import subprocess

import host_files

TRAINING = ("--framework", "pytorch", "--launch", "eager", "--mode", "training", "--format", "json")


def board_of(device):
    return "h100" if "H100" in device else "h200"


def host_factor(folder, board, precision):
    """The visit's factor for training; none without files of hosts."""
    found = host_files.factors(glob.glob(f"{folder}/host-{board}*.toml"))
    return found and found[host_files.group("train", precision)]


def of_rounds():
    for path in sorted(glob.glob("data/sealed/round-*/measured-*pair*.csv")):
        folder = os.path.dirname(path)
        networks = "data/measurements/sealed/" + os.path.basename(folder).replace("-", "_")
        if not os.path.isdir(networks):
            continue
        alone = {}
        for other in glob.glob(f"{folder}/measured-*.csv"):
            with open(other, newline="", encoding="utf-8") as file:
                for row in csv.DictReader(file):
                    if not row["error"] and row["gpus"] == "1":
                        alone[board_of(row["device"]), row["network"], row["mode"], row["precision"], row["batch"], row["launch"]] = float(row["ms_per_iter"])
        with open(path, newline="", encoding="utf-8") as file:
            for row in csv.DictReader(file):
                board = board_of(row["device"])
                if not row["error"]:
                    yield {"of": os.path.basename(folder), "net": f"{networks}/{row['network']}.toml", "board": board, "precision": row["precision"], "batch": row["batch"],
                           "ms": float(row["ms_per_iter"]), "watts": float(row["watts"]), "host": host_factor(folder, board, row["precision"]),
                           "alone": alone.get((board, row["network"], row["mode"], row["precision"], row["batch"], row["launch"]))}


def of_zoo():
    for path in sorted(glob.glob("data/measurements/*/torch_ddp*.csv")):
        pairs = {}
        with open(path, newline="", encoding="utf-8") as file:
            for row in csv.DictReader(file):
                pairs.setdefault((row["network"], row["precision"], row["batch"]), {})[row["gpus"]] = row
        for (network, precision, batch), found in pairs.items():
            if "1" in found and "2" in found:
                yield {"of": os.path.basename(path), "net": network, "board": board_of(found["2"]["device"]), "precision": precision, "batch": batch,
                       "ms": float(found["2"]["ms_per_iter"]), "watts": float(found["2"]["watts"]), "host": None, "alone": float(found["1"]["ms_per_iter"])}


def predicted(program, row):
    command = [program, "--net", row["net"], "--gpu", row["board"], "--precision", row["precision"], "--batch", row["batch"], *TRAINING,
               "--gpus", "2", "--scaling", "weak"]
    if row["host"]:
        command += ["--host", f"{row['host']:.4f}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return json.loads(done.stdout) if done.returncode == 0 else None


def copies_ms(answer, board):
    """What `[parallel] copies` of the profile says."""
    bandwidth = {"h100": 3.35e12, "h200": 4.8e12}[board]
    layers = len({layer["name"] for layer in answer["layers"] if layer["phase"] == "backward_weights"})
    return 1e3 * (4 * answer["communication"]["gradient_bytes"] / bandwidth + 8e-6 * layers)


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("predict")
    arguments.add_argument("--each", action="store_true", help="every row, shortest first")
    args = arguments.parse_args()
    os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
    rows = list(of_zoo()) + list(of_rounds())
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        answers = list(pool.map(lambda row: predicted(args.predict, row), rows))
    judged = []
    for row, answer in zip(rows, answers):
        if answer:
            foreseen = 1e3 * answer["time_s"]
            row |= {"foreseen": foreseen, "time": foreseen / row["ms"] - 1, "power": answer["power_w"] / row["watts"] - 1,
                    "energy": foreseen * answer["power_w"] / (row["ms"] * row["watts"]) - 1, "by host": answer["host"]["decides"], "answer": answer}
            judged.append(row)
    print(f"{len(judged)} of {len(rows)} steps of two GPUs are read; mean (median, signed) in %")
    for group in sorted({(row["by host"], "all") for row in judged} | {(row["by host"], row["of"]) for row in judged}):
        some = [row for row in judged if row["by host"] == group[0] and group[1] in ("all", row["of"])]
        parts = []
        for name in ("time", "power", "energy"):
            errors = [100 * row[name] for row in some]
            parts.append(f"{name} {statistics.fmean(map(abs, errors)):5.1f} ({statistics.median(map(abs, errors)):.1f}, {statistics.fmean(errors):+.1f})")
        print(f"{'host' if group[0] else 'GPU':4} {group[1]:18} {len(some):4} steps: {', '.join(parts)}")
    if args.each:
        for row in sorted(judged, key=lambda row: row["time"]):
            print(f"{100 * row['time']:+6.1f} {'host' if row['by host'] else 'GPU':4} {row['board']} {os.path.basename(row['net']):36} {row['precision']} {row['batch']:>4}: "
                  f"{row['foreseen']:8.2f} for {row['ms']:8.2f} ms, alone {row['alone']}")
    # Besides copies and what is exposed, in shares of the step alone; steps that neither host clearly decides.
    points = []
    for row in judged:
        if not row["by host"] and row["alone"] and row["ms"] < 1.15 * row["alone"]:
            sums = 1e3 * row["answer"]["communication"]["time_s"]
            besides = row["ms"] - row["alone"] - copies_ms(row["answer"], row["board"]) - 1e3 * row["answer"]["communication"]["exposed_s"]
            points.append((sums / row["alone"], besides / row["alone"]))
    n, sx, sy = len(points), sum(x for x, _ in points), sum(y for _, y in points)
    sxx, sxy = sum(x * x for x, _ in points), sum(x * y for x, y in points)
    slope = (n * sxy - sx * sy) / (n * sxx - sx * sx)
    share = (sy - slope * sx) / n
    off = [100 * (y - share - slope * x) for x, y in points]
    print(f"{n} pairs: longer by {100 * share:.2f} % of the step and {slope:.2f} of the time of sums; left {statistics.fmean(map(abs, off)):.1f} % of the step in the mean, "
          f"{statistics.fmean(abs(100 * y) for _, y in points):.1f} without")


if __name__ == "__main__":
    main()
