//! A chip's own fit over what other chips say of the same kind, where its own rows are few.

use crate::fit::folds::grouped;
use crate::fit::polynomial::{Fitted, Options, buckets, cross_validation, fit_from, residuals};
use crate::fit::universal::{Excluded, Settings, Universal};
use crate::rows::prepare::{KERNEL_FLOOR, Row};
use anyhow::Result;
use joulecast_model::kernel::family::Family;
use joulecast_model::kernel::key::ModelKey;
use joulecast_model::law::calibration::LayerModel;
use std::collections::BTreeSet;

/// Fewer own rows than this are worth a look at other chips'. With thousands the others' only disturb.
pub const FEW: usize = 300;
/// Fewest chips that say something of another.
const FEWEST_CHIPS: usize = 2;

/// Fits a model, called `kind`, to what the other chips' model leaves of the rows; `None` where fewer than two chips
/// have such rows. In each fold neither the other chips' model nor the correction sees its shapes.
///
/// # Errors
/// When a least-squares fit fails.
pub fn fit_over<'a>(
    key: ModelKey,
    rows: &[&Row],
    others: impl Iterator<Item = &'a Row>,
    options: &Options,
) -> Result<Option<Fitted>> {
    let Some(first) = rows.first() else { return Ok(None) };
    if first.family != Family::Gemm || rows.iter().any(|r| r.floor != KERNEL_FLOOR) {
        return Ok(None);
    }
    let classes: BTreeSet<ModelKey> = rows.iter().map(|r| r.model).collect();
    let alike = |r: &&Row| classes.contains(&r.model) && r.phase == first.phase && r.precision == first.precision;
    // A class with few rows is fitted with the others: so are its relatives on other chips.
    let others: Vec<Row> = others.filter(alike).map(|r| Row { model: key, ..r.clone() }).collect();
    if others.iter().map(|r| r.chip.as_str()).collect::<BTreeSet<_>>().len() < FEWEST_CHIPS {
        return Ok(None);
    }
    let Some(base) = base(others.iter()) else { return Ok(None) };
    let keys: Vec<&str> = rows.iter().map(|r| r.key.as_str()).collect();
    let fold_of = grouped(&keys, options.folds, options.seed);
    let full = fit_from(key, rows, Some(&base), options)?;
    let mut held_out = full.held_out.clone();
    for fold in 0..options.folds {
        let held: BTreeSet<&str> = (0..rows.len()).filter(|&i| fold_of[i] == fold).map(|i| keys[i]).collect();
        let train: Vec<&Row> = rows.iter().copied().filter(|r| !held.contains(r.key.as_str())).collect();
        let Some(base) = self::base(others.iter().filter(|r| !held.contains(r.key.as_str()))) else {
            return Ok(None);
        };
        if train.is_empty() {
            continue;
        }
        let model = fit_from(key, &train, Some(&base), options)?.model;
        for i in (0..rows.len()).filter(|&i| fold_of[i] == fold) {
            held_out[i] = rows[i].predicted(&model);
        }
    }
    let model = LayerModel {
        cross_validation: cross_validation(rows, &held_out),
        residuals: buckets(residuals(rows, &held_out)),
        ..full.model
    };
    Ok(Some(Fitted { model, held_out }))
}

/// The model of all of these rows' chips.
fn base<'a>(rows: impl Iterator<Item = &'a Row>) -> Option<LayerModel> {
    Universal::new(rows, Settings::default()).unjudged(&Excluded::new()).pop()
}
