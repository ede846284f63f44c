#!/usr/bin/env bash
# Builds the page into predict/web/dist: static files for any server. `--no-opt` leaves wasm-opt out.
# Needs Rust with rustup; installs the target for WebAssembly where it is absent. wasm-opt is $WASM_OPT, that of PATH, or
# else npm's binaryen; without any the module is larger and works the same.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cd "$here/../.."
dist=$here/dist
target=${CARGO_TARGET_DIR:-target}

if command -v rustup > /dev/null && ! rustup target list --installed | grep -qx wasm32-unknown-unknown; then
  rustup target add wasm32-unknown-unknown
fi
cargo build --locked --profile web -p joulecast-web --lib --features fetched --target wasm32-unknown-unknown
module=$target/wasm32-unknown-unknown/web/joulecast_web.wasm

made=$(mktemp -d)
trap 'rm -rf "$made"' EXIT
features=(--enable-bulk-memory --enable-bulk-memory-opt --enable-multivalue --enable-mutable-globals \
  --enable-nontrapping-float-to-int --enable-reference-types --enable-sign-ext)
optimise() { "$@" -O2 "${features[@]}" "$module" -o "$made/joulecast.wasm" > /dev/null; }
if [ "${1:-}" = --no-opt ]; then
  cp "$module" "$made/joulecast.wasm"
elif [ -n "${WASM_OPT:-}" ]; then
  optimise "$WASM_OPT"
elif command -v wasm-opt > /dev/null; then
  optimise wasm-opt
elif ! command -v npx > /dev/null || ! optimise npx --yes --package binaryen@132 wasm-opt 2> "$made/why"; then
  echo "no wasm-opt: the module is not optimised" >&2
  cp "$module" "$made/joulecast.wasm"
fi

new=$made/dist
mkdir "$new"
cp "$here"/page/* "$new"
cp "$made/joulecast.wasm" "$new"
cp data/capacity/tagging.toml "$new/plan.toml"
cargo run --locked --quiet -p joulecast-data --example packed -- "$new/data"

# What the worker keeps goes by what is in it.
version=$(cd "$new" && find . -type f | LC_ALL=C sort | xargs sha256sum | sha256sum | cut -c 1-16)
sed -i.old "s/@VERSION@/$version/" "$new/sw.js" && rm "$new/sw.js.old"
rm -rf "$dist"
mv "$new" "$dist"

du -k "$dist/joulecast.wasm" | awk '{ print "joulecast.wasm: " $1 " KiB" }'
echo "$dist: version $version; serve it with any static server, such as python3 -m http.server -d $dist"
