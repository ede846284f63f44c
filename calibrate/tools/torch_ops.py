#!/usr/bin/env python3
"""Single layers through PyTorch on one GPU: what its kernels take, and what launching them costs the host.

Observes only: no clock, power limit or other setting of the card is touched. Needs torch alone.

  calibrate plan --out trials.jsonl
  torch_ops.py --trials trials.jsonl --out ops.csv --host host.csv --budget 540
  torch_ops.py --trials trials.jsonl --list

--trials: trials as `calibrate plan` writes them; a sample of each group (kind, class, phase, mode, precision, layout)
is run. --out: one row a trial (repeated as JSON), the device time of one call: calls are captured back to back in a CUDA graph, over
rotating operands where the trial is `cold`; weights of linear layers, which come from memory in networks, always rotate.
--host: the host's time for one call of each kind (of the activations, those in the trials), inference, forward and
backward of training, from chains of layers so small that the GPU waits; and of the optimizer for one parameter tensor.
Rows are flushed as they are made, those that the file holds are skipped, so that a stopped run resumes.
"""
import argparse
import contextlib
import csv
import functools
import inspect
import json
import os
import random
import time
from collections import defaultdict

COLUMNS = "trial_id,kind,time_us,spread_us,calls,device,torch,cudnn,trial".split(",")
HOST_COLUMNS = "kind,precision,inference_us,forward_us,backward_us,device,torch".split(",")
# What a rotation of operands must exceed so that none is left in the cache.
ROTATION = 200 << 20
# No kernel is shorter: a graph without one replays in a tenth of a microsecond a call.
SHORTEST_US = 0.6
# Layers whose kernels no framework has apart.
LEFT_OUT = {"pad", "flatten"}
# Kinds that take volumes: see `is_volume`.
VOLUMES = {"conv3d", "pool3d", "batch_norm", "group_norm", "activation", "add", "multiply", "dropout"}
CONVOLUTIONS = ("conv2d", "conv3d")
PRECISIONS = {"fp32": "float32", "tf32": "float32", "fp16": "float16", "bf16": "bfloat16", "fp8": "bfloat16"}


def group(trial):
    """Trials of one group are alike."""
    layer = trial["case"]["layer"]
    kind, inputs = layer["kind"], trial["case"]["inputs"]
    detail = layer.get("function") or layer.get("op") or ""
    if kind in CONVOLUTIONS:
        groups, channels = layer.get("groups", 1), inputs[0][0]
        groups = channels if groups == "depthwise" else groups
        kernel, stride = layer["kernel"], layer["stride"]
        if groups == channels and groups > 1:
            detail = "depthwise"
        elif groups > 1:
            detail = "grouped"
        else:
            detail = f"{set(kernel) == {1}}{set(kernel) == {3} and set(stride) == {1}}"
    if kind == "elementwise":
        single = layer.get("ops", 1) == 1 and len(inputs) == 1
        detail = "other" if not single else "sum" if layer.get("parameters") else "factor"
    if kind == "layer_norm":
        size = inputs[0][normalized(inputs[0])]
        detail = "narrow" if size <= 64 else "middle" if size <= 256 else "wide"
    if kind == "attention":
        fused = "biased" if layer.get("bias") else "decode" if layer.get("cached") else "fused"
        detail = fused if layer.get("fused", True) else "unfused"
    if kind == "recurrent":
        detail = layer["cell"]
    if kind == "pool2d":
        detail += str(layer.get("stride", layer["kernel"]) == [1, 1])
    if is_volume(layer, inputs):
        detail = f"{detail} 3d".strip()
    if is_flat(layer, inputs):
        detail = f"{detail} 1d".strip()
    return kind, detail, trial["phase"], trial["mode"], trial["precision"], trial["layout"]


def of_maps(layer, inputs):
    """Whether three dimensions are a map's: not those of a product, of attention's neighbours, or beside a table or mask."""
    kind = layer["kind"]
    rows = kind == "matmul" or kind in TRANSFORMERS.keys() - MAPS or layer.get("last") or layer.get("parameters")
    # What has one value for each row was summed over rows.
    rows = rows or kind == "elementwise" and any(shape[-1] == 1 < inputs[0][-1] for shape in inputs[1:])
    return not rows and all(len(shape) == len(inputs[0]) for shape in inputs)


def is_flat(layer, inputs):
    """Whether a map is a sequence, which PyTorch holds without a height, and hence never channels last."""
    shape = inputs[0]
    one_high = len(shape) == 3 and shape[1] == 1 and shape[2] > 1 and of_maps(layer, inputs)
    return one_high and (layer["kind"] != "conv2d" or layer["kernel"][0] == 1)


def is_volume(layer, inputs):
    """Whether these are volumes, channels last where maps are; other tensors of four dimensions are rows, or stacked maps."""
    first, *others = inputs
    beside = all(other == first or other == [first[0], 1, 1, 1] for other in others)
    return layer["kind"] in VOLUMES and len(first) == 4 and beside


def normalized(shape):
    """The axis of a learned factor, without the batch: the channels of a map, else the last."""
    return 0 if len(shape) == 3 else -1


def sample(paths, most, few, only):
    """At most `most` trials of a group, `few` of gradients of products, in an order that leaves a stopped run balanced."""
    groups = defaultdict(list)
    for path in paths:
        with open(path) as file:
            entries = [json.loads(line) for line in file]
        for entry in entries:
            trial = entry.get("trial")
            if trial is None or trial["algorithm"] != "heuristic" or trial["case"]["layer"]["kind"] in LEFT_OUT:
                continue
            kind, detail = group(trial)[:2]
            if only and not {kind, detail, *detail.split()} & only:
                continue
            if trial["phase"] == "update" or (trial["case"]["layer"]["kind"] in ("concat", "add")
                                              and trial["phase"] != "forward"):
                continue
            groups[group(trial)].append((entry["trial_id"], trial))
    ranked = []
    for key, trials in sorted(groups.items()):
        random.Random(str(key)).shuffle(trials)
        gradients = key[0] in (*CONVOLUTIONS, "linear", "matmul") and key[2] != "forward"
        trials = trials[:few if gradients else most]
        ranked += [((i + 0.5) / len(trials), t) for i, t in enumerate(trials)]
    return [trial for _, trial in sorted(ranked, key=lambda pair: (pair[0], pair[1][0]))]


def gradient_of(trial):
    return trial["phase"] != "forward"


def fp8_product(torch):
    """Of operands that are in fp8 already, with one scale a tensor; the bias is added in the product."""
    one = torch.ones((), device="cuda")

    def run(x, w, b=None):
        rows = x.view(-1, x.shape[-1])
        out = torch._scaled_mm(rows, w.t(), scale_a=one, scale_b=one, bias=b, out_dtype=torch.bfloat16)
        return out.view(*x.shape[:-1], -1)

    return run


def operation(trial, torch):
    """A function that makes a set of operands, and one that runs the layer on a set."""
    functional = torch.nn.functional
    layer, batch = trial["case"]["layer"], trial["batch"]
    kind, training = layer["kind"], trial["mode"] == "training"
    fp8 = trial["precision"] == "fp8"
    if fp8 and (kind != "linear" or gradient_of(trial)):
        raise ValueError("fp8 is of linear layers, forward")
    dtype = getattr(torch, PRECISIONS[trial["precision"]])
    inputs = trial["case"]["inputs"]
    flat, volume = is_flat(layer, inputs), is_volume(layer, inputs)
    channels_last = trial["layout"] == "nhwc" and of_maps(layer, inputs) and not flat
    gradient = gradient_of(trial)
    shapes = [[batch] + shape for shape in inputs]
    if kind in ("add", "multiply"):
        # Aligned at the last dimension behind the batch.
        shapes = [[batch] + [1] * (len(inputs[0]) - len(shape)) + shape for shape in inputs]
    if kind == "conv2d" and flat:
        shapes = [[batch, inputs[0][0], inputs[0][2]]]

    def tensor(shape, of=None):
        t = torch.randn(shape, device="cuda", dtype=of or dtype)
        if channels_last and len(shape) == 4:
            t = t.to(memory_format=torch.channels_last)
        if channels_last and len(shape) == 5 and volume:
            t = t.to(memory_format=torch.channels_last_3d)
        return t

    parameters, from_indices = [], None
    if kind in CONVOLUTIONS:
        channels = shapes[0][1]
        groups = channels if layer.get("groups") == "depthwise" else layer.get("groups", 1)
        directions = len(shapes[0]) - 2
        convolve = {1: functional.conv1d, 2: functional.conv2d, 3: functional.conv3d}[directions]
        # Of a sequence the width alone.
        kernel, stride, padding = (layer[name][-directions:] for name in ("kernel", "stride", "padding"))
        dilation = layer.get("dilation", [1] * 3)[-directions:]
        parameters = [[layer["channels"], channels // groups] + kernel]
        parameters += [[layer["channels"]]] if layer.get("bias") else []

        def run(x, w, b=None):
            return convolve(x, w, b, stride, padding, dilation, groups)
    elif kind == "linear":
        parameters = [[layer["features"], shapes[0][-1]]] + ([[layer["features"]]] if layer.get("bias") else [])
        run = fp8_product(torch) if fp8 else functional.linear
    elif kind == "matmul":
        run = torch.matmul
    elif kind == "batch_norm":
        # Rows are normalized as if they were samples.
        rows = len(inputs[0]) == 2
        channels = shapes[0][-1] if rows else shapes[0][1]
        parameters = [[channels], [channels]] if layer.get("affine", True) else []
        of = torch.float32 if training else dtype
        mean, variance = torch.zeros(channels, device="cuda", dtype=of), torch.ones(channels, device="cuda", dtype=of)

        def run(x, *learned):
            w, b = learned or (None, None)
            given = x.flatten(0, 1) if rows else x
            out = functional.batch_norm(given, mean, variance, w, b, training, 0.1, 1e-5)
            return out.view(x.shape) if rows else out
    elif kind in TRANSFORMERS:
        from_indices = {"embedding": layer.get("vocabulary")}.get(kind)
        parameters, run = TRANSFORMERS[kind](layer, shapes, dtype, training, torch)
    elif kind == "layer_norm":
        size = [inputs[0][normalized(inputs[0])]]
        parameters = [size, size] if layer.get("affine", True) else []

        def run(x, *learned):
            if x.dim() != 4:
                return functional.layer_norm(x, size, *learned)
            # Of a map over its channels.
            return functional.layer_norm(x.permute(0, 2, 3, 1), size, *learned).permute(0, 3, 1, 2)
    elif kind == "activation":
        function, overwrites = activation(layer["function"], torch)
        # Networks overwrite; a gradient needs the input.
        if overwrites:
            run = functools.partial(function, inplace=not gradient)
        else:
            run = function
    elif kind == "add":
        def run(x, *others):
            for y in others:
                x += y
            return x
    elif kind == "multiply":
        run = torch.mul
    elif kind == "concat":
        axis = layer.get("axis")
        joined = axis + 1 if axis is not None else 1 if len(inputs[0]) == 3 else -1

        def run(*parts):
            return torch.cat(parts, joined)
    elif kind in ("pool2d", "pool3d"):
        kernel, stride = layer["kernel"], layer.get("stride", layer["kernel"])
        padding, ceil = layer["padding"], layer.get("ceil", False)
        pool = getattr(functional, f"{layer['op']}_{kind}")

        def run(x):
            return pool(x, kernel, stride, padding, ceil_mode=ceil)
    elif kind in ("adaptive_pool2d", "global_pool2d"):
        pool = functional.adaptive_max_pool2d if layer["op"] == "max" else functional.adaptive_avg_pool2d
        size = layer.get("output", [1, 1])

        def run(x):
            return pool(x, size)
    elif kind == "dropout":
        def run(x):
            return functional.dropout(x, layer["probability"], training)
    elif kind == "softmax":
        def run(x):
            return functional.softmax(x, 2 if layer.get("middle") else 1 if x.dim() == 4 and not layer.get("last") else -1)
    elif kind == "local_response_norm":
        def run(x):
            return functional.local_response_norm(x, layer["size"])
    else:
        raise ValueError(f"no operation for {kind}")

    of = torch.float32 if kind == "batch_norm" and training else None

    # Weights come from memory in a network, whatever its activations do.
    weights_alone, kept = kind == "linear" and trial["cache"] == "hot", []

    def make():
        given = kept or [tensor(shape) for shape in shapes]
        if from_indices:
            given = [torch.randint(0, from_indices, shape, device="cuda") for shape in shapes]
        operands = given + [tensor(shape, of) for shape in parameters]
        if fp8:
            operands[:2] = [t.to(torch.float8_e4m3fn) for t in operands[:2]]
        if weights_alone:
            kept[:] = operands[:len(shapes)]
        if not gradient:
            # Of a learned bias another kernel runs where its gradient will be wanted.
            operands[-1].requires_grad_(training and kind == "attention" and (layer.get("bias") or {}).get("parameters", 0) > 0)
            return lambda: run(*operands)
        data = trial["phase"] == "backward_data"
        wanted = operands[:len(shapes)] if data else operands[len(shapes):]
        if kind in ("batch_norm", "layer_norm", "rms_norm", "group_norm", "attention"):
            wanted = operands
        if kind == "recurrent" and not data:
            # The library's gradient of the weights needs that of the inputs before it.
            wanted = operands + run.weights
        for t in wanted:
            t.requires_grad_()
        output = run(*operands)
        above = torch.randn_like(output)
        if kind == "elementwise" and parameters and (data or shapes[0] == [1] + parameters[0]):
            raise ValueError("the gradient of a sum is no kernel")
        return lambda: torch.autograd.grad(output, wanted, above, retain_graph=True)

    def size_of(width):
        count = sum(_product(shape) for shape in ([] if weights_alone else shapes) + parameters)
        if kind == "attention":
            count += 2 * batch * (layer.get("cached") or 0) * shapes[-1][-1]
        return count * width * (3 if gradient else 2)

    return make, size_of(1 if fp8 else 2 if dtype.itemsize == 2 else 4), weights_alone


def activation(name, torch):
    """A function, which PyTorch has under our name, and whether it can overwrite its input."""
    functional = torch.nn.functional
    if name == "gelu_tanh":
        return functools.partial(functional.gelu, approximate="tanh"), False
    function = getattr(functional, name)
    try:
        return function, "inplace" in inspect.signature(function).parameters
    except ValueError:
        # Functions of the C++ library tell no signature, and overwrite nothing.
        return function, False


# By kind: a function of a layer, the shapes of its inputs, a format and a mode that gives the shapes of the layer's parameters,
# and what computes it of its inputs and parameters.
TRANSFORMERS = {}


def of_kind(name):
    def noted(function):
        TRANSFORMERS[name] = function
        return function
    return noted


# Those among them whose three dimensions are a map's.
MAPS = {"resize", "scale", "elementwise", "group_norm"}


@of_kind("scale")
def scale(layer, shapes, dtype, training, torch):
    """A parameter times a map, such as the scale of a residual branch; the shift is an operation of its own."""
    shape = shapes[0][1:]
    channels = [shape[0], 1, 1] if len(shape) == 3 else shape[-1:]
    if not layer.get("bias", True):
        return [channels], torch.mul
    return [channels, channels], lambda x, w, b: x * w + b


@of_kind("elementwise")
def elementwise(layer, shapes, dtype, training, torch):
    """A factor, a learned table that is added, or of two inputs what the gradient tells; whatever else programs compute so is
    not known."""
    learned, shape = layer.get("parameters", 0), shapes[0][1:]
    of_two = {"divides": torch.div, "selects": torch.maximum, "passes": torch.sub}.get(layer.get("gradient"))
    if of_two and len(shapes) == 2 and not learned and layer.get("output") in (None, shape):
        # Aligned at the last dimension behind the batch.
        ranks = len(shape) - len(shapes[1][1:])
        return [], lambda x, y: of_two(x, y.view(y.shape[0], *[1] * ranks, *y.shape[1:]))
    if layer.get("ops", 1) != 1 or len(shapes) != 1 or layer.get("output") not in (None, shape):
        raise ValueError("no operation for elementwise of other than one operation on one input")
    if not learned:
        if layer.get("gradient") in ("divides", "selects"):
            raise ValueError("no operation for elementwise whose gradient is of two inputs")
        return [], lambda x: x * 0.5
    ends = [shape[i:] for i in range(len(shape)) if _product(shape[i:]) == learned]
    if not ends:
        raise ValueError("no operation for elementwise whose parameters are not its last dimensions")
    return [ends[-1]], torch.add


@of_kind("reduce")
def reduce(layer, shapes, dtype, training, torch):
    if layer.get("norm"):
        return [], lambda x: torch.linalg.vector_norm(x, dim=-1)
    return [], lambda x: x.mean(-1)


@of_kind("group_norm")
def group_norm(layer, shapes, dtype, training, torch):
    """Channels-last inputs are copied first, by PyTorch, and its result is not channels last: that the next layer copies it
    back is part of what the norm costs."""
    channels = shapes[0][1:2]
    learned = [channels, channels] if layer.get("affine", True) else []

    def run(x, *learned):
        y = torch.nn.functional.group_norm(x, layer["groups"], *learned)
        last = torch.channels_last_3d if x.dim() == 5 else torch.channels_last
        return y if x.is_contiguous() else y.contiguous(memory_format=last)

    return learned, run


@of_kind("attention")
def attention(layer, shapes, dtype, training, torch):
    """As frameworks call it; a cached token writes its key and value into the cache and reads all of it."""
    functional = torch.nn.functional
    heads = layer["heads"]
    kv_heads = layer.get("kv_heads") or heads
    batch, tokens = shapes[0][:2]
    packed = len(shapes) == 1
    size = shapes[0][2] // (heads + 2 * kv_heads if packed else heads)
    cached = layer.get("cached") or 0
    fused, causal = layer.get("fused", True), layer["causal"] and not cached
    grouped = kv_heads != heads
    # Kernels for 32 bits know no groups, nor do products: keys and values are repeated, as transformers does.
    repeated = grouped and (not fused or dtype.itemsize == 4)
    caches = []
    if cached:
        shape = [batch, kv_heads, cached + tokens, size]
        # A rotation of operands rotates caches, too.
        caches = [[torch.randn(shape, device="cuda", dtype=dtype) for _ in range(2)] for _ in range(4)]
    turn = [0]
    bias = layer.get("bias")
    if bias:
        return biased_attention(layer, batch, tokens, size, packed)
    later = torch.ones(tokens, tokens, device="cuda", dtype=torch.bool).triu(1) if causal and not fused else None

    def run(q, k=None, v=None):
        if packed:
            q, k, v = q.split([heads * size, kv_heads * size, kv_heads * size], -1)
        q, k, v = (t.view(batch, -1, h, size).transpose(1, 2) for t, h in ((q, heads), (k, kv_heads), (v, kv_heads)))
        if cached:
            turn[0] = (turn[0] + 1) % len(caches)
            keys, values = caches[turn[0]]
            keys[:, :, cached:].copy_(k)
            values[:, :, cached:].copy_(v)
            k, v = keys, values
        if repeated:
            k, v = (t[:, :, None].expand(-1, -1, heads // kv_heads, -1, -1).reshape(batch, heads, -1, size)
                    for t in (k, v))
        if fused:
            out = functional.scaled_dot_product_attention(q, k, v, is_causal=causal,
                                                          enable_gqa=grouped and not repeated)
        else:
            # As programs write it out; PyTorch's own function without a fused kernel would compute halves in 32 bits.
            scores = q @ k.transpose(-2, -1) * size ** -0.5
            if causal:
                scores = scores.masked_fill(later, float("-inf"))
            out = scores.softmax(-1) @ v
        return out.transpose(1, 2).reshape(batch, -1, heads * size)

    return [], run


def biased_attention(layer, batch, tokens, size, packed):
    """With a bias that all samples and windows share; its gradient is summed where the bias was learned."""
    from torch.nn.functional import scaled_dot_product_attention
    heads = layer["bias"]["heads"]
    wide = layer["heads"] * size
    if layer["bias"].get("turned"):
        raise ValueError("attention over a turned bias: it goes step by step")

    def run(q, *others):
        *others, bias = others
        q, k, v = q.split(wide, -1) if packed else (q, *others)
        windows = layer["heads"] // heads
        q, k, v = (t.reshape(batch * windows, -1, heads, size).transpose(1, 2) for t in (q, k, v))
        out = scaled_dot_product_attention(q, k, v, attn_mask=bias)
        return out.transpose(1, 2).reshape(batch, -1, wide)

    return [[heads, tokens, tokens] if layer["bias"].get("unbatched") else [1, heads, tokens, tokens]], run


@of_kind("experts")
def experts(layer, shapes, dtype, training, torch):
    """As `torch_language.py` has them."""
    from torch_language import experts as run
    if layer.get("bias") or not layer.get("gated", True):
        raise ValueError("experts with biases, or without a gate")
    count, width, hidden = layer["experts"], shapes[0][-1], layer["hidden"]
    return [[count, width, 2 * hidden], [count, hidden, width]], lambda x, logits, *w: run(torch, layer, (x, logits), w, None)


@of_kind("embedding")
def embedding(layer, shapes, dtype, training, torch):
    return [[layer["vocabulary"], layer["features"]]], torch.nn.functional.embedding


@of_kind("rms_norm")
def rms_norm(layer, shapes, dtype, training, torch):
    size = shapes[0][-1:]
    return [size], lambda x, w: torch.nn.functional.rms_norm(x, size, w, 1e-6)


@of_kind("rotary")
def rotary(layer, shapes, dtype, training, torch):
    """As transformers' Llama does it: x cos + rotated(x) sin."""
    batch, tokens, features = shapes[0]
    size = features // layer["heads"]
    angles = torch.rand(1, 1, tokens, size, device="cuda")
    cos, sin = angles.cos().to(dtype), angles.sin().to(dtype)

    def run(x):
        x = x.view(batch, tokens, -1, size).transpose(1, 2)
        a, b = x[..., :size // 2], x[..., size // 2:]
        return x * cos + torch.cat((-b, a), -1) * sin

    return [], run


@of_kind("recurrent")
def recurrent(layer, shapes, dtype, training, torch):
    """Through cuDNN, samples first; whatever stands before places and features counts as samples.

    The weights are the module's: `operation` asks for their gradients apart.
    """
    kind = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU, "rnn": torch.nn.RNN}[layer["cell"]]
    module = kind(shapes[0][-1], layer["hidden"], layer["layers"], bias=layer["bias"], batch_first=True,
                  bidirectional=layer["bidirectional"], device="cuda", dtype=dtype)
    module.train(training)
    for parameter in module.parameters():
        parameter.requires_grad_(False)

    def run(x):
        return module(x.reshape(-1, *x.shape[-2:]))[0]

    run.weights = list(module.parameters())
    return [], run


@of_kind("position_embedding")
def position_embedding(layer, shapes, dtype, training, torch):
    return [shapes[0][1:]], torch.add


@of_kind("relative_position_bias")
def relative_position_bias(layer, shapes, dtype, training, torch):
    heads, window, tokens = layer["heads"], layer["window"], shapes[0][2]
    rows = (2 * window - 1) ** 2
    index = torch.randint(0, rows, (tokens * tokens,), device="cuda")

    def run(x, table):
        bias = table[index].view(tokens, tokens, heads).permute(2, 0, 1).contiguous().unsqueeze(0)
        return x.view(-1, heads, tokens, tokens) + bias

    return [[rows, heads]], run


@of_kind("class_token")
def class_token(layer, shapes, dtype, training, torch):
    return [[1, 1, shapes[0][2]]], lambda x, token: torch.cat([token.expand(x.shape[0], -1, -1), x], 1)


@of_kind("reshape")
def reshape(layer, shapes, dtype, training, torch):
    """Groups of tokens gathered, as windows are; a prime number of them is copied as it is."""
    tokens = shapes[0][1]
    part = max(d for d in range(1, int(tokens ** 0.5) + 1) if tokens % d == 0)
    if part == 1:
        return [], lambda x: x.clone()
    return [], lambda x: x.view(x.shape[0], part, tokens // part, -1).transpose(1, 2).contiguous()


@of_kind("permute")
def permute(layer, shapes, dtype, training, torch):
    order = [0] + [1 + i for i in layer["order"]]
    return [], lambda x: x.permute(order).contiguous()


@of_kind("slice")
def slice_(layer, shapes, dtype, training, torch):
    start, step = layer["start"], layer["step"]
    part = slice(start, start + layer["size"] * step, step)
    return [], lambda x: x[(slice(None),) * (layer["axis"] + 1) + (part,)].contiguous()


@of_kind("resize")
def resize(layer, shapes, dtype, training, torch):
    modes = {"nearest": "nearest", "linear": "bilinear", "cubic": "bicubic"}
    return [], lambda x: torch.nn.functional.interpolate(x, layer["output"], mode=modes[layer["interpolation"]])


def _product(numbers):
    result = 1
    for n in numbers:
        result *= n
    return result


def measure(trial, torch):
    """Device time of a call in microseconds, the spread of repeats, and how many calls a graph held."""
    time_us, spread_us, calls = timed(trial, torch)
    if trial["case"]["layer"]["kind"] == "recurrent" and trial["phase"] == "backward_weights":
        before, _, _ = timed({**trial, "phase": "backward_data"}, torch)
        time_us = max(time_us - before, 0.5)
    return time_us, spread_us, calls


def timed(trial, torch):
    """As `measure`, of one call as it is."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = trial["precision"] == "tf32"
    make, size, weights_alone = operation(trial, torch)
    sets = max(1, min(32, -(-ROTATION // size))) if trial["cache"] == "cold" or weights_alone else 1
    stream = torch.cuda.Stream()
    nothing = contextlib.nullcontext() if trial["phase"] != "forward" else torch.no_grad()
    with torch.cuda.stream(stream), nothing:
        calls = [make() for _ in range(sets)]
        for _ in range(2):
            for call in calls:
                call()
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        for call in calls:
            call()
        end.record()
        end.synchronize()
        each = max(begin.elapsed_time(end) / sets, 0.003)
        repeats = max(1, min(round(4.0 / (each * sets)), -(-100 // sets)))
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            for _ in range(repeats):
                for call in calls:
                    call()
        graph.replay()
        times = []
        for _ in range(7):
            begin.record()
            graph.replay()
            end.record()
            end.synchronize()
            times.append(begin.elapsed_time(end) / (repeats * sets) * 1e3)
    times.sort()
    if times[3] < SHORTEST_US:
        raise ValueError("a view: no kernel runs")
    return times[3], times[5] - times[1], repeats * sets


def kernels(args, torch, until):
    known = set()
    if os.path.exists(args.out):
        with open(args.out, newline="") as file:
            known = {row["trial_id"] for row in csv.DictReader(file)}
    device = torch.cuda.get_device_properties(0).name
    skipped = defaultdict(int)
    with open(args.out, "a", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        if not known:
            writer.writeheader()
        for number, (trial_id, trial) in enumerate(sample(args.trials, args.most, args.few, set(args.only))):
            if time.perf_counter() > until:
                print(f"budget used after {number} trials", flush=True)
                break
            if trial_id in known:
                continue
            result = None
            try:
                result = measure(trial, torch)
            except (RuntimeError, ValueError, IndexError, TypeError, KeyError, AttributeError) as error:
                skipped[f"{trial['case']['layer']['kind']} {trial['phase']}: {str(error).splitlines()[0][:90]}"] += 1
                torch.cuda.synchronize()
            if result is None:
                # Only now is what the failed trial held given up.
                torch.cuda.empty_cache()
                continue
            middle, spread, calls = result
            layer = trial["case"]["layer"]
            kind = layer.get("function") or layer.get("cell") or layer["kind"]
            writer.writerow({
                "trial_id": trial_id, "kind": kind, "time_us": round(middle, 3), "spread_us": round(spread, 3),
                "calls": calls, "device": device, "torch": torch.__version__, "cudnn": torch.backends.cudnn.version(),
                "trial": json.dumps(trial, separators=(",", ":"))})
            file.flush()
            if number % 100 == 0:
                torch.cuda.empty_cache()
    for reason, count in sorted(skipped.items()):
        print(f"{count} left out: {reason}")


def host(path, functions, torch):
    """Chains of layers on tiny maps, activations by these functions among them: the GPU is always done first."""
    nn, chain = torch.nn, 50
    channels = 16

    class Binary(nn.Module):
        def __init__(self, function):
            super().__init__()
            self.function = function

        def forward(self, x):
            return self.function(x)

    def attend(x):
        q = x.view(1, 8, 4, 8).transpose(1, 2)
        return nn.functional.scaled_dot_product_attention(q, q, q).transpose(1, 2).reshape(x.shape)

    def turn(x):
        return x * x + torch.cat((-x[..., :2], x[..., 2:]), -1) * x

    class Table(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(8, 4)
            self.register_buffer("index", torch.zeros(1, dtype=torch.long))

        def forward(self, x):
            return self.table(self.index).view(1, 1, 1, 4).expand(1, channels, 4, 4)

    class Positions(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Parameter(torch.zeros(channels, 4, 4))

        def forward(self, x):
            return x + self.table

    class Sequence(nn.Module):
        def __init__(self, cell):
            super().__init__()
            self.cell = cell(4, 4, batch_first=True)

        def forward(self, x):
            return self.cell(x.reshape(channels, 4, 4))[0].reshape(x.shape)

    kinds = {
        "conv2d": lambda: nn.Conv2d(channels, channels, 3, padding=1, bias=False),
        "conv2d_bias": lambda: nn.Conv2d(channels, channels, 3, padding=1),
        "conv2d_depthwise": lambda: nn.Conv2d(channels, channels, 3, padding=1, bias=False, groups=channels),
        "linear": lambda: nn.Linear(4, 4),
        "batch_norm": lambda: nn.BatchNorm2d(channels),
        "layer_norm": lambda: nn.LayerNorm(4),
        "dropout": lambda: nn.Dropout(0.5),
        "max_pool2d": lambda: nn.MaxPool2d(3, 1, 1),
        "avg_pool2d": lambda: nn.AvgPool2d(3, 1, 1),
        "adaptive_pool2d": lambda: nn.AdaptiveAvgPool2d(4),
        "add": lambda: Binary(lambda x: x + x),
        "multiply": lambda: Binary(lambda x: x * x),
        "concat": lambda: Binary(lambda x: torch.cat([x[:, :8], x[:, 8:]], 1)),
        "softmax": lambda: nn.Softmax(1),
        "local_response_norm": lambda: nn.LocalResponseNorm(5),
        "rms_norm": lambda: nn.RMSNorm(4),
        "attention": lambda: Binary(attend),
        "matmul": lambda: Binary(lambda x: torch.matmul(x, x)),
        "rotary": lambda: Binary(turn),
        "embedding": lambda: Table(),
        "position_embedding": lambda: Positions(),
        "class_token": lambda: Binary(lambda x: torch.cat([x[:, :1], x[:, 1:]], 1)),
        "reshape": lambda: Binary(lambda x: x.view(1, 4, 4, 16).transpose(1, 2).reshape(1, channels, 4, 4)),
        "lstm": lambda: Sequence(nn.LSTM),
        "gru": lambda: Sequence(nn.GRU),
    }
    kinds |= {name: functools.partial(Binary, activation(name, torch)[0]) for name in functions}
    device = torch.cuda.get_device_properties(0).name
    rows = []

    def middle(action, times=9):
        action()
        taken = []
        for _ in range(times):
            torch.cuda.synchronize()
            begin = time.perf_counter()
            action()
            taken.append((time.perf_counter() - begin) / chain * 1e6)
            torch.cuda.synchronize()
        return sorted(taken)[times // 2]

    def chain_of(name, build):
        for precision in ("fp32", "fp16"):
            layers = nn.Sequential(*[build() for _ in range(chain)]).cuda()
            x = torch.randn(1, channels, 4, 4, device="cuda")
            half = precision == "fp16"
            model, input_ = (layers.half(), x.half()) if half else (layers, x)
            model.eval()
            with torch.no_grad():
                inference = middle(lambda: model(input_.clone()))
            model, input_ = model.float().train(), x.requires_grad_()
            forward, backward = [], []
            for _ in range(9):
                with torch.autocast("cuda", torch.float16, enabled=half):
                    torch.cuda.synchronize()
                    begin = time.perf_counter()
                    y = model(input_ * 1.0)
                    forward.append((time.perf_counter() - begin) / chain * 1e6)
                above = torch.ones_like(y)
                torch.cuda.synchronize()
                begin = time.perf_counter()
                y.backward(above)
                backward.append((time.perf_counter() - begin) / chain * 1e6)
                model.zero_grad(set_to_none=True)
            rows.append((name, precision, inference, sorted(forward)[4], sorted(backward)[4]))

    for name, build in kinds.items():
        try:
            chain_of(name, build)
        except (RuntimeError, TypeError, ValueError) as error:
            print(f"{name}: {str(error).splitlines()[0]}", flush=True)
    for count in (20, 160):
        model = nn.Sequential(*[nn.Linear(4, 4, bias=False) for _ in range(count)]).cuda()
        model(torch.randn(4, 4, device="cuda")).sum().backward()
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9)
        rows.append((f"sgd of {count}", "fp32", None, middle(optimizer.step) * chain, None))
        scaler = torch.amp.GradScaler("cuda")
        scaler.scale(model(torch.randn(4, 4, device="cuda")).sum()).backward()

        def scaled():
            scaler.scale(torch.zeros(1, device="cuda"))
            scaler.step(optimizer)
            scaler.update()

        with contextlib.suppress(RuntimeError, AssertionError):
            rows.append((f"sgd of {count}", "fp16", None, middle(scaled) * chain, None))
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(HOST_COLUMNS)
        for name, precision, *times in rows:
            writer.writerow([name, precision] + ["" if t is None else round(t, 2) for t in times]
                            + [device, torch.__version__])


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--trials", required=True, nargs="+")
    arguments.add_argument("--only", nargs="*", default=[], help="layer kinds, functions or classes")
    arguments.add_argument("--out")
    arguments.add_argument("--host", help="file for the host's times")
    arguments.add_argument("--most", type=int, default=30, help="trials of a group")
    arguments.add_argument("--few", type=int, default=12, help="trials of a group of gradients of products")
    arguments.add_argument("--budget", type=float, default=500, help="seconds; no trial is begun after them")
    arguments.add_argument("--list", action="store_true", help="count the sample and stop")
    args = arguments.parse_args()
    until = time.perf_counter() + args.budget
    if args.list:
        counts = defaultdict(int)
        for _, trial in sample(args.trials, args.most, args.few, set(args.only)):
            counts[group(trial)] += 1
        for key, count in sorted(counts.items()):
            print(*key, count)
        print(sum(counts.values()))
        return
    import torch
    if args.host:
        trials = [trial for _, trial in sample(args.trials, 1, 1, set())]
        functions = {trial["case"]["layer"].get("function") for trial in trials} - {None}
        host(args.host, sorted(functions), torch)
    if args.out:
        kernels(args, torch, until)


if __name__ == "__main__":
    main()
