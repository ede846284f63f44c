#!/usr/bin/env python3
"""Measures the rows of a sealed round (data/sealed/README.md) through PyTorch on one GPU, one CSV row each.

Observes only: no clock, power limit or other setting of the card is touched. Needs torch and what the round's networks
are built of (torchvision, timm, torchaudio, transformers).

  torch_sealed.py --round data/sealed/round-1.toml --out measured-h200.csv --budget 540
  torch_sealed.py --round data/sealed/round-6.toml --out measured-h200-pair.csv --gpus 2 --budget 200
  for i in 1 2 3 4; do CUDA_VISIBLE_DEVICES=$((i-1)) torch_sealed.py --round ... --shard $i/4 --out measured-h200-$i.csv & done; wait

Rows come in the order of a hash, first one of every network, then a second, so that a budget cuts alike from all. Time,
power and energy are measured as `torch_networks.py` does, memory as `torch_memory.py`: the peak of eager steps from an empty
allocator. A row is flushed once it is measured; what fails is a row, too, with the reason under `error`, and is not tried
again: rows are measured once. Rows that the file holds are skipped, so that a stopped run resumes. After an error of CUDA,
and where a row hangs, the process starts anew for the rows that are left.

Training steps are those of `torch_networks.py`: SGD with momentum, in 16 bits under autocast, in fp16 with a dynamic scale of
the loss; the loss is the cross entropy of classes, of other results their mean. In 16 bits maps are channels-last, as
are volumes.

Rows of several GPUs run where `--gpus` says so, and no others then: a process a GPU, DistributedDataParallel as it is by default,
time that of the slowest, watts and joules of all together, no memory.

Where `torch_host.py` lies beside this or in machine/tools of the repository, the host is measured before the first row and after the last, too: of measured-X.csv
into host-X-before-1.json and host-X-after-1.json, for `calibrate host --from`.
"""
import argparse
import csv
import datetime
import gc
import hashlib
import importlib
import json
import os
import sys
import threading
import time
import tomllib

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

KEYS = ("network", "mode", "precision", "batch", "launch")
COLUMNS = ("network,mode,precision,batch,launch,gpus,sequence,cached,layout,ms_per_iter,ms_p10,ms_p90,watts,joules_per_iter,sm_mhz_mean,sm_mhz_min,"
           "mem_mhz,temp_c,before_mib,peak_mem_mib,reserved_mib,iters,throttle,ticks,error,utc,device,uuid,driver,torch,cudnn,"
           "libraries,round_sha256,shard").split(",")
# Given to the process that goes on after an error of CUDA: when the first one began.
BEGAN = "SEALED_BEGAN"


def utc():
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def key(row):
    """What tells a row from others, as texts."""
    return (*(str(row[k]) for k in KEYS), str(row.get("gpus", 1)), *(str(row.get(k) or 0) for k in ("sequence", "cached")))


def in_order(rounds, part, parts, gpus=1):
    """A shard's rows of so many GPUs: the first of every network by its hash, then the second; whole networks are in no
    one's shard."""
    def hashed(*what):
        return hashlib.sha256(" ".join(map(str, (rounds["seed"], "order", *what))).encode()).hexdigest()

    ranked = []
    for network in rounds["network"]:
        rows = [{"network": network["name"], **row} for row in network["rows"] if row.get("gpus", 1) == gpus]
        rows.sort(key=lambda row: hashed(*(row[k] for k in KEYS)))
        ranked += [(turn, hashed(*(row[k] for k in KEYS)), row) for turn, row in enumerate(rows)]
    ranked.sort(key=lambda item: item[:2])
    return [row for at, (_, _, row) in enumerate(ranked) if at % parts == part - 1]


def built(network, device):
    """On the device at once, which is quick; where a network cannot be built there, on the CPU first."""
    import torch
    try:
        with torch.device(device):
            return network.build().to(device)
    except torch.cuda.OutOfMemoryError:
        raise
    except Exception:  # noqa: BLE001 - whatever the constructor does
        return network.build().to(device)


def prepare(network, mode, precision, batch, device="cuda", shared=False):
    """A closure that enqueues one step, and the layout of maps; `shared`: gradients are those of all processes."""
    import torch
    from torch_networks import HALVES, layout_of
    torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    torch.backends.cudnn.allow_tf32 = precision == "tf32"
    half = HALVES.get(precision)
    model, inputs = built(network, device), network.sample(batch, device)
    if half:
        for rank, form in ((4, torch.channels_last), (5, torch.channels_last_3d)):
            if inputs[0].dim() == rank:
                model, inputs = model.to(memory_format=form), (inputs[0].to(memory_format=form), *inputs[1:])
    if mode == "infer":
        model.eval()
        if half:
            model = model.to(half)
            inputs = tuple(x.to(half) if x.is_floating_point() else x for x in inputs)

        def step():
            with torch.no_grad():
                return model(*inputs)

        return step, layout_of(precision)
    model.train()
    if shared:
        model = torch.nn.parallel.DistributedDataParallel(model)
    classes = torch.randint(0, 2, (batch,), device=device)
    loss = torch.nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9)
    scaler = torch.amp.GradScaler(device, enabled=precision == "fp16")

    def judged(out):
        if not torch.is_tensor(out):
            return sum(judged(part) for part in out)
        return loss(out, classes) if out.dim() == 2 and out.shape[1] > 1 else out.mean()

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device, half or torch.float16, enabled=half is not None):
            value = judged(model(*inputs))
        scaler.scale(value).backward()
        scaler.step(optimizer)
        scaler.update()

    return step, layout_of(precision)


def measured(network, row, nvml, args):
    """Time, power, energy and memory of a row."""
    import torch
    from torch_memory import MIB, emptied
    from torch_networks import captured, measure
    before = emptied()
    step, layout = prepare(network, row["mode"], row["precision"], row["batch"])
    for _ in range(3):
        step()
    torch.cuda.synchronize()
    gc.collect()
    torch.cuda.reset_peak_memory_stats()
    for _ in range(3):
        step()
    torch.cuda.synchronize()
    peak, reserved = torch.cuda.max_memory_allocated() / MIB, torch.cuda.memory_reserved() / MIB
    if row["launch"] == "graph":
        step = captured(step)
    found = measure(step, nvml, args.window, args.settle)
    found.update(layout=layout, before_mib=round(before, 1), peak_mem_mib=round(peak, 1), reserved_mib=round(reserved, 1))
    return found


def libraries(names):
    """Versions of those that networks are built of."""
    from importlib.metadata import PackageNotFoundError, version
    found = []
    for name in sorted(names - {"written"}):
        try:
            found.append(f"{name} {version(name).split('+')[0]}")
        except PackageNotFoundError:
            found.append(f"{name} missing")
    return " ".join(found)


def host(args, when):
    """The host's speed, where the module that measures it is there."""
    places = [HERE, os.path.join(HERE, "..", "..", "machine", "tools")]
    place = next((p for p in places if os.path.exists(os.path.join(p, "torch_host.py"))), None)
    if place is None:
        return
    sys.path.insert(0, place)
    number, stem = 1, os.path.splitext(args.out)[0].replace("measured-", "host-")
    while os.path.exists(path := f"{stem}-{when}-{number}.json"):
        number += 1
    try:
        result = importlib.import_module("torch_host").measure()
    except Exception as error:  # noqa: BLE001 - rows are worth more than this
        print("host not measured:", type(error).__name__, str(error)[:200], flush=True)
        return
    with open(path, "w", encoding="utf-8") as file:
        json.dump(result, file, indent=1)
    print(path, flush=True)


class Rows:
    """The file of rows: what it holds, and one more at a time."""

    def __init__(self, path, fixed):
        self.path, self.fixed, self.lock = path, fixed, threading.Lock()
        self.known = set()
        if os.path.exists(path) and os.path.getsize(path):
            with open(path, newline="", encoding="utf-8") as file:
                reader = csv.DictReader(file)
                if reader.fieldnames != COLUMNS:
                    raise SystemExit(f"{path} has other columns")
                for row in reader:
                    if row["round_sha256"] != fixed["round_sha256"]:
                        raise SystemExit(f"{path} is of another round")
                    self.known.add(key(row))
            return
        with open(path, "w", newline="", encoding="utf-8") as file:
            csv.DictWriter(file, COLUMNS).writeheader()

    def has(self, row):
        return key(row) in self.known

    def add(self, row, found):
        """Once: a row that hung and then came is not written twice."""
        with self.lock:
            if self.has(row):
                return
            self.known.add(key(row))
            with open(self.path, "a", newline="", encoding="utf-8") as file:
                whole = {**self.fixed, "gpus": 1, "sequence": 0, "cached": 0, **row, "utc": utc(), **found}
                csv.DictWriter(file, COLUMNS).writerow({c: whole.get(c, "") for c in COLUMNS})
                file.flush()
                os.fsync(file.fileno())
        said = found.get("error") or f"{found['ms_per_iter']} ms {found['watts']} W {found.get('peak_mem_mib', '-')} MiB"
        print(*key(row), said, flush=True)


def anew():
    """This process again: what it holds of CUDA is lost, what is written is skipped."""
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, *sys.argv])


def one_of_several(rank, world, plan, results, args):
    """A process of one GPU: the steps of a plan together with the others; its times and watts go into the queue."""
    import torch
    import torch.distributed as dist
    from torch_networks import Nvml
    from torch_parallel import measured as in_step
    from torch_sealed_networks import NETWORKS
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=args.port)
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", rank=rank, world_size=world, device_id=torch.device("cuda", rank))
    nvml = Nvml(f"GPU-{torch.cuda.get_device_properties(rank).uuid}")
    for at, row in enumerate(plan):
        gc.collect()
        torch.cuda.empty_cache()
        try:
            step, layout = prepare(NETWORKS[row["network"]], row["mode"], row["precision"], row["batch"], shared=True)
            ms, watts, clock, count = in_step(step, nvml, args.window, True)
            results.put((rank, at, {"ms_per_iter": round(ms, 5), "watts": round(watts, 2), "sm_mhz_mean": round(clock),
                                    "iters": count, "layout": layout, "temp_c": nvml.temperature()}))
            step = None
        except Exception as error:  # noqa: BLE001 - the parent starts anew without this row
            line = next(iter(str(error).strip().splitlines()), "")[:200]
            name = "out of memory" if isinstance(error, torch.cuda.OutOfMemoryError) else f"{type(error).__name__}: {line}"
            results.put((rank, at, {"error": name}))
            time.sleep(1)
            os._exit(1)
    dist.barrier()


def together(found):
    """One row of what every GPU measured."""
    failed = [f["error"] for f in found if "error" in f]
    if failed:
        return {"error": failed[0]}
    slowest = max(found, key=lambda f: f["ms_per_iter"])
    watts = sum(f["watts"] for f in found)
    return {**slowest, "watts": round(watts, 2), "joules_per_iter": round(watts * slowest["ms_per_iter"] / 1e3, 6)}


def several(args, plan, rows, began):
    """Rows that GPUs share: processes are started, and anew without a row at which they failed."""
    import queue
    import torch.multiprocessing as processes
    context, number = processes.get_context("spawn"), 0
    while True:
        left = [row for row in plan if not rows.has(row)]
        if not left or time.time() - began > args.budget:
            return
        args.port, number = str(29531 + number), number + 1
        results = context.Queue()
        workers = [context.Process(target=one_of_several, args=(rank, args.gpus, left, results, args), daemon=True)
                   for rank in range(args.gpus)]
        for worker in workers:
            worker.start()
        for at, row in enumerate(left):
            found = {}
            try:
                while len(found) < args.gpus and not any("error" in f for f in found.values()):
                    rank, which, result = results.get(timeout=args.patience + (60 if at == 0 else 0))
                    if which == at:
                        found[rank] = result
            except queue.Empty:
                found[0] = {"error": f"no result after {args.patience:.0f} s"}
            rows.add(row, together(list(found.values())))
            if any("error" in f for f in found.values()) or time.time() - began > args.budget:
                break
        for worker in workers:
            worker.kill()
            worker.join()


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--round", required=True, help="the round's file, data/sealed/round-N.toml")
    arguments.add_argument("--out", required=True)
    arguments.add_argument("--shard", default="1/1", help="I/N: every N-th row from the I-th")
    arguments.add_argument("--gpus", type=int, default=1, help="rows that so many GPUs share, and no others")
    arguments.add_argument("--window", type=float, default=1.2, help="seconds measured after those to settle")
    arguments.add_argument("--settle", type=float, default=0.8, help="seconds")
    arguments.add_argument("--budget", type=float, default=540, help="seconds; no row is begun after them")
    arguments.add_argument("--patience", type=float, default=60, help="seconds after which a row has failed")
    arguments.add_argument("--list", action="store_true", help="only prints the rows in their order; needs no GPU")
    args = arguments.parse_args()
    with open(args.round, "rb") as file:
        text = file.read()
    rounds = tomllib.loads(text.decode())
    part, parts = (int(n) for n in args.shard.split("/"))
    if not 1 <= part <= parts:
        arguments.error("--shard I/N with I from 1 to N")
    plan = in_order(rounds, part, parts, args.gpus)
    if args.list:
        for row in plan:
            print(*key(row))
        return
    first = BEGAN not in os.environ
    began = float(os.environ.setdefault(BEGAN, str(time.time())))
    import torch
    from torch_networks import Nvml
    from torch_sealed_networks import NETWORKS
    properties = torch.cuda.get_device_properties(0)
    nvml = Nvml(f"GPU-{properties.uuid}")
    rows = Rows(args.out, {
        "device": properties.name, "uuid": str(properties.uuid), "driver": nvml.driver(), "torch": torch.__version__,
        "cudnn": torch.backends.cudnn.version(), "libraries": libraries({n["library"] for n in rounds["network"]}),
        "round_sha256": hashlib.sha256(text).hexdigest(), "shard": args.shard})
    if args.gpus > 1:
        several(args, plan, rows, began)
        return
    if first:
        host(args, "before")
    for row in plan:
        if time.time() - began > args.budget:
            print("budget used", flush=True)
            break
        if rows.has(row):
            continue

        def hung(row=row):
            rows.add(row, {"error": f"no result after {args.patience:.0f} s"})
            anew()

        watch = threading.Timer(args.patience, hung)
        watch.daemon = True
        watch.start()
        broken = False
        try:
            found = measured(NETWORKS[row["network"]], row, nvml, args)
        except torch.cuda.OutOfMemoryError:
            found = {"error": "out of memory"}
        except Exception as error:  # noqa: BLE001 - one network that fails must not stop the others
            line = next(iter(str(error).strip().splitlines()), "")[:200]
            found = {"error": f"{type(error).__name__}: {line}"}
            # A capture that failed, or a kernel, may leave the process without a usable device.
            broken = "CUDA" in str(error) or "captur" in str(error) or "cuDNN" in str(error)
        watch.cancel()
        rows.add(row, found)
        if broken:
            anew()
    host(args, "after")


if __name__ == "__main__":
    main()
