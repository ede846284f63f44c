//! Scaled dot-product attention step by step, as PyTorch computes it where none of its fused kernels takes the operands.
//!
//! Source: `_scaled_dot_product_attention_math` of aten/src/ATen/native/transformers/attention.cpp, pytorch/pytorch 2.11. Operands of
//! 16 bits are converted to 32 first; queries and keys are both multiplied by the root of the factor; the softmax looks for rows
//! that are all masked.

use crate::base::shape::{InvalidShape, Shape};
use crate::net::layer::{Cast, Copied, Elementwise, Gradient, Layer, Matmul, Permute, Reduce, Reshape, Softmax, Width};

/// Small kernels that make the mask of causal attention: four that fill, one that keeps a triangle, one that chooses
/// (data/measurements/h100/torch_profile_19.csv, nanochat_small).
const MASK_KERNELS: usize = 6;

/// What a step reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operand {
    /// Queries, `[heads, tokens, dimension]`.
    Query,
    /// Keys, `[heads, keys, dimension]`.
    Key,
    /// Values, `[heads, keys, dimension]`.
    Value,
    /// The result of an earlier step.
    Step(usize),
}

/// One of the steps.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// What it computes.
    pub layer: Layer,
    /// What it reads.
    pub from: Vec<Operand>,
}

/// Sizes of one sample, and how its operands lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Heads, of any further dimensions all together.
    pub heads: u64,
    /// Queries.
    pub tokens: u64,
    /// Keys.
    pub keys: u64,
    /// Features of a head.
    pub dimension: u64,
    /// Whether queries see earlier keys alone.
    pub causal: bool,
    /// Whether operands lie otherwise than products take them and are copied.
    pub copied: bool,
    /// Learned values of what is added to the scores; `None` where nothing is.
    pub bias: Option<u64>,
}

/// The steps, the last of which makes `[heads, tokens, dimension]`.
///
/// # Errors
/// When a size is none of a dimension.
pub fn steps(of: Sizes) -> Result<Vec<Step>, InvalidShape> {
    let mut steps: Vec<Step> = Vec::new();
    let mut then = |layer: Layer, from: &[Operand]| {
        steps.push(Step { layer, from: from.to_vec() });
        Operand::Step(steps.len() - 1)
    };
    let convert = |to| Layer::Cast(Cast { to });
    let copy = |dims: [u64; 3]| {
        Layer::Reshape(Reshape { shape: dims.iter().map(|&n| n as i64).collect(), copy: Copied::Always })
    };
    let pass = |ops, gradient| Layer::Elementwise(Elementwise { gradient, ..Elementwise::of(ops, None) });
    let product = || Layer::Matmul(Matmul { wide: true });
    let Sizes { heads, tokens, keys, dimension, .. } = of;

    let [query, key, value] =
        [Operand::Query, Operand::Key, Operand::Value].map(|operand| then(convert(Width::Wide), &[operand]));
    let mut query = then(pass(1, Gradient::Scales), &[query]);
    if of.copied {
        query = then(copy([heads, tokens, dimension]), &[query]);
    }
    let key = then(pass(1, Gradient::Scales), &[key]);
    let key = if of.copied {
        then(copy([heads, dimension, keys]), &[key])
    } else {
        then(Layer::Permute(Permute { order: vec![0, 2, 1], copy: false }), &[key])
    };
    let mut scores = then(product(), &[query, key]);
    if of.causal {
        let small = Elementwise { gradient: Gradient::Absent, ..Elementwise::of(1, Some(Shape::new(&[1])?)) };
        let mask = (0..MASK_KERNELS).fold(query, |from, _| then(Layer::Elementwise(small.clone()), &[from]));
        let added = Elementwise { repeated: true, gradient: Gradient::Passes, ..Elementwise::of(1, None) };
        scores = then(Layer::Elementwise(added), &[scores, mask]);
    }
    if let Some(parameters) = of.bias {
        let added = Elementwise {
            parameters,
            repeated: parameters == 0,
            gradient: Gradient::Passes,
            ..Elementwise::of(1, None)
        };
        scores = then(Layer::Elementwise(added), &[scores]);
    }
    let weights = then(Layer::Softmax(Softmax { last: true, middle: false }), &[scores]);
    let masked = then(pass(1, Gradient::Absent), &[scores]);
    let all = then(Layer::Reduce(Reduce::default()), &[masked]);
    let chosen = then(pass(0, Gradient::Reads), &[weights, all]);
    let value = if of.copied { then(copy([heads, keys, dimension]), &[value]) } else { value };
    let result = then(product(), &[chosen, value]);
    then(convert(Width::Narrow), &[result]);
    Ok(steps)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::layer::LayerOp as _;

    /// Shapes of all results.
    fn results(of: Sizes) -> Vec<(&'static str, Vec<u64>)> {
        let operand = |rows| Shape::new(&[of.heads, rows, of.dimension]).expect("a shape");
        let (query, key) = (operand(of.tokens), operand(of.keys));
        let mut made: Vec<Shape> = Vec::new();
        let steps = steps(of).expect("sizes");
        let mut kinds = Vec::new();
        for step in &steps {
            let read = |from: &Operand| match *from {
                Operand::Query => query,
                Operand::Key | Operand::Value => key,
                Operand::Step(i) => made[i],
            };
            let inputs: Vec<Shape> = step.from.iter().map(read).collect();
            made.push(step.layer.output(&inputs).expect("fits"));
            kinds.push(step.layer.kind());
        }
        kinds.into_iter().zip(made.iter().map(|s| s.dims().to_vec())).collect()
    }

    const SIZES: Sizes =
        Sizes { heads: 12, tokens: 5, keys: 7, dimension: 64, causal: false, copied: false, bias: None };

    #[test]
    fn scores_of_all_pairs_are_made_and_looked_at() {
        let made = results(SIZES);
        let kinds: Vec<_> = made.iter().map(|(kind, _)| *kind).collect();
        assert_eq!(
            kinds,
            [
                "cast",
                "cast",
                "cast",
                "elementwise",
                "elementwise",
                "permute",
                "matmul",
                "softmax",
                "elementwise",
                "reduce",
                "elementwise",
                "matmul",
                "cast"
            ]
        );
        assert_eq!(made[6].1, [12, 5, 7]);
        assert_eq!(made.last().map(|(_, dims)| &dims[..]), Some(&[12, 5, 64][..]));
    }

    #[test]
    fn a_causal_mask_is_made_by_small_kernels_and_added() {
        let causal = results(Sizes { causal: true, ..SIZES });
        assert_eq!(causal.len(), results(SIZES).len() + MASK_KERNELS + 1);
        assert_eq!(causal.iter().filter(|(_, dims)| dims[..] == [1]).count(), MASK_KERNELS);
        assert_eq!(causal[7 + MASK_KERNELS], ("elementwise", vec![12, 5, 7]));
    }

    #[test]
    fn a_bias_is_added_by_a_kernel_of_its_own() {
        let steps = steps(Sizes { bias: Some(192), ..SIZES }).expect("sizes");
        let added = &steps[7];
        assert_eq!((added.layer.kind(), &added.from[..]), ("elementwise", &[Operand::Step(6)][..]));
        assert_eq!(added.layer.parameters(&[Shape::new(&[12, 5, 7]).expect("a shape")]), 192);
        assert_eq!(steps[8].from, [Operand::Step(7)], "the softmax reads the sum");
    }

    #[test]
    fn operands_that_lie_otherwise_are_copied() {
        let copied = results(Sizes { copied: true, ..SIZES });
        let copies: Vec<_> = copied.iter().filter(|(kind, _)| *kind == "reshape").map(|(_, dims)| &dims[..]).collect();
        assert_eq!(copies, [&[12, 5, 64][..], &[12, 64, 7], &[12, 7, 64]]);
    }
}
