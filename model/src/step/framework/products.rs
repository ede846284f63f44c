//! Products over rows of samples that lie apart.

use crate::base::file::{FileError, within};
use crate::base::precision::{Mode, Phase};
use crate::base::units::{Bytes, Seconds};
use crate::device::gpu::Gpu;
use crate::net::cost::LayerCost;
use crate::net::network::ShapedLayer;
use serde::Deserialize;

/// A framework that computes them as a product for each sample, each of which reads all weights.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RowsApart {
    /// Share of the bandwidth at which weights are read again.
    bandwidth: f64,
}

impl RowsApart {
    /// What is read again by all samples but the first, and how long that takes; nothing of all other layers, of weights that
    /// stay in the second-level cache, and in training, where rows are copied together for the gradient of the weights.
    pub(crate) fn again(
        &self,
        layer: &ShapedLayer,
        (phase, mode): (Phase, Mode),
        (batch, cost): (u64, &LayerCost),
        gpu: &Gpu,
    ) -> Option<(Bytes, Seconds)> {
        let stays = gpu.l2.as_ref().is_some_and(|cache| cost.weights <= cache.value);
        if !layer.apart || phase != Phase::Forward || mode != Mode::Inference || batch < 2 || stays {
            return None;
        }
        let bytes = Bytes::new(cost.weights.get().saturating_mul(batch - 1));
        Some((bytes, bytes / (gpu.bandwidth.value * self.bandwidth)))
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RowsApartFile {
    bandwidth: f64,
    #[serde(rename = "source")]
    _source: String,
}

impl RowsApartFile {
    pub(super) fn read(self) -> Result<RowsApart, FileError> {
        Ok(RowsApart { bandwidth: within("rows_apart bandwidth", self.bandwidth, 0.01..=1.0)? })
    }
}

#[cfg(test)]
mod tests {
    use crate::base::precision::{Mode, Precision};
    use crate::catalog;
    use crate::step::generation;
    use crate::step::predict::Predictor;
    use crate::step::predictor::LayerPrediction;

    /// The logits of a prompt of 1024 tokens of every sample.
    fn logits(framework: &str, batch: u64) -> LayerPrediction {
        let (gpu, framework) = (catalog::gpu("h100"), catalog::framework(framework));
        let predictor = Predictor::shipped(gpu.expect("shipped"), framework.expect("shipped"));
        let network = catalog::network("llama3_2_1b").expect("shipped");
        let prefill = generation::prefill(&network, 1024).expect("generates");
        let shaped = predictor.shape(&prefill, batch, Precision::Bf16, &[]).expect("fits");
        let mut step = predictor.predict(&shaped, Mode::Inference).expect("predicts");
        step.layers.pop().expect("has logits")
    }

    /// Measured: 733 us at batch 4 (data/measurements/h100/torch_language_profile.csv), where one reading takes 165 to 190.
    #[test]
    fn modules_as_written_read_the_vocabulary_once_for_every_sample() {
        let [one, four] = [1, 4].map(|batch| logits("pytorch", batch));
        assert!((one.time.value.to_us() / 188.0 - 1.0).abs() < 0.15, "{}", one.time.value);
        assert!((four.time.value.to_us() / 733.0 - 1.0).abs() < 0.1, "{}", four.time.value);
        let weights = 128_256 * 2048 * 2;
        assert!((four.read.get() - one.read.get()).abs_diff(3 * weights) < 100_000);
        // It draws what reading draws all the while.
        assert!((four.power / one.power - 1.0).abs() < 0.2, "{} and {}", four.power, one.power);
        let relative = |l: &LayerPrediction| l.time.p95 / l.time.value;
        assert!((relative(&four) / relative(&one) - 1.0).abs() < 0.1);
    }

    #[test]
    fn engines_gather_rows_and_read_it_once() {
        let [one, four] = [1, 4].map(|batch| logits("vllm", batch));
        assert!(four.time.value < one.time.value * 1.1, "{} and {}", four.time.value, one.time.value);
    }
}
