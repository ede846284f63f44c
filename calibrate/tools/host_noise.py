#!/usr/bin/env python3
"""How far eager steps that the host decides are from what was sealed of them once their visit's mean is known: what no
measurement of a host before or after them can take away.

    python3 calibrate/tools/host_noise.py data/sealed/round-*

Takes steps of one GPU that last 12 % longer where the host takes 20 % longer, and visits with five or more of a mode. Prints by
mode how many, the mean of |measured / sealed / visit's mean - 1|, and the median of how far apart the tenth and ninetieth
hundredth of a step's own iterations lie; then how steps that follow each other agree (0: not at all), so whether a host is slow
for a while. Needs nothing but Python.
"""
import collections
import csv
import glob
import math
import os
import statistics
import sys

SLOWER, LONGER, FEWEST = "1.2", 1.12, 5


def steps(folder):
    """Of each measured file and mode: when, which network, the logarithm over what was sealed, and that of 90 % over 10 %."""
    found = collections.defaultdict(list)
    for path in sorted(glob.glob(f"{folder}/measured-*.csv")):
        board = os.path.basename(path).removeprefix("measured-").removesuffix(".csv")
        hosts = [p for p in glob.glob(f"{folder}/predicted-*-hosts.csv")
                 if board.startswith(os.path.basename(p)[len("predicted-"):].split("-")[0])]
        sealed = collections.defaultdict(dict)
        for name in hosts:
            with open(name, newline="", encoding="utf-8") as file:
                for row in csv.DictReader(file):
                    sealed[key(row)][str(float(row["host"]))] = float(row["time_s"])
        with open(path, newline="", encoding="utf-8") as file:
            for row in csv.DictReader(file):
                foreseen = sealed.get(key(row), {})
                usual, slower = foreseen.get("1.0"), foreseen.get(SLOWER)
                usable = not row["error"] and row["launch"] == "eager" and (row.get("gpus") or "1") == "1" and row["ms_p10"]
                if not usable or not usual or not slower or slower / usual < LONGER:
                    continue
                off = math.log(float(row["ms_per_iter"]) / 1e3 / usual)
                apart = math.log(float(row["ms_p90"]) / float(row["ms_p10"]))
                found[path, row["mode"]].append((row["utc"], row["network"], off, apart))
    return found


def key(row):
    return tuple(row.get(name) or "1" for name in ("network", "mode", "precision", "batch", "gpus"))


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    offs, aparts, pairs = collections.defaultdict(list), collections.defaultdict(list), []
    for folder in sys.argv[1:]:
        for (_, mode), rows in steps(folder).items():
            if len(rows) < FEWEST:
                continue
            mean = statistics.fmean(off for _, _, off, _ in rows)
            rows = [(utc, network, off - mean, apart) for utc, network, off, apart in sorted(rows)]
            offs[mode] += [off for _, _, off, _ in rows]
            aparts[mode] += [apart for _, _, _, apart in rows]
            pairs += [(a[2], b[2]) for a, b in zip(rows, rows[1:]) if a[1] != b[1]]
    for mode, values in sorted(offs.items()):
        mean = statistics.fmean(abs(math.expm1(off)) for off in values)
        print(f"{mode}: {len(values)} steps, {100 * mean:.1f} % off their visit's mean, "
              f"{100 * math.expm1(statistics.median(aparts[mode])):.0f} % between the tenth and the ninetieth hundredth of an iteration")
    agree = sum(a * b for a, b in pairs) / (sum(a * a + b * b for a, b in pairs) / 2)
    print(f"steps that follow each other: {agree:.2f} of {len(pairs)} pairs")


main()
