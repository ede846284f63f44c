//! GPUs against facility power, a curve per candidate with the power limit as the free variable.

use super::{
    Area, Axes, Figure, FigureError, INK, SMALL, Sample, colour, drawing, frame, frame_height, legend, line, mark,
    range, write,
};
use plotters::prelude::*;
use plotters::style::text_anchor::HPos;

/// A fleet at a power limit.
#[derive(Clone, Debug)]
pub struct Point {
    /// Facility power, kW.
    pub kw: f64,
    /// GPUs.
    pub gpus: f64,
    /// The setting in a word or two, shown at the chosen one.
    pub setting: String,
    /// Whether the plan takes it.
    pub chosen: bool,
}

/// A candidate GPU.
#[derive(Clone, Debug)]
pub struct Series {
    /// Its name.
    pub name: String,
    /// Over its power limits.
    pub points: Vec<Point>,
}

/// The figure.
#[derive(Clone, Debug)]
pub struct Fleet {
    /// What it shows.
    pub title: String,
    /// One per candidate.
    pub series: Vec<Series>,
    /// Site power limit, kW.
    pub limit_kw: Option<f64>,
    /// The command that made it.
    pub notes: Vec<String>,
}

impl Fleet {
    fn all_notes(&self) -> Vec<String> {
        let count: usize = self.series.iter().map(|s| s.points.len()).sum();
        let mut list = vec![format!("{count} fleets; along a curve the power limit of the GPUs changes; ring: chosen")];
        list.extend(self.notes.iter().cloned());
        list
    }
}

impl Figure for Fleet {
    fn title(&self) -> &str {
        &self.title
    }

    fn size(&self) -> (u32, u32) {
        (760, frame_height(&self.all_notes(), 760) + 30 + 380)
    }

    fn draw<B: DrawingBackend>(&self, area: &Area<B>) -> Result<(), FigureError> {
        let nothing = || FigureError::Nothing("no fleets to draw".into());
        let points = || self.series.iter().flat_map(|s| &s.points);
        let (left, right) = range(points().map(|p| p.kw).chain(self.limit_kw), true).ok_or_else(nothing)?;
        let (low, high) = range(points().map(|p| p.gpus), true).ok_or_else(nothing)?;
        let inner = frame(area, &self.title, &self.all_notes())?;
        let (names, sheet) = inner.split_vertically(30);
        let entries: Vec<(usize, Sample, &str)> =
            self.series.iter().enumerate().map(|(i, s)| (i, Sample::Mark, s.name.as_str())).collect();
        legend(&names, &entries)?;
        let axes =
            Axes { title: "", x: ("facility power at peak, kW", left, right, true), y: ("GPUs", low, high, true) };
        let (x, y) = axes.draw(&sheet)?;
        if let Some(limit) = self.limit_kw {
            let at = x.at(limit);
            sheet
                .draw(&PathElement::new(vec![(at, y.at(high)), (at, y.at(low))], INK.stroke_width(1)))
                .map_err(drawing)?;
            write(&sheet, "site limit", (at - 4, y.at(high) + 8), SMALL, &INK, HPos::Right)?;
        }
        for (index, series) in self.series.iter().enumerate() {
            let pixels: Vec<(i32, i32)> = series.points.iter().map(|p| (x.at(p.kw), y.at(p.gpus))).collect();
            line(&sheet, &pixels, index, 1)?;
            for (point, &at) in series.points.iter().zip(&pixels) {
                mark(&sheet, at, index, 3)?;
                if point.chosen {
                    sheet.draw(&Circle::new(at, 8, colour(index).stroke_width(2))).map_err(drawing)?;
                    write(&sheet, &point.setting, (at.0 - 8, at.1 - 18), SMALL, &INK, HPos::Left)?;
                }
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
    fn the_chosen_fleet_is_ringed_and_named() {
        let point = |kw, gpus, chosen| Point { kw, gpus, setting: "210 W".into(), chosen };
        let series = Series { name: "v100".into(), points: vec![point(10.0, 40.0, false), point(8.0, 44.0, true)] };
        let fleet = Fleet {
            title: "Fleets".into(),
            series: vec![series],
            limit_kw: Some(12.0),
            notes: vec!["predict plan".into()],
        };
        let text = svg(&fleet).expect("drawn");
        assert_eq!(text.matches("210 W").count(), 1);
        assert_eq!(text.matches("r=\"8\"").count(), 1);
        for expected in ["v100", "site limit", "facility power at peak, kW", "2 fleets", "predict plan"] {
            assert!(text.contains(expected), "{expected}");
        }
    }
}
