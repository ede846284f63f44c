# What the shipped calibrations and the evaluation fit are fitted to, beside the imported rows; sourced by them.
own=data/measurements/h200
sister=data/measurements/h100
rows=()
for folder in "$own"/{layers,lattice,batches,ragged,ragged16,between,forward,windows,seldom,patches,straying,thin,power,torch_ops,algorithms} "$sister"/{layers,lattice,gradients,seldom,thin,power,torch_ops}; do
  rows+=(--dataset "$folder")
done
for file in gh100 gh100_networks h200_ragged h200_ragged_16; do rows+=(--choices "data/measurements/choices/$file.parquet"); done
runs=()
for file in "$own"/{networks,torch_networks,torch_transformer_networks,torch_transformer_networks_2}.csv; do
  runs+=(--networks "$file")
done
# Networks of the sealed rounds that were measured: some with the role conformal, the others development.
for round in 1 2 3 4 5 6 8 9 10 11 12 13 15 16 17 19 20 21 22 23 24 25; do runs+=(--networks "data/measurements/sealed/round_$round.csv"); done
# What the latest of them foresaw before they were measured: intervals of networks.
for round in 13 15 16 17 19 20 21 22 23 24 25; do runs+=(--sealed "data/sealed/round-$round"); done
