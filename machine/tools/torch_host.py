#!/usr/bin/env python3
"""How fast this machine's host launches PyTorch's operations: seconds of fixed eager chains whose kernels are so small
that the GPU never bounds.

Observes only: no clock, power limit or other setting of the card is touched. Needs torch and one GPU; takes less than
half a minute.

  torch_host.py --out chains.json
  calibrate host --from chains.json

The chains are of the layers of `torch_ops.py --host`, on the same tiny maps, so that a framework profile's table of host
times (`data/frameworks/pytorch.toml`), which was found by that script, foresees each chain as the sum over its
layers. A chain is enqueued while the GPU is idle: its time is the host's alone. What a repeat takes besides (the
optimizer, the loss, clearing gradients) is not timed, as it is not there.

Printed or written is one JSON document, schema `host_chains/1`. Of each chain: the layers in it by kind, its mode, precision,
layout and whether it ran under autocast; the median, tenth and ninetieth percentile of all repeats, in training also the
medians of forward and backward; the CPU seconds of all threads over the elapsed ones (less than one where the process waited for a
core); the median of each round, rounds being spread over the run. Times are microseconds of a whole chain.

`measure()` returns the same as a dictionary, for scripts that measure networks in the same visit.
"""
import argparse
import datetime
import json
import os
import platform
import statistics
import sys
import time

SCHEMA = "host_chains/1"
# Kinds of layers as profiles name them, and how many times over.
CHAINS = {
    "linear": (("linear",), 48),
    "convolution": (("conv2d", "batch_norm", "relu"), 16),
    "attention": (("layer_norm", "linear", "attention", "linear", "add", "layer_norm", "linear", "gelu", "linear", "add"), 5),
}
# Mode, precision, whether under autocast, layout. Convolutions in 16 bits run in both layouts: networks mostly have them
# channels-last, the profile's table of training is of the other.
VARIANTS = (
    ("inference", "fp32", False, "nchw"),
    ("inference", "fp16", False, "nchw"),
    ("inference", "fp16", False, "nhwc"),
    ("inference", "fp16", True, "nchw"),
    ("training", "fp32", False, "nchw"),
    ("training", "fp16", True, "nchw"),
    ("training", "fp16", True, "nhwc"),
)
CHANNELS = 16
MOST_ROUNDS, LEAST_ROUNDS, REPEATS = 12, 3, 9


def modules(kinds, torch):
    """The layers of `torch_ops.py --host`."""
    nn = torch.nn

    class Call(nn.Module):
        def __init__(self, function):
            super().__init__()
            self.function = function

        def forward(self, x):
            return self.function(x)

    def attend(x):
        q = x.view(1, 8, 4, 8).transpose(1, 2)
        return nn.functional.scaled_dot_product_attention(q, q, q).transpose(1, 2).reshape(x.shape)

    build = {
        "linear": lambda: nn.Linear(4, 4),
        "conv2d": lambda: nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1, bias=False),
        "batch_norm": lambda: nn.BatchNorm2d(CHANNELS),
        "relu": lambda: Call(nn.functional.relu),
        "layer_norm": lambda: nn.LayerNorm(4),
        "attention": lambda: Call(attend),
        "gelu": lambda: Call(nn.functional.gelu),
        "add": lambda: Call(lambda x: x + x),
    }
    return [build[kind]() for kind in kinds]


class Chain:
    """One chain in one variant, built once, run many times."""

    def __init__(self, name, variant, torch):
        self.torch, self.name, self.variant = torch, name, variant
        self.mode, precision, autocast, layout = variant
        kinds, units = CHAINS[name]
        self.layers = {kind: kinds.count(kind) * units for kind in dict.fromkeys(kinds)}
        model = torch.nn.Sequential(*modules(kinds * units, torch)).cuda()
        x = torch.randn(1, CHANNELS, 4, 4, device="cuda")
        if precision == "fp16" and not autocast:
            model, x = model.half(), x.half()
        if layout == "nhwc":
            model = model.to(memory_format=torch.channels_last)
            x = x.to(memory_format=torch.channels_last)
        self.model = model.train(self.mode == "training")
        self.x = x.requires_grad_(self.mode == "training")
        self.autocast = autocast
        # Per round, one list of (forward, backward, CPU seconds) each.
        self.rounds = []

    def once(self):
        """Seconds of forward, of backward, and of CPU in both."""
        torch = self.torch
        torch.cuda.synchronize()
        with torch.autocast("cuda", torch.float16, enabled=self.autocast), torch.set_grad_enabled(self.mode == "training"):
            cpu, begin = time.process_time(), time.perf_counter()
            y = self.model(self.x)
            forward, cpu = time.perf_counter() - begin, time.process_time() - cpu
        if self.mode == "inference":
            return forward, 0.0, cpu
        above = torch.ones_like(y)
        torch.cuda.synchronize()
        cpu_begin, begin = time.process_time(), time.perf_counter()
        y.backward(above)
        backward, cpu = time.perf_counter() - begin, cpu + time.process_time() - cpu_begin
        self.model.zero_grad(set_to_none=True)
        self.x.grad = None
        return forward, backward, cpu

    def round(self):
        """One more round; its first run, which finds caches cold, is not counted."""
        self.once()
        self.rounds.append([self.once() for _ in range(REPEATS)])

    def result(self):
        mode, precision, autocast, layout = self.variant
        runs = [run for taken in self.rounds for run in taken]
        times = sorted(forward + backward for forward, backward, _ in runs)
        micro = lambda seconds: round(1e6 * seconds, 1)  # noqa: E731
        row = {"chain": self.name, "mode": mode, "precision": precision, "autocast": autocast, "layout": layout,
               "layers": self.layers, "median_us": micro(statistics.median(times)), "p10_us": micro(times[len(times) // 10]),
               "p90_us": micro(times[len(times) * 9 // 10]), "cpu_share": round(sum(r[2] for r in runs) / sum(times), 3)}
        if mode == "training":
            row["forward_us"] = micro(statistics.median(run[0] for run in runs))
            row["backward_us"] = micro(statistics.median(run[1] for run in runs))
        row["rounds_us"] = [micro(statistics.median(run[0] + run[1] for run in taken)) for taken in self.rounds]
        return row


def cpu_name():
    try:
        with open("/proc/cpuinfo") as file:
            return next((line.split(":", 1)[1].strip() for line in file if line.startswith("model name")), "")
    except OSError:
        return platform.processor()


def measure(seconds=12.0):
    """All chains, in rounds until so many seconds are over: a dictionary as the module's text describes."""
    import torch
    if not torch.cuda.is_available():
        raise RuntimeError("PyTorch finds no CUDA device")
    date = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    chains = [Chain(name, variant, torch) for name in CHAINS for variant in VARIANTS
              if variant[3] == "nchw" or name == "convolution"]
    for chain in chains:
        for _ in range(3):
            chain.once()
    begin, starts = time.perf_counter(), []
    while len(starts) < LEAST_ROUNDS or len(starts) < MOST_ROUNDS and time.perf_counter() - begin < seconds:
        starts.append(round(time.perf_counter() - begin, 2))
        for chain in chains:
            chain.round()
        # Rounds lie as far apart as the time allows, so that they show how the machine drifts.
        pause = len(starts) * seconds / MOST_ROUNDS - (time.perf_counter() - begin)
        if len(starts) < MOST_ROUNDS and pause > 0:
            time.sleep(pause)
    try:
        load = round(os.getloadavg()[0], 2)
    except OSError:
        load = None
    return {"schema": SCHEMA, "date": date, "cpu": cpu_name(), "cores": os.cpu_count(), "load": load,
            "device": torch.cuda.get_device_name(), "torch": torch.__version__, "python": platform.python_version(),
            "round_starts_s": starts, "chains": [chain.result() for chain in chains]}


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--seconds", type=float, default=12, help="of measuring, beside building and importing")
    arguments.add_argument("--out", default="-", help="file, or - for the standard output")
    args = arguments.parse_args()
    try:
        result = measure(args.seconds)
    except (ImportError, RuntimeError) as error:
        sys.exit(f"torch_host: {str(error).splitlines()[0]}")
    text = json.dumps(result, indent=1) + "\n"
    if args.out == "-":
        sys.stdout.write(text)
    else:
        with open(args.out, "w") as file:
            file.write(text)
        print(*(f"{c['chain']} {c['mode']} {c['precision']} {c['layout']}{' autocast' if c['autocast'] else ''}: "
                f"{c['median_us']} us ({c['p10_us']} to {c['p90_us']})" for c in result["chains"]), sep="\n")


if __name__ == "__main__":
    main()
