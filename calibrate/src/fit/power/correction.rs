//! Fitting what the law leaves: a Lasso of ln(measured / law) above waiting, its penalty by grouped cross-validation, then
//! least squares on the selected terms.

use super::PowerRow;
use crate::fit::lasso::{Linear, Moments, penalties};
use crate::fit::polynomial::{one_standard_error, refit, weighted_square};
use anyhow::Result;
use joulecast_model::law::power::{Correction, FLAGS, PowerModel, TRAITS};
use ndarray::{Array1, Array2, Axis};

/// Penalties on the path, and how far it goes down.
const PATH: (f64, usize) = (1e-3, 40);
/// Most terms.
const MOST: usize = 24;
/// A class has at least so many rows; one with fewer is no term.
const FEWEST: usize = 10;
/// Rows that draw less above waiting, as a share of the range, say nothing about a factor of it.
const LEAST: f64 = 0.02;

/// Rows with columns standardised over all of them.
pub struct Task<'a> {
    rows: &'a [PowerRow],
    /// Positions of the traits that the columns are.
    columns: Vec<usize>,
    x: Array2<f64>,
    mean: Array1<f64>,
    scale: Array1<f64>,
    /// Squares of how much of the whole power is above waiting: errors are of the whole.
    weights: Array1<f64>,
}

impl<'a> Task<'a> {
    pub fn new(rows: &'a [PowerRow]) -> Self {
        let common = |&t: &usize| t < FLAGS || rows.iter().filter(|r| r.traits[t] > 0.0).count() >= FEWEST;
        let columns: Vec<usize> = (0..TRAITS.len()).filter(common).collect();
        let mut x = Array2::from_shape_fn((rows.len(), columns.len()), |(i, j)| rows[i].traits[columns[j]]);
        let mean = x.sum_axis(Axis(0)) / rows.len() as f64;
        x -= &mean;
        let scale = x.map_axis(Axis(0), |c| (c.dot(&c) / rows.len() as f64).sqrt().max(1e-9));
        x /= &scale;
        let weight = |r: &PowerRow| {
            let share = r.above(r.clock);
            if share < LEAST { 0.0 } else { (share / r.measured()).powi(2) }
        };
        Self { rows, columns, x, mean, scale, weights: rows.iter().map(weight).collect() }
    }

    fn path(&self, law: &PowerModel, rows: &[usize]) -> Result<(Array1<f64>, Vec<Linear>)> {
        let by_law = |r: &PowerRow| r.share(law.uncorrected(&r.activities), r.clock);
        let log = |r: &PowerRow| (r.above(r.clock).max(LEAST) / by_law(r).max(LEAST)).ln();
        let y: Array1<f64> = self.rows.iter().map(log).collect();
        let (x, own, w) = (self.x.select(Axis(0), rows), y.select(Axis(0), rows), self.weights.select(Axis(0), rows));
        let problem = Moments::new(x.view(), own.view(), w.view()).standardised();
        let path = problem.path(&penalties(problem.largest_penalty(), PATH.0, PATH.1), MOST);
        Ok((y, path))
    }

    /// The correction of the law fitted to all rows, given the laws without each fold, and those of these laws.
    pub fn fit(
        &self,
        law: &PowerModel,
        without: &[PowerModel],
        fold_of: &[usize],
    ) -> Result<(Correction, Vec<Correction>)> {
        let of =
            |inside: &dyn Fn(usize) -> bool| (0..self.rows.len()).filter(|&i| inside(fold_of[i])).collect::<Vec<_>>();
        let mut errors = Vec::new();
        let mut folds = Vec::new();
        for (fold, law) in without.iter().enumerate() {
            let (train, held) = (of(&|f| f != fold), of(&|f| f == fold));
            let (y, path) = self.path(law, &train)?;
            let (x, own, w) =
                (self.x.select(Axis(0), &held), y.select(Axis(0), &held), self.weights.select(Axis(0), &held));
            errors.push(path.iter().map(|m| weighted_square(m, x.view(), &own, &w)).collect());
            folds.push((train, y, path));
        }
        let chosen = one_standard_error(&errors, 1.0);
        let correction = |train: &[usize], y: &Array1<f64>, path: &[Linear]| {
            // Where no column says anything the path is empty, and the correction a constant.
            let support = path.get(chosen).or(path.last()).map_or_else(Vec::new, Linear::support);
            Ok(self.artifact(&refit(&self.x, y, &self.weights, train, &support)?, train))
        };
        let everything: Vec<usize> = (0..self.rows.len()).collect();
        let (y, path) = self.path(law, &everything)?;
        let held: Result<Vec<Correction>> = folds.iter().map(|(train, y, path)| correction(train, y, path)).collect();
        Ok((correction(&everything, &y, &path)?, held?))
    }

    fn artifact(&self, linear: &Linear, rows: &[usize]) -> Correction {
        let mut intercept = linear.intercept;
        let mut terms = Vec::new();
        for j in linear.support() {
            let slope = linear.coefficients[j] / self.scale[j];
            intercept -= slope * self.mean[j];
            terms.push((self.columns[j], slope));
        }
        let range = |t: usize| {
            rows.iter()
                .map(|&i| self.rows[i].traits[t])
                .fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), v| (l.min(v), h.max(v)))
        };
        Correction { intercept, terms, clamp: (0..TRAITS.len()).map(range).collect() }
    }
}
