//! A board's corrections to the models of other boards of its chip, from few of its rows.
//!
//! Times are carried between boards by their traffic (`law::carry`). What is left is a sum of effects as of a chip among
//! all chips (`few_shot`), only smaller: how much smaller, and whether they help at all, cross-validation over the board's
//! own shapes says.

use crate::fit::few_shot::{Effects, Prior, Target};
use crate::fit::folds::grouped;
use crate::rows::prepare::Row;
use anyhow::{Context, Result};
use joulecast_model::base::accuracy::Accuracy;

/// Deviations of a board's effects over those of a chip's, to choose from. None: the models as they are.
const SCALES: [f64; 4] = [0.0, 0.05, 0.15, 0.4];
/// A correction must be better than none by more than this share of the error.
const BETTER: f64 = 0.01;
const FOLDS: usize = 5;

/// What a board adds to ln(t) of the models of its chip.
#[derive(Clone, Debug)]
pub struct Correction {
    effects: Effects,
    scale: f64,
    /// Mean absolute percentage error on shapes that were left out: without it and with it.
    pub error: (f64, f64),
    /// What is left of each row once it is predicted without its shape: logarithms, in the order of the rows.
    pub left: Vec<f64>,
}

impl Correction {
    /// From rows with ln(measured / predicted).
    ///
    /// # Errors
    /// When a least-squares fit fails.
    pub fn estimate(rows: &[(&Row, f64)]) -> Result<Self> {
        let keys: Vec<&str> = rows.iter().map(|(row, _)| row.key.as_str()).collect();
        let fold_of = grouped(&keys, FOLDS, 1);
        let mut tried = Vec::new();
        for scale in SCALES {
            let mut left: Vec<f64> = rows.iter().map(|(_, residual)| *residual).collect();
            for fold in (0..FOLDS).filter(|_| scale > 0.0) {
                let train: Vec<(&Row, f64)> =
                    (0..rows.len()).filter(|&i| fold_of[i] != fold).map(|i| rows[i]).collect();
                if train.is_empty() {
                    continue;
                }
                let effects = Effects::estimate(&train, &Prior::of_board(scale))?;
                for i in (0..rows.len()).filter(|&i| fold_of[i] == fold) {
                    left[i] -= effects.correction(rows[i].0, &[]);
                }
            }
            // Of predictions whose ln(measured / predicted) these are.
            let error = Accuracy::of(left.iter().map(|l| (1.0, (-l).exp()))).context("no rows")?.mape;
            tried.push((scale, error, left));
        }
        let plain = tried[0].1;
        let best = tried.into_iter().reduce(|a, b| if b.1 < a.1 && b.1 < plain * (1.0 - BETTER) { b } else { a });
        let (scale, error, left) = best.context("no scale to choose from")?;
        let effects = if scale > 0.0 { Effects::estimate(rows, &Prior::of_board(scale))? } else { Effects::default() };
        Ok(Self { effects, scale, error: (plain, error), left })
    }

    /// Whether the models are better as they are.
    pub fn is_none(&self) -> bool {
        self.scale == 0.0
    }

    /// What it adds to ln(t) of a row's kernel.
    pub fn of(&self, row: &Row) -> f64 {
        self.effects.correction(row, &[])
    }

    /// The same of all kernels of a model.
    pub fn of_model(&self, target: &Target) -> f64 {
        self.effects.intercept(target)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::prepare::testing::row;

    fn rows(log: impl Fn(u64) -> f64) -> Vec<(Row, f64)> {
        (1..=60).map(|batch| (row("T", batch, 0.0), log(batch))).collect()
    }

    fn correction(rows: &[(Row, f64)]) -> Correction {
        Correction::estimate(&rows.iter().map(|(row, log)| (row, *log)).collect::<Vec<_>>()).expect("rows")
    }

    #[test]
    fn what_a_board_does_to_all_of_a_kind_is_corrected() {
        let rows = rows(|batch| 0.2 + 0.01 * (batch % 5) as f64);
        let found = correction(&rows);
        assert!(!found.is_none() && (0.18..0.24).contains(&found.of(&rows[0].0)), "{}", found.of(&rows[0].0));
        assert!(found.error.1 < 0.2 * found.error.0, "{:?}", found.error);
    }

    #[test]
    fn chance_is_not_corrected() {
        let rows = rows(|batch| if batch % 2 == 0 { 0.2 } else { -0.2 });
        let found = correction(&rows);
        assert!(found.is_none() && found.of(&rows[0].0) == 0.0, "{found:?}");
        assert_eq!(found.error.0, found.error.1);
    }
}
