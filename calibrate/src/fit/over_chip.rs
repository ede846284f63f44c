//! A board's calibration over the shipped one of its chip: the models of all its boards, corrected by the board's own rows
//! where cross-validation over its shapes finds that better (`board`), and its own law of power where that is better.

use crate::fit::board::Correction;
use crate::fit::passport::passport;
use crate::fit::polynomial::Options;
use crate::fit::power::{self, PowerRow};
use crate::rows::prepare::{Row, Under, prepare_under};
use anyhow::{Context, Result};
use joulecast_model::base::accuracy::Accuracy;
use joulecast_model::law::calibration::{Bucket, Calibration, LayerModel, Tier};
use joulecast_model::law::power::PowerModel;
use joulecast_model::rows::measurement::Measurement;
use std::collections::{BTreeMap, BTreeSet};

/// Fewer own rows than this do not make a model measured on the board.
const MEASURED: usize = 5;
/// Share of times that intervals are to hold.
const HELD: f64 = 0.9;

/// What own rows brought.
#[derive(Clone, Debug)]
pub struct Brought {
    /// The base.
    pub base: String,
    /// Own rows that its models predict.
    pub rows: usize,
    /// Mean absolute percentage error on shapes that were left out: of the base as it is, and corrected.
    pub time: (f64, f64),
    /// The same of power, and how many rows; `None` without enough sustained rows for a law of one's own.
    pub power: Option<(f64, f64, usize)>,
}

impl Brought {
    /// In a line.
    pub fn text(&self) -> String {
        let (before, after) = self.time;
        let what = if after < before { "corrected" } else { "left as they are: own rows make nothing better" };
        let power = match self.power {
            Some((before, after, rows)) => format!("; power of {rows} rows {before:.1} -> {after:.1} %"),
            None => "; the law of power is the base's: fewer than 60 sustained rows".to_string(),
        };
        format!("{}: {} own rows, off by {before:.1} -> {after:.1} %, {what}{power}\n", self.base, self.rows)
    }
}

/// The calibration of a chip for one of its boards, whose rows these are.
///
/// # Errors
/// When no model of the base is of any row's kind, or a fit fails.
pub fn over_chip(
    measurements: &[Measurement],
    base: &Calibration,
    all_chips: &Calibration,
    options: &Options,
) -> Result<(Calibration, Brought)> {
    let rows = prepare_under(measurements, base, all_chips)?;
    let residuals: Vec<(&Row, f64)> = rows.iter().map(|under| (&under.row, under.residual)).collect();
    let correction = Correction::estimate(&residuals).with_context(|| format!("over {}", base.id))?;
    let own: Vec<&Row> = rows.iter().map(|under| &under.row).collect();
    let boards: BTreeSet<String> = own.iter().map(|row| row.board.to_string()).collect();
    let widen = widening(&rows, &correction.left);
    let models = base.models.iter().map(|model| corrected(base, model, &rows, &boards, &correction, widen)).collect();
    let (power, brought) = law(measurements, &own, base, options)?;
    let brought = Brought { base: base.id.clone(), rows: own.len(), time: correction.error, power: brought };
    let first = own.first().context("no rows")?;
    let made = passport(&first.chip, base.tier.min(Tier::Measured), &own, models, false);
    let every = |a: &[String], b: &[String]| {
        a.iter().chain(b).cloned().collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>()
    };
    let calibration = Calibration {
        boards: every(&base.boards, &made.boards),
        sources: every(&base.sources, &made.sources),
        power,
        networks: base.networks.clone(),
        choices: base.choices.clone(),
        ..made
    };
    Ok((calibration, brought))
}

fn corrected(
    base: &Calibration,
    model: &LayerModel,
    rows: &[Under<'_>],
    boards: &BTreeSet<String>,
    correction: &Correction,
    widen: f64,
) -> LayerModel {
    let own = rows.iter().filter(|under| std::ptr::eq(under.model, model)).count();
    let added = correction.of_model(&(model.key, model.family, model.phase, model.precision));
    let shifted = |(low, high): (f64, f64)| (low + added.min(0.0), high + added.max(0.0));
    let mut fitted = if model.boards.is_empty() { base.boards.clone() } else { model.boards.clone() };
    if own >= MEASURED {
        fitted.extend(boards.iter().filter(|b| !fitted.contains(b)).cloned().collect::<Vec<_>>());
    }
    LayerModel {
        intercept: model.intercept + added,
        ratio_range: shifted(model.ratio_range),
        ordinary_range: shifted(model.ordinary_range),
        boards: fitted,
        imported: model.imported && own < MEASURED,
        residuals: model.residuals.iter().map(|b| Bucket { low: b.low * widen, high: b.high * widen, ..*b }).collect(),
        ..model.clone()
    }
}

/// How many times as wide the base's intervals must be to hold on the board; never narrower than they are.
fn widening(rows: &[Under<'_>], left: &[f64]) -> f64 {
    let mut needed: Vec<f64> = rows
        .iter()
        .zip(left)
        .filter_map(|(under, left)| {
            let bucket = under.model.bucket(under.row.kernel_time() * (-left).exp())?;
            let edge = if *left > 0.0 { bucket.high } else { -bucket.low };
            Some(left.abs() / edge.max(1e-6))
        })
        .collect();
    needed.sort_by(f64::total_cmp);
    let at = ((needed.len() as f64 * HELD).ceil() as usize).saturating_sub(1);
    needed.get(at).copied().unwrap_or(1.0).max(1.0)
}

type Judged = (f64, f64, usize);

/// The board's own law of power where it foresees the board's rows better than the base's does.
fn law(
    measurements: &[Measurement],
    own: &[&Row],
    base: &Calibration,
    options: &Options,
) -> Result<(Option<PowerModel>, Option<Judged>)> {
    let times: Vec<Row> = own.iter().map(|row| (*row).clone()).collect();
    let by_chip: BTreeMap<String, Vec<PowerRow>> = power::rows(measurements, &times)?;
    let Some(rows) = by_chip.into_values().next() else { return Ok((base.power.clone(), None)) };
    let Some((fitted, held_out)) = power::fit(&rows, options)? else { return Ok((base.power.clone(), None)) };
    let error = |foreseen: &[f64]| {
        let pairs = rows.iter().zip(foreseen).map(|(row, p)| (row.measured(), *p));
        Accuracy::of(pairs).map_or(f64::INFINITY, |accuracy| accuracy.mape)
    };
    let bandwidth = own.first().and_then(|row| row.memory).map(|memory| memory.bandwidth);
    let fitted = PowerModel { bandwidth, ..fitted };
    let after = error(&held_out);
    let Some(law) = &base.power else { return Ok((Some(fitted), None)) };
    let before = error(&rows.iter().map(|row| row.foreseen(law)).collect::<Vec<_>>());
    let better = after < before;
    Ok((Some(if better { fitted } else { law.clone() }), Some((before, after.min(before), rows.len()))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use joulecast_model::base::precision::{Phase, Precision};
    use joulecast_model::base::shape::Shape;
    use joulecast_model::catalog;
    use joulecast_model::kernel::key::ModelKey;
    use joulecast_model::law::lookup::find;
    use joulecast_model::net::case::LayerCase;
    use joulecast_model::net::layer::{Layer, Linear};
    use joulecast_model::rows::measurement::Regime;

    /// Linear layers on an H100 whose kernels take `slower` times what the shipped models of its chip say.
    fn measured(base: &Calibration, all: &Calibration, slower: impl Fn(u64) -> f64) -> Result<Vec<Measurement>> {
        let row = |batch: u64| -> Result<Measurement> {
            let layer = Layer::Linear(Linear { features: 512 + 64 * (batch % 7), bias: false });
            let case = LayerCase { inputs: vec![Shape::new(&[1024])?], layer };
            let bare =
                Measurement::imported("own", &batch.to_string(), "h100-sxm", case, Phase::Forward, 64 * batch, 1.0);
            let bare = Measurement { regime: Regime::Burst, method: "graph".into(), ..bare };
            let Under { row, residual, .. } =
                prepare_under(std::slice::from_ref(&bare), base, all)?.pop().context("a model")?;
            // A measured second is exp(residual) times what is predicted.
            let time_s = row.carry.to_board(row.carry.to_model(row.time) * (-residual).exp()).get() * slower(batch);
            Ok(Measurement { time_s, ..bare })
        };
        (1..=60).map(row).collect()
    }

    #[test]
    fn a_board_that_is_slower_than_its_chip_is_corrected_and_known_as_measured() -> Result<()> {
        let all = catalog::all_chips()?;
        let base = catalog::calibration("GH100")?.context("shipped")?;
        let rows = measured(&base, &all, |_| 1.25)?;
        let (made, brought) = over_chip(&rows, &base, &all, &Options::default())?;
        assert!(brought.rows == 60 && brought.time.0 > 15.0 && brought.time.1 < 3.0, "{}", brought.text());
        let models = |c: &Calibration, key| {
            let found = find(
                Some(c),
                &all,
                key,
                joulecast_model::kernel::family::Family::Gemm,
                Phase::Forward,
                Precision::Fp32,
            );
            found.map(|f| (f.model.intercept, c.knows(f.model, "h100-sxm")))
        };
        let key = ModelKey::Kind("linear");
        let (before, after) = (models(&base, key).context("before")?, models(&made, key).context("after")?);
        assert!((after.0 - before.0 - 1.25f64.ln()).abs() < 0.05 && after.1, "{before:?} {after:?}");
        assert_eq!(made.tier, Tier::Measured);
        let text = made.to_toml()?;
        assert!(Calibration::from_toml(&text)?.to_toml()? == text, "it can be written and read");
        assert!(!made.choices.is_empty() && made.choices == base.choices, "engines are foreseen as before");
        Ok(())
    }

    #[test]
    fn a_board_as_its_chip_is_left_as_it_is() -> Result<()> {
        let all = catalog::all_chips()?;
        let base = catalog::calibration("GH100")?.context("shipped")?;
        let rows = measured(&base, &all, |batch| if batch % 2 == 0 { 1.1 } else { 1.0 / 1.1 })?;
        let (made, brought) = over_chip(&rows, &base, &all, &Options::default())?;
        assert_eq!(brought.time.0, brought.time.1);
        assert!(brought.text().contains("left as they are"), "{}", brought.text());
        for (old, new) in base.models.iter().zip(made.models.iter()) {
            assert_eq!(old.intercept, new.intercept);
            assert!(new.residuals.iter().zip(&old.residuals).all(|(n, o)| n.high >= o.high && n.low <= o.low));
        }
        Ok(())
    }
    #[test]
    fn only_models_that_predict_own_rows_are_measured_on_the_board() -> Result<()> {
        let all = catalog::all_chips()?;
        let shipped = catalog::calibration("GH100")?.context("shipped")?;
        let models = shipped.models.iter().map(|m| LayerModel { boards: vec!["h200".into()], ..m.clone() }).collect();
        let base = Calibration { boards: vec!["h200".into()], models, ..shipped };
        let (made, _) = over_chip(&measured(&base, &all, |_| 1.1)?, &base, &all, &Options::default())?;
        let known: Vec<String> = made
            .models
            .iter()
            .filter(|model| made.knows(model, "h100-sxm"))
            .map(|model| format!("{} {} {}", model.key, model.phase, model.precision))
            .collect();
        assert_eq!(known, ["linear forward fp32"]);
        Ok(())
    }
}
