#!/usr/bin/env python3
"""What the host takes for a step: chains of linear layers by length, language models of transformers by depth.

The intercept of a chain's time over its length is what a step costs besides its layers (in training the loss, the
gradients' start, the optimizer); the slope over a model's depth is what a block of it costs. Kernels are so short that
the GPU never bounds. Columns as in torch_steps.py, whose functions measure; each chain is measured twice.

  torch_host_steps.py --out torch_host_steps.csv --budget 130
"""
import argparse
import csv
import gc
import time

import torch
import torch_steps as steps
from torch_networks import HALVES, captured

COLUMNS = "what,layers,mode,precision,batch,host_ms,ahead_ms,drained_ms,eager_ms,graph_ms".split(",")
# Hidden size and heads of all language models here.
HIDDEN, HEADS = 768, 12
ENCODERS = ("distilbert", "electra", "vit")


def trainer(model, call, precision):
    """A training step with SGD and momentum, in mixed precision for 16 bits, with a scaled loss for fp16."""
    half = HALVES.get(precision)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9)
    scaler = torch.amp.GradScaler("cuda", enabled=precision == "fp16")
    model.float().train()

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", half or torch.float16, enabled=half is not None):
            value = call()
        scaler.scale(value).backward()
        scaler.step(optimizer)
        scaler.update()

    return step


def inference(model, call, precision):
    model.to(HALVES.get(precision, torch.float32)).eval()

    def step():
        with torch.no_grad():
            return call()

    return step


def library(name, layers):
    """A model of transformers with so many blocks."""
    import transformers as t
    bert = {"num_hidden_layers": layers, "hidden_size": HIDDEN, "num_attention_heads": HEADS}
    wide = {"intermediate_size": 4 * HIDDEN}
    config = {
        "distilbert": lambda: t.DistilBertConfig(n_layers=layers, dim=HIDDEN, n_heads=HEADS, hidden_dim=4 * HIDDEN),
        "electra": lambda: t.ElectraConfig(**bert, **wide),
        "vit": lambda: t.ViTConfig(**bert, **wide),
        "opt": lambda: t.OPTConfig(**bert, ffn_dim=4 * HIDDEN, word_embed_proj_dim=HIDDEN),
        "gpt_neox": lambda: t.GPTNeoXConfig(**bert, **wide),
        "llama": lambda: t.LlamaConfig(**bert, **wide, num_key_value_heads=HEADS),
        "qwen2": lambda: t.Qwen2Config(**bert, **wide, num_key_value_heads=HEADS),
    }[name]()
    config._attn_implementation = "sdpa"
    return (t.AutoModel if name in ENCODERS else t.AutoModelForCausalLM).from_config(config).cuda()


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--chains", default="1,4,16,48", help="lengths")
    arguments.add_argument("--models", default="opt,distilbert,llama,electra,gpt_neox,qwen2,vit")
    arguments.add_argument("--depths", default="12,4")
    arguments.add_argument("--budget", type=float, default=130, help="seconds; no model is begun after them")
    arguments.add_argument("--out", required=True)
    args = arguments.parse_args()
    begin = time.perf_counter()
    with open(args.out, "a", newline="") as file:
        writer = csv.writer(file)
        if file.tell() == 0:
            writer.writerow(COLUMNS)

        def record(what, layers, mode, precision, batch, step, window, graph):
            for _ in range(5):
                step()
            row = [steps.enqueue(step, 1, 25), steps.enqueue(step, 4, 8), steps.drained(step, 25), steps.steady(step, window)]
            row = [round(v, 4) for v in row] + ([round(steps.steady(captured(step), window), 4)] if graph else [""])
            writer.writerow([what, layers, mode, precision, batch, *row])
            file.flush()
            print(what, layers, mode, precision, row, flush=True)

        loss = torch.nn.CrossEntropyLoss()
        for _ in range(2):
            for precision in ("tf32", "bf16", "fp16"):
                torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
                for length in map(int, args.chains.split(",")):
                    model = torch.nn.Sequential(*[torch.nn.Linear(64, 64) for _ in range(length)]).cuda()
                    x, y = torch.randn(8, 64, device="cuda"), torch.randint(0, 64, (8,), device="cuda")
                    step = trainer(model, lambda: loss(model(x), y), precision)
                    record("linear", length, "train", precision, 8, step, 0.1, precision != "fp16")
                    x = x.to(HALVES.get(precision, torch.float32))
                    record("linear", length, "infer", precision, 8, inference(model, lambda: model(x), precision), 0.1, True)
        for name in args.models.split(","):
            for depth in map(int, args.depths.split(",")):
                if time.perf_counter() - begin > args.budget:
                    return
                model = library(name, depth)
                given = {"input_ids": torch.randint(5, 9000, (1, 128), device="cuda")}
                if name == "vit":
                    given = {"pixel_values": torch.randn(1, 3, 224, 224, device="cuda")}
                elif name not in ENCODERS:
                    given["use_cache"] = False
                for precision in ("tf32", "bf16"):
                    torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
                    step = trainer(model, lambda: model(**given)[0].float().mean(), precision)
                    record(name, depth, "train", precision, 1, step, 0.15, False)
                    half = HALVES.get(precision, torch.float32)
                    taken = {k: v.to(half) if torch.is_tensor(v) and v.is_floating_point() else v for k, v in given.items()}
                    step = inference(model, lambda: model(**taken)[0], precision)
                    record(name, depth, "infer", precision, 1, step, 0.15, name in ENCODERS)
                model = step = None
                gc.collect()


if __name__ == "__main__":
    main()
