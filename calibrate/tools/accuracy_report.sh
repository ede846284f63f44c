#!/usr/bin/env bash
# The page about accuracy on networks that no fit saw. Needs the imported rows (reports/book/src/calibrate.md); twelve minutes on
# two cores, two with EVALUATION_FITS=DIR from an earlier run of evaluation_fit.sh.
# inputs: data/splits.toml#development|test|conformal|profile data/gpus/h200.toml data/frameworks data/calibrations data/measurements/h200/layers data/measurements/h200/lattice data/measurements/h200/batches data/measurements/h200/forward data/measurements/h200/windows data/measurements/h200/seldom data/measurements/h200/patches data/measurements/h200/thin data/measurements/h200/power data/measurements/choices data/measurements/h100/layers data/measurements/h100/lattice data/measurements/h100/gradients data/measurements/h100/seldom data/measurements/h100/thin data/measurements/h100/power
# inputs: data/measurements/h200/torch_ops data/measurements/h200/algorithms data/measurements/h200/networks.csv data/measurements/h200/torch_networks.csv data/measurements/h200/torch_runs.csv
# inputs: data/measurements/h200/torch_transformer_networks.csv data/measurements/h200/torch_transformer_networks_2.csv
# inputs: data/measurements/h200/torch_training.csv data/measurements/h200/torch_imported.csv data/measurements/h200/torch_imported
# inputs: data/measurements/h100/torch_ops data/measurements/h200/straying data/measurements/sealed
# inputs: model/tests/golden/values.txt calibrate/tests/golden/fits.txt
# code: calibrate/src/judge
set -euo pipefail
cd "$(dirname "$0")/../.."
calibrate=target/release/calibrate
data=data/measurements/h200
fits=${EVALUATION_FITS:-}
if [ -z "$fits" ]; then
  fits=$(mktemp -d)
  trap 'rm -r "$fits"' EXIT
  calibrate/tools/evaluation_fit.sh "$fits" > /dev/null
fi
transformers=(--networks "$data/torch_transformer_networks.csv" --networks "$data/torch_transformer_networks_2.csv")

show() {
  printf '`calibrate validate %s`\n\n' "$*"
  "$calibrate" validate --calibrations "$fits" --format markdown "$@"
  echo
}

cat <<'TEXT'
# Accuracy on what no fit saw (H200)

**Development**: no fit saw these layers, but features, constants and rules were chosen while these errors were in view. What was predicted, committed and only then measured is in [sealed.md](sealed.md), as *test*.

Everything here is predicted by the evaluation fit of `calibrate/tools/evaluation_fit.sh FITS`: all imported rows and all of our own, without any shape that occurs in a network with the
role `development` (`data/splits.toml`) or in one that lies beside a file of runs (`torch_imported/`); no network measured whole enters a layer fit. Commands below also take `--calibrations FITS`. This page: `calibrate/tools/publish.sh accuracy`.

Columns: mean absolute error in percent of time, power and energy, their bias and largest error, how many of the 90 % intervals hold the measurement, and the plain roofline's error. "launch-bound": the host is predicted to be
slower than the GPU. Power and clock are foreseen, nothing of the run is used.

## Where it falls short

* *Convolutions.* cuDNN's choice of engine jumps. Engines are foreseen (MODELLING.md, "Engines"), right for nine shapes in ten in fp32 and eight in 16 bits; a shape whose engine is foreseen wrong is 25 to 60 % off. With the true engine fp32 would be at 10 %, 16 bits at 14 to 17.
* *A stage repeats its shapes*: ResNet-101 in fp32 has the same three convolutions 23 times, and their common error (18 %) does not cancel.
* *Launch-bound steps*: the host's time for the same step differs by machine and by the minute (`data/measurements/h200/torch_steps.csv`: densenet169 at batch 1 took 12.6, 19.0 and 20.9 ms of host within seconds, mnasnet0_5 4.7 and 2.7 ms for the same launches).
  The table of host times is the mean of two machines. Where the host is steady a step takes what the slower of host and GPU takes, and 1.6 us more for each layer than a graph.
* *Small grids of fp32 convolutions*: power is 12 % off where few multiprocessors work. The law of power got a sparse correction (layers 7.1 to 6.6 %, energy of PyTorch's graphs 8.2 to 7.7 %); our own runner's networks, of short kernels, got worse by it (power 5.5 to 6.9 %).
* *Training through PyTorch*: convolutions' gradients in TF32 are 7 % too long; sums of gradients where branches join are costed (our own runner's steps, which were long already, got longer by them: 8.3 to 10.4 %).
* *Language models*: steps that the host bounds are up to half too short: transformers' models cost the host 0.4 ms (encoders) to 1.2 ms (causal models, which wait for a mask's check) a step more than their layers, and 1.2 to 1.5 times as much per block (`torch_host_steps.csv`). No profile has that yet.
* *Networks that are not in the zoo*: kernels that nothing like them was measured of: interpolation in channels-last fp16 (lraspp), group norm (poolformer), depthwise 9x9 (convmixer), and constants that an export folds but PyTorch computes anew in each step (Swin v2's position bias).
* *cuDNN's own trials* (`torch.backends.cudnn.benchmark`, `torch_benchmark.csv`) make fp32 networks up to 1.7 times as fast as its heuristics, by which everything here ran; `--conv-algorithm winograd_nonfused` comes nearer to them (VGG-16 b64 through PyTorch in a graph: 51.3 ms by heuristics, 40.1 by trials, 31.5 predicted, 21 % too short).
* *Gradients in 16 bits*: batch norm and convolution gradients of our own runner are predicted up to 10 % too long.
* Depthwise windows in NCHW and SiLU networks (EfficientNet) at small batches are up to 50 % too long.

## What made it better, in this order (test networks through PyTorch, GPU-bound: time, power, energy in percent)

| step | graph | eager |
| --- | --- | --- |
| kernels of PyTorch's own taken as ours, times a factor | 9.3 / 9.3 / 10.1 | 12.1 / 12.5 / 8.7 |
| a model of its own for each of them (`data/measurements/h200/torch_ops`) | 6.9 / 8.0 / 9.2 | 7.3 / 8.4 / 8.2 |
| power of a network's own values, 8 % less than that of random operands (profile networks) | 7.0 / 6.3 / 8.7 | 8.0 / 5.2 / 8.3 |
| gaps of 0.4 us between kernels of a graph (profile networks) | 6.5 / 6.3 / 8.0 | 7.9 / 5.1 / 8.3 |

Training (eager, the ten runs that were GPU-bound then): 13.7 % in time and 7.7 in energy, until bias gradients were those of large maps too, kernels of an eager step 1.6 us further apart, and the host waited for a scaled loss and took 0.75 to 0.9 ms for a step besides its layers: 9.9 and 6.5 by the fits of then. As a graph (36 runs, measured after that): below.

Launch-bound eager steps went from 22 to 16 % in time with the host's cost by layer kind. Intervals of networks come from the twelve networks with the role `conformal`, one left out at a time (`fit --networks`).

Layer times on other GPUs: [layers.md](layers.md); on GPUs left out of every fit, and with 20 to 100 rows of theirs: [transfer.md](transfer.md); papers' tables: [papers.md](papers.md).

## Kernels back to back (CUDA graph, our runner)

TEXT
show --networks "$data/networks.csv"
printf '## PyTorch, eager and as a CUDA graph\n\nThe profile is tuned on the two networks with the role `profile` alone.\n\n'
show --framework pytorch --networks "$data/torch_networks.csv" --networks "$data/torch_runs.csv"
printf '## Training steps of the GPU alone\n\nAs CUDA graphs, which wait for no host: AlexNet, VGG-16 and -19, ResNet-50 and -152, ViT at batch 32 and 128.\n\n'
show --framework pytorch --networks "$data/torch_training.csv"
printf '## Networks that are not in the zoo\n\nOf torchvision and timm, as CUDA graphs, predicted from their ONNX exports (`predict convert --unfold-batch-norm`). With the batch norms folded, as the exports have them, mean errors of the time were 23.5 %% when these runs were measured.\n\n'
show --framework pytorch --networks "$data/torch_imported.csv"
show --framework pytorch --role development --rows --networks "$data/torch_imported.csv"
printf '## Every run of the test networks through PyTorch\n\n'
show --framework pytorch --role development --rows --networks "$data/torch_runs.csv"
printf '## Transformers through PyTorch\n\nTorchvision'"'"'s ViT, Swin and ConvNeXt; BERT and GPT-2 of transformers; GPT-2 token by token against a cache.\n\n'
show --framework pytorch "${transformers[@]}"
echo 'Layers: [layers.md](layers.md).'
