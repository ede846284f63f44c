#!/usr/bin/env bash
# Manual pages of a program and its subcommands, from what they say of themselves:
#   packaging/man.sh PROGRAM FOLDER
set -euo pipefail
program=$1
folder=$2
name=$(basename "$program")
version=$("$program" --version | head -n 1)
mkdir -p "$folder"

# Text as it stands: backslashes, and lines that would be requests.
verbatim() { sed -e 's/\\/\\e/g' -e "s/^[.']/\\\\\&&/" -e 's/-/\\-/g'; }

page() {
  local title=$1
  shift
  local about help
  help=$(COLUMNS=90 "$program" "$@" --help)
  about=$(printf '%s\n' "$help" | sed '/^$/,$d' | tr '\n' ' ' | sed 's/ *$//')
  {
    printf '.TH "%s" 1 "" "%s" "Joulecast"\n' "$(printf '%s' "$title" | tr '[:lower:]' '[:upper:]')" "$version"
    printf '.SH NAME\n%s \\- %s\n' "$title" "$(printf '%s' "$about" | verbatim)"
    printf '.SH DESCRIPTION\n.nf\n'
    printf '%s\n' "$help" | sed '1,/^$/d' | verbatim
    printf '.fi\n'
  } > "$folder/$title.1"
}

page "$name"
# Names under "Commands:", two blanks in; further lines of what they do are further in.
"$program" --help | sed -n '/^Commands:/,/^$/p' | sed -n 's/^  \([a-z][a-z-]*\) .*/\1/p' | while read -r command; do
  if [ "$command" != help ]; then page "$name-$command" "$command"; fi
done
