#!/usr/bin/env bash
# The fit that networks are judged by, without the shapes of networks that are held out, from the imported rows (README.md,
# Calibrations) and all of our own; ten minutes on two cores:
#   calibrate/tools/evaluation_fit.sh OUT
set -euo pipefail
cd "$(dirname "$0")/../.."
[ $# -eq 1 ] || { echo "usage: calibrate/tools/evaluation_fit.sh OUT" >&2; exit 2; }
own=data/measurements/h200
sister=data/measurements/h100
datasets=()
for rows in data/imported "$own"/{layers,lattice,batches,power,torch_ops,algorithms} "$sister"/{layers,lattice,gradients,power}; do
  datasets+=(--dataset "$rows")
done
runs=()
for file in "$own"/{networks,torch_networks,torch_transformer_networks,torch_transformer_networks_2,torch_imported}.csv; do
  runs+=(--networks "$file")
done
target/release/calibrate fit --evaluation --quiet "${datasets[@]}" --choices data/measurements/choices/gh100.parquet "${runs[@]}" --out "$1"
