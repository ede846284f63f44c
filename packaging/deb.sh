#!/usr/bin/env bash
# A Debian package of predict with its manual pages, completions and notices, from a program that is built:
#   packaging/deb.sh PROGRAM OUT.deb
# Needs dpkg-deb. A program that is linked with musl depends on nothing.
set -euo pipefail
cd "$(dirname "$0")/.."
program=$(realpath "$1")
out=$(realpath -m "$2")
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
architecture=${ARCHITECTURE:-$(dpkg --print-architecture)}
root=$(mktemp -d)
trap 'rm -r "$root"' EXIT
doc=$root/usr/share/doc/joulecast

install -D -m 755 "$program" "$root/usr/bin/predict"
packaging/man.sh "$root/usr/bin/predict" "$root/usr/share/man/man1"
gzip -9n "$root"/usr/share/man/man1/*
for shell in bash:bash-completion/completions/predict zsh:zsh/vendor-completions/_predict fish:fish/vendor_completions.d/predict.fish; do
  mkdir -p "$(dirname "$root/usr/share/${shell#*:}")"
  "$program" completions "${shell%%:*}" > "$root/usr/share/${shell#*:}"
done
install -D -m 644 README.md "$doc/README.md"
install -m 644 LICENSE-MIT LICENSE-APACHE packaging/THIRD-PARTY.txt "$doc/"
cat > "$doc/copyright" << 'END'
MIT or Apache-2.0, at your option: LICENSE-MIT, LICENSE-APACHE. Crates that the program holds, and measurements that its
calibrations are computed from: THIRD-PARTY.txt.
END
gzip -9nc CHANGELOG.md > "$doc/changelog.gz"
find "$root" -type d -exec chmod 755 {} +
find "$root" -type f ! -path '*/bin/*' -exec chmod 644 {} +

needs=
if ldd "$program" > /dev/null 2>&1; then needs="Depends: libc6 (>= 2.34), libgcc-s1"; fi
mkdir "$root/DEBIAN"
{
  printf 'Package: joulecast\nVersion: %s\nArchitecture: %s\n' "$version" "$architecture"
  printf 'Maintainer: Joulecast contributors <contributors@joulecast.invalid>\nSection: science\nPriority: optional\n'
  printf 'Installed-Size: %s\n' "$(du -sk "$root/usr" | cut -f 1)"
  if [ -n "$needs" ]; then echo "$needs"; fi
  printf 'Description: time, power and energy of neural networks on GPUs, before they run\n'
  printf ' predict says how long a step of a network takes on a GPU, at which power and with\n how much energy, with 90 %% intervals. No GPU is needed.\n'
} > "$root/DEBIAN/control"
dpkg-deb --build --root-owner-group "-Z${COMPRESSION:-xz}" "$root" "$out"
