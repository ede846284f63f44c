#!/usr/bin/env bash
# The page about accuracy on networks and layers that no fit saw; five minutes on two cores.
# inputs: data/splits.toml data/gpus/h200.toml data/frameworks data/calibrations/gh100.toml data/measurements/h200/layers
# inputs: data/measurements/h200/networks.csv data/measurements/h200/torch_networks.csv data/measurements/h200/torch_runs.csv
set -euo pipefail
cd "$(dirname "$0")/../.."
calibrate=target/release/calibrate
data=data/measurements/h200
fits=$(mktemp -d)
trap 'rm -r "$fits"' EXIT
"$calibrate" fit --dataset "$data/layers" --evaluation --out "$fits" > /dev/null

show() {
  printf '`calibrate validate %s`\n\n' "$*"
  "$calibrate" validate --calibrations "$fits" --format markdown "$@"
  echo
}

cat <<'TEXT'
# Accuracy on what no fit saw (H200)

Everything here is predicted by the evaluation fit: `calibrate fit --dataset data/measurements/h200/layers --evaluation --out FITS`, which leaves out every layer whose shape (without batch) occurs in a network with the
role `test` (`data/splits.toml`); no network measured whole enters a layer fit. Commands below also take `--calibrations FITS`. This page: `calibrate/tools/publish.sh accuracy`.

Columns: mean absolute error in percent of time, power and energy, their bias and largest error, how many of the 90 % intervals hold the measurement, and the plain roofline's error. "launch-bound": the host is predicted to be
slower than the GPU. Power and clock are foreseen, nothing of the run is used.

## Where it falls short

* *Convolutions.* cuDNN's choice of engine jumps: the same window runs as Fourier transform, direct or implicit product with factors of two between them, and shapes whose engine is rare (grouped windows in 16 bits, strided 1x1
  through engine 1, depthwise windows other than 3x3 and 5x5) make most of the mean error; medians are a third to a half lower. Knowing engine and knobs would buy 1 to 5 points (trees on the same variables: fp32 17.6 to 13.7 %, fp16 32 to 27 %);
  more rows near networks' shapes bought more (fp16 above 20 us: 36 to 23 % with three times the rows). ResNet-50's and GoogLeNet's 3x3 in fp32 run as Fourier transforms at twice the predicted speed.
* *Inception blocks in PyTorch* (GoogLeNet: 15 to 25 % too short in graphs): pooling with stride 1 and concatenation run slower there than ours.
* *Launch-bound steps*: the host's time per operation differs by network (9 to 27 us) and by day.
* *Small grids of fp32 kernels*: power is too high where few multiprocessors work.
* *Gradients in 16 bits*: batch norm and convolution gradients of our own runner are predicted 10 % too long.

## Kernels back to back (CUDA graph, our runner)

TEXT
show --networks "$data/networks.csv"
printf '## PyTorch, eager and as a CUDA graph\n\nThe profile is tuned on the two networks with the role `profile` alone.\n\n'
show --framework pytorch --networks "$data/torch_networks.csv" --networks "$data/torch_runs.csv"
printf '## Every run of the test networks through PyTorch\n\n'
show --framework pytorch --role test --rows --networks "$data/torch_runs.csv"
printf '## Layers\n\n`calibrate validate --layers --evaluation --dataset %s/layers --format markdown`\n\n' "$data"
"$calibrate" validate --layers --evaluation --dataset "$data/layers" --format markdown | sed 's/^# /### /'
