//! Sliding-window geometry shared by convolution and pooling.

use super::ShapeError;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A size for both spatial directions, `[vertical, horizontal]`; one number in a file means both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Pair {
    /// Vertical.
    pub h: u64,
    /// Horizontal.
    pub w: u64,
}

impl Pair {
    /// The same size in both directions.
    pub const fn square(size: u64) -> Self {
        Self { h: size, w: size }
    }
    /// Both are this.
    pub fn is(self, size: u64) -> bool {
        self == Self::square(size)
    }
    /// Number of positions.
    pub fn area(self) -> u64 {
        self.h.saturating_mul(self.w)
    }
    pub(crate) fn one() -> Self {
        Self::square(1)
    }
    pub(crate) fn zero() -> Self {
        Self::square(0)
    }
}

impl Serialize for Pair {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        [self.h, self.w].serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Pair {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged, expecting = "expected a whole number or [vertical, horizontal]")]
        enum Either {
            Both(u64),
            Each([u64; 2]),
        }
        Ok(match Either::deserialize(deserializer)? {
            Either::Both(size) => Self::square(size),
            Either::Each([h, w]) => Self { h, w },
        })
    }
}

/// How a window walks over a feature map.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    /// Window size.
    pub kernel: Pair,
    /// Step.
    pub stride: Pair,
    /// Zeros on each side.
    pub padding: Pair,
    /// Distance between window elements.
    pub dilation: Pair,
    /// Round the number of positions up (pooling only).
    pub ceil: bool,
}

impl Window {
    /// Number of window positions over a `height` x `width` map:
    /// floor((in + 2 p - d (k - 1) - 1) / s) + 1, or rounded up, where a last window that would begin
    /// beyond the input and its left padding is dropped (the rule of Caffe and PyTorch).
    ///
    /// # Errors
    /// When a size is zero or the window is larger than the padded input.
    pub fn output(&self, height: u64, width: u64) -> Result<(u64, u64), ShapeError> {
        let Self { kernel, stride, padding, dilation, ceil } = *self;
        Ok((
            positions(height, kernel.h, stride.h, padding.h, dilation.h, ceil)?,
            positions(width, kernel.w, stride.w, padding.w, dilation.w, ceil)?,
        ))
    }
}

/// Number of window positions along one direction of `size` elements: see [`Window::output`].
///
/// # Errors
/// When a size is zero or the window is larger than the padded input.
pub(super) fn positions(size: u64, k: u64, s: u64, p: u64, d: u64, ceil: bool) -> Result<u64, ShapeError> {
    if k == 0 || s == 0 || d == 0 {
        return Err(ShapeError::Field("kernel, stride and dilation must be at least 1"));
    }
    let too_large = ShapeError::WindowTooLarge { kernel: k, size, padding: p };
    let extent = d.checked_mul(k - 1).and_then(|e| e.checked_add(1));
    let padded = p.checked_mul(2).and_then(|p2| p2.checked_add(size));
    let (Some(extent), Some(padded)) = (extent, padded) else {
        return Err(too_large);
    };
    let room = padded.checked_sub(extent).ok_or(too_large)?;
    if !ceil {
        return Ok(room / s + 1);
    }
    let steps = room.div_ceil(s);
    let begins_inside = steps.saturating_mul(s) < size + p;
    Ok(if begins_inside { steps + 1 } else { steps })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(k: u64, s: u64, p: u64, d: u64, ceil: bool) -> Window {
        Window {
            kernel: Pair::square(k),
            stride: Pair::square(s),
            padding: Pair::square(p),
            dilation: Pair::square(d),
            ceil,
        }
    }

    #[test]
    fn sizes_follow_the_published_networks() -> Result<(), ShapeError> {
        // (kernel, stride, padding, dilation, ceil, in) -> out
        for (w, size, expected) in [
            (window(11, 4, 2, 1, false), 224, 55), // torchvision AlexNet conv1
            (window(7, 2, 3, 1, false), 224, 112), // ResNet conv1
            (window(3, 2, 0, 1, true), 112, 56),   // GoogLeNet pool1, Caffe
            (window(3, 2, 0, 1, false), 55, 27),   // AlexNet pool1
            (window(3, 1, 2, 2, false), 28, 28),   // dilated
            (window(2, 2, 0, 1, true), 27, 14),    // ceil keeps the partial window
            (window(2, 2, 1, 1, true), 4, 3),      // the last window would begin in the padding
        ] {
            assert_eq!(w.output(size, size)?, (expected, expected), "{w:?} on {size}");
        }
        Ok(())
    }

    #[test]
    fn a_window_that_does_not_fit_is_an_error() {
        assert!(window(5, 1, 0, 1, false).output(4, 4).is_err());
        assert!(window(0, 1, 0, 1, false).output(4, 4).is_err());
        assert!(window(3, 0, 0, 1, false).output(4, 4).is_err());
        assert!(window(u64::MAX, 1, u64::MAX, u64::MAX, false).output(4, 4).is_err());
    }

    /// A naive oracle: count the positions one by one.
    #[test]
    fn output_equals_counting_positions() -> Result<(), ShapeError> {
        for (size, k, s, p) in (1..9u64)
            .flat_map(|n| (1..4u64).flat_map(move |k| (1..4u64).flat_map(move |s| (0..k).map(move |p| (n, k, s, p)))))
            .filter(|(n, k, _, p)| n + 2 * p >= *k)
        {
            let floor = (0..).map(|i| i * s).take_while(|start| start + k <= size + 2 * p).count() as u64;
            assert_eq!(window(k, s, p, 1, false).output(size, size)?.0, floor);
        }
        Ok(())
    }
}
