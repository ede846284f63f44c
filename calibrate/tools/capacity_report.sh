#!/usr/bin/env bash
# The worked capacity plan; seconds.
# inputs: data/capacity/tagging.toml data/gpus data/frameworks data/nets data/calibrations
set -euo pipefail
cd "$(dirname "$0")/../.."
target/release/predict plan data/capacity/tagging.toml --format markdown
