//! Operators that move elements without computing on them.

use super::super::tensor::{Data, MOST_VALUES, Tensor};
use super::arithmetic::{broadcast, spread};
use super::{Call, Issue};

pub fn infer(call: &Call<'_>) -> Result<Vec<Tensor>, Issue> {
    let one = |tensor: Result<Tensor, Issue>| tensor.map(|t| vec![t]);
    match call.node.op.as_str() {
        "Reshape" => one(reshape(call)),
        "Flatten" => one(flatten(call)),
        "Squeeze" => one(squeeze(call)),
        "Unsqueeze" => one(unsqueeze(call)),
        "Transpose" => one(transpose(call)),
        "Concat" => one(concat(call)),
        "Slice" => one(slice(call)),
        "Split" => split(call),
        "Gather" => one(gather(call)),
        "GatherElements" => one(Ok(Tensor::new(call.input(1)?.dims.clone(), call.input(0)?.real)?)),
        "GatherND" => one(gather_nd(call)),
        "Expand" => one(expand(call)),
        "Tile" => one(tile(call)),
        "Pad" => one(pad(call)),
        "ConstantOfShape" => one(constant_of_shape(call)),
        "Resize" | "Upsample" => one(resize(call)),
        "DepthToSpace" | "SpaceToDepth" => one(blocks(call)),
        "OneHot" => one(one_hot(call)),
        _ => Err(Issue::Unknown),
    }
}

/// The same elements in other dimensions.
fn viewed(tensor: &Tensor, dims: Vec<i64>) -> Result<Tensor, Issue> {
    let result = Tensor::new(dims, tensor.real)?;
    if result.elements() != tensor.elements() {
        return Err(Issue::Wrong(format!("{:?} cannot be seen as {:?}", tensor.dims, result.dims)));
    }
    Ok(Tensor { data: tensor.data.clone(), ..result })
}

/// A result whose every element is one of the input's: `from` says which, from a position's coordinates.
fn rearranged(x: &Tensor, dims: Vec<i64>, from: impl Fn(&[usize]) -> usize) -> Result<Tensor, Issue> {
    let mut result = Tensor::new(dims, x.real)?;
    if let (Some(data), true) = (&x.data, result.elements() <= MOST_VALUES) {
        let mut coordinates = vec![0usize; result.rank()];
        let positions: Vec<Option<usize>> = (0..result.elements())
            .map(|_| {
                let position = from(&coordinates);
                for (c, &size) in coordinates.iter_mut().zip(&result.dims).rev() {
                    *c += 1;
                    if (*c as i64) < size {
                        break;
                    }
                    *c = 0;
                }
                Some(position)
            })
            .collect();
        result.data = data.select(positions.into_iter());
    }
    Ok(result)
}

/// Position of coordinates in a tensor of these dimensions.
fn position(dims: &[i64], coordinates: impl Iterator<Item = usize>) -> usize {
    dims.iter().zip(coordinates).fold(0usize, |at, (&size, c)| at.wrapping_mul(size as usize).wrapping_add(c))
}

fn reshape(call: &Call<'_>) -> Result<Tensor, Issue> {
    let x = call.input(0)?;
    let target = call.list(1, "shape")?.ok_or("its shape is missing")?;
    if target.len() > super::super::tensor::MOST_DIMS {
        return Err("its shape has too many dimensions".into());
    }
    let keeps_zero = call.int("allowzero") == Some(1);
    let mut dims: Vec<i64> = Vec::with_capacity(target.len());
    for (i, &size) in target.iter().enumerate() {
        dims.push(match size {
            0 if !keeps_zero => *x.dims.get(i).ok_or("its shape copies a dimension that is not there")?,
            _ => size,
        });
    }
    unbake(call, x, &target, &mut dims);
    if let Some(open) = dims.iter().position(|&d| d == -1) {
        let known: i64 =
            dims.iter().enumerate().filter(|(i, _)| *i != open).fold(1i64, |a, (_, &d)| a.saturating_mul(d));
        if known <= 0 || x.elements() % known != 0 {
            return Err(Issue::Wrong(format!("{:?} cannot be seen as {target:?}", x.dims)));
        }
        dims[open] = x.elements() / known;
    }
    viewed(x, dims)
}

/// A file that was made for one batch has it in the constants of its reshapes: puts the marker there.
fn unbake(call: &Call<'_>, x: &Tensor, target: &[i64], dims: &mut [i64]) {
    let (marker, Some(made_for)) = call.batch else { return };
    if dims.iter().any(|d| *d > 0 && d % marker == 0) || x.elements() % marker != 0 {
        return;
    }
    let product = dims.iter().filter(|d| **d != -1).fold(1i64, |a, &d| a.saturating_mul(d));
    let fits_without = match target.contains(&-1) {
        true => !(x.dims.first() == Some(&marker) && dims.first() == Some(&made_for)),
        false => product == x.elements(),
    };
    if fits_without {
        return;
    }
    let same_place = x.dims.iter().position(|d| *d == marker).filter(|&i| dims.get(i) == Some(&made_for));
    let place = same_place.or_else(|| dims.iter().position(|d| *d > 0 && d % made_for == 0));
    if let Some(place) = place {
        dims[place] = (dims[place] / made_for).saturating_mul(marker);
    }
}

fn flatten(call: &Call<'_>) -> Result<Tensor, Issue> {
    let x = call.input(0)?;
    let axis = call.int("axis").unwrap_or(1);
    let axis = if axis == x.rank() as i64 { x.rank() } else { call.axis(axis, x.rank())? };
    let product = |dims: &[i64]| dims.iter().fold(1i64, |a, &d| a.saturating_mul(d));
    viewed(x, vec![product(&x.dims[..axis]), product(&x.dims[axis..])])
}

fn squeeze(call: &Call<'_>) -> Result<Tensor, Issue> {
    let x = call.input(0)?;
    let axes = match call.list(1, "axes")? {
        Some(axes) => axes.iter().map(|&a| call.axis(a, x.rank())).collect::<Result<Vec<_>, _>>()?,
        None => (0..x.rank()).filter(|&i| x.dims[i] == 1).collect(),
    };
    viewed(x, x.dims.iter().enumerate().filter(|(i, _)| !axes.contains(i)).map(|(_, &d)| d).collect())
}

fn unsqueeze(call: &Call<'_>) -> Result<Tensor, Issue> {
    let x = call.input(0)?;
    let axes = call.list(1, "axes")?.ok_or("its axes are missing")?;
    let rank = x.rank() + axes.len();
    let axes = axes.iter().map(|&a| call.axis(a, rank)).collect::<Result<Vec<_>, _>>()?;
    let mut rest = x.dims.iter();
    let dims = (0..rank).map(|i| if axes.contains(&i) { Some(1) } else { rest.next().copied() });
    viewed(x, dims.collect::<Option<_>>().ok_or("it names an axis twice")?)
}

/// Where each dimension of a transposed tensor comes from.
pub fn permutation(call: &Call<'_>, rank: usize) -> Result<Vec<usize>, Issue> {
    let order: Vec<usize> = match call.ints("perm") {
        Some(perm) => perm.iter().map(|&p| call.axis(p, rank)).collect::<Result<_, _>>()?,
        None => (0..rank).rev().collect(),
    };
    let mut sorted = order.clone();
    sorted.sort_unstable();
    if sorted != (0..rank).collect::<Vec<_>>() {
        return Err(Issue::Wrong(format!("{order:?} is not an order of {rank} dimensions")));
    }
    Ok(order)
}

fn transpose(call: &Call<'_>) -> Result<Tensor, Issue> {
    let x = call.input(0)?;
    let order = permutation(call, x.rank())?;
    rearranged(x, order.iter().map(|&i| x.dims[i]).collect(), |c| {
        let mut own = vec![0; c.len()];
        order.iter().zip(c).for_each(|(&i, &c)| own[i] = c);
        position(&x.dims, own.into_iter())
    })
}

fn concat(call: &Call<'_>) -> Result<Tensor, Issue> {
    let first = call.input(0)?;
    let axis = call.axis(call.int("axis").unwrap_or(1), first.rank())?;
    let parts = (0..call.inputs.len()).map(|i| call.input(i)).collect::<Result<Vec<_>, _>>()?;
    let mut dims = first.dims.clone();
    dims[axis] = 0;
    for part in &parts {
        if part.rank() != first.rank() {
            return Err(Issue::Wrong(format!("{:?} and {:?} do not fit together", first.dims, part.dims)));
        }
        for (i, (own, &size)) in dims.iter_mut().zip(&part.dims).enumerate() {
            match i {
                _ if i == axis => *own = own.saturating_add(size),
                // A constant without the batch, in a file that was made for one sample.
                _ if *own == 1 && size == call.batch.0 => *own = size,
                _ if *own == size || (size == 1 && *own == call.batch.0) => {}
                _ => return Err(Issue::Wrong(format!("{:?} and {:?} do not fit together", first.dims, part.dims))),
            }
        }
    }
    let mut result = Tensor::new(dims, first.real)?;
    if let (1, true) = (result.rank(), result.elements() <= MOST_VALUES) {
        let ints: Option<Vec<&[i64]>> = parts.iter().map(|p| p.ints()).collect();
        let reals = || parts.iter().map(|p| p.data.as_ref().map(Data::reals)).collect::<Option<Vec<_>>>();
        result.data = match ints {
            Some(lists) => Some(Data::Ints(lists.concat().into())),
            None => reals().map(|lists| Data::Reals(lists.iter().flat_map(|l| l.iter().copied()).collect())),
        };
    }
    Ok(result)
}

/// Per dimension where a slice begins and by how much it steps.
fn slice(call: &Call<'_>) -> Result<Tensor, Issue> {
    let x = call.input(0)?;
    let starts = call.list(1, "starts")?.ok_or("its starts are missing")?;
    let ends = call.list(2, "ends")?.ok_or("its ends are missing")?;
    let axes = call.list(3, "axes")?.unwrap_or_else(|| (0..starts.len() as i64).collect());
    let steps = call.list(4, "steps")?.unwrap_or_else(|| vec![1; starts.len()]);
    if [ends.len(), axes.len(), steps.len()].iter().any(|&n| n != starts.len()) {
        return Err("its starts, ends, axes and steps are not equally many".into());
    }
    let mut dims = x.dims.clone();
    let mut begin: Vec<(i64, i64)> = vec![(0, 1); x.rank()];
    for i in 0..starts.len() {
        let axis = call.axis(axes[i], x.rank())?;
        let (size, step) = (x.dims[axis], steps[i]);
        if step == 0 || !(-super::super::tensor::LARGEST..=super::super::tensor::LARGEST).contains(&step) {
            return Err(Issue::Wrong(format!("a slice by steps of {step}")));
        }
        let from_end = |at: i64| if at < 0 { at.saturating_add(size) } else { at };
        let (low, high) = if step > 0 { (0, size) } else { (-1, size - 1) };
        let start = from_end(starts[i]).clamp(low.max(0), high.max(0));
        let end = if step < 0 && ends[i] < -size { -1 } else { from_end(ends[i]).clamp(low, high) };
        let span = if step > 0 { end - start } else { start - end };
        dims[axis] = (span + step.abs() - 1).max(0) / step.abs();
        begin[axis] = (start, step);
    }
    rearranged(x, dims, |c| position(&x.dims, c.iter().zip(&begin).map(|(&c, (s, t))| (s + c as i64 * t) as usize)))
}

fn split(call: &Call<'_>) -> Result<Vec<Tensor>, Issue> {
    let x = call.input(0)?;
    let axis = call.axis(call.int("axis").unwrap_or(0), x.rank())?;
    let size = x.dims[axis];
    let count = call.node.outputs.len().max(1) as i64;
    let sizes = match call.list(1, "split")? {
        Some(sizes) => sizes,
        None => {
            let each = (size + count - 1) / count;
            (0..count).map(|i| each.min((size - i * each).max(0))).collect()
        }
    };
    if sizes.iter().any(|s| *s < 0) || sizes.iter().fold(0i64, |a, &b| a.saturating_add(b)) != size {
        return Err(Issue::Wrong(format!("{sizes:?} are not the parts of {size}")));
    }
    let mut begin = 0usize;
    sizes
        .iter()
        .map(|&part| {
            let mut dims = x.dims.clone();
            dims[axis] = part;
            let start = begin;
            begin += part as usize;
            rearranged(x, dims, |c| {
                position(&x.dims, c.iter().enumerate().map(|(i, &c)| if i == axis { c + start } else { c }))
            })
        })
        .collect()
}

fn gather(call: &Call<'_>) -> Result<Tensor, Issue> {
    let (x, indices) = (call.input(0)?, call.input(1)?);
    let axis = call.axis(call.int("axis").unwrap_or(0), x.rank())?;
    let dims = [&x.dims[..axis], &indices.dims[..], &x.dims[axis + 1..]].concat();
    let Some(chosen) = indices.ints() else {
        return Ok(Tensor::new(dims, x.real)?);
    };
    let size = x.dims[axis];
    let inner = indices.rank();
    rearranged(x, dims, |c| {
        let place = position(&indices.dims, c[axis..axis + inner].iter().copied());
        let index = chosen.get(place).map_or(-1, |&i| if i < 0 { i.saturating_add(size) } else { i });
        if !(0..size).contains(&index) {
            return usize::MAX;
        }
        let own = c[..axis].iter().copied().chain([index as usize]).chain(c[axis + inner..].iter().copied());
        position(&x.dims, own)
    })
}

fn gather_nd(call: &Call<'_>) -> Result<Tensor, Issue> {
    let (x, indices) = (call.input(0)?, call.input(1)?);
    let batch = usize::try_from(call.int("batch_dims").unwrap_or(0)).unwrap_or(0);
    let (outer, depth) = match indices.dims[..] {
        [ref outer @ .., depth] => (outer, usize::try_from(depth).unwrap_or(usize::MAX)),
        [] => return Err("its indices are a scalar".into()),
    };
    let rest = batch.checked_add(depth).and_then(|n| x.dims.get(n..)).ok_or("its indices are longer than its input")?;
    Ok(Tensor::new([outer, rest].concat(), x.real)?)
}

fn expand(call: &Call<'_>) -> Result<Tensor, Issue> {
    let x = call.input(0)?;
    let shape = call.list(1, "shape")?.ok_or("its shape is missing")?;
    let dims = broadcast(&x.dims, &shape)?;
    let out = dims.clone();
    rearranged(x, dims, |c| spread(&x.dims, &out, position(&out, c.iter().copied())))
}

fn tile(call: &Call<'_>) -> Result<Tensor, Issue> {
    let x = call.input(0)?;
    let repeats = call.list(1, "repeats")?.ok_or("its repeats are missing")?;
    if repeats.len() != x.rank() {
        return Err("its repeats are not one per dimension".into());
    }
    let dims = x.dims.iter().zip(&repeats).map(|(&d, &r)| d.saturating_mul(r)).collect();
    rearranged(x, dims, |c| position(&x.dims, c.iter().zip(&x.dims).map(|(&c, &d)| c % d.max(1) as usize)))
}

fn pad(call: &Call<'_>) -> Result<Tensor, Issue> {
    let x = call.input(0)?;
    Ok(Tensor::new(
        pads(call)?.into_iter().zip(&x.dims).map(|((a, b), &d)| d.saturating_add(a).saturating_add(b)).collect(),
        x.real,
    )?)
}

/// How much a `Pad` adds before and after each dimension.
pub fn pads(call: &Call<'_>) -> Result<Vec<(i64, i64)>, Issue> {
    let rank = call.input(0)?.rank();
    let sizes = call.list(1, "pads")?.ok_or("its pads are missing")?;
    let mut pads = vec![(0, 0); rank];
    let axes = match call.optional(3).and_then(Tensor::ints) {
        Some(axes) => axes.iter().map(|&a| call.axis(a, rank)).collect::<Result<Vec<_>, _>>()?,
        None => (0..rank).collect(),
    };
    if sizes.len() != 2 * axes.len() {
        return Err("its pads are not two per dimension".into());
    }
    for (i, &axis) in axes.iter().enumerate() {
        pads[axis] = (sizes[i], sizes[i + axes.len()]);
    }
    Ok(pads)
}

fn constant_of_shape(call: &Call<'_>) -> Result<Tensor, Issue> {
    let dims = call.list(0, "shape")?.ok_or("its shape is missing")?;
    let value = call.tensor("value").map(Tensor::from_wire).transpose()?;
    let real = value.as_ref().is_none_or(|v| v.real);
    let mut result = Tensor::new(dims, real)?;
    if result.elements() <= MOST_VALUES {
        let count = result.elements() as usize;
        result.data = match value.as_ref().map(|v| &v.data) {
            None => Some(Data::Reals(vec![0.0; count].into())),
            Some(data) => data.as_ref().and_then(|d| d.select(std::iter::repeat_n(Some(0), count))),
        };
    }
    Ok(result)
}

fn resize(call: &Call<'_>) -> Result<Tensor, Issue> {
    let x = call.input(0)?;
    let scales_at = if call.node.op == "Resize" && call.opset >= 11 { 2 } else { 1 };
    let axes = match call.ints("axes") {
        Some(axes) => axes.iter().map(|&a| call.axis(a, x.rank())).collect::<Result<Vec<_>, _>>()?,
        None => (0..x.rank()).collect(),
    };
    let mut dims = x.dims.clone();
    if let Some(sizes) = call.optional(3).and_then(Tensor::ints) {
        if sizes.len() != axes.len() {
            return Err("its sizes are not one per dimension".into());
        }
        axes.iter().zip(sizes).for_each(|(&axis, &size)| dims[axis] = size);
        return Ok(Tensor::new(dims, x.real)?);
    }
    let stated = call.attribute("scales").map(|a| a.floats.iter().map(|&f| f64::from(f)).collect::<Vec<_>>());
    let given = call.optional(scales_at).and_then(|t| t.data.as_ref()).map(|d| d.reals().to_vec());
    let scales = stated.or(given).filter(|s| s.len() == axes.len()).ok_or("its scales are not known")?;
    for (&axis, scale) in axes.iter().zip(scales) {
        dims[axis] = (x.dims[axis] as f64 * scale).floor() as i64;
    }
    Ok(Tensor::new(dims, x.real)?)
}

fn blocks(call: &Call<'_>) -> Result<Tensor, Issue> {
    let x = call.input(0)?;
    let b = call.int("blocksize").filter(|b| (1..=1 << 10).contains(b)).ok_or("its blocksize is missing")?;
    let &[n, c, h, w] = &x.dims[..] else {
        return Err("its input is not a batch of maps".into());
    };
    let dims = match call.node.op.as_str() {
        "DepthToSpace" if c % (b * b) == 0 => vec![n, c / (b * b), h * b, w * b],
        "SpaceToDepth" if h % b == 0 && w % b == 0 => vec![n, c * b * b, h / b, w / b],
        _ => return Err(Issue::Wrong(format!("blocks of {b} in {:?}", x.dims))),
    };
    Ok(Tensor::new(dims, x.real)?)
}

fn one_hot(call: &Call<'_>) -> Result<Tensor, Issue> {
    let indices = call.input(0)?;
    let depth = call.input(1)?.scalar().ok_or("its depth is not known")? as i64;
    let axis = call.int("axis").unwrap_or(-1);
    let place = if axis == -1 { indices.rank() } else { call.axis(axis, indices.rank() + 1)? };
    let mut dims = indices.dims.clone();
    dims.insert(place, depth);
    Ok(Tensor::new(dims, call.input(2)?.real)?)
}
