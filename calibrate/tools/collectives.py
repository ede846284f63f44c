#!/usr/bin/env python3
"""Latency and bandwidth of collectives: what `[collectives]` of data/interconnects rests on.

    python3 calibrate/tools/collectives.py aic_collectives.parquet [--toml]

Needs polars and numpy. The table is NVIDIA AIConfigurator's (Apache-2.0; github.com/ai-dynamo/aiconfigurator,
aic-core/src/aiconfigurator_core/systems) with the columns gpu, framework, launch, collective, num_gpus, message_bytes and
time_us: nccl-tests within one node, and the all-reduce of serving frameworks inside of a CUDA graph. A collective of n GPUs takes

    launch + hops hop + ramp sqrt(share bytes) + share bytes / (bandwidth (2 / n)^crowding)

with hops and share as SHARES says, by non-negative relative least squares for each crowding of a grid. The all-reduce of serving
frameworks is the shortest of one shot (every GPU reads all others' values), two shots (every GPU sums a part) and NCCL's.
Printed are errors in sample, with every fifth size left out in turn and with a number of GPUs left out in turn, in percent.
"""

import argparse
import itertools

import numpy as np
import polars as pl

# Boards of one file of data/interconnects.
FILES = {
    "nvlink3": ["a100_sxm"],
    "nvlink4": ["h100_sxm", "h200_sxm"],
    "nvlink5": ["b200_sxm"],
    "pcie4": ["l40s"],
}
# Steps one after the other, and parts of the message over a GPU's link, of n GPUs.
SHARES = {
    "all_reduce": lambda n: (2 * (n - 1), 2 * (n - 1) / n),
    "all_gather": lambda n: (n - 1, (n - 1) / n),
    "reduce_scatter": lambda n: (n - 1, (n - 1) / n),
    "all_to_all": lambda n: (n - 1, (n - 1) / n),
    "one_shot": lambda n: (n - 1, n - 1),
    "two_shot": lambda n: (2 * (n - 1), 2 * (n - 1) / n),
}
# Where frameworks have kernels of their own for any number of GPUs: over PCI Express NCCL sums among more than two.
SHOTS = ["nvlink3", "nvlink4", "nvlink5"]
CROWDING = np.round(np.arange(-0.5, 2.51, 0.05), 2)
FOLDS = 5
COVERAGE = 0.9


def terms(kind, gpus, size):
    """Per row what launch, hop, ramp and seconds per byte count; the last still without crowding."""
    hops, share = SHARES[kind](gpus)
    return np.stack([np.ones_like(size), hops, np.sqrt(share * size), share * size], axis=1)


def non_negative(x, y):
    """Least squares with coefficients of at least 0: the best of all subsets of these few columns."""
    best, least = np.zeros(x.shape[1]), np.inf
    for count in range(1, x.shape[1] + 1):
        for columns in itertools.combinations(range(x.shape[1]), count):
            part = x[:, columns]
            if not part.any(axis=0).all():
                continue
            scale = np.sqrt((part**2).sum(0))
            found = np.linalg.lstsq(part / scale, y, rcond=None)[0] / scale
            error = ((part @ found - y) ** 2).sum()
            if (found >= 0).all() and error < least:
                best, least = np.zeros(x.shape[1]), error
                best[list(columns)] = found
    return best, least


def fit(kind, gpus, size, time, crowding=None, ramps=True):
    """launch, hop, ramp, seconds per byte of two GPUs, crowding; that of a grid which is best where none is given."""
    base = terms(kind, gpus, size) * [1, 1, float(ramps), 1]
    # Where all have one number of GPUs nothing tells hops from the launch, or crowding.
    alone = len(set(gpus)) == 1
    best, least = None, np.inf
    grid = CROWDING if crowding is None else [crowding]
    for crowding in [0.0] if alone else grid:
        x = base.copy()
        x[:, 3] *= (gpus / 2) ** crowding
        if alone:
            x[:, 1] = 0
            x = np.delete(x, 1, axis=1)
        found, error = non_negative(x / time[:, None], np.ones_like(time))
        if error < least:
            least = error
            best = np.append(np.insert(found, 1, 0.0) if alone else found, crowding)
    return best


def predicted(law, kind, gpus, size):
    x = terms(kind, gpus, size)
    x[:, 3] *= (gpus / 2) ** law[4]
    return x @ law[:4]


def serving(gpus, size, time, nccl):
    """One shot and two, each fitted to rows of which it is the shortest; how links crowd is as NCCL finds them."""
    big = predicted(nccl, "all_reduce", gpus, size)
    one = size * (gpus - 1) < 2e6
    laws = {}
    for _ in range(12):
        for kind, mask in [("one_shot", one), ("two_shot", ~one & (time < 0.97 * big))]:
            if mask.sum() >= 8:
                laws[kind] = fit(kind, gpus[mask], size[mask], time[mask], nccl[4])
        if "two_shot" not in laws:
            break
        one = predicted(laws["one_shot"], "one_shot", gpus, size) < predicted(laws["two_shot"], "two_shot", gpus, size)
    return laws


def shortest(laws, nccl, gpus, size):
    times = [predicted(nccl, "all_reduce", gpus, size)]
    times += [predicted(law, kind, gpus, size) for kind, law in laws.items()]
    return np.min(times, axis=0)


def error(time, found):
    return 100 * np.abs(found / time - 1)


def spread(time, found):
    return np.quantile(np.maximum(found / time, time / found), COVERAGE)


def left_out(rows, by_size, make):
    """Predictions of rows by fits that did not see them: sizes in folds, or numbers of GPUs."""
    gpus, size, time = rows
    sizes = {s: i for i, s in enumerate(sorted(set(size)))}
    groups = np.array([sizes[s] % FOLDS for s in size]) if by_size else gpus
    found = np.zeros_like(time)
    for group in sorted(set(groups)):
        out = groups == group
        found[out] = make(gpus[~out], size[~out], time[~out])(gpus[out], size[out])
    return found


def columns(table):
    return tuple(table[c].to_numpy().astype(float) * f for c, f in [("num_gpus", 1), ("message_bytes", 1), ("time_us", 1e-6)])


def quantity(value, unit):
    scale = {"us": 1e6, "GB/s": 1e-9}[unit]
    return f'"{float(f"{value * scale:.3g}"):g} {unit}"'


def entry(kind, law, factor):
    launch, hop, ramp, per_byte, crowding = law
    # What a root of a megabyte takes, so that it has a unit that can be imagined.
    parts = [
        f"launch = {quantity(launch, 'us')}",
        f"hop = {quantity(hop, 'us')}",
        f"ramp = {quantity(ramp * 1e3, 'us')}",
        f"bandwidth = {quantity(1 / per_byte, 'GB/s') if per_byte > 0 else None}",
        f"crowding = {crowding:.3g}" + (".0" if crowding == int(crowding) else ""),
        f"spread = {max(factor, 1.0):.3g}",
        'source = "aic"',
    ]
    return f"{kind} = {{ {', '.join(parts)} }}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table")
    parser.add_argument("--toml", action="store_true", help="also the entries of data/interconnects")
    asked = parser.parse_args()
    data = pl.read_parquet(asked.table).with_columns(pl.col("collective").replace({"alltoall": "all_to_all"}))
    print("| file | collective | rows | error | sizes left out | GPUs left out | spread |")
    print("|---|---|---:|---:|---:|---:|---:|")
    for file, boards in FILES.items():
        own = data.filter(pl.col("gpu").is_in(boards))
        lines, laws = [], {}

        def line(kind, rows, make):
            gpus, size, time = rows
            here = make(gpus, size, time)(gpus, size)
            sizes, counts = (left_out(rows, by, make) for by in (True, False))
            cells = [error(time, found).mean() for found in (here, sizes, counts)]
            print(f"| {file} | {kind} | {len(time)} | " + " | ".join(f"{c:.1f}" for c in cells) + f" | {spread(time, sizes):.2f} |")
            return spread(time, sizes)

        for kind in ["all_reduce", "all_gather", "reduce_scatter", "all_to_all"]:
            rows = columns(own.filter((pl.col("framework") == "nccl") & (pl.col("collective") == kind)))
            if len(rows[0]) == 0:
                continue
            make = lambda *r, k=kind: (lambda g, s, law=fit(k, *r): predicted(law, k, g, s))
            laws[kind] = fit(kind, *rows)
            lines.append(entry(kind, laws[kind], line(kind, rows, make)))
        # The plain ring of training, for files in which nothing else says it.
        rows = columns(own.filter((pl.col("framework") == "nccl") & (pl.col("collective") == "all_reduce")))
        line("ring", rows, lambda *r: (lambda g, s, law=fit("all_reduce", *r, 0.0, False): predicted(law, "all_reduce", g, s)))
        lines.append("# ring: " + entry("all_reduce", fit("all_reduce", *rows, 0.0, False), 1.0))
        graph = own.filter((pl.col("framework") != "nccl") & (pl.col("launch").fill_null("") != "eager"))
        middle = graph.group_by("gpu", "num_gpus", "message_bytes").agg(pl.col("time_us").median()).sort(pl.all())
        rows, nccl = columns(middle), laws["all_reduce"]

        def make(gpus, size, time):
            found = serving(gpus, size, time, nccl) if file in SHOTS else {}
            return lambda g, s: shortest(found, nccl, g, s)

        line("serving, middle of frameworks", rows, make)
        each = columns(graph)
        found = serving(*rows, nccl) if file in SHOTS else {}
        here = shortest(found, nccl, each[0], each[1])
        factor = spread(each[2], here)
        print(f"| {file} | serving, each framework | {len(here)} | {error(each[2], here).mean():.1f} | | | {factor:.2f} |")
        lines += [entry(kind, law, factor) for kind, law in found.items()]
        if asked.toml:
            print("\n" + "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
