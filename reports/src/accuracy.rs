//! The accuracy of `calibrate validate`: of layers' times, and of their power.

use crate::export::{Export, ExportError, Format, json};
use crate::table::{Column, Row, Table};
use joulecast_model::base::accuracy::Accuracy;
use serde::Serialize;
use std::fmt::Write as _;

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

/// All kinds of layers of a board together.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Coverage {
    /// Chip.
    pub chip: String,
    /// Board, as in `data/gpus`.
    pub board: String,
    /// Whether its rows are our own or published.
    pub tier: &'static str,
    /// Rows.
    pub rows: usize,
    /// Shapes of them.
    pub shapes: usize,
    /// Mean absolute percentage error.
    pub mape: f64,
    /// Median absolute percentage error.
    pub median: f64,
    /// Share of rows within their 90 % interval.
    pub held: f64,
    /// Wilson's 95 % interval of that share, a shape counting once.
    pub held_low: f64,
    /// Its upper end.
    pub held_high: f64,
}

impl Row for Coverage {
    const COLUMNS: &'static [Column<Self>] = &[
        Column::text("chip", |c| c.chip.clone()),
        Column::text("board", |c| c.board.clone()),
        Column::text("rows are", |c| c.tier.to_string()),
        Column::number("rows", |c| c.rows.to_string()),
        Column::number("shapes", |c| c.shapes.to_string()),
        Column::number("MAPE %", |c| percent(c.mape)),
        Column::number("median", |c| percent(c.median)),
        Column::number("held %", |c| percent(c.held)),
        Column::number("(95 %)", |c| format!("{:.0} to {:.0}", c.held_low, c.held_high)),
    ];
}

/// Errors of a board's layers by how many rows its chip's fits know.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Curve {
    /// Board, as in `data/gpus`.
    pub board: String,
    /// Which layers, in words.
    pub layers: &'static str,
    /// An eighth, a quarter, half and all of the shapes: rows of the board among them, and their held-out MAPE.
    pub points: [(usize, Option<f64>); 4],
}

impl Curve {
    fn error(&self, point: usize) -> String {
        self.points[point].1.map_or("-".into(), percent)
    }
}

impl Row for Curve {
    const COLUMNS: &'static [Column<Self>] = &[
        Column::text("board", |c| c.board.clone()),
        Column::text("layers", |c| c.layers.to_string()),
        Column::number("1/8: rows", |c| c.points[0].0.to_string()),
        Column::number("MAPE %", |c| c.error(0)),
        Column::number("1/4: rows", |c| c.points[1].0.to_string()),
        Column::number("MAPE %", |c| c.error(1)),
        Column::number("1/2: rows", |c| c.points[2].0.to_string()),
        Column::number("MAPE %", |c| c.error(2)),
        Column::number("all: rows", |c| c.points[3].0.to_string()),
        Column::number("MAPE %", |c| c.error(3)),
    ];
}

/// Held-out accuracy of layers as it is shown; the page says how it was made.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct HeldOut<'a> {
    /// What is told of every group of rows.
    pub lines: &'a [Line],
    /// What is told of every board.
    pub coverage: &'a [Coverage],
    /// Errors by numbers of rows, where that was asked for.
    pub curves: &'a [Curve],
    /// What is told of layers' power.
    pub power: &'a [Power],
    /// Seeds of the folds.
    pub seeds: u64,
    /// Whether shapes of networks that are held out were left out.
    pub evaluation: bool,
}

impl Export for HeldOut<'_> {
    const FORMS: &'static [(Format, &'static str)] = <[Line]>::FORMS;

    fn export(&self, format: Format) -> Result<String, ExportError> {
        match format {
            Format::Markdown => Ok(page(self)),
            Format::Table => Ok(self.text()),
            Format::Json => json(self),
            _ => self.lines.export(format),
        }
    }
}

impl HeldOut<'_> {
    fn text(&self) -> String {
        let mut text = Table::of(self.lines).to_text();
        let mut beside = |title: &str, table: Table| {
            let _ = write!(text, "\n{title}\n{}", table.to_text());
        };
        beside("All kinds together, board by board", Table::of(self.coverage));
        if !self.curves.is_empty() {
            beside("Learning curves: held-out error by the share of the shapes that is there", Table::of(self.curves));
        }
        if !self.power.is_empty() {
            beside("Power, held out by shape", Table::of(self.power));
        }
        text
    }
}

fn page(held_out: &HeldOut<'_>) -> String {
    let HeldOut { lines, coverage, curves, power, seeds, evaluation } = *held_out;
    let rows = if evaluation {
        "the rows of the datasets without the shapes of networks that are held out (`data/splits.toml`)"
    } else {
        "all rows of the datasets"
    };
    let spread = if seeds > 1 {
        format!(
            "MAPE and RMSPE are mean ± standard deviation over {seeds} seeds of the folds, the other columns are of the first."
        )
    } else {
        "One seed of the folds.".to_string()
    };
    let mut page = format!(
        "# Held-out layer times\n\n\
         Grouped 5-fold cross-validation over {rows}: a fold holds whole shapes (kind and shape without batch), and a row is \
         predicted by the artifact that a fit without its fold would ship. {spread} In percent of the measured time; bias is \
         positive where predictions are too long. *held*: share of the rows within their 90 % interval, which other folds' residuals \
         make, with Wilson's 95 % interval of that share (a shape counts once). NeuralPower's polynomial sees the same folds, and is fitted to relative errors with the number of groups among its \
         variables; *as in its paper*: to errors in milliseconds, without groups. The roofline is \
         max(operations / peak, bytes / bandwidth). Boards of a chip are fitted together. Rows flagged on import (mostly \
         dispatch-bound) are neither fitted nor judged. *On the lattice*: convolutions over square maps of the sides, and with the \
         channels in and out of a group, that networks have; the lists were fixed before anything was measured on them.\n\n\
         ## All kinds together, board by board\n\n{}\n## Kind by kind\n\n{}",
        Table::of(coverage).to_markdown(),
        Table::of(lines).to_markdown()
    );
    if !curves.is_empty() {
        page += &format!(
            "\n## Learning curves\n\nErrors on shapes that the fit has not seen (the same folds), when an eighth, a quarter, half \
             and all of the shapes are there to be fitted to and judged by. Boards of a chip are fitted together.\n\n{}",
            Table::of(curves).to_markdown()
        );
    }
    if !power.is_empty() {
        page += &format!(
            "\n## Power\n\nHeld out by shape, foreseen without knowing the clock.\n\n{}",
            Table::of(power).to_markdown()
        );
    }
    page
}

/// Held-out power of layers of a kind and precision, foreseen without knowing the clock; in percent.
#[derive(Clone, Debug, PartialEq, Serialize)]
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
