//! The comparator: NeuralPower's polynomial (Cai, Juan, Stamoulis, Marculescu, "NeuralPower: predict and deploy
//! energy-efficient convolutional neural networks", ACML 2017).
//!
//! All monomials up to degree 3 (2 for linear layers) of the raw layer parameters, plus operations, bytes read
//! and bytes written as special terms; Lasso on the time itself, penalty of the smallest 10-fold cross-validated
//! error.
//!
//! The paper fits least squares on milliseconds ([`Form::Paper`]). Judged by relative errors over five decades of times
//! that is no fair comparator: [`Form::Relative`] minimises the relative error that it is judged by, and knows how many
//! groups a convolution has.

use crate::fit::lasso::{Linear, Moments, penalties};
use crate::rows::prepare::Row;
use crate::rows::raw::RawParameters;
use anyhow::Result;
use joulecast_model::base::precision::{Phase, Precision};
use ndarray::{Array1, Array2, Axis};
use serde::Serialize;
use std::collections::BTreeMap;

/// Penalties on the path, and how far it goes down.
const PATH: (f64, usize) = (1e-4, 50);
const MOST_TERMS: usize = 200;

/// How the polynomial is fitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// As in the paper: squared errors in milliseconds, no groups among the variables.
    Paper,
    /// Squared relative errors (weights 1/t^2), the number of groups among the variables.
    Relative,
}

/// A row's variables in a form.
fn variables(raw: &RawParameters, form: Form) -> impl Iterator<Item = f64> {
    raw.sizes.iter().copied().chain((form == Form::Relative).then_some(raw.groups))
}

/// Held-out predictions (seconds) of the comparator for rows in given folds.
pub fn held_out(rows: &[&Row], folds: &[usize], count: usize, form: Form) -> Vec<f64> {
    let x = standardise(design(rows, degree(rows), form));
    let y = Array1::from_iter(rows.iter().map(|r| r.time.get() * 1e3));
    let all: Vec<usize> = (0..rows.len()).collect();
    let mut predicted = vec![f64::NAN; rows.len()];
    for fold in 0..count {
        let (test, train): (Vec<usize>, Vec<usize>) = all.iter().partition(|&&i| folds[i] == fold);
        if test.is_empty() || train.is_empty() {
            continue;
        }
        let model = fit(&x.select(Axis(0), &train), &y.select(Axis(0), &train), form);
        for (&i, p) in test.iter().zip(model.predict(x.select(Axis(0), &test).view())) {
            predicted[i] = p * 1e-3;
        }
    }
    predicted
}

/// Degree that the paper chose: 2 for linear layers, 3 for the others.
fn degree(rows: &[&Row]) -> usize {
    if rows.first().is_some_and(|r| r.kind == "linear") { 2 } else { 3 }
}

/// All monomials of the raw parameters up to a degree, as positions.
fn monomials(width: usize, degree: usize) -> Vec<Vec<usize>> {
    let mut monomials: Vec<Vec<usize>> = Vec::new();
    let mut current: Vec<Vec<usize>> = vec![Vec::new()];
    for _ in 0..degree {
        current = current
            .iter()
            .flat_map(|m| (m.last().copied().unwrap_or(0)..width).map(move |v| [m.as_slice(), &[v]].concat()))
            .collect();
        monomials.extend(current.iter().cloned());
    }
    monomials
}

/// Most variables that a row has.
fn width(rows: &[&Row], form: Form) -> usize {
    rows.iter().map(|r| variables(&r.raw, form).count()).max().unwrap_or(0)
}

fn design(rows: &[&Row], degree: usize, form: Form) -> Array2<f64> {
    let monomials = monomials(width(rows, form), degree);
    let mut x = Array2::zeros((rows.len(), monomials.len() + 3));
    for (mut target, row) in x.rows_mut().into_iter().zip(rows) {
        let raw: Vec<f64> = variables(&row.raw, form).collect();
        for (value, factors) in target.iter_mut().zip(&monomials) {
            *value = factors.iter().map(|&v| raw.get(v).copied().unwrap_or(0.0)).product();
        }
        let special = [row.cost.ops.to_f64(), row.cost.read.to_f64(), row.cost.written.to_f64()];
        for (i, value) in special.into_iter().enumerate() {
            target[monomials.len() + i] = value;
        }
    }
    x
}

fn standardise(mut x: Array2<f64>) -> Array2<f64> {
    for mut column in x.columns_mut() {
        let n = column.len() as f64;
        let mean = column.sum() / n;
        column -= mean;
        let sd = (column.dot(&column) / n).sqrt();
        if sd > 0.0 {
            column /= sd;
        }
    }
    x
}

fn fit(x: &Array2<f64>, y: &Array1<f64>, form: Form) -> Linear {
    const FOLDS: usize = 10;
    let weights = match form {
        Form::Paper => Array1::ones(y.len()),
        Form::Relative => y.mapv(|t| t.powi(-2)),
    };
    let part = |fold: usize| (0..y.len()).filter(|i| i % FOLDS == fold).collect::<Vec<_>>();
    let moments = |rows: &[usize]| {
        Moments::new(
            x.select(Axis(0), rows).view(),
            y.select(Axis(0), rows).view(),
            weights.select(Axis(0), rows).view(),
        )
    };
    let total = Moments::new(x.view(), y.view(), weights.view());
    let problem = total.standardised();
    let path = penalties(problem.largest_penalty(), PATH.0, PATH.1);
    let mut errors = vec![0.0; path.len()];
    for fold in 0..FOLDS {
        let rows = part(fold);
        let (held_x, held_y) = (x.select(Axis(0), &rows), y.select(Axis(0), &rows));
        let held_weights = weights.select(Axis(0), &rows);
        let models = total.without(&moments(&rows)).standardised().path(&path, MOST_TERMS);
        for (i, error) in errors.iter_mut().enumerate() {
            *error += match models.get(i) {
                Some(model) => ((model.predict(held_x.view()) - &held_y).mapv(|e| e * e) * &held_weights).sum(),
                None => f64::INFINITY,
            };
        }
    }
    let best = (0..errors.len()).min_by(|&a, &b| errors[a].total_cmp(&errors[b])).unwrap_or(0);
    let models = problem.path(&path[..=best], MOST_TERMS);
    models
        .last()
        .cloned()
        .unwrap_or(Linear { intercept: y.mean().unwrap_or(0.0), coefficients: Array1::zeros(x.ncols()) })
}

/// A comparator's file per chip: `neuralpower/1`, the terms of each kind's polynomial over standardised columns.
///
/// # Errors
/// When the text cannot be written.
pub fn files(rows: &[Row]) -> Result<Vec<(String, String)>> {
    type Kinds<'a> = BTreeMap<(&'a str, Phase, Precision), Vec<&'a Row>>;
    let mut groups: BTreeMap<&str, Kinds<'_>> = BTreeMap::new();
    for row in rows.iter().filter(|r| r.framework.is_none()) {
        groups.entry(&row.chip).or_default().entry((row.kind, row.phase, row.precision)).or_default().push(row);
    }
    groups
        .into_iter()
        .map(|(chip, kinds)| {
            let models = kinds
                .into_iter()
                .filter(|(_, rows)| rows.len() >= crate::fit::task::FEWEST_ROWS)
                .map(|((kind, phase, precision), rows)| model_file(kind, phase, precision, &rows))
                .collect();
            let file = File { schema: "neuralpower/1", chip, models };
            Ok((format!("neuralpower-{}", chip.to_lowercase()), toml::to_string(&file)?))
        })
        .collect()
}

#[derive(Serialize)]
struct File<'a> {
    schema: &'a str,
    chip: &'a str,
    #[serde(rename = "model")]
    models: Vec<ModelFile>,
}

#[derive(Serialize)]
struct ModelFile {
    kind: String,
    phase: Phase,
    precision: Precision,
    degree: usize,
    rows: usize,
    intercept_ms: f64,
    /// Monomial (positions of the raw parameters, or ops, read, written) and its coefficient in milliseconds per
    /// standard deviation.
    terms: Vec<(String, f64)>,
}

fn model_file(kind: &str, phase: Phase, precision: Precision, rows: &[&Row]) -> ModelFile {
    let degree = degree(rows);
    let x = standardise(design(rows, degree, Form::Paper));
    let model = fit(&x, &Array1::from_iter(rows.iter().map(|r| r.time.get() * 1e3)), Form::Paper);
    let names = monomials(width(rows, Form::Paper), degree);
    let label = |j: usize| match names.get(j) {
        Some(factors) => factors.iter().map(|v| format!("x{v}")).collect::<Vec<_>>().join("*"),
        None => ["ops", "read", "written"][j - names.len()].to_string(),
    };
    let terms = model.support().into_iter().map(|j| (label(j), model.coefficients[j])).collect();
    ModelFile { kind: kind.into(), phase, precision, degree, rows: rows.len(), intercept_ms: model.intercept, terms }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fit::folds::grouped;
    use crate::rows::prepare::testing;
    use joulecast_model::base::accuracy::Accuracy;
    use joulecast_model::base::precision::Mode;
    use joulecast_model::base::shape::Shape;
    use joulecast_model::base::units::Seconds;
    use joulecast_model::kernel::work::Work;
    use joulecast_model::net::case::LayerCase;
    use joulecast_model::net::layer::Layer;

    /// Over four decades of times that fall with the number of groups, which only the relative form knows.
    #[test]
    fn relative_errors_and_groups_make_the_comparator_fair() {
        let row = |i: u32| {
            let (size, groups) = (1.05f64.powi(i as i32), [1.0, 2.0, 4.0, 8.0][i as usize % 4]);
            let raw = RawParameters { sizes: vec![size], groups };
            let time = Seconds::new(1e-5 * (1.0 + 0.01 * size * size) * (1.0 - 0.1 * groups));
            Row { row_id: i.to_string(), key: i.to_string().into(), raw, time, ..testing::row("T", 1, 0.0) }
        };
        let rows: Vec<Row> = (0..160).map(row).collect();
        let rows: Vec<&Row> = rows.iter().collect();
        let keys: Vec<&str> = rows.iter().map(|r| r.key.as_str()).collect();
        let folds = grouped(&keys, 5, 1);
        let mape = |form| {
            let predicted = held_out(&rows, &folds, 5, form);
            Accuracy::of(rows.iter().zip(predicted).map(|(r, p)| (r.time.get(), p))).expect("rows").mape
        };
        let (relative, paper) = (mape(Form::Relative), mape(Form::Paper));
        assert!(relative < 35.0 && paper > 2.0 * relative, "{relative} {paper}");
    }

    #[test]
    fn groups_are_those_of_the_convolution() {
        let text = "channels = 8\nkernel = 3\ngroups = 2\n";
        let layer = Layer::from_table("conv2d", text.parse().expect("a table")).expect("known").expect("valid");
        let shape = |dims: &[u64]| Shape::new(dims).expect("a shape");
        let case = LayerCase { inputs: vec![shape(&[4, 6, 6])], layer };
        let work = Work::usual(case, Phase::Forward, 2, Precision::Fp32, Mode::Inference).expect("fits");
        let raw = RawParameters::of(&work);
        assert_eq!(raw, RawParameters { sizes: vec![2.0, 4.0, 6.0, 6.0, 3.0, 1.0, 0.0, 8.0], groups: 2.0 });
        assert_eq!((variables(&raw, Form::Paper).count(), variables(&raw, Form::Relative).last()), (8, Some(2.0)));
    }
}
