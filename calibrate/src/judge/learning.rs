//! What a plan's level buys: layer error when only its trials are learned from, judged on the same held-out rows.

use super::validate::{self, HeldOut};
use crate::campaign::trials::{self, Level};
use crate::fit::folds::grouped;
use crate::fit::polynomial::{Options, fit};
use crate::fit::task::{options_for, tasks};
use crate::rows::prepare::Row;
use crate::system::hash::{DRAWN_BELOW, drawn};
use anyhow::Result;
use joulecast_model::base::accuracy::Accuracy;
use joulecast_model::base::precision::Phase;
use joulecast_model::kernel::key::ModelKey;
use joulecast_reports::accuracy::Curve;
use joulecast_reports::levels::Learned;
use rayon::prelude::*;
use std::collections::{BTreeMap, HashSet};

/// Fewer rows than this give no fit; their median ratio to the roofline stands in for one.
const FEWEST: usize = 24;

/// Shares of the shapes that a learning curve is made of.
const SHARES: [f64; 4] = [0.125, 0.25, 0.5, 1.0];

/// Measured and predicted times by share.
type Pairs = [Vec<(f64, f64)>; SHARES.len()];

/// Errors on unseen shapes where only a share of our own rows' shapes is there, of all kinds of layers on each board.
///
/// # Errors
/// When a fit fails.
pub fn curves(rows: &[Row], whole: &HeldOut, options: &Options) -> Result<Vec<Curve>> {
    let own: Vec<Row> = rows.iter().filter(|r| r.own && r.framework.is_none()).cloned().collect();
    let mut pairs: BTreeMap<(&str, &'static str), Pairs> = BTreeMap::new();
    for (i, share) in SHARES.into_iter().enumerate() {
        let part: Vec<Row> = own.iter().filter(|r| place(&r.key) < share).cloned().collect();
        let fitted = if share < 1.0 { Some(validate::held_out(&part, &part, options, 1)?) } else { None };
        let predicted = &fitted.as_ref().unwrap_or(whole).predicted[0];
        for row in own.iter().filter(|r| place(&r.key) < share) {
            if let Some(time) = predicted.get(row.row_id.as_str()) {
                pairs.entry((&row.board, layers(row))).or_default()[i].push((row.time.get(), *time));
            }
        }
    }
    let point = |pairs: Vec<(f64, f64)>| (pairs.len(), Accuracy::of(pairs).map(|a| a.mape));
    let curve = |((board, layers), pairs): ((&str, &'static str), Pairs)| Curve {
        board: board.to_string(),
        layers,
        points: pairs.map(point),
    };
    Ok(pairs.into_iter().map(curve).collect())
}

/// Where a shape is drawn, from 0 to 1.
fn place(key: &str) -> f64 {
    f64::from(drawn(key)) / f64::from(DRAWN_BELOW)
}

fn layers(row: &Row) -> &'static str {
    match (row.kind, row.phase) {
        ("conv2d", Phase::Forward) => "convolutions, forward",
        ("conv2d", _) => "convolutions, gradients",
        ("linear" | "matmul", _) => "products",
        _ => "all others",
    }
}

/// Errors of one kind of layer, level by level.
#[derive(Clone, Debug, Default)]
struct Errors {
    rows: usize,
    /// Measured and predicted times per level.
    pairs: BTreeMap<&'static str, Vec<(f64, f64)>>,
    /// Rows learned from, per level.
    learned: BTreeMap<&'static str, usize>,
}

/// Grouped 5-fold over all rows: in each fold, every level's trials outside of it are learned from and all rows in
/// it are predicted.
///
/// # Errors
/// When the shipped recipe cannot be expanded or a fit fails.
pub fn levels(rows: &[Row], options: &Options) -> Result<Vec<Learned>> {
    let levels = [Level::Quick, Level::Standard, Level::Reference];
    let mut members: BTreeMap<&'static str, HashSet<String>> = BTreeMap::new();
    for level in levels {
        let plan = trials::expand(trials::REFERENCE, level)?;
        members.insert(level.name(), plan.items.into_iter().map(|item| item.trial_id).collect());
    }
    let tasks = tasks(rows);
    let own: Vec<_> =
        tasks.iter().filter(|(task, _)| task.model != ModelKey::Stream && task.framework.is_none()).collect();
    if let Some(bar) = options.bar {
        bar.begin(own.len());
    }
    let results: Vec<(String, Errors)> = own
        .par_iter()
        .map(|(task, rows)| {
            let fit_options = options_for(task, options);
            let keys: Vec<&str> = rows.iter().map(|r| r.key.as_str()).collect();
            let fold_of = grouped(&keys, fit_options.folds, fit_options.seed);
            let mut errors = Errors { rows: rows.len(), ..Errors::default() };
            for level in levels {
                let Some(members) = members.get(level.name()) else { continue };
                let belongs = |row: &Row| members.contains(&row.trial_id);
                errors.learned.insert(level.name(), rows.iter().filter(|r| belongs(r)).count());
                for fold in 0..options.folds {
                    let train: Vec<&Row> =
                        (0..rows.len()).filter(|&i| fold_of[i] != fold && belongs(rows[i])).map(|i| rows[i]).collect();
                    let test = (0..rows.len()).filter(|&i| fold_of[i] == fold).map(|i| rows[i]);
                    let predict = predictor(task.model, &train, &fit_options)?;
                    let pairs = test.filter_map(|row| predict(row).map(|p| (row.time.get(), p)));
                    errors.pairs.entry(level.name()).or_default().extend(pairs);
                }
            }
            if let Some(bar) = options.bar {
                bar.fitted(task);
            }
            Ok((format!("{} {} {}", task.model, task.phase, task.precision), errors))
        })
        .collect::<Result<_>>()?;
    Ok(lines(results))
}

type Predict = Box<dyn Fn(&Row) -> Option<f64>>;

/// A fit where there are enough rows; else the median ratio to the smooth roofline; nothing without rows.
fn predictor(key: ModelKey, train: &[&Row], options: &Options) -> Result<Predict> {
    if train.len() >= FEWEST {
        let fitted = fit(key, train, options)?.model;
        return Ok(Box::new(move |row| Some(row.predicted(&fitted).get())));
    }
    const EXPONENT: u32 = 2;
    let mut ratios: Vec<f64> = train.iter().map(|r| r.kernel_time() / r.reference(EXPONENT)).collect();
    ratios.sort_by(f64::total_cmp);
    let median = ratios.get(ratios.len() / 2).copied();
    Ok(Box::new(move |row| median.map(|m| row.reference(EXPONENT).get() * m)))
}

fn lines(results: Vec<(String, Errors)>) -> Vec<Learned> {
    let names = [Level::Quick, Level::Standard, Level::Reference].map(Level::name);
    let mut all = Errors::default();
    for (_, errors) in &results {
        all.rows += errors.rows;
        for name in names {
            *all.learned.entry(name).or_default() += errors.learned.get(name).copied().unwrap_or(0);
            all.pairs.entry(name).or_default().extend(errors.pairs.get(name).into_iter().flatten());
        }
    }
    let line = |(layer, errors): (String, Errors)| {
        let mape = |name| Accuracy::of(errors.pairs.get(name).into_iter().flatten().copied()).map(|a| a.mape);
        let from = names.map(|name| (errors.learned.get(name).copied().unwrap_or(0), mape(name)));
        Learned { layer, rows: errors.rows, from }
    };
    results.into_iter().chain([("all".to_string(), all)]).map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::prepare::testing::row;

    #[test]
    fn a_curve_knows_more_shapes_from_point_to_point() -> Result<()> {
        let own = |batch: u64| Row { own: true, ..row("chip", batch, 0.3) };
        let rows: Vec<Row> = (1..=400).map(own).collect();
        let options = Options::default();
        let whole = validate::held_out(&rows, &rows, &options, 1)?;
        let curves = curves(&rows, &whole, &options)?;
        let [Curve { board, layers, points }] = &curves[..] else { panic!("one board and kind: {curves:?}") };
        assert_eq!((board.as_str(), *layers, points[3].0), ("t4", "products", 400));
        for (point, share) in points.iter().zip(SHARES).filter(|(point, _)| point.0 > 0) {
            assert!((point.0 as f64 / 400.0 - share).abs() < 0.08, "{} of a share of {share}", point.0);
        }
        assert!(points.windows(2).all(|pair| pair[0].0 < pair[1].0), "{points:?}");
        assert!(points[3].1.is_some_and(|mape| mape < 1.0), "{points:?}");
        Ok(())
    }
}
