#!/usr/bin/env bash
# The page about speed, two minutes on an idle machine. PEER=PYTHON: an interpreter with torch and torchvision, to compare with.
# inputs: model/benches/instructions.csv
set -euo pipefail
cd "$(dirname "$0")/../.."
cat <<'TEXT'
# How fast

`calibrate/tools/publish.sh speed` on one machine on one day: times are that machine's, instructions (`.ci/instructions`) are not. Operations are the library's on one core; a sweep uses all cores.

TEXT
python3 calibrate/tools/speed.py ${PEER:+--peer "$PEER"}
