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
use joulecast_model::law::calibration::{LayerModel, engine_alone};
use rayon::prelude::*;
use std::collections::{BTreeMap, HashMap};

/// Fewer rows of an engine say nothing of it.
const FEWEST: usize = 25;
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
    let fitted: Vec<Option<(Vec<usize>, Rest)>> = groups(rows)
        .into_par_iter()
        .map(|(engine, members)| {
            let own: Vec<&Row> = members.iter().map(|&i| rows[i]).collect();
            let offset = members.iter().map(|&i| unseen[i]).collect();
            let options = Options { most_terms: MOST_TERMS, ..*options };
            let rest = fit_rest(key, engine, (&own, offset), pooled.model.exponent, &options)?;
            Ok(rest.helps().then_some((members, rest)))
        })
        .collect::<Result<_>>()?;
    let fitted: Vec<(Vec<usize>, Rest)> = fitted.into_iter().flatten().collect();
    let mut held: HashMap<(&str, usize), f64> = HashMap::new();
    for (members, rest) in &fitted {
        held.extend(members.iter().zip(&rest.held_out).map(|(&i, log)| ((rest.terms.engine.as_str(), i), *log)));
    }
    let engines = fitted.iter().map(|(_, rest)| rest.terms.clone()).collect();
    let model = LayerModel { engines, ..pooled.model.clone() };
    let held_out: Vec<Seconds> = (0..rows.len())
        .map(|i| {
            let row = rows[i];
            let Some(terms) = row.foreseen.as_deref().and_then(|engine| model.engine(engine)) else {
                return pooled.held_out[i];
            };
            let more = held.get(&(terms.engine.as_str(), i)).copied().unwrap_or_else(|| terms.log(&row.variables));
            row.time_of(unseen[i] + more, model.exponent)
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
    row.log_of(kernel, model.exponent)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::prepare::testing::row;

    /// Rows of two engines, one of which takes half as long again; each foreseen as `foreseen` says.
    fn rows(foreseen: impl Fn(&str) -> String) -> Vec<Row> {
        (0..160)
            .map(|i| {
                // Which engine runs cannot be told from the sizes.
                let engine = ["eng1{2=4}", "eng2{2=4}"][(i * 7 / 3 % 2) as usize];
                let log = if engine.starts_with("eng1") { 0.2 } else { 0.2 + 1.5f64.ln() };
                let engine_and =
                    |row: Row| Row { engine: Some(engine.to_string()), foreseen: Some(foreseen(engine)), ..row };
                engine_and(row("chip", 8 + i, log))
            })
            .collect()
    }

    fn fitted(rows: &[Row]) -> Fitted {
        let rows: Vec<&Row> = rows.iter().collect();
        fit(ModelKey::Kind("linear"), &rows, &Options::default()).expect("enough rows")
    }

    #[test]
    fn engines_that_are_foreseen_are_told_apart() {
        let rows = rows(str::to_string);
        let Fitted { model, held_out } = fitted(&rows);
        assert_eq!(model.engines.iter().map(|e| e.engine.as_str()).collect::<Vec<_>>(), ["eng1{2=4}", "eng2{2=4}"]);
        assert!(model.cross_validation.mape < 2.0, "{:?}", model.cross_validation);
        for (row, time) in rows.iter().zip(held_out) {
            assert!((time / row.time).ln().abs() < 0.1, "{}: {time:?} for {:?}", row.row_id, row.time);
            assert!((row.predicted(&model) / row.time).ln().abs() < 0.1);
        }
        // An engine with knobs that no row had, by that engine with whatever knobs: here the same rows.
        assert!(model.engine("eng1{2=9}").is_none() && model.engine("eng3").is_none());
    }

    #[test]
    fn engines_that_are_foreseen_wrong_do_not_count() {
        let wrong = rows(|engine| if engine.starts_with("eng1") { "eng2{2=4}" } else { "eng1{2=4}" }.to_string());
        let pooled = polynomial::fit(ModelKey::Kind("linear"), &wrong.iter().collect::<Vec<_>>(), &Options::default());
        let pooled = pooled.expect("enough rows").model;
        assert_eq!(fitted(&wrong).model, pooled);
    }

    #[test]
    fn an_engine_alone_has_terms_where_its_knobs_are_several() {
        let mut rows = rows(str::to_string);
        for (i, row) in rows.iter_mut().enumerate().filter(|(i, _)| i % 2 == 0) {
            row.engine = row.engine.take().map(|e| e.replace("2=4", &format!("2={}", i % 3)));
        }
        let engines: Vec<String> = fitted(&rows).model.engines.into_iter().map(|e| e.engine).collect();
        assert!(engines.contains(&"eng1".to_string()) && engines.contains(&"eng2".to_string()), "{engines:?}");
    }
}
