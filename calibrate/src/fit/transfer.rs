//! A chip left out: its times from the other chips' rows alone, and with few of its own.
//!
//! [`World`] makes what would be shipped had some chips never been seen. The same simulation gives the residuals that
//! make a few-shot calibration's intervals, so that a chip in `calibrate validate --leave-one-chip-out` is judged with
//! intervals of which it knows nothing.

use crate::fit::efficiency::efficiencies;
use crate::fit::few_shot::{correct, slopes};
use crate::fit::passport::passport;
use crate::fit::task::{Task, tasks};
use crate::fit::universal::{Excluded, Settings, Universal};
use crate::rows::prepare::Row;
use anyhow::Result;
use joulecast_model::base::accuracy::conformal;
use joulecast_model::base::precision::{Phase, Precision};
use joulecast_model::kernel::family::Family;
use joulecast_model::kernel::key::ModelKey;
use joulecast_model::law::calibration::{Arithmetic, Calibration, FewShot, LayerModel, Share, Tier, Transfer};
use joulecast_model::law::lookup::find;
use joulecast_model::law::time::time;
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256Plus;
use rayon::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

/// Numbers of own rows that are tried.
pub const LEVELS: [usize; 3] = [20, 50, 100];
/// Draws of own rows, for the intervals.
const SEEDS: u64 = 3;
/// Rows of a source of a chip in a kind, phase and precision that are judged, at most.
const JUDGED_ROWS: usize = 500;
/// Residuals of a chip behind a quantile, at most: chips weigh about the same.
const QUANTILE_ROWS: usize = 1500;

/// What is predicted by one model.
type Target = (ModelKey, Family, Phase, Precision);

/// Rows of all chips, and what can be shipped without some of them.
pub struct World<'a> {
    rows: &'a [Row],
    universal: Universal<'a>,
    tasks: BTreeMap<Task, Vec<&'a Row>>,
}

/// A time as predicted, with the edges of its interval, in seconds.
#[derive(Clone, Copy, Debug)]
pub struct Predicted {
    /// Most likely, what the measurement adds included.
    pub time: f64,
    /// 5 % quantile.
    pub p05: f64,
    /// 95 % quantile.
    pub p95: f64,
}

impl<'a> World<'a> {
    /// Of rows that were prepared alike (`rows::prepare_alike`).
    pub fn new(rows: &'a [Row], settings: Settings) -> Self {
        Self { rows, universal: Universal::new(rows, settings), tasks: tasks(rows) }
    }

    /// Names of the chips.
    pub fn chips(&self) -> BTreeSet<&'a str> {
        self.rows.iter().map(|r| r.chip.as_str()).collect()
    }

    /// The models of all chips but one, whether better than an efficiency or not, and without residuals.
    pub fn without(&self, chip: &str) -> Vec<LayerModel> {
        self.universal.unjudged(&[chip].into())
    }

    /// The models that each chip's own rows would give by the same recipe.
    pub fn alone(&self, chip: &str) -> Vec<LayerModel> {
        let others: Excluded<'_> = self.chips().into_iter().filter(|c| *c != chip).collect();
        self.universal.unjudged(&others)
    }

    /// One efficiency per kind, phase and precision without the excluded chips.
    pub fn constants(&self, excluded: &Excluded<'_>) -> Calibration {
        let left = self.tasks.iter().filter(|(task, _)| !excluded.contains(task.chip.as_str()));
        let left = left.map(|(task, rows)| (task.clone(), rows.clone())).collect();
        let rows: Vec<&Row> = self.rows.iter().filter(|r| !excluded.contains(r.chip.as_str())).take(1).collect();
        passport("any", Tier::Roofline, &rows, efficiencies(&left, &[]), true)
    }

    /// What would be shipped for unseen chips without the excluded ones, but for what few rows would bring.
    fn base(&self, excluded: &Excluded<'_>) -> Calibration {
        let constants = self.constants(excluded);
        let transfer = Transfer { slopes: self.slopes(excluded), ..Transfer::default() };
        Calibration { transfer: Some(transfer), ..with_universal(constants, self.universal.models(excluded)) }
    }

    fn slopes(&self, excluded: &Excluded<'_>) -> Vec<joulecast_model::law::calibration::Slope> {
        let held_out = self.universal.all_held_out(excluded);
        let pairs: Vec<(&Row, f64)> = held_out.iter().map(|h| (h.row, h.residual)).collect();
        slopes(&pairs)
    }

    /// The models of all chips but the excluded ones, and what few rows of another would bring; `None` with fewer than
    /// three chips, of which one could be left out and two remain.
    ///
    /// # Errors
    /// When a correction cannot be estimated.
    pub fn shipped(&self, excluded: &Excluded<'_>) -> Result<Option<(Vec<LayerModel>, Transfer)>> {
        let chips: Vec<&str> = self.chips().into_iter().filter(|c| !excluded.contains(c)).collect();
        if chips.len() < 3 {
            return Ok(None);
        }
        let mut residuals: BTreeMap<(Share, Arithmetic, usize), Vec<f64>> = BTreeMap::new();
        for found in chips.par_iter().map(|chip| self.simulate(chip, excluded)).collect::<Result<Vec<_>>>()? {
            for (key, mut values) in found {
                let every = values.len().div_ceil(QUANTILE_ROWS).max(1);
                values.sort_by(f64::total_cmp);
                residuals.entry(key).or_default().extend(values.into_iter().skip(every / 2).step_by(every));
            }
        }
        let residuals = residuals
            .into_iter()
            .filter_map(|((share, arithmetic, rows), values)| {
                let (low, high) = conformal(&values, 0.9)?;
                Some(FewShot { share, arithmetic, rows, low, high })
            })
            .collect();
        Ok(Some((
            self.universal.models(excluded),
            Transfer { siblings: None, slopes: self.slopes(excluded), residuals },
        )))
    }

    /// Log residuals of a chip that is left out, by number of its rows that are known.
    fn simulate(&self, chip: &str, excluded: &Excluded<'_>) -> Result<BTreeMap<(Share, Arithmetic, usize), Vec<f64>>> {
        let mut without: Excluded<'_> = excluded.iter().copied().collect();
        without.insert(chip);
        let base = self.base(&without);
        let judged = self.judged(chip);
        let mut residuals: BTreeMap<_, Vec<f64>> = BTreeMap::new();
        for (level, seed) in LEVELS.into_iter().flat_map(|level| (0..SEEDS).map(move |seed| (level, seed))) {
            let (few, keys) = self.few(chip, &base, level, seed)?;
            for ((model, family, phase, precision), rows) in &judged {
                let key = (Share::of(*model, *family), Arithmetic::of(*precision), level);
                let unknown: Vec<&Row> = rows.iter().copied().filter(|r| !keys.contains(r.key.as_str())).collect();
                let predicted = predict(Some(&few), &base, (*model, *family, *phase, *precision), &unknown);
                let logs = unknown.iter().zip(predicted).filter_map(|(r, p)| Some((r.time.get() / p?.time).ln()));
                residuals.entry(key).or_default().extend(logs);
            }
        }
        Ok(residuals)
    }

    /// A few-shot calibration of a chip, and the shapes that it knows.
    ///
    /// # Errors
    /// When the correction cannot be estimated.
    pub fn few(
        &self,
        chip: &str,
        base: &Calibration,
        rows: usize,
        seed: u64,
    ) -> Result<(Calibration, BTreeSet<&'a str>)> {
        let own: Vec<&Row> = self.rows.iter().filter(|r| r.chip == chip).collect();
        let drawn = draw(&own, rows, seed);
        let models = correct(base, &drawn)?;
        Ok((passport(chip, Tier::Transferred, &drawn, models, true), drawn.iter().map(|r| r.key.as_str()).collect()))
    }

    /// Rows of a chip to judge by, by what predicts them.
    pub fn judged(&self, chip: &str) -> BTreeMap<Target, Vec<&'a Row>> {
        let mut groups: BTreeMap<(Target, &str), Vec<&Row>> = BTreeMap::new();
        for row in self.rows.iter().filter(|r| r.chip == chip) {
            let target = (row.model, row.family, row.phase, row.precision);
            groups.entry((target, &row.source)).or_default().push(row);
        }
        let mut judged: BTreeMap<Target, Vec<&Row>> = BTreeMap::new();
        for ((target, _), rows) in groups {
            let every = rows.len().div_ceil(JUDGED_ROWS).max(1);
            judged.entry(target).or_default().extend(rows.into_iter().step_by(every));
        }
        judged
    }
}

/// A calibration whose models give way to those of the same kind, phase and precision over all chips.
pub fn with_universal(constants: Calibration, universal: Vec<LayerModel>) -> Calibration {
    let mut models = universal;
    let replaced: BTreeSet<(ModelKey, Phase, Precision)> =
        models.iter().map(|m| (m.key, m.phase, m.precision)).collect();
    let kept = |m: &LayerModel| !replaced.contains(&(m.key, m.phase, m.precision));
    models.extend(constants.models.iter().filter(|m| kept(m)).cloned());
    models.sort_by_key(|m| (m.key, m.phase, m.precision));
    Calibration { models: models.into(), ..constants }
}

/// Rows as they would be predicted, by whatever model the predictor would take; `None` where it has none.
pub fn predict(
    calibration: Option<&Calibration>,
    base: &Calibration,
    (key, family, phase, precision): Target,
    rows: &[&Row],
) -> Vec<Option<Predicted>> {
    let found = find(calibration, base, key, family, phase, precision);
    let predict = |row: &&Row| {
        let timed = time(row.seen(), &found?, None);
        let time = (timed.value + row.overhead).get();
        // Models that nobody judged are compared by their errors alone.
        let (low, high) = timed.edges.unwrap_or((1.0, 1.0));
        Some(Predicted { time, p05: time * low, p95: time * high })
    };
    rows.iter().map(predict).collect()
}

/// So many rows, evenly over shares and precisions and, within each, over the roofline's times.
fn draw<'a>(rows: &[&'a Row], count: usize, seed: u64) -> Vec<&'a Row> {
    let mut rng = Xoshiro256Plus::seed_from_u64(seed);
    let mut strata: BTreeMap<(Share, Precision), Vec<&Row>> = BTreeMap::new();
    for row in rows {
        strata.entry((Share::of(row.model, row.family), row.precision)).or_default().push(row);
    }
    let (each, more) = (count / strata.len().max(1), count % strata.len().max(1));
    // Which strata get one more is by lot.
    let mut lots: Vec<usize> = (0..strata.len()).collect();
    for i in (1..lots.len()).rev() {
        lots.swap(i, rng.gen_range(0..=i));
    }
    let mut drawn = Vec::with_capacity(count);
    for (rows, lot) in strata.values_mut().zip(lots) {
        rows.sort_by(|a, b| a.roofline.bound().get().total_cmp(&b.roofline.bound().get()));
        let wanted = (each + usize::from(lot < more)).min(rows.len());
        for part in 0..wanted {
            let (from, to) = (part * rows.len() / wanted, (part + 1) * rows.len() / wanted);
            drawn.push(rows[rng.gen_range(from..to)]);
        }
    }
    drawn
}
