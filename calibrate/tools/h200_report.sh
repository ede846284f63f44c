#!/usr/bin/env bash
# The page about our H200 measurements, from the files in data/measurements/h200:
#   cargo build --release -p joulecast-calibrate && calibrate/tools/h200_report.sh > reports/published/h200.md
# The last table takes about five minutes.
set -euo pipefail
cd "$(dirname "$0")/../.."
calibrate=target/release/calibrate
data=data/measurements/h200

cat <<'TEXT'
# Measured on H200s

Rows: `data/measurements/h200` (how they were made: its README). This page: `calibrate/tools/h200_report.sh`.

## The card's own ceilings, and our kernels

`calibrate check` on the card (every kind, phase, precision and layout against a reference on the CPU, then ceilings and bandwidths):

TEXT
sed 's/^/    /' "$data/check.txt"
printf '\n## Layer rows: coverage and quality\n\n`calibrate status %s/layers --format markdown`\n\n' "$data"
"$calibrate" status "$data/layers" --format markdown
printf '\n## Layers, networks and PyTorch\n\n`calibrate/tools/compare_layers.py` over the files of `calibrate measure`, `torch_layers.py` and `torch_networks.py`\n\n'
python3 calibrate/tools/compare_layers.py --layers "$data/network_layers.csv" --torch-layers "$data/torch_layers.csv" \
  --networks "$data/networks.csv" --torch-networks "$data"/torch_networks*.csv
printf '\n## What a plan buys\n\n'
for level in quick standard reference; do
  printf '    $ calibrate plan --level %s | tail -n 1\n    %s\n' "$level" "$("$calibrate" plan --level "$level" | tail -n 1)"
done
printf '\nError on the same held-out shapes, when only the rows of a plan are learned from (grouped 5-fold over all rows; `calibrate validate --layers --levels --dataset %s/layers --format markdown`):\n\n' "$data"
"$calibrate" validate --layers --levels --dataset "$data/layers" --format markdown
