//! Weighted Lasso along a path of penalties, by coordinate descent on the Gram matrix.
//!
//! The moments of every fold are computed once; training on all folds but one is a subtraction. Columns are
//! centred and scaled within each training set, the intercept is not penalised. Cyclic coordinate descent with
//! an active set and warm starts follows Friedman, Hastie and Tibshirani (2010), "Regularization paths for
//! generalized linear models via coordinate descent".

use ndarray::{Array1, Array2, ArrayView1, ArrayView2, Axis};

/// Largest squared change of a sweep that ends them, over the target's variance: as glmnet has it. Least squares on the
/// selected columns follow, so that nothing but the selection depends on it.
const TOLERANCE: f64 = 1e-7;

/// Weighted sums over a set of rows: enough to fit any subset of columns.
#[derive(Clone, Debug)]
pub struct Moments {
    weight: f64,
    x: Array1<f64>,
    y: f64,
    xx: Array2<f64>,
    xy: Array1<f64>,
    yy: f64,
}

impl Moments {
    /// Moments of rows `x` (n by p) with targets `y` and weights `w`.
    pub fn new(x: ArrayView2<'_, f64>, y: ArrayView1<'_, f64>, w: ArrayView1<'_, f64>) -> Self {
        let weighted = &x * &w.insert_axis(Axis(1));
        let wy = &y * &w;
        Self {
            weight: w.sum(),
            x: weighted.sum_axis(Axis(0)),
            y: wy.sum(),
            xx: weighted.t().dot(&x),
            xy: weighted.t().dot(&y),
            yy: wy.dot(&y),
        }
    }

    /// Sum of disjoint sets; `None` for no set at all.
    pub fn sum<'a>(sets: impl Iterator<Item = &'a Self>) -> Option<Self> {
        sets.fold(None, |total: Option<Self>, set| match total {
            None => Some(set.clone()),
            Some(mut t) => {
                t.weight += set.weight;
                t.x += &set.x;
                t.y += set.y;
                t.xx += &set.xx;
                t.xy += &set.xy;
                t.yy += set.yy;
                Some(t)
            }
        })
    }

    /// The same about the set's own means: what is left when the set has an intercept of its own (the within
    /// transformation of panel regression, see Wooldridge, "Econometric Analysis of Cross Section and Panel Data",
    /// section 10.5). A sum of such moments fits common slopes.
    pub fn within(&self) -> Self {
        let w = self.weight;
        let outer = self.x.view().insert_axis(Axis(1)).dot(&self.x.view().insert_axis(Axis(0)));
        Self {
            weight: w,
            x: Array1::zeros(self.x.len()),
            y: 0.0,
            xx: &self.xx - &(outer / w),
            xy: &self.xy - &(&self.x * (self.y / w)),
            yy: self.yy - self.y * self.y / w,
        }
    }

    /// Weighted means of the columns and of the target.
    pub fn means(&self) -> (Array1<f64>, f64) {
        (&self.x / self.weight, self.y / self.weight)
    }

    /// All rows but those of a subset.
    pub fn without(&self, subset: &Self) -> Self {
        Self {
            weight: self.weight - subset.weight,
            x: &self.x - &subset.x,
            y: self.y - subset.y,
            xx: &self.xx - &subset.xx,
            xy: &self.xy - &subset.xy,
            yy: self.yy - subset.yy,
        }
    }

    /// The problem with centred columns of unit variance. A column without variance is never selected.
    pub fn standardised(&self) -> Problem {
        self.standardised_above(1e-5)
    }

    /// The same, where a column that deviates no more than `least` is never selected.
    pub fn standardised_above(&self, least: f64) -> Problem {
        let p = self.x.len();
        let mean = &self.x / self.weight;
        let y_mean = self.y / self.weight;
        let mut gram = &self.xx / self.weight;
        for i in 0..p {
            for j in 0..p {
                gram[[i, j]] -= mean[i] * mean[j];
            }
        }
        let scale: Array1<f64> =
            gram.diag().iter().map(|&v| if v > least * least { v.sqrt() } else { f64::INFINITY }).collect();
        let covariance = &self.xy / self.weight - &mean * y_mean;
        for i in 0..p {
            for j in 0..p {
                gram[[i, j]] /= scale[i] * scale[j];
            }
        }
        let correlation = &covariance / &scale;
        Problem {
            gram,
            correlation,
            y_variance: (self.yy / self.weight - y_mean * y_mean).max(0.0),
            mean,
            scale,
            y_mean,
        }
    }
}

/// A standardised least-squares problem.
#[derive(Clone, Debug)]
pub struct Problem {
    gram: Array2<f64>,
    correlation: Array1<f64>,
    y_variance: f64,
    mean: Array1<f64>,
    scale: Array1<f64>,
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

impl Problem {
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

    fn unscaled(&self, b: &Array1<f64>) -> Linear {
        let coefficients = b / &self.scale;
        Linear { intercept: self.y_mean - coefficients.dot(&self.mean), coefficients }
    }
}

struct Descent<'a> {
    problem: &'a Problem,
    b: Array1<f64>,
    /// gram times b, kept up to date.
    fitted: Array1<f64>,
    /// Largest squared change that ends sweeps.
    tolerance: f64,
}

impl<'a> Descent<'a> {
    const MOST_SWEEPS: usize = 1_000;

    fn new(problem: &'a Problem, tolerance: f64) -> Self {
        let p = problem.correlation.len();
        let tolerance = tolerance * problem.y_variance.max(f64::MIN_POSITIVE);
        Self { problem, b: Array1::zeros(p), fitted: Array1::zeros(p), tolerance }
    }

    /// Sweeps the active columns until they settle, then all columns; done when a full sweep changes nothing.
    fn solve(&mut self, penalty: f64) {
        let all: Vec<usize> = (0..self.b.len()).filter(|&j| self.problem.scale[j].is_finite()).collect();
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
        let gram =
            Array2::from_shape_fn((active.len(), active.len()), |(i, j)| self.problem.gram[[active[i], active[j]]]);
        let correlation: Array1<f64> = active.iter().map(|&j| self.problem.correlation[j]).collect();
        let problem = Parts { gram: gram.view(), correlation: correlation.view() };
        let mut b: Array1<f64> = active.iter().map(|&j| self.b[j]).collect();
        let mut fitted: Array1<f64> = active.iter().map(|&j| self.fitted[j]).collect();
        let mut sweeps = 0;
        while sweeps < most {
            sweeps += 1;
            if problem.sweep(0..active.len(), penalty, &mut b, &mut fitted) < self.tolerance {
                break;
            }
        }
        for (&j, &new) in active.iter().zip(&b) {
            let change = new - self.b[j];
            if change != 0.0 {
                self.fitted.scaled_add(change, &self.problem.gram.row(j));
                self.b[j] = new;
            }
        }
        sweeps
    }

    /// One pass over the columns; returns the largest squared change.
    fn sweep(&mut self, columns: &[usize], penalty: f64) -> f64 {
        let parts = Parts { gram: self.problem.gram.view(), correlation: self.problem.correlation.view() };
        parts.sweep(columns.iter().copied(), penalty, &mut self.b, &mut self.fitted)
    }
}

/// A problem, or the part of it that some columns make.
struct Parts<'a> {
    gram: ArrayView2<'a, f64>,
    correlation: ArrayView1<'a, f64>,
}

impl Parts<'_> {
    /// One pass over the columns; returns the largest squared change of the coefficients `b`. `fitted` is the Gram
    /// matrix times `b`.
    fn sweep(
        &self,
        columns: impl Iterator<Item = usize>,
        penalty: f64,
        b: &mut Array1<f64>,
        fitted: &mut Array1<f64>,
    ) -> f64 {
        let mut largest = 0.0f64;
        for j in columns {
            let old = b[j];
            let partial = self.correlation[j] - fitted[j] + old;
            let new = partial.signum() * (partial.abs() - penalty).max(0.0);
            let change = new - old;
            if change != 0.0 {
                fitted.scaled_add(change, &self.gram.row(j));
                b[j] = new;
                largest = largest.max(change * change);
            }
        }
        largest
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
        let objective = |b: &Array1<f64>| {
            0.5 * b.dot(&problem.gram.dot(b)) - problem.correlation.dot(b)
                + penalty * b.iter().map(|v| v.abs()).sum::<f64>()
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
    fn a_constant_column_is_never_selected() {
        let (mut x, y) = synthetic(100, 12);
        x.column_mut(3).fill(5.0);
        let problem = moments(&x, &y).standardised();
        let path = problem.path(&penalties(problem.largest_penalty(), 1e-4, 20), 99);
        assert!(path.iter().all(|l| l.coefficients[3] == 0.0 && l.intercept.is_finite()));
    }
}
