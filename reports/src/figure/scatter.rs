//! Measured against predicted, both logarithmic: a panel per kind or quantity, with the line of equals and a 10 % band.

use super::cloud::cloud;
use super::{
    Area, Axes, FAINT, Figure, FigureError, GRID, Sample, drawing, frame, frame_height, legend, legend_height, mark,
    range,
};
use plotters::prelude::*;

/// A panel.
#[derive(Clone, Debug)]
pub struct Panel {
    /// What it is of, with its error.
    pub title: String,
    /// Unit of both axes.
    pub unit: String,
    /// (measured, predicted) by series.
    pub points: Vec<Vec<(f64, f64)>>,
}

/// A sheet of panels.
#[derive(Clone, Debug)]
pub struct Scatter {
    /// What it shows.
    pub title: String,
    /// Names of the series, drawn as marks; one series without a name is drawn as cells.
    pub series: Vec<String>,
    /// The panels.
    pub panels: Vec<Panel>,
    /// The command that made it.
    pub notes: Vec<String>,
}

const PANEL: (u32, u32) = (320, 300);
const COLUMNS: usize = 3;
const BAND: f64 = 1.1;

impl Scatter {
    fn dense(&self) -> bool {
        self.series.is_empty()
    }

    fn columns(&self) -> usize {
        self.panels.len().clamp(2, COLUMNS)
    }

    fn width(&self) -> u32 {
        16 + PANEL.0 * self.columns() as u32
    }

    fn entries(&self) -> Vec<(usize, Sample, &str)> {
        self.series.iter().enumerate().map(|(i, n)| (i, Sample::Mark, n.as_str())).collect()
    }

    fn all_notes(&self) -> Vec<String> {
        let count: usize = self.panels.iter().flat_map(|p| &p.points).map(Vec::len).sum();
        let shades = if self.dense() { "; a deeper cell holds more points" } else { "" };
        let mut list = vec![format!("{count} points; line: predicted = measured, band: within 10 %{shades}")];
        list.extend(self.notes.iter().cloned());
        list
    }
}

impl Figure for Scatter {
    fn title(&self) -> &str {
        &self.title
    }

    fn size(&self) -> (u32, u32) {
        let rows = self.panels.len().div_ceil(self.columns()) as u32;
        let width = self.width();
        (width, frame_height(&self.all_notes(), width) + legend_height(&self.entries(), width - 16) + PANEL.1 * rows)
    }

    fn draw<B: DrawingBackend>(&self, area: &Area<B>) -> Result<(), FigureError> {
        if self.panels.is_empty() {
            return Err(FigureError::Nothing("no points to draw".into()));
        }
        let inner = frame(area, &self.title, &self.all_notes())?;
        let (names, sheet) = inner.split_vertically(legend_height(&self.entries(), self.width() - 16));
        legend(&names, &self.entries())?;
        let columns = self.columns();
        let rows = self.panels.len().div_ceil(columns);
        for (panel, cell) in self.panels.iter().zip(sheet.split_evenly((rows, columns))) {
            self.panel(&cell, panel)?;
        }
        Ok(())
    }
}

impl Scatter {
    fn panel<B: DrawingBackend>(&self, cell: &Area<B>, panel: &Panel) -> Result<(), FigureError> {
        let values = panel.points.iter().flatten().flat_map(|(m, p)| [*m, *p]);
        let nothing = || FigureError::Nothing(format!("{}: no points above 0", panel.title));
        let (low, high) = range(values, true).ok_or_else(nothing)?;
        let (x_name, y_name) = (format!("measured, {}", panel.unit), format!("predicted, {}", panel.unit));
        let axes = Axes { title: &panel.title, x: (&x_name, low, high, true), y: (&y_name, low, high, true) };
        let (x, y) = axes.draw(cell)?;
        let band = [
            (x.at(low), y.at(low * BAND)),
            (x.at(high / BAND), y.at(high)),
            (x.at(high), y.at(high)),
            (x.at(high), y.at(high / BAND)),
            (x.at(low * BAND), y.at(low)),
            (x.at(low), y.at(low)),
        ];
        cell.draw(&Polygon::new(band.to_vec(), GRID.filled())).map_err(drawing)?;
        let equal = vec![(x.at(low), y.at(low)), (x.at(high), y.at(high))];
        cell.draw(&PathElement::new(equal, FAINT.stroke_width(1))).map_err(drawing)?;
        for (index, points) in panel.points.iter().enumerate() {
            let mut pixels = points.iter().filter(|(m, p)| *m > 0.0 && *p > 0.0).map(|(m, p)| (x.at(*m), y.at(*p)));
            if self.dense() {
                cloud(cell, pixels, 1)?;
            } else {
                pixels.try_for_each(|at| mark(cell, at, index, 3))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::svg;
    use super::*;

    fn sheet(series: Vec<String>, points: Vec<Vec<(f64, f64)>>) -> Scatter {
        let panel = Panel { title: "conv2d <b>".into(), unit: "us".into(), points };
        Scatter { title: "Layers".into(), series, panels: vec![panel], notes: vec!["calibrate validate".into()] }
    }

    #[test]
    fn a_panel_has_its_band_its_axes_and_its_points() {
        let text = svg(&sheet(vec!["vgg16".into()], vec![vec![(10.0, 11.0), (20.0, 19.0)]])).expect("drawn");
        for expected in ["conv2d &lt;b&gt;", "measured, us", "predicted, us", "vgg16", "2 points", "calibrate validate"]
        {
            assert!(text.contains(expected), "{expected}");
        }
        // Two points and one in the legend.
        assert_eq!(text.matches("<circle").count(), 3);
        assert_eq!(text.matches("<polygon").count(), 1, "one band");
    }

    #[test]
    fn a_dense_panel_does_not_grow_with_its_points() {
        let one = svg(&sheet(vec![], vec![vec![(10.0, 11.0), (30.0, 30.0)]])).expect("drawn").len();
        let mut many = vec![(10.0, 11.0); 5000];
        many.push((30.0, 30.0));
        let many = svg(&sheet(vec![], vec![many])).expect("drawn").len();
        assert!(many < one + 20, "{many} and {one}");
        assert!(svg(&sheet(vec![], vec![vec![]])).is_err(), "nothing is no figure");
    }
}
