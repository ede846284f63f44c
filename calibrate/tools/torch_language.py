#!/usr/bin/env python3
"""Measures steps of language models through PyTorch on one GPU as CUDA graphs, one CSV row each: prompts, and steps of one token
against a cache.

Observes only: no clock, power limit or other setting of the card is touched. Needs torch.

  for net in llama3_2_1b phi_4; do predict convert model/read/tests/huggingface/$net.json --output written/$net.toml; done
  torch_language.py --networks written --precision bf16 --out rows.csv --budget 240
  torch_language.py --networks written --round data/sealed/round-7.toml --out measured-h200.csv --budget 540

A network is the file that `predict` reads, layer by layer, each as the function that `torch_ops.py` measures for its kind; weights
are random. A prompt (`sequence` tokens a sample) fills a cache, and its last token alone gets logits; a step (`cached` tokens a
sample) writes its key and value behind them and attends to all, as `predict --generate` has it. Windows are kept by a shorter
view of the cache; no prompt may be longer than one. Time, power and energy are measured as `torch_networks.py` does, memory as
`torch_memory.py`.

Mixtures of experts multiply grouped by expert (`grouped_mm`), as transformers' `grouped_mm` does. Routers run, but experts are chosen
by logits drawn at random: behind random weights the tokens of a prompt become alike from layer to layer and would all choose the
same few.
`--precision fp8`: linear layers but the logits' multiply in fp8 (e4m3, one scale a tensor, `_scaled_mm`) what a kernel
before them converts, once for all that read it; all else is bf16.

  torch_language.py --draw 7 --networks written --configs model/read/tests/huggingface --models qwen3_4b,phi_2 --out data/sealed/round-7.toml

`--draw` makes the file of a sealed round instead, and copies the configurations beside it: of each model so many prompts and
steps in the order of the SHA-256 of seed and row. Rows whose memory is more than 60 GiB, that would take longer than 0.25 s by a
bound from parameters alone, whose prompt is longer than a window, or that an earlier round (--after) has are not drawn from; no
prediction is asked for that.
Needs no GPU.

Without a round rows are those of PROMPTS and STEPS whose caches and weights fit into the memory; with one, those of the
round's networks that have `sequence` or `cached`, in the order of a hash, and columns are those of `torch_sealed.py`. Rows that
the file holds are skipped, so that a stopped run resumes.
"""
import argparse
import csv
import gc
import hashlib
import os
import sys
import time
import tomllib

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

# Samples and tokens of prompts; samples and cached tokens of steps.
PROMPTS = ((1, 128), (1, 1024), (4, 1024), (1, 4096))
STEPS = ((1, 512), (8, 2048), (32, 1024), (128, 512))
# Of the memory, for weights, caches and what a prompt needs between layers.
MOST = 0.85
DEVICE = "cuda"
# What is drawn from, how many of each, and the bound of a row: operations per second, seconds, bytes.
SEED = "joulecast sealed round {}"
PROMPT_BATCHES, PROMPT_TOKENS = (1, 2, 4, 8, 16), (64, 128, 256, 512, 1024, 2048, 4096, 8192)
STEP_BATCHES, STEP_TOKENS = (1, 2, 4, 8, 16, 32, 64, 128, 256), (128, 256, 512, 1024, 2048, 4096, 8192, 16384)
PROMPTS_DRAWN, STEPS_DRAWN = 3, 4
RATE, LONGEST, LARGEST = 400e12, 0.25, 60 << 30


class Decoder:
    """The layers of a network's file as functions of PyTorch, with random weights on the GPU."""

    def __init__(self, file, dtype, fp8=False):
        import torch
        self.torch, self.dtype, self.learned, self.fp8 = torch, dtype, {}, fp8
        self.layers = file["layers"]
        names = {layer["name"] for layer in self.layers}
        before, tied = "input", {}
        for layer in self.layers:
            source = layer.get("from", before)
            layer["from"] = [source] if isinstance(source, str) else source
            before = layer["name"]
            tied[layer["name"]] = layer.get("tied")
        self.output = before
        unknown = {layer["kind"] for layer in self.layers} - set(KINDS)
        if unknown or not all(set(layer["from"]) <= names | {"input"} for layer in self.layers):
            raise ValueError(f"no function for {sorted(unknown)}")
        self.widths, self.reads = {"input": 0}, {}
        for layer in self.layers:
            width = [self.widths[source] for source in layer["from"]]
            self.widths[layer["name"]] = width_of(layer, width)
            shape = weights_of(layer, width[0])
            owner = tied[layer["name"]]
            self.learned[layer["name"]] = self.learned[owner] if owner else [self.random(*s) for s in shape]
        for layer in self.layers if fp8 else []:
            if layer["kind"] == "linear" and layer["name"] != self.head and not self.routes(layer["name"]):
                weights = self.learned[layer["name"]]
                weights[0] = weights[0].to(torch.float8_e4m3fn)
                layer["kind"] = "fp8_linear"
        # What a later layer still reads.
        for layer in self.layers:
            for source in layer["from"]:
                self.reads[source] = layer["name"]

    def random(self, *shape):
        return self.torch.empty(shape, device=DEVICE, dtype=self.dtype).normal_(0, 0.02)

    def routes(self, name):
        """Whether a layer makes the logits of a router."""
        return any(layer["kind"] == "experts" and layer["from"][1] == name for layer in self.layers)

    def parameters(self):
        return sum({id(w): w.numel() for list_ in self.learned.values() for w in list_}.values())

    def products(self):
        """Multiply-accumulates of a token with weights."""
        return sum(self.learned[layer["name"]][0].numel() for layer in self.layers if layer["kind"] == "linear")

    def caches(self, batch, tokens):
        found = {}
        for layer in self.layers:
            if layer["kind"] == "attention":
                heads, size = layer.get("kv_heads", layer["heads"]), self.widths[layer["from"][0]] // layer["heads"]
                found[layer["name"]] = [self.random(batch, heads, tokens, size) for _ in range(2)]
        return found

    def step(self, batch, tokens, cached):
        """A closure that enqueues one step."""
        torch = self.torch
        ids = torch.randint(0, self.layers[0]["vocabulary"], (batch, tokens), device=DEVICE)
        caches = self.caches(batch, cached + tokens)
        angles = {}
        for layer in self.layers:
            if layer["kind"] == "rotary":
                size = layer.get("rotated") or self.widths[layer["from"][0]] // layer["heads"]
                if size not in angles:
                    angle = torch.rand(1, 1, tokens, size, device=DEVICE)
                    angles[size] = angle.cos().to(self.dtype), angle.sin().to(self.dtype)

        one = torch.ones((), device=DEVICE)
        logits = {layer["name"]: torch.randn(batch * tokens, layer["experts"], device=DEVICE, dtype=self.dtype)
                  for layer in self.layers if layer["kind"] == "experts"}

        def run():
            values, narrow = {"input": ids}, {}
            with torch.no_grad():
                for layer in self.layers:
                    name = layer["name"]
                    inputs = [values[source] for source in layer["from"]]
                    if name == self.head and tokens > 1:
                        inputs = [inputs[0][:, -1:]]
                    extra = (caches.get(name), cached) if layer["kind"] == "attention" else angles
                    if layer["kind"] == "experts":
                        extra = logits[name]
                    if layer["kind"] == "fp8_linear":
                        source = layer["from"][0]
                        if source not in narrow:
                            narrow[source] = inputs[0].to(torch.float8_e4m3fn)
                        inputs, extra = [narrow[source]], one
                    values[name] = KINDS[layer["kind"]](torch, layer, inputs, self.learned[name], extra)
                    for source in layer["from"]:
                        if self.reads[source] == name:
                            del values[source]
                            narrow.pop(source, None)
            return values[self.output]

        return run

    @property
    def head(self):
        """The layer that makes logits: the last product."""
        return [layer["name"] for layer in self.layers if layer["kind"] in ("linear", "fp8_linear")][-1]


def width_of(layer, widths):
    kind = layer["kind"]
    if kind in ("embedding", "linear"):
        return layer["features"]
    if kind == "slice":
        return layer["size"]
    if kind == "reshape":
        return layer["shape"][-1]
    if kind == "attention":
        return widths[0]
    return widths[0]


def weights_of(layer, width):
    kind = layer["kind"]
    if kind == "embedding":
        return [[layer["vocabulary"], layer["features"]]]
    if kind == "linear":
        return [[layer["features"], width]] + ([[layer["features"]]] if layer.get("bias", True) else [])
    if kind == "layer_norm":
        return [[width], [width]]
    if kind == "experts":
        if layer.get("bias") or not layer.get("gated", True):
            raise ValueError("experts with biases, or without a gate")
        return [[layer["experts"], width, 2 * layer["hidden"]], [layer["experts"], layer["hidden"], width]]
    return [[width]] if kind == "rms_norm" else []


def embedding(torch, layer, inputs, learned, _):
    return torch.nn.functional.embedding(inputs[0], *learned)


def linear(torch, layer, inputs, learned, _):
    return torch.nn.functional.linear(inputs[0], *learned)


def rms_norm(torch, layer, inputs, learned, _):
    return torch.nn.functional.rms_norm(inputs[0], inputs[0].shape[-1:], learned[0], 1e-6)


def layer_norm(torch, layer, inputs, learned, _):
    return torch.nn.functional.layer_norm(inputs[0], inputs[0].shape[-1:], *learned)


def reshape(torch, layer, inputs, learned, _):
    return inputs[0].reshape(inputs[0].shape[0], *layer["shape"])


def part(torch, layer, inputs, learned, _):
    start = layer.get("start", 0)
    return inputs[0][..., start:start + layer["size"]]


def rotary(torch, layer, inputs, learned, angles):
    """As transformers' Llama does it, of all of a head or its first features."""
    x = inputs[0]
    size = x.shape[-1] // layer["heads"]
    turned = layer.get("rotated") or size
    cos, sin = angles[turned]
    x = x.view(*x.shape[:2], -1, size).transpose(1, 2)
    y = x[..., :turned]
    a, b = y[..., :turned // 2], y[..., turned // 2:]
    y = y * cos + torch.cat((-b, a), -1) * sin
    return y if turned == size else torch.cat((y, x[..., turned:]), -1)


def attention(torch, layer, inputs, learned, extra):
    """Queries and keys come by heads where they were turned, else in rows."""
    (keys, values), cached = extra
    heads = layer["heads"]
    kv_heads = layer.get("kv_heads", heads)
    q, k, v = (x if x.dim() == 4 else x.view(*x.shape[:2], h, -1).transpose(1, 2)
               for x, h in zip(inputs, (heads, kv_heads, kv_heads)))
    keys[:, :, cached:].copy_(k)
    values[:, :, cached:].copy_(v)
    if cached:
        first = max(0, cached + 1 - layer.get("window", cached + 1))
        k, v = keys[:, :, first:], values[:, :, first:]
    out = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=not cached, enable_gqa=heads != kv_heads)
    return out.transpose(1, 2).reshape(out.shape[0], out.shape[2], -1)


def fp8_linear(torch, layer, inputs, learned, one):
    """Rows of all samples at once, as the product takes two dimensions; a bias is added in it."""
    x = inputs[0]
    bias = learned[1] if len(learned) > 1 else None
    out = torch._scaled_mm(x.view(-1, x.shape[-1]), learned[0].t(), scale_a=one, scale_b=one, bias=bias, out_dtype=torch.bfloat16)
    return out.view(*x.shape[:-1], -1)


def experts(torch, layer, inputs, learned, logits):
    """Tokens sorted by expert, two products grouped by expert, results weighted and summed by token. Logits that are given are
    taken for the router's."""
    x = inputs[0].reshape(-1, inputs[0].shape[-1])
    logits = inputs[1] if logits is None else logits
    weights, chosen = torch.topk(torch.softmax(logits.reshape(-1, layer["experts"]), -1, dtype=torch.float32), layer["active"])
    weights = (weights / weights.sum(-1, keepdim=True)).to(x.dtype)
    chosen, order = torch.sort(chosen.view(-1))
    ends = torch.searchsorted(chosen, torch.arange(layer["experts"], device=x.device), right=True).to(torch.int32)
    tokens = order // layer["active"]
    inner = torch._grouped_mm(x[tokens], learned[0], offs=ends)
    gate, up = inner.chunk(2, -1)
    out = torch._grouped_mm(torch.nn.functional.silu(gate) * up, learned[1], offs=ends)
    out = out * weights.view(-1)[order].unsqueeze(-1)
    return torch.zeros_like(x).index_add_(0, tokens, out).view(inputs[0].shape)


def pointwise(name, **options):
    def run(torch, layer, inputs, learned, _):
        return getattr(torch.nn.functional, name)(inputs[0], **options)
    return run


KINDS = {
    "embedding": embedding, "linear": linear, "rms_norm": rms_norm, "layer_norm": layer_norm, "reshape": reshape,
    "experts": experts, "fp8_linear": fp8_linear, "slice": part, "rotary": rotary, "attention": attention,
    "silu": pointwise("silu"), "sigmoid": pointwise("sigmoid"), "gelu": pointwise("gelu"), "gelu_tanh": pointwise("gelu", approximate="tanh"),
    "add": lambda torch, layer, inputs, learned, _: inputs[0] + inputs[1],
    "multiply": lambda torch, layer, inputs, learned, _: inputs[0] * inputs[1],
    "elementwise": lambda torch, layer, inputs, learned, _: inputs[0] * 2.5,
}


def windows(decoder):
    return [layer["window"] for layer in decoder.layers if "window" in layer]


def needed(decoder, batch, tokens, cached):
    """Bytes of weights, caches and the widest layer with what lies beside it."""
    item = decoder.dtype.itemsize
    cache = sum(2 * layer.get("kv_heads", layer["heads"]) * decoder.widths[layer["from"][0]] // layer["heads"]
                for layer in decoder.layers if layer["kind"] == "attention")
    widest = max(w for name, w in decoder.widths.items() if name != decoder.head)
    return item * (decoder.parameters() + batch * ((cached + tokens) * cache + tokens * 6 * widest))


def rows_of(decoder, memory):
    """Prompts and steps that fit."""
    for batch, tokens in PROMPTS:
        if all(tokens <= w for w in windows(decoder)) and needed(decoder, batch, tokens, 0) < MOST * memory:
            yield {"batch": batch, "sequence": tokens, "cached": 0}
    for batch, cached in STEPS:
        if needed(decoder, batch, 1, cached) < MOST * memory:
            yield {"batch": batch, "sequence": 0, "cached": cached}


def read_toml(path):
    with open(path, "rb") as file:
        return tomllib.load(file)


def draw(args):
    """The file of a round: SEED and hashes say which rows."""
    import shutil
    import torch
    global DEVICE
    DEVICE = "meta"
    seed, folder = SEED.format(args.draw), os.path.splitext(args.out)[0]
    os.makedirs(os.path.join(folder, "nets"), exist_ok=True)
    earlier = {(network["name"], *((key, row[key]) for key in ("batch", "sequence", "cached") if key in row))
               for path in args.after for network in read_toml(path)["network"] for row in network["rows"]}
    lines = [
        f"# Round {args.draw} of the sealed tests: language models by their config.json, prompts and steps as CUDA graphs.",
        "# Made by calibrate/tools/torch_language.py --draw, which says by which rule; not to be edited once it is sealed.",
        'schema = "sealed/1"', f"round = {args.draw}", f'seed = "{seed}"', 'role = "test"', 'boards = ["h200", "h100"]',
        'framework = "pytorch"', 'exported = "no exporter: layers as config.json is read"']
    for name in sorted(args.models.split(",")):
        decoder = Decoder(read_toml(os.path.join(args.networks, name + ".toml")), torch.bfloat16)
        narrow, parameters = min(windows(decoder), default=1 << 30), decoder.parameters()
        kinds = [[{"batch": b, "sequence": t} for b in PROMPT_BATCHES for t in PROMPT_TOKENS
                  if t <= narrow and 2 * parameters * b * t / RATE < LONGEST and needed(decoder, b, t, 0) < LARGEST],
                 [{"batch": b, "cached": t} for b in STEP_BATCHES for t in STEP_TOKENS if needed(decoder, b, 1, t) < LARGEST]]
        lines += ["", "[[network]]", f'name = "{name}"', 'library = "config"', 'inputs = "tokens"', 'export = "none"',
                  f"parameters = {parameters}", f"macs = {decoder.products()}", "rows = ["]
        for rows, count in zip(kinds, (PROMPTS_DRAWN, STEPS_DRAWN)):
            rows = [row for row in rows if (name, *row.items()) not in earlier]
            rows.sort(key=lambda row: hashlib.sha256(" ".join(map(str, (seed, name, *row.items()))).encode()).hexdigest())
            for row in rows[:count]:
                said = ", ".join(f"{key} = {value}" for key, value in row.items())
                lines.append(f'  {{ mode = "infer", precision = "bf16", launch = "graph", {said} }},')
        lines.append("]")
        shutil.copy(os.path.join(args.configs, name + ".json"), os.path.join(folder, "nets"))
    with open(args.out, "w", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")


def measured(decoder, row, nvml, args):
    import torch
    from torch_memory import MIB
    from torch_networks import captured, measure
    gc.collect()
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated() / MIB - decoder.parameters() * decoder.dtype.itemsize / MIB
    step = decoder.step(row["batch"], row["sequence"] or 1, row["cached"])
    for _ in range(3):
        step()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    step()
    torch.cuda.synchronize()
    peak, reserved = torch.cuda.max_memory_allocated() / MIB, torch.cuda.memory_reserved() / MIB
    found = measure(captured(step), nvml, args.window, args.settle)
    found.update(layout="nhwc", before_mib=round(before, 1), peak_mem_mib=round(peak, 1), reserved_mib=round(reserved, 1))
    return found


def profiled(decoder, row, path):
    """Appends the kernels of one step: launches and microseconds of each."""
    import torch
    gc.collect()
    torch.cuda.empty_cache()
    step = decoder.step(row["batch"], row["sequence"] or 1, row["cached"])
    for _ in range(3):
        step()
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        step()
        torch.cuda.synchronize()
    new = not os.path.exists(path)
    with open(path, "a", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        if new:
            writer.writerow(["network", "precision", "batch", "sequence", "cached", "kernel", "launches", "us_each"])
        for kernel in sorted(profile.key_averages(), key=lambda kernel: -kernel.device_time_total):
            if kernel.device_time_total > 0:
                each = round(kernel.device_time_total / kernel.count, 3)
                writer.writerow([row["network"], row["precision"], row["batch"], row["sequence"], row["cached"],
                                 kernel.key[:200], kernel.count, each])


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--networks", required=True, help="a folder of network files")
    arguments.add_argument("--round", help="a sealed round's file")
    arguments.add_argument("--precision", default="bf16", choices=("bf16", "fp16", "fp8"))
    arguments.add_argument("--out", required=True)
    arguments.add_argument("--window", type=float, default=1.2, help="seconds measured after those to settle")
    arguments.add_argument("--settle", type=float, default=0.8, help="seconds")
    arguments.add_argument("--budget", type=float, default=540, help="seconds; no row is begun after them")
    arguments.add_argument("--shard", default="1/1", help="I/N: every N-th network from the I-th")
    arguments.add_argument("--profile", help="file for the kernels of each step, which is then run once more and not measured")
    arguments.add_argument("--draw", type=int, help="number of the round whose file is made")
    arguments.add_argument("--models", help="of a round to be made")
    arguments.add_argument("--after", action="append", default=[], help="the file of an earlier round; may be repeated")
    arguments.add_argument("--configs", help="the folder of their configurations")
    args = arguments.parse_args()
    if args.draw:
        draw(args)
        return
    began = time.time()
    import torch
    from torch_networks import HALVES, Nvml
    from torch_sealed import Rows
    part_, parts = (int(n) for n in args.shard.split("/"))
    text, plan = b"", {}
    if args.round:
        with open(args.round, "rb") as file:
            text = file.read()
        for network in tomllib.loads(text.decode())["network"]:
            rows = [row for row in network["rows"] if "sequence" in row or "cached" in row]
            plan[network["name"]] = [{"sequence": 0, "cached": 0, **row} for row in rows]
    names = sorted(plan or [name[:-5] for name in os.listdir(args.networks) if name.endswith(".toml")],
                   key=lambda name: hashlib.sha256(name.encode()).hexdigest())[part_ - 1::parts]
    properties = torch.cuda.get_device_properties(0)
    nvml = Nvml(f"GPU-{properties.uuid}")
    rows = Rows(args.out, {
        "device": properties.name, "uuid": str(properties.uuid), "driver": nvml.driver(), "torch": torch.__version__,
        "cudnn": torch.backends.cudnn.version(), "libraries": "",
        "round_sha256": hashlib.sha256(text).hexdigest() if text else "", "shard": args.shard})
    for name in names:
        file, decoder = read_toml(os.path.join(args.networks, name + ".toml")), None
        gc.collect()
        torch.cuda.empty_cache()
        fp8 = args.precision == "fp8"
        try:
            decoder = Decoder(file, torch.bfloat16 if fp8 else HALVES[args.precision], fp8)
        except torch.cuda.OutOfMemoryError:
            print(name, "does not fit", flush=True)
            continue
        print(name, decoder.parameters(), round(time.time() - began), flush=True)
        for row in plan.get(name) or list(rows_of(decoder, properties.total_memory)):
            if time.time() - began > args.budget:
                print("budget used", flush=True)
                return
            row = {"network": name, "mode": "infer", "precision": args.precision, "launch": "graph", **row}
            if rows.has(row):
                continue
            try:
                if args.profile:
                    profiled(decoder, row, args.profile)
                    continue
                found = measured(decoder, row, nvml, args)
            except torch.cuda.OutOfMemoryError:
                found = {"error": "out of memory"}
            except Exception as error:  # noqa: BLE001 - one row that fails must not stop the others
                line = next(iter(str(error).strip().splitlines()), "")[:200]
                found = {"error": f"{type(error).__name__}: {line}"}
            rows.add(row, found)


if __name__ == "__main__":
    main()
