#!/usr/bin/env python3
"""Whole networks through PyTorch on one GPU: time, power, clocks and memory of a step, one CSV row each.

Observes only: no clock, power limit or other setting of the card is touched. Needs torch and torchvision, for BERT and
GPT-2 transformers; NVML is read through ctypes. Weights and inputs are random, never zeros.

  torch_networks.py --networks densenet121,mobilenet_v2 --out rows.csv --budget 540
  torch_networks.py --networks bert_base,gpt2 --sequences 128,512 --batches 1,16 --precisions fp32,fp16 --out rows.csv
  torch_networks.py --networks gpt2 --cached 512,960 --batches 1,64 --out rows.csv

BERT and GPT-2 are those of transformers, built from their configuration with the activation as one kernel; attention is
torch's scaled_dot_product_attention. --cached: a step of one token against so many cached ones, GPT-2 written out
below with caches that are there already, as inference engines keep them.

Time is the mean of event-to-event times with work always queued; power is the difference of the energy counter
between two of its ticks inside the window, divided by the time between them. A row is flushed as soon as it is
measured; rows that the file holds already are skipped, so that a stopped run resumes. Memory of graphs is that of all
graphs of the process: `torch_memory.py` measures memory.
"""
import argparse
import csv
import ctypes
import gc
import os
import threading
import time

import torch

COLUMNS = ("network,mode,precision,layout,batch,launch,ms_per_iter,ms_p10,ms_p90,watts,joules_per_iter,sm_mhz_mean,"
           "sm_mhz_min,mem_mhz,temp_c,peak_mem_mib,reserved_mib,iters,throttle,ticks,device,driver,torch,cudnn,sequence,cached,side").split(",")
# What tells rows apart.
KEYS = ("network", "mode", "precision", "layout", "batch", "launch", "sequence", "cached")
HALVES = {"fp16": torch.float16, "bf16": torch.bfloat16}
# Hidden size, layers, heads.
LANGUAGE = {"bert_base": (768, 12, 12), "bert_large": (1024, 24, 16), "gpt2": (768, 12, 12),
            "gpt2_medium": (1024, 24, 16), "gpt2_large": (1280, 36, 20)}


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


def language(name):
    """A model of transformers from its configuration, with random weights, and the function of one step."""
    import transformers
    hidden, layers, heads = LANGUAGE[name]
    if name.startswith("bert"):
        config = transformers.BertConfig(hidden_size=hidden, num_hidden_layers=layers, num_attention_heads=heads,
                                         intermediate_size=4 * hidden)
        config._attn_implementation = "sdpa"
        model = transformers.BertModel(config)
        return model, lambda ids: model(input_ids=ids, token_type_ids=torch.zeros_like(ids)).pooler_output
    config = transformers.GPT2Config(n_embd=hidden, n_layer=layers, n_head=heads,
                                     activation_function="gelu_pytorch_tanh")
    config._attn_implementation = "sdpa"
    model = transformers.GPT2LMHeadModel(config)
    return model, lambda ids: model(input_ids=ids, use_cache=False).logits


def u_net():
    """Ronneberger et al. 2015 with padding and batch norm: four steps down, four up by transposed convolutions."""
    nn, widths = torch.nn, (64, 128, 256, 512)

    def double(inputs, outputs):
        return nn.Sequential(*[part for i, o in ((inputs, outputs), (outputs, outputs)) for part in
                               (nn.Conv2d(i, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU(inplace=True))])

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.down = nn.ModuleList(double(i, o) for i, o in zip((3, *widths), widths))
            self.middle = double(widths[-1], 2 * widths[-1])
            self.up = nn.ModuleList(nn.ConvTranspose2d(2 * w, w, 2, 2) for w in reversed(widths))
            self.merge = nn.ModuleList(double(2 * w, w) for w in reversed(widths))
            self.head = nn.Conv2d(widths[0], 2, 1)

        def forward(self, x):
            kept = []
            for down in self.down:
                kept.append(down(x))
                x = nn.functional.max_pool2d(kept[-1], 2)
            x = self.middle(x)
            for up, merge in zip(self.up, self.merge):
                x = merge(torch.cat((kept.pop(), up(x)), 1))
            return self.head(x)

    return Net()


def side_of(name):
    """Height and width of the images that a network is run on; torchvision's all on 224 but one, whatever its weights' are."""
    import torchvision
    if name == "unet":
        return 256
    if hasattr(torchvision.models, name):
        return 299 if name == "inception_v3" else 224
    if hasattr(torchvision.models.segmentation, name):
        return 520
    import timm
    return timm.get_pretrained_cfg(name).input_size[1]


def vision(name):
    """A network of torchvision or, where it has none of that name, of timm, and the side of its images."""
    import torchvision
    if name == "unet":
        model = u_net()
    elif hasattr(torchvision.models, name):
        model = getattr(torchvision.models, name)(weights=None)
    elif hasattr(torchvision.models.segmentation, name):
        model = FirstOutput(getattr(torchvision.models.segmentation, name)(weights=None, weights_backbone=None))
    else:
        import timm
        model = timm.create_model(name, pretrained=False)
    return model, side_of(name)


class FirstOutput(torch.nn.Module):
    """Segmentation networks of torchvision return a dictionary."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x):
        return self.model(x)["out"]


def decoding(name, precision, batch, cached):
    """A step of GPT-2 for one token a sample, written out: keys and values go into caches that have room for them."""
    functional = torch.nn.functional
    hidden, layers, heads = LANGUAGE[name]
    dtype = HALVES.get(precision, torch.float32)

    def weights(*shape):
        return 0.02 * torch.randn(shape, device="cuda", dtype=dtype)

    def norm():
        return weights(hidden), weights(hidden)

    def dense(outputs, inputs):
        return weights(outputs, inputs), weights(outputs)

    table, positions, final = weights(50257, hidden), weights(1024, hidden), norm()
    blocks = [(norm(), dense(3 * hidden, hidden), dense(hidden, hidden), norm(), dense(4 * hidden, hidden),
               dense(hidden, 4 * hidden), [weights(batch, heads, cached + 1, hidden // heads) for _ in range(2)])
              for _ in range(layers)]
    ids = torch.randint(0, 50257, (batch, 1), device="cuda")

    def step():
        with torch.no_grad():
            x = functional.embedding(ids, table) + positions[cached]
            for norm_1, packed, out, norm_2, wide, narrow, (keys, values) in blocks:
                a = functional.linear(functional.layer_norm(x, (hidden,), *norm_1), *packed)
                q, k, v = (t.view(batch, 1, heads, -1).transpose(1, 2) for t in a.split(hidden, -1))
                keys[:, :, cached:].copy_(k)
                values[:, :, cached:].copy_(v)
                a = functional.scaled_dot_product_attention(q, keys, values).transpose(1, 2).reshape(batch, 1, hidden)
                x = x + functional.linear(a, *out)
                a = functional.linear(functional.layer_norm(x, (hidden,), *norm_2), *wide)
                x = x + functional.linear(functional.gelu(a, approximate="tanh"), *narrow)
            return functional.linear(functional.layer_norm(x, (hidden,), *final), table)

    return step


def build(name, precision, mode, batch, sequence, cached):
    """A closure that enqueues one step, and the memory layout it uses."""
    torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    torch.backends.cudnn.allow_tf32 = precision == "tf32"
    torch.manual_seed(1)
    layout, half = layout_of(precision), HALVES.get(precision)
    if cached:
        return decoding(name, precision, batch, cached), layout
    if name in LANGUAGE:
        model, call = language(name)
        model = model.cuda()
        x = torch.randint(0, 30522, (batch, sequence), device="cuda")
    else:
        model, size = vision(name)
        model = model.cuda()
        call = model
        x = torch.randn(batch, 3, size, size, device="cuda")
        if half:
            model, x = model.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
    if mode == "infer":
        model.eval()
        if half:
            model = model.to(half)
            x = x.to(half) if x.is_floating_point() else x

        def step():
            with torch.no_grad():
                return call(x)

        return step, layout
    model.train()
    y = torch.randint(0, 1000, (batch,), device="cuda")
    loss = torch.nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9)
    scaler = torch.amp.GradScaler("cuda", enabled=precision == "fp16")

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", half or torch.float16, enabled=half is not None):
            out = call(x)
            # A language model's loss over its vocabulary is another layer, which is not what is compared.
            value = out.mean() if name in LANGUAGE else loss(out[0] if isinstance(out, tuple) else out, y)
        scaler.scale(value).backward()
        scaler.step(optimizer)
        scaler.update()

    return step, layout


def layout_of(precision):
    return "nhwc" if precision in HALVES else "nchw"


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


def measure(step, nvml, window, settle):
    """Runs the step with work always queued: to settle, then until the window is over."""
    for _ in range(3):
        step()
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(3):
        step()
    torch.cuda.synchronize()
    ahead = max(2, int(0.05 * 3 / (time.perf_counter() - begin)))
    events, sampler = [], None
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
    arguments.add_argument("--networks", required=True, help="names of torchvision or timm, comma-separated")
    arguments.add_argument("--precisions", default="fp32,tf32,fp16")
    arguments.add_argument("--batches", default="16,64,1,256", help="inference")
    arguments.add_argument("--training-batches", default="32,128")
    arguments.add_argument("--launches", default="eager,graph", help="of inference")
    arguments.add_argument("--training-launches", default="eager", help="a scaled loss (fp16) cannot be captured")
    arguments.add_argument("--sequences", default="128,512", help="tokens, for BERT and GPT-2")
    arguments.add_argument("--cached", default="", help="steps of one token against so many cached ones, instead")
    arguments.add_argument("--window", type=float, default=1.5, help="seconds measured after those to settle")
    arguments.add_argument("--settle", type=float, default=0.8, help="seconds")
    arguments.add_argument("--budget", type=float, default=500, help="seconds; no row is begun after them")
    arguments.add_argument("--out", required=True)
    arguments.add_argument("--benchmark", action="store_true", help="cuDNN times its algorithms and takes the fastest")
    args = arguments.parse_args()
    torch.backends.cudnn.benchmark = args.benchmark
    begin = time.perf_counter()
    properties = torch.cuda.get_device_properties(0)
    nvml = Nvml(f"GPU-{properties.uuid}")
    known, header = set(), COLUMNS
    if os.path.exists(args.out):
        with open(args.out, newline="") as file:
            reader = csv.DictReader(file)
            header = reader.fieldnames or COLUMNS
            known = {tuple(row.get(c) or "" for c in KEYS) for row in reader}
    names, precisions = args.networks.split(","), args.precisions.split(",")

    def lengths(name):
        """Sequence and cached tokens of a network's runs; empty for images."""
        if args.cached:
            return [("1", c) for c in args.cached.split(",")] if name.startswith("gpt2") else []
        return [(s, "") for s in args.sequences.split(",")] if name in LANGUAGE else [("", "")]

    plan = [(n, "infer", p, b, l, *length) for b in args.batches.split(",") if b for l in args.launches.split(",")
            for p in precisions for n in names for length in lengths(n)]
    plan += [(n, "train", p, b, l, *length) for b in args.training_batches.split(",") if b
             for l in args.training_launches.split(",") for p in precisions for n in names for length in lengths(n)
             if not args.cached]
    with open(args.out, "a", newline="") as file:
        writer = csv.DictWriter(file, header)
        if not known:
            writer.writeheader()
        for name, mode, precision, batch, launch, sequence, cached in plan:
            if time.perf_counter() - begin > args.budget:
                print("budget used", flush=True)
                break
            what = (name, mode, precision, layout_of(precision), batch, launch, sequence, cached)
            if what in known:
                continue
            row = step = None
            try:
                # Modules refer to themselves in circles: without it the network of the row before is still there.
                gc.collect()
                torch.cuda.empty_cache()
                torch.cuda.reset_peak_memory_stats()
                step, layout = build(name, precision, mode, int(batch), int(sequence or 0), int(cached or 0))
                if launch == "graph":
                    step = captured(step)
                row = measure(step, nvml, args.window, args.settle)
            except Exception as error:  # noqa: BLE001 - one network that fails must not stop the others
                print(*what, type(error).__name__, (str(error).splitlines() or [""])[0][:200], flush=True)
            if row is None:
                step = None
                gc.collect()
                torch.cuda.synchronize()
                continue
            row.update(network=name, mode=mode, precision=precision, layout=layout, batch=batch, launch=launch,
                       sequence=sequence, cached=cached, side="" if name in LANGUAGE else side_of(name),
                       peak_mem_mib=torch.cuda.max_memory_allocated() >> 20,
                       reserved_mib=torch.cuda.memory_reserved() >> 20, device=properties.name, driver=nvml.driver(),
                       torch=torch.__version__, cudnn=torch.backends.cudnn.version())
            writer.writerow({column: row.get(column, "") for column in header})
            file.flush()
            print(*what, row["ms_per_iter"], "ms", row["watts"], "W", flush=True)
            step = None


if __name__ == "__main__":
    main()
