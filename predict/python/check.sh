#!/usr/bin/env bash
# Builds the wheel, installs it into an environment of its own and tests it: pytest, doctests, stubtest and mypy.
# Needs Python 3.10 or newer with venv, and a package index for maturin, pytest, mypy and pyarrow; what was installed is kept.
#
# check.sh [PROFILE]: of cargo; dev without. The last line says "N passed, M failed, K skipped". 77: it cannot run here, and said
# why.
set -uo pipefail
cd "$(dirname "$0")"
profile=${1:-dev}
export JOULECAST_PROFILE=$profile
target=${CARGO_TARGET_DIR:-../../target}
environment=$target/python
python=${PYTHON:-python3}

absent() {
  echo "$1"
  exit 77
}

"$python" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 10))' 2> /dev/null || absent "no Python 3.10 with venv"
needed="maturin>=1.9.4,<2 pytest>=8 mypy>=1.14 pyarrow>=14 typing_extensions"
if [ ! -x "$environment/bin/python" ] || [ "$(cat "$environment/needed" 2> /dev/null)" != "$needed" ]; then
  rm -rf "$environment"
  "$python" -m venv "$environment" || absent "no environment could be made"
  # shellcheck disable=SC2086
  "$environment/bin/python" -m pip install -q --disable-pip-version-check $needed || absent "packages that test it cannot be had"
  echo "$needed" > "$environment/needed"
fi
bin=$(cd "$environment/bin" && pwd)

passed=0
failed=0
skipped=0
check() {
  local name=$1
  shift
  echo "+ $*"
  if "$@"; then passed=$((passed + 1)); else failed=$((failed + 1)) && echo "failed: $name"; fi
}

wheels=$(mktemp -d)
trap 'rm -rf "$wheels"' EXIT
check wheel "$bin/maturin" build -q --profile "$profile" --locked --out "$wheels"
check install "$bin/python" -m pip install -q --disable-pip-version-check --force-reinstall --no-deps --no-index --find-links "$wheels" joulecast

if [ "$failed" -gt 0 ]; then
  echo "$passed passed, $failed failed, 0 skipped"
  exit 1
fi

# From elsewhere: the sources here have no compiled module.
here=$(pwd)
log=$wheels/pytest.log
installed=$(cd / && "$bin/python" -c 'import joulecast, os; print(os.path.dirname(joulecast.__file__))')
run() {
  echo "+ pytest $1"
  shift
  (cd "$wheels" && "$bin/python" -m pytest -q -p no:cacheprovider --rootdir "$here" -rs --durations 5 "$@") 2>&1 | tee "$log"
  count() { grep -E '^[0-9]+ .* in [0-9.]+s' "$log" | tail -n 1 | grep -oE "[0-9]+ $1" | grep -oE '^[0-9]+' || echo 0; }
  passed=$((passed + $(count passed)))
  failed=$((failed + $(count failed) + $(count errors?)))
  skipped=$((skipped + $(count skipped)))
}
run tests "$here/tests"
run doctests --doctest-modules "$installed"
check stubtest env -C "$wheels" "$bin/python" -m mypy.stubtest joulecast --mypy-config-file "$here/mypy.ini"
check mypy env -C "$wheels" "$bin/python" -m mypy --config-file "$here/mypy.ini" -p joulecast
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
