//! Tensor shapes without the batch.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Largest dimension accepted: beyond it every product is a mistake in the input.
pub const MAX_DIMENSION: u64 = 1 << 31;

const MAX_RANK: usize = 4;

/// The dimensions of one sample of a tensor, without the batch: `[channels, height, width]`,
/// `[features]`, or `[tokens, features]`. Every dimension is between 1 and [`MAX_DIMENSION`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "Vec<u64>", into = "Vec<u64>")]
pub struct Shape {
    dims: [u64; MAX_RANK],
    rank: u8,
}

/// A list of dimensions that is not a shape.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{dims:?} is not a shape: 1 to {MAX_RANK} dimensions, each from 1 to {MAX_DIMENSION}")]
pub struct InvalidShape {
    dims: Vec<u64>,
}

impl Shape {
    /// A shape from its dimensions.
    ///
    /// # Errors
    /// When there are none or too many, or one is zero or above [`MAX_DIMENSION`].
    pub fn new(dims: &[u64]) -> Result<Self, InvalidShape> {
        let valid = (1..=MAX_RANK).contains(&dims.len()) && dims.iter().all(|d| (1..=MAX_DIMENSION).contains(d));
        if !valid {
            return Err(InvalidShape { dims: dims.iter().copied().take(8).collect() });
        }
        let mut padded = [1; MAX_RANK];
        padded[..dims.len()].copy_from_slice(dims);
        Ok(Self { dims: padded, rank: dims.len() as u8 })
    }

    /// A feature map `[channels, height, width]`.
    pub fn map(channels: u64, height: u64, width: u64) -> Result<Self, InvalidShape> {
        Self::new(&[channels, height, width])
    }

    /// The dimensions, outermost first.
    pub fn dims(&self) -> &[u64] {
        &self.dims[..usize::from(self.rank)]
    }

    /// Number of elements per sample.
    pub fn elements(&self) -> u64 {
        product(self.dims())
    }

    /// Whether this is a map, of channels over two dimensions or more; shapes of fewer are sequences or vectors.
    pub fn is_map(&self) -> bool {
        self.dims().len() >= 3
    }

    /// `(channels, height, width)` where this is a feature map.
    pub fn as_map(&self) -> Option<(u64, u64, u64)> {
        match *self.dims() {
            [c, h, w] => Some((c, h, w)),
            _ => None,
        }
    }

    /// Whether it is a map of one row: what runs over a sequence.
    pub fn is_sequence(&self) -> bool {
        matches!(self.dims(), [_, 1, _])
    }

    /// The last dimension: the features of a token.
    pub fn last(&self) -> u64 {
        self.dims[usize::from(self.rank) - 1]
    }

    /// Length of the normalised or softmaxed axis: the channels of a map, else the last dimension.
    pub fn axis(&self) -> u64 {
        match *self.dims() {
            [c, _, _] => c,
            [.., last] => last,
            [] => 1,
        }
    }
}

/// The greatest number that divides both (Euclid); of 0 and a number that number.
pub fn greatest_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { greatest_divisor(b, a % b) }
}

/// Saturating product: a saturated count is refused where a network is shaped.
pub fn product(factors: &[u64]) -> u64 {
    factors.iter().fold(1u64, |a, &b| a.saturating_mul(b))
}

impl TryFrom<Vec<u64>> for Shape {
    type Error = InvalidShape;
    fn try_from(dims: Vec<u64>) -> Result<Self, InvalidShape> {
        Self::new(&dims)
    }
}

impl From<Shape> for Vec<u64> {
    fn from(shape: Shape) -> Self {
        shape.dims().to_vec()
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, d) in self.dims().iter().enumerate() {
            let separator = if i == 0 { "" } else { "x" };
            write!(f, "{separator}{d}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_and_absurd_dimensions_are_refused() {
        assert!(Shape::new(&[]).is_err());
        assert!(Shape::new(&[3, 0, 4]).is_err());
        assert!(Shape::new(&[u64::MAX]).is_err());
        assert!(Shape::new(&[1, 1, 1, 1, 1]).is_err());
    }

    #[test]
    fn a_map_knows_its_axis_and_elements() -> Result<(), InvalidShape> {
        let map = Shape::map(64, 7, 5)?;
        assert_eq!((map.axis(), map.elements()), (64, 2240));
        assert_eq!(map.to_string(), "64x7x5");
        Ok(())
    }
}
