#!/usr/bin/env python3
"""What the operations of steps take that `torch_kernels.py --out` profiled, beside what is predicted for them, by kind.

Predicts each profiled step with a program and sums both sides by kind of operation, so that it shows which kinds a step's error
comes from. Kinds that one side alone knows (copies between layouts, fills) are "moves". Profiled kernels carry a few per cent
of the profiler's own; sums over many steps say more than one step.

  torch_gaps.py target/release/predict h200 data/measurements/sealed/round_6 data/measurements/h200/torch_profile_6.csv \
    [--measured data/measurements/sealed/round_6.csv] [--calibration FILE] [--worst 10] [--step NETWORK,MODE]

--measured: leaves out steps whose kernels by profile add up to something else than the step took as it was measured (15 %):
some convolutions in 32 bits run other engines while they are profiled.
"""
import argparse
import ast
import csv
import json
import subprocess
from collections import defaultdict

STEP = ("network", "mode", "precision", "batch")
KINDS = (
    # Before products: "linear" is in "bilinear".
    ("resize", ("upsample", "resize")),
    ("conv", ("convolution", "conv_depthwise2d", "conv2d", "conv1d", "conv3d", "conv_transpose2d", "ConvolutionBackward", "DepthwiseConv2DBackward")),
    ("product", ("addmm", "aten::mm", "linear", "baddbmm", "AddmmBackward", "MmBackward")),
    ("attention", ("attention", "bmm", "softmax", "matmul", "relative_position_bias", "einsum", "BmmBackward", "SoftmaxBackward")),
    ("batch norm", ("batch_norm", "BatchNormBackward")),
    ("layer norm", ("layer_norm", "group_norm", "rms_norm", "linalg_vector_norm", "LayerNormBackward", "GroupNormBackward")),
    ("update", ("_foreach_", "_fused_", "_amp_", "update")),
    ("pool", ("pool", "mean", "reduce")),
    ("recurrent", ("_cudnn_rnn", "lstm", "gru")),
    ("sums", ("aten::sum",)),
    ("moves", ("copy_", "conversion", "cat", "concat", "roll", "fill_", "index", "pad", "gather", "clone", "rearrange", "constant",
               "embedding", "class_token", "where", "masked", "reshape", "permute", "slice", "flatten", "contiguous", "_to_copy", "CatBackward", "CloneBackward", "CopyBackwards", "SliceBackward", "aten::to", "repeat")),
)


def kind_of(name, shapes=()):
    if name in ("aten::add", "aten::add_") and len(shapes) > 1 and len(shapes[0]) == 4 and shapes[1][-2:] == [1, 1] and shapes[1][:1] == [1]:
        return "conv"
    for kind, parts in KINDS:
        if any(part in name for part in parts):
            return kind
    return "point-wise"


def profiled(path):
    steps = defaultdict(lambda: defaultdict(list))
    with open(path, newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            shapes = ast.literal_eval(row["shapes"])
            key = tuple(row[k] for k in STEP)
            within = row.get("within") or row["op"]
            named = within if kind_of(within) != "point-wise" or "::" in within else row["op"]
            steps[key][kind_of(named, shapes)].append((float(row["time_us"]), float(row["calls"]), row["op"], row["shapes"]))
    return steps


def measured(path, gpu):
    """Microseconds of steps on a board."""
    times = defaultdict(list)
    with open(path, newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if gpu[:4].upper() in row["device"]:
                times[tuple(row[k] for k in STEP)].append(1e3 * float(row["ms_per_iter"]))
    return times


def consistent(times, whole_us):
    """Whether a step took what its kernels by profile add up to."""
    return any(abs(whole_us / time - 1) < 0.15 for time in times)


def predicted(args, key):
    network, mode, precision, batch = key
    command = [args.predict, "--net", f"{args.networks}/{network}.toml", "--gpu", args.gpu, "--framework", "pytorch", "--launch", "graph",
               "--precision", precision, "--batch", batch, "--mode", "training" if mode == "train" else "inference", "--format", "json"]
    if args.calibration:
        command += ["--calibration", args.calibration]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}: {done.stderr}")
    found = defaultdict(list)
    for layer in json.loads(done.stdout)["layers"]:
        kind = "update" if layer["phase"] == "update" else kind_of(layer["kind"])
        found[kind].append((1e6 * layer["time_s"], layer["name"], layer["phase"], layer["kind"]))
    return found


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("predict")
    arguments.add_argument("gpu")
    arguments.add_argument("networks", help="folder of the networks' files")
    arguments.add_argument("profile")
    arguments.add_argument("--measured", metavar="FILE", help="the round's rows")
    arguments.add_argument("--calibration", metavar="FILE")
    arguments.add_argument("--worst", type=int, default=0, help="so many steps, by how much they are off")
    arguments.add_argument("--step", metavar="NETWORK,MODE", help="all operations and kernels of one step")
    args = arguments.parse_args()
    times = measured(args.measured, args.gpu) if args.measured else None
    totals, steps = defaultdict(lambda: [0.0, 0.0, 0.0]), []
    for key, found in profiled(args.profile).items():
        if args.step and args.step.split(",") != list(key[:2]):
            continue
        whole = sum(t for part in found.values() for t, *_ in part)
        if args.measured and not consistent(times[key], whole):
            continue
        ours = predicted(args, key)
        gaps = {}
        for kind in found.keys() | ours.keys():
            ran, foreseen = sum(t for t, *_ in found.get(kind, ())), sum(t for t, *_ in ours.get(kind, ()))
            gaps[kind] = (foreseen, ran)
            for group in ("all", key[1], f"{key[1]} {key[2]}"):
                at = totals[group, kind]
                at[0] += foreseen / whole
                at[1] += ran / whole
                at[2] += abs(foreseen - ran) / whole
        for group in ("all", key[1], f"{key[1]} {key[2]}"):
            totals[group, "steps"][0] += 1
        steps.append((sum(f for f, _ in gaps.values()) / whole - 1, key, whole, gaps))
        if args.step:
            for kind in sorted(gaps, key=lambda k: -abs(gaps[k][0] - gaps[k][1])):
                print(f"== {kind}: foreseen {gaps[kind][0]:.0f}, measured {gaps[kind][1]:.0f} us")
                for time, calls, op, shapes in sorted(found.get(kind, ()), reverse=True)[:25]:
                    print(f"    {time:9.1f} us, {calls:4.0f} x {time / calls:7.1f} {op} {shapes[:110]}")
                same = defaultdict(list)
                for time, name, phase, of in ours.get(kind, ()):
                    same[round(time, 2), phase, of].append(name)
                for (time, phase, of), names in sorted(same.items(), key=lambda s: -s[0][0] * len(s[1]))[:25]:
                    print(f"      foreseen {time * len(names):9.1f} us, {len(names):4} x {time:7.1f} {of} {phase} {names[0]}")
            return
    print("mean shares of a step's time, in %: foreseen, measured, how far off in the mean")
    groups = sorted({group for group, _ in totals})
    for group in groups:
        count = totals[group, "steps"][0]
        print(f"{group} ({count:.0f} steps)")
        kinds = sorted((k for g, k in totals if g == group and k != "steps"), key=lambda k: -totals[group, k][2])
        for kind in kinds:
            foreseen, ran, off = (100 * x / count for x in totals[group, kind])
            print(f"  {kind:12} {foreseen:6.2f} {ran:6.2f} ({foreseen - ran:+.2f}), {off:.2f} off")
    for error, key, whole, gaps in sorted(steps, key=lambda s: -abs(s[0]))[:args.worst]:
        parts = sorted(gaps.items(), key=lambda g: -abs(g[1][0] - g[1][1]))[:4]
        print(f"{100 * error:+.0f} % of {whole / 1e3:.2f} ms {' '.join(key)}: " + ", ".join(f"{k} {f:.0f} for {m:.0f}" for k, (f, m) in parts))


if __name__ == "__main__":
    main()
