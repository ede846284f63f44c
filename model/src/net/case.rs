//! A layer standing alone, at the shapes of its inputs: the unit that is measured, published and kept apart.

use crate::base::precision::{Mode, Phase, Precision};
use crate::base::shape::Shape;
use crate::net::cost::{LayerCost, Site};
use crate::net::layer::{Layer, LayerOp, ShapeError};
use serde::{Deserialize, Serialize};
use std::ops::Deref;

/// Sizes of products in fp8 are multiples of this (cuBLASLt, `torch._scaled_mm`).
const FP8_ALIGNMENT: u64 = 16;

/// Fields of layers, as they are written where they are not given, that rows of before do not have.
const LATER: [&str; 4] = [", window: None, sinks: false", ", bias: None", ", context: None", ", rotated: None"];

/// A layer standing alone: its fields and its input shapes, without the batch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LayerCase {
    /// Input shapes.
    pub inputs: Vec<Shape>,
    /// The layer.
    pub layer: Layer,
}

/// A layer case that a network holds, or one's own. Unlike a `Cow` no larger than what it points to the case by, since work is
/// handed on from step to step.
#[derive(Clone, Debug)]
pub enum AnyCase<'a> {
    /// A network's.
    Lent(&'a LayerCase),
    /// Of no network.
    Own(Box<LayerCase>),
}

impl AnyCase<'_> {
    /// As one's own.
    pub fn into_owned(self) -> LayerCase {
        match self {
            Self::Lent(case) => case.clone(),
            Self::Own(case) => *case,
        }
    }
}

impl Deref for AnyCase<'_> {
    type Target = LayerCase;

    fn deref(&self) -> &LayerCase {
        match self {
            Self::Lent(case) => case,
            Self::Own(case) => case,
        }
    }
}

impl PartialEq for AnyCase<'_> {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl From<LayerCase> for AnyCase<'_> {
    fn from(case: LayerCase) -> Self {
        Self::Own(Box::new(case))
    }
}

impl<'a> From<&'a LayerCase> for AnyCase<'a> {
    fn from(case: &'a LayerCase) -> Self {
        Self::Lent(case)
    }
}

impl LayerCase {
    /// Canonical JSON: the column `params_json`.
    ///
    /// # Errors
    /// Only if a number cannot be written as JSON (a non-finite probability).
    pub fn to_json(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string(self)
    }

    /// From canonical JSON.
    ///
    /// # Errors
    /// When the text is not a layer case.
    pub fn from_json(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text)
    }

    /// Kind and shape without the batch, the unit that cross-validation keeps together: shared across
    /// GPUs, precisions and phases. A bias does not make another shape.
    pub fn fold_key(&self) -> String {
        let mut bare = self.clone();
        match &mut bare.layer {
            Layer::Conv2d(conv) => conv.bias = false,
            Layer::Linear(linear) => linear.bias = false,
            _ => {}
        }
        // Fields that came later and are not given leave the key of older rows, hence their fold, as it was.
        let layer = LATER.iter().fold(format!("{:?}", bare.layer), |text, field| text.replace(field, ""));
        format!("{}{:?}{layer}", bare.layer.kind(), bare.inputs)
    }

    /// Learned parameters.
    pub fn parameters(&self) -> u64 {
        self.layer.parameters(&self.inputs)
    }

    /// What its kernels compute in where a network runs in `network`. In fp8 only linear layers do that, and of these
    /// those whose sizes are multiples of 16, as cuBLASLt wants them; frameworks run all other layers in bf16. With integers
    /// in the products, attention that has a cache, and the cache, stay in 16 bits.
    pub fn runs_in(&self, network: Precision) -> Precision {
        let aligned = |features: u64| features > 0 && features.is_multiple_of(FP8_ALIGNMENT);
        match (network, &self.layer, self.inputs.first()) {
            (Precision::Fp8, Layer::Linear(linear), Some(input))
                if aligned(linear.features) && aligned(input.axis()) =>
            {
                Precision::Fp8
            }
            (Precision::Fp8, Layer::Experts(experts), Some(input))
                if aligned(experts.hidden) && aligned(input.last()) =>
            {
                Precision::Fp8
            }
            (Precision::Fp8, ..) => Precision::Bf16,
            (Precision::Int8, layer, _) if layer.has_cache() => Precision::Bf16,
            _ => network,
        }
    }

    /// Output shape.
    ///
    /// # Errors
    /// When the layer does not take these inputs.
    pub fn output(&self) -> Result<Shape, ShapeError> {
        self.layer.output(&self.inputs)
    }

    /// Cost of a phase; `Ok(None)` where no kernel runs in it.
    ///
    /// # Errors
    /// When the layer does not take these inputs.
    pub fn cost(
        &self,
        phase: Phase,
        batch: u64,
        precision: Precision,
        mode: Mode,
    ) -> Result<Option<LayerCost>, ShapeError> {
        let output = self.output()?;
        Ok(self.layer.cost(phase, &Site { batch, inputs: &self.inputs, output, precision, mode }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::layer::Linear;

    #[test]
    fn canonical_json_reads_back() -> Result<(), Box<dyn std::error::Error>> {
        let case = LayerCase {
            inputs: vec![Shape::new(&[4096])?],
            layer: Layer::Linear(Linear { features: 1000, bias: true }),
        };
        let json = case.to_json()?;
        assert_eq!(json, r#"{"inputs":[[4096]],"layer":{"kind":"linear","features":1000,"bias":true}}"#);
        assert_eq!(LayerCase::from_json(&json)?, case);
        Ok(())
    }

    #[test]
    fn in_fp8_only_aligned_linear_layers_compute() -> Result<(), Box<dyn std::error::Error>> {
        let linear = |inputs: u64, features| -> Result<_, Box<dyn std::error::Error>> {
            let layer = Layer::Linear(Linear { features, bias: false });
            Ok(LayerCase { inputs: vec![Shape::new(&[5, inputs])?], layer })
        };
        let (fp8, bf16) = (Precision::Fp8, Precision::Bf16);
        assert_eq!(linear(32, 48)?.runs_in(fp8), fp8);
        assert_eq!(linear(32, 48)?.runs_in(Precision::Int8), Precision::Int8);
        assert_eq!([linear(32, 1000)?.runs_in(fp8), linear(30, 48)?.runs_in(fp8)], [bf16; 2]);
        let relu = Layer::from_table("relu", toml::Table::new()).ok_or("no kind")??;
        assert_eq!(LayerCase { inputs: vec![Shape::new(&[32])?], layer: relu }.runs_in(fp8), bf16);
        // Three samples of five tokens: operands of one byte, results of two.
        let cost = linear(32, 48)?.cost(Phase::Forward, 3, fp8, Mode::Inference)?.ok_or("runs")?;
        assert_eq!(
            (cost.read.get(), cost.weights.get(), cost.written.get()),
            (15 * 32 + 32 * 48, 32 * 48, 2 * 15 * 48)
        );
        Ok(())
    }

    #[test]
    fn in_int8_attention_with_a_cache_stays_in_16_bits() -> Result<(), Box<dyn std::error::Error>> {
        let attention = |more: &str| {
            let json = r#"{"inputs":[[1,12]],"layer":{"kind":"attention","heads":2,"kv_heads":1,"causal":true"#;
            LayerCase::from_json(&format!("{json}{more}}}}}"))
        };
        let cached = attention(r#","cached":99"#)?;
        let runs = [attention("")?, attention(r#","cached":0"#)?, cached.clone()].map(|c| c.runs_in(Precision::Int8));
        assert_eq!(runs, [Precision::Int8, Precision::Bf16, Precision::Bf16]);
        assert_eq!(cached.runs_in(Precision::Fp16), Precision::Fp16);
        Ok(())
    }

    #[test]
    fn keys_are_those_of_older_rows() -> Result<(), Box<dyn std::error::Error>> {
        let key = |json: &str| Ok::<_, serde_json::Error>(LayerCase::from_json(json)?.fold_key());
        let attention = r#"{"inputs":[[6,32]],"layer":{"kind":"attention","heads":4,"kv_heads":2,"causal":true}}"#;
        let plain = "attention[6x32]Attention(Attention { heads: 4, kv_heads: Some(2), causal: true, cached: None, fused: true })";
        assert_eq!(key(attention)?, plain);
        let rotary = r#"{"inputs":[[6,32]],"layer":{"kind":"rotary","heads":4}}"#;
        assert_eq!(key(rotary)?, "rotary[6x32]Rotary(Rotary { heads: 4 })");
        for (whole, part) in [
            (attention, r#","window":4}}"#),
            (attention, r#","sinks":true}}"#),
            (attention, r#","bias":{"heads":2}}}"#),
            (rotary, r#","rotated":4}}"#),
        ] {
            assert_ne!(key(&whole.replace("}}", part))?, key(whole)?, "{part}");
        }
        Ok(())
    }

    #[test]
    fn a_bias_is_not_another_shape() -> Result<(), Box<dyn std::error::Error>> {
        let case = |bias| -> Result<_, Box<dyn std::error::Error>> {
            Ok(LayerCase { inputs: vec![Shape::new(&[8])?], layer: Layer::Linear(Linear { features: 4, bias }) })
        };
        assert_eq!(case(true)?.fold_key(), case(false)?.fold_key());
        Ok(())
    }
}
