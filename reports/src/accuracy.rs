//! The accuracy of `calibrate validate`: of layers' times, and of their power.

use crate::export::{Export, ExportError, Format};
use crate::table::{Column, Row, Table};
use joulecast_model::base::accuracy::Accuracy;
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

/// A measure in percent; what is far beyond any use is not spelled out.
pub(crate) fn percent(value: f64) -> String {
    if value.abs() < 1000.0 { format!("{value:.1}") } else { format!("{value:.1e}") }
}

impl Row for Line {
    const COLUMNS: &'static [Column<Self>] = &[
        Column::text("chip", |l| l.chip.clone()),
        Column::text("kind", |l| l.kind.clone()),
        Column::text("phase", |l| l.phase.clone()),
        Column::text("precision", |l| l.precision.clone()),
        Column::text("rows of", |l| l.subset.clone()),
        Column::number("rows", |l| l.rows.to_string()),
        Column::number("MAPE %", |l| l.mape.text()),
        Column::number("RMSPE %", |l| l.rmspe.text()),
        Column::number("median", |l| percent(l.median)),
        Column::number("bias", |l| percent(l.bias)),
        Column::number("weighted", |l| percent(l.weighted)),
        Column::number("within 10 %", |l| percent(l.within_10)),
        Column::number("held %", |l| percent(l.held)),
        Column::number("(95 %)", |l| format!("{:.0} to {:.0}", l.held_low, l.held_high)),
        Column::number("NeuralPower MAPE", |l| percent(l.neuralpower_mape)),
        Column::number("RMSPE", |l| percent(l.neuralpower_rmspe)),
        Column::number("as in its paper", |l| percent(l.neuralpower_paper_mape)),
        Column::number("roofline MAPE", |l| percent(l.roofline_mape)),
    ];
}

/// Held-out accuracy of layers as it is shown; the page says how it was made.
#[derive(Clone, Copy, Debug)]
pub struct HeldOut<'a> {
    /// What is told of every group of rows.
    pub lines: &'a [Line],
    /// Seeds of the folds.
    pub seeds: u64,
    /// Whether shapes of networks that are held out were left out.
    pub evaluation: bool,
}

impl Export for HeldOut<'_> {
    const FORMS: &'static [(Format, &'static str)] = <[Line]>::FORMS;

    fn export(&self, format: Format) -> Result<String, ExportError> {
        match format {
            Format::Markdown => Ok(page(self.lines, self.seeds, self.evaluation)),
            _ => self.lines.export(format),
        }
    }
}

fn page(lines: &[Line], seeds: u64, evaluation: bool) -> String {
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
        Table::of(lines).to_markdown()
    )
}

/// Held-out power of layers of a kind and precision, foreseen without knowing the clock; in percent.
#[derive(Clone, Debug, PartialEq)]
pub struct Power {
    /// Chip.
    pub chip: String,
    /// Layer kind.
    pub kind: String,
    /// Precision.
    pub precision: String,
    /// Of these rows.
    pub accuracy: Accuracy,
}

impl Row for Power {
    const COLUMNS: &'static [Column<Self>] = &[
        Column::text("chip", |p| p.chip.clone()),
        Column::text("layer power", |p| p.kind.clone()),
        Column::text("precision", |p| p.precision.clone()),
        Column::number("rows", |p| p.accuracy.count.to_string()),
        Column::number("MAPE %", |p| format!("{:.1}", p.accuracy.mape)),
        Column::number("RMSPE %", |p| format!("{:.1}", p.accuracy.rmspe)),
        Column::number("median", |p| format!("{:.1}", p.accuracy.median)),
        Column::number("bias", |p| format!("{:.1}", p.accuracy.bias)),
    ];
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
