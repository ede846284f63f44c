//! Element by element, and reductions.

use super::super::tensor::{Data, MOST_VALUES, Tensor};
use super::{Call, Issue};
use std::rc::Rc;

/// Dimensions of two tensors spread over each other (NumPy's rule).
///
/// # Errors
/// When they do not fit.
pub fn broadcast(a: &[i64], b: &[i64]) -> Result<Vec<i64>, Issue> {
    let rank = a.len().max(b.len());
    let at = |dims: &[i64], i: usize| (i + dims.len()).checked_sub(rank).map_or(1, |p| dims[p]);
    (0..rank)
        .map(|i| match (at(a, i), at(b, i)) {
            (x, y) if x == y => Ok(x),
            (1, other) | (other, 1) => Ok(other),
            _ => Err(Issue::Wrong(format!("{a:?} and {b:?} do not fit together"))),
        })
        .collect()
}

/// Position in a tensor of `dims` of the element that a result of `out` dimensions reads at `flat`.
pub fn spread(dims: &[i64], out: &[i64], flat: usize) -> usize {
    let (mut rest, mut stride, mut position) = (flat, 1, 0);
    for i in (0..out.len()).rev() {
        let size = out[i].max(1) as usize;
        let index = rest % size;
        rest /= size;
        if let Some(own) = (i + dims.len()).checked_sub(out.len()).map(|p| dims[p] as usize) {
            if own > 1 {
                position += index * stride;
            }
            stride *= own;
        }
    }
    position
}

/// Another element type, values kept.
pub fn converted(tensor: &Tensor, real: bool, truth: bool) -> Result<Tensor, Issue> {
    let data = tensor.data.as_ref().map(|data| match (data, real) {
        (Data::Ints(v), false) if truth => Data::Ints(v.iter().map(|&x| i64::from(x != 0)).collect()),
        (Data::Reals(v), false) if truth => Data::Ints(v.iter().map(|&x| i64::from(x != 0.0)).collect()),
        (Data::Reals(v), false) => Data::Ints(v.iter().map(|&x| x as i64).collect()),
        (Data::Ints(_), true) => Data::Reals(data.reals()),
        _ => data.clone(),
    });
    Ok(Tensor { real, data, ..tensor.clone() })
}

pub fn unary(call: &Call<'_>) -> Result<Tensor, Issue> {
    let x = call.input(0)?;
    let op = call.node.op.as_str();
    let ints = |f: fn(i64) -> Option<i64>| {
        x.ints().and_then(|v| v.iter().map(|&x| f(x)).collect::<Option<Rc<[i64]>>>()).map(Data::Ints)
    };
    let reals = |f: fn(f64) -> f64| match &x.data {
        Some(Data::Reals(v)) => Some(Data::Reals(v.iter().map(|&x| f(x)).collect())),
        _ => None,
    };
    let data = match op {
        "Not" => ints(|v| Some(i64::from(v == 0))),
        "Neg" => ints(i64::checked_neg).or_else(|| reals(|v| -v)),
        "Abs" => ints(i64::checked_abs).or_else(|| reals(f64::abs)),
        "Sign" => ints(|v| Some(v.signum())),
        "Sqrt" => reals(f64::sqrt),
        "Reciprocal" => reals(f64::recip),
        "Exp" => reals(f64::exp),
        "Log" => reals(f64::ln),
        "Floor" => reals(f64::floor),
        "Ceil" => reals(f64::ceil),
        "Round" => reals(f64::round_ties_even),
        _ => None,
    };
    let real = x.real && !matches!(op, "Not" | "IsNaN" | "IsInf");
    Ok(Tensor { dims: x.dims.clone(), real, data })
}

pub fn clip(call: &Call<'_>) -> Result<Tensor, Issue> {
    let x = call.input(0)?;
    let limit = |position: usize, name: &str, default: f64| match call.optional(position) {
        Some(limit) => limit.scalar(),
        None => Some(call.real(name).unwrap_or(default)),
    };
    let limits = (limit(1, "min", f64::NEG_INFINITY), limit(2, "max", f64::INFINITY));
    let data = match (&x.data, limits) {
        (Some(Data::Reals(v)), (Some(low), Some(high))) => {
            Some(Data::Reals(v.iter().map(|x| x.min(high).max(low)).collect()))
        }
        (Some(Data::Ints(v)), (Some(low), Some(high))) => {
            Some(Data::Ints(v.iter().map(|&x| (x as f64).min(high).max(low) as i64).collect()))
        }
        _ => None,
    };
    Ok(Tensor { data, ..x.clone() })
}

pub fn binary(call: &Call<'_>) -> Result<Tensor, Issue> {
    let op = call.node.op.as_str();
    let mut result = call.input(0)?.clone();
    // Shapes are computed from few operands at a time.
    if call.inputs.len() > 64 {
        result.data = None;
    }
    for position in 1..call.inputs.len() {
        result = two(op, &result, call.input(position)?)?;
    }
    let truth = matches!(op, "And" | "Or" | "Xor" | "Equal" | "Greater" | "Less" | "GreaterOrEqual" | "LessOrEqual");
    Ok(Tensor { real: result.real && !truth, ..result })
}

fn two(op: &str, a: &Tensor, b: &Tensor) -> Result<Tensor, Issue> {
    let mut result = Tensor::new(broadcast(&a.dims, &b.dims)?, a.real)?;
    let (Some(x), Some(y)) = (&a.data, &b.data) else {
        return Ok(result);
    };
    if result.elements() > MOST_VALUES {
        return Ok(result);
    }
    let places = 0..result.elements() as usize;
    let out = &result.dims;
    let pairs = places.map(|i| (spread(&a.dims, out, i), spread(&b.dims, out, i)));
    result.data = match (x, y) {
        (Data::Ints(x), Data::Ints(y)) => {
            let of = |(i, j): (usize, usize)| integer(op, *x.get(i)?, *y.get(j)?);
            pairs.map(of).collect::<Option<Rc<[i64]>>>().map(Data::Ints)
        }
        _ => {
            let (x, y) = (x.reals(), y.reals());
            let of = |(i, j): (usize, usize)| real(op, *x.get(i)?, *y.get(j)?);
            pairs.map(of).collect::<Option<Rc<[f64]>>>().map(Data::Reals)
        }
    };
    if let (Some(Data::Reals(v)), true) = (&result.data, is_comparison(op)) {
        result.data = Some(Data::Ints(v.iter().map(|&x| x as i64).collect()));
    }
    Ok(result)
}

fn is_comparison(op: &str) -> bool {
    matches!(op, "Equal" | "Greater" | "Less" | "GreaterOrEqual" | "LessOrEqual")
}

/// `None` where the result is not known or not a number.
fn integer(op: &str, x: i64, y: i64) -> Option<i64> {
    Some(match op {
        "Add" | "Sum" => x.checked_add(y)?,
        "Sub" => x.checked_sub(y)?,
        "Mul" => x.checked_mul(y)?,
        "Div" => x.checked_div(y)?,
        // The sign of the divisor, as the operator has it for integers.
        "Mod" => x.checked_rem_euclid(y).map(|r| if y < 0 && r != 0 { r + y } else { r })?,
        "Pow" => x.checked_pow(u32::try_from(y).ok()?)?,
        "Min" => x.min(y),
        "Max" => x.max(y),
        "And" => i64::from(x != 0 && y != 0),
        "Or" => i64::from(x != 0 || y != 0),
        "Xor" => i64::from((x != 0) != (y != 0)),
        "Equal" => i64::from(x == y),
        "Greater" => i64::from(x > y),
        "Less" => i64::from(x < y),
        "GreaterOrEqual" => i64::from(x >= y),
        "LessOrEqual" => i64::from(x <= y),
        _ => return None,
    })
}

fn real(op: &str, x: f64, y: f64) -> Option<f64> {
    let truth = |b: bool| f64::from(u8::from(b));
    Some(match op {
        "Add" | "Sum" => x + y,
        "Sub" => x - y,
        "Mul" => x * y,
        "Div" => x / y,
        "Pow" => x.powf(y),
        "Min" => x.min(y),
        "Max" => x.max(y),
        "Mod" => y * (x / y - (x / y).trunc()),
        "Equal" => truth(x == y),
        "Greater" => truth(x > y),
        "Less" => truth(x < y),
        "GreaterOrEqual" => truth(x >= y),
        "LessOrEqual" => truth(x <= y),
        _ => return None,
    })
}

pub fn choose(call: &Call<'_>) -> Result<Tensor, Issue> {
    let (which, a, b) = (call.input(0)?, call.input(1)?, call.input(2)?);
    let dims = broadcast(&which.dims, &broadcast(&a.dims, &b.dims)?)?;
    let mut result = Tensor::new(dims, a.real)?;
    if let (Some(which_values), Some(Data::Ints(x)), Some(Data::Ints(y)), true) =
        (which.ints(), &a.data, &b.data, result.elements() <= MOST_VALUES)
    {
        let at = |i: usize| {
            let place = |t: &Tensor| spread(&t.dims, &result.dims, i);
            let yes = *which_values.get(place(which))? != 0;
            if yes { x.get(place(a)).copied() } else { y.get(place(b)).copied() }
        };
        result.data = (0..result.elements() as usize).map(at).collect::<Option<Rc<[i64]>>>().map(Data::Ints);
    }
    Ok(result)
}

pub fn range(call: &Call<'_>) -> Result<Tensor, Issue> {
    let (start, limit, step) = (call.input(0)?, call.input(1)?, call.input(2)?);
    let known = |t: &Tensor| t.scalar().ok_or("a range that is computed from the network's input, not from shapes");
    let (from, to, by) = (known(start)?, known(limit)?, known(step)?);
    let count = ((to - from) / by).ceil().max(0.0);
    if by == 0.0 || !count.is_finite() || count > 1e12 {
        return Err("a range without an end".into());
    }
    let mut result = Tensor::new(vec![count as i64], start.real)?;
    if count as i64 <= MOST_VALUES {
        let values = (0..count as i64).map(|i| from + i as f64 * by);
        result.data = Some(match start.real {
            true => Data::Reals(values.collect()),
            false => Data::Ints(values.map(|v| v as i64).collect()),
        });
    }
    Ok(result)
}

/// Dimensions after some are reduced to one or dropped.
fn reduced(dims: &[i64], axes: &[usize], keep: bool) -> Vec<i64> {
    let sizes = dims.iter().enumerate().filter(|(i, _)| keep || !axes.contains(i));
    sizes.map(|(i, &d)| if axes.contains(&i) { 1 } else { d }).collect()
}

/// The axes that a reduction takes together: all unless it says which.
pub fn reduced_axes(call: &Call<'_>) -> Result<Vec<usize>, Issue> {
    let x = call.input(0)?;
    let axes = call.list(1, "axes")?.unwrap_or_default();
    if axes.is_empty() {
        return Ok(if call.int("noop_with_empty_axes") == Some(1) { vec![] } else { (0..x.rank()).collect() });
    }
    let mut axes = axes.iter().map(|&a| call.axis(a, x.rank())).collect::<Result<Vec<_>, _>>()?;
    axes.sort_unstable();
    Ok(axes)
}

pub fn reduce(call: &Call<'_>) -> Result<Tensor, Issue> {
    let x = call.input(0)?;
    let axes = reduced_axes(call)?;
    let mut result = Tensor::new(reduced(&x.dims, &axes, call.int("keepdims") != Some(0)), x.real)?;
    if let (Some(Data::Reals(values)), true) = (&x.data, axes.len() == x.rank()) {
        let total = match call.node.op.as_str() {
            "ReduceProd" => Some(values.iter().product()),
            "ReduceSum" => Some(values.iter().sum()),
            "ReduceMax" => values.iter().copied().reduce(f64::max),
            "ReduceMin" => values.iter().copied().reduce(f64::min),
            _ => None,
        };
        result.data = total.map(|t: f64| Data::Reals([t].into()));
    }
    if let (Some(values), true) = (x.ints(), axes.len() == x.rank()) {
        let total = match call.node.op.as_str() {
            "ReduceProd" => values.iter().try_fold(1i64, |a, &b| a.checked_mul(b)),
            "ReduceSum" => values.iter().try_fold(0i64, |a, &b| a.checked_add(b)),
            "ReduceMax" => values.iter().copied().max(),
            "ReduceMin" => values.iter().copied().min(),
            _ => None,
        };
        result.data = total.map(|t| Data::Ints([t].into()));
    }
    Ok(result)
}

pub fn extreme(call: &Call<'_>) -> Result<Tensor, Issue> {
    let x = call.input(0)?;
    let axis = call.axis(call.int("axis").unwrap_or(0), x.rank())?;
    Ok(Tensor::new(reduced(&x.dims, &[axis], call.int("keepdims") != Some(0)), false)?)
}
