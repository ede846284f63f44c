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
        (None, "Conv") => call.input(1)?.dims.get(2..).unwrap_or_default().to_vec(),
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
