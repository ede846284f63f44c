#!/usr/bin/env bash
# Makes the pages of reports/published, all of them or those named, and says in each what it was made from:
#   cargo build --release -p joulecast-calibrate && calibrate/tools/publish.sh [NAME...]
#   calibrate/tools/publish.sh --stamp NAME...    makes them, and says it anew of those that are as they were; shows how others differ
#   calibrate/tools/publish.sh --unmade REASON NAME...    says it anew, and that the page was not made again, and why
#
# A page is what calibrate/tools/NAME_report.sh prints: NAME.md, or NAME.json where that is an object. Lines `# inputs:`
# of that script list what it is made from, files or folders of the repository. Their SHA-256 (of a folder: of its
# files' sums as sha256sum prints them in the order of their names, README.md left out) make the stamp: a comment at the
# end of a page, a key "made_from" of an object. Of FILE#A|B only the lines that end with = "A" or = "B" count: roles of
# networks, so that a line for another network changes nothing. Code that predicts and fits is stood for by
# its golden values, which are among the inputs. Lines `# code:` list folders of the code that judges or counts; every file *.rs in
# them and their folders counts up to its tests (the line "mod tests {"), but for tests.rs and oracles.rs.
# `cargo test -p joulecast-tests --test published` fails where any of it has changed since. Rows that others published are
# not in the repository: the calibrations fitted to them stand for them.
set -euo pipefail
export LC_ALL=C
# Pages depend on nobody's host (joulecast/host.toml).
export XDG_CONFIG_HOME=/nonexistent
cd "$(dirname "$0")/../.."
pages=reports/published

inputs_of() {
  sed -n 's/^# inputs: *//p' "calibrate/tools/$1_report.sh"
}

# Lines "SUM  PATH" of everything a page is made from.
sums() {
  local input sum
  for input in $(inputs_of "$1"); do
    if [ "${input#*#}" != "$input" ]; then
      sum=$(grep -E "= \"(${input#*#})\"\$" "${input%%#*}" | sort | sha256sum)
    elif [ -d "$input" ]; then
      sum=$(cd "$input" && sha256sum -- $(ls -p | grep -v -e / -e '^README.md$') | sha256sum)
    else
      sum=$(sha256sum < "$input")
    fi
    echo "${sum%% *}  $input"
  done
  for input in $(sed -n 's/^# code: *//p' "calibrate/tools/$1_report.sh"); do
    sum=$(cd "$input" && find . -name '*.rs' -type f ! -name tests.rs ! -name oracles.rs | sort | while IFS= read -r file; do
      sum=$(sed '/^mod tests {$/,$d' "$file" | sha256sum)
      echo "${sum%% *}  $file"
    done | sha256sum)
    echo "${sum%% *}  $input/**"
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
    [ -z "$unmade" ] || list+=$'\n'"not made again: $unmade"
    list=$(sed 's/.*/"&"/' <<< "$list" | paste -sd ',' | sed 's/,/, /g')
    { echo "{"; echo "  \"made_from\": [\"calibrate/tools/publish.sh $name\", $list],"; tail -n +2 <<< "$text"; } > "$pages/$name.json"
  else
    printf '%s\n\n<!-- made by calibrate/tools/publish.sh %s from\n%s%s\n-->\n' "$text" "$name" "$list" "${unmade:+$'\n'not made again: $unmade}" > "$pages/$name.md"
  fi
}

stamp=
unmade=
case "${1:-}" in
  --stamp)
    stamp=yes
    shift
    [ $# -gt 0 ] || { echo "--stamp NAME..." >&2; exit 2; }
    ;;
  --unmade)
    unmade=${2:-}
    [ $# -gt 2 ] && [ -n "$unmade" ] || { echo "--unmade REASON NAME..." >&2; exit 2; }
    case $unmade in *[\"\\]* | *--* | *$'\n'*) echo "--unmade: the reason is one line without quotes and dashes in a row" >&2; exit 2 ;; esac
    shift 2
    ;;
esac
if [ $# -eq 0 ]; then
  for script in calibrate/tools/*_report.sh; do
    name=${script##*/}
    set -- "$@" "${name%_report.sh}"
  done
fi
for name; do
  [ -f "calibrate/tools/${name}_report.sh" ] || { echo "no calibrate/tools/${name}_report.sh" >&2; exit 2; }
  if [ -n "$stamp$unmade" ]; then
    was=$(cat "$pages/$name".md "$pages/$name".json 2> /dev/null || true)
    [ -n "$was" ] || { echo "no page $pages/$name" >&2; exit 1; }
    was=$(bare <<< "$was")
  fi
  if [ -n "$unmade" ]; then
    text=$was
  else
    echo "$name" >&2
    text=$("calibrate/tools/${name}_report.sh")
    if [ -n "$stamp" ] && ! diff <(echo "$was") <(bare <<< "$text") >&2; then
      echo "$pages/$name is not what is made now: read the difference, then calibrate/tools/publish.sh $name" >&2
      exit 1
    fi
  fi
  write "$name" <<< "$text"
done
