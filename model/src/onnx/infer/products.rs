//! Matrix products, attention and recurrences.

use super::super::tensor::Tensor;
use super::arithmetic::broadcast;
use super::{Call, Issue};

pub fn gemm(call: &Call<'_>) -> Result<Tensor, Issue> {
    let (a, b) = (call.input(0)?, call.input(1)?);
    let ([m, k], [k2, n]) = (oriented(call, a, "transA")?, oriented(call, b, "transB")?);
    if k != k2 {
        return Err(Issue::Wrong(format!("a product of {:?} and {:?}", a.dims, b.dims)));
    }
    Ok(Tensor::new(vec![m, n], a.real)?)
}

fn oriented(call: &Call<'_>, matrix: &Tensor, flag: &str) -> Result<[i64; 2], Issue> {
    match (&matrix.dims[..], call.int(flag).unwrap_or(0)) {
        (&[rows, columns], 0) => Ok([rows, columns]),
        (&[columns, rows], _) => Ok([rows, columns]),
        _ => Err(Issue::Wrong(format!("{:?} is not a matrix", matrix.dims))),
    }
}

pub fn matmul(call: &Call<'_>) -> Result<Tensor, Issue> {
    let (a, b) = (call.input(0)?, call.input(1)?);
    let wrong = || Issue::Wrong(format!("a product of {:?} and {:?}", a.dims, b.dims));
    let (stack_a, m, k) = match a.dims[..] {
        [] => return Err(wrong()),
        [k] => (&[][..], None, k),
        [ref stack @ .., m, k] => (stack, Some(m), k),
    };
    let (stack_b, k2, n) = match b.dims[..] {
        [] => return Err(wrong()),
        [k] => (&[][..], k, None),
        [ref stack @ .., k, n] => (stack, k, Some(n)),
    };
    if k != k2 {
        return Err(wrong());
    }
    let mut dims = broadcast(stack_a, stack_b)?;
    dims.extend(m);
    dims.extend(n);
    Ok(Tensor::new(dims, a.real)?)
}

/// The letters of each operand and of the result, as in "bij,bjk->bik".
pub fn einsum_letters(call: &Call<'_>) -> Result<(Vec<Vec<char>>, Vec<char>), Issue> {
    let equation: String = call.word("equation").unwrap_or_default().chars().filter(|c| *c != ' ').collect();
    let (operands, result) = equation.split_once("->").ok_or("an Einsum that does not name its result")?;
    if equation.contains("...") {
        return Err("an Einsum with an ellipsis".into());
    }
    Ok((operands.split(',').map(|o| o.chars().collect()).collect(), result.chars().collect()))
}

pub fn einsum(call: &Call<'_>) -> Result<Tensor, Issue> {
    let (operands, result) = einsum_letters(call)?;
    let mut sizes = std::collections::BTreeMap::new();
    for (position, letters) in operands.iter().enumerate() {
        let tensor = call.input(position)?;
        if letters.len() != tensor.rank() {
            return Err(Issue::Wrong(format!("an Einsum over {} letters of {:?}", letters.len(), tensor.dims)));
        }
        for (letter, size) in letters.iter().zip(&tensor.dims) {
            if *sizes.entry(*letter).or_insert(*size) != *size {
                return Err(Issue::Wrong(format!("two sizes of the Einsum's index {letter:?}")));
            }
        }
    }
    let dims = result.iter().map(|l| sizes.get(l).copied().ok_or("an Einsum with an index from nowhere"));
    Ok(Tensor::new(dims.collect::<Result<_, _>>()?, call.input(0)?.real)?)
}

/// `[steps, directions, batch, hidden]` and the last states.
pub fn recurrent(call: &Call<'_>) -> Result<Vec<Tensor>, Issue> {
    let x = call.input(0)?;
    let weights = call.input(2)?;
    let (&[steps, batch, _], &[directions, _, hidden]) = (&x.dims[..], &weights.dims[..]) else {
        return Err("its input or weights do not have three dimensions".into());
    };
    let tensor = |dims: Vec<i64>| Tensor::new(dims, true).map_err(Issue::from);
    Ok(if call.int("layout") == Some(1) {
        let (batch, steps) = (steps, batch);
        let state = tensor(vec![batch, directions, hidden])?;
        vec![tensor(vec![batch, steps, directions, hidden])?, state.clone(), state]
    } else {
        let state = tensor(vec![directions, batch, hidden])?;
        vec![tensor(vec![steps, directions, batch, hidden])?, state.clone(), state]
    })
}

/// Queries times keys, softmax, times values: `[batch, heads, tokens, features]`, or `[batch, tokens, heads features]`
/// where the node says how many heads there are.
pub fn attention(call: &Call<'_>) -> Result<Tensor, Issue> {
    let (q, v) = (call.input(0)?, call.input(2)?);
    if let ([batch, tokens, _], [_, _, features], Some(heads), Some(kv_heads)) =
        (&q.dims[..], &v.dims[..], call.int("q_num_heads"), call.int("kv_num_heads"))
    {
        let wide = features.checked_div(kv_heads).and_then(|each| each.checked_mul(heads));
        return Ok(Tensor::new(vec![*batch, *tokens, wide.ok_or("heads that do not divide its features")?], q.real)?);
    }
    match (&q.dims[..], &v.dims[..]) {
        ([stack @ .., tokens, _], [_, .., features]) if q.rank() == 4 => {
            Ok(Tensor::new([stack, &[*tokens, *features]].concat(), q.real)?)
        }
        _ => Err("attention over other than [batch, heads, tokens, features]".into()),
    }
}
