//! How often errors of which size are: a panel of bars per kind.

use super::{Area, Axes, FAINT, Figure, FigureError, colour, drawing, frame, frame_height};
use plotters::prelude::*;

/// A panel.
#[derive(Clone, Debug)]
pub struct Panel {
    /// What it is of, with its median error.
    pub title: String,
    /// Values in each bin.
    pub counts: Vec<usize>,
}

/// A sheet of panels that share their bins.
#[derive(Clone, Debug)]
pub struct Histograms {
    /// What it shows.
    pub title: String,
    /// Name of the axis, with its unit.
    pub x: String,
    /// Ends of the bins, one more than bins.
    pub edges: Vec<f64>,
    /// The panels.
    pub panels: Vec<Panel>,
    /// The command that made it.
    pub notes: Vec<String>,
}

const PANEL: (u32, u32) = (320, 220);
const COLUMNS: usize = 3;

impl Histograms {
    fn columns(&self) -> usize {
        self.panels.len().clamp(2, COLUMNS)
    }

    fn all_notes(&self) -> Vec<String> {
        let count: usize = self.panels.iter().flat_map(|p| &p.counts).sum();
        let mut list =
            vec![format!("{count} errors; the outermost bars hold what lies beyond; dark bars: within 10 %")];
        list.extend(self.notes.iter().cloned());
        list
    }
}

impl Figure for Histograms {
    fn title(&self) -> &str {
        &self.title
    }

    fn size(&self) -> (u32, u32) {
        let width = 16 + PANEL.0 * self.columns() as u32;
        let rows = self.panels.len().div_ceil(self.columns()) as u32;
        (width, frame_height(&self.all_notes(), width) + PANEL.1 * rows)
    }

    fn draw<B: DrawingBackend>(&self, area: &Area<B>) -> Result<(), FigureError> {
        let (Some(&low), Some(&high), false) = (self.edges.first(), self.edges.last(), self.panels.is_empty()) else {
            return Err(FigureError::Nothing("no errors to draw".into()));
        };
        let sheet = frame(area, &self.title, &self.all_notes())?;
        let columns = self.columns();
        let rows = self.panels.len().div_ceil(columns);
        for (panel, cell) in self.panels.iter().zip(sheet.split_evenly((rows, columns))) {
            let total = panel.counts.iter().sum::<usize>().max(1) as f64;
            let shares: Vec<f64> = panel.counts.iter().map(|c| 100.0 * *c as f64 / total).collect();
            let most = shares.iter().fold(1.0, |a: f64, b| a.max(*b)) * 1.08;
            let axes = Axes { title: &panel.title, x: (&self.x, low, high, false), y: ("share, %", 0.0, most, false) };
            let (x, y) = axes.draw(&cell)?;
            for (share, ends) in shares.iter().zip(self.edges.windows(2)).filter(|(share, _)| **share > 0.0) {
                let near = ends[0] >= -10.0 - 1e-9 && ends[1] <= 10.0 + 1e-9;
                let corners = [(x.at(ends[0]) + 1, y.at(*share)), (x.at(ends[1]), y.at(0.0))];
                let fill = colour(1).mix(if near { 1.0 } else { 0.5 }).filled();
                cell.draw(&Rectangle::new(corners, fill)).map_err(drawing)?;
            }
            let zero = vec![(x.at(0.0), y.at(0.0)), (x.at(0.0), y.at(most))];
            cell.draw(&PathElement::new(zero, FAINT.stroke_width(1))).map_err(drawing)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::svg;
    use super::*;

    #[test]
    fn a_bar_stands_for_every_bin_that_is_not_empty() {
        let figure = Histograms {
            title: "Errors".into(),
            x: "error, %".into(),
            edges: vec![-20.0, -10.0, 0.0, 10.0, 20.0],
            panels: vec![Panel { title: "linear".into(), counts: vec![1, 5, 4, 0] }],
            notes: vec!["calibrate validate".into()],
        };
        let text = svg(&figure).expect("drawn");
        // Paper, then three bars, two of them within 10 %.
        assert_eq!(text.matches("<rect").count(), 4);
        assert_eq!(text.matches("opacity=\"0.5\"").count(), 1);
        for expected in ["linear", "error, %", "share, %", "10 errors"] {
            assert!(text.contains(expected), "{expected}");
        }
        assert!(svg(&Histograms { panels: vec![], ..figure }).is_err());
    }
}
