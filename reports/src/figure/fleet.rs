//! GPUs against facility power, two curves per candidate: the power limit and the clock as the free variable.

use super::{
    Area, Axes, Figure, FigureError, INK, PAPER, SMALL, Sample, colour, drawing, frame, frame_height, legend,
    legend_height, line, mark, range, titled_height, width_of, write,
};
use plotters::prelude::*;
use plotters::style::text_anchor::HPos;

const WIDTH: u32 = 760;
/// Pixels that a frame leaves at its sides.
const MARGINS: u32 = 16;
/// Names of so many candidates' choices stand beside them.
const NAMED: usize = 4;

/// Lowest and highest of a value.
pub type Ends = (f64, f64);

/// A fleet at a power limit or clock.
#[derive(Clone, Debug)]
pub struct Point {
    /// Facility power, kW.
    pub kw: f64,
    /// GPUs.
    pub gpus: f64,
    /// Intervals of both, where they are shown.
    pub ends: Option<(Ends, Ends)>,
    /// What stands beside it.
    pub name: Option<String>,
    /// Whether the plan takes it.
    pub taken: bool,
    /// Whether no other fleet has fewer GPUs and less power.
    pub front: bool,
}

/// A candidate's fleets over its power limits, or over its clocks.
#[derive(Clone, Debug)]
pub struct Curve {
    /// Whether over its clocks.
    pub clock: bool,
    /// In the order of the settings.
    pub points: Vec<Point>,
}

/// A candidate GPU.
#[derive(Clone, Debug)]
pub struct Series {
    /// Its name.
    pub name: String,
    /// Over power limits and over clocks.
    pub curves: [Curve; 2],
}

/// The figure.
#[derive(Clone, Debug)]
pub struct Fleets {
    /// What it shows.
    pub title: String,
    /// One per candidate.
    pub series: Vec<Series>,
    /// Site power limit, kW.
    pub limit_kw: Option<f64>,
    /// The command that made it.
    pub notes: Vec<String>,
}

impl Fleets {
    fn points(&self) -> impl Iterator<Item = &Point> {
        self.series.iter().flat_map(|s| &s.curves).flat_map(|c| &c.points)
    }

    /// Names of the candidates; of more than [`NAMED`] with what each would be taken with, which then does not stand in
    /// the plot.
    fn names<'a>(&'a self) -> Vec<&'a str> {
        let crowded = self.series.len() > NAMED;
        let name = |s: &'a Series| {
            let chosen = s.curves.iter().flat_map(|c| &c.points).find_map(|p| p.name.as_deref());
            chosen.filter(|_| crowded).unwrap_or(&s.name)
        };
        self.series.iter().map(name).collect()
    }

    fn entries(&self) -> Vec<(usize, Sample, &str)> {
        self.names().into_iter().enumerate().map(|(i, name)| (i, Sample::Mark, name)).collect()
    }

    fn all_notes(&self) -> Vec<String> {
        let count = |clock: bool| -> usize {
            let curves = self.series.iter().flat_map(|s| &s.curves).filter(|c| c.clock == clock);
            curves.map(|c| c.points.len()).sum()
        };
        let (caps, clocks) = (count(false), count(true));
        let mut list = vec![
            format!("{} fleets: {caps} over power limits (lines), {clocks} over clocks (small marks, faint lines)", caps + clocks),
            "rings: the Pareto front, fewer GPUs only with more power; crosses: 90 % intervals of each candidate's choice; large ring: taken".into(),
        ];
        list.extend(self.notes.iter().cloned());
        list
    }
}

impl Figure for Fleets {
    fn title(&self) -> &str {
        &self.title
    }

    fn size(&self) -> (u32, u32) {
        (WIDTH, frame_height(&self.all_notes(), WIDTH) + legend_height(&self.entries(), WIDTH - MARGINS) + 380)
    }

    fn height_at(&self, width: u32) -> Option<u32> {
        let frame = titled_height(&self.title, &self.all_notes(), width);
        Some(frame + legend_height(&self.entries(), width - MARGINS) + 380)
    }

    fn draw<B: DrawingBackend>(&self, area: &Area<B>) -> Result<(), FigureError> {
        let nothing = || FigureError::Nothing("no fleets to draw".into());
        let ends = |value: fn(&Point) -> f64, of: fn(&(Ends, Ends)) -> Ends| {
            let both = move |p: &Point| p.ends.as_ref().map(of).map_or([value(p); 2], |(low, high)| [low, high]);
            self.points().flat_map(move |p| both(p).into_iter().chain([value(p)]))
        };
        let (left, right) = range(ends(|p| p.kw, |e| e.0).chain(self.limit_kw), true).ok_or_else(nothing)?;
        let (low, high) = range(ends(|p| p.gpus, |e| e.1), true).ok_or_else(nothing)?;
        let inner = frame(area, &self.title, &self.all_notes())?;
        let entries = self.entries();
        let (names, sheet) = inner.split_vertically(legend_height(&entries, area.dim_in_pixel().0 - MARGINS));
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
            for curve in &series.curves {
                let at = |p: &Point| (x.at(p.kw), y.at(p.gpus));
                let pixels: Vec<(i32, i32)> = curve.points.iter().map(at).collect();
                if curve.clock {
                    let faint = colour(index).mix(0.4).stroke_width(1);
                    sheet.draw(&PathElement::new(pixels.clone(), faint)).map_err(drawing)?;
                } else {
                    line(&sheet, &pixels, index, 1)?;
                }
                for point in &curve.points {
                    mark(&sheet, at(point), index, if curve.clock { 2 } else { 3 })?;
                    if point.front {
                        sheet.draw(&Circle::new(at(point), 6, INK.stroke_width(1))).map_err(drawing)?;
                    }
                }
            }
        }
        let mut named: Vec<(i32, i32)> = Vec::new();
        // Last, so that nothing covers them.
        for (index, point) in self
            .series
            .iter()
            .enumerate()
            .flat_map(|(i, s)| s.curves.iter().flat_map(|c| &c.points).map(move |p| (i, p)))
        {
            let at = (x.at(point.kw), y.at(point.gpus));
            if let Some((kw, gpus)) = point.ends {
                let cross = [[(x.at(kw.0), at.1), (x.at(kw.1), at.1)], [(at.0, y.at(gpus.0)), (at.0, y.at(gpus.1))]];
                for end in cross {
                    sheet.draw(&PathElement::new(end.to_vec(), colour(index).stroke_width(1))).map_err(drawing)?;
                }
            }
            if point.taken {
                sheet.draw(&Circle::new(at, 10, colour(index).stroke_width(2))).map_err(drawing)?;
            }
            if let Some(name) = point.name.as_ref().filter(|_| self.series.len() <= NAMED) {
                // Beside it, to the side that has room.
                let room = at.0 + 12 + width_of(name, SMALL) <= sheet.dim_in_pixel().0 as i32;
                let (from, anchor) = if room { (at.0 + 12, HPos::Left) } else { (at.0 - 12, HPos::Right) };
                let place = free(&mut named, from, at.1 - 20);
                let width = width_of(name, SMALL);
                let left = if room { from } else { from - width };
                let behind = [(left - 2, place - 8), (left + width + 2, place + 8)];
                sheet.draw(&Rectangle::new(behind, PAPER.filled())).map_err(drawing)?;
                write(&sheet, name, (from, place), SMALL, &INK, anchor)?;
            }
        }
        Ok(())
    }
}

/// The height of a name that starts there and covers none of those before it.
fn free(named: &mut Vec<(i32, i32)>, x: i32, y: i32) -> i32 {
    /// A name is so wide and high at most, or nearly so.
    const ROOM: (i32, i32) = (130, SMALL as i32 + 3);
    let covers = |y: i32| named.iter().any(|n| (n.0 - x).abs() < ROOM.0 && (n.1 - y).abs() < ROOM.1);
    let place = (0..8).map(|i| y - ROOM.1 * i).find(|y| !covers(*y) && *y > 0).unwrap_or(y);
    named.push((x, place));
    place
}

#[cfg(test)]
mod tests {
    use super::super::svg;
    use super::*;

    #[test]
    fn the_front_is_ringed_and_what_is_chosen_is_named() {
        let point = |kw, gpus| Point { kw, gpus, ends: None, name: None, taken: false, front: false };
        let ends = Some(((6.0, 11.0), (40.0, 50.0)));
        let taken = Point { ends, name: Some("v100 at 210 W".into()), taken: true, front: true, ..point(8.0, 44.0) };
        let curve = |clock, points| Curve { clock, points };
        let curves = [curve(false, vec![point(10.0, 40.0), taken]), curve(true, vec![point(7.0, 60.0)])];
        let fleets = Fleets {
            title: "Fleets".into(),
            series: vec![Series { name: "v100".into(), curves }],
            limit_kw: Some(12.0),
            notes: vec!["predict plan".into()],
        };
        let many = Fleets {
            series: (0..9)
                .map(|i| Series { name: format!("gpu {i}"), curves: fleets.series[0].curves.clone() })
                .collect(),
            ..fleets.clone()
        };
        let crowded = svg(&many).expect("drawn");
        assert_eq!(crowded.matches("v100 at 210 W").count(), 9, "in the legend alone");
        assert!(many.size().1 > fleets.size().1, "the legend takes lines of its own");
        let text = svg(&fleets).expect("drawn");
        assert_eq!(text.matches("v100 at 210 W").count(), 1);
        assert_eq!((text.matches("r=\"6\"").count(), text.matches("r=\"10\"").count()), (1, 1));
        for expected in ["site limit", "facility power at peak, kW", "3 fleets: 2 over power limits", "predict plan"] {
            assert!(text.contains(expected), "{expected}");
        }
    }
}
