#!/usr/bin/env bash
# Papers' tables beside predictions by evaluation fits, which know no layer of these networks' shapes. Needs the imported
# rows (reports/book/src/calibrate.md); ten minutes on two cores, a second with EVALUATION_FITS=DIR from an earlier run of evaluation_fit.sh.
# inputs: data/splits.toml#development|test|conformal data/gpus data/frameworks data/interconnects data/libraries data/calibrations data/published/papers
# inputs: data/nets/alexnet.toml data/nets/alexnet_bvlc.toml data/nets/alexnet_cifar10.toml data/nets/caffenet.toml data/nets/castro_resnetim.toml data/nets/castro_resnetim_text.toml data/nets/gait_cnn2d.toml data/nets/gait_cnn2d_text.toml data/nets/gait_resnet.toml data/nets/gait_resnet_text.toml data/nets/googlenet.toml data/nets/googlenet_bn.toml data/nets/googlenet_cifar10.toml data/nets/inception_v3.toml data/nets/inception_v4.toml data/nets/lenet5.toml data/nets/resnet152.toml data/nets/resnet50.toml data/nets/resnet50_cifar10.toml data/nets/vgg16.toml data/nets/vgg16_cifar10.toml data/nets/vgg19.toml
# inputs: model/tests/golden/values.txt
# code: model/ask/src/papers
set -euo pipefail
cd "$(dirname "$0")/../.."
fits=${EVALUATION_FITS:-}
if [ -z "$fits" ]; then
  fits=$(mktemp -d)
  trap 'rm -r "$fits"' EXIT
  calibrate/tools/evaluation_fit.sh "$fits" > /dev/null
fi
target/release/predict papers --calibrations "$fits" --format markdown
