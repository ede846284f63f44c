#!/usr/bin/env python3
"""Device memory of whole networks through PyTorch on one GPU, one CSV row each; a second a row.

  torch_memory.py --networks resnet50,vgg16 --batches 16,64 --training-batches 32 --out rows.csv

Peaks of `torch_networks.py` hold what earlier runs of the process left behind, and the building of the network: its
weights in 32 bits before they are converted. Here every run begins with an empty allocator (`before_mib` is what was
left), and `peak_mem_mib` is of steps after those to warm up. `first_mib` is the peak until then.
"""
import argparse
import csv
import gc

import torch
from torch_networks import LANGUAGE, build

COLUMNS = ("network,mode,precision,layout,batch,sequence,before_mib,first_mib,held_mib,peak_mem_mib,reserved_mib,"
           "device,torch,cudnn").split(",")
MIB = 1 << 20


def emptied():
    """What the allocator still holds once nothing is referred to."""
    gc.collect()
    torch.cuda.synchronize()
    torch._C._cuda_clearCublasWorkspaces()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    return torch.cuda.memory_allocated() / MIB


def memory(name, mode, precision, batch, sequence):
    before = emptied()
    step, layout = build(name, precision, mode, batch, sequence, 0)
    for _ in range(3):
        step()
    torch.cuda.synchronize()
    gc.collect()
    first, held = torch.cuda.max_memory_allocated() / MIB, torch.cuda.memory_allocated() / MIB
    torch.cuda.reset_peak_memory_stats()
    for _ in range(3):
        step()
    torch.cuda.synchronize()
    numbers = {"before_mib": before, "first_mib": first, "held_mib": held,
               "peak_mem_mib": torch.cuda.max_memory_allocated() / MIB,
               "reserved_mib": torch.cuda.memory_reserved() / MIB}
    return {"layout": layout, **{key: round(value, 1) for key, value in numbers.items()}}


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--networks", required=True, help="as of torch_networks.py, comma-separated")
    arguments.add_argument("--precisions", default="fp32,tf32,fp16")
    arguments.add_argument("--batches", default="16,64,256", help="inference")
    arguments.add_argument("--training-batches", default="32,128")
    arguments.add_argument("--sequences", default="128", help="tokens, for BERT and GPT-2")
    arguments.add_argument("--out", required=True)
    args = arguments.parse_args()
    device = torch.cuda.get_device_properties(0).name
    runs = [("infer", b) for b in args.batches.split(",") if b] + [("train", b) for b in args.training_batches.split(",") if b]
    with open(args.out, "w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        for name in args.networks.split(","):
            for sequence in args.sequences.split(",") if name in LANGUAGE else [""]:
                for precision in args.precisions.split(","):
                    for mode, batch in runs:
                        what = dict(network=name, mode=mode, precision=precision, batch=batch, sequence=sequence)
                        try:
                            row = memory(name, mode, precision, int(batch), int(sequence or 0))
                        except torch.cuda.OutOfMemoryError:
                            print(*what.values(), "does not fit", flush=True)
                            continue
                        writer.writerow({**what, **row, "device": device, "torch": torch.__version__,
                                         "cudnn": torch.backends.cudnn.version()})
                        file.flush()
                        print(*what.values(), row, flush=True)


if __name__ == "__main__":
    main()
