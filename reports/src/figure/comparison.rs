//! Networks on GPUs side by side: time, power and energy with their intervals, a row per network and GPU.

use super::{
    Area, FAINT, Figure, FigureError, GRID, INK, SMALL, Sample, Scale, colour, drawing, frame, frame_height, label,
    legend, legend_height, mark, range, titled_height, width_of, write,
};
use plotters::prelude::*;
use plotters::style::text_anchor::HPos;

/// A value with its interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dot {
    /// 5 % quantile.
    pub low: f64,
    /// The value.
    pub value: f64,
    /// 95 % quantile.
    pub high: f64,
}

/// A row: for every series (usually a batch) a dot per column, where there is one.
#[derive(Clone, Debug)]
pub struct Row {
    /// Rows of one group stand together under its name (usually a network).
    pub group: String,
    /// The row's name (usually a GPU).
    pub name: String,
    /// By series, then by column.
    pub dots: Vec<Option<Vec<Dot>>>,
}

/// A figure of rows, columns and series.
#[derive(Clone, Debug)]
pub struct DotPlot {
    /// What it shows.
    pub title: String,
    /// Names of the columns with units; each has a logarithmic axis of its own.
    pub columns: Vec<String>,
    /// Names of the series.
    pub series: Vec<String>,
    /// The rows, of each group in a row.
    pub rows: Vec<Row>,
    /// The command that made it.
    pub notes: Vec<String>,
}

const ROW: i32 = 24;
const COLUMN: i32 = 300;
/// Narrower ones stand one below the other.
const LEAST_COLUMN: i32 = 150;

impl DotPlot {
    fn names_width(&self) -> i32 {
        let widest = self.rows.iter().map(|r| width_of(&r.name, SMALL).max(width_of(&r.group, SMALL + 1) - 14));
        widest.max().unwrap_or(0) + 34
    }

    /// Width of a column, how many stand side by side, and how many rows of them there are on a sheet so wide.
    fn bands(&self, width: u32) -> (i32, usize, usize) {
        let columns = self.columns.len().max(1);
        let room = width as i32 - 16 - self.names_width();
        let beside = ((room / LEAST_COLUMN).max(1) as usize).min(columns);
        let bands = columns.div_ceil(beside);
        let beside = columns.div_ceil(bands);
        ((room / beside as i32).clamp(80, COLUMN), beside, bands)
    }

    fn entries(&self) -> Vec<(usize, Sample, &str)> {
        self.series.iter().enumerate().map(|(i, n)| (i, Sample::Mark, n.as_str())).collect()
    }

    fn groups(&self) -> usize {
        self.rows.iter().enumerate().filter(|(i, r)| *i == 0 || self.rows[i - 1].group != r.group).count()
    }

    fn all_notes(&self) -> Vec<String> {
        let dots = self.rows.iter().flat_map(|r| &r.dots).flatten().count();
        let mut list = vec![format!("{dots} predictions; marks: value, bars: 90 % interval; logarithmic axes")];
        list.extend(self.notes.iter().cloned());
        list
    }
}

impl Figure for DotPlot {
    fn title(&self) -> &str {
        &self.title
    }

    fn size(&self) -> (u32, u32) {
        let width = (16 + self.names_width() + COLUMN * self.columns.len() as i32) as u32;
        let rows = ROW as u32 * (self.rows.len() + self.groups()) as u32;
        (width, frame_height(&self.all_notes(), width) + 30 + 66 + rows)
    }

    fn height_at(&self, width: u32) -> Option<u32> {
        let (_, _, bands) = self.bands(width);
        let height = 66 + ROW as u32 * (self.rows.len() + self.groups()) as u32;
        let legend = legend_height(&self.entries(), width - 16).max(30);
        Some(titled_height(&self.title, &self.all_notes(), width) + legend + bands as u32 * height)
    }

    fn draw<B: DrawingBackend>(&self, area: &Area<B>) -> Result<(), FigureError> {
        let nothing = || FigureError::Nothing("no predictions to draw".into());
        let inner = frame(area, &self.title, &self.all_notes())?;
        let entries = self.entries();
        let (width, _) = area.dim_in_pixel();
        let (names, sheet) = inner.split_vertically(legend_height(&entries, width - 16).max(30));
        legend(&names, &entries)?;
        let (column, beside, _) = self.bands(width);
        let height = 66 + ROW * (self.rows.len() + self.groups()) as i32;
        for band in 0..self.columns.len().div_ceil(beside) {
            let shown = band * beside..((band + 1) * beside).min(self.columns.len());
            self.band(&sheet, shown, column, height * band as i32, &nothing)?;
        }
        Ok(())
    }
}

impl DotPlot {
    /// Some of the columns, side by side, with the names of all rows.
    fn band<B: DrawingBackend>(
        &self,
        sheet: &Area<B>,
        shown: std::ops::Range<usize>,
        column: i32,
        above: i32,
        nothing: &impl Fn() -> FigureError,
    ) -> Result<(), FigureError> {
        let left = self.names_width();
        let (top, bottom) = (above + 24, above + 24 + ROW * (self.rows.len() + self.groups()) as i32);
        let mut scales: Vec<Scale> = Vec::new();
        for (place, c) in shown.clone().enumerate() {
            let dots = self.rows.iter().flat_map(|r| r.dots.iter().flatten().filter_map(|d| d.get(c)));
            let (low, high) = range(dots.flat_map(|d| [d.low, d.high]), true).ok_or_else(nothing)?;
            let from = left + column * place as i32 + 14;
            let scale = Scale::new(low, high, true, from, from + column - 28);
            for value in scale.ticks((column / 48).clamp(2, 6) as usize) {
                let at = scale.at(value);
                let thin = GRID.stroke_width(1);
                sheet.draw(&PathElement::new(vec![(at, top), (at, bottom)], thin)).map_err(drawing)?;
                write(sheet, &label(value), (at, bottom + 12), SMALL, &INK, HPos::Center)?;
            }
            write(sheet, &self.columns[c], (from, above + 10), SMALL + 1, &INK, HPos::Left)?;
            scales.push(scale);
        }
        let mut y = top;
        for (i, row) in self.rows.iter().enumerate() {
            if i == 0 || self.rows[i - 1].group != row.group {
                write(sheet, &row.group, (4, y + ROW / 2), SMALL + 1, &INK, HPos::Left)?;
                let rule = vec![(0, y), (left + column * shown.len() as i32, y)];
                sheet.draw(&PathElement::new(rule, FAINT.stroke_width(1))).map_err(drawing)?;
                y += ROW;
            }
            write(sheet, &row.name, (18, y + ROW / 2), SMALL, &INK, HPos::Left)?;
            let series = row.dots.len() as i32;
            for (s, dots) in row.dots.iter().enumerate() {
                // Series of a row stand a little apart, so that intervals do not hide each other.
                let at = y + ROW * (2 * s as i32 + 1) / (2 * series);
                for (scale, dot) in scales.iter().zip(dots.iter().flatten().skip(shown.start)) {
                    let bar = vec![(scale.at(dot.low), at), (scale.at(dot.high), at)];
                    sheet.draw(&PathElement::new(bar, colour(s).stroke_width(1))).map_err(drawing)?;
                    mark(sheet, (scale.at(dot.value), at), s, 3)?;
                }
            }
            y += ROW;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::svg;
    use super::*;

    #[test]
    fn every_row_and_column_is_there() {
        let dot = |value: f64| Dot { low: value * 0.8, value, high: value * 1.3 };
        let row = |group: &str, name: &str, x: f64| Row {
            group: group.into(),
            name: name.into(),
            dots: vec![Some(vec![dot(x), dot(200.0 * x)]), None],
        };
        let plot = DotPlot {
            title: "Two GPUs".into(),
            columns: vec!["time, ms".into(), "power, W".into()],
            series: vec!["batch 1".into(), "batch 64".into()],
            rows: vec![row("vgg16", "v100", 0.1), row("vgg16", "t4", 0.3), row("resnet50", "v100", 0.2)],
            notes: vec!["predict compare".into()],
        };
        let text = svg(&plot).expect("drawn");
        for expected in ["Two GPUs", "time, ms", "power, W", "batch 64", "vgg16", "resnet50", "t4", "3 predictions"] {
            assert!(text.contains(expected), "{expected}");
        }
        assert_eq!(text.matches("vgg16").count(), 1, "a group is named once");
        // On a phone columns stand one below the other, each with all names.
        let drawings = super::super::drawn(&plot).expect("drawn");
        assert_eq!(drawings.iter().map(|svg| svg.matches("vgg16").count()).collect::<Vec<_>>(), [2, 1, 1]);
        assert!(drawings[0].matches("<circle").count() == 7, "every dot is there once");
        // Two columns of three rows, one more mark in the legend.
        assert_eq!(text.matches("<circle").count(), 7);
    }
}
