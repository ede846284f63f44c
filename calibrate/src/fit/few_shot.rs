//! A chip's corrections to the models of all chips, from few of its rows.
//!
//! ln(t / t_ref) of a kernel is what the models of all chips say plus a sum of effects: of the chip, of what the
//! kernel shares with others (convolutions, linear layers, products, memory-bound kinds), of phase, precision and
//! class, and slopes in physical variables. Each effect is drawn from a normal distribution about zero, so that one
//! without rows is zero and one with few is shrunk (a ridge with a scale per column, i.e. the posterior mean of a
//! hierarchical linear model; Gelman and Hill, "Data Analysis Using Regression and Multilevel Models", chapter 12).
//! How far slopes scatter is taken from the other chips (`calibration::Transfer`).

use crate::rows::prepare::Row;
use anyhow::{Context, Result, bail};
use joulecast_model::base::precision::{Phase, Precision};
use joulecast_model::base::units::Seconds;
use joulecast_model::kernel::family::Family;
use joulecast_model::kernel::key::ModelKey;
use joulecast_model::law::calibration::{
    Arithmetic, Bucket, Calibration, Factor, LayerModel, Range, Share, Slope, Term, Transfer,
};
use joulecast_model::law::lookup::find;
use joulecast_model::law::time::WIDER;
use linfa_linalg::cholesky::InverseC;
use ndarray::{Array1, Array2, Axis};
use std::collections::{BTreeMap, BTreeSet};

/// Prior deviations of the effects of the chip, of a share, of its phases and precisions, and of a class in a phase and
/// precision. Chips lie 0.2 to 0.4 apart.
const CHIP: f64 = 0.3;
const OF_SHARE: f64 = 0.25;
/// Whether a chip has tensor cores, and how its libraries use them, matters more than all else.
const OF_REDUCED: f64 = 0.5;
const OF_SETTING: f64 = 0.15;
/// Deviation of a row from everything that is modelled.
const NOISE: f64 = 0.25;
/// Larger residuals count linearly.
const HUBER: f64 = 0.25;
/// Rounds of weighting residuals down.
const ROUNDS: usize = 4;
/// Ridge of a chip's slopes where it has many rows, per row and unit of the variable.
const SLOPE_RIDGE: f64 = 0.02;
/// Fewest rows of a chip in a share that say how its slopes lie.
const FEWEST_SLOPE_ROWS: usize = 100;

/// Variables whose slopes may differ between chips, alone or as products.
const GEMM_SLOPES: &[&[&str]] = &[
    &["floor"],
    &["balance"],
    &["best_split"],
    &["k"],
    &["m"],
    &["n"],
    &["g"],
    &["k8", "n8"],
    &["algobest"],
    &["few_128x128"],
    &["time_128x128"],
    &["c3x3"],
    &["strided"],
    &["batch"],
    &["area"],
    &["fftbest"],
    &["comp"],
];
const STREAM_SLOPES: &[&[&str]] = &[&["floor"], &["bytes"], &["few"], &["cached"], &["row"]];

/// What an effect is of.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Effect {
    Chip,
    Share(Share, Arithmetic),
    Phase(Share, Arithmetic, Phase),
    Precision(Share, Precision),
    Class(ModelKey, Phase, Precision),
    /// In the n-th slope of the transfer section: what forward products tell says little of backward ones.
    Slope(usize, Arithmetic, Phase),
}

/// A model that is asked for: model kind, family, phase, precision.
pub(crate) type Target = (ModelKey, Family, Phase, Precision);

pub(crate) fn target(row: &Row) -> Target {
    (row.model, row.family, row.phase, row.precision)
}

/// What rows share slopes by.
fn alike(row: &Row) -> (Share, Arithmetic, Phase) {
    (Share::of(row.model, row.family), Arithmetic::of(row.precision), row.phase)
}

/// The effects without slopes that a kernel has.
fn intercepts((key, family, phase, precision): &Target) -> [Effect; 5] {
    let (share, arithmetic) = (Share::of(*key, *family), Arithmetic::of(*precision));
    [
        Effect::Chip,
        Effect::Share(share, arithmetic),
        Effect::Phase(share, arithmetic, *phase),
        Effect::Precision(share, *precision),
        Effect::Class(*key, *phase, *precision),
    ]
}

/// How far effects scatter about zero before any row is seen.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Prior<'a> {
    /// Slopes that may differ, with their deviations.
    slopes: &'a [Slope],
    /// Of the other effects, relative to those of chips.
    scale: f64,
    /// Deviation of a row from everything that is modelled.
    noise: f64,
}

impl<'a> Prior<'a> {
    /// Of a chip among all chips.
    fn of_chip(slopes: &'a [Slope]) -> Self {
        Self { slopes, scale: 1.0, noise: NOISE }
    }

    /// Of a board among those of its chip, whose deviations are so many times those of chips.
    pub(crate) fn of_board(scale: f64) -> Prior<'static> {
        Prior { slopes: &[], scale, noise: NOISE }
    }

    fn deviation(&self, effect: &Effect) -> f64 {
        let of_chips = match effect {
            Effect::Chip => CHIP,
            Effect::Share(_, Arithmetic::Full) => OF_SHARE,
            Effect::Share(_, Arithmetic::Reduced) => OF_REDUCED,
            Effect::Phase(..) | Effect::Precision(..) | Effect::Class(..) => OF_SETTING,
            Effect::Slope(n, ..) => return self.slopes[*n].deviation,
        };
        of_chips * self.scale
    }
}

fn product(factors: &[Factor], values: &[f64]) -> f64 {
    factors.iter().map(|f| values[f.variable].powi(i32::from(f.power))).product()
}

/// Estimated effects.
#[derive(Clone, Debug, Default)]
pub(crate) struct Effects(BTreeMap<Effect, f64>);

impl Effects {
    /// From rows with their residuals in the logarithm.
    pub(crate) fn estimate(rows: &[(&Row, f64)], prior: &Prior<'_>) -> Result<Self> {
        let present = |row: &Row| {
            let share = Share::of(row.model, row.family);
            let sloping = prior.slopes.iter().enumerate().filter(move |(_, s)| s.share == share);
            let values = sloping.map(|(n, s)| {
                (Effect::Slope(n, Arithmetic::of(row.precision), row.phase), product(&s.factors, &row.variables.values))
            });
            intercepts(&target(row)).into_iter().map(|e| (e, 1.0)).chain(values).collect::<Vec<_>>()
        };
        let list: Vec<Vec<(Effect, f64)>> = rows.iter().map(|(row, _)| present(row)).collect();
        let effects: BTreeSet<&Effect> = list.iter().flatten().map(|(e, _)| e).collect();
        let effects: Vec<&Effect> = effects.into_iter().collect();
        let mut x = Array2::zeros((rows.len(), effects.len()));
        for (mut line, present) in x.rows_mut().into_iter().zip(&list) {
            for (effect, value) in present {
                if let Ok(at) = effects.binary_search(&effect) {
                    line[at] = value * prior.deviation(effect);
                }
            }
        }
        let y: Array1<f64> = rows.iter().map(|(_, residual)| *residual).collect();
        let mut weights: Array1<f64> = Array1::ones(rows.len());
        let mut solution = Array1::zeros(effects.len());
        for _ in 0..ROUNDS {
            let weighted = &x * &weights.view().insert_axis(Axis(1));
            let normal = weighted.t().dot(&x) + Array2::<f64>::eye(effects.len()) * prior.noise.powi(2);
            solution = normal.invc().context("effects of few rows")?.dot(&weighted.t().dot(&y));
            let left = &y - &x.dot(&solution);
            weights = left.mapv(|r| (HUBER / r.abs().max(1e-9)).min(1.0));
        }
        let scaled = effects.iter().zip(&solution).map(|(e, b)| ((*e).clone(), b * prior.deviation(e)));
        Ok(Self(scaled.collect()))
    }

    fn of(&self, effect: &Effect) -> f64 {
        self.0.get(effect).copied().unwrap_or(0.0)
    }

    pub(crate) fn intercept(&self, target: &Target) -> f64 {
        intercepts(target).iter().map(|e| self.of(e)).sum()
    }

    /// Slopes of a share in a phase that are not zero.
    fn slopes<'s>(
        &'s self,
        (share, arithmetic, phase): (Share, Arithmetic, Phase),
        slopes: &'s [Slope],
    ) -> impl Iterator<Item = (&'s Slope, f64)> {
        let of_share = slopes.iter().enumerate().filter(move |(_, s)| s.share == share);
        of_share
            .map(move |(n, s)| (s, self.of(&Effect::Slope(n, arithmetic, phase))))
            .filter(|(_, value)| *value != 0.0)
    }

    pub(crate) fn correction(&self, row: &Row, slopes: &[Slope]) -> f64 {
        let sloped = self.slopes(alike(row), slopes).map(|(s, b)| b * product(&s.factors, &row.variables.values));
        self.intercept(&target(row)) + sloped.sum::<f64>()
    }
}

/// ln(t / t_ref) of a row less what the models of all chips say; `None` where these say nothing that can be corrected.
fn residual(base: &Calibration, row: &Row) -> Option<f64> {
    let found = find(None, base, row.model, row.family, row.phase, row.precision)?;
    if found.stated.is_some() {
        return None;
    }
    let expected = found.expects(row.seen());
    Some((row.kernel_time() / expected.reference).ln() - expected.log)
}

/// The models of all chips (`base`) with a chip's corrections from its rows, which must have been prepared alike
/// (`rows::prepare_alike`): one for every kind, phase and precision that the base or the rows have.
///
/// # Errors
/// When the base says nothing of transfer, or of none of the rows' kinds.
pub fn correct(base: &Calibration, rows: &[&Row]) -> Result<Vec<LayerModel>> {
    let Some(transfer) = &base.transfer else {
        bail!("{} has no section [transfer]: it was not fitted to several chips", base.id);
    };
    let own: Vec<(&Row, f64)> = rows.iter().filter_map(|row| Some((*row, residual(base, row)?))).collect();
    if own.is_empty() {
        bail!("{}: no model for any of the rows' kinds", base.id);
    }
    let effects = Effects::estimate(&own, &Prior::of_chip(&transfer.slopes))?;
    // How a kind without a model compares with element-wise ones, few rows of others do not say.
    let shared = |key| matches!(key, ModelKey::Stream | ModelKey::Pointwise | ModelKey::Copies);
    let known = |m: &&LayerModel| !matches!(m.key, ModelKey::ByProduct(_)) && !shared(m.key);
    let of_base = base.models.iter().filter(known).map(|m| (m.key, m.family, m.phase, m.precision));
    let targets: BTreeSet<Target> = own.iter().map(|(row, _)| target(row)).chain(of_base).collect();
    let corrected = targets.iter().filter_map(|t| corrected(base, transfer, &effects, &own, t));
    Ok(corrected.collect())
}

/// A model of the base with the effects added; `None` where the base has none, or nothing changes.
fn corrected(
    base: &Calibration,
    transfer: &Transfer,
    effects: &Effects,
    rows: &[(&Row, f64)],
    target: &Target,
) -> Option<LayerModel> {
    let (key, family, phase, precision) = target;
    let found = find(None, base, *key, *family, *phase, *precision)?;
    if found.stated.is_some() {
        return None;
    }
    let mut model = found.model.clone();
    let share = Share::of(*key, *family);
    let intercept = effects.intercept(target) + found.correction;
    let setting = (share, Arithmetic::of(*precision), *phase);
    let alike: Vec<&Row> = rows.iter().map(|(row, _)| *row).filter(|row| alike(row) == setting).collect();
    let corrections = alike.iter().map(|row| effects.correction(row, &transfer.slopes)).chain([intercept]);
    let (least, most) = corrections.fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), c| (l.min(c), h.max(c)));
    model.intercept += intercept;
    for range in [&mut model.ratio_range, &mut model.ordinary_range] {
        *range = (range.0 + least, range.1 + most);
    }
    for (slope, coefficient) in effects.slopes(setting, &transfer.slopes) {
        model.terms.push(Term { factors: slope.factors.clone(), coefficient, mean: 0.0, scale: 1.0 });
        for factor in &slope.factors {
            // A slope is not drawn out beyond the rows that gave it.
            if model.clamp.iter().all(|r| r.variable != factor.variable) {
                let values = || alike.iter().map(|row| row.variables.values[factor.variable]);
                let (low, high) = (values().fold(f64::INFINITY, f64::min), values().fold(f64::NEG_INFINITY, f64::max));
                model.clamp.push(Range { variable: factor.variable, low, high });
            }
        }
    }
    (model.key, model.phase, model.precision) = (*key, *phase, *precision);
    model.rows = rows.iter().filter(|(row, _)| self::target(row) == *target).count();
    if let Some(seen) = transfer.residuals(share, Arithmetic::of(*precision), rows.len()) {
        // The residuals are of kinds that several chips have: what only an efficiency or a relative's model predicts is
        // no more certain for the corrections.
        let (mut low, mut high) = (seen.low.min(0.0), seen.high.max(0.0));
        if found.model.terms.is_empty() {
            low = model.residuals.iter().map(|b| b.low).fold(low, f64::min);
            high = model.residuals.iter().map(|b| b.high).fold(high, f64::max);
        }
        let widen = if found.calibrated { 0.0 } else { WIDER.ln() };
        let up_to = Seconds::new(f64::INFINITY);
        model.residuals = vec![Bucket { up_to, low: low - widen, high: high + widen, rows: seen.rows }];
    }
    Some(model)
}

/// How far chips' slopes lie from the common ones: rows with what is left of them under a fit without their chip.
pub fn slopes(held_out: &[(&Row, f64)]) -> Vec<Slope> {
    let mut by_chip: BTreeMap<(Share, &str), Vec<&(&Row, f64)>> = BTreeMap::new();
    for pair in held_out.iter().filter(|(row, _)| row.precision == Precision::Fp32) {
        by_chip.entry((Share::of(pair.0.model, pair.0.family), &pair.0.chip)).or_default().push(pair);
    }
    let mut list = Vec::new();
    for &share in Share::ALL {
        let names = if share == Share::Bandwidth { STREAM_SLOPES } else { GEMM_SLOPES };
        let factors: Vec<Vec<Factor>> = names.iter().filter_map(|names| factors(share.family(), names)).collect();
        let chips: Vec<Array1<f64>> = by_chip
            .iter()
            .filter(|((s, _), rows)| *s == share && rows.len() >= FEWEST_SLOPE_ROWS)
            .filter_map(|(_, rows)| slopes_of_chip(rows, &factors))
            .collect();
        if chips.is_empty() {
            continue;
        }
        for (n, factors) in factors.into_iter().enumerate() {
            let square = chips.iter().map(|b| b[n].powi(2)).sum::<f64>() / chips.len() as f64;
            list.push(Slope { share, factors, deviation: square.sqrt() });
        }
    }
    list
}

fn factors(family: Family, names: &[&str]) -> Option<Vec<Factor>> {
    let mut list: Vec<Factor> =
        names.iter().map(|name| Some(Factor { variable: family.position(name)?, power: 1 })).collect::<Option<_>>()?;
    list.sort_by_key(|f| f.variable);
    Some(list)
}

/// Robust ridge on what is left within each class and phase.
fn slopes_of_chip(rows: &[&(&Row, f64)], factors: &[Vec<Factor>]) -> Option<Array1<f64>> {
    let mut x =
        Array2::from_shape_fn((rows.len(), factors.len()), |(r, f)| product(&factors[f], &rows[r].0.variables.values));
    let mut y: Array1<f64> = rows.iter().map(|(_, residual)| *residual).collect();
    let mut groups: BTreeMap<(ModelKey, Phase), Vec<usize>> = BTreeMap::new();
    for (at, (row, _)) in rows.iter().enumerate() {
        groups.entry((row.model, row.phase)).or_default().push(at);
    }
    for members in groups.values() {
        let n = members.len() as f64;
        let mean = members.iter().map(|&i| y[i]).sum::<f64>() / n;
        members.iter().for_each(|&i| y[i] -= mean);
        for mut column in x.columns_mut() {
            let mean = members.iter().map(|&i| column[i]).sum::<f64>() / n;
            members.iter().for_each(|&i| column[i] -= mean);
        }
    }
    let mut weights: Array1<f64> = Array1::ones(rows.len());
    let mut slopes = Array1::zeros(factors.len());
    for _ in 0..ROUNDS {
        let weighted = &x * &weights.view().insert_axis(Axis(1));
        let ridge = Array2::<f64>::eye(factors.len()) * (SLOPE_RIDGE * rows.len() as f64);
        slopes = (weighted.t().dot(&x) + ridge).invc().ok()?.dot(&weighted.t().dot(&y));
        weights = (&y - &x.dot(&slopes)).mapv(|r| (HUBER / r.abs().max(1e-9)).min(1.0));
    }
    Some(slopes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::prepare::testing::row;

    #[test]
    fn an_effect_with_few_rows_is_shrunk_and_one_without_is_zero() -> Result<()> {
        let linear = row("A", 64, 0.0);
        let few: Vec<(&Row, f64)> = (0..2).map(|_| (&linear, 0.4)).collect();
        let many: Vec<(&Row, f64)> = (0..200).map(|_| (&linear, 0.4)).collect();
        let of = |rows: &[(&Row, f64)]| {
            Ok::<_, anyhow::Error>(Effects::estimate(rows, &Prior::of_chip(&[]))?.intercept(&target(&linear)))
        };
        assert!(of(&few)? > 0.2 && of(&few)? < of(&many)? && of(&many)? < 0.4);
        let effects = Effects::estimate(&many, &Prior::of_chip(&[]))?;
        let elsewhere = (ModelKey::Kind("relu"), Family::Stream, Phase::Forward, Precision::Fp32);
        let shared = effects.intercept(&elsewhere);
        assert!(shared > 0.05 && shared < of(&many)?, "what the chip's linear layers tell of its others: {shared}");
        assert_eq!(effects.of(&Effect::Share(Share::Bandwidth, Arithmetic::Full)), 0.0);
        Ok(())
    }

    #[test]
    fn slopes_scatter_as_chips_do() {
        let rows: Vec<Row> = (0..240).map(|i| row(["A", "B"][i % 2], 1 << (i % 12), 0.0)).collect();
        let m = factors(Family::Gemm, &["m"]).expect("a variable")[0].variable;
        let tilt = |row: &Row| if row.chip == "A" { 0.1 } else { -0.1 };
        let pairs: Vec<(&Row, f64)> = rows.iter().map(|r| (r, tilt(r) * r.variables.values[m])).collect();
        let found: f64 = slopes(&pairs).iter().map(|s| s.deviation).sum();
        assert!(found > 0.05, "{found}");
        let still: Vec<(&Row, f64)> = rows.iter().map(|r| (r, 0.3)).collect();
        assert!(slopes(&still).iter().all(|s| s.deviation < 1e-9));
    }
}
