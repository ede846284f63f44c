#!/usr/bin/env bash
# Layer times of chips that were left out; needs the imported rows (README.md, Calibrations), ten minutes on two cores.
# inputs: data/splits.toml#development|test data/gpus data/calibrations data/measurements/h200/layers
# code: model/src reports/src calibrate/src
set -euo pipefail
cd "$(dirname "$0")/../.."
target/release/calibrate validate --leave-one-chip-out --seeds 3 --evaluation --dataset data/imported --dataset data/measurements/h200/layers --format markdown
