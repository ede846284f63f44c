//! What a model's rows by each engine of the library differ by from the model.
//!
//! The model of a kind pools all engines. For each engine with enough rows a second, smaller Lasso is fitted to what the
//! model leaves of its rows, always to what it leaves of them unseen: an engine's terms may not repair what the model knows
//! only of rows that it was fitted to. Rows are then judged as users' layers are, by the engine that is foreseen for them,
//! right or wrong.

use crate::fit::polynomial::{self, Fitted, Options, Rest, cross_validation, fit_rest, intervals};
use crate::rows::prepare::Row;
use anyhow::Result;
use joulecast_model::base::units::Seconds;
use joulecast_model::kernel::key::ModelKey;
use joulecast_model::law::calibration::{EngineTerms, LayerModel, engine_alone};
use joulecast_model::law::time::Expected;
use rayon::prelude::*;
use std::collections::{BTreeMap, HashMap};

/// Fewer rows of an engine say nothing of it.
const FEWEST: usize = 40;
/// Terms of an engine, at most.
const MOST_TERMS: usize = 80;

/// Fits the model of a key, with terms for the engines of its rows where engines are foreseen and that is better.
///
/// # Errors
/// As of [`polynomial::fit`].
pub fn fit(key: ModelKey, rows: &[&Row], options: &Options) -> Result<Fitted> {
    let pooled = polynomial::fit(key, rows, options)?;
    if rows.iter().all(|r| r.foreseen.is_none()) {
        return Ok(pooled);
    }
    let unseen: Vec<f64> = rows.iter().zip(&pooled.held_out).map(|(r, t)| unseen_log(r, *t, &pooled.model)).collect();
    let groups = groups(rows);
    let fitted: Vec<Option<(&str, Vec<usize>, Rest)>> = groups
        .into_par_iter()
        .map(|(engine, members)| {
            let own: Vec<&Row> = members.iter().map(|&i| rows[i]).collect();
            let offset = members.iter().map(|&i| unseen[i]).collect();
            let options = Options { most_terms: MOST_TERMS, ..*options };
            let rest = fit_rest(key, &own, offset, pooled.model.exponent, &options)?;
            Ok(rest.helps().then_some((engine, members, rest)))
        })
        .collect::<Result<_>>()?;
    let mut engines = Vec::new();
    let mut held: HashMap<(&str, usize), f64> = HashMap::new();
    for (engine, members, rest) in fitted.into_iter().flatten() {
        held.extend(members.iter().zip(&rest.held_out).map(|(&i, log)| ((engine, i), *log)));
        engines.push(EngineTerms { engine: engine.to_string(), ..rest.terms });
    }
    let model = LayerModel { engines, ..pooled.model.clone() };
    let held_out: Vec<Seconds> = (0..rows.len())
        .map(|i| {
            let row = rows[i];
            let Some(terms) = row.foreseen.as_deref().and_then(|engine| model.engine(engine)) else {
                return pooled.held_out[i];
            };
            let more = held.get(&(terms.engine.as_str(), i)).copied().unwrap_or_else(|| terms.log(&row.variables));
            let reference = row.reference(model.exponent);
            let expected = Expected { reference, log: unseen[i] + more, in_domain: true, carry: row.carry };
            expected.time() + row.overhead
        })
        .collect();
    let accuracy = cross_validation(rows, &held_out);
    if model.engines.is_empty() || accuracy.mape >= pooled.model.cross_validation.mape {
        return Ok(pooled);
    }
    let model = LayerModel { cross_validation: accuracy, residuals: intervals(rows, &held_out), ..model };
    Ok(Fitted { model, held_out })
}

/// ln(t / t_ref) of a row's kernel as a fit without its fold predicted it, over the model's memory.
fn unseen_log(row: &Row, held_out: Seconds, model: &LayerModel) -> f64 {
    let kernel = (held_out - row.overhead).max(row.floor * 1e-3);
    (row.carry.to_model(kernel) / row.reference(model.exponent)).ln()
}

/// Rows of each engine with its knobs, and of each with whatever knobs, where these are more.
fn groups<'a>(rows: &[&'a Row]) -> BTreeMap<&'a str, Vec<usize>> {
    let mut groups: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (i, row) in rows.iter().enumerate() {
        if let Some(engine) = row.engine.as_deref() {
            groups.entry(engine).or_default().push(i);
            let alone = engine_alone(engine);
            if alone != engine {
                groups.entry(alone).or_default().push(i);
            }
        }
    }
    let sizes: BTreeMap<&str, usize> = groups.iter().map(|(engine, rows)| (*engine, rows.len())).collect();
    let repeated = |engine: &str, rows: &[usize]| {
        sizes.iter().any(|(other, n)| *other != engine && engine_alone(other) == engine && *n == rows.len())
    };
    groups.retain(|engine, rows| rows.len() >= FEWEST && !repeated(engine, rows));
    groups
}
