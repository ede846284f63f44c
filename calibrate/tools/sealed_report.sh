#!/usr/bin/env bash
# The page about sealed tests: what was predicted and committed before it was measured. Nothing is predicted here, so that
# new calibrations change nothing; needs the repository's history. A second round adds its files and folders to the inputs.
# inputs: data/sealed/round-1.toml data/sealed/round-1 data/sealed/round-1/nets data/sealed/round-2.toml data/sealed/round-2 data/sealed/round-2/nets data/sealed/round-3.toml data/sealed/round-3 data/sealed/round-3/nets data/sealed/round-4.toml data/sealed/round-4 data/sealed/round-4/nets
# inputs: data/sealed/round-5.toml data/sealed/round-5 data/sealed/round-5/nets data/sealed/round-6.toml data/sealed/round-6 data/sealed/round-6/nets data/sealed/round-7.toml data/sealed/round-7 data/sealed/round-7/nets data/sealed/round-8.toml data/sealed/round-8 data/sealed/round-8/nets data/sealed/round-9.toml data/sealed/round-9 data/sealed/round-9/nets data/sealed/round-10.toml data/sealed/round-10 data/sealed/round-10/nets data/sealed/round-11.toml data/sealed/round-11 data/sealed/round-11/nets data/sealed/round-12.toml data/sealed/round-12 data/sealed/round-12/nets data/sealed/round-13.toml data/sealed/round-13 data/sealed/round-13/nets data/sealed/round-14.toml data/sealed/round-14 data/sealed/round-14/nets data/sealed/round-15.toml data/sealed/round-15 data/sealed/round-15/nets
# inputs: data/sealed/round-16.toml data/sealed/round-16 data/sealed/round-16/nets data/sealed/round-17.toml data/sealed/round-17 data/sealed/round-17/nets data/sealed/round-18.toml data/sealed/round-18 data/sealed/round-18/nets data/sealed/round-19.toml data/sealed/round-19 data/sealed/round-19/nets data/sealed/round-20.toml data/sealed/round-20 data/sealed/round-20/nets data/sealed/round-21.toml data/sealed/round-21 data/sealed/round-21/nets data/sealed/round-22.toml data/sealed/round-22 data/sealed/round-22/nets data/sealed/round-23.toml data/sealed/round-23 data/sealed/round-23/nets data/sealed/round-24.toml data/sealed/round-24 data/sealed/round-24/nets data/sealed/round-25.toml data/sealed/round-25 data/sealed/round-25/nets data/sealed/round-26.toml data/sealed/round-26 data/sealed/round-26/nets data/sealed/round-27.toml data/sealed/round-27 data/sealed/round-27/nets
# code: calibrate/src/judge/sealed
set -euo pipefail
cd "$(dirname "$0")/../.."
cat <<'TEXT'
# Sealed tests

Networks that nobody had run or looked at were predicted (`calibrate seal`), the predictions committed, and then measured once. How: [data/sealed/README.md](../../data/sealed/README.md). Nothing here is predicted anew: `calibrate sealed data/sealed/round-N` reads the sealed files, whatever was fitted since.

Tables: mean, median, mean signed and largest absolute error, in percent of the measurement; how many 90 % intervals hold it, that share with Wilson's 95 % interval, and the mean half-width of the intervals in percent of the prediction.
Host-bound: the host is foreseen to be slower than the GPU, by what was sealed for a host as fast as it was measured in the visit, or for that of the profile where none was; what is compared is what was sealed for the profile's. Memory is the peak of PyTorch's allocator, without driver and context. Time of host-bound steps is by the profile's table of host times, unless a table says that the host was measured.

TEXT
measured=
for seal in data/sealed/round-*/seal.toml; do
  folder=${seal%/seal.toml}
  if compgen -G "$folder/measured-*.csv" > /dev/null; then
    target/release/calibrate sealed "$folder"
    measured=yes
  fi
done
[ -n "$measured" ] || echo 'No round was measured yet.'
