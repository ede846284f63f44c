#!/usr/bin/env bash
# The page about held-out layer times; needs the imported rows (README.md, Calibrations), fifteen minutes on two cores.
# inputs: data/gpus data/calibrations data/measurements/h200/layers
# code: model/src reports/src calibrate/src
set -euo pipefail
cd "$(dirname "$0")/../.."
target/release/calibrate validate --layers --dataset data/imported --dataset data/measurements/h200/layers --format markdown
