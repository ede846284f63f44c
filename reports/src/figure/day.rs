//! A fleet through the day: a panel per value, each with the band of its interval.

use super::{
    Area, Axes, FAINT, Figure, FigureError, INK, SMALL, colour, drawing, frame, frame_height, range, titled_height,
    write,
};
use plotters::prelude::*;
use plotters::style::text_anchor::HPos;

/// A value over the parts of the day.
#[derive(Clone, Debug)]
pub struct Panel {
    /// Name and unit.
    pub name: String,
    /// 5 % quantile, value and 95 % quantile in every part; NaN where there is none.
    pub parts: Vec<(f64, f64, f64)>,
    /// What it cannot or must not pass, and its name.
    pub limit: Option<(f64, String)>,
}

/// The figure.
#[derive(Clone, Debug)]
pub struct Day {
    /// What it shows.
    pub title: String,
    /// One per value, with as many parts each.
    pub panels: Vec<Panel>,
    /// The command that made it.
    pub notes: Vec<String>,
}

const COLUMNS: usize = 2;
const PANEL: (u32, u32) = (390, 210);
const WIDTH: u32 = 16 + PANEL.0 * COLUMNS as u32;

/// Panels side by side.
fn columns(width: u32) -> usize {
    if width == WIDTH { COLUMNS } else { (width / 300).clamp(1, 3) as usize }
}

impl Day {
    fn all_notes(&self) -> Vec<String> {
        let parts = self.panels.first().map_or(0, |p| p.parts.len());
        let mut list = vec![format!(
            "{parts} parts of the day, each its mean; band: every step at its 5 % and at its 95 % quantile, the fleet sized anew"
        )];
        list.extend(self.notes.iter().cloned());
        list
    }
}

impl Figure for Day {
    fn title(&self) -> &str {
        &self.title
    }

    fn size(&self) -> (u32, u32) {
        let rows = self.panels.len().div_ceil(COLUMNS) as u32;
        (WIDTH, frame_height(&self.all_notes(), WIDTH) + PANEL.1 * rows)
    }

    fn height_at(&self, width: u32) -> Option<u32> {
        let rows = self.panels.len().div_ceil(columns(width)) as u32;
        Some(titled_height(&self.title, &self.all_notes(), width) + PANEL.1 * rows)
    }

    fn draw<B: DrawingBackend>(&self, area: &Area<B>) -> Result<(), FigureError> {
        let sheet = frame(area, &self.title, &self.all_notes())?;
        let columns = columns(area.dim_in_pixel().0);
        let cells = sheet.split_evenly((self.panels.len().div_ceil(columns).max(1), columns));
        for (panel, cell) in self.panels.iter().zip(cells) {
            one(&cell, panel)?;
        }
        Ok(())
    }
}

fn one<B: DrawingBackend>(cell: &Area<B>, panel: &Panel) -> Result<(), FigureError> {
    let nothing = || FigureError::Nothing(format!("no {} through the day", panel.name));
    let ends = panel.parts.iter().flat_map(|p| [p.0, p.1, p.2]).chain(panel.limit.iter().map(|l| l.0));
    let (_, high) = range(ends.chain([0.0]), false).ok_or_else(nothing)?;
    let axes = Axes { title: "", x: ("hour", 0.0, 24.0, false), y: (&panel.name, 0.0, high, false) };
    let (x, y) = axes.draw(cell)?;
    let hour = |part: usize| x.at(24.0 * part as f64 / panel.parts.len() as f64);
    for (i, &(low, _, high)) in panel.parts.iter().enumerate().filter(|(_, p)| p.0.is_finite() && p.2.is_finite()) {
        let corners = [(hour(i), y.at(high)), (hour(i + 1), y.at(low))];
        cell.draw(&Rectangle::new(corners, colour(1).mix(0.25).filled())).map_err(drawing)?;
    }
    let steps = panel.parts.iter().enumerate().flat_map(|(i, p)| [(hour(i), y.at(p.1)), (hour(i + 1), y.at(p.1))]);
    cell.draw(&PathElement::new(steps.collect::<Vec<_>>(), colour(1).stroke_width(2))).map_err(drawing)?;
    if let Some((limit, name)) = &panel.limit {
        let at = y.at(*limit);
        cell.draw(&PathElement::new(vec![(x.at(0.0), at), (x.at(24.0), at)], FAINT.stroke_width(1)))
            .map_err(drawing)?;
        write(cell, name, (x.at(0.0) + 6, at + 9), SMALL, &INK, HPos::Left)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::svg;
    use super::*;

    #[test]
    fn every_part_has_its_band_and_its_level() {
        let panel = |name: &str, limit: Option<f64>| Panel {
            name: name.into(),
            parts: vec![(1.0, 2.0, 3.0), (2.0, 4.0, f64::NAN), (2.0, 3.0, 4.0)],
            limit: limit.map(|l| (l, "site limit".into())),
        };
        let day = Day {
            title: "A day".into(),
            panels: vec![panel("kW", Some(6.0)), panel("EUR/h", None)],
            notes: vec!["predict plan".into()],
        };
        let text = svg(&day).expect("drawn");
        for expected in ["kW", "EUR/h", "hour", "site limit", "3 parts of the day", "predict plan"] {
            assert!(text.contains(expected), "{expected}");
        }
        // A band in the two parts that have both ends, in either panel.
        assert_eq!(text.matches("opacity=\"0.25\"").count(), 4);
        let empty = Day { panels: vec![Panel { parts: vec![], ..panel("kW", None) }], ..day };
        assert!(svg(&empty).is_ok(), "axes alone");
    }
}
