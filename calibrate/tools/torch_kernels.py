#!/usr/bin/env python3
"""Which operations the networks of a sealed round that was measured run through PyTorch on one GPU, on which shapes, for how long.

Observes only: no clock, power limit or other setting of the card is touched. Needs what torch_sealed.py needs, which builds
the steps. `torch_layers.py` tells kernels of torchvision's networks layer by layer; here shapes tell them.

  torch_kernels.py --round data/sealed/round-1.toml --out torch_profile.csv --budget 180
  torch_kernels.py --biases torch_profile.csv
  torch_kernels.py --sums torch_profile.csv torch_profile_3.csv
  torch_kernels.py --latency torch_profile_8.csv torch_profile_9.csv
  torch_kernels.py --pads torch_profile_8.csv torch_profile_9.csv

--out: a row for each operation and shapes of its inputs in one step, `time_us` the device time of all `calls`, mean over
two profiled steps; of every network its largest batch in inference, then in training (`--rows FILE`: the steps of a CSV file
instead, by the columns network, mode, precision, batch). Operations that launch nothing are left out. `within` is the outermost
operation that an operation belongs to, what a module called or autograd's function, with `within_shapes`, its inputs'.
--sums: cycles of 1980 MHz of sums over the rows of a table, as gradients of biases are, by how PyTorch divides them.
--biases: how many results a second additions make that repeat a value per channel, above 2 million results.
--latency: how many cycles of 1980 MHz additions, products and quotients one of whose operands is repeated take at least, and
those with operands of one shape: the median of up to 131,072 results, less 1.19 (32 bits) or 1.45 results per cycle of each of
132 multiprocessors.
--pads: of padding, which fills its result and copies into it, how many values both kernels move per cycle of 1980 MHz of each of
132 multiprocessors, above 2 million values, the share of the bandwidth that filling reaches, and how long few values are filled.
"""
import argparse
import ast
import csv
import gc
import math
import os
import statistics
import sys
import time
import tomllib
from collections import defaultdict

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
ROW = "network,mode,precision,batch".split(",")
COLUMNS = ROW + "op,shapes,calls,time_us,within,within_shapes".split(",")
STEPS = 2
FEWEST_RESULTS = 2_000_000
MULTIPROCESSORS = 132
# Up to so many results latency decides; what repeated operands allow per cycle, by width.
MOST_RESULTS, PER_CYCLE = 131_072, {16: MULTIPROCESSORS * 1.45, 32: MULTIPROCESSORS * 1.19}
# Both boards' clock, parts that are kept aside in turn, and terabytes a second.
CYCLES_PER_US, FOLDS, BANDWIDTHS = 1980, 10, {"h100": 3.35, "h200": 4.8}


def largest(rounds):
    """Of every network the row of the largest batch, inference first."""
    from torch_sealed import in_order
    rows = {}
    for row in in_order(rounds, 1, 1):
        key = row["network"], row["mode"]
        if key not in rows or row["batch"] > rows[key]["batch"]:
            rows[key] = row
    return sorted(rows.values(), key=lambda row: row["mode"])


def outermost(event):
    """What a module or autograd called that runs an operation."""
    while event.cpu_parent is not None and event.cpu_parent.name.startswith(("aten::", "autograd::")):
        event = event.cpu_parent
    return event.name.removeprefix("autograd::engine::evaluate_function: "), event.input_shapes or ""


def profiled(step, torch):
    """Operations of one step: name, shapes, calls, device time in microseconds, what they are within and its shapes."""
    from torch.profiler import ProfilerActivity, profile
    for _ in range(3):
        step()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], record_shapes=True) as found:
        for _ in range(STEPS):
            step()
        torch.cuda.synchronize()
    sums = defaultdict(lambda: [0, 0.0])
    for event in found.events():
        if str(event.device_type).endswith("CPU") and event.name.startswith("aten::") and event.kernels:
            sum_of = sums[event.name, str(event.input_shapes), *map(str, outermost(event))]
            sum_of[0] += 1
            sum_of[1] += sum(kernel.duration for kernel in event.kernels)
    for (op, shapes, within, within_shapes), (calls, time_us) in sums.items():
        yield op, shapes, calls / STEPS, time_us / STEPS, within, within_shapes


def run(args):
    import torch
    from torch_sealed import prepare
    from torch_sealed_networks import NETWORKS
    began = time.time()
    if args.rows:
        with open(args.rows, newline="", encoding="utf-8") as file:
            rows = [{**row, "batch": int(row["batch"])} for row in csv.DictReader(file)]
    else:
        with open(args.round, "rb") as file:
            rows = largest(tomllib.load(file))
    with open(args.out, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        for row in rows:
            if time.time() - began > args.budget:
                print("budget used", flush=True)
                break
            try:
                step, _ = prepare(NETWORKS[row["network"]], row["mode"], row["precision"], row["batch"])
                for op, shapes, calls, time_us, *within in profiled(step, torch):
                    writer.writerow([*(row[k] for k in ROW), op, shapes, calls, round(time_us, 1), *within])
                file.flush()
            except Exception as error:  # noqa: BLE001 - the others are worth it
                print(row["network"], type(error).__name__, str(error)[:200], flush=True)
            step = None
            gc.collect()
            torch.cuda.empty_cache()


def most_of(values):
    """What a tenth of the values lie below, half, and nine tenths."""
    values = sorted(values)
    return [values[int(q * (len(values) - 1))] for q in (0.1, 0.5, 0.9)]


def biases(path):
    """Rates of additions of [1, channels, 1, 1] to a map, in billions of results a second."""
    rates = defaultdict(list)
    with open(path, newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            shapes = ast.literal_eval(row["shapes"])
            if row["op"] not in ("aten::add", "aten::add_") or len(shapes) < 2 or len(shapes[0]) != 4:
                continue
            result, added = shapes[:2]
            if added[-2:] == [1, 1] and added[0] == 1 and math.prod(result) >= FEWEST_RESULTS:
                each = float(row["time_us"]) / float(row["calls"])
                width = 16 if row["precision"] in ("fp16", "bf16") else 32
                rates[width].append(math.prod(result) / each / 1e3)
    for width, found in sorted(rates.items()):
        low, middle, high = most_of(found)
        print(f"{width} bits: {len(found)} shapes, {middle:.0f} billion results a second in the median, {low:.0f} to {high:.0f}")


def latency(paths):
    """Cycles of kernels of few results, with an operand that is repeated and without."""
    found = defaultdict(list)
    for path in paths:
        with open(path, newline="", encoding="utf-8") as file:
            for row in csv.DictReader(file):
                shapes = [s for s in ast.literal_eval(row["shapes"])[:2] if isinstance(s, list)]
                if row["op"].removesuffix("_") not in ("aten::add", "aten::mul", "aten::div") or len(shapes) < 2 or not all(shapes):
                    continue
                rank = max(map(len, shapes))
                results = math.prod(max(dims) for dims in zip(*([1] * (rank - len(s)) + s for s in shapes)))
                if not 0 < results <= MOST_RESULTS:
                    continue
                width = 16 if row["precision"] in ("fp16", "bf16") else 32
                repeated = any(math.prod(s) < results for s in shapes)
                cycles = CYCLES_PER_US * float(row["time_us"]) / float(row["calls"])
                found[repeated, width].append(cycles - (results / PER_CYCLE[width] if repeated else 0))
    for (repeated, width), cycles in sorted(found.items()):
        low, middle, high = most_of(cycles)
        print(f"{'repeated' if repeated else 'of one shape'}, {width} bits: {len(cycles)} shapes, {middle:.0f} cycles in the median, {low:.0f} to {high:.0f}")


def plan_of(rows, columns):
    """How many threads and blocks PyTorch 2.11 takes (`setReduceConfig` of Reduce.cuh), as model/src/step/framework/sums.rs."""
    def within(size):
        return 1 << size.bit_length() - 1 if size < most else most

    together = next(n for n in (4, 2, 1) if columns % n == 0)
    across, most = columns // together, 512 // together
    height = min(within(rows), most // min(within(across), 32))
    width = min(within(across), most // height)
    divided = rows >= min(height * 16, 256)
    alone = -(-rows // height) if divided else rows
    blocks = -(-across // (width if divided else width * height))
    at_once = MULTIPROCESSORS * (2048 // (width * height))
    sharing = 1
    if divided and alone >= 256 and blocks <= at_once:
        sharing = max(min(-(-at_once // blocks), -(-alone // 16)), -(-alone // 256))
        alone = -(-rows // (height * sharing))
    return alone, sharing / height if sharing > 1 else 0.0, across % width > 0


def fitted(error, values):
    """Positive numbers that make the error least, one after the other up or down by shares that shrink."""
    best, steps = error(values), [0.2] * len(values)
    while max(steps) > 1e-3:
        for i, step in enumerate(steps):
            tries = [[*values[:i], values[i] * math.exp(s), *values[i + 1:]] for s in (step, -step)]
            found, tried = min((error(t), t) for t in tries)
            if found < best:
                best, values = found, tried
            else:
                steps[i] = 0.6 * step
    return values


def sums(paths):
    """The numbers of `[sums]` of a profile of a framework, and how far shapes kept aside are from them."""
    found = defaultdict(list)
    for path in paths:
        bandwidth = BANDWIDTHS["h200" if "h200" in path else "h100"]
        with open(path, newline="", encoding="utf-8") as file:
            for row in csv.DictReader(file):
                shape = ast.literal_eval(row["shapes"])[0] if row["op"] == "aten::sum" and row["mode"] == "train" else ()
                # Convolutions and norms sum their parameters' gradients over more than rows.
                if len(shape) == 2 and row.get("within") in (None, "AddmmBackward0"):
                    half = row["precision"] in ("fp16", "bf16")
                    found[tuple(shape), half, bandwidth].append(float(row["time_us"]) / float(row["calls"]))
    shapes = [(rows, columns, half, bandwidth, statistics.median(times), plan_of(rows, columns))
              for ((rows, columns), half, bandwidth), times in sorted(found.items())]

    def off(values, shape):
        rows, columns, half, bandwidth, time_us, (alone, partial, ragged) = shape
        (single, halves, of_bandwidth, read, shared, whole, part) = values
        traffic = CYCLES_PER_US * rows * columns * (2 if half else 4) / (1e6 * bandwidth * of_bandwidth)
        together = shared + partial * (part if ragged else whole) if partial else 0.0
        cycles = (halves if half else single) + max(traffic, alone / 4 * read) + together
        return abs(math.log(cycles / (CYCLES_PER_US * time_us)))

    def fit(shapes):
        return fitted(lambda values: statistics.fmean(off(values, s) for s in shapes), [6000, 6000, 0.7, 700, 6000, 400, 800])

    apart = []
    for k in range(FOLDS):
        values = fit([s for i, s in enumerate(shapes) if i % FOLDS != k])
        apart += [off(values, s) for s in shapes[k::FOLDS]]
    single, halves, of_bandwidth, read, shared, whole, part = fit(shapes)
    print(f"{len(shapes)} shapes, {100 * statistics.fmean(apart):.0f} % off where kept aside: latency = [{single:.0f}, {halves:.0f}], "
          f"of_bandwidth = {of_bandwidth:.2f}, read = {read:.0f}, shared = {shared:.0f}, partial = [{whole:.0f}, {part:.0f}]")


def pads(paths):
    """Rates of the two kernels of padding, by board and width: median, and what eight of ten lie between."""
    found, few = defaultdict(list), []
    for path in paths:
        board, kernels = "h200" if "h200" in path else "h100", defaultdict(dict)
        with open(path, newline="", encoding="utf-8") as file:
            for row in csv.DictReader(file):
                if row.get("within") == "aten::pad" and row["op"] in ("aten::fill_", "aten::copy_"):
                    values = math.prod(ast.literal_eval(row["shapes"])[0])
                    time_us = float(row["time_us"]) / float(row["calls"])
                    width = 16 if row["precision"] in ("fp16", "bf16") else 32
                    kernels[*(row[k] for k in ROW), row["within_shapes"]][row["op"]] = values, time_us, width
        # Padding by nothing is a copy alone.
        for both in kernels.values():
            for op, (values, time_us, width) in both.items() if len(both) == 2 else ():
                if values >= FEWEST_RESULTS:
                    found[op, width, board].append((values / (CYCLES_PER_US * time_us * MULTIPROCESSORS),
                                                    values * width / 8 / (1e6 * BANDWIDTHS[board] * time_us)))
                elif op == "aten::fill_" and values <= MOST_RESULTS:
                    few.append(time_us)
    for (op, width, board), rates in sorted(found.items()):
        low, middle, high = most_of([per_cycle for per_cycle, _ in rates])
        share = f", {statistics.median(share for _, share in rates):.2f} of the bandwidth" if op == "aten::fill_" else ""
        print(f"{op}, {width} bits, {board}: {len(rates)} kernels, {middle:.2f} values per cycle in the median, {low:.2f} to {high:.2f}{share}")
    print(f"{len(few)} fills of few values: {statistics.median(few):.1f} us in the median")


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--round", help="the round's file, once it was measured")
    arguments.add_argument("--rows", metavar="FILE", help="instead of a round")
    arguments.add_argument("--out")
    arguments.add_argument("--sums", metavar="FILE", nargs="+", help="only reads such files; needs no GPU")
    arguments.add_argument("--latency", metavar="FILE", nargs="+", help="only reads such files; needs no GPU")
    arguments.add_argument("--pads", metavar="FILE", nargs="+", help="only reads such files; needs no GPU")
    arguments.add_argument("--budget", type=float, default=180, help="seconds; no network is begun after them")
    arguments.add_argument("--biases", metavar="FILE", help="only reads such a file; needs no GPU")
    args = arguments.parse_args()
    if args.biases:
        biases(args.biases)
    elif args.sums:
        sums(args.sums)
    elif args.latency:
        latency(args.latency)
    elif args.pads:
        pads(args.pads)
    elif (args.round or args.rows) and args.out:
        run(args)
    else:
        arguments.error("--round or --rows with --out, --biases, --sums, --latency or --pads")


if __name__ == "__main__":
    main()
