#!/usr/bin/env python3
"""What the host and what the GPU take for one step of a network through PyTorch, and what the step takes with both.

Observes only: no setting of the card is touched. One CSV row for each network, mode, precision and batch:

  host_ms   enqueueing one step while nothing waits in the queue (median of so many steps, the GPU idle before each)
  ahead_ms  the same for steps enqueued one after the other, the queue never full: the host alone, undisturbed
  eager_ms  steps one after the other, work always queued, event to event
  graph_ms  the same as a CUDA graph: the GPU alone; empty where a step cannot be captured (a scaled loss)
  drained_ms  one step from an idle GPU until its end, the host waiting

  torch_steps.py --networks resnet18,mnasnet0_5 --batches 1,16,64 --training-batches 16,64 --out steps.csv --budget 300
"""
import argparse
import csv
import gc
import statistics
import time

import torch
import torch_networks as networks

COLUMNS = "network,mode,precision,batch,host_ms,ahead_ms,eager_ms,graph_ms,drained_ms,device,torch,cpu".split(",")


def enqueue(step, repeats, rounds):
    """Median over rounds of the host's time for a step, of repeats enqueued at once after an idle GPU."""
    times = []
    for _ in range(rounds):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(repeats):
            step()
        times.append((time.perf_counter() - begin) / repeats)
        torch.cuda.synchronize()
    return 1e3 * statistics.median(times)


def drained(step, rounds):
    times = []
    for _ in range(rounds):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        step()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - begin)
    return 1e3 * statistics.median(times)


def steady(step, window):
    """Milliseconds from event to event, the queue kept full."""
    for _ in range(3):
        step()
    torch.cuda.synchronize()
    events, begin = [], time.perf_counter()
    while time.perf_counter() - begin < window:
        step()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        events.append(event)
        if len(events) > 8:
            events[-8].synchronize()
    torch.cuda.synchronize()
    skip = len(events) // 4
    return events[skip].elapsed_time(events[-1]) / (len(events) - 1 - skip)


def cpu():
    with open("/proc/cpuinfo") as file:
        return next((line.split(":")[1].strip() for line in file if line.startswith("model name")), "")


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--networks", required=True)
    arguments.add_argument("--precisions", default="tf32,fp16")
    arguments.add_argument("--batches", default="1,16,64")
    arguments.add_argument("--training-batches", default="")
    arguments.add_argument("--sequence", type=int, default=128)
    arguments.add_argument("--window", type=float, default=0.5, help="seconds")
    arguments.add_argument("--budget", type=float, default=300, help="seconds; no row is begun after them")
    arguments.add_argument("--out", required=True)
    args = arguments.parse_args()
    begin = time.perf_counter()
    plan = [(n, mode, p, int(b)) for n in args.networks.split(",")
            for mode, batches in (("infer", args.batches), ("train", args.training_batches))
            for p in args.precisions.split(",") for b in batches.split(",") if b]
    with open(args.out, "a", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        if file.tell() == 0:
            writer.writeheader()
        for name, mode, precision, batch in plan:
            if time.perf_counter() - begin > args.budget:
                print("budget used", flush=True)
                break
            try:
                gc.collect()
                torch.cuda.empty_cache()
                step, _ = networks.build(name, precision, mode, batch, args.sequence, 0)
                for _ in range(5):
                    step()
                row = {"host_ms": enqueue(step, 1, 15), "ahead_ms": enqueue(step, 3, 5), "drained_ms": drained(step, 15),
                       "eager_ms": steady(step, args.window)}
                if mode == "infer" or precision != "fp16":
                    row["graph_ms"] = steady(networks.captured(step), args.window)
            except Exception as error:  # noqa: BLE001 - one network that fails must not stop the others
                print(name, mode, precision, batch, type(error).__name__, (str(error).splitlines() or [""])[0][:200], flush=True)
                continue
            finally:
                step = None
            row = {k: round(v, 4) for k, v in row.items()}
            row.update(network=name, mode=mode, precision=precision, batch=batch, cpu=cpu(), torch=torch.__version__,
                       device=torch.cuda.get_device_name())
            writer.writerow(row)
            file.flush()
            print(*[row.get(c, "") for c in COLUMNS[:9]], flush=True)


if __name__ == "__main__":
    main()
