#!/usr/bin/env bash
# Papers' tables beside predictions by evaluation fits, which know no layer of these networks' shapes. Needs the imported
# rows (README.md, Calibrations); three minutes on two cores, a second with EVALUATION_FITS=DIR from an earlier run of the fit.
# inputs: data/splits.toml data/gpus data/frameworks data/interconnects data/libraries data/nets data/calibrations data/published/papers
# code: model/src reports/src
set -euo pipefail
cd "$(dirname "$0")/../.."
fits=${EVALUATION_FITS:-}
if [ -z "$fits" ]; then
  fits=$(mktemp -d)
  trap 'rm -r "$fits"' EXIT
  own=data/measurements/h200
  target/release/calibrate fit --evaluation --quiet --dataset data/imported --dataset "$own/layers" --dataset "$own/torch_ops" \
    --dataset "$own/algorithms" --networks "$own/networks.csv" --networks "$own/torch_networks.csv" \
    --networks "$own/torch_transformer_networks.csv" --networks "$own/torch_transformer_networks_2.csv" --out "$fits" > /dev/null
fi
target/release/predict papers --calibrations "$fits" --format markdown
