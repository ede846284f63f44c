//! Weighted Lasso along a path of penalties, by coordinate descent on the Gram matrix.
//!
//! The moments of every fold are computed once; training on all folds but one is a subtraction. Columns are
//! centred and scaled within each training set, the intercept is not penalised. Cyclic coordinate descent with
//! an active set and warm starts follows Friedman, Hastie and Tibshirani (2010), "Regularization paths for
//! generalized linear models via coordinate descent"; sweeps of the active set are extrapolated as in Bertrand and Massias
//! (2021), "Anderson acceleration of coordinate descent".

use joulecast_model::base::number::by_widest;
use linfa_linalg::cholesky::SolveCInplace;
use ndarray::{Array1, Array2, ArrayView1, ArrayView2, Axis};
use std::borrow::Cow;

/// Largest squared change of a sweep that ends them, over the target's variance: as glmnet has it. Least squares on the
/// selected columns follow, so that nothing but the selection depends on it.
const TOLERANCE: f64 = 1e-7;

/// Weighted sums of columns over a set of rows.
#[derive(Clone, Debug)]
pub struct Columns {
    weight: f64,
    x: Array1<f64>,
    xx: Array2<f64>,
}

/// Weighted sums of a target over a set of rows, alone and with columns.
#[derive(Clone, Debug)]
pub struct Target {
    y: f64,
    xy: Array1<f64>,
    yy: f64,
}

/// Weighted sums over a set of rows: enough to fit any subset of columns.
#[derive(Clone, Debug)]
pub struct Moments {
    columns: Columns,
    target: Target,
}

fn weighted(x: ArrayView2<'_, f64>, w: ArrayView1<'_, f64>) -> Array2<f64> {
    &x * &w.insert_axis(Axis(1))
}

/// Sum of disjoint sets; `None` for no set at all.
fn summed<'a, T: Clone + 'a>(mut sets: impl Iterator<Item = &'a T>, add: impl Fn(&mut T, &T)) -> Option<T> {
    let first = sets.next()?.clone();
    Some(sets.fold(first, |mut total, set| {
        add(&mut total, set);
        total
    }))
}

impl Columns {
    /// Of rows `x` (n by p) with weights `w`.
    pub fn new(x: ArrayView2<'_, f64>, w: ArrayView1<'_, f64>) -> Self {
        Self::of(x, w, &weighted(x, w))
    }

    fn of(x: ArrayView2<'_, f64>, w: ArrayView1<'_, f64>, weighted: &Array2<f64>) -> Self {
        Self { weight: w.sum(), x: weighted.sum_axis(Axis(0)), xx: weighted.t().dot(&x) }
    }

    /// Sum of disjoint sets; `None` for no set at all.
    pub fn sum<'a>(sets: impl Iterator<Item = &'a Self>) -> Option<Self> {
        summed(sets, Self::add)
    }

    fn add(&mut self, set: &Self) {
        self.weight += set.weight;
        self.x += &set.x;
        self.xx += &set.xx;
    }

    /// All rows but those of a subset.
    pub fn without(&self, subset: &Self) -> Self {
        Self { weight: self.weight - subset.weight, x: &self.x - &subset.x, xx: &self.xx - &subset.xx }
    }

    /// Centred, of unit variance. A column without variance is never selected.
    pub fn standardised(&self) -> Standard {
        self.standardised_above(1e-5)
    }

    /// The same, where a column that deviates no more than `least` is never selected.
    pub fn standardised_above(&self, least: f64) -> Standard {
        let mean = &self.x / self.weight;
        let mut gram: Vec<f64> = self.xx.iter().map(|sum| sum / self.weight).collect();
        by_widest(
            #[inline(always)]
            || rows_of(&mut gram, &mean.to_vec(), |value, one, other| *value -= one * other),
        );
        let deviation = |variance: &f64| if *variance > least * least { variance.sqrt() } else { f64::INFINITY };
        let scale: Array1<f64> = gram.iter().step_by(mean.len() + 1).map(deviation).collect();
        by_widest(
            #[inline(always)]
            || rows_of(&mut gram, &scale.to_vec(), |value, one, other| *value /= one * other),
        );
        Standard { weight: self.weight, mean, scale, gram }
    }
}

/// Changes every value of a square matrix, row by row, by what its row and its column have.
#[inline(always)]
fn rows_of(matrix: &mut [f64], each: &[f64], change: impl Fn(&mut f64, f64, f64)) {
    for (row, &one) in matrix.chunks_exact_mut(each.len().max(1)).zip(each) {
        row.iter_mut().zip(each).for_each(|(value, &other)| change(value, one, other));
    }
}

impl Target {
    /// Of targets `y` of rows `x` (n by p) with weights `w`.
    pub fn new(x: ArrayView2<'_, f64>, y: ArrayView1<'_, f64>, w: ArrayView1<'_, f64>) -> Self {
        Self::of(y, w, &weighted(x, w))
    }

    fn of(y: ArrayView1<'_, f64>, w: ArrayView1<'_, f64>, weighted: &Array2<f64>) -> Self {
        let wy = &y * &w;
        Self { y: wy.sum(), xy: weighted.t().dot(&y), yy: wy.dot(&y) }
    }

    /// Sum of disjoint sets; `None` for no set at all.
    pub fn sum<'a>(sets: impl Iterator<Item = &'a Self>) -> Option<Self> {
        summed(sets, Self::add)
    }

    fn add(&mut self, set: &Self) {
        self.y += set.y;
        self.xy += &set.xy;
        self.yy += set.yy;
    }

    /// All rows but those of a subset.
    pub fn without(&self, subset: &Self) -> Self {
        Self { y: self.y - subset.y, xy: &self.xy - &subset.xy, yy: self.yy - subset.yy }
    }
}

impl Moments {
    /// Moments of rows `x` (n by p) with targets `y` and weights `w`.
    pub fn new(x: ArrayView2<'_, f64>, y: ArrayView1<'_, f64>, w: ArrayView1<'_, f64>) -> Self {
        let weighted = weighted(x, w);
        Self { columns: Columns::of(x, w, &weighted), target: Target::of(y, w, &weighted) }
    }

    /// Sum of disjoint sets; `None` for no set at all.
    pub fn sum<'a>(sets: impl Iterator<Item = &'a Self>) -> Option<Self> {
        summed(sets, |total, set| {
            total.columns.add(&set.columns);
            total.target.add(&set.target);
        })
    }

    /// The same about the set's own means: what is left when the set has an intercept of its own (the within
    /// transformation of panel regression, see Wooldridge, "Econometric Analysis of Cross Section and Panel Data",
    /// section 10.5). A sum of such moments fits common slopes.
    pub fn within(&self) -> Self {
        let Self { columns: Columns { weight, x, xx }, target: Target { y, xy, yy } } = self;
        let outer = x.view().insert_axis(Axis(1)).dot(&x.view().insert_axis(Axis(0)));
        Self {
            columns: Columns { weight: *weight, x: Array1::zeros(x.len()), xx: xx - &(outer / *weight) },
            target: Target { y: 0.0, xy: xy - &(x * (y / weight)), yy: yy - y * y / weight },
        }
    }

    /// Weighted means of the columns and of the target.
    pub fn means(&self) -> (Array1<f64>, f64) {
        (&self.columns.x / self.columns.weight, self.target.y / self.columns.weight)
    }

    /// All rows but those of a subset.
    pub fn without(&self, subset: &Self) -> Self {
        Self { columns: self.columns.without(&subset.columns), target: self.target.without(&subset.target) }
    }

    /// The problem with centred columns of unit variance. A column without variance is never selected.
    pub fn standardised(&self) -> Problem<'static> {
        Problem::of(Cow::Owned(self.columns.standardised()), &self.target)
    }

    /// The same, where a column that deviates no more than `least` is never selected.
    pub fn standardised_above(&self, least: f64) -> Problem<'static> {
        Problem::of(Cow::Owned(self.columns.standardised_above(least)), &self.target)
    }
}

/// Centred columns of unit variance.
#[derive(Clone, Debug)]
pub struct Standard {
    weight: f64,
    mean: Array1<f64>,
    /// Infinite of those that are never selected.
    scale: Array1<f64>,
    /// Row by row.
    gram: Vec<f64>,
}

impl Standard {
    /// The least-squares problem of a target over the same rows.
    pub fn problem(&self, target: &Target) -> Problem<'_> {
        Problem::of(Cow::Borrowed(self), target)
    }
}

/// A standardised least-squares problem.
#[derive(Clone, Debug)]
pub struct Problem<'s> {
    columns: Cow<'s, Standard>,
    correlation: Array1<f64>,
    y_variance: f64,
    y_mean: f64,
}

/// Coefficients on the original columns, with the intercept.
#[derive(Clone, Debug)]
pub struct Linear {
    /// Constant.
    pub intercept: f64,
    /// One per column; zero where not selected.
    pub coefficients: Array1<f64>,
}

impl Linear {
    /// Columns with a coefficient.
    pub fn support(&self) -> Vec<usize> {
        (0..self.coefficients.len()).filter(|&j| self.coefficients[j] != 0.0).collect()
    }

    /// Predictions for rows.
    pub fn predict(&self, x: ArrayView2<'_, f64>) -> Array1<f64> {
        x.dot(&self.coefficients) + self.intercept
    }
}

impl<'s> Problem<'s> {
    fn of(columns: Cow<'s, Standard>, Target { y, xy, yy }: &Target) -> Self {
        let weight = columns.weight;
        let y_mean = y / weight;
        let covariance = xy / weight - &columns.mean * y_mean;
        let correlation = &covariance / &columns.scale;
        Self { columns, correlation, y_variance: (yy / weight - y_mean * y_mean).max(0.0), y_mean }
    }

    /// The smallest penalty that selects nothing.
    pub fn largest_penalty(&self) -> f64 {
        self.correlation.iter().fold(0.0f64, |a, c| a.max(c.abs()))
    }

    /// Solutions for falling penalties, each started from the one before. Stops early once more than
    /// `most_terms` columns are selected.
    pub fn path(&self, penalties: &[f64], most_terms: usize) -> Vec<Linear> {
        self.path_within(penalties, most_terms, TOLERANCE)
    }

    /// The same, where sweeps end once their largest squared change is that share of the target's variance.
    fn path_within(&self, penalties: &[f64], most_terms: usize, tolerance: f64) -> Vec<Linear> {
        let mut state = Descent::new(self, tolerance);
        let mut path = Vec::with_capacity(penalties.len());
        for &penalty in penalties {
            state.solve(penalty);
            if state.b.iter().filter(|b| **b != 0.0).count() > most_terms {
                break;
            }
            path.push(self.unscaled(&state.b));
        }
        path
    }

    fn unscaled(&self, b: &[f64]) -> Linear {
        let coefficients = &ArrayView1::from(b) / &self.columns.scale;
        Linear { intercept: self.y_mean - coefficients.dot(&self.columns.mean), coefficients }
    }
}

struct Descent<'a> {
    problem: &'a Problem<'a>,
    b: Vec<f64>,
    /// gram times b, kept up to date.
    fitted: Vec<f64>,
    /// Largest squared change that ends sweeps.
    tolerance: f64,
}

impl<'a> Descent<'a> {
    const MOST_SWEEPS: usize = 1_000;

    fn new(problem: &'a Problem<'a>, tolerance: f64) -> Self {
        let p = problem.correlation.len();
        let tolerance = tolerance * problem.y_variance.max(f64::MIN_POSITIVE);
        Self { problem, b: vec![0.0; p], fitted: vec![0.0; p], tolerance }
    }

    /// Sweeps the active columns until they settle, then all columns; done when a full sweep changes nothing.
    fn solve(&mut self, penalty: f64) {
        let all: Vec<usize> = (0..self.b.len()).filter(|&j| self.problem.columns.scale[j].is_finite()).collect();
        let mut sweeps = 0;
        while sweeps < Self::MOST_SWEEPS {
            sweeps += 1;
            if self.sweep(&all, penalty) < self.tolerance {
                return;
            }
            let active: Vec<usize> = all.iter().copied().filter(|&j| self.b[j] != 0.0).collect();
            sweeps += self.settle(&active, penalty, Self::MOST_SWEEPS - sweeps);
        }
    }

    /// Sweeps the active columns until they settle; returns how often. Only their own part of the Gram matrix is
    /// needed for that: the others' fitted values follow once at the end.
    fn settle(&mut self, active: &[usize], penalty: f64, most: usize) -> usize {
        let (p, whole) = (self.b.len(), &self.problem.columns.gram);
        let mut gram = Vec::with_capacity(active.len() * active.len());
        for row in active.iter().map(|i| &whole[i * p..][..p]) {
            gram.extend(active.iter().map(|&j| row[j]));
        }
        let correlation: Array1<f64> = active.iter().map(|&j| self.problem.correlation[j]).collect();
        let mut b: Vec<f64> = active.iter().map(|&j| self.b[j]).collect();
        let mut fitted: Vec<f64> = active.iter().map(|&j| self.fitted[j]).collect();
        let mut sweeps = 0;
        by_widest(
            #[inline(always)]
            || {
                let problem = (&gram[..], &correlation);
                let mut before = Sweeps::default();
                while sweeps < most {
                    sweeps += 1;
                    if sweep(problem, 0..active.len(), penalty, &mut b, &mut fitted) < self.tolerance {
                        break;
                    }
                    before.extrapolate(&correlation, penalty, &mut b, &mut fitted);
                }
                for (&j, &new) in active.iter().zip(&b) {
                    let change = new - self.b[j];
                    if change != 0.0 {
                        add(&mut self.fitted, change, &whole[j * p..][..p]);
                        self.b[j] = new;
                    }
                }
            },
        );
        sweeps
    }

    /// One pass over the columns; returns the largest squared change.
    fn sweep(&mut self, columns: &[usize], penalty: f64) -> f64 {
        let problem = (&self.problem.columns.gram[..], &self.problem.correlation);
        by_widest(
            #[inline(always)]
            || sweep(problem, columns.iter().copied(), penalty, &mut self.b, &mut self.fitted),
        )
    }
}

/// Adds so many times a row.
#[inline(always)]
fn add(sums: &mut [f64], times: f64, row: &[f64]) {
    sums.iter_mut().zip(row).for_each(|(sum, value)| *sum += times * value);
}

/// One pass over columns of a problem, or of the part of it that some columns make: its Gram matrix, row by row, and its
/// correlations. Returns the largest squared change of the coefficients `b`; `fitted` is the Gram matrix times `b`.
#[inline(always)]
fn sweep(
    (gram, correlation): (&[f64], &Array1<f64>),
    columns: impl Iterator<Item = usize>,
    penalty: f64,
    b: &mut [f64],
    fitted: &mut [f64],
) -> f64 {
    let p = correlation.len();
    let mut largest = 0.0f64;
    for j in columns {
        let old = b[j];
        let partial = correlation[j] - fitted[j] + old;
        let new = partial.signum() * (partial.abs() - penalty).max(0.0);
        let change = new - old;
        if change != 0.0 {
            add(fitted, change, &gram[j * p..][..p]);
            b[j] = new;
            largest = largest.max(change * change);
        }
    }
    largest
}

/// Coefficients after successive sweeps, each with the Gram matrix times them.
#[derive(Default)]
struct Sweeps(Vec<(Vec<f64>, Vec<f64>)>);

impl Sweeps {
    /// Changes from sweep to sweep that are combined.
    const COMBINED: usize = 5;

    /// Notes what a sweep led to. Once there are so many changes, goes to the combination of sweeps at which they would cancel,
    /// if the objective is less there, and begins anew.
    #[inline(always)]
    fn extrapolate(&mut self, correlation: &Array1<f64>, penalty: f64, b: &mut [f64], fitted: &mut [f64]) {
        self.0.push((b.to_vec(), fitted.to_vec()));
        if self.0.len() <= Self::COMBINED {
            return;
        }
        let seen = std::mem::take(&mut self.0);
        let change = |k: usize, j: usize| seen[k + 1].0[j] - seen[k].0[j];
        let changes = Array2::from_shape_fn((Self::COMBINED, b.len()), |(k, j)| change(k, j));
        let mut products = changes.dot(&changes.t());
        // Changes in one direction alone depend on each other.
        let ridge = 1e-10 * products.diag().sum();
        products.diag_mut().map_inplace(|value| *value += ridge);
        let Ok(shares) = products.solvec_into(Array2::ones((Self::COMBINED, 1))) else { return };
        let whole = shares.sum();
        let (mut there, mut fitted_there) = (vec![0.0; b.len()], vec![0.0; b.len()]);
        for ((b, fitted), share) in seen[1..].iter().zip(&shares) {
            add(&mut there, share / whole, b);
            add(&mut fitted_there, share / whole, fitted);
        }
        let objective = |b: &[f64], fitted: &[f64]| -> f64 {
            let each = b.iter().zip(fitted).zip(correlation);
            each.map(|((b, fitted), correlation)| b * (0.5 * fitted - correlation) + penalty * b.abs()).sum()
        };
        if objective(&there, &fitted_there) < objective(b, fitted) {
            b.copy_from_slice(&there);
            fitted.copy_from_slice(&fitted_there);
        }
    }
}

/// `count` penalties from the largest down to `smallest` times it, evenly on a logarithmic scale.
pub fn penalties(largest: f64, smallest: f64, count: usize) -> Vec<f64> {
    let step = |i: usize| smallest.powf(i as f64 / (count.max(2) - 1) as f64);
    (0..count).map(|i| largest * step(i)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use linfa::Dataset;
    use linfa::prelude::*;
    use linfa_elasticnet::ElasticNet;
    use rand::{Rng, SeedableRng};
    use rand_xoshiro::Xoshiro256Plus;

    fn synthetic(n: usize, p: usize) -> (Array2<f64>, Array1<f64>) {
        let mut rng = Xoshiro256Plus::seed_from_u64(7);
        let x = Array2::from_shape_fn((n, p), |_| rng.r#gen::<f64>() * 4.0 - 2.0);
        let y = Array1::from_shape_fn(n, |i| {
            3.0 + 2.0 * x[[i, 1]] - 1.5 * x[[i, 4]] + 0.5 * x[[i, 9]] + 0.1 * (rng.r#gen::<f64>() - 0.5)
        });
        (x, y)
    }

    fn moments(x: &Array2<f64>, y: &Array1<f64>) -> Moments {
        Moments::new(x.view(), y.view(), Array1::ones(y.len()).view())
    }

    #[test]
    fn finds_the_true_terms() {
        let (x, y) = synthetic(400, 20);
        let problem = moments(&x, &y).standardised();
        let path = problem.path(&penalties(problem.largest_penalty(), 1e-3, 40), 100);
        assert!(path[0].support().is_empty());
        let end = &path[25];
        assert_eq!(end.support(), [1, 4, 9]);
        assert!((end.intercept - 3.0).abs() < 0.05);
    }

    /// The independent check: on a standardised problem linfa's elastic net finds the same minimum.
    #[test]
    fn agrees_with_linfa_elasticnet() {
        let (mut x, mut y) = synthetic(300, 15);
        let n = x.nrows() as f64;
        for mut column in x.columns_mut() {
            let mean = column.sum() / n;
            column -= mean;
            let sd = (column.dot(&column) / n).sqrt();
            column /= sd;
        }
        y -= y.sum() / n;
        let problem = moments(&x, &y).standardised();
        for share in [0.3, 0.05, 0.01] {
            let penalty = share * problem.largest_penalty();
            let ours = problem.path_within(&[penalty], 100, 1e-9).remove(0);
            let theirs = ElasticNet::params()
                .penalty(penalty)
                .l1_ratio(1.0)
                .with_intercept(false)
                .tolerance(1e-12)
                .max_iterations(100_000)
                .fit(&Dataset::new(x.clone(), y.clone()))
                .expect("linfa fits");
            for (a, b) in ours.coefficients.iter().zip(theirs.hyperplane()) {
                assert!((a - b).abs() < 1e-6, "{a} and {b} at {share} of the largest penalty");
            }
        }
    }

    #[test]
    fn leaving_rows_out_equals_fitting_the_rest() {
        let (x, y) = synthetic(200, 12);
        let split = |from: usize, to: usize| {
            let rows: Vec<usize> = (from..to).collect();
            moments(&x.select(Axis(0), &rows), &y.select(Axis(0), &rows))
        };
        let rest = moments(&x, &y).without(&split(0, 50)).standardised();
        let direct = split(50, 200).standardised();
        let penalty = [0.1];
        let (a, b) = (rest.path(&penalty, 99).remove(0), direct.path(&penalty, 99).remove(0));
        assert!((&a.coefficients - &b.coefficients).iter().all(|d| d.abs() < 1e-8));
    }

    #[test]
    fn descent_lowers_the_objective() {
        let (x, y) = synthetic(200, 12);
        let problem = moments(&x, &y).standardised();
        let penalty = 0.05 * problem.largest_penalty();
        let gram = Array2::from_shape_vec((12, 12), problem.columns.gram.clone()).expect("square");
        let objective = |b: &[f64]| {
            let b = Array1::from(b.to_vec());
            0.5 * b.dot(&gram.dot(&b)) - problem.correlation.dot(&b) + penalty * b.iter().map(|v| v.abs()).sum::<f64>()
        };
        let all: Vec<usize> = (0..12).collect();
        let mut state = Descent::new(&problem, TOLERANCE);
        let mut last = objective(&state.b);
        for _ in 0..20 {
            state.sweep(&all, penalty);
            let now = objective(&state.b);
            assert!(now <= last + 1e-12);
            last = now;
        }
    }

    #[test]
    fn combined_sweeps_are_few_where_columns_are_alike_and_lead_to_the_same() {
        let (mut x, y) = synthetic(200, 12);
        for j in 1..12 {
            let blend = &x.column(0) + &(&x.column(j) * 0.3);
            x.column_mut(j).assign(&blend);
        }
        let problem = moments(&x, &y).standardised();
        let penalty = 1e-3 * problem.largest_penalty();
        let settled = |combined: bool| {
            let (mut b, mut fitted, mut before) = (vec![0.0; 12], vec![0.0; 12], Sweeps::default());
            let whole = (&problem.columns.gram[..], &problem.correlation);
            let mut sweeps = 1;
            while sweep(whole, 0..12, penalty, &mut b, &mut fitted) > 1e-20 {
                sweeps += 1;
                if combined {
                    before.extrapolate(&problem.correlation, penalty, &mut b, &mut fitted);
                }
            }
            (sweeps, b)
        };
        let ((many, plain), (few, combined)) = (settled(false), settled(true));
        assert!(2 * few < many, "{few} and {many} sweeps");
        assert!(plain.iter().zip(&combined).all(|(a, b)| (a - b).abs() < 1e-8), "{plain:?} {combined:?}");
    }

    #[test]
    fn a_constant_column_is_never_selected() {
        let (mut x, y) = synthetic(100, 12);
        x.column_mut(3).fill(5.0);
        let problem = moments(&x, &y).standardised();
        let path = problem.path(&penalties(problem.largest_penalty(), 1e-4, 20), 99);
        assert!(path.iter().all(|l| l.coefficients[3] == 0.0 && l.intercept.is_finite()));
    }
}
