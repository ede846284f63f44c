//! What a model's rows by each engine of the library differ by from the model.
//!
//! The model of a kind pools all engines. For each engine with enough rows a second, smaller Lasso is fitted to what the
//! model leaves of its rows; then the model anew to what the engines leave, and so on (backfitting: Hastie and Tibshirani
//! 1990), so that the model need not explain where engines change. Always what is left of rows unseen counts: an engine's
//! terms may not repair what the model knows only of rows that it was fitted to. Rows are then judged as users' layers are,
//! by the engine that is foreseen for them, right or wrong; where it is often wrong, only a share of what an engine adds
//! helps them, or none.

use crate::fit::folds::grouped;
use crate::fit::polynomial::{self, Fitted, Options, Rest, cross_validation, fit_rest, intervals};
use crate::rows::prepare::Row;
use anyhow::Result;
use joulecast_model::base::units::Seconds;
use joulecast_model::kernel::key::ModelKey;
use joulecast_model::law::calibration::{EngineTerms, LayerModel, Term, engine_alone};
use rayon::prelude::*;
use std::collections::{BTreeMap, HashMap};

/// Fewer rows of an engine say nothing of it.
const FEWEST: usize = 25;
/// Terms of an engine, at most.
const MOST_TERMS: usize = 80;
/// Shares of what an engine adds, of which one is chosen.
const SHARES: [f64; 5] = [0.0, 0.25, 0.5, 0.75, 1.0];
/// Times that the engines are fitted, between them the model anew. Of unseen rows the second took away a tenth of the
/// error, the third a thirtieth.
const PASSES: usize = 3;

/// Fits the model of a key, with terms for the engines of its rows where engines are foreseen and that is better.
///
/// # Errors
/// As of [`polynomial::fit`].
pub fn fit(key: ModelKey, rows: &[&Row], options: &Options) -> Result<Fitted> {
    let pooled = polynomial::fit(key, rows, options)?;
    if rows.iter().all(|r| r.foreseen.is_none()) {
        return Ok(pooled);
    }
    let exponent = pooled.model.exponent;
    let exponents = options.exponents.chunks(1).find(|e| *e == [exponent]).unwrap_or(options.exponents);
    let mape = |fitted: &Fitted| fitted.model.cross_validation.mape;
    let mut best = pooled.clone();
    let mut base = pooled;
    for pass in 1..=PASSES {
        let engines = engines(key, rows, &base, options)?;
        let next = with_engines(rows, &base, &engines, options);
        if mape(&next) < mape(&best) {
            best = next;
        }
        if pass < PASSES {
            base = polynomial::fit_beside(key, rows, by_engine(rows, &engines), &Options { exponents, ..*options })?;
        }
    }
    Ok(best)
}

/// The rows of an engine, and what they differ by from the model.
struct Engine {
    rows: Vec<usize>,
    rest: Rest,
}

/// Fits what a model leaves of each engine's rows.
fn engines(key: ModelKey, rows: &[&Row], base: &Fitted, options: &Options) -> Result<Vec<Engine>> {
    let unseen = unseen_logs(rows, base);
    let fit = |(engine, members): (&str, Vec<usize>)| {
        let own: Vec<&Row> = members.iter().map(|&i| rows[i]).collect();
        let offset = members.iter().map(|&i| unseen[i]).collect();
        let options = Options { most_terms: MOST_TERMS, ..*options };
        let rest = fit_rest(key, engine, (&own, offset), base.model.exponent, &options)?;
        Ok(Engine { rows: members, rest })
    };
    groups(rows).into_par_iter().map(fit).collect()
}

/// What the engines that really ran add to rows, unseen.
fn by_engine(rows: &[&Row], engines: &[Engine]) -> Vec<f64> {
    let mut added = vec![0.0; rows.len()];
    let is_alone = |engine: &Engine| engine_alone(&engine.rest.terms.engine) == engine.rest.terms.engine;
    // Those with their knobs say more, so they come last.
    for alone in [true, false] {
        for engine in engines.iter().filter(|e| is_alone(e) == alone) {
            engine.rows.iter().zip(&engine.rest.held_out).for_each(|(&i, log)| added[i] = *log);
        }
    }
    added
}

/// The model with the engines that help rows which are foreseen as theirs. The share that a row is predicted with is
/// chosen by the other folds.
fn with_engines(rows: &[&Row], base: &Fitted, engines: &[Engine], options: &Options) -> Fitted {
    let unseen = unseen_logs(rows, base);
    let judged = Judged::new(rows, &unseen, base, engines);
    let keys: Vec<&str> = rows.iter().map(|r| r.key.as_str()).collect();
    let fold_of = grouped(&keys, options.folds, options.seed);
    let mut held_out = base.held_out.clone();
    for fold in 0..options.folds {
        let shares = judged.shares(|i| fold_of[i] != fold);
        (0..rows.len()).filter(|&i| fold_of[i] == fold).for_each(|i| held_out[i] = judged.time(i, &shares));
    }
    let shares = judged.shares(|_| true);
    let shared = |engine: &Engine| {
        let terms = &engine.rest.terms;
        Some(part(terms, *shares.get(terms.engine.as_str())?))
    };
    let model = LayerModel {
        engines: engines.iter().filter_map(shared).collect(),
        cross_validation: cross_validation(rows, &held_out),
        residuals: intervals(rows, &held_out),
        ..base.model.clone()
    };
    Fitted { model, held_out }
}

/// Rows with what the engines that are foreseen for them would add, unseen.
struct Judged<'a> {
    rows: &'a [&'a Row],
    unseen: &'a [f64],
    base: &'a Fitted,
    /// Of each row: the engine with its knobs, then the engine alone, as far as they have terms, and what these add.
    added: Vec<Vec<(&'a str, f64)>>,
}

/// Engines that help, by how much of what they add is best added.
type Shares<'a> = BTreeMap<&'a str, f64>;

impl<'a> Judged<'a> {
    fn new(rows: &'a [&'a Row], unseen: &'a [f64], base: &'a Fitted, engines: &'a [Engine]) -> Self {
        let terms: BTreeMap<&str, &EngineTerms> =
            engines.iter().map(|e| (e.rest.terms.engine.as_str(), &e.rest.terms)).collect();
        let mut held: HashMap<(&str, usize), f64> = HashMap::new();
        for Engine { rows, rest } in engines {
            held.extend(rows.iter().zip(&rest.held_out).map(|(&i, log)| ((rest.terms.engine.as_str(), i), *log)));
        }
        let added = |(i, row): (usize, &&'a Row)| {
            let foreseen: &'a str = row.foreseen.as_deref().unwrap_or_default();
            let mut names = vec![foreseen, engine_alone(foreseen)];
            names.dedup();
            let adds = |name: &'a str| {
                let terms = terms.get(name)?;
                Some((name, held.get(&(name, i)).copied().unwrap_or_else(|| terms.log(&row.variables))))
            };
            names.into_iter().filter_map(adds).collect()
        };
        Self { rows, unseen, base, added: rows.iter().enumerate().map(added).collect() }
    }

    /// The shares that are best for some of the rows: of engines with their knobs first, then of engines alone for rows
    /// that those do not help.
    fn shares(&self, of: impl Fn(usize) -> bool) -> Shares<'a> {
        let mut shares = Shares::new();
        for alone in [false, true] {
            let mut members: BTreeMap<&str, Vec<(usize, f64)>> = BTreeMap::new();
            for (i, added) in self.added.iter().enumerate().filter(|(i, _)| of(*i)) {
                let known = added.iter().any(|(engine, _)| shares.contains_key(engine));
                let (engine, log) = match added.iter().find(|(engine, _)| (engine_alone(engine) == *engine) == alone) {
                    Some(added) if !known => *added,
                    _ => continue,
                };
                members.entry(engine).or_default().push((i, log));
            }
            let best = members.into_iter().map(|(engine, members)| (engine, self.best_share(&members)));
            let helpful: Vec<(&str, f64)> = best.filter(|(_, share)| *share > 0.0).collect();
            shares.extend(helpful);
        }
        shares
    }

    /// The share of what is added to these rows with the smallest mean error, of equals the smallest.
    fn best_share(&self, added: &[(usize, f64)]) -> f64 {
        let error = |share: f64| {
            let of = |(i, log): &(usize, f64)| (self.with(*i, share * log) / self.rows[*i].time - 1.0).abs();
            added.iter().map(of).sum::<f64>()
        };
        let errors = SHARES.map(|share| (share, error(share)));
        errors.into_iter().reduce(|best, next| if next.1 < best.1 { next } else { best }).map_or(0.0, |best| best.0)
    }

    fn with(&self, i: usize, log: f64) -> Seconds {
        self.rows[i].time_of(self.unseen[i] + log, self.base.model.exponent)
    }

    /// What a row takes by the engine that is foreseen for it.
    fn time(&self, i: usize, shares: &Shares<'_>) -> Seconds {
        let added = self.added[i].iter().find_map(|(engine, log)| Some(shares.get(engine)? * log));
        added.map_or(self.base.held_out[i], |log| self.with(i, log))
    }
}

/// A share of what an engine's terms add.
fn part(terms: &EngineTerms, share: f64) -> EngineTerms {
    let scaled = |term: &Term| Term { coefficient: share * term.coefficient, ..term.clone() };
    EngineTerms {
        intercept: share * terms.intercept,
        range: (share * terms.range.0, share * terms.range.1),
        terms: terms.terms.iter().map(scaled).collect::<Vec<_>>().into(),
        ..terms.clone()
    }
}

/// ln(t / t_ref) of rows' kernels as fits without their folds predicted them, over the model's memory.
fn unseen_logs(rows: &[&Row], base: &Fitted) -> Vec<f64> {
    let log = |(row, held_out): (&&Row, &Seconds)| {
        let kernel = (*held_out - row.overhead).max(row.floor * 1e-3);
        row.log_of(kernel, base.model.exponent)
    };
    rows.iter().zip(&base.held_out).map(log).collect()
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
    fn the_model_is_not_pulled_by_what_engines_add() -> Result<()> {
        let mut rows = rows(str::to_string);
        for row in rows.iter_mut().filter(|r| r.engine.as_deref() == Some("eng2{2=4}")) {
            row.time = row.overhead + (row.time - row.overhead) * 20.0;
        }
        let rows: Vec<&Row> = rows.iter().collect();
        let (key, options) = (ModelKey::Kind("linear"), Options::default());
        let base = polynomial::fit(key, &rows, &options)?;
        let once = with_engines(&rows, &base, &engines(key, &rows, &base, &options)?, &options).model;
        let model = fit(key, &rows, &options)?.model;
        let mape = |model: &LayerModel| model.cross_validation.mape;
        assert!(mape(&model) < 0.5 * mape(&once), "{} after {}", mape(&model), mape(&once));
        assert!(model.ratio_range.1 - model.ratio_range.0 < 2.0, "{:?}", model.ratio_range);
        Ok(())
    }

    #[test]
    fn engines_that_are_foreseen_wrong_do_not_count() {
        let wrong = rows(|engine| if engine.starts_with("eng1") { "eng2{2=4}" } else { "eng1{2=4}" }.to_string());
        let pooled = polynomial::fit(ModelKey::Kind("linear"), &wrong.iter().collect::<Vec<_>>(), &Options::default());
        let (pooled, model) = (pooled.expect("enough rows").model, fitted(&wrong).model);
        assert_eq!(model.engines, []);
        assert!(model.cross_validation.mape <= pooled.cross_validation.mape);
    }

    #[test]
    fn an_engine_that_is_mostly_foreseen_wrong_does_not_count() {
        let mut rows = rows(str::to_string);
        for (i, row) in rows.iter_mut().enumerate().filter(|(i, _)| i % 4 != 0) {
            row.foreseen = Some(if i % 2 == 0 { "eng2{2=4}" } else { "eng3" }.to_string());
        }
        let (rows, key, options) = (rows.iter().collect::<Vec<_>>(), ModelKey::Kind("linear"), Options::default());
        let base = polynomial::fit(key, &rows, &options).expect("enough rows");
        let engines = engines(key, &rows, &base, &options).expect("enough rows");
        let model = with_engines(&rows, &base, &engines, &options).model;
        assert_eq!(model.engines.iter().map(|e| e.engine.as_str()).collect::<Vec<_>>(), ["eng1{2=4}"]);
    }

    #[test]
    fn an_engine_with_its_knobs_says_more_than_the_engine_alone() {
        let all = rows(str::to_string);
        let model = fitted(&all).model;
        let engine = |name: &str, rows: Vec<usize>, log: f64| {
            let terms = EngineTerms { engine: name.to_string(), ..model.engines[0].clone() };
            Engine { rest: Rest { terms, held_out: vec![log; rows.len()] }, rows }
        };
        let rows: Vec<&Row> = all.iter().take(3).collect();
        for engines in [
            [("eng1", vec![0, 1], 0.1), ("eng1{2=4}", vec![1], 0.7)],
            [("eng1{2=4}", vec![1], 0.7), ("eng1", vec![0, 1], 0.1)],
        ] {
            let engines = engines.map(|(name, rows, log)| engine(name, rows, log));
            assert_eq!(by_engine(&rows, &engines), [0.1, 0.7, 0.0]);
        }
    }

    #[test]
    fn what_a_fold_is_predicted_with_is_chosen_by_the_others() {
        let mut all = rows(str::to_string);
        let (key, options) = (ModelKey::Kind("linear"), Options::default());
        let fold_of = grouped(&all.iter().map(|r| r.key.as_str()).collect::<Vec<_>>(), options.folds, options.seed);
        let wrong = |i: usize, row: &Row| fold_of[i] == 0 && row.engine.as_deref() == Some("eng1{2=4}");
        let fooled: Vec<usize> = (0..all.len()).filter(|&i| wrong(i, &all[i])).collect();
        // In one fold the second engine is foreseen for all rows, so that none of it would be best there.
        for (i, row) in all.iter_mut().enumerate().filter(|(i, _)| fold_of[*i] == 0) {
            row.foreseen = fooled.contains(&i).then(|| "eng2{2=4}".to_string());
        }
        let rows: Vec<&Row> = all.iter().collect();
        let base = polynomial::fit(key, &rows, &options).expect("enough rows");
        let engines = engines(key, &rows, &base, &options).expect("enough rows");
        let held_out = with_engines(&rows, &base, &engines, &options).held_out;
        assert!(fooled.len() > 5);
        for i in fooled {
            assert!(held_out[i] / rows[i].time > 1.3, "{i}: {:?} of {:?}", held_out[i], rows[i].time);
        }
    }

    #[test]
    fn a_share_of_an_engine_adds_that_share() {
        let rows = rows(str::to_string);
        let model = fitted(&rows).model;
        for engine in &model.engines {
            for row in rows.iter().step_by(7) {
                let (whole, quarter) = (engine.log(&row.variables), part(engine, 0.25).log(&row.variables));
                assert!((quarter - 0.25 * whole).abs() < 1e-12, "{quarter} of {whole}");
            }
        }
    }

    #[test]
    fn an_engine_alone_has_terms_where_its_knobs_are_several() {
        let mut rows = rows(str::to_string);
        for (i, row) in rows.iter_mut().enumerate().filter(|(i, _)| i % 2 == 0) {
            row.engine = row.engine.take().map(|e| e.replace("2=4", &format!("2={}", i % 7)));
            row.foreseen = row.engine.clone();
        }
        let engines: Vec<String> = fitted(&rows).model.engines.into_iter().map(|e| e.engine).collect();
        assert!(engines.contains(&"eng1".to_string()) && engines.contains(&"eng2".to_string()), "{engines:?}");
    }
}
