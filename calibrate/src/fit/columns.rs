//! Columns that the Lasso chooses from: candidate terms of rows, standardised, without those that tell nothing new.

use crate::fit::design::Candidates;
use crate::rows::prepare::Row;
use ndarray::{Array1, Array2, ArrayView1, ArrayViewMut1, Axis};
use std::collections::BTreeSet;

/// A column that varies over fewer shapes than this is no candidate: nothing could be learned from it.
const FEWEST_SHAPES: usize = 8;
/// A column that spans less is no candidate: most are logarithms, and what moves by less than a hundredth is divided by what
/// rounding leaves of it.
const LEAST_SPAN: f64 = 0.01;
/// Columns that correlate by more than this, either way, are twins: rows do not tell them apart.
const TWINS: f64 = 0.9999;

/// Standardised columns, one of each candidate that is left.
pub(super) struct Standardised {
    /// The candidates, in the order in which they came.
    pub candidates: Candidates,
    /// Their values less the mean and over the scale, rows by candidates.
    pub x: Array2<f64>,
    /// Mean of each over the rows.
    pub mean: Array1<f64>,
    /// Standard deviation of each over the rows.
    pub scale: Array1<f64>,
}

impl Standardised {
    /// Of rows that are not none. Of twins the candidate of the lowest degree stays, of equal ones the first: the Lasso would take
    /// either, by chance, and descends slowly where it has both.
    pub fn new(candidates: Candidates, rows: &[&Row]) -> Self {
        let keys: Vec<&str> = rows.iter().map(|r| r.key.as_str()).collect();
        let mut x = candidates.matrix(rows.iter().map(|r| &r.variables));
        let n = x.nrows() as f64;
        let mean = x.sum_axis(Axis(0)) / n;
        x -= &mean;
        let mut scale = x.map_axis(Axis(0), |c| (c.dot(&c) / n).sqrt());
        for (column, scale) in x.columns_mut().into_iter().zip(&mut scale) {
            standardise(column, scale, &keys);
        }
        let mut order: Vec<usize> = (0..x.ncols()).collect();
        order.sort_by_key(|&j| candidates.degree(j));
        let kept = without_twins(&x, &order);
        Self {
            x: x.select(Axis(1), &kept),
            mean: mean.select(Axis(0), &kept),
            scale: scale.select(Axis(0), &kept),
            candidates: candidates.only(&kept),
        }
    }
}

/// Divides a centred column by its deviation, or empties one that varies over too few shapes to learn from.
fn standardise(mut column: ArrayViewMut1<'_, f64>, scale: &mut f64, keys: &[&str]) {
    if varies_enough(column.view(), keys) {
        column /= *scale;
    } else {
        column.fill(0.0);
        *scale = 1.0;
    }
}

/// Whether a column spans enough, and takes a value other than its most common one on enough shapes.
fn varies_enough(column: ArrayView1<'_, f64>, keys: &[&str]) -> bool {
    let mut sorted: Vec<f64> = column.to_vec();
    sorted.sort_by(f64::total_cmp);
    if sorted.last().zip(sorted.first()).is_none_or(|(most, least)| most - least < LEAST_SPAN) {
        return false;
    }
    let common = sorted[sorted.len() / 2];
    let mut shapes = BTreeSet::new();
    for (value, key) in column.iter().zip(keys) {
        if (value - common).abs() > 1e-9 && shapes.insert(*key) && shapes.len() >= FEWEST_SHAPES {
            return true;
        }
    }
    false
}

/// Standardised columns that are neither empty nor twins of one before them in the order; ascending.
fn without_twins(x: &Array2<f64>, order: &[usize]) -> Vec<usize> {
    let correlations = x.t().dot(x) / x.nrows() as f64;
    let mut kept: Vec<usize> = Vec::new();
    for &j in order {
        let empty = correlations[[j, j]] == 0.0;
        if !empty && kept.iter().all(|&k| correlations[[j, k]].abs() <= TWINS) {
            kept.push(j);
        }
    }
    kept.sort_unstable();
    kept
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{Rng, SeedableRng};
    use rand_xoshiro::Xoshiro256Plus;

    /// Columns of mean 0 and deviation 1.
    fn standard(columns: &[Vec<f64>]) -> Array2<f64> {
        let mut x = Array2::from_shape_fn((columns[0].len(), columns.len()), |(i, j)| columns[j][i]);
        let keys: Vec<String> = (0..x.nrows()).map(|i| i.to_string()).collect();
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        for mut column in x.columns_mut() {
            let mean = column.mean().expect("rows");
            column -= mean;
            let mut scale = (column.dot(&column) / keys.len() as f64).sqrt();
            standardise(column, &mut scale, &keys);
        }
        x
    }

    #[test]
    fn of_twins_the_first_in_the_order_stays() {
        let mut rng = Xoshiro256Plus::seed_from_u64(3);
        let mut noise = |share: f64| (0..200).map(|_| share * (rng.r#gen::<f64>() - 0.5)).collect::<Vec<f64>>();
        let (one, other, (little, much)) = (noise(1.0), noise(1.0), (noise(0.004), noise(0.2)));
        let scaled = |by: f64, with: &[f64]| one.iter().zip(with).map(|(v, w)| by * v + 3.0 + w).collect::<Vec<f64>>();
        let columns =
            [one.clone(), other, scaled(-2.0, &[0.0; 200]), scaled(1.0, &little), scaled(1.0, &much), vec![7.0; 200]];
        let x = standard(&columns);
        assert_eq!(without_twins(&x, &[0, 1, 2, 3, 4, 5]), [0, 1, 4]);
        assert_eq!(without_twins(&x, &[3, 2, 1, 0, 4, 5]), [1, 3, 4]);
    }

    #[test]
    fn a_column_is_empty_that_varies_over_few_shapes() {
        let few: Vec<f64> = (0..100).map(|i| if i < 7 { 1.0 } else { 0.0 }).collect();
        let enough: Vec<f64> = (0..100).map(|i| if i < 8 { 1.0 } else { 0.0 }).collect();
        let flat: Vec<f64> = (0..100).map(|i| 0.009 * f64::from(i % 2)).collect();
        let x = standard(&[few, enough, flat]);
        assert_eq!(without_twins(&x, &[0, 1, 2]), [1]);
    }
}
