#!/usr/bin/env bash
# The validation report of the H200, target/validation/report.html with its figures as SVG and PNG: layers held out of
# every fold, and test networks by a fit without their shapes. Ten minutes on two cores, most of it the two fits:
#   cargo build --release -p joulecast-calibrate && calibrate/tools/validate_h200.sh
set -euo pipefail
cd "$(dirname "$0")/../.."
calibrate=target/release/calibrate
data=data/measurements/h200
fits=target/evaluation
"$calibrate" fit --dataset "$data/layers" --dataset "$data/torch_ops" --networks "$data/networks.csv" \
  --networks "$data/torch_networks.csv" --evaluation --force --out "$fits"
"$calibrate" validate --report target/validation --force --layers --dataset "$data/layers" --calibrations "$fits" \
  --networks "$data/networks.csv" --networks "$data/torch_runs.csv" --networks "$data/torch_networks.csv" \
  --networks "$data/torch_transformer_networks.csv" --networks "$data/torch_transformer_networks_2.csv"
