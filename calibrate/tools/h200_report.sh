#!/usr/bin/env bash
# The page about our H200 measurements.
# inputs: data/splits.toml data/gpus/h200.toml data/plans/reference.toml data/measurements/h200/layers data/measurements/h200/repeats
# inputs: data/measurements/h200/check.txt data/measurements/h200/network_layers.csv data/measurements/h200/networks.csv
# inputs: data/measurements/h200/torch_layers.csv data/measurements/h200/torch_networks.csv data/measurements/h200/torch_runs.csv
# inputs: model/tests/golden/values.txt calibrate/tests/golden/fits.txt
# code: calibrate/src/judge
# The last table takes ten minutes on two cores; LEVELS=FILE takes it from an earlier run of its command instead.
set -euo pipefail
cd "$(dirname "$0")/../.."
calibrate=target/release/calibrate
data=data/measurements/h200

cat <<'TEXT'
# Measured on H200s

Rows: `data/measurements/h200` (how they were made: its README). This page: `calibrate/tools/publish.sh h200`.

## The card's own ceilings, and our kernels

`calibrate check` on the card (every kind, phase, precision and layout against a reference on the CPU, then ceilings and bandwidths):

TEXT
sed 's/^/    /' "$data/check.txt"
cat <<'TEXT'

Below 90 % of the copy, as far as register counts and instruction budgets tell (nothing was profiled): *layer norm's gradient* keeps column sums in 100 to 120 registers, so that about 16 warps share a multiprocessor;
16-bit *layer norm and local response norm in NCHW* move 8 bytes at a time; *pooling and padding in NCHW* stage planes in shared memory (one value per read; a barrier between filling and writing); *adaptive pooling's gradient in
NCHW* walks a column per thread; *maximum pooling's gradient and average pooling in NHWC* and *batch norm in training* were not worked on further. Frameworks run 16 bits in NHWC and fp32 in NCHW.
TEXT
printf '\n## How well a row repeats\n\n`calibrate run --plan quick --repeat 2` in one visit, `calibrate status %s/repeats`:\n\n' "$data"
"$calibrate" status "$data/repeats" | grep '^repeats on one board' | sed 's/^/    /'
printf '\n## Layer rows: coverage and quality\n\n`calibrate status %s/layers --format markdown`\n\nOperations are those of the direct algorithm, so that Fourier transforms exceed the card'"'"'s peak; traffic counts as if nothing were cached.\n\n' "$data"
"$calibrate" status "$data/layers" --format markdown
printf '\n## Layers, networks and PyTorch\n\n`calibrate/tools/compare_layers.py` over the files of `calibrate measure`, `torch_layers.py` and `torch_networks.py`\n\n'
python3 calibrate/tools/compare_layers.py --layers "$data/network_layers.csv" --torch-layers "$data/torch_layers.csv" \
  --networks "$data/networks.csv" --torch-networks "$data"/torch_networks*.csv
cat <<'TEXT'

## What a `pytorch` profile must therefore contain

Read off (a) and (c) above; where layers differ by more than 10 %, these are why.

* **Convolution bias** is a separate `add_` after the convolution; in channels-last fp16 it runs at about 1.4 TB/s (a broadcast kernel, 2.8 times as long as a relu of that size), in NCHW fp32 at 2.5 TB/s. That is the whole difference of VGG-16's
  convolutions (ours add it at copy speed); convolutions without bias agree: ResNet-50 fp16 batch 64 sums to 1.00 of PyTorch's, 49 of 53 within 10 %.
* **Batch norm in inference, fp16 channels-last**: three kernels (two convert the parameters, one transforms), 1.5 to 2.3 times one pass; fp32 NCHW runs one kernel of cuDNN.
* **Max pooling**: PyTorch's own kernels take 1.2 times (NCHW) and 5 to 6 times (channels-last) ours.
* **Adaptive average pooling** over a 7x7 map of that size: 3.7 times ours. **Linear layers at small batch** in fp32: another matrix-product path (cuBLAS with align1 kernels and a memset), 1.4 to 2.8 times cuBLASLt's first choice.
* **Depthwise convolutions in fp32 NCHW** run PyTorch's own kernel, not cuDNN's.
* **Math and layout**: fp32 without tensor cores and NCHW; tf32 adds layout conversions inside of cuDNN's engines (memset, nchw to nhwc); fp16 channels-last.
* **Launches**: eager steps at batch 1 take 1.04 to 10.4 times the graph's (50 pairs of `torch_networks.csv` and `torch_runs.csv`; host-bound: 150 to 300 kernels at 7 to 27 us each); from batch 64 on 0.5 to 8 % more at fp32.
* Small relus and additions are up to 1.35 times PyTorch's where operands lie in the cache: our vectorised kernels are laid out for memory.

The sum of separately measured layers against the network: MobileNet-v2's energy is 8 to 10 % above the whole in three of four rows; its layers are short, and each alone keeps the card busier than the network does.
TEXT
printf '\n## What a plan costs and buys\n\nThe estimate is before measuring; a time row takes 0.06 s, one with energy 2.4 s more (361 rows per GPU minute where 5 %% have energy, about 1,050 where none has),\nso that quick costs about 4 GPU minutes, standard 11 and reference 29.\n\n'
for level in quick standard reference; do
  printf '    $ calibrate plan --level %s | tail -n 1\n    %s\n' "$level" "$("$calibrate" plan --level "$level" | tail -n 1)"
done
printf '\nError on the same held-out shapes, when only the rows of a plan are learned from (grouped 5-fold over all rows; `calibrate validate --layers --levels --dataset %s/layers --format markdown`%s):\n\n' "$data" "${LEVELS_NOTE:-}"
if [ -n "${LEVELS:-}" ]; then cat "$LEVELS"; else
  "$calibrate" validate --layers --levels --dataset "$data/layers" --format markdown
fi
