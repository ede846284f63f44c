//! The accuracy table of `calibrate validate`.

use crate::table::Table;
use serde::Serialize;

/// Mean and standard deviation over seeds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// Mean.
    pub mean: f64,
    /// Standard deviation; `None` with one seed.
    pub sd: Option<f64>,
}

impl Spread {
    /// Of values over seeds.
    pub fn of(values: impl Iterator<Item = f64>) -> Self {
        let values: Vec<f64> = values.collect();
        let n = values.len() as f64;
        let mean = values.iter().sum::<f64>() / n;
        let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (n - 1.0);
        Self { mean, sd: (values.len() > 1).then(|| variance.sqrt()) }
    }

    fn text(&self) -> String {
        match self.sd {
            Some(sd) => format!("{:.1} ± {sd:.1}", self.mean),
            None => format!("{:.1}", self.mean),
        }
    }
}

/// Held-out accuracy of one group of rows, in percent.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Line {
    /// Chip.
    pub chip: String,
    /// Layer kind.
    pub kind: String,
    /// Phase.
    pub phase: String,
    /// Precision.
    pub precision: String,
    /// Which of the group's rows.
    pub subset: String,
    /// How many.
    pub rows: usize,
    /// Mean absolute percentage error.
    pub mape: Spread,
    /// Root mean square percentage error.
    pub rmspe: Spread,
    /// Median absolute percentage error.
    pub median: f64,
    /// Mean signed percentage error.
    pub bias: f64,
    /// Time-weighted error.
    pub weighted: f64,
    /// Share within 10 %.
    pub within_10: f64,
    /// Share of rows within their 90 % interval, made of other folds' residuals.
    pub held: f64,
    /// Wilson's 95 % interval of that share, a shape counting once.
    pub held_low: f64,
    /// Its upper end.
    pub held_high: f64,
    /// NeuralPower's polynomial on the same folds, fitted to relative errors and with the number of groups.
    pub neuralpower_mape: f64,
    /// Likewise.
    pub neuralpower_rmspe: f64,
    /// The same as the paper fits it: to errors in milliseconds, without groups.
    pub neuralpower_paper_mape: f64,
    /// max(operations / peak, bytes / bandwidth).
    pub roofline_mape: f64,
}

/// The lines as a table.
pub fn table(lines: &[Line]) -> Table {
    let header = [
        "chip",
        "kind",
        "phase",
        "precision",
        "rows of",
        "rows",
        "MAPE %",
        "RMSPE %",
        "median",
        "bias",
        "weighted",
        "within 10 %",
        "held %",
        "(95 %)",
        "NeuralPower MAPE",
        "RMSPE",
        "as in its paper",
        "roofline MAPE",
    ];
    let mut table = Table::new(&header, 5);
    for l in lines {
        let one = |v: f64| if v.abs() < 1000.0 { format!("{v:.1}") } else { format!("{v:.1e}") };
        table.row(vec![
            l.chip.clone(),
            l.kind.clone(),
            l.phase.clone(),
            l.precision.clone(),
            l.subset.clone(),
            l.rows.to_string(),
            l.mape.text(),
            l.rmspe.text(),
            one(l.median),
            one(l.bias),
            one(l.weighted),
            one(l.within_10),
            one(l.held),
            format!("{:.0} to {:.0}", l.held_low, l.held_high),
            one(l.neuralpower_mape),
            one(l.neuralpower_rmspe),
            one(l.neuralpower_paper_mape),
            one(l.roofline_mape),
        ]);
    }
    table
}

/// The lines as a Markdown page that says how it was made.
pub fn page(lines: &[Line], seeds: u64, evaluation: bool) -> String {
    let rows = if evaluation {
        "the imported rows without the shapes of networks that are held out (`data/splits.toml`)"
    } else {
        "all imported rows"
    };
    let spread = if seeds > 1 {
        format!(
            "MAPE and RMSPE are mean ± standard deviation over {seeds} seeds of the folds, the other columns are of the first."
        )
    } else {
        "One seed of the folds.".to_string()
    };
    format!(
        "# Held-out layer times\n\n\
         Grouped 5-fold cross-validation over {rows}: a fold holds whole shapes (kind and shape without batch), and a row is \
         predicted by the artifact that a fit without its fold would ship. {spread} In percent of the measured time; bias is \
         positive where predictions are too long. *held*: share of the rows within their 90 % interval, which other folds' residuals \
         make, with Wilson's 95 % interval of that share (a shape counts once). NeuralPower's polynomial sees the same folds, and is fitted to relative errors with the number of groups among its \
         variables; *as in its paper*: to errors in milliseconds, without groups. The roofline is \
         max(operations / peak, bytes / bandwidth). Boards of a chip are fitted together. Rows flagged on import (mostly \
         dispatch-bound) are neither fitted nor judged.\n\n{}",
        table(lines).to_markdown()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spread_of_seeds() {
        assert_eq!(Spread::of([2.0].into_iter()), Spread { mean: 2.0, sd: None });
        let spread = Spread::of([1.0, 3.0].into_iter());
        assert_eq!(spread.text(), "2.0 ± 1.4");
    }
}
