//! Errors of whole networks' runs with their intervals: a row per run, a column per quantity, bars from the measured
//! value to the predicted one.

use super::cloud::cut;
use super::{
    Area, FAINT, Figure, FigureError, GRID, INK, SMALL, Sample, Scale, colour, drawing, frame, frame_height, label,
    legend, mark, ticks, write,
};
use plotters::prelude::*;
use plotters::style::text_anchor::HPos;

/// Predicted over measured, in percent of the measured value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Error {
    /// Of the 5 % quantile.
    pub low: f64,
    /// Of the prediction.
    pub value: f64,
    /// Of the 95 % quantile.
    pub high: f64,
}

impl Error {
    fn holds(&self) -> bool {
        self.low <= 0.0 && self.high >= 0.0
    }
}

/// A run.
#[derive(Clone, Debug)]
pub struct Row {
    /// Rows of one group stand together under its name (a network).
    pub group: String,
    /// What tells it from others of the group.
    pub name: String,
    /// By column; `None` where nothing was measured.
    pub errors: Vec<Option<Error>>,
}

/// The figure.
#[derive(Clone, Debug)]
pub struct Errors {
    /// What it shows.
    pub title: String,
    /// Names of the columns.
    pub columns: Vec<String>,
    /// The rows, those of a group together.
    pub rows: Vec<Row>,
    /// The command that made it.
    pub notes: Vec<String>,
}

const ROW: i32 = 17;
const NAMES: i32 = 290;
const COLUMN: i32 = 240;
/// What is further off is drawn at the edge, percent.
const MOST: f64 = 60.0;

impl Errors {
    fn groups(&self) -> usize {
        self.rows.iter().enumerate().filter(|(i, r)| *i == 0 || self.rows[i - 1].group != r.group).count()
    }

    fn width(&self) -> u32 {
        (16 + NAMES + COLUMN * self.columns.len() as i32) as u32
    }

    fn height(&self) -> i32 {
        ROW * (self.rows.len() + self.groups()) as i32
    }

    fn all_notes(&self) -> Vec<String> {
        let runs = self.rows.len();
        let mut list = vec![format!(
            "{runs} runs; bars: predicted over measured (0), thin lines: 90 % interval; beyond {MOST} % at the edge"
        )];
        list.extend(self.notes.iter().cloned());
        list
    }
}

impl Figure for Errors {
    fn title(&self) -> &str {
        &self.title
    }

    fn size(&self) -> (u32, u32) {
        (self.width(), frame_height(&self.all_notes(), self.width()) + 30 + 50 + self.height() as u32)
    }

    fn draw<B: DrawingBackend>(&self, area: &Area<B>) -> Result<(), FigureError> {
        if self.rows.is_empty() {
            return Err(FigureError::Nothing("no runs to draw".into()));
        }
        let inner = frame(area, &self.title, &self.all_notes())?;
        let (names, sheet) = inner.split_vertically(30);
        legend(
            &names,
            &[(1, Sample::Mark, "the interval holds the measured value"), (0, Sample::Mark, "it does not")],
        )?;
        let (top, bottom) = (22, 22 + self.height());
        let scale = |c: usize| {
            let from = NAMES + COLUMN * c as i32 + 12;
            Scale::new(-MOST, MOST, false, from, from + COLUMN - 24)
        };
        for (c, name) in self.columns.iter().enumerate() {
            let x = scale(c);
            for value in ticks(-MOST, MOST, 6) {
                let thin = if value == 0.0 { FAINT } else { GRID }.stroke_width(1);
                sheet
                    .draw(&PathElement::new(vec![(x.at(value), top), (x.at(value), bottom)], thin))
                    .map_err(drawing)?;
                write(&sheet, &label(value), (x.at(value), bottom + 12), SMALL, &INK, HPos::Center)?;
            }
            write(&sheet, name, (x.at(0.0), 8), SMALL + 1, &INK, HPos::Center)?;
        }
        let mut y = top;
        for (i, row) in self.rows.iter().enumerate() {
            if i == 0 || self.rows[i - 1].group != row.group {
                let rule = vec![(0, y), (NAMES + COLUMN * self.columns.len() as i32, y)];
                sheet.draw(&PathElement::new(rule, GRID.stroke_width(1))).map_err(drawing)?;
                write(&sheet, &row.group, (4, y + ROW / 2), SMALL + 1, &INK, HPos::Left)?;
                y += ROW;
            }
            write(&sheet, &cut(&row.name, NAMES - 26), (18, y + ROW / 2), SMALL, &INK, HPos::Left)?;
            for (c, error) in row.errors.iter().enumerate() {
                let Some(error) = error else { continue };
                let (x, at) = (scale(c), y + ROW / 2);
                let index = usize::from(error.holds());
                let (from, to) = (x.at(0.0).min(x.at(error.value)), x.at(0.0).max(x.at(error.value)));
                let bar = Rectangle::new([(from, at - 4), (to.max(from + 1), at + 4)], colour(index).mix(0.5).filled());
                sheet.draw(&bar).map_err(drawing)?;
                let whisker = vec![(x.at(error.low), at), (x.at(error.high), at)];
                sheet.draw(&PathElement::new(whisker, colour(index).stroke_width(1))).map_err(drawing)?;
                mark(&sheet, (x.at(error.value), at), index, 3)?;
            }
            y += ROW;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::svg;
    use super::*;

    #[test]
    fn runs_stand_under_their_network_and_those_outside_are_told() {
        let row = |group: &str, name: &str, low: f64| Row {
            group: group.into(),
            name: name.into(),
            errors: vec![Some(Error { low, value: 10.0, high: 20.0 }), None],
        };
        let figure = Errors {
            title: "Networks".into(),
            columns: vec!["time, %".into(), "power, %".into()],
            rows: vec![row("vgg16", "fp32 batch 1", -5.0), row("vgg16", "fp32 batch 16", 4.0), row("vit", "x", -1.0)],
            notes: vec!["calibrate validate".into()],
        };
        let text = svg(&figure).expect("drawn");
        assert_eq!(text.matches("vgg16").count(), 1, "a group is named once");
        // One run misses: a circle; and one in the legend.
        assert_eq!(text.matches("<circle").count(), 2);
        for expected in ["3 runs", "time, %", "fp32 batch 16", "90 % interval"] {
            assert!(text.contains(expected), "{expected}");
        }
        assert!(svg(&Errors { rows: vec![], ..figure }).is_err());
    }
}
