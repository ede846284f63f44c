//! A roofline with a network's kernels: operations per second over operations per byte (Williams, Waterman, Patterson
//! 2009); a panel per network.

use super::cloud::cut;
use super::{
    Area, Axes, Figure, FigureError, INK, SMALL, Sample, colour, drawing, frame, frame_height, legend, legend_height,
    mark, range, write,
};
use joulecast_model::base::order::sort_by;
use plotters::prelude::*;
use plotters::style::text_anchor::HPos;

/// A kernel.
#[derive(Clone, Debug)]
pub struct Kernel {
    /// Layer and phase.
    pub name: String,
    /// Which series (kind) it is of.
    pub series: usize,
    /// Operations per byte.
    pub intensity: f64,
    /// Operations per second.
    pub rate: f64,
    /// Share of the step's time, percent.
    pub share: f64,
}

/// A panel.
#[derive(Clone, Debug)]
pub struct Panel {
    /// Network, GPU, batch, precision.
    pub title: String,
    /// Bandwidth, B/s.
    pub bandwidth: f64,
    /// Peaks with their names, op/s.
    pub peaks: Vec<(String, f64)>,
    /// The kernels.
    pub kernels: Vec<Kernel>,
}

/// A sheet of panels.
#[derive(Clone, Debug)]
pub struct Roofline {
    /// What it shows.
    pub title: String,
    /// Names of the series.
    pub series: Vec<String>,
    /// The panels.
    pub panels: Vec<Panel>,
    /// The command that made it.
    pub notes: Vec<String>,
}

const PANEL: (u32, u32) = (480, 380);
const COLUMNS: usize = 2;
/// So many of the costliest kernels are named.
const NAMED: usize = 3;
/// Below this share of the time none is, percent.
const WORTH: f64 = 3.0;

impl Roofline {
    fn entries(&self) -> Vec<(usize, Sample, &str)> {
        self.series.iter().enumerate().map(|(i, n)| (i, Sample::Mark, n.as_str())).collect()
    }

    fn width(&self) -> u32 {
        16 + PANEL.0 * COLUMNS as u32
    }

    fn all_notes(&self) -> Vec<String> {
        let count: usize = self.panels.iter().map(|p| p.kernels.len()).sum();
        let mut list = vec![format!(
            "{count} kernels; a larger mark takes more of the step's time, the {NAMED} costliest from {WORTH} % on are named; \
             operations of the direct algorithm, so that Winograd's may lie above the roof"
        )];
        list.extend(self.notes.iter().cloned());
        list
    }
}

impl Figure for Roofline {
    fn title(&self) -> &str {
        &self.title
    }

    fn size(&self) -> (u32, u32) {
        let rows = self.panels.len().div_ceil(COLUMNS) as u32;
        let legend = legend_height(&self.entries(), self.width() - 16);
        (self.width(), frame_height(&self.all_notes(), self.width()) + legend + PANEL.1 * rows)
    }

    fn draw<B: DrawingBackend>(&self, area: &Area<B>) -> Result<(), FigureError> {
        if self.panels.is_empty() {
            return Err(FigureError::Nothing("no kernels to draw".into()));
        }
        let inner = frame(area, &self.title, &self.all_notes())?;
        let (names, sheet) = inner.split_vertically(legend_height(&self.entries(), self.width() - 16));
        legend(&names, &self.entries())?;
        let rows = self.panels.len().div_ceil(COLUMNS);
        for (panel, cell) in self.panels.iter().zip(sheet.split_evenly((rows, COLUMNS))) {
            one(&cell, panel)?;
        }
        Ok(())
    }
}

fn one<B: DrawingBackend>(cell: &Area<B>, panel: &Panel) -> Result<(), FigureError> {
    let nothing = || FigureError::Nothing(format!("{}: no kernel computes anything", panel.title));
    let highest = panel.peaks.iter().map(|p| p.1).fold(0.0, f64::max);
    let ridge = highest / panel.bandwidth;
    let (left, right) =
        range(panel.kernels.iter().map(|k| k.intensity).chain([ridge * 2.0]), true).ok_or_else(nothing)?;
    let (low, high) = range(panel.kernels.iter().map(|k| k.rate).chain([highest]), true).ok_or_else(nothing)?;
    // In Tera, as data sheets have it.
    let tera = 1e12;
    let axes = Axes {
        title: &cut(&panel.title, PANEL.0 as i32 - 90),
        x: ("intensity, op/B", left, right, true),
        y: ("rate, Top/s", low / tera, high / tera, true),
    };
    let (x, y) = axes.draw(cell)?;
    let at = |intensity: f64, rate: f64| (x.at(intensity), y.at(rate / tera));
    // The slope begins where it enters the panel.
    let start = left.max(low / panel.bandwidth);
    let slope = vec![at(start, start * panel.bandwidth), at(ridge, highest)];
    cell.draw(&PathElement::new(slope, INK.stroke_width(1))).map_err(drawing)?;
    for (name, peak) in &panel.peaks {
        let roof = vec![at(peak / panel.bandwidth, *peak), at(right, *peak)];
        cell.draw(&PathElement::new(roof, INK.stroke_width(1))).map_err(drawing)?;
        write(cell, name, (x.at(right) - 4, y.at(peak / tera) - 9), SMALL, &INK, HPos::Right)?;
    }
    let mut order: Vec<&Kernel> = panel.kernels.iter().filter(|k| k.intensity > 0.0 && k.rate > 0.0).collect();
    sort_by(&mut order, |a, b| b.share.total_cmp(&a.share));
    for kernel in &order {
        mark(cell, at(kernel.intensity, kernel.rate), kernel.series, 2 + (kernel.share.sqrt() * 1.2) as i32)?;
    }
    let mut taken: Vec<i32> = Vec::new();
    for kernel in order.into_iter().take(NAMED).filter(|k| k.share >= WORTH) {
        let (px, py) = at(kernel.intensity, kernel.rate);
        // Names of kernels close to each other stand one below the other.
        let mut place = py;
        while taken.iter().any(|t| (t - place).abs() < 15) {
            place += 15;
        }
        taken.push(place);
        let text = format!("{}, {:.0} %", cut(&kernel.name, 150), kernel.share);
        let away = 10 + (kernel.share.sqrt() * 1.2) as i32;
        let left = px > PANEL.0 as i32 / 2;
        let (end, anchor) = if left { (px - away, HPos::Right) } else { (px + away, HPos::Left) };
        let line = vec![(px, py), (if left { end + 2 } else { end - 2 }, place)];
        cell.draw(&PathElement::new(line, colour(kernel.series).stroke_width(1))).map_err(drawing)?;
        write(cell, &text, (end, place), SMALL, &INK, anchor)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::svg;
    use super::*;

    #[test]
    fn a_panel_has_roofs_and_names_its_costliest() {
        let kernel = |name: &str, share: f64| Kernel {
            name: name.into(),
            series: 0,
            intensity: 10.0 * share,
            rate: 1e12 * share,
            share,
        };
        let panel = Panel {
            title: "vgg16 <h200>".into(),
            bandwidth: 4.8e12,
            peaks: vec![("fp32".into(), 67e12), ("fp16".into(), 989e12)],
            kernels: ["a1", "b2", "c3", "d4"]
                .into_iter()
                .zip([40.0, 30.0, 20.0, 10.0])
                .map(|(n, s)| kernel(n, s))
                .collect(),
        };
        let figure = Roofline {
            title: "Roofline".into(),
            series: vec!["conv2d".into()],
            panels: vec![panel],
            notes: vec!["calibrate validate".into()],
        };
        let text = svg(&figure).expect("drawn");
        for expected in ["vgg16 &lt;h200&gt;", "fp32", "fp16", "a1, 40 %", "c3, 20 %", "4 kernels", "intensity, op/B"] {
            assert!(text.contains(expected), "{expected}");
        }
        assert!(!text.contains("d4"), "only the costliest are named");
        assert_eq!(text.matches("<circle").count(), 5);
        assert!(svg(&Roofline { panels: vec![], ..figure }).is_err());
    }
}
