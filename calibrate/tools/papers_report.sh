#!/usr/bin/env bash
# Papers' tables beside predictions; a second.
# inputs: data/splits.toml data/gpus data/frameworks data/interconnects data/libraries data/nets data/calibrations data/published/papers
# code: model/src reports/src
set -euo pipefail
cd "$(dirname "$0")/../.."
target/release/predict papers --format markdown
