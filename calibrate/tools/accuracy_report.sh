#!/usr/bin/env bash
# The page about accuracy on networks and layers that no fit saw:
#   cargo build --release -p joulecast-calibrate && calibrate/tools/accuracy_report.sh > reports/published/accuracy.md
# Takes five minutes on two cores.
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
role `test` (`data/splits.toml`); no network measured whole enters a layer fit. Commands below also take `--calibrations FITS`. This page: `calibrate/tools/accuracy_report.sh`.

Columns: mean absolute error in percent of time, power and energy, their bias and largest error, how many of the 90 % intervals hold the measurement, and the plain roofline's error. "launch-bound": the host is predicted to be
slower than the GPU. Power and clock are foreseen, nothing of the run is used.

## Kernels back to back (CUDA graph, our runner)

TEXT
show --networks "$data/networks.csv"
printf '## PyTorch, eager and as a CUDA graph\n\nThe profile is tuned on the two networks with the role `profile` alone.\n\n'
show --framework pytorch --networks "$data/torch_networks.csv" --networks "$data/torch_runs.csv"
printf '## Every run of the test networks through PyTorch\n\n'
show --framework pytorch --role test --rows --networks "$data/torch_runs.csv"
printf '## Layers\n\n`calibrate validate --layers --evaluation --dataset %s/layers --format markdown`\n\n' "$data"
"$calibrate" validate --layers --evaluation --dataset "$data/layers" --format markdown
