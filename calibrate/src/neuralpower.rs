//! The comparator: NeuralPower's polynomial (Cai, Juan, Stamoulis, Marculescu, "NeuralPower: predict and deploy
//! energy-efficient convolutional neural networks", ACML 2017).
//!
//! All monomials up to degree 3 (2 for linear layers) of the raw layer parameters, plus operations, bytes read
//! and bytes written as special terms; Lasso on the time itself, penalty of the smallest 10-fold cross-validated
//! error.

use crate::lasso::{Linear, Moments, penalties};
use crate::rows::Row;
use anyhow::Result;
use joulecast_model::layer::Layer;
use joulecast_model::precision::{Phase, Precision};
use joulecast_model::shape::Shape;
use ndarray::{Array1, Array2, Axis};
use serde::Serialize;
use std::collections::BTreeMap;

/// Penalties on the path, and how far it goes down.
const PATH: (f64, usize) = (1e-4, 50);
const MOST_TERMS: usize = 200;

/// The parameters that a layer is written with: batch, input, window, output.
pub fn raw_parameters(layer: &Layer, inputs: &[Shape], output: Shape, batch: u64) -> Vec<f64> {
    let mut raw = vec![batch as f64];
    let dims = |shape: &Shape| shape.dims().iter().map(|&d| d as f64).collect::<Vec<_>>();
    raw.extend(inputs.iter().take(2).flat_map(dims));
    match layer {
        Layer::Conv2d(c) => raw.extend([c.kernel.h, c.stride.h, c.padding.h, c.channels].map(|v| v as f64)),
        Layer::Pool2d(p) => {
            raw.extend([p.kernel.h, p.stride.unwrap_or(p.kernel).h, p.padding.h].map(|v| v as f64));
        }
        _ => raw.extend(output.dims().last().map(|&d| d as f64)),
    }
    raw
}

/// Held-out predictions (seconds) of the comparator for rows in given folds.
pub fn held_out(rows: &[&Row], folds: &[usize], count: usize) -> Vec<f64> {
    let x = standardise(design(rows, degree(rows)));
    let y = Array1::from_iter(rows.iter().map(|r| r.time.get() * 1e3));
    let all: Vec<usize> = (0..rows.len()).collect();
    let mut predicted = vec![f64::NAN; rows.len()];
    for fold in 0..count {
        let (test, train): (Vec<usize>, Vec<usize>) = all.iter().partition(|&&i| folds[i] == fold);
        if test.is_empty() || train.is_empty() {
            continue;
        }
        let model = fit(&x.select(Axis(0), &train), &y.select(Axis(0), &train));
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
fn monomials(rows: &[&Row], degree: usize) -> Vec<Vec<usize>> {
    let width = rows.iter().map(|r| r.raw.len()).max().unwrap_or(0);
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

fn design(rows: &[&Row], degree: usize) -> Array2<f64> {
    let monomials = monomials(rows, degree);
    let mut x = Array2::zeros((rows.len(), monomials.len() + 3));
    for (mut target, row) in x.rows_mut().into_iter().zip(rows) {
        for (value, factors) in target.iter_mut().zip(&monomials) {
            *value = factors.iter().map(|&v| row.raw.get(v).copied().unwrap_or(0.0)).product();
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

fn fit(x: &Array2<f64>, y: &Array1<f64>) -> Linear {
    const FOLDS: usize = 10;
    let ones = Array1::ones(y.len());
    let part = |fold: usize| (0..y.len()).filter(|i| i % FOLDS == fold).collect::<Vec<_>>();
    let moments = |rows: &[usize]| {
        Moments::new(x.select(Axis(0), rows).view(), y.select(Axis(0), rows).view(), ones.select(Axis(0), rows).view())
    };
    let total = Moments::new(x.view(), y.view(), ones.view());
    let problem = total.standardised();
    let path = penalties(problem.largest_penalty(), PATH.0, PATH.1);
    let mut errors = vec![0.0; path.len()];
    for fold in 0..FOLDS {
        let rows = part(fold);
        let (held_x, held_y) = (x.select(Axis(0), &rows), y.select(Axis(0), &rows));
        let models = total.without(&moments(&rows)).standardised().path(&path, MOST_TERMS);
        for (i, error) in errors.iter_mut().enumerate() {
            *error += match models.get(i) {
                Some(model) => (model.predict(held_x.view()) - &held_y).mapv(|e| e * e).sum(),
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
                .filter(|(_, rows)| rows.len() >= crate::recipe::FEWEST_ROWS)
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
    let x = standardise(design(rows, degree));
    let model = fit(&x, &Array1::from_iter(rows.iter().map(|r| r.time.get() * 1e3)));
    let names = monomials(rows, degree);
    let label = |j: usize| match names.get(j) {
        Some(factors) => factors.iter().map(|v| format!("x{v}")).collect::<Vec<_>>().join("*"),
        None => ["ops", "read", "written"][j - names.len()].to_string(),
    };
    let terms = model.support().into_iter().map(|j| (label(j), model.coefficients[j])).collect();
    ModelFile { kind: kind.into(), phase, precision, degree, rows: rows.len(), intercept_ms: model.intercept, terms }
}
