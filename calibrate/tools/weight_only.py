#!/usr/bin/env python3
"""How many times as long as their bytes say products take whose weights are stored in 8 bits and multiplied in 16.

    python3 calibrate/tools/weight_only.py aic_gemm.parquet

The table is NVIDIA AIConfigurator's (Apache-2.0; data/published/sources.toml). TensorRT-LLM's products with int8 weights (dtype int8_wo) of
2^24 values and more, which no second-level cache holds, are compared with the same products in bf16, and both with a roofline:

    factor = (time / time in bf16) / (roofline / roofline in bf16)

Prints for each GPU and octave of rows of the input the median factor and half of what lies between the 5 % and the 95 % quantile of its
logarithm, as model/src/law/fewer_bits.rs has them; then how far single products are off with and without it. SGLang's rows of an H100 are
left out: they are faster than arithmetic in bf16. Needs pandas and pyarrow.
"""
import sys

import numpy as np
import pandas

# Bytes and operations a second: data/gpus, peaks of bf16.
GPUS = {"a100_sxm": ("ga100", 2.039e12, 312e12), "h200_sxm": ("gh100", 4.8e12, 989.4e12), "l40s": ("ad102", 0.864e12, 362e12)}
FEWEST = 1 << 24
OCTAVES = [1 << i for i in range(14)]


def compared(path):
    rows = pandas.read_parquet(path, columns=["gpu", "framework", "dtype", "m", "n", "k", "time_us"])
    rows = rows[(rows.framework == "trtllm") & rows.gpu.isin(GPUS) & (rows.n * rows.k >= FEWEST) & (rows.m > 0)]
    keys = ["gpu", "m", "n", "k"]
    times = {of: rows[rows.dtype == of].groupby(keys).time_us.median() for of in ("int8_wo", "bfloat16")}
    both = pandas.DataFrame({"few": times["int8_wo"], "all": times["bfloat16"]}).dropna().reset_index()
    bandwidth, peak = (both.gpu.map({gpu: of[i] for gpu, of in GPUS.items()}) for i in (1, 2))
    moved, work = 2 * (both.m * both.k + both.m * both.n), 2.0 * both.m * both.n * both.k / peak

    def roofline(width):
        return np.maximum((width * both.n * both.k + moved) / bandwidth, work)

    both["ratio"] = both["few"] / both["all"]
    both["foreseen"] = roofline(1) / roofline(2)
    both["factor"] = both.ratio / both.foreseen
    both["octave"] = 2 ** np.round(np.log2(both.m)).clip(0, len(OCTAVES) - 1).astype(int)
    return both


def main():
    both = compared(sys.argv[1])
    for gpu, (chip, _, _) in GPUS.items():
        of = both[both.gpu == gpu]
        logs = np.log(of.factor).groupby(of.octave)
        factors, spreads = np.exp(logs.median()), (logs.quantile(0.95) - logs.quantile(0.05)) / 2
        print(f"{chip}: {len(of)} products")
        print("  factors " + ", ".join(f"{factors[octave]:.2f}" for octave in OCTAVES))
        print("  spreads " + ", ".join(f"{spreads[octave]:.2f}" for octave in OCTAVES))
        centre = np.exp(np.interp(np.log2(of.m), range(len(OCTAVES)), np.log(factors.reindex(OCTAVES))))
        ratios = of.ratio.groupby(of.m).median()
        print("  time of that in bf16, by rows: " + ", ".join(f"{m}: {ratios[m]:.2f}" for m in (1, 8, 32, 64, 256, 1024, 8192)))
        for few in (True, False):
            some = of.m <= 64 if few else of.m > 64
            with_it = (of.foreseen * centre / of.ratio - 1).abs()[some].median()
            without = (of.foreseen / of.ratio - 1).abs()[some].median()
            print(f"  {'at most' if few else 'more than'} 64 rows: {100 * with_it:.1f} % off in the median, {100 * without:.1f} by bytes alone")


if __name__ == "__main__":
    main()
