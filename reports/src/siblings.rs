//! The tables of `calibrate validate --siblings`: boards by models of other boards of their chip.

use crate::export::{self, Export, ExportError, Format};
use crate::table::{Column, Row, Table};
use joulecast_model::law::calibration::Siblings;
use serde::Serialize;

/// A board that was left out: one model, phase and precision.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Board {
    /// Chip.
    pub chip: String,
    /// The board.
    pub board: String,
    /// The other boards.
    pub predicted_by: String,
    /// Key of the model.
    pub model: String,
    /// Phase.
    pub phase: String,
    /// Precision.
    pub precision: String,
    /// Rows of the board.
    pub rows: usize,
    /// Mean absolute percentage error.
    pub mape: f64,
    /// Mean signed percentage error.
    pub bias: f64,
    /// Mean absolute percentage error of the same fit on the other boards, in the same trials, of shapes that it had not
    /// seen; `None` where they ran others.
    pub there: Option<f64>,
    /// Mean absolute percentage error with the board's rows of the plan `quick`, on its other shapes; `None` without such.
    pub with_quick: Option<f64>,
    /// The same with those of `standard`.
    pub with_standard: Option<f64>,
    /// Percent of the times within the model's own 90 % interval.
    pub held: f64,
    /// The same of the interval that boards of other chips ask for; `None` where there are none.
    pub held_widened: Option<f64>,
}

impl Row for Board {
    const COLUMNS: &'static [Column<Self>] = &[
        Column::text("chip", |b| b.chip.clone()),
        Column::text("board", |b| b.board.clone()),
        Column::text("predicted by", |b| b.predicted_by.clone()),
        Column::text("model", |b| b.model.clone()),
        Column::text("phase", |b| b.phase.clone()),
        Column::text("precision", |b| b.precision.clone()),
        Column::number("rows", |b| b.rows.to_string()),
        Column::number("MAPE %", |b| format!("{:.1}", b.mape)),
        Column::number("bias", |b| format!("{:+.1}", b.bias)),
        Column::number("on the others", |b| percent(b.there)),
        Column::number("with quick", |b| percent(b.with_quick)),
        Column::number("with standard", |b| percent(b.with_standard)),
        Column::number("own interval holds %", |b| format!("{:.0}", b.held)),
        Column::number("widened holds %", |b| b.held_widened.map_or("-".into(), |held| format!("{held:.0}"))),
    ];
}

fn percent(value: Option<f64>) -> String {
    value.map_or("-".into(), |value| format!("{value:.1}"))
}

/// All boards that were left out.
#[derive(Clone, Copy, Debug)]
pub struct LeftOut<'a> {
    /// Each.
    pub boards: &'a [Board],
    /// Quantiles over all of them.
    pub all: Siblings,
}

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    boards: &'a [Board],
    /// Of measured over predicted, whose 90 % lie between.
    ratio_p05: f64,
    ratio_p95: f64,
    rows: usize,
}

impl Export for LeftOut<'_> {
    const FORMS: &'static [(Format, &'static str)] = <[Board]>::FORMS;

    fn export(&self, format: Format) -> Result<String, ExportError> {
        let Siblings { low, high, boards, rows } = self.all;
        let (low, high) = (low.exp(), high.exp());
        match format {
            Format::Json => export::json(&Document {
                schema: "siblings/1",
                boards: self.boards,
                ratio_p05: low,
                ratio_p95: high,
                rows,
            }),
            Format::Csv => self.boards.export(format),
            Format::Table | Format::Markdown | Format::Html => {
                let table = Table::of(self.boards).export(format)?;
                let (low, high) = (100.0 * (low - 1.0), 100.0 * (high - 1.0));
                Ok(format!(
                    "{table}\n90 % of {rows} rows of {boards} boards: {low:+.0} to {high:+.0} % of the prediction\n"
                ))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_has_the_boards_and_the_quantiles_over_them() -> Result<(), ExportError> {
        let board = Board {
            chip: "GV100".into(),
            board: "v100".into(),
            predicted_by: "v100-pcie".into(),
            model: "conv2d_3x3".into(),
            phase: "forward".into(),
            precision: "fp32".into(),
            rows: 20,
            mape: 12.5,
            bias: -3.0,
            there: Some(11.0),
            with_quick: None,
            with_standard: None,
            held: 80.0,
            held_widened: None,
        };
        let all = Siblings { low: 0.9f64.ln(), high: 1.2f64.ln(), boards: 2, rows: 40 };
        let left_out = LeftOut { boards: &[board], all };
        let text = left_out.export(Format::Table)?;
        assert!(
            text.contains("12.5  -3.0")
                && text.ends_with("\n90 % of 40 rows of 2 boards: -10 to +20 % of the prediction\n")
        );
        let document: serde_json::Value = serde_json::from_str(&left_out.export(Format::Json)?)?;
        assert_eq!(document["boards"][0]["held"], 80.0);
        assert!(document["boards"][0]["held_widened"].is_null());
        assert!(document["ratio_p95"].as_f64().is_some_and(|v| (v - 1.2).abs() < 1e-9), "{document}");
        Ok(())
    }
}
