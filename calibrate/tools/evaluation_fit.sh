#!/usr/bin/env bash
# The fit that networks are judged by, without the shapes of networks that are held out, from the imported rows (the book,
# Calibrate your GPU) and all of our own; ten minutes on two cores:
#   calibrate/tools/evaluation_fit.sh OUT
set -euo pipefail
cd "$(dirname "$0")/../.."
[ $# -eq 1 ] || { echo "usage: calibrate/tools/evaluation_fit.sh OUT" >&2; exit 2; }
source calibrate/tools/rows.sh
target/release/calibrate fit --evaluation --quiet --dataset data/imported "${rows[@]}" "${runs[@]}" --networks "$own/torch_imported.csv" --out "$1"
