#!/usr/bin/env python3
"""Several GPUs of one host through PyTorch and NCCL: all-reduces alone, and data-parallel training steps.

Observes only: no setting of a card is touched. One process a GPU, started here. NVML is read through ctypes.

  torch_parallel.py --allreduce allreduce.csv --steps ddp.csv --networks resnet50,vgg16 --budget 200

allreduce.csv: gpus, bytes of each GPU's buffer, microseconds (mean of many, the slowest process), bus bandwidth as
nccl-tests define it, 2 (n - 1) / n bytes / time.
ddp.csv: a step of DistributedDataParallel (SGD with momentum, gradients in buckets of 25 MiB, as it is by default) and
of the same step on one GPU without it; batch is each GPU's, watts and joules are sums over the GPUs.
"""
import argparse
import csv
import gc
import os
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as processes
import torch_networks as networks

SIZES = [1 << n for n in range(10, 31, 2)]
STEP_COLUMNS = "network,precision,batch,gpus,ms_per_iter,watts,joules_per_iter,sm_mhz,iters,device,torch,nccl".split(",")


def all_reduces(rank, world, file):
    """Times of sums over buffers of all sizes."""
    for size in SIZES:
        buffer = torch.zeros(size // 4, device="cuda")
        repeats = max(5, min(200, (1 << 30) // size))
        for _ in range(5):
            dist.all_reduce(buffer)
        torch.cuda.synchronize()
        dist.barrier()
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(repeats):
            dist.all_reduce(buffer)
        end.record()
        torch.cuda.synchronize()
        slowest = torch.tensor([begin.elapsed_time(end) / repeats], device="cuda")
        dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
        if rank == 0:
            us = 1e3 * slowest.item()
            bus = 2 * (world - 1) / world * size / us / 1e3
            csv.writer(file).writerow([world, size, f"{us:.2f}", f"{bus:.2f}", torch.cuda.get_device_name(), nccl()])
            file.flush()


def nccl():
    return ".".join(str(n) for n in torch.cuda.nccl.version())


def step_of(name, precision, batch, parallel, rank):
    """One training step, gradients summed over the processes where it is parallel."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision == "tf32"
    half = networks.HALVES.get(precision)
    model, size = networks.vision(name)
    model = model.cuda().train()
    x = torch.randn(batch, 3, size, size, device="cuda")
    if half:
        model, x = model.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
    if parallel:
        model = torch.nn.parallel.DistributedDataParallel(model, device_ids=[rank])
    y = torch.randint(0, 1000, (batch,), device="cuda")
    loss = torch.nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9)

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", half or torch.float16, enabled=half is not None):
            value = loss(model(x), y)
        value.backward()
        optimizer.step()

    return step


def timed(step, iterations):
    torch.cuda.synchronize()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(iterations):
        step()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) / iterations


def measured(step, nvml, window, together):
    """Milliseconds and watts of a process's steps; all run equally many."""
    for _ in range(4):
        step()
    count = torch.tensor([max(4, int(1e3 * window / timed(step, 4)))], device="cuda")
    if together:
        dist.broadcast(count, 0)
    count = int(count.item())
    timed(step, max(2, count // 3))
    sampler = networks.Sampler(nvml)
    sampler.start()
    mean = timed(step, count)
    sampler.stopped.set()
    sampler.join()
    ticks = sampler.ticks
    watts = (ticks[-1][1] - ticks[0][1]) / 1e3 / (ticks[-1][0] - ticks[0][0]) if len(ticks) >= 4 else float("nan")
    return mean, watts, sum(sampler.clocks) / max(1, len(sampler.clocks)), count


def process(rank, world, args):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29511")
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", rank=rank, world_size=world, device_id=torch.device("cuda", rank))
    nvml = networks.Nvml(f"GPU-{torch.cuda.get_device_properties(rank).uuid}")
    begin = time.perf_counter()
    file = open(args.allreduce, "a", newline="") if rank == 0 else None
    if file and file.tell() == 0:
        csv.writer(file).writerow(["gpus", "bytes", "us", "bus_gb_s", "device", "nccl"])
    all_reduces(rank, world, file)
    out = open(args.steps, "a", newline="") if rank == 0 else None
    writer = csv.DictWriter(out, STEP_COLUMNS) if out else None
    if out and out.tell() == 0:
        writer.writeheader()
    plan = [(n, p, int(b)) for b in args.batches.split(",") for n in args.networks.split(",")
            for p in args.precisions.split(",")]
    for name, precision, batch in plan:
        stop = torch.tensor([float(time.perf_counter() - begin > args.budget)], device="cuda")
        dist.broadcast(stop, 0)
        if stop.item():
            break
        for parallel in (True, False):
            gc.collect()
            torch.cuda.empty_cache()
            # Alone, every GPU runs the same step by itself: what the host and the clocks do is alike.
            dist.barrier()
            step = step_of(name, precision, batch, parallel, rank)
            values = torch.tensor(measured(step, nvml, args.window, parallel), device="cuda", dtype=torch.float64)
            step = None
            gathered = [torch.empty_like(values) for _ in range(world)]
            dist.all_gather(gathered, values)
            if rank:
                continue
            mine = [g.tolist() for g in gathered]
            ms = max(m[0] for m in mine) if parallel else mine[0][0]
            watts = sum(m[1] for m in mine) if parallel else mine[0][1]
            row = {"network": name, "precision": precision, "batch": batch, "gpus": world if parallel else 1,
                   "ms_per_iter": round(ms, 4), "watts": round(watts, 1), "joules_per_iter": round(watts * ms / 1e3, 4),
                   "sm_mhz": round(mine[0][2]), "iters": int(mine[0][3]), "device": torch.cuda.get_device_name(),
                   "torch": torch.__version__, "nccl": nccl()}
            writer.writerow(row)
            out.flush()
            print(*list(row.values())[:7], flush=True)
    dist.destroy_process_group()


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--allreduce", required=True)
    arguments.add_argument("--steps", required=True)
    arguments.add_argument("--networks", required=True)
    arguments.add_argument("--precisions", default="tf32,bf16")
    arguments.add_argument("--batches", default="64,16", help="of each GPU")
    arguments.add_argument("--window", type=float, default=1.0, help="seconds")
    arguments.add_argument("--budget", type=float, default=200, help="seconds; no network is begun after them")
    args = arguments.parse_args()
    world = torch.cuda.device_count()
    processes.spawn(process, (world, args), nprocs=world)


if __name__ == "__main__":
    main()
