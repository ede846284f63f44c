#!/usr/bin/env bash
# Layer times of chips and of boards that were left out; needs the imported rows (reports/book/src/calibrate.md), twenty minutes on
# two cores.
# inputs: data/splits.toml#development|test data/gpus data/calibrations data/measurements/h200/layers data/measurements/h200/lattice data/measurements/h200/thin
# inputs: data/measurements/h100/layers data/measurements/h100/lattice data/measurements/h100/thin data/measurements/choices
# inputs: model/tests/golden/values.txt calibrate/tests/golden/fits.txt
# code: calibrate/src/judge
set -euo pipefail
cd "$(dirname "$0")/../.."
target/release/calibrate validate --leave-one-chip-out --seeds 3 --evaluation --dataset data/imported --dataset data/measurements/h200/layers --format markdown

cat <<'TEXT'

## Boards of one chip

Trials that an H200 and an H100 both ran, predicted as unseen shapes by the rows of the other board alone.

TEXT
boards=()
for board in h200 h100; do
  boards+=(--dataset "data/measurements/$board/layers" --dataset "data/measurements/$board/lattice" --dataset "data/measurements/$board/thin")
done
printf '`calibrate validate --siblings %s --choices data/measurements/choices/gh100.parquet --format markdown`\n\n' "${boards[*]}"
target/release/calibrate validate --siblings "${boards[@]}" --choices data/measurements/choices/gh100.parquet --format markdown
