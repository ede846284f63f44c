//! Where a step's time and energy go: two bars per kind of layer or layer, a panel per network.

use super::cloud::cut;
use super::{
    Area, Figure, FigureError, GRID, INK, SMALL, Sample, Scale, colour, drawing, frame, frame_height, legend, ticks,
    titled_height, write,
};
use plotters::prelude::*;
use plotters::style::text_anchor::HPos;

/// A part of a step.
#[derive(Clone, Debug)]
pub struct Part {
    /// Its name.
    pub name: String,
    /// Share of the time, percent.
    pub time: f64,
    /// Share of the energy, percent.
    pub energy: f64,
}

/// A network.
#[derive(Clone, Debug)]
pub struct Panel {
    /// Network, GPU, batch, precision.
    pub title: String,
    /// Its parts, from above.
    pub parts: Vec<Part>,
    /// What is said of those that have no bars; empty where all have.
    pub rest: String,
}

/// A sheet of panels.
#[derive(Clone, Debug)]
pub struct Breakdown {
    /// What it shows.
    pub title: String,
    /// The panels.
    pub panels: Vec<Panel>,
    /// The command that made it.
    pub notes: Vec<String>,
}

const ROW: i32 = 22;
const PANEL: i32 = 480;
const NAMES: i32 = 190;
const COLUMNS: usize = 2;

impl Breakdown {
    fn height(&self) -> u32 {
        let most = self.panels.iter().map(|p| p.parts.len()).max().unwrap_or(0);
        (28 + ROW * most as i32 + 60) as u32
    }

    /// Panels side by side.
    fn columns(&self, width: u32) -> usize {
        let room = (width / PANEL as u32).clamp(1, COLUMNS as u32) as usize;
        if width == self.width() { COLUMNS } else { room.min(self.panels.len()).max(1) }
    }

    fn width(&self) -> u32 {
        (16 + PANEL * COLUMNS as i32) as u32
    }
}

impl Figure for Breakdown {
    fn title(&self) -> &str {
        &self.title
    }

    fn size(&self) -> (u32, u32) {
        let rows = self.panels.len().div_ceil(COLUMNS) as u32;
        (self.width(), frame_height(&self.notes, self.width()) + 30 + self.height() * rows)
    }

    fn height_at(&self, width: u32) -> Option<u32> {
        let rows = self.panels.len().div_ceil(self.columns(width)) as u32;
        Some(titled_height(&self.title, &self.notes, width) + 30 + self.height() * rows)
    }

    fn draw<B: DrawingBackend>(&self, area: &Area<B>) -> Result<(), FigureError> {
        if self.panels.iter().all(|p| p.parts.is_empty()) {
            return Err(FigureError::Nothing("no parts to draw".into()));
        }
        let inner = frame(area, &self.title, &self.notes)?;
        let (names, sheet) = inner.split_vertically(30);
        legend(&names, &[(1, Sample::Mark, "time"), (0, Sample::Mark, "energy")])?;
        let columns = self.columns(area.dim_in_pixel().0);
        let rows = self.panels.len().div_ceil(columns);
        for (panel, cell) in self.panels.iter().zip(sheet.split_evenly((rows, columns))) {
            one(&cell, panel)?;
        }
        Ok(())
    }
}

fn one<B: DrawingBackend>(cell: &Area<B>, panel: &Panel) -> Result<(), FigureError> {
    let highest = panel.parts.iter().flat_map(|p| [p.time, p.energy]).fold(1.0, f64::max) * 1.1;
    let panel_width = cell.dim_in_pixel().0 as i32;
    let names = NAMES.min(2 * panel_width / 5);
    let x = Scale::new(0.0, highest, false, names + 8, panel_width - 24);
    let bottom = 28 + ROW * panel.parts.len() as i32;
    write(cell, &cut(&panel.title, panel_width - 20), (8, 14), 15, &INK, HPos::Left)?;
    for value in ticks(0.0, highest, ((panel_width - names) / 60).clamp(2, 5) as usize) {
        let at = x.at(value);
        cell.draw(&PathElement::new(vec![(at, 28), (at, bottom)], GRID.stroke_width(1))).map_err(drawing)?;
        write(cell, &format!("{value} %"), (at, bottom + 12), SMALL, &INK, HPos::Center)?;
    }
    write(cell, &cut(&panel.rest, panel_width - 16), (8, bottom + 32), SMALL, &INK, HPos::Left)?;
    for (i, part) in panel.parts.iter().enumerate() {
        let y = 28 + ROW * i as i32;
        write(cell, &cut(&part.name, names - 8), (names, y + ROW / 2), SMALL, &INK, HPos::Right)?;
        for (share, index, top) in [(part.time, 1, y + 3), (part.energy, 0, y + 11)] {
            let corners = [(x.at(0.0), top), (x.at(share).max(x.at(0.0) + 1), top + 7)];
            cell.draw(&Rectangle::new(corners, colour(index).filled())).map_err(drawing)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::svg;
    use super::*;

    #[test]
    fn every_part_has_two_bars() {
        let part = |name: &str, time, energy| Part { name: name.into(), time, energy };
        let figure = Breakdown {
            title: "Kinds".into(),
            panels: vec![Panel {
                title: "vgg16".into(),
                parts: vec![part("conv2d", 90.0, 95.0), part("a&b", 10.0, 5.0)],
                rest: "3 others".into(),
            }],
            notes: vec!["calibrate validate".into()],
        };
        let text = svg(&figure).expect("drawn");
        // Paper, a square in the legend, four bars.
        assert_eq!(text.matches("<rect").count(), 6);
        for expected in ["vgg16", "conv2d", "a&amp;b", "3 others", "time", "energy", "calibrate validate"] {
            assert!(text.contains(expected), "{expected}");
        }
        assert!(svg(&Breakdown { panels: vec![], ..figure }).is_err());
    }
}
