//! How the curves are drawn.

use super::super::{
    Area, Axes, FAINT, Figure, FigureError, Sample, Scale, colour, drawing, frame, frame_height, legend, legend_height,
    line, mark, range, titled_height,
};
use super::{Axis, Curves, Panel};
use joulecast_ask::curve::Relative;
use plotters::prelude::*;

/// Ratios above are cut: EDP at the lowest limits would press everything else together.
const HIGHEST: f64 = 1.6;
const PANEL: (u32, u32) = (390, 310);

type Value = fn(&Relative) -> f64;
const METRICS: [Value; 5] = [|r| r.energy, |r| r.time, |r| r.power, |r| r.edp, |r| r.eds];

impl Curves {
    fn columns(&self) -> u32 {
        (self.panels.len() as u32).clamp(2, 3)
    }

    /// Panels side by side on a sheet so wide.
    fn columns_at(&self, width: u32) -> u32 {
        let own = 16 + PANEL.0 * self.columns();
        if width == own { self.columns() } else { (width / 320).clamp(1, 3).min(self.panels.len().max(1) as u32) }
    }

    fn eds(&self) -> String {
        format!("EDS ({})", self.weight)
    }

    fn all_notes(&self) -> Vec<String> {
        let count = |f: fn(&Panel) -> usize| self.panels.iter().map(f).sum::<usize>();
        let (predicted, measured) = (count(|p| p.predicted.len()), count(|p| p.measured.len()));
        let mut counts = format!("{predicted} predicted points (lines; a ring is the least)");
        if measured > 0 {
            counts += &format!(", {measured} measured (marks)");
        }
        counts += &format!("; everything over its value at the default; cut at {HIGHEST}");
        let mut list = vec![counts];
        list.extend(self.notes.iter().cloned());
        list
    }
}

fn entries(eds: &str) -> Vec<(usize, Sample, &str)> {
    ["energy", "time", "power", "EDP", eds].into_iter().enumerate().map(|(i, n)| (i, Sample::Line, n)).collect()
}

/// The part of a curve below a value, its last segment cut there.
fn below(points: &[(f64, f64)], most: f64) -> Vec<Vec<(f64, f64)>> {
    let mut pieces: Vec<Vec<(f64, f64)>> = vec![Vec::new()];
    let crossing = |a: (f64, f64), b: (f64, f64)| (a.0 + (b.0 - a.0) * (most - a.1) / (b.1 - a.1), most);
    for (i, &point) in points.iter().enumerate() {
        let before = i.checked_sub(1).map(|j| points[j]);
        match (before.is_some_and(|b| b.1 <= most), point.1 <= most) {
            (true, false) => {
                if let (Some(piece), Some(before)) = (pieces.last_mut(), before) {
                    piece.push(crossing(before, point));
                }
                pieces.push(Vec::new());
            }
            (false, true) => {
                if let Some(piece) = pieces.last_mut() {
                    piece.extend(before.map(|b| crossing(b, point)));
                    piece.push(point);
                }
            }
            (true, true) => pieces.last_mut().into_iter().for_each(|piece| piece.push(point)),
            (false, false) => {}
        }
    }
    pieces.retain(|piece| piece.len() > 1);
    pieces
}

impl Figure for Curves {
    fn title(&self) -> &str {
        &self.title
    }

    fn size(&self) -> (u32, u32) {
        let rows = (self.panels.len() as u32).div_ceil(self.columns());
        let width = 16 + PANEL.0 * self.columns();
        (width, frame_height(&self.all_notes(), width) + 30 + PANEL.1 * rows)
    }

    fn height_at(&self, width: u32) -> Option<u32> {
        let (columns, eds) = (self.columns_at(width), self.eds());
        let rows = (self.panels.len() as u32).div_ceil(columns);
        let above = legend_height(&entries(&eds), width - 16).max(30);
        Some(titled_height(&self.title, &self.all_notes(), width) + above + PANEL.1 * rows)
    }

    fn draw<B: DrawingBackend>(&self, area: &Area<B>) -> Result<(), FigureError> {
        let every = || self.panels.iter().flat_map(|p| p.predicted.iter().chain(&p.measured));
        let nothing = || FigureError::Nothing("no points to draw".into());
        let (left, right) = range(every().map(|r| r.setting), false).ok_or_else(nothing)?;
        let values = every().flat_map(|r| METRICS.map(|m| m(r)));
        let (low, high) = range(values.map(|v| v.min(HIGHEST)), false).ok_or_else(nothing)?;
        let inner = frame(area, &self.title, &self.all_notes())?;
        let (width, eds) = (area.dim_in_pixel().0, self.eds());
        let entries = entries(&eds);
        let (names, sheet) = inner.split_vertically(legend_height(&entries, width - 16).max(30));
        legend(&names, &entries)?;
        let columns = self.columns_at(width) as usize;
        let rows = self.panels.len().div_ceil(columns);
        let x_name = match self.axis {
            Axis::Cap => "power limit, W",
            Axis::Clock => "core clock, MHz",
        };
        for (panel, cell) in self.panels.iter().zip(sheet.split_evenly((rows, columns))) {
            let axes = Axes {
                title: &panel.title,
                x: (x_name, left, right, false),
                y: ("over the default", low, high.min(HIGHEST), false),
            };
            let (x, y) = axes.draw(&cell)?;
            one(&cell, panel, x, y)?;
        }
        Ok(())
    }
}

fn one<B: DrawingBackend>(cell: &Area<B>, panel: &Panel, x: Scale, y: Scale) -> Result<(), FigureError> {
    let ends = panel.predicted.iter().chain(&panel.measured).map(|r| r.setting);
    if let Some((left, right)) = range(ends, false) {
        let level = vec![(x.at(left), y.at(1.0)), (x.at(right), y.at(1.0))];
        cell.draw(&PathElement::new(level, FAINT.stroke_width(1))).map_err(drawing)?;
    }
    for (index, value) in METRICS.into_iter().enumerate() {
        let points: Vec<(f64, f64)> = panel.predicted.iter().map(|r| (r.setting, value(r))).collect();
        for piece in below(&points, HIGHEST) {
            let pixels: Vec<(i32, i32)> = piece.iter().map(|p| (x.at(p.0), y.at(p.1))).collect();
            line(cell, &pixels, index, 2)?;
        }
        // Time and power have their least at an end: nothing to mark.
        let least = points.iter().min_by(|a, b| a.1.total_cmp(&b.1)).filter(|_| ![1, 2].contains(&index));
        if let Some(&(setting, least)) = least {
            let ring = Circle::new((x.at(setting), y.at(least)), 5, colour(index).stroke_width(2));
            cell.draw(&ring).map_err(drawing)?;
        }
        for run in panel.measured.iter().filter(|r| value(r) <= HIGHEST) {
            mark(cell, (x.at(run.setting), y.at(value(run))), index, 3)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::super::svg;
    use super::*;
    use joulecast_ask::curve::{Run, relative};
    use joulecast_ask::metric::Reference;
    use joulecast_model::base::units::{Joules, Seconds, Watts};

    fn points() -> Vec<Relative> {
        let default = Reference { time: Seconds::new(1.0), energy: Joules::new(300.0) };
        let run = |watts: f64| {
            let time = Seconds::new((300.0 / watts).powf(0.6));
            Run { setting: watts, time, energy: Watts::new(watts) * time }
        };
        relative(&[100.0, 150.0, 200.0, 250.0, 300.0].map(run), &default, 1.5)
    }

    fn sheet(panels: Vec<Panel>) -> Curves {
        let notes = vec!["predict optimize --net <b>".to_string()];
        Curves { title: "Power limits".into(), axis: Axis::Cap, weight: 1.5, panels, notes }
    }

    #[test]
    fn a_sheet_has_a_panel_per_network_and_says_what_it_shows() {
        let panel = |title: &str, measured| Panel { title: title.into(), predicted: points(), measured };
        let sheet = sheet(vec![panel("resnet50", vec![]), panel("a & b", points())]);
        let text = svg(&sheet).expect("drawn");
        for expected in
            ["resnet50", "a &amp; b", "power limit, W", "EDS (1.5)", "10 predicted points", "5 measured", "&lt;b&gt;"]
        {
            assert!(text.contains(expected), "{expected}");
        }
        assert!(!text.contains("<b>"), "text is escaped");
        assert!(text.contains("prefers-color-scheme: dark") && text.contains("aria-label=\"Power limits\""));
        // A ring for the least energy, EDP and EDS of either panel.
        assert_eq!(text.matches("r=\"5\"").count(), 6);
        assert!(svg(&super::tests::sheet(vec![])).is_err(), "nothing is no figure");
    }

    #[test]
    fn a_curve_is_cut_where_it_leaves() {
        assert_eq!(below(&[(0.0, 2.0), (1.0, 1.0), (2.0, 1.0)], 1.5), [[(0.5, 1.5), (1.0, 1.0), (2.0, 1.0)].to_vec()]);
        assert!(below(&[(0.0, 2.0), (1.0, 3.0)], 1.5).is_empty());
    }
}
