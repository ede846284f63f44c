//! How many measured values their intervals hold: a row per group, the share with its own uncertainty, beside what was
//! promised.

use super::cloud::cut;
use super::{
    Area, FAINT, Figure, FigureError, GRID, INK, SMALL, Scale, colour, drawing, frame, frame_height, mark, ticks, write,
};
use plotters::prelude::*;
use plotters::style::text_anchor::HPos;

/// A group.
#[derive(Clone, Debug)]
pub struct Row {
    /// Its name.
    pub name: String,
    /// How many values.
    pub count: usize,
    /// Share that their intervals hold, percent.
    pub held: f64,
    /// 95 % interval of that share, percent.
    pub between: (f64, f64),
}

/// The figure.
#[derive(Clone, Debug)]
pub struct Coverage {
    /// What it shows.
    pub title: String,
    /// The rows.
    pub rows: Vec<Row>,
    /// The command that made it.
    pub notes: Vec<String>,
}

/// What intervals promise, percent.
const PROMISED: f64 = 90.0;
const ROW: i32 = 20;
const NAMES: i32 = 330;
const WIDTH: u32 = 800;

impl Coverage {
    fn lowest(&self) -> f64 {
        let low = self.rows.iter().fold(60.0, |low: f64, r| low.min(r.between.0));
        (low / 10.0).floor() * 10.0
    }

    fn all_notes(&self) -> Vec<String> {
        let count: usize = self.rows.iter().map(|r| r.count).sum();
        let mut list = vec![format!(
            "{count} values; marks: share held, bars: 95 % interval of that share (Wilson); line: {PROMISED} %"
        )];
        list.extend(self.notes.iter().cloned());
        list
    }
}

impl Figure for Coverage {
    fn title(&self) -> &str {
        &self.title
    }

    fn size(&self) -> (u32, u32) {
        (WIDTH, frame_height(&self.all_notes(), WIDTH) + 44 + (ROW as u32) * self.rows.len() as u32)
    }

    fn draw<B: DrawingBackend>(&self, area: &Area<B>) -> Result<(), FigureError> {
        if self.rows.is_empty() {
            return Err(FigureError::Nothing("no intervals to draw".into()));
        }
        let sheet = frame(area, &self.title, &self.all_notes())?;
        let x = Scale::new(self.lowest(), 100.0, false, NAMES + 70, WIDTH as i32 - 40);
        let bottom = 6 + ROW * self.rows.len() as i32;
        for value in ticks(self.lowest(), 100.0, 8) {
            let at = x.at(value);
            sheet.draw(&PathElement::new(vec![(at, 6), (at, bottom)], GRID.stroke_width(1))).map_err(drawing)?;
            write(&sheet, &format!("{value:.0} %"), (at, bottom + 12), SMALL, &INK, HPos::Center)?;
        }
        let promised = vec![(x.at(PROMISED), 6), (x.at(PROMISED), bottom)];
        sheet.draw(&PathElement::new(promised, INK.stroke_width(1))).map_err(drawing)?;
        for (i, row) in self.rows.iter().enumerate() {
            let y = 6 + ROW * i as i32 + ROW / 2;
            write(&sheet, &cut(&row.name, NAMES), (8, y), SMALL, &INK, HPos::Left)?;
            write(&sheet, &row.count.to_string(), (NAMES + 56, y), SMALL, &FAINT, HPos::Right)?;
            let index = usize::from(row.between.0 <= PROMISED && row.between.1 >= PROMISED);
            let bar = vec![(x.at(row.between.0), y), (x.at(row.between.1), y)];
            sheet.draw(&PathElement::new(bar, colour(index).stroke_width(2))).map_err(drawing)?;
            mark(&sheet, (x.at(row.held), y), index, 4)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::svg;
    use super::*;

    #[test]
    fn groups_whose_share_cannot_be_the_promised_one_have_another_mark() {
        let row = |name: &str, held: f64, between| Row { name: name.into(), count: 40, held, between };
        let figure = Coverage {
            title: "Intervals".into(),
            rows: vec![row("linear", 91.0, (80.0, 97.0)), row("conv2d", 50.0, (37.0, 63.0))],
            notes: vec!["calibrate validate".into()],
        };
        let text = svg(&figure).expect("drawn");
        assert_eq!(text.matches("<circle").count(), 1);
        for expected in ["linear", "conv2d", "80 values", "30 %", "100 %"] {
            assert!(text.contains(expected), "{expected}");
        }
        assert!(svg(&Coverage { rows: vec![], ..figure }).is_err());
    }
}
