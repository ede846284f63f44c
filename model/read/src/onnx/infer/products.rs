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

/// The letters of each operand and of the result, as in "bij,bjk->bik". An ellipsis becomes digits, aligned at the last;
/// a result that is not named has the letters that occur once, in alphabetical order.
pub fn einsum_letters(call: &Call<'_>) -> Result<(Vec<Vec<char>>, Vec<char>), Issue> {
    let equation: String = call.word("equation").unwrap_or_default().chars().filter(|c| *c != ' ').collect();
    let (operands, result) = equation.split_once("->").map_or((&equation[..], None), |(o, r)| (o, Some(r)));
    let operands: Vec<&str> = operands.split(',').collect();
    let wide = |(position, letters): (usize, &&str)| {
        let named = letters.chars().filter(|c| *c != '.').count();
        call.optional(position).map_or(0, |t| t.rank().saturating_sub(named))
    };
    let hidden = |count: usize| (0..count as u32).rev().filter_map(|i| char::from_digit(i, 10));
    let expand = |letters: &str, count: usize| -> Vec<char> {
        match letters.split_once("...") {
            Some((before, after)) => before.chars().chain(hidden(count)).chain(after.chars()).collect(),
            None => letters.chars().collect(),
        }
    };
    let most = operands.iter().enumerate().filter(|(_, o)| o.contains("...")).map(wide).max().unwrap_or(0);
    if most > 9 {
        return Err("an Einsum over too many dimensions".into());
    }
    let expanded: Vec<Vec<char>> = operands.iter().enumerate().map(|o| expand(o.1, wide(o))).collect();
    let result = match result {
        Some(result) => expand(result, most),
        None => {
            let all: Vec<char> = expanded.concat().into_iter().filter(|c| !c.is_ascii_digit()).collect();
            let mut once: Vec<char> =
                all.iter().copied().filter(|c| all.iter().filter(|o| *o == c).count() == 1).collect();
            once.sort_unstable();
            hidden(most).chain(once).collect()
        }
    };
    Ok((expanded, result))
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
            let known = sizes.entry(*letter).or_insert(*size);
            if *known == 1 {
                *known = *size;
            }
            if *known != *size && *size != 1 {
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

#[cfg(test)]
mod tests {
    use super::super::testing::{call, node, tensor};
    use super::*;

    #[test]
    fn an_einsum_spreads_over_an_ellipsis_and_orders_what_it_does_not_name() {
        let dims = |equation: &str, a: &[i64], b: &[i64]| {
            let node = node("Einsum", &[("equation", Ok(equation))]);
            einsum(&call(&node, &[tensor(a), tensor(b)])).map(|t| t.dims)
        };
        assert_eq!(dims("bij, bjk -> bik", &[2, 3, 4], &[2, 4, 5]), Ok(vec![2, 3, 5]));
        assert_eq!(dims("...ij,...jk->...ik", &[7, 2, 3, 4], &[2, 4, 5]), Ok(vec![7, 2, 3, 5]));
        assert_eq!(dims("ij,jk", &[3, 4], &[4, 5]), Ok(vec![3, 5]));
        assert_eq!(dims("b...j,jk->b...k", &[2, 6, 4], &[4, 5]), Ok(vec![2, 6, 5]));
        assert!(dims("ij,jk->ik", &[3, 4], &[5, 6]).is_err());
    }
}
