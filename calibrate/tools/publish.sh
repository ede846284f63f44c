#!/usr/bin/env bash
# Makes the pages of reports/published, all of them or those named, and says in each what it was made from:
#   cargo build --release -p joulecast-calibrate && calibrate/tools/publish.sh [NAME...]
#   calibrate/tools/publish.sh --stamp NAME...    only says it anew, of pages that are known to hold
#
# A page is what calibrate/tools/NAME_report.sh prints: NAME.md, or NAME.json where that is an object. Lines `# inputs:`
# of that script list what it is made from, files or folders of the repository. Their SHA-256 (of a folder: of its
# files' sums as sha256sum prints them in the order of their names, README.md left out) make the stamp: a comment at the
# end of a page, a key "made_from" of an object. `cargo test -p joulecast-tests --test published` fails where one has
# changed since. Rows that others published are not in the repository: the calibrations fitted to them stand for them,
# and for the code that fits.
set -euo pipefail
export LC_ALL=C
cd "$(dirname "$0")/../.."
pages=reports/published

inputs_of() {
  sed -n 's/^# inputs: *//p' "calibrate/tools/$1_report.sh"
}

# Lines "SUM  PATH" of everything a page is made from.
sums() {
  local input sum
  for input in $(inputs_of "$1"); do
    if [ -d "$input" ]; then
      sum=$(cd "$input" && sha256sum -- $(ls -p | grep -v -e / -e '^README.md$') | sha256sum)
    else
      sum=$(sha256sum < "$input")
    fi
    echo "${sum%% *}  $input"
  done
}

# A page without its stamp, from standard input.
bare() {
  sed -e '/^<!-- made by calibrate\/tools\/publish.sh/,/^-->$/d' -e '/^  "made_from": \[.*\],$/d'
}

# Writes a page from standard input, stamped.
write() {
  local name=$1 text list
  text=$(bare)
  list=$(sums "$name")
  [ -n "$list" ] || { echo "calibrate/tools/${name}_report.sh has no line '# inputs:'" >&2; exit 1; }
  if [ "${text:0:1}" = "{" ]; then
    list=$(sed 's/.*/"&"/' <<< "$list" | paste -sd ',' | sed 's/,/, /g')
    { echo "{"; echo "  \"made_from\": [\"calibrate/tools/publish.sh $name\", $list],"; tail -n +2 <<< "$text"; } > "$pages/$name.json"
  else
    printf '%s\n\n<!-- made by calibrate/tools/publish.sh %s from\n%s\n-->\n' "$text" "$name" "$list" > "$pages/$name.md"
  fi
}

stamp=
if [ "${1:-}" = --stamp ]; then
  stamp=yes
  shift
  [ $# -gt 0 ] || { echo "--stamp NAME..." >&2; exit 2; }
fi
if [ $# -eq 0 ]; then
  for script in calibrate/tools/*_report.sh; do
    name=${script##*/}
    set -- "$@" "${name%_report.sh}"
  done
fi
for name; do
  [ -f "calibrate/tools/${name}_report.sh" ] || { echo "no calibrate/tools/${name}_report.sh" >&2; exit 2; }
  if [ -n "$stamp" ]; then
    text=$(cat "$pages/$name".md "$pages/$name".json 2> /dev/null || true)
    [ -n "$text" ] || { echo "no page $pages/$name" >&2; exit 1; }
  else
    echo "$name" >&2
    text=$("calibrate/tools/${name}_report.sh")
  fi
  write "$name" <<< "$text"
done
