#!/usr/bin/env python3
"""How fast predictions are on this machine, beside another program's count of operations, as a table in Markdown.

  cargo build --release -p joulecast-predict && cargo build --release -p joulecast-model --example steps
  calibrate/tools/speed.py [--peer PYTHON]

Times of operations: CPU time of `target/release/examples/steps NAME N`, the difference between two N over that of the
repetitions, the least of some runs. Of processes, a copy of the program as an installed one is: CPU time of the whole process,
user and system, the least of 30. Rates: rows over wall time.
PYTHON: an interpreter with torch and torchvision, whose FlopCounterMode counts the same network's operations on the device `meta`.
"""
import argparse
import os
import platform
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time

PREDICT = "target/release/predict"
STEPS = "target/release/examples/steps"
WHAT = {
    "network": "cold, from a parsed network",
    "shapes": "shapes known",
    "step": "compiled, without a point",
    "compile": "over batches, once",
    "batch": "another batch",
    "clock": "another clock",
    "limit": "another limit that binds",
}
GPUS = {"v100": "V100, fp32", "h200": "H200, fp16"}
NETWORKS = """alexnet caffenet densenet121 densenet169 densenet201 efficientnet_b0 googlenet inception_v3 inception_v4 mnasnet1_0
    mobilenet_v1 mobilenet_v2 mobilenet_v3_large nin regnet_x_400mf resnet101 resnet152 resnet18 resnet50 vgg16"""
BOARDS = """p100-pcie p100-sxm2 p4 titan-xp titan-v v100-pcie v100 rtx2080ti t4 a10 a100-pcie-40gb a100-pcie-80gb a100-sxm4-40gb
    a100-sxm4-80gb a30 a40 rtx-a6000 rtx3090 l4 l40 rtx4090 h100-sxm h200"""
PEER = """
import time, torch, torchvision
from torch.utils.flop_counter import FlopCounterMode
torch.set_num_threads(1)
with torch.device("meta"):
    net, image = torchvision.models.resnet50().eval(), torch.empty(64, 3, 224, 224)
best = 1e9
for _ in range(12):
    began = time.process_time()
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        net(image)
    best = min(best, time.process_time() - began)
print(torch.__version__, best)
"""


def cpu_and_memory(command):
    """CPU seconds and peak memory in MiB of a process."""
    null = subprocess.DEVNULL
    process = subprocess.Popen(command, stdout=null, stderr=null)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        sys.exit(f"{' '.join(command)}: ended with {status}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def least(command, times):
    runs = [cpu_and_memory(command) for _ in range(times)]
    return min(cpu for cpu, _ in runs), max(memory for _, memory in runs)


def operation(name):
    """CPU microseconds of one repetition."""
    few, many = (1000, 201000) if name.startswith(("clock", "limit")) else (10, 1010)
    best = min(least([STEPS, name, str(many)], 3)[0] for _ in range(2))
    return (best - least([STEPS, name, str(few)], 5)[0]) / (many - few) * 1e6


def wall(command, times):
    """Wall seconds of a process, the least of some."""
    took = []
    for _ in range(times):
        began = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True)
        took.append(time.perf_counter() - began)
    return min(took)


def rows_a_second(arguments):
    """Rows of a sweep, and how many of them it made a second with its start, the best of three times."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "rows.csv")
        seconds = wall([PREDICT, "sweep", *arguments, "--output", path, "--force"], 3)
        with open(path, "rb") as file:
            rows = sum(1 for _ in file) - 1
    return rows, rows / seconds


def large_plan(path):
    """The example's plan, of 20 networks and 23 boards."""
    with open("data/capacity/tagging.toml", encoding="utf-8") as file:
        example = file.read()
    tables = re.split(r"(?m)^(?=\[)", example)
    candidate = next(table for table in tables if table.startswith("[[candidate]]"))
    rest = [table for table in tables if not table.startswith(("[[network]]", "[[candidate]]"))]
    networks = [f'[[network]]\nnet = "{name}"\nshare = 0.05\n\n' for name in NETWORKS.split()]
    candidates = [re.sub(r'gpu = ".*"', f'gpu = "{name}"', candidate, count=1) for name in BOARDS.split()]
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(rest + networks + candidates)


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--peer", metavar="PYTHON")
    args = arguments.parse_args()
    with open("model/benches/instructions.csv", encoding="utf-8") as file:
        instructions = dict(line.strip().split(",", 1) for line in file)
    print(f"{os.cpu_count()} cores, {platform.machine()}, load {os.getloadavg()[0]:.1f} before.\n")
    print("| ResNet-50, batch 64 | GPU | instructions | CPU us |\n| --- | --- | ---: | ---: |")
    times_us = {}
    for kind, words in WHAT.items():
        for gpu, title in GPUS.items():
            name = f"{kind}-{gpu}"
            us = times_us[name] = operation(name)
            print(f"| {words} | {title} | {int(instructions[name]):,} | {us:.3g} |")
    if args.peer:
        version, seconds = subprocess.run([args.peer, "-c", PEER], check=True, capture_output=True, text=True).stdout.split()
        us = float(seconds) * 1e6
        times = us / times_us["shapes-v100"]
        print(f"| operations alone, by FlopCounterMode of PyTorch {version} on `meta` | - | - | {us:.3g}, {times:.0f} times \"shapes known\" |")
    print("\n| process | CPU ms | peak MiB |\n| --- | ---: | ---: |")
    cpu, memory = least(["/bin/true"], 30)
    print(f"| `true`, which does nothing | {cpu * 1e3:.3g} | {memory:.0f} |")
    with tempfile.TemporaryDirectory() as folder:
        # As an installed program is: of a file that a linker wrote pages are mapped in smaller pieces.
        program = shutil.copy(PREDICT, folder)
        for command, times in [
            ("--version", 30),
            ("--net resnet50 --gpu v100 --batch 64", 30),
            ("--net resnet50 --gpu h200 --precision fp16 --batch 64", 30),
            ("plan data/capacity/tagging.toml", 5),
            ("compare --net all --gpu all --batch 1", 3),
        ]:
            cpu, memory = least([program, *command.split()], times)
            print(f"| `predict {command}` | {cpu * 1e3:.3g} | {memory:.0f} |")
        path = os.path.join(folder, "plan.toml")
        large_plan(path)
        print(f"\nA plan of {len(NETWORKS.split())} networks and {len(BOARDS.split())} boards: {wall([PREDICT, 'plan', path], 3):.2f} s, as waited for.")
    print("\n| sweep into CSV | rows | rows a second |\n| --- | ---: | ---: |")
    for words, command in [
        ("clocks and limits", "--net resnet50 --gpu v100 --batch 1,64,256 --clock 700..1400:5 --power-cap 150..300:1"),
        ("batches", "--net resnet50 --gpu v100 --batch 1..8192:1"),
        ("networks and GPUs", "--net all --gpu all --batch 1,8,64"),
    ]:
        rows, rate = rows_a_second(command.split())
        print(f"| {words}: `predict sweep {command}` | {rows:,} | {rate:,.0f} |")
    size = os.path.getsize(PREDICT) / 1e6
    print(f"\nThe program: {size:.1f} MB. Time of this script: {resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime:.0f} s of CPU.")


if __name__ == "__main__":
    main()
