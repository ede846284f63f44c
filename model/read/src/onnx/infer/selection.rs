//! Operators that select: values decide which of their inputs' elements they make, and mostly how many.
//!
//! As many are taken as the user says, or there are; what is known before anything runs is computed.

use super::super::tensor::{Data, MOST_VALUES, Tensor};
use super::{Call, Issue};

/// How many of `most` are selected.
fn selected(call: &Call<'_>, most: i64) -> i64 {
    let limit = i64::try_from(call.selected).unwrap_or(i64::MAX);
    match call.batch.0 {
        // Per sample, where the batch is among them.
        marker if marker > 1 && most % marker == 0 => (most / marker).min(limit).saturating_mul(marker),
        _ => most.min(limit),
    }
}

/// The largest values along a dimension and where they are; of an unknown number of them all.
pub fn top(call: &Call<'_>) -> Result<Vec<Tensor>, Issue> {
    let x = call.input(0)?;
    let axis = call.axis(call.int("axis").unwrap_or(-1), x.rank())?;
    let stated = call.int("k").or_else(|| call.optional(1)?.ints()?.first().copied());
    let mut dims = x.dims.clone();
    dims[axis] = match stated {
        Some(k) => k.min(dims[axis]),
        None => selected(call, dims[axis]),
    };
    Ok(vec![Tensor::new(dims.clone(), x.real)?, Tensor::new(dims, false)?])
}

/// Where elements are not zero: `[dimensions, elements]`.
pub fn non_zero(call: &Call<'_>) -> Result<Tensor, Issue> {
    let x = call.input(0)?;
    let rank = x.rank().max(1);
    let Some(data) = &x.data else {
        return Ok(Tensor::new(vec![rank as i64, selected(call, x.elements())], false)?);
    };
    let values = data.reals();
    let found: Vec<usize> = (0..values.len()).filter(|&i| values[i] != 0.0).collect();
    let mut result = Tensor::new(vec![rank as i64, found.len() as i64], false)?;
    if result.elements() <= MOST_VALUES {
        let along = |axis: usize| {
            let inner: i64 = x.dims.get(axis + 1..).unwrap_or_default().iter().product();
            let size = x.dims.get(axis).copied().unwrap_or(1).max(1);
            found.iter().map(move |&i| i as i64 / inner.max(1) % size)
        };
        result.data = Some(Data::Ints((0..rank).flat_map(along).collect()));
    }
    Ok(result)
}

/// Boxes that no better one of their class overlaps: `[boxes, 3]`.
pub fn boxes(call: &Call<'_>) -> Result<Tensor, Issue> {
    let (&[batch, count, _], &[_, classes, _]) = (&call.input(0)?.dims[..], &call.input(1)?.dims[..]) else {
        return Err("its boxes and scores do not have three dimensions".into());
    };
    let most = call.optional(2).and_then(Tensor::scalar).map_or(count, |m| (m.min(count as f64) as i64).max(0));
    let all = batch.saturating_mul(classes).saturating_mul(most);
    Ok(Tensor::new(vec![selected(call, all), 3], false)?)
}

/// Different elements: they, where they first are, which one each is, how often each is there.
pub fn unique(call: &Call<'_>) -> Result<Vec<Tensor>, Issue> {
    let x = call.input(0)?;
    let (mut dims, length) = match call.int("axis") {
        Some(axis) => (x.dims.clone(), call.axis(axis, x.rank())?),
        None => (vec![x.elements()], 0),
    };
    let all = dims[length];
    dims[length] = selected(call, all);
    let list = |n: i64| Tensor::new(vec![n], false);
    let count = dims[length];
    Ok(vec![Tensor::new(dims, x.real)?, list(count)?, list(all)?, list(count)?])
}

/// The elements or rows that a list of truth values names.
pub fn compress(call: &Call<'_>) -> Result<Tensor, Issue> {
    let x = call.input(0)?;
    let (mut dims, length) = match call.int("axis") {
        Some(axis) => (x.dims.clone(), call.axis(axis, x.rank())?),
        None => (vec![x.elements()], 0),
    };
    let known = call.input(1)?.ints().map(|v| v.iter().filter(|v| **v != 0).count() as i64);
    dims[length] = known.unwrap_or_else(|| selected(call, dims[length]));
    Ok(Tensor::new(dims, x.real)?)
}

#[cfg(test)]
mod tests {
    use super::super::testing::{call, node, tensor};
    use super::*;

    #[test]
    fn what_is_known_is_selected_and_of_the_rest_as_much_as_there_may_be() {
        let non_zero_of = |x: Tensor| non_zero(&call(&node("NonZero", &[]), &[x])).expect("a tensor");
        let list = Tensor { dims: vec![2, 3], ..Tensor::list(vec![0, 5, 0, 7, 0, 1]) };
        let found = non_zero_of(list);
        assert_eq!((&found.dims[..], found.ints()), (&[2, 3][..], Some(&[0, 1, 1, 1, 0, 2][..])));
        assert_eq!(non_zero_of(tensor(&[4, 2])).dims, [2, 3]);
        assert_eq!(non_zero_of(tensor(&[2])).dims, [1, 2]);
        let all = [tensor(&[1, 50, 4]), tensor(&[1, 2, 50])];
        assert_eq!(boxes(&call(&node("NonMaxSuppression", &[]), &all)).expect("boxes").dims, [3, 3]);
        let one = [tensor(&[1, 50, 4]), tensor(&[1, 2, 50]), Tensor { dims: vec![], ..Tensor::list(vec![1]) }];
        assert_eq!(boxes(&call(&node("NonMaxSuppression", &[]), &one)).expect("boxes").dims, [2, 3]);
    }

    #[test]
    fn the_largest_are_at_most_all() {
        let of = |k: i64| {
            let inputs = [tensor(&[2, 8]), Tensor::list(vec![k])];
            top(&call(&node("TopK", &[]), &inputs)).expect("values and indices")[1].dims.clone()
        };
        assert_eq!((of(5), of(50)), (vec![2, 5], vec![2, 8]));
    }
}
