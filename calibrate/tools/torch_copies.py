#!/usr/bin/env python3
"""Copies that turn matrices, concatenations that read parts of results where they lie, and interpolation: `[maps]` of data/frameworks/pytorch.toml;
products of few columns: `[narrow_products]`.

Observes only: no clock, power limit or other setting of the card is touched. Needs torch alone, and a GPU for --out.

  torch_copies.py --out torch_concats.csv --budget 120
  torch_copies.py --concats torch_concats.csv
  torch_copies.py --turned torch_turned.csv torch_heads.csv
  torch_copies.py --planes torch_unusual.csv
  torch_copies.py --products torch_heads.csv

--out: a row for each way of concatenating parts, shape and precision: `time_us` the device time of one call, captured back to
back in a CUDA graph over rotating operands. Rows are flushed as they are made.
--concats: values of results per multiprocessor and cycle of each way, and of all.
--turned: the same of copies that turn matrices (`permute` and `reshape` with `copy` in files of torch_ops.py), and by which
lengths of rows they are best told apart: of all pairs of lengths that are as good as the best within 0.5 % (mean error of
logarithms) the closest. Matrices with rows or columns of 32 values or fewer are apart.
--planes: cycles for a channel of a sample that is interpolated in 32 bits, channels first (`resize`, forward, in a file of
torch_ops.py): from the cache, from memory, and how far off a line between them is that begins at a share of the cache and is one
cache long (`HELD` of model/src/step/framework/kernels.rs).
--products: cycles of a multiprocessor per row of products that read and write up to 16 columns (`linear` in a file of
torch_ops.py), by phase, precision and columns: the median, and what eight of ten lie within.
Boards are H100 and H200, 132 multiprocessors that ran at 1980 MHz; shapes below 2 million values are left out, whose
launches decide.
"""
import argparse
import csv
import json
import math
import statistics
import time

from torch_kernels import CYCLES_PER_US, MULTIPROCESSORS, most_of

COLUMNS = "way,shape,precision,time_us,device,torch".split(",")
ALL_CYCLES_PER_US = MULTIPROCESSORS * CYCLES_PER_US
FEWEST = 2_000_000
# What a rotation of operands must exceed so that none is left in the cache.
ROTATION = 200 << 20
# The second-level cache, and shares of it at which it may begin to be too small.
CACHE, SHARES = 50e6, (0.1, 0.2, 0.3, 0.4, 0.5)
# Rows or columns of so many values make a matrix narrow (`NARROW` of kernels.rs).
NARROW = 32
# Rows above which a product of few columns is no launch, and columns up to which it is one.
MANY, FEW = 1_000_000, 16
# Errors of logarithms that so far apart are alike.
ALIKE = 0.005
BATCHES = (4, 16, 64, 128)
HEADS = ((6, 197, 64), (12, 197, 64), (16, 577, 64), (12, 512, 128), (8, 1024, 80), (16, 256, 32))
MAPS = ((116, 28), (232, 14), (464, 7), (64, 56), (256, 28), (96, 56), (48, 112))
TOKENS = ((56, 96), (28, 192), (14, 384), (64, 64), (32, 256))


def cases():
    """Way, shape, whether it is a map, and the parts of an operand with the dimension along which they are joined."""
    for batch in BATCHES:
        for heads in HEADS:
            shape = (batch, *heads)
            yield "heads, halves", shape, False, lambda x: (x.chunk(2, -1)[::-1], -1)
            yield "heads, half beside", shape, False, lambda x: ((-x.chunk(2, -1)[1], x.chunk(2, -1)[0]), -1)
        for channels, side in MAPS:
            shape = (batch, channels, side, side)
            yield "map, halves", shape, True, lambda x: (x.chunk(2, 1)[::-1], 1)
            yield "map, half beside", shape, True, lambda x: ((x.chunk(2, 1)[0], x.chunk(2, 1)[1] * 2), 1)
        for side, channels in TOKENS:
            shape = (batch, side, side, channels)
            yield "tokens, fourths", shape, False, lambda x: (
                (x[:, 0::2, 0::2], x[:, 1::2, 0::2], x[:, 0::2, 1::2], x[:, 1::2, 1::2]), -1)
            yield "tokens, rolled", shape, False, lambda x: ((x[:, 3:], x[:, :3]), 1)


def timed(make, shape, as_map, dtype, torch):
    """Microseconds of one concatenation."""
    values = math.prod(shape)
    operands = max(2, min(64, ROTATION // (values * dtype.itemsize)))
    parts = []
    for _ in range(operands):
        x = torch.randn(shape, device="cuda").to(dtype)
        if as_map and dtype.itemsize == 2:
            x = x.to(memory_format=torch.channels_last)
        parts.append(make(x))
    calls = max(operands, 16)
    for p, dim in parts[:2]:
        torch.cat(p, dim)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for i in range(calls):
            p, dim = parts[i % operands]
            torch.cat(p, dim)
    times = []
    for i in range(6):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        if i > 0:
            times.append(begin.elapsed_time(end) * 1e3 / calls)
    return statistics.median(times)


def run(args):
    import torch
    began = time.time()
    with open(args.out, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        for way, shape, as_map, make in cases():
            for precision in ("float32", "float16"):
                if time.time() - began > args.budget:
                    print("budget used", flush=True)
                    return
                if not FEWEST / 4 <= math.prod(shape) <= 100 * FEWEST:
                    continue
                time_us = timed(make, shape, as_map, getattr(torch, precision), torch)
                writer.writerow([way, list(shape), precision, round(time_us, 3), torch.cuda.get_device_name(), torch.__version__])
                file.flush()
                torch.cuda.empty_cache()


def spread(rates):
    low, middle, high = most_of(rates)
    return f"{len(rates):4} shapes, {middle:.2f} values per multiprocessor and cycle in the median ({low:.2f} to {high:.2f})"


def concats(path):
    found, every = {}, []
    with open(path, newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            values = math.prod(json.loads(row["shape"]))
            if values >= FEWEST:
                rate = values / float(row["time_us"]) / ALL_CYCLES_PER_US
                found.setdefault((row["way"], row["precision"]), []).append(rate)
                every.append(rate)
    for (way, precision), rates in sorted(found.items()):
        print(f"{way:20} {precision:8} {spread(rates)}")
    print(f"{'all':20} {'':8} {spread(every)}")


def turned_of(row):
    """Rows read, rows written, values and bits of a copy that turns a matrix."""
    trial = json.loads(row["trial"])
    layer, shape = trial["case"]["layer"], trial["case"]["inputs"][0]
    if trial["phase"] != "forward":
        return None
    if layer["kind"] == "permute" and len(shape) in (2, 3):
        written = shape[layer["order"][-1]]
    elif layer["kind"] == "reshape" and layer.get("copy"):
        written = layer["shape"][-1]
    else:
        return None
    bits = 16 if trial["precision"] in ("fp16", "bf16") else 32
    return shape[-1], written, math.prod(shape) * trial["batch"], bits


def turned(paths):
    rows, narrow = [], {16: [], 32: []}
    for path in paths:
        with open(path, newline="", encoding="utf-8") as file:
            for row in csv.DictReader(file):
                if (of := turned_of(row)) and of[2] >= FEWEST and of[0] != of[1]:
                    rate = of[2] / float(row["time_us"]) / ALL_CYCLES_PER_US
                    if min(of[:2]) <= NARROW:
                        narrow[of[3]].append(rate)
                    else:
                        rows.append((*of, rate))
    found_of = []
    lengths = sorted({written for _, written, *_ in rows})
    for short in lengths:
        for long in (n for n in lengths if n > short):
            groups = {}
            for read, written, _, bits, rate in rows:
                ends = "short" if written <= short else "long" if written >= long else None
                if ends:
                    groups.setdefault((ends, bits, ends == "short" and read % 64 == 0), []).append(math.log(rate))
            if not all((end, bits, False) in groups for end in ("short", "long") for bits in (16, 32)):
                continue
            middle = {key: statistics.median(logs) for key, logs in groups.items()}
            errors = []
            for read, written, _, bits, rate in rows:
                a = middle.get(("short", bits, read % 64 == 0), middle["short", bits, False])
                b = middle["long", bits, False]
                way = min(max(math.log(written / short) / math.log(long / short), 0), 1)
                errors.append(abs(math.log(rate) - (a + (b - a) * way)))
            error = statistics.mean(errors)
            found_of.append((error, short, long, groups))
    least = min(error for error, *_ in found_of)
    error, short, long, groups = min((f for f in found_of if f[0] < least + ALIKE), key=lambda found: found[2] / found[1])
    for bits, rates in narrow.items():
        print(f"narrow {bits} bits {spread(rates)}" if rates else f"narrow {bits} bits: none")
    print(f"{len(rows)} copies; rows of the result up to {short} are short, from {long} on long: {100 * error:.1f} % off in the mean, "
          f"{100 * least:.1f} % at best")
    for (ends, bits, even), logs in sorted(groups.items()):
        print(f"{ends:6} {bits} bits{', rows read are multiples of 64' if even else '':34} {spread([math.exp(log) for log in logs])}")


def planes(path):
    rows = []
    with open(path, newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            trial = json.loads(row["trial"])
            if row["kind"] != "resize" or trial["phase"] != "forward" or trial["precision"] != "fp32":
                continue
            channels, high, wide = trial["case"]["inputs"][0]
            places = high * wide + math.prod(trial["case"]["layer"]["output"])
            count = channels * trial["batch"]
            rows.append((4 * places * count / CACHE, float(row["time_us"]) * CYCLES_PER_US / count))
    cached = statistics.median(cycles for share, cycles in rows if share <= SHARES[0])
    beyond = statistics.median(cycles for share, cycles in rows if share >= 1 + SHARES[-1])
    print(f"{len(rows)} shapes: {cached:.0f} cycles from the cache, {beyond:.0f} from memory")
    for begin in SHARES:
        foreseen = [cached + (beyond - cached) * min(1, max(0, share - begin)) for share, _ in rows]
        off = statistics.mean(abs(f / cycles - 1) for f, (_, cycles) in zip(foreseen, rows))
        print(f"  from {begin:.1f} of the cache on: {100 * off:.1f} % off in the mean")


def products(path):
    found = {}
    with open(path, newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            trial = json.loads(row["trial"])
            if row["kind"] != "linear" or trial["phase"] == "backward_weights":
                continue
            layer, shape = trial["case"]["layer"], trial["case"]["inputs"][0]
            rows, columns = math.prod(shape[:-1]) * trial["batch"], max(shape[-1], layer["features"])
            if rows >= MANY and columns <= FEW:
                cycles = float(row["time_us"]) * ALL_CYCLES_PER_US / rows
                found.setdefault((trial["phase"], trial["precision"], columns), []).append(cycles)
    for (phase, precision, columns), cycles in sorted(found.items()):
        low, middle, high = most_of(cycles)
        print(f"{phase:13} {precision} of {columns:2}: {len(cycles):2} shapes, {middle:5.1f} cycles per row ({low:.1f} to {high:.1f})")


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--out", help="measures into this file")
    arguments.add_argument("--budget", type=float, default=120, help="seconds; no shape is begun after them")
    arguments.add_argument("--concats", metavar="FILE", help="only reads such a file; needs no GPU")
    arguments.add_argument("--planes", metavar="FILE", help="only reads such a file; needs no GPU")
    arguments.add_argument("--products", metavar="FILE", help="only reads such a file; needs no GPU")
    arguments.add_argument("--turned", metavar="FILE", nargs="+", help="only reads such files; needs no GPU")
    args = arguments.parse_args()
    if args.planes:
        planes(args.planes)
    elif args.concats:
        concats(args.concats)
    elif args.products:
        products(args.products)
    elif args.turned:
        turned(args.turned)
    elif args.out:
        run(args)
    else:
        arguments.error("--out, --concats, --planes, --products or --turned")


if __name__ == "__main__":
    main()
