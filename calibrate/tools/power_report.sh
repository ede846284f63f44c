#!/usr/bin/env bash
# The page about clocks, power limits and power that others published; a minute. Without the rows of Zeus and of the
# sweeps, which are not in this repository (ZEUS_ROWS, SWEEP_ROWS: tidy CSV files of them), these say so.
# inputs: data/gpus data/calibrations data/frameworks data/published/papers data/published/papers/more
# inputs: data/nets/alexnet.toml data/nets/alexnet_bvlc.toml data/nets/caffenet.toml data/nets/castro_resnetim_text.toml data/nets/gait_cnn2d_text.toml data/nets/gait_resnet_text.toml data/nets/googlenet.toml data/nets/inception_v3.toml data/nets/inception_v4.toml data/nets/resnet152.toml data/nets/resnet50.toml data/nets/vgg16.toml data/nets/vgg19.toml
# inputs: model/tests/golden/values.txt calibrate/tests/golden/fits.txt
# code: calibrate/src/judge
set -euo pipefail
cd "$(dirname "$0")/../.."
calibrate=target/release/calibrate
papers=data/published/papers

show() {
  printf '`calibrate published %s`\n\n' "$1${2:+ $2}"
  shift 2
  "$calibrate" published "$@" --markdown
  echo
}

cat <<'TEXT'
# Clocks, power limits and power, beside what others published

The laws are in MODELLING.md ("Clock and limit"). Networks of these papers have the role `development`: no layer of theirs is in an evaluation fit. Calibrations are the shipped ones; kernels back to back, no framework, since these papers'
frameworks have no profile. This page: `ZEUS_ROWS=FILE SWEEP_ROWS=FILE calibrate/tools/publish.sh power`.

## Time and energy under power limits: krzywaniak2022, Tables 2 and 3

Relative to the default limit. The board's constants (`rise`, `held`, `draw` of data/gpus) are fitted to the other networks of that board, never to the one that is judged. "default given": its time and power at the default limit
are known; "unseen": nothing of it. "mean curve": mean of the other networks' curves, interpolated: the baseline. Regret: how much worse a metric is at the listed limit that the prediction calls best than at the best listed one;
baseline: the one limit that is best for the others. Errors in percent, mean of absolute values. The constants fitted without leaving any network out (row "none") are those that data/gpus ships.

TEXT
show "caps $papers/krzywaniak2022.csv" "" caps "$papers/krzywaniak2022.csv"
cat <<'TEXT'
## What the best core clock saves: tang2019, Table III

Over the clocks that the paper set, against the highest, mean over its batches; in percent of the energy, errors in percentage points. "rise of others": the rise of the voltage fitted to the other three networks of that board; "shipped": that of data/gpus,
which is the one fitted to all four. Baseline: mean of the other networks. The V100's savings in training (7 % for AlexNet and GoogLeNet, 18 and 25 % for the others) may come from a host of 2008 that could not keep the card busy (our inference; the paper does not say so).
Table IV, training with convolutions by one algorithm where it can do them (`--conv-algorithm`), comes last: algorithms were measured on an H200 alone, their models are carried here over the roofline. Its fourth column: how many times as long a step
takes as by the library's own choice, for AlexNet, VGG-16, GoogLeNet and ResNet-50. The GTX 2080 Ti was scaled past its boost clock and is left out.

TEXT
show "savings $papers/tang2019.csv $papers/more/tang2019.csv" "" savings "$papers/tang2019.csv" "$papers/more/tang2019.csv"
cat <<'TEXT'
## ResNet-50 in training under power limits: the traces of Zeus (A40, P100)

Relative to the highest limit. Nothing is fitted to the traces: the A40's constants are those of other cards of its architecture and of nvidia-smi printouts, the P100's come from tang2019. Baseline: power = min(limit, power at the
highest limit), time constant. Rows: one epoch of real training each, with its input pipeline (ml-energy/zeus, trace/summary_power_*.csv, Apache-2.0), tidied into the columns that the command names when one is missing.

TEXT
show traces "ZEUS_ROWS" traces ${ZEUS_ROWS:+"$ZEUS_ROWS"}
cat <<'TEXT'
## Average power at the default settings: castro2018, nvidia2015

Runs on one card whose printed power agrees with their printed energy over time within 5 %. The law is the H200's with the card's limit and idle power; nothing is fitted. Then what castro2018 calls GFLOPS/W, by its own operation counts:
its times are of Caffe with cuDNN 6.

TEXT
show "power $papers/castro2018.csv $papers/more/castro2018.csv $papers/nvidia2015.csv" "" power "$papers/castro2018.csv" "$papers/more/castro2018.csv" "$papers/nvidia2015.csv"
cat <<'TEXT'
## Kernels over core clocks: three given, the others foretold

Lowest, middle and highest clock given, per kernel: P0 + a f V(f)^2 with the voltage of data/gpus, t = ((a/f)^p + b^p)^(1/p). Development data (blackjack2015/NV-DVFS-Benchmark, no licence): nothing shipped is fitted to it.
Rows whose clock was evidently not the requested one are left out.

TEXT
show sweeps "SWEEP_ROWS" sweeps ${SWEEP_ROWS:+"$SWEEP_ROWS"}
