#!/usr/bin/env bash
# The page about held-out layer times; needs the imported rows (reports/book/src/calibrate.md), twenty minutes on two cores.
# inputs: data/gpus data/calibrations data/measurements/h200/layers data/measurements/h200/lattice data/measurements/h200/batches data/measurements/h200/forward data/measurements/h200/windows data/measurements/h200/seldom data/measurements/h200/thin data/measurements/h200/power
# inputs: data/measurements/h100/layers data/measurements/h100/lattice data/measurements/h100/gradients data/measurements/h100/seldom data/measurements/h100/thin data/measurements/h100/power data/measurements/choices
# inputs: data/measurements/h100/torch_ops data/measurements/h200/straying data/measurements/sealed
# inputs: model/tests/golden/values.txt calibrate/tests/golden/fits.txt
# code: calibrate/src/judge
set -euo pipefail
cd "$(dirname "$0")/../.."
datasets=()
for rows in data/imported data/measurements/h200/{layers,lattice,batches,forward,thin,power} data/measurements/h100/{layers,lattice,gradients,thin,power}; do
  datasets+=(--dataset "$rows")
done
target/release/calibrate validate --layers "${datasets[@]}" --choices data/measurements/choices/gh100.parquet --curves --format markdown
