//! Errors over what might explain them: cells of points, with the median and the 5 and 95 % quantiles along the axis.

use super::cloud::cloud;
use super::{Area, Axes, FAINT, Figure, FigureError, Sample, drawing, frame, frame_height, legend, line, range};
use plotters::prelude::*;

/// Quantiles of the errors around a place of the axis.
#[derive(Clone, Copy, Debug)]
pub struct Trend {
    /// The place.
    pub x: f64,
    /// 5 % quantile, percent.
    pub p05: f64,
    /// Median, percent.
    pub median: f64,
    /// 95 % quantile, percent.
    pub p95: f64,
}

/// A panel.
#[derive(Clone, Debug)]
pub struct Panel {
    /// Name of its logarithmic axis, with the unit.
    pub x: String,
    /// (place, error in percent).
    pub points: Vec<(f64, f64)>,
    /// By rising place.
    pub trend: Vec<Trend>,
}

/// A sheet of panels.
#[derive(Clone, Debug)]
pub struct Residuals {
    /// What it shows.
    pub title: String,
    /// The panels.
    pub panels: Vec<Panel>,
    /// The command that made it.
    pub notes: Vec<String>,
}

/// Errors beyond are drawn at the edge, percent.
const MOST: f64 = 100.0;
const PANEL: (u32, u32) = (320, 300);

type Quantile = fn(&Trend) -> f64;
/// The lines with their colours and dashes.
const QUANTILES: [(usize, Quantile); 3] = [(0, |t| t.median), (3, |t| t.p05), (3, |t| t.p95)];

impl Residuals {
    fn width(&self) -> u32 {
        16 + PANEL.0 * self.panels.len().max(2) as u32
    }

    fn all_notes(&self) -> Vec<String> {
        let count = self.panels.first().map_or(0, |p| p.points.len());
        let mut list = vec![format!(
            "{count} errors; above 0: predicted too long; beyond {MOST} % at the edge; a deeper cell holds more points"
        )];
        list.extend(self.notes.iter().cloned());
        list
    }
}

impl Figure for Residuals {
    fn title(&self) -> &str {
        &self.title
    }

    fn size(&self) -> (u32, u32) {
        (self.width(), frame_height(&self.all_notes(), self.width()) + 30 + PANEL.1)
    }

    fn draw<B: DrawingBackend>(&self, area: &Area<B>) -> Result<(), FigureError> {
        let nothing = || FigureError::Nothing("no errors to draw".into());
        if self.panels.is_empty() {
            return Err(nothing());
        }
        let inner = frame(area, &self.title, &self.all_notes())?;
        let (names, sheet) = inner.split_vertically(30);
        legend(&names, &[(0, Sample::Line, "median"), (3, Sample::Line, "5 and 95 % quantiles")])?;
        for (panel, cell) in self.panels.iter().zip(sheet.split_evenly((1, self.panels.len()))) {
            let (left, right) = range(panel.points.iter().map(|p| p.0), true).ok_or_else(nothing)?;
            let axes =
                Axes { title: "", x: (&panel.x, left, right, true), y: ("error of the time, %", -MOST, MOST, false) };
            let (x, y) = axes.draw(&cell)?;
            cloud(&cell, panel.points.iter().filter(|p| p.0 > 0.0).map(|p| (x.at(p.0), y.at(p.1))), 1)?;
            let zero = vec![(x.at(left), y.at(0.0)), (x.at(right), y.at(0.0))];
            cell.draw(&PathElement::new(zero, FAINT.stroke_width(1))).map_err(drawing)?;
            for (index, of) in QUANTILES {
                let pixels: Vec<(i32, i32)> = panel.trend.iter().map(|t| (x.at(t.x), y.at(of(t)))).collect();
                line(&cell, &pixels, index, 2)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::svg;
    use super::*;

    #[test]
    fn every_panel_has_its_axis_and_its_trend() {
        let trend = |x: f64| Trend { x, p05: -20.0, median: 1.0, p95: 30.0 };
        let panel = |x: &str| Panel {
            x: x.into(),
            points: vec![(1.0, -5.0), (100.0, 250.0)],
            trend: vec![trend(1.0), trend(100.0)],
        };
        let figure = Residuals {
            title: "Errors".into(),
            panels: vec![panel("operations"), panel("op/B")],
            notes: vec!["calibrate validate".into()],
        };
        let text = svg(&figure).expect("drawn");
        for expected in ["operations", "op/B", "error of the time, %", "median", "2 errors"] {
            assert!(text.contains(expected), "{expected}");
        }
        // Paper and four cells.
        assert_eq!(text.matches("<rect").count(), 5);
        assert!(svg(&Residuals { panels: vec![], ..figure }).is_err());
    }
}
