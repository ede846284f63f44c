//! Convolutions and pooling.

use super::super::tensor::Tensor;
use super::{Call, Issue};

/// A window over the spatial dimensions, from a node's attributes.
struct Window {
    kernel: Vec<i64>,
    strides: Vec<i64>,
    dilations: Vec<i64>,
}

fn window(call: &Call<'_>, spatial: usize, kernel: Vec<i64>) -> Result<Window, Issue> {
    let sizes = |name: &str| call.ints(name).map_or_else(|| vec![1; spatial], <[i64]>::to_vec);
    let window = Window { kernel, strides: sizes("strides"), dilations: sizes("dilations") };
    for list in [&window.kernel, &window.strides, &window.dilations] {
        if list.len() != spatial || list.iter().any(|v| !(1..=1 << 20).contains(v)) {
            return Err(Issue::Wrong(format!("{list:?} is not a window over {spatial} dimensions")));
        }
    }
    Ok(window)
}

/// Spatial dimensions and kernel of a convolution or pooling.
fn geometry(call: &Call<'_>) -> Result<(Vec<i64>, Window), Issue> {
    let x = call.input(0)?;
    let space = x.dims.get(2..).filter(|s| !s.is_empty()).ok_or("its input has no spatial dimensions")?.to_vec();
    let kernel = match (call.ints("kernel_shape"), call.node.op.as_str()) {
        (Some(kernel), _) => kernel.to_vec(),
        (None, "Conv" | "ConvTranspose") => call.input(1)?.dims.get(2..).unwrap_or_default().to_vec(),
        _ => return Err("kernel_shape is missing".into()),
    };
    let window = window(call, space.len(), kernel)?;
    Ok((space, window))
}

/// Zeros before and after each spatial dimension, whether stated or to keep the size.
///
/// # Errors
/// When they are negative or absurd.
pub fn padding(call: &Call<'_>) -> Result<Vec<(i64, i64)>, Issue> {
    let (space, window) = geometry(call)?;
    let n = space.len();
    let auto = call.word("auto_pad").unwrap_or("NOTSET");
    match auto {
        "SAME_UPPER" | "SAME_LOWER" => Ok((0..n)
            .map(|i| {
                let stride = window.strides[i];
                let out = (space[i] + stride - 1) / stride;
                let extent = (window.kernel[i] - 1) * window.dilations[i] + 1;
                let total = ((out - 1) * stride + extent - space[i]).max(0);
                let (less, more) = (total / 2, total - total / 2);
                if auto == "SAME_UPPER" { (less, more) } else { (more, less) }
            })
            .collect()),
        "VALID" => Ok(vec![(0, 0); n]),
        _ => {
            let pads = call.ints("pads").map_or_else(|| vec![0; 2 * n], <[i64]>::to_vec);
            if pads.len() != 2 * n || pads.iter().any(|p| !(0..=1 << 20).contains(p)) {
                return Err(Issue::Wrong(format!("{pads:?} is no padding of {n} dimensions")));
            }
            Ok((0..n).map(|i| (pads[i], pads[i + n])).collect())
        }
    }
}

fn positions(call: &Call<'_>, ceil: bool) -> Result<Vec<i64>, Issue> {
    let (space, window) = geometry(call)?;
    let pads = padding(call)?;
    (0..space.len())
        .map(|i| {
            let extent = (window.kernel[i] - 1) * window.dilations[i] + 1;
            let (before, after) = pads[i];
            let room = space[i] + before + after - extent;
            if room < 0 {
                return Err(Issue::Wrong(format!("a window of {extent} over {} elements", space[i])));
            }
            let stride = window.strides[i];
            if !ceil {
                return Ok(room / stride + 1);
            }
            let steps = (room + stride - 1) / stride;
            // A last window that would begin in the padding is dropped.
            Ok(if steps * stride < space[i] + before { steps + 1 } else { steps })
        })
        .collect()
}

pub fn convolution(call: &Call<'_>) -> Result<Tensor, Issue> {
    let (x, weights) = (call.input(0)?, call.input(1)?);
    let group = call.int("group").unwrap_or(1);
    let (Some(&batch), Some(&channels), [first, second, ..]) = (x.dims.first(), x.dims.get(1), &weights.dims[..])
    else {
        return Err("its input or weights have too few dimensions".into());
    };
    if weights.rank() != x.rank() || group < 1 {
        return Err(Issue::Wrong(format!("weights {:?} over {:?}", weights.dims, x.dims)));
    }
    let read = second.saturating_mul(group);
    if read != channels {
        return Err(Issue::Wrong(format!("weights for {read} channels, its input has {channels}")));
    }
    Ok(Tensor::new([&[batch, *first], &positions(call, false)?[..]].concat(), x.real)?)
}

pub fn pooling(call: &Call<'_>) -> Result<Tensor, Issue> {
    let x = call.input(0)?;
    let space = positions(call, call.int("ceil_mode") == Some(1))?;
    Ok(Tensor::new([&x.dims[..2], &space[..]].concat(), x.real)?)
}

pub fn global(call: &Call<'_>) -> Result<Tensor, Issue> {
    let x = call.input(0)?;
    if x.rank() < 3 {
        return Err("its input has no spatial dimensions".into());
    }
    let dims = x.dims.iter().enumerate().map(|(i, &d)| if i < 2 { d } else { 1 });
    Ok(Tensor::new(dims.collect(), x.real)?)
}

/// Zeros of stated sizes per spatial dimension, or the default for all.
fn per_dimension(call: &Call<'_>, name: &str, spatial: usize, default: i64) -> Result<Vec<i64>, Issue> {
    let sizes = call.ints(name).map_or_else(|| vec![default; spatial], <[i64]>::to_vec);
    match sizes.len() == spatial && sizes.iter().all(|v| (0..=1 << 20).contains(v)) {
        true => Ok(sizes),
        false => Err(Issue::Wrong(format!("{name} {sizes:?} over {spatial} dimensions"))),
    }
}

/// How a transposed convolution's result is cut and extended per spatial dimension: so much in all before the result, so
/// much behind it. Negative where a stated shape asks for more elements than the windows reach.
///
/// # Errors
/// When attributes do not fit the dimensions.
pub fn cut(call: &Call<'_>) -> Result<Vec<i64>, Issue> {
    let (space, window) = geometry(call)?;
    let n = space.len();
    let more = per_dimension(call, "output_padding", n, 0)?;
    let reach = |i: usize| (space[i] - 1) * window.strides[i] + (window.kernel[i] - 1) * window.dilations[i] + 1;
    if let Some(shape) = call.ints("output_shape") {
        let shape = shape.get(shape.len().saturating_sub(n)..).filter(|s| s.len() == n);
        let shape = shape.ok_or("its output_shape is not one size per dimension")?;
        return Ok((0..n).map(|i| reach(i).saturating_sub(shape[i])).collect());
    }
    match call.word("auto_pad").unwrap_or("NOTSET") {
        "SAME_UPPER" | "SAME_LOWER" => Ok((0..n).map(|i| reach(i) - space[i] * window.strides[i]).collect()),
        "VALID" => Ok((0..n).map(|i| -more[i]).collect()),
        _ => {
            let pads = per_dimension(call, "pads", 2 * n, 0)?;
            Ok((0..n).map(|i| pads[i] + pads[i + n] - more[i]).collect())
        }
    }
}

/// (in - 1) stride + dilation (kernel - 1) + 1, less what is cut off.
pub fn transposed(call: &Call<'_>) -> Result<Tensor, Issue> {
    let (x, weights) = (call.input(0)?, call.input(1)?);
    let group = call.int("group").unwrap_or(1);
    let (Some(&batch), &[first, second, ..]) = (x.dims.first(), &weights.dims[..]) else {
        return Err("its input or weights have too few dimensions".into());
    };
    if weights.rank() != x.rank() || group < 1 || x.dims.get(1) != Some(&first) {
        return Err(Issue::Wrong(format!("weights {:?} over {:?}", weights.dims, x.dims)));
    }
    let (space, window) = geometry(call)?;
    let cut = cut(call)?;
    let sizes = (0..space.len()).map(|i| {
        let reach = (space[i] - 1) * window.strides[i] + (window.kernel[i] - 1) * window.dilations[i] + 1;
        Some(reach - cut[i]).filter(|size| *size > 0).ok_or("all of its result is cut off")
    });
    let sizes = sizes.collect::<Result<Vec<_>, _>>()?;
    Ok(Tensor::new([&[batch, second.saturating_mul(group)], &sizes[..]].concat(), x.real)?)
}

/// The input's batch and channels at the places that a grid names.
pub fn sampled(call: &Call<'_>) -> Result<Tensor, Issue> {
    let (x, grid) = (call.input(0)?, call.input(1)?);
    match (&x.dims[..], &grid.dims[..]) {
        (&[batch, channels, ..], [_, places @ .., _]) if x.rank() == grid.rank() => {
            Ok(Tensor::new([&[batch, channels], places].concat(), x.real)?)
        }
        _ => Err("a grid of other dimensions than its input".into()),
    }
}

/// Windows of one size from every region of a map.
pub fn regions(call: &Call<'_>) -> Result<Tensor, Issue> {
    let (x, regions) = (call.input(0)?, call.input(1)?);
    let (h, w) = match call.ints("pooled_shape") {
        Some(&[h, w]) => (h, w),
        _ => (call.int("output_height").unwrap_or(1), call.int("output_width").unwrap_or(1)),
    };
    match (&x.dims[..], regions.dims.first()) {
        (&[_, channels, _, _], Some(&count)) => Ok(Tensor::new(vec![count, channels, h, w], x.real)?),
        _ => Err("regions of other than maps".into()),
    }
}

/// Windows side by side, added up to the map that they lie on.
pub fn columns(call: &Call<'_>) -> Result<Tensor, Issue> {
    let x = call.input(0)?;
    let (image, block) = (call.list(1, "image_shape")?, call.list(2, "block_shape")?);
    let (Some(image), Some(block), &[batch, wide, _]) = (image, block, &x.dims[..]) else {
        return Err("its image and block are not known".into());
    };
    let area = block.iter().fold(1i64, |a, &b| a.saturating_mul(b)).max(1);
    Ok(Tensor::new([&[batch, wide / area], &image[..]].concat(), x.real)?)
}

#[cfg(test)]
mod tests {
    use super::super::testing::{call, node, tensor};
    use super::*;

    /// 4 elements in windows of 3, two apart, reach over 9.
    #[test]
    fn a_transposed_convolution_has_the_size_that_is_asked_for() {
        let inputs = [tensor(&[1, 2, 4]), tensor(&[2, 5, 3])];
        let size = |attributes: &[(&str, Result<&str, &[i64]>)]| {
            let mut node = node("ConvTranspose", attributes);
            node.attributes.push(super::super::Attribute {
                name: "strides".into(),
                ints: vec![2],
                ..Default::default()
            });
            transposed(&call(&node, &inputs)).map(|t| t.dims)
        };
        assert_eq!(size(&[]), Ok(vec![1, 5, 9]));
        assert_eq!(size(&[("pads", Err(&[1, 0]))]), Ok(vec![1, 5, 8]));
        assert_eq!(size(&[("auto_pad", Ok("SAME_UPPER"))]), Ok(vec![1, 5, 8]));
        assert_eq!(size(&[("output_shape", Err(&[5, 7]))]), Ok(vec![1, 5, 7]));
        assert!(size(&[("pads", Err(&[5, 5]))]).is_err());
    }
}
