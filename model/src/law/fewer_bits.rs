//! Products whose weights are stored in fewer bits than they are multiplied in: kernels that convert on the way take longer than
//! their bytes say, most where a step has some tens of rows and on Hopper.

use super::time::MEAN_OF_HALF_WIDTH;
use crate::base::precision::Phase;
use crate::net::layer::Layer;
use crate::net::network::{ShapedLayer, Weights};

/// Octaves of rows, from 1 on.
const OCTAVES: usize = 14;

/// A chip's factors on the time that bytes and arithmetic say, and 90 % of what single products scatter by in logarithms.
struct Chip {
    name: &'static str,
    factors: [f64; OCTAVES],
    spreads: [f64; OCTAVES],
}

/// Of TensorRT-LLM's int8 weights of 2^24 values and more against bf16: `calibrate/tools/weight_only.py aic_gemm.parquet`, rows of
/// NVIDIA AIConfigurator (`data/published/sources.toml`) on an A100, an H200 and an L40S. Single products of at most 64 rows are
/// 18, 19 and 8 % off in the median with the factors, 26, 42 and 8 by bytes alone; of more 7, 15 and 8, and 8, 24 and 12.
const CHIPS: [Chip; 3] = [
    Chip {
        name: "GA100",
        factors: [1.20, 1.21, 1.32, 1.30, 1.29, 1.31, 1.61, 1.18, 1.01, 1.03, 1.04, 1.01, 1.02, 1.00],
        spreads: [0.43, 0.41, 0.40, 0.45, 0.43, 0.46, 0.46, 0.43, 0.25, 0.25, 0.17, 0.08, 0.06, 0.05],
    },
    Chip {
        name: "GH100",
        factors: [1.32, 1.37, 1.63, 1.82, 1.86, 1.82, 2.03, 2.11, 1.35, 1.28, 1.00, 0.93, 0.91, 0.91],
        spreads: [0.34, 0.34, 0.34, 0.39, 0.48, 0.48, 0.51, 0.49, 0.52, 0.54, 0.30, 0.17, 0.12, 0.19],
    },
    Chip {
        name: "AD102",
        factors: [1.23, 0.99, 1.09, 1.10, 1.10, 1.04, 1.01, 1.05, 1.14, 0.95, 0.87, 0.87, 0.90, 0.84],
        spreads: [0.24, 0.36, 0.42, 0.43, 0.43, 0.42, 0.40, 0.27, 0.22, 0.30, 0.23, 0.11, 0.21, 0.15],
    },
];

/// Of kernels that nobody compared, such as experts', and formats other than int8: as far as the widest of those that were.
const UNKNOWN: f64 = 0.54;

/// What such a product takes beside what its bytes say.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Fewer {
    /// On what the product takes with whole weights times what rooflines say that fewer bytes make of it; none of kernels that
    /// nobody compared.
    pub factor: Option<f64>,
    /// Half of its 90 % interval in logarithms, beside that of its model.
    pub spread: f64,
}

impl Fewer {
    /// Of a layer on so many samples, where its weights are stored so.
    pub fn of(layer: &ShapedLayer, phase: Phase, batch: u64, chip: &str) -> Option<Self> {
        let weights = layer.stored.weights.filter(|_| phase == Phase::Forward)?;
        let Layer::Linear(linear) = &layer.case.layer else {
            return Some(Self { factor: None, spread: UNKNOWN });
        };
        let rows = layer.output.elements() / linear.features.max(1) * batch;
        let known = Self::of_rows(rows as f64, chip);
        // Other formats are unpacked by other kernels.
        Some(if weights == Weights::Int8 { known } else { Self { spread: known.spread.hypot(UNKNOWN / 2.0), ..known } })
    }

    /// Of int8 weights: on other chips the middle of those that were compared, between whose ends it lies.
    fn of_rows(rows: f64, chip: &str) -> Self {
        let place = rows.max(1.0).log2().min((OCTAVES - 1) as f64);
        let (below, share) = (place.floor() as usize, place.fract());
        let at = |values: &[f64; OCTAVES]| {
            let next = values[(below + 1).min(OCTAVES - 1)];
            values[below] * (next / values[below]).powf(share)
        };
        if let Some(known) = CHIPS.iter().find(|known| known.name == chip) {
            return Self { factor: Some(at(&known.factors)), spread: at(&known.spreads) };
        }
        let logs = CHIPS.each_ref().map(|known| at(&known.factors).ln());
        let (low, high) = logs.iter().fold((f64::MAX, f64::MIN), |(low, high), log| (low.min(*log), high.max(*log)));
        let spread = CHIPS.iter().map(|known| at(&known.spreads)).fold(0.0, f64::max);
        Self { factor: Some(((low + high) / 2.0).exp()), spread: spread.hypot((high - low) / 2.0) }
    }

    /// What it adds to the error that is expected of a product.
    pub fn error(&self) -> f64 {
        MEAN_OF_HALF_WIDTH * self.spread
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::precision::{Mode, Precision};
    use crate::base::shape::Shape;
    use crate::catalog;
    use crate::net::layer::Linear;
    use crate::net::network::{Network, ShapedNetwork, Stored};
    use crate::step::predict::Predictor;
    use crate::step::predictor::LayerPrediction;

    /// A product of 8192 by 8192 values over so many rows, with weights stored so.
    fn product(gpu: &str, rows: u64, weights: Option<Weights>) -> LayerPrediction {
        let text = "schema = \"network/1\"\nname = \"n\"\ntitle = \"N\"\ninputs.x.shape = [1, 8192]\nlayers = [{ name = \"a\", kind = \"linear\", features = 8192, bias = false }]\n";
        let network = Network::from_toml(text).expect("a network");
        let framework = catalog::framework("vllm").expect("shipped");
        let predictor = Predictor::shipped(catalog::gpu(gpu).expect("shipped"), framework);
        let precision = if gpu == "v100" { Precision::Fp16 } else { Precision::Bf16 };
        let shaped = ShapedNetwork::new(&network, rows, precision, &[]).expect("shapes");
        let shaped = shaped.storing(Stored { weights, cache: None }, None);
        predictor.predict(&shaped, Mode::Inference).expect("predicts").layers.remove(0)
    }

    /// Medians of the rows that the factors are of, by the same command.
    #[test]
    fn products_with_weights_in_eight_bits_take_what_rows_show() {
        for (gpu, measured) in [
            ("a100-sxm4-80gb", [(1, 0.60), (8, 0.65), (32, 0.66), (256, 1.02), (8192, 1.00)]),
            ("h200", [(1, 0.66), (8, 0.92), (32, 0.93), (256, 1.21), (8192, 0.91)]),
            ("l40s", [(1, 0.61), (8, 0.55), (32, 0.52), (256, 0.64), (8192, 0.84)]),
        ] {
            for (rows, ratio) in measured {
                let time = |weights| product(gpu, rows, weights).time.value;
                let found = time(Some(Weights::Int8)) / time(None);
                assert!((found / ratio - 1.0).abs() < 0.2, "{gpu}, {rows} rows: {found} and {ratio}");
            }
        }
    }

    #[test]
    fn intervals_are_wider_where_weights_are_converted() {
        let width = |l: &LayerPrediction| (l.time.p95 / l.time.p05).ln();
        for gpu in ["h100", "v100", "b200"] {
            let [plain, eight, four] = [None, Some(Weights::Int8), Some(Weights::Int4)].map(|w| product(gpu, 16, w));
            assert!(width(&plain) + 0.5 < width(&eight) && width(&eight) < width(&four), "{gpu}");
            assert!(four.time.value < eight.time.value && eight.read < plain.read, "{gpu}");
        }
        // Other chips lie between those that were compared.
        let of = |chip| Fewer::of_rows(16.0, chip);
        let (other, spread) = (of("GV100").factor, of("GV100").spread);
        assert!(other > of("AD102").factor && other < of("GH100").factor && spread > of("GH100").spread);
    }

    #[test]
    fn experts_have_no_factor_and_a_wide_interval() {
        let network = catalog::network("mixtral_8x7b").expect("shipped");
        let shaped = ShapedNetwork::new(&network, 1, Precision::Bf16, &[]).expect("shapes");
        let stored = shaped.storing(Stored { weights: Some(Weights::Int8), cache: None }, None);
        let experts = stored.layers().iter().find(|l| l.case.layer.kind() == "experts").expect("has experts");
        let fewer = Fewer::of(experts, Phase::Forward, 1, "GH100").expect("stored so");
        assert_eq!((fewer.factor, fewer.spread), (None, UNKNOWN));
        assert_eq!(Fewer::of(experts, Phase::BackwardData, 1, "GH100"), None);
        let layer = Layer::Linear(Linear { features: 8, bias: false });
        let shape = Shape::new(&[8]).expect("a shape");
        assert_eq!(Fewer::of(&ShapedLayer::alone(layer, vec![shape], shape), Phase::Forward, 1, "GH100"), None);
    }
}
