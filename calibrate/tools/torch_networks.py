#!/usr/bin/env python3
"""Whole networks through PyTorch on one GPU: time, power, clocks and memory of a step, one CSV row each.

Observes only: no clock, power limit or other setting of the card is touched. Needs torch and torchvision; NVML is
read through ctypes. Weights and inputs are random, never zeros.

  torch_networks.py --networks densenet121,mobilenet_v2 --out rows.csv --budget 540

Time is the mean of event-to-event times with work always queued; power is the difference of the energy counter
between two of its ticks inside the window, divided by the time between them. A row is flushed as soon as it is
measured; rows that the file holds already are skipped, so that a stopped run resumes.
"""
import argparse
import csv
import ctypes
import os
import threading
import time

import torch
import torchvision

COLUMNS = ("network,mode,precision,layout,batch,launch,ms_per_iter,ms_p10,ms_p90,watts,joules_per_iter,sm_mhz_mean,"
           "sm_mhz_min,mem_mhz,temp_c,peak_mem_mib,reserved_mib,iters,throttle,ticks,device,driver,torch,cudnn").split(",")


class Nvml:
    """The few NVML calls that are needed, all of them reads."""

    def __init__(self, uuid):
        self.lib = ctypes.CDLL("libnvidia-ml.so.1")
        self.check(self.lib.nvmlInit_v2())
        self.device = ctypes.c_void_p()
        self.check(self.lib.nvmlDeviceGetHandleByUUID(uuid.encode(), ctypes.byref(self.device)))

    @staticmethod
    def check(code):
        if code != 0:
            raise RuntimeError(f"NVML error {code}")

    def energy_mj(self):
        value = ctypes.c_ulonglong()
        self.check(self.lib.nvmlDeviceGetTotalEnergyConsumption(self.device, ctypes.byref(value)))
        return value.value

    def clock(self, kind):
        value = ctypes.c_uint()
        self.check(self.lib.nvmlDeviceGetClockInfo(self.device, kind, ctypes.byref(value)))
        return value.value

    def temperature(self):
        value = ctypes.c_uint()
        self.check(self.lib.nvmlDeviceGetTemperature(self.device, 0, ctypes.byref(value)))
        return value.value

    def throttle(self):
        value = ctypes.c_ulonglong()
        self.check(self.lib.nvmlDeviceGetCurrentClocksThrottleReasons(self.device, ctypes.byref(value)))
        return value.value

    def driver(self):
        text = ctypes.create_string_buffer(96)
        self.check(self.lib.nvmlSystemGetDriverVersion(text, 96))
        return text.value.decode()


def build(name, precision, mode, batch):
    """A closure that enqueues one step, and the memory layout it uses."""
    torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    torch.backends.cudnn.allow_tf32 = precision == "tf32"
    torch.manual_seed(1)
    model = getattr(torchvision.models, name)(weights=None).cuda()
    size = 299 if name == "inception_v3" else 224
    x = torch.randn(batch, 3, size, size, device="cuda")
    layout = "nchw"
    if precision == "fp16":
        layout = "nhwc"
        model, x = model.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
    if mode == "infer":
        model.eval()
        if precision == "fp16":
            model, x = model.half(), x.half()

        def step():
            with torch.no_grad():
                return model(x)

        return step, layout
    model.train()
    y = torch.randint(0, 1000, (batch,), device="cuda")
    loss = torch.nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9)
    scaler = torch.amp.GradScaler("cuda", enabled=precision == "fp16")

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", torch.float16, enabled=precision == "fp16"):
            out = model(x)
            value = loss(out[0] if isinstance(out, tuple) else out, y)
        scaler.scale(value).backward()
        scaler.step(optimizer)
        scaler.update()

    return step, layout


def captured(step):
    """The step as a CUDA graph."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


class Sampler(threading.Thread):
    """Watches the energy counter for ticks, and the clocks ten times a second. NVML calls take milliseconds and
    release the interpreter's lock, so that the queue stays full meanwhile."""

    def __init__(self, nvml):
        super().__init__(daemon=True)
        self.nvml = nvml
        self.stopped = threading.Event()
        self.ticks, self.clocks, self.reasons = [], [], 0

    def run(self):
        last, sampled = self.nvml.energy_mj(), 0.0
        while not self.stopped.is_set():
            energy, now = self.nvml.energy_mj(), time.perf_counter()
            if energy != last:
                last = energy
                self.ticks.append((now, energy))
            if now - sampled > 0.1:
                sampled = now
                self.clocks.append(self.nvml.clock(1))
                self.reasons |= self.nvml.throttle()


def measure(step, nvml, window):
    """Runs the step with work always queued: to settle, then until the window is over."""
    for _ in range(3):
        step()
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(3):
        step()
    torch.cuda.synchronize()
    ahead = max(2, int(0.05 * 3 / (time.perf_counter() - begin)))
    events, sampler, settle = [], None, 0.8
    begin = time.perf_counter()
    while (now := time.perf_counter() - begin) < settle + window:
        if sampler is None and now > settle:
            sampler = Sampler(nvml)
            sampler.start()
        step()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        events.append((now, event))
        if len(events) > ahead:
            events[-ahead][1].synchronize()
    if sampler is None:
        raise RuntimeError("one step takes longer than the window")
    sampler.stopped.set()
    sampler.join()
    torch.cuda.synchronize()
    ticks, clocks, reasons = sampler.ticks, sampler.clocks, sampler.reasons
    inside = [event for when, event in events if when > settle]
    times = sorted(a.elapsed_time(b) for a, b in zip(inside, inside[1:]))
    mean = inside[0].elapsed_time(inside[-1]) / (len(inside) - 1)
    watts = None
    if len(ticks) >= 4:
        watts = (ticks[-1][1] - ticks[0][1]) / 1e3 / (ticks[-1][0] - ticks[0][0])
    return {
        "ms_per_iter": round(mean, 5),
        "ms_p10": round(times[len(times) // 10], 5),
        "ms_p90": round(times[len(times) * 9 // 10], 5),
        "watts": None if watts is None else round(watts, 2),
        "joules_per_iter": None if watts is None else round(watts * mean / 1e3, 5),
        "sm_mhz_mean": round(sum(clocks) / max(1, len(clocks))),
        "sm_mhz_min": min(clocks, default=None),
        "mem_mhz": nvml.clock(2),
        "temp_c": nvml.temperature(),
        "iters": len(inside),
        "throttle": hex(reasons),
        "ticks": len(ticks),
    }


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--networks", required=True, help="torchvision names, comma-separated")
    arguments.add_argument("--precisions", default="fp32,tf32,fp16")
    arguments.add_argument("--batches", default="16,64,1,256", help="inference")
    arguments.add_argument("--training-batches", default="32,128")
    arguments.add_argument("--launches", default="eager,graph")
    arguments.add_argument("--window", type=float, default=1.5, help="seconds measured after 0.8 s to settle")
    arguments.add_argument("--budget", type=float, default=500, help="seconds; no row is begun after them")
    arguments.add_argument("--out", required=True)
    args = arguments.parse_args()
    begin = time.perf_counter()
    properties = torch.cuda.get_device_properties(0)
    nvml = Nvml(f"GPU-{properties.uuid}")
    known = set()
    if os.path.exists(args.out):
        with open(args.out, newline="") as file:
            known = {tuple(row[c] for c in COLUMNS[:6]) for row in csv.DictReader(file)}
    plan = [(n, "infer", p, int(b), l) for b in args.batches.split(",") for l in args.launches.split(",")
            for p in args.precisions.split(",") for n in args.networks.split(",")]
    plan += [(n, "train", p, int(b), "eager") for b in args.training_batches.split(",") if b
             for p in args.precisions.split(",") for n in args.networks.split(",")]
    with open(args.out, "a", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        if not known:
            writer.writeheader()
        for name, mode, precision, batch, launch in plan:
            if time.perf_counter() - begin > args.budget:
                print("budget used", flush=True)
                break
            layout = "nhwc" if precision == "fp16" else "nchw"
            if (name, mode, precision, layout, str(batch), launch) in known:
                continue
            try:
                torch.cuda.empty_cache()
                torch.cuda.reset_peak_memory_stats()
                step, layout = build(name, precision, mode, batch)
                if launch == "graph":
                    step = captured(step)
                row = measure(step, nvml, args.window)
            except RuntimeError as error:
                print(f"{name} {mode} {precision} {batch} {launch}: {str(error).splitlines()[0]}", flush=True)
                continue
            row.update(network=name, mode=mode, precision=precision, layout=layout, batch=batch, launch=launch,
                       peak_mem_mib=torch.cuda.max_memory_allocated() >> 20,
                       reserved_mib=torch.cuda.memory_reserved() >> 20, device=properties.name, driver=nvml.driver(),
                       torch=torch.__version__, cudnn=torch.backends.cudnn.version())
            writer.writerow(row)
            file.flush()
            print(name, mode, precision, batch, launch, row["ms_per_iter"], "ms", row["watts"], "W", flush=True)
            del step


if __name__ == "__main__":
    main()
