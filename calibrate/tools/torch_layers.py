#!/usr/bin/env python3
"""The kernels of every layer through PyTorch on one GPU: which ones run, launched by which operation, for how long.

Observes only: no clock, power limit or other setting of the card is touched. Needs torch, torchvision and
torch_networks.py beside it. Networks run eagerly, as that script builds them.

  torch_layers.py --networks resnet50,vgg16 --batches 16,64 --out kernels.csv --budget 540 [--training]
  torch_layers.py --self-test

Three files. --out: one row for each kernel of each leaf module in order of execution; what runs outside leaf modules
(additions of residual blocks, functional pooling) is a place of its own, with an empty `module` and the outermost
operation as `module_kind`. `op` is the innermost ATen operation. `calls` are launches in one step, `time_us` the device
time of them all, mean over the profiled steps. Copies and fills of memory count as kernels. Modules that launch
nothing leave a gap in `order`. --summary: two rows for a configuration, `wall` (a step back to back, without the
profiler) and `kernels` (their sum in one step); the first minus the second is time in which the GPU waits.
--training-out: one row for each phase and operation of a training step.

All walls come before the first profile, because CUPTI stays attached to the process once it was used. The profiled
steps are few and leave gaps: their clock (`sm_mhz`) may be above that of a sustained run. A file's rows are flushed as
they are made; configurations that the summary holds are skipped, so that a stopped run resumes.
"""
import argparse
import contextlib
import csv
import gc
import json
import os
import sys
import tempfile
import time
from collections import Counter, defaultdict
from typing import NamedTuple, Optional

CONFIGURATION = "network,mode,batch,precision,layout".split(",")
KERNEL_COLUMNS = CONFIGURATION + "order,module,module_kind,op,kernel,time_us,calls".split(",")
TRAINING_COLUMNS = CONFIGURATION + "phase,op,kernels,time_us".split(",")
SUMMARY_COLUMNS = CONFIGURATION + ("part,kernel_us,kernels,steps,eager_ms,graph_ms,sm_mhz,graph_sm_mhz,device,driver,"
                                   "torch,cudnn").split(",")
STEP, LEAF = "joulecast.step|", "joulecast.leaf|"
ON_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")


class Span(NamedTuple):
    """An operation (`op`) or annotation (`note`) on a host thread, in microseconds."""
    begin: float
    end: float
    sort: str
    name: str
    thread: str
    external: Optional[int]


class Kernel(NamedTuple):
    """A kernel, or a copy or fill of memory. `chain`: the spans around its launch, the outermost first."""
    name: str
    begin: float
    time_us: float
    launched: Optional[float]
    thread: Optional[str]
    chain: tuple
    external: Optional[int]

    def operation(self):
        """The innermost ATen operation; of another library where there is none."""
        names = [span.name for span in self.chain if span.sort == "op"]
        return ([name for name in names if name.startswith("aten::")] or names or [""])[-1]


def read_trace(trace):
    """The kernels of a Chrome trace in order of execution on the device, and the annotations in order of time.

    A kernel belongs to the launch call with its correlation number, and the launch to the spans of its thread that
    contain its middle. Without such a call, the trace's external number names the operation."""
    spans, launches, on_device, by_external = [], {}, [], {}
    for event in trace["traceEvents"]:
        if event.get("ph") != "X":
            continue
        category, args = event.get("cat"), event.get("args") or {}
        begin, duration, thread = float(event["ts"]), float(event.get("dur", 0)), str(event.get("tid"))
        if category in ("cpu_op", "user_annotation"):
            sort = "op" if category == "cpu_op" else "note"
            span = Span(begin, begin + duration, sort, event["name"], thread, args.get("External id"))
            spans.append(span)
            if sort == "op" and span.external is not None:
                by_external[span.external] = span
        elif category in ("cuda_runtime", "cuda_driver") and args.get("correlation"):
            launches.setdefault(args["correlation"], (begin + duration / 2, thread))
        elif category in ON_DEVICE:
            on_device.append((begin, duration, event["name"], args.get("correlation"), args.get("External id")))
    on_device.sort(key=lambda event: event[0])
    where = []
    for _, _, _, correlation, external in on_device:
        named = by_external.get(external)
        where.append(launches.get(correlation) or (named and (named.begin, named.thread)) or (None, None))
    chains = enclosing(spans, where)
    kernels = [Kernel(name, begin, duration, *place, chain, external)
               for (begin, duration, name, _, external), place, chain in zip(on_device, where, chains)]
    return kernels, sorted((span for span in spans if span.sort == "note"), key=lambda span: span.begin)


def enclosing(spans, places):
    """For each (time, thread) the spans of that thread which contain the time, the outermost first."""
    threads, chains = defaultdict(lambda: ([], [])), [()] * len(places)
    for span in spans:
        threads[span.thread][0].append(span)
    for index, (when, thread) in enumerate(places):
        if when is not None:
            threads[thread][1].append((when, index))
    for inside, points in threads.values():
        inside.sort(key=lambda span: (span.begin, -span.end, span.sort))
        stack, following = [], 0
        for when, index in sorted(points):
            while following < len(inside) and inside[following].begin <= when:
                stack.append(inside[following])
                following += 1
            stack = [span for span in stack if span.end >= when]
            chains[index] = tuple(stack)
    return chains


def by_step(kernels, notes):
    """The profiled steps with their kernels, without the first one, which pays for the profiler's start."""
    steps = [note for note in notes if note.name.startswith(STEP)][1:]
    return [(step, [kernel for kernel in kernels
                    if kernel.launched is not None and step.begin <= kernel.launched <= step.end]) for step in steps]


def place_of(kernel):
    """The leaf module in which a kernel was launched, or the outermost operation, as a span."""
    leaves = [span for span in kernel.chain if span.name.startswith(LEAF)]
    operations = [span for span in kernel.chain if span.sort == "op"]
    nothing = Span(kernel.launched, kernel.launched, "op", "", kernel.thread, None)
    return (leaves[-1:] or operations[:1] or [nothing])[0]


def places_of(step, kernels, notes):
    """A step's modules and operations in order of execution, each as ((module, kind), kernels)."""
    places = {note: [] for note in notes if note.name.startswith(LEAF) and step.begin <= note.begin <= step.end}
    for kernel in kernels:
        places.setdefault(place_of(kernel), []).append(kernel)
    labelled = []
    for span, inside in sorted(places.items(), key=lambda item: item[0].begin):
        label = tuple(span.name.split("|")[1:3]) if span.name.startswith(LEAF) else ("", span.name)
        labelled.append((label, inside))
    return labelled


def layer_rows(kernels, notes):
    """Rows of --out without the configuration, and the number of steps they are the mean of: those that ran the most
    usual sequence of kernels."""
    steps = [places_of(step, inside, notes) for step, inside in by_step(kernels, notes)]
    if not steps:
        return [], 0

    def sequence(step):
        return tuple((label, tuple((kernel.operation(), kernel.name) for kernel in inside)) for label, inside in step)

    usual = Counter(map(sequence, steps)).most_common(1)[0][0]
    alike = [step for step in steps if sequence(step) == usual]
    rows = []
    for order, (module, kind) in enumerate(label for label, _ in usual):
        found = {}
        for step in alike:
            for kernel in step[order][1]:
                times = found.setdefault((kernel.operation(), kernel.name), [])
                times.append(kernel.time_us)
        for (operation, name), times in found.items():
            rows.append({"order": order, "module": module, "module_kind": kind, "op": operation,
                         "kernel": name[:120], "time_us": round(sum(times) / len(alike), 4),
                         "calls": len(times) // len(alike)})
    return rows, len(alike)


def phase_of(kernel, step, first_backward):
    """The autograd engine has threads of its own; what the step's thread launches after them is the optimizer's, what
    it launches before them, the loss and its first gradient included, is forward."""
    backward = any(span.name.startswith("autograd::engine::evaluate_function") for span in kernel.chain)
    if backward or kernel.thread != step.thread:
        return "backward"
    optimizer = any(span.name.startswith("Optimizer.") for span in kernel.chain)
    return "optimizer" if optimizer or kernel.launched > first_backward else "forward"


def training_rows(kernels, notes):
    """Rows of --training-out without the configuration, and the number of steps they are the mean of."""
    steps, totals = by_step(kernels, notes), {}
    for step, inside in steps:
        first = min((k.launched for k in inside if phase_of(k, step, float("inf")) == "backward"), default=float("inf"))
        for kernel in inside:
            total = totals.setdefault((phase_of(kernel, step, first), kernel.operation()), [0, 0.0])
            total[0] += 1
            total[1] += kernel.time_us
    rows = []
    for phase in ("forward", "backward", "optimizer"):
        inside = [(us, count, operation) for (at, operation), (count, us) in totals.items() if at == phase]
        for us, count, operation in sorted(inside, reverse=True):
            rows.append({"phase": phase, "op": operation, "kernels": round(count / len(steps), 2),
                         "time_us": round(us / len(steps), 4)})
    return rows, len(steps)


def doubts(kernels):
    """What about the attribution deserves a look, in words."""
    lost = sum(kernel.launched is None for kernel in kernels)
    alone = sum(kernel.launched is not None and not kernel.operation() for kernel in kernels)
    other = 0
    for kernel in kernels:
        known = [span.external for span in kernel.chain if span.sort == "op" and span.external is not None]
        other += bool(known and kernel.external is not None and kernel.external not in known)
    found = [(lost, "without a launch"), (alone, "without an operation"), (other, "which the trace gives to another")]
    return ", ".join(f"{count} of {len(kernels)} kernels {what}" for count, what in found if count)


@contextlib.contextmanager
def labelled():
    """Annotates every call of a module without children by its dotted name in the network and its class."""
    import torch

    names, opened = {}, []

    def before(module, _inputs):
        if id(module) not in names:  # the first is the network itself
            names.update((id(m), name) for name, m in module.named_modules())
        if next(module.children(), None) is None:
            note = torch.profiler.record_function(f"{LEAF}{names[id(module)]}|{type(module).__name__}")
            note.__enter__()
            opened.append(note)

    def after(module, _inputs, _output):
        if next(module.children(), None) is None:
            opened.pop().__exit__(None, None, None)

    hooks = [torch.nn.modules.module.register_module_forward_pre_hook(before),
             torch.nn.modules.module.register_module_forward_hook(after)]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def profiled(step, steps, nvml, labels, path):
    """The trace of so many steps after one that is not counted, and the core clock at their end."""
    import torch

    begin = time.perf_counter()
    while time.perf_counter() - begin < 0.5:
        step()
        torch.cuda.synchronize()
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with labelled() if labels else contextlib.nullcontext():
        with torch.profiler.profile(activities=activities) as profile:
            for index in range(steps + 1):
                with torch.profiler.record_function(f"{STEP}{index}"):
                    step()
            clock = nvml.clock(1)
            torch.cuda.synchronize()
    profile.export_chrome_trace(path)
    with open(path, encoding="utf-8", errors="replace") as file:
        return json.load(file, strict=False), clock


def wall(step, nvml, window):
    """Milliseconds of a step back to back, median over five blocks, and the core clock in the last of them."""
    import torch

    for _ in range(3):
        step()
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(3):
        step()
    torch.cuda.synchronize()
    count = max(3, int(window / 5 * 3 / (time.perf_counter() - begin)))
    times, clock = [], None
    for _ in range(6):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        for _ in range(count):
            step()
        end.record()
        clock = nvml.clock(1)
        end.synchronize()
        times.append(start.elapsed_time(end) / count)
    return round(sorted(times[1:])[2], 5), clock


class Table:
    """A CSV file that grows by whole groups of rows. Rows that `keep` refuses are the beginning of a group whose end
    a stopped run did not write: on opening they move to a file beside it."""

    def __init__(self, path, columns, keep=lambda row: True):
        self.rows, refused = [], []
        if os.path.exists(path):
            with open(path, newline="") as file:
                for row in csv.DictReader(file):
                    (self.rows if None not in row.values() and keep(row) else refused).append(row)
        for name, rows in ((path + ".incomplete", refused), (path + ".new", self.rows)):
            if rows is self.rows or rows:
                with open(name, "w", newline="") as file:
                    writer = csv.DictWriter(file, columns)
                    writer.writeheader()
                    writer.writerows(rows)
        os.replace(path + ".new", path)
        self.file = open(path, "a", newline="")
        self.writer = csv.DictWriter(self.file, columns)

    def write(self, rows):
        self.writer.writerows(rows)
        self.file.flush()
        os.fsync(self.file.fileno())


def key(row):
    """A configuration as text; the layout follows from the precision."""
    return tuple(str(row[column]) for column in CONFIGURATION[:4])


def measure_wall(torch_networks, nvml, name, mode, batch, precision, window):
    step, layout = torch_networks.build(name, precision, mode, batch)
    eager, clock = wall(step, nvml, window)
    row = {"layout": layout, "eager_ms": eager, "sm_mhz": clock}
    if mode == "infer":
        try:
            replay = torch_networks.captured(step)
            row["graph_ms"], row["graph_sm_mhz"] = wall(replay, nvml, window)
        except RuntimeError as error:
            print(f"{name} {precision} {batch}, as a graph: {str(error).splitlines()[0]}", flush=True)
    return row


def measure_kernels(torch_networks, nvml, name, mode, batch, precision, steps, folder):
    step, layout = torch_networks.build(name, precision, mode, batch)
    with tempfile.TemporaryDirectory() as own:
        path = os.path.join(folder or own, f"{name}_{mode}_{precision}_{batch}.json")
        trace, clock = profiled(step, steps, nvml, mode == "infer", path)
    kernels, notes = read_trace(trace)
    rows, used = (layer_rows if mode == "infer" else training_rows)(kernels, notes)
    if not rows:
        raise RuntimeError("the trace holds no kernels of a step: is CUPTI there?")
    if used < steps:
        print(f"{used} of {steps} steps ran the same kernels; the others are left out", flush=True)
    if doubt := doubts(kernels):
        print(doubt, flush=True)
    row = {"layout": layout, "sm_mhz": clock, "steps": used, "kernel_us": round(sum(r["time_us"] for r in rows), 3),
           "kernels": sum(r["calls" if mode == "infer" else "kernels"] for r in rows)}
    return row, rows


def run(args):
    import torch
    sys.dont_write_bytecode = True
    import torch_networks

    begin = time.perf_counter()
    properties = torch.cuda.get_device_properties(0)
    nvml = torch_networks.Nvml(f"GPU-{properties.uuid}")
    stem = os.path.splitext(args.out)[0]
    summary = Table(args.summary or f"{stem}_summary.csv", SUMMARY_COLUMNS)
    known = {(key(row), row["part"]) for row in summary.rows}
    tables = {"infer": Table(args.out, KERNEL_COLUMNS, lambda row: (key(row), "kernels") in known)}
    if args.training:
        tables["train"] = Table(args.training_out or f"{stem}_training.csv", TRAINING_COLUMNS,
                                lambda row: (key(row), "kernels") in known)
    plan = [(n, "infer", int(b), p) for b in args.batches.split(",") if b
            for p in args.precisions.split(",") for n in args.networks.split(",")]
    if args.training:
        plan += [(n, "train", int(b), p) for b in args.training_batches.split(",") if b
                 for p in args.precisions.split(",") for n in args.networks.split(",")]
    fixed = {"device": properties.name, "driver": nvml.driver(), "torch": torch.__version__,
             "cudnn": torch.backends.cudnn.version()}
    if args.traces:
        os.makedirs(args.traces, exist_ok=True)
    for part, (name, mode, batch, precision) in [(part, c) for part in ("wall", "kernels") for c in plan]:
        if time.perf_counter() - begin > args.budget:
            print("budget used", flush=True)
            break
        configuration = {"network": name, "mode": mode, "batch": batch, "precision": precision}
        if (key(configuration), part) in known:
            continue
        try:
            gc.collect()
            torch.cuda.empty_cache()
            if part == "wall":
                row = measure_wall(torch_networks, nvml, name, mode, batch, precision, args.window)
            else:
                row, rows = measure_kernels(torch_networks, nvml, name, mode, batch, precision, args.steps, args.traces)
                tables[mode].write({**configuration, "layout": row["layout"], **r} for r in rows)
        except RuntimeError as error:
            print(f"{name} {mode} {precision} {batch} {part}: {str(error).splitlines()[0]}", flush=True)
            continue
        summary.write([{**configuration, "part": part, **row, **fixed}])
        print(name, mode, precision, batch, part, {k: v for k, v in row.items() if k != "layout"}, flush=True)


def self_test():
    """The reading of a made-up trace: three steps of a convolution with bias, a ReLU and a residual addition."""
    events, ids = [], iter(range(1, 10 ** 6))

    def span(category, name, begin, end, thread=7, **args):
        events.append({"ph": "X", "cat": category, "name": name, "pid": 7, "tid": thread, "ts": begin,
                       "dur": end - begin, "args": args})

    def kernel(name, launch, time_us, thread=7, category="kernel", call="cuda_runtime", **args):
        number = next(ids)
        if call:
            span(call, "cudaLaunchKernel", launch, launch + 1, thread, correlation=number)
        span(category, name, 1000 + launch * 10, 1000 + launch * 10 + time_us, "stream 7", correlation=number, **args)

    for index in range(4):
        t = 100 * index
        span("user_annotation", f"{STEP}{index}", t, t + 90)
        span("gpu_user_annotation", f"{STEP}{index}", 1000 + t, 1090 + t, "stream 7")
        span("user_annotation", f"{LEAF}conv1|Conv2d", t + 1, t + 40)
        span("cpu_op", "aten::conv2d", t + 2, t + 39)
        span("cpu_op", "aten::cudnn_convolution", t + 3, t + 20, **{"External id": 10 + index})
        kernel("Memset (Device)", t + 4, 2, category="gpu_memset")
        kernel("sm90_xmma_fprop", t + 8, 100 + index, call="cuda_driver", **{"External id": 10 + index})
        kernel("sm90_xmma_fprop", t + 12, 50)
        span("cpu_op", "aten::add_", t + 25, t + 35)
        kernel("elementwise<add>" + "x" * 200, t + 26, 7)
        span("user_annotation", f"{LEAF}flatten|Flatten", t + 41, t + 44)
        span("user_annotation", f"{LEAF}relu|ReLU", t + 45, t + 55)
        span("cpu_op", "aten::relu_", t + 46, t + 54)
        span("cpu_op", "aten::clamp_min_", t + 47, t + 53, **{"External id": 500 + index})
        kernel("elementwise<relu>", t + 48, 3, call=None, **{"External id": 500 + index})
        span("cpu_op", "aten::empty", t + 56, t + 57)
        span("cpu_op", "aten::adaptive_avg_pool2d", t + 60, t + 70)
        span("cpu_op", "aten::mean", t + 61, t + 69)
        kernel("reduce", t + 62, 4)
        span("user_annotation", f"{LEAF}relu|ReLU", t + 75, t + 80)
        span("cpu_op", "aten::relu_", t + 76, t + 79)
        kernel("elementwise<relu>", t + 77, 5)
        if index == 2:
            kernel("odd", t + 85, 1)
    events.append({"ph": "f", "cat": "ac2g", "name": "ac2g", "ts": 1, "pid": 7, "tid": 7, "id": 3})
    events.append({"ph": "M", "name": "process_name", "ts": 1, "pid": 7, "tid": 7, "args": {"name": "python"}})
    kernels, notes = read_trace({"traceEvents": list(reversed(events))})
    rows, used = layer_rows(kernels, notes)
    found = [(r["order"], r["module"], r["module_kind"], r["op"], r["kernel"], r["time_us"], r["calls"]) for r in rows]
    conv = (0, "conv1", "Conv2d", "aten::cudnn_convolution")
    assert used == 2, used  # of three: one ran an odd kernel
    assert found == [
        (*conv, "Memset (Device)", 2, 1), (*conv, "sm90_xmma_fprop", 152, 2),
        (0, "conv1", "Conv2d", "aten::add_", ("elementwise<add>" + "x" * 200)[:120], 7, 1),
        (2, "relu", "ReLU", "aten::clamp_min_", "elementwise<relu>", 3, 1),
        (3, "", "aten::adaptive_avg_pool2d", "aten::mean", "reduce", 4, 1),
        (4, "relu", "ReLU", "aten::relu_", "elementwise<relu>", 5, 1)], found
    assert doubts(kernels) == "1 of 29 kernels without an operation", doubts(kernels)

    events.clear()
    for index in range(3):
        t = 100 * index
        span("user_annotation", f"{STEP}{index}", t, t + 95)
        span("cpu_op", "aten::conv2d", t + 1, t + 10)
        kernel("fprop", t + 2, 10)
        span("cpu_op", "autograd::engine::evaluate_function: ConvolutionBackward0", t + 20, t + 50, 8)
        span("cpu_op", "aten::convolution_backward", t + 21, t + 49, 8)
        kernel("dgrad", t + 22, 20, 8)
        kernel("wgrad", t + 30, 30, 8)
        span("cpu_op", "aten::_amp_foreach_non_finite_check_and_unscale_", t + 60, t + 65)
        kernel("unscale", t + 61, 1)
        span("user_annotation", "Optimizer.step#SGD.step", t + 70, t + 90)
        span("cpu_op", "aten::_foreach_add_", t + 71, t + 80)
        kernel("multi_tensor", t + 72, 4 + index)
    rows, used = training_rows(*read_trace({"traceEvents": events}))
    assert used == 2 and [tuple(row.values()) for row in rows] == [
        ("forward", "aten::conv2d", 1, 10), ("backward", "aten::convolution_backward", 2, 50),
        ("optimizer", "aten::_foreach_add_", 1, 5.5),
        ("optimizer", "aten::_amp_foreach_non_finite_check_and_unscale_", 1, 1)], rows
    assert layer_rows([], []) == ([], 0) and training_rows([], []) == ([], 0)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "rows.csv")
        Table(path, ["network", "kernel"]).write({"network": n, "kernel": "f<1, 2>"} for n in "ab")
        with open(path, "a") as file:
            file.write("a")
        again = Table(path, ["network", "kernel"], lambda row: row["network"] == "a")
        assert again.rows == [{"network": "a", "kernel": "f<1, 2>"}], again.rows
        again.write([{"network": "c", "kernel": "h"}])
        with open(path, newline="") as file:
            assert [row["network"] for row in csv.DictReader(file)] == ["a", "c"]
    print("self-test passed")


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--networks", default="resnet50,vgg16,mobilenet_v2", help="torchvision names")
    arguments.add_argument("--batches", default="16,64", help="inference; none if empty")
    arguments.add_argument("--precisions", default="fp32,tf32,fp16")
    arguments.add_argument("--training", action="store_true", help="training steps too")
    arguments.add_argument("--training-batches", default="32")
    arguments.add_argument("--steps", type=int, default=5, help="profiled steps")
    arguments.add_argument("--window", type=float, default=1.0, help="seconds of a wall measurement")
    arguments.add_argument("--budget", type=float, default=500, help="seconds; nothing is begun after them")
    arguments.add_argument("--out", help="kernels, CSV")
    arguments.add_argument("--summary", help="CSV; default: --out with _summary")
    arguments.add_argument("--training-out", help="CSV; default: --out with _training")
    arguments.add_argument("--traces", help="folder in which to keep the profiler's traces")
    arguments.add_argument("--self-test", action="store_true", help="test the reading of traces; needs no GPU")
    args = arguments.parse_args()
    if args.self_test:
        self_test()
    elif not args.out:
        arguments.error("--out is needed")
    else:
        run(args)


if __name__ == "__main__":
    main()
