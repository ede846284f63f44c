#!/usr/bin/env bash
# Makes every shipped calibration anew from the sources that it names, and compares:
#   cargo build --release -p joulecast-calibrate && calibrate/tools/rebuild.sh SOURCES [OUT]
#
# SOURCES holds the files that data/published/sources.toml names, by the last part of their paths:
#   DeepBench_NV_{1080Ti,M40,P100,T4,TitanX,TitanX_Pascal,TitanXp,V100}.xlsx    as DeepBench published them
#   neusight/{conv,linear,bmm}-Tesla V100-PCIE-32GB.csv                         NeuSight's files of that card, so renamed
#   neusight_{conv,linear,bmm,elementwise,ln,softmax}.csv                       NeuSight's files of all cards as tables
#   convnet_benchmarks_layers.csv                                               convnet-benchmarks' logs as a table
#   aic_{gemm,attention_context,attention_generation,moe}.parquet               AIConfigurator's kernels as tables
# Every file whose SHA-256 is in sources.toml must have it. The V100's rows are in the first and the second form of
# NeuSight: rows that are there twice are fitted once, as published and not rounded to six digits.
# Our own rows are in data/measurements. OUT (default: target/rebuilt) gets the dataset and the calibrations; ten
# minutes on two cores. Ends with 1 unless every file is byte for byte what is shipped.
set -euo pipefail
export LC_ALL=C
cd "$(dirname "$0")/../.."
[ $# -ge 1 ] || { echo "usage: calibrate/tools/rebuild.sh SOURCES [OUT]" >&2; exit 2; }
sources=$(cd "$1" && pwd)
out=${2:-target/rebuilt}
mkdir -p "$out"
out=$(cd "$out" && pwd)
calibrate=$PWD/target/release/calibrate
mappings=$PWD/data/published/mappings
known=$PWD/data/published/sources.toml

# A file's sum where sources.toml knows one: under the file's own name, or that of the original it is a copy of.
check() {
  local sum
  sum=$(sha256sum < "$1")
  grep -q "sha256 = \"${sum%% *}\"" "$known" || { echo "$1: its SHA-256 is not in data/published/sources.toml" >&2; exit 1; }
}

cd "$sources"
boards=(1080Ti M40 P100 T4 TitanX TitanX_Pascal TitanXp V100)
workbooks=("${boards[@]/#/DeepBench_NV_}")
workbooks=("${workbooks[@]/%/.xlsx}")
raw=()
for kind in conv linear bmm; do raw+=("$kind-Tesla V100-PCIE-32GB.csv"); done
tables=()
for kind in conv linear bmm elementwise ln softmax; do tables+=("neusight_$kind"); done
aic=(aic_gemm.parquet aic_attention_context.parquet aic_attention_generation.parquet aic_moe.parquet)
for file in "${aic[@]}" "${workbooks[@]}" "${raw[@]/#/neusight/}" "${tables[@]/%/.csv}" convnet_benchmarks_layers.csv; do check "$file"; done

dataset=$out/imported
rm -rf "$dataset" "$out/calibrations"
{
  "$calibrate" import deepbench "${workbooks[@]}" --dataset "$dataset"
  (cd neusight && "$calibrate" import neusight "${raw[@]}" --dataset "$dataset")
  for table in "${tables[@]}"; do
    "$calibrate" import table "$table.csv" --mapping "$mappings/$table.toml" --dataset "$dataset"
  done
  "$calibrate" import table convnet_benchmarks_layers.csv --mapping "$mappings/convnet_benchmarks.toml" --dataset "$dataset"
  "$calibrate" import aiconfigurator . --dataset "$dataset"
} > "$out/import.log"
cd - > /dev/null

source calibrate/tools/rows.sh
"$calibrate" fit --quiet --dataset "$dataset" "${rows[@]}" "${runs[@]}" --out "$out/calibrations" > "$out/fit.log"

differ=0
for file in "$out"/calibrations/*.toml data/calibrations/*.toml; do
  name=${file##*/}
  [ "$file" = "data/calibrations/$name" ] && [ -f "$out/calibrations/$name" ] && continue
  if cmp -s "data/calibrations/$name" "$out/calibrations/$name"; then
    echo "$name: identical"
  else
    echo "$name: differs"
    differ=1
  fi
done
exit $differ
