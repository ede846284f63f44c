#!/usr/bin/env bash
# The worked capacity plan and its figures, reports/figures/capacity; seconds.
# inputs: data/capacity/tagging.toml data/gpus data/frameworks data/calibrations
# inputs: data/nets/mobilenet_v2.toml data/nets/resnet50.toml
# inputs: model/tests/golden/values.txt tests/golden/plan.json
# code: model/ask/src/capacity
set -euo pipefail
cd "$(dirname "$0")/../.."
# The page is two folders deep, the figures are linked from there.
target/release/predict plan data/capacity/tagging.toml --format markdown --figures reports/figures/capacity --force \
  | sed 's#](<reports/figures/#](<../figures/#'
