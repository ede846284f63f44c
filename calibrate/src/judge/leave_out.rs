//! `calibrate validate --leave-one-chip-out`: each chip predicted from the others alone, and with few of its own rows.

use crate::fit::design::Richness;
use crate::fit::transfer::{LEVELS, Predicted, World, predict, with_universal};
use crate::fit::universal::{Excluded, Settings};
use crate::rows::prepare::Row;
use anyhow::Result;
use joulecast_model::base::accuracy::Accuracy;
use joulecast_model::base::precision::{Phase, Precision};
use joulecast_model::catalog;
use joulecast_model::kernel::family::Family;
use joulecast_model::law::calibration::{Calibration, LayerModel};
use joulecast_reports::chips::{Line, Score, Trial};
use rayon::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

/// Which rows a line is about: kind, phase, precision. Memory-bound kinds are one.
type Group = (&'static str, Phase, Precision);

/// Name of all memory-bound kinds together.
const BANDWIDTH: &str = "memory-bound";

fn group(row: &Row) -> Group {
    (if row.family == Family::Stream { BANDWIDTH } else { row.kind }, row.phase, row.precision)
}

/// Measured and predicted times of the rows of a line, with whether the interval holds the time.
#[derive(Default)]
struct Tally(Vec<(f64, f64, bool)>);

impl Tally {
    fn add(&mut self, row: &Row, predicted: Predicted) {
        let time = row.time.get();
        self.0.push((time, predicted.time, (predicted.p05..=predicted.p95).contains(&time)));
    }

    fn score(&self) -> Option<Score> {
        let accuracy = Accuracy::of(self.0.iter().map(|(measured, predicted, _)| (*measured, *predicted)))?;
        let held = self.0.iter().filter(|(.., held)| *held).count();
        Some(Score {
            mape: accuracy.mape,
            median: accuracy.median,
            coverage: 100.0 * held as f64 / self.0.len() as f64,
        })
    }
}

type Tallies = BTreeMap<Group, Tally>;

/// Every chip left out in turn. Rows must have been prepared alike (`rows::prepare_alike`); `seeds` draws of own rows.
///
/// # Errors
/// When a chip's device file cannot be read, or a correction cannot be estimated.
pub fn chips(rows: &[Row], seeds: u64) -> Result<Vec<Line>> {
    let world = World::new(rows, Settings::default());
    let lines: Vec<Vec<Line>> =
        world.chips().into_par_iter().map(|chip| one(&world, rows, chip, seeds)).collect::<Result<_>>()?;
    Ok(lines.into_iter().flatten().collect())
}

fn one(world: &World<'_>, rows: &[Row], chip: &str, seeds: u64) -> Result<Vec<Line>> {
    let excluded: Excluded<'_> = [chip].into();
    let constants = world.constants(&excluded);
    let base = match world.shipped(&excluded)? {
        Some((models, transfer)) => {
            Calibration { transfer: Some(transfer), ..with_universal(constants.clone(), models) }
        }
        None => constants.clone(),
    };
    let judged = world.judged(chip);
    let neighbours = neighbours(rows, chip, world)?;
    let of_all = |calibration: Option<&Calibration>, base: &Calibration, known: &BTreeSet<&str>| {
        let mut tallies = Tallies::new();
        for (target, rows) in &judged {
            let rows: Vec<&Row> = rows.iter().copied().filter(|r| !known.contains(r.key.as_str())).collect();
            for (row, predicted) in rows.iter().zip(predict(calibration, base, *target, &rows)) {
                if let Some(predicted) = predicted {
                    tallies.entry(group(row)).or_default().add(row, predicted);
                }
            }
        }
        tallies
    };
    let none = BTreeSet::new();
    let zero = of_all(None, &base, &none);
    let constant = of_all(None, &constants, &none);
    let mut roofline = Tallies::new();
    let mut nearest = Tallies::new();
    for row in judged.values().flatten() {
        let exact = |time: f64| Predicted { time, p05: time, p95: time };
        roofline.entry(group(row)).or_default().add(row, exact((row.roofline.bound() + row.overhead).get()));
        if let Some(time) = scaled(&neighbours, row) {
            nearest.entry(group(row)).or_default().add(row, exact(time));
        }
    }
    let mut few: Vec<Vec<Tallies>> = Vec::new();
    for level in LEVELS {
        let draws = (0..seeds.max(1)).map(|seed| {
            // Other draws than those that gave the intervals.
            let (calibration, known) = world.few(chip, &base, level, 1000 + seed)?;
            Ok(of_all(Some(&calibration), &base, &known))
        });
        few.push(draws.collect::<Result<_>>()?);
    }
    let own_rows = |g: &Group| rows.iter().filter(|r| r.chip == chip && group(r) == *g).count();
    Ok(zero
        .iter()
        .filter_map(|(g, tally)| {
            let over_seeds =
                |draws: &Vec<Tallies>| Score::mean(draws.iter().filter_map(|tallies| tallies.get(g)?.score()));
            Some(Line {
                chip: chip.to_string(),
                kind: g.0.to_string(),
                phase: g.1.to_string(),
                precision: g.2.to_string(),
                rows: own_rows(g),
                roofline: roofline.get(g)?.score()?.mape,
                constant: constant.get(g)?.score()?.mape,
                nearest: nearest.get(g).and_then(Tally::score).map(|s| s.mape),
                zero: tally.score()?,
                few: LEVELS.into_iter().zip(few.iter().map(over_seeds)).filter_map(|(n, s)| Some((n, s?))).collect(),
            })
        })
        .collect())
}

/// The other chips' own models, nearest first: by peak, bandwidth and multiprocessors of a board that has rows.
fn neighbours(rows: &[Row], chip: &str, world: &World<'_>) -> Result<Vec<Vec<LayerModel>>> {
    let mut sizes: BTreeMap<&str, [f64; 3]> = BTreeMap::new();
    for row in rows {
        if !sizes.contains_key(row.chip.as_str()) {
            let gpu = catalog::gpu(&row.board)?;
            let peak = gpu.peak(Precision::Fp32).map_or(f64::NAN, |p| p.get());
            sizes.insert(&row.chip, [peak.ln(), gpu.bandwidth.value.get().ln(), (gpu.sms.value as f64).ln()]);
        }
    }
    let own = sizes.get(chip).copied().unwrap_or_default();
    let distance = |other: &[f64; 3]| other.iter().zip(own).map(|(a, b)| (a - b).powi(2)).sum::<f64>();
    let mut others: Vec<(f64, &str)> =
        sizes.iter().filter(|(name, _)| **name != chip).map(|(name, size)| (distance(size), *name)).collect();
    others.sort_by(|a, b| a.0.total_cmp(&b.0));
    Ok(others.into_iter().map(|(_, name)| world.alone(name)).collect())
}

/// A row's time by the nearest chip that has a model of its kind, in seconds.
fn scaled(neighbours: &[Vec<LayerModel>], row: &Row) -> Option<f64> {
    let keys = [Some(row.model), row.model.general()];
    let of = |models: &'_ Vec<LayerModel>| {
        let model = |key| models.iter().find(|m| m.is_for(key, row.phase, row.precision, None)).cloned();
        keys.into_iter().flatten().find_map(model)
    };
    let model = neighbours.iter().find_map(of)?;
    Some(row.predicted(&model).get())
}

/// Ways of fitting that were tried, and what each gives: mean over chips of the MAPE without own rows, forward, fp32.
pub fn trials(rows: &[Row]) -> Vec<Trial> {
    let ours = Settings::default();
    let variants = [
        ("as shipped", ours),
        ("one intercept for all chips", Settings { within: false, ..ours }),
        ("all candidates of a chip's own fit", Settings { richness: Richness::Full, ..ours }),
        ("the same with one intercept", Settings { richness: Richness::Full, within: false, ..ours }),
        ("no terms", Settings { richness: Richness::Constant, ..ours }),
        ("roofline and floor added, not smoothed: p = 1", Settings { exponent: 1, ..ours }),
        ("p = 4", Settings { exponent: 4, ..ours }),
    ];
    let trial = |(fit, settings)| {
        let world = World::new(rows, settings);
        let errors: Vec<BTreeMap<&str, f64>> = world
            .chips()
            .into_par_iter()
            .map(|chip| {
                let models = Calibration { models: world.without(chip).into(), ..world.constants(&[chip].into()) };
                let mut tallies = Tallies::new();
                for (target, rows) in world.judged(chip).iter().filter(|(t, _)| t.1 == Family::Gemm) {
                    for (row, predicted) in rows.iter().zip(predict(None, &models, *target, rows)) {
                        if let Some(predicted) = predicted {
                            tallies.entry(group(row)).or_default().add(row, predicted);
                        }
                    }
                }
                let full = tallies.iter().filter(|(g, _)| g.1 == Phase::Forward && g.2 == Precision::Fp32);
                full.filter_map(|(g, tally)| Some((g.0, tally.score()?.mape))).collect()
            })
            .collect();
        let mean = |values: Vec<f64>| values.iter().sum::<f64>() / values.len() as f64;
        let of = |kind: &str| errors.iter().filter_map(|e| e.get(kind).copied()).collect::<Vec<_>>();
        let kinds = ["conv2d", "linear", "matmul"].map(of);
        Trial { fit, mean: mean(kinds.concat()), kinds: kinds.map(mean) }
    };
    variants.into_iter().map(trial).collect()
}
