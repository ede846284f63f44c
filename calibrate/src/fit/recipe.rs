//! Which models make up a calibration, and the calibrations of a dataset.

use crate::campaign::device::SIMULATED;
use crate::campaign::trials::zoo::held_out_layers;
use crate::fit::choice::Choices;
use crate::fit::efficiency::efficiencies;
use crate::fit::engines;
use crate::fit::few_shot;
use crate::fit::others;
use crate::fit::passport::passport;
use crate::fit::polynomial::{Fitted, Options, Residual, buckets};
use crate::fit::power;
use crate::fit::siblings;
use crate::fit::task::{ELEMENTWISE, Task, options_for, tasks};
use crate::fit::transfer::{World, with_universal};
use crate::fit::universal::{Excluded, Settings};
use crate::rows::prepare::Row;
use crate::system::hash::sha256_hex;
use anyhow::{Context, Result, bail};
use joulecast_kernels::fake::FAKE_PREFIX;
use joulecast_model::base::name::Name;
use joulecast_model::base::units::Seconds;
use joulecast_model::catalog;
use joulecast_model::kernel::family::Family;
use joulecast_model::kernel::key::ModelKey;
use joulecast_model::law::calibration::{ANY_CHIP, Bucket, Calibration, Cover, LayerModel, Tier, Transfer};
use joulecast_model::law::power::PowerModel;
use joulecast_model::net::case::LayerCase;
use joulecast_model::rows::measurement::Measurement;
use rayon::prelude::*;
use std::collections::{BTreeMap, BTreeSet, HashSet};

/// Fewest rows of other kinds that judge the bandwidth model.
const FEWEST_OTHERS: usize = 20;

/// Fits every task, in parallel; one with few rows over what other chips' rows (among `all`) say, where that is better.
///
/// # Errors
/// The first fit that fails.
pub fn fit_tasks<'a>(
    tasks: &'a BTreeMap<Task, Vec<&'a Row>>,
    all: &[Row],
    options: &Options,
) -> Result<Vec<(&'a Task, Fitted)>> {
    if let Some(bar) = options.bar {
        bar.begin(tasks.len());
    }
    tasks
        .par_iter()
        .map(|(task, rows)| {
            let label = || task.to_string();
            let mut fitted = engines::fit(task.model, rows, &options_for(task, options)).with_context(label)?;
            if rows.len() < others::FEW && task.framework.is_none() {
                let other = all.iter().filter(|row| row.chip != task.chip && row.framework.is_none());
                let over = others::fit_over(task.model, rows, other, options).with_context(label)?;
                let error = |f: &Fitted| f.model.cross_validation.mape;
                fitted = over.filter(|over| error(over) < error(&fitted)).unwrap_or(fitted);
            }
            (fitted.model.phase, fitted.model.precision) = (task.phase, task.precision);
            let pointwise = matches!(task.model, ModelKey::Pointwise | ModelKey::Copies);
            let covers: BTreeSet<Cover> = rows
                .iter()
                .map(|r| Cover {
                    key: if pointwise { r.model } else { task.model },
                    phase: r.phase,
                    precision: r.precision,
                })
                .collect();
            if pointwise || covers.len() > 1 {
                fitted.model.covers = covers.into_iter().collect();
            }
            fitted.model.framework = task.framework.map(str::to_string);
            fitted.model.boards =
                rows.iter().map(|r| &r.board).collect::<BTreeSet<_>>().into_iter().map(Name::to_string).collect();
            if let Some(bar) = options.bar {
                bar.fitted(task);
            }
            Ok((task, fitted))
        })
        .collect()
}

/// Rows without those whose shape occurs in a network that is held out, or among further layers.
///
/// # Errors
/// When the zoo cannot be read.
pub fn without_held_out_shapes(mut rows: Vec<Row>, further: &[LayerCase]) -> Result<Vec<Row>> {
    let keys = held_out_keys(further)?;
    rows.retain(|row| !keys.contains(&*row.key));
    Ok(rows)
}

/// Fold keys of the layers of networks that are held out, and of further layers.
fn held_out_keys(further: &[LayerCase]) -> Result<HashSet<String>> {
    Ok(held_out_layers()?.iter().chain(further).map(LayerCase::fold_key).collect())
}

/// What rows of several chips, prepared alike (`rows::prepare_alike`), say of any chip: models, and what few rows of it would
/// bring. `None` of fewer than three chips.
///
/// # Errors
/// When a fit fails.
pub fn of_any_chip(alike: &[Row]) -> Result<Option<(Vec<LayerModel>, Transfer)>> {
    World::new(alike, Settings::default()).shipped(&Excluded::new())
}

/// Calibrations of all chips among the rows, and the models of all chips for devices without any, with `any`, as
/// [`of_any_chip`] says of the same rows, and the shipped law of power where no energy was measured. `choices`:
/// by which the rows' engines were foreseen.
///
/// # Errors
/// When a fit fails.
pub fn calibrations(
    rows: &[Row],
    any: Option<(Vec<LayerModel>, Transfer)>,
    measurements: &[Measurement],
    choices: &Choices,
    options: &Options,
    evaluation: bool,
) -> Result<Vec<Calibration>> {
    if rows.iter().any(|r| r.source == SIMULATED) && rows.iter().any(|r| r.source != SIMULATED) {
        bail!("rows of the simulated device among measured ones: fit them apart");
    }
    let answered_by_fake = choices.values().flatten().any(|c| c.engines.iter().any(|e| e.starts_with(FAKE_PREFIX)));
    if answered_by_fake && rows.iter().any(|r| r.source != SIMULATED) {
        bail!("choices of the simulated device with measured rows: fit them apart");
    }
    let tasks = tasks(rows);
    let fitted = fit_tasks(&tasks, rows, options)?;
    let energy = power::rows(measurements, rows)?;
    let mut by_chip: BTreeMap<&str, Vec<LayerModel>> = BTreeMap::new();
    for (task, fit) in &fitted {
        let mut model = fit.model.clone();
        if task.model == ModelKey::Stream {
            model.residuals = other_kinds(rows, task, &model).unwrap_or(model.residuals);
        }
        by_chip.entry(&task.chip).or_default().push(model);
    }
    let mut list: Vec<Calibration> = by_chip
        .into_iter()
        .map(|(chip, models)| {
            let own: Vec<&Row> = rows.iter().filter(|r| r.chip == chip).collect();
            // Each model says whether its own rows are others' (`imported`).
            let tier = if own.iter().any(|r| r.own) { Tier::Measured } else { Tier::Imported };
            let law = energy.get(chip).map(|rows| power::fit(rows, options)).transpose()?.flatten();
            let bandwidth = own.first().and_then(|row| row.memory).map(|memory| memory.bandwidth);
            let power = law.map(|(law, _)| PowerModel { bandwidth, ..law });
            let choices = choices.get(chip).cloned().unwrap_or_default();
            Ok(Calibration { power, choices, ..passport(chip, tier, &own, models, evaluation) })
        })
        .collect::<Result<_>>()?;
    // Where no energy was measured the law of the chip with most rows stands in, in shares of idle and limit.
    let law = list.iter().filter_map(|c| c.power.clone()).max_by_key(|p| p.rows);
    let all: Vec<&Row> = rows.iter().collect();
    let roofline = passport(ANY_CHIP, Tier::Roofline, &all, efficiencies(&tasks, &fitted), evaluation);
    let any = match any {
        Some((universal, transfer)) => {
            let siblings = siblings::quantiles(&siblings::left_out(&tasks, options)?);
            Calibration { transfer: Some(Transfer { siblings, ..transfer }), ..with_universal(roofline, universal) }
        }
        None => roofline,
    };
    // Algorithms were asked for on one chip alone: its models, over the roofline of another, stand for all.
    let by_algorithm = list.iter().flat_map(|c| c.models.iter()).filter(|m| m.key.is_asked_for()).cloned();
    let any = Calibration { models: any.models.iter().cloned().chain(by_algorithm).collect(), ..any };
    let power = match law {
        Some(law) => Some(PowerModel { correction: None, bandwidth: None, ..law }),
        None => catalog::all_chips()?.power,
    };
    list.push(Calibration { power, ..any });
    Ok(list)
}

/// A calibration of each chip among the rows, prepared alike: the models of all chips (`base`), corrected.
///
/// # Errors
/// When the base has no models of all chips, or none for a chip's rows.
pub fn few_shot(alike: &[Row], base: &Calibration) -> Result<Vec<Calibration>> {
    let mut by_chip: BTreeMap<&str, Vec<&Row>> = BTreeMap::new();
    for row in alike {
        by_chip.entry(&row.chip).or_default().push(row);
    }
    by_chip
        .into_iter()
        .map(|(chip, rows)| {
            let models = few_shot::correct(base, &rows).with_context(|| chip.to_string())?;
            let own = passport(chip, Tier::Transferred, &rows, models, false);
            let sources = own.sources.iter().chain(&base.sources).cloned().collect::<BTreeSet<_>>();
            Ok(Calibration { sources: sources.into_iter().collect(), ..own })
        })
        .collect()
}

/// Residuals of other bandwidth-bound kinds' rows under the bandwidth model: what to expect of a kind that has no
/// rows. `None` where the chip has no such rows.
fn other_kinds(rows: &[Row], task: &Task, model: &LayerModel) -> Option<Vec<Bucket>> {
    let other = |r: &&Row| {
        let elementwise = ELEMENTWISE.contains(&r.kind);
        r.framework.is_none()
            && r.chip == task.chip
            && r.family == Family::Stream
            && r.precision == task.precision
            && !elementwise
    };
    let pairs: Vec<(Seconds, f64)> = rows.iter().filter(other).map(|r| r.against(r.expected(model).time())).collect();
    (pairs.len() >= FEWEST_OTHERS).then(|| buckets(pairs.into_iter().map(Residual::from).collect()))
}

/// SHA-256 of the shapes that an evaluation fit may not know: those of networks that are held out, and further layers'.
///
/// # Errors
/// When the zoo cannot be read.
pub fn held_out_hash(further: &[LayerCase]) -> Result<String> {
    let mut keys: Vec<String> = held_out_keys(further)?.into_iter().collect();
    keys.sort();
    Ok(sha256_hex(keys.iter().map(|key| format!("{key}\n")).collect::<String>().as_bytes()))
}
