#!/usr/bin/env bash
# The mutants of what decides predictions and fits, as `cargo mutants --list --json` prints them.
set -euo pipefail
cd "$(dirname "$0")/../.."
files=(-f 'model/ask/src/capacity/**')
for part in kernel/features step/predictor law/power step/parallel net/layer net/network step/memory; do
  files+=(-f "model/src/$part.rs" -f "model/src/$part/*.rs" -f "model/src/$part/**/*.rs")
done
cargo mutants --workspace --list --json "${files[@]}" -f 'calibrate/src/fit/**' -f calibrate/src/rows/prepare.rs \
  -f calibrate/src/judge/networks.rs -f calibrate/src/judge/spread.rs
