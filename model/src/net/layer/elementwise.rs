//! Whatever computes, or only fetches, element by element and has no kind of its own.

use super::attention::is_zero;
use super::{LayerOp, ShapeError};
use crate::base::precision::{Phase, named_enum};
use crate::base::shape::Shape;
use crate::net::cost::{LayerCost, Site};
use serde::{Deserialize, Serialize};

named_enum!(
    /// What the backward pass of an element-wise operation does about its inputs' gradients.
    #[derive(Default)]
    Gradient {
        /// A kernel reads the result's gradient and the inputs: of a product, a root.
        #[default]
        Reads = "reads",
        /// Kernels for the dividend, and five for the divisor: `-grad * ((self / other) / other)`, summed where it was spread
        /// (pytorch/pytorch 2.11, torch/csrc/autograd/FunctionsManual.cpp, `div_tensor_other_grad`).
        Divides = "divides",
        /// Five kernels for each input: which is equal, which is less, half of the gradient, which of both, none where it is less:
        /// of a maximum (pytorch/pytorch 2.11, tools/autograd/derivatives.yaml).
        Selects = "selects",
        /// Three kernels: the power less one, times the exponent, times the gradient (pytorch/pytorch 2.11,
        /// torch/csrc/autograd/FunctionsManual.cpp, `pow_backward`).
        Powers = "powers",
        /// A kernel reads the result's gradient alone: of a negation, a factor that nobody learns, a copy.
        Scales = "scales",
        /// The result's gradient is the input's: of a sum with what is no activation.
        Passes = "passes",
        /// The result has none: of a comparison.
        Absent = "absent",
    }
);

impl Gradient {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// One kernel that reads its inputs, spread over the result's shape, and writes every element of the result.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Elementwise {
    /// Operations per element of the result, a transcendental function counted as one; 0 for a copy, such as a gather.
    #[serde(default = "one_operation")]
    pub ops: u64,
    /// Learned values that it reads besides.
    #[serde(default)]
    pub parameters: u64,
    /// Whether it reads a table besides that was not learned and is repeated over the result: angles, masks. Its bytes are not
    /// counted: it stays in the cache.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub repeated: bool,
    /// Shape of the result; the first input's without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Shape>,
    /// What its backward pass does.
    #[serde(default, skip_serializing_if = "Gradient::is_default")]
    pub gradient: Gradient,
    /// Whether autocast computes it in 32 bits: powers, exponentials, logarithms, reciprocals (aten/src/ATen/autocast_mode.h).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub wide: bool,
    /// Places of a window, where windows of a map are laid side by side (im2col).
    #[serde(default, skip_serializing_if = "is_zero")]
    pub im2col: u64,
    /// Places of a window, where windows that lie side by side are added up in their map (col2im).
    #[serde(default, skip_serializing_if = "is_zero")]
    pub col2im: u64,
}

fn one_operation() -> u64 {
    1
}

impl Elementwise {
    /// One that reads nothing but its inputs and writes as many elements as the first has, unless a shape is given.
    pub fn of(ops: u64, output: Option<Shape>) -> Self {
        Self {
            ops,
            parameters: 0,
            repeated: false,
            output,
            gradient: Gradient::default(),
            wide: false,
            im2col: 0,
            col2im: 0,
        }
    }

    /// Whether its backward pass reads its inputs. A copy's never does.
    pub fn saves(&self) -> bool {
        matches!(self.gradient, Gradient::Reads | Gradient::Divides | Gradient::Selects | Gradient::Powers)
            && self.ops > 0
    }

    /// Whether windows have a value for each of their places, of a map that has no fewer values than they take of it.
    fn windows_fit(&self, input: &Shape, output: &Shape) -> Result<(), ShapeError> {
        let (places, windows, map) = match (self.im2col, self.col2im) {
            (0, 0) => return Ok(()),
            (places, 0) => (places, output, input),
            (0, places) => (places, input, output),
            _ => return Err(ShapeError::Field("im2col and col2im exclude each other")),
        };
        let windows = windows.elements();
        let fits = windows.is_multiple_of(places) && windows <= map.elements().saturating_mul(places);
        if fits {
            Ok(())
        } else {
            Err(ShapeError::Field("im2col and col2im are the places of windows that its shapes have"))
        }
    }

    /// Elements of all inputs over the batch, of each at most as many as there are results.
    fn read(site: &Site<'_>) -> u64 {
        let results = site.output.elements();
        let each = site.inputs.iter().map(|s| s.elements().min(results));
        each.fold(0u64, |a, n| a.saturating_add(site.batch.saturating_mul(n)))
    }
}

impl LayerOp for Elementwise {
    fn output(&self, inputs: &[Shape]) -> Result<Shape, ShapeError> {
        match inputs {
            [] => Err(ShapeError::Arity { expected: "one or more", found: 0 }),
            [first, ..] => {
                let output = self.output.unwrap_or(*first);
                self.windows_fit(first, &output)?;
                Ok(output)
            }
        }
    }

    fn parameters(&self, _inputs: &[Shape]) -> u64 {
        self.parameters
    }

    /// Backward reads the gradient, and the inputs unless [`Gradient`] says otherwise, and writes a gradient per input, with
    /// about twice the operations; the kernels of a division, of a maximum are taken together. The gradient of learned values is a reduction.
    fn cost(&self, phase: Phase, site: &Site<'_>) -> Option<LayerCost> {
        let (x, y) = (Self::read(site), site.out_elements());
        let ops = y.saturating_mul(self.ops);
        match phase {
            Phase::Forward => Some(site.streaming(ops, x, y, self.parameters)),
            Phase::BackwardData if matches!(self.gradient, Gradient::Passes | Gradient::Absent) => None,
            Phase::BackwardData if self.gradient == Gradient::Divides => {
                // Both quotients, the negation, the product and the sum pass over values of the result's size.
                let (read, written) = (y.saturating_mul(6).saturating_add(x), y.saturating_mul(5));
                Some(site.streaming(ops.saturating_mul(6), read, written, self.parameters))
            }
            Phase::BackwardData if self.gradient == Gradient::Selects => {
                // Comparisons read the input and write a byte; halves, choices and clearing pass over the gradient. In values of four
                // bytes for each input, both of them together: 6.5 are read, 3.5 written.
                let inputs = (site.inputs.len() as u64).saturating_mul(y);
                let (read, written) = (inputs.saturating_mul(13) / 2, inputs.saturating_mul(7) / 2);
                Some(site.streaming(ops.saturating_mul(5), read, written, self.parameters))
            }
            Phase::BackwardData if self.gradient == Gradient::Powers => {
                let read = x.saturating_mul(3).saturating_add(y);
                Some(site.streaming(ops.saturating_mul(3), read, x.saturating_mul(3), self.parameters))
            }
            Phase::BackwardData => {
                let kept = if self.saves() { x } else { 0 };
                let read = y.saturating_add(kept);
                Some(site.streaming(ops.saturating_mul(2), read, site.all_in_elements(), self.parameters))
            }
            Phase::BackwardWeights if self.parameters > 0 && self.gradient != Gradient::Absent => {
                Some(site.streaming(y.saturating_mul(2), x.saturating_add(y), self.parameters, 0))
            }
            Phase::BackwardWeights | Phase::Update => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{cost, shape};
    use super::*;
    use crate::base::precision::Mode;

    #[test]
    fn a_small_operand_is_read_once_and_a_large_one_in_part() {
        let plain = Elementwise::of(1, None);
        let c = cost(&plain, &[shape(&[4, 5]), shape(&[4, 1])], 2, Phase::Forward, Mode::Inference).expect("runs");
        assert_eq!((c.ops.get(), c.read.get(), c.written.get()), (40, 4 * 48, 4 * 40));
        let gather = Elementwise::of(0, Some(shape(&[2, 5])));
        let c = cost(&gather, &[shape(&[4, 5])], 1, Phase::Forward, Mode::Inference).expect("runs");
        assert_eq!((c.ops.get(), c.read.get(), c.written.get()), (0, 40, 40));
    }

    #[test]
    fn windows_are_of_a_map() {
        let (map, windows) = (shape(&[8, 4, 4]), shape(&[72, 4]));
        let of = |im2col, col2im, input, output| {
            Elementwise { im2col, col2im, ..Elementwise::of(0, Some(output)) }.output(&[input])
        };
        assert_eq!((of(9, 0, map, windows), of(0, 9, windows, map)), (Ok(windows), Ok(map)));
        let viewed = shape(&[2, 4, 9, 4]);
        assert_eq!((of(9, 0, map, viewed), of(0, 9, viewed, map)), (Ok(viewed), Ok(map)), "in another shape");
        assert!(of(9, 9, map, windows).is_err(), "either");
        assert!(of(7, 0, map, windows).is_err() && of(0, 7, windows, map).is_err(), "no whole windows");
        assert!(of(9, 0, shape(&[1, 4, 4]), shape(&[72, 4])).is_err(), "more than the map has");
        assert!(of(99_999_999_999, 0, map, windows).is_err());
    }

    #[test]
    fn a_gradient_reads_what_it_needs() {
        let read = |ops, gradient| {
            let layer = Elementwise { gradient, ..Elementwise::of(ops, None) };
            let cost = cost(&layer, &[shape(&[4, 5])], 1, Phase::BackwardData, Mode::Training);
            (cost.map(|c| c.read.get() / 80), layer.saves())
        };
        assert_eq!(read(1, Gradient::Reads), (Some(2), true));
        assert_eq!(read(2, Gradient::Selects), (Some(6), true), "six and a half");
        assert_eq!(read(1, Gradient::Scales), (Some(1), false));
        assert_eq!(read(1, Gradient::Divides), (Some(7), true));
        assert_eq!(read(1, Gradient::Powers), (Some(4), true));
        assert_eq!(read(0, Gradient::Reads), (Some(1), false), "a copy");
        assert_eq!(read(1, Gradient::Passes), (None, false));
        assert_eq!(read(1, Gradient::Absent), (None, false));
        let layer = |gradient| Elementwise { gradient, parameters: 5, ..Elementwise::of(1, None) };
        let learned =
            |gradient| cost(&layer(gradient), &[shape(&[4, 5])], 1, Phase::BackwardWeights, Mode::Training).is_some();
        assert_eq!([Gradient::Passes, Gradient::Absent].map(learned), [true, false]);
    }

    #[test]
    fn learned_values_have_a_gradient() {
        let slope = Elementwise { parameters: 5, ..Elementwise::of(2, None) };
        let run = |layer: &Elementwise| cost(layer, &[shape(&[4, 5])], 1, Phase::BackwardWeights, Mode::Training);
        assert_eq!(run(&slope).expect("runs").written.get(), 20);
        assert!(run(&Elementwise { parameters: 0, ..slope }).is_none());
    }
}
