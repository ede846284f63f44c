//! Axes: where a value goes, which values are worth a label, and how a panel shows them.

use super::{Area, FAINT, FigureError, GRID, INK, SMALL, drawing, width_of, write};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

/// Round numbers that cover a range, at most about `most` of them.
pub(crate) fn ticks(low: f64, high: f64, most: usize) -> Vec<f64> {
    let span = high - low;
    if !(span.is_finite() && span > 0.0) {
        return vec![low];
    }
    let raw = span / most.max(1) as f64;
    let magnitude = 10f64.powf(raw.log10().floor());
    let step = [1.0, 2.0, 2.5, 5.0, 10.0].into_iter().map(|s| s * magnitude).find(|s| *s >= raw).unwrap_or(raw);
    let first = (low / step - 1e-9).ceil() as i64;
    let last = (high / step + 1e-9).floor() as i64;
    (first..=last).map(|i| i as f64 * step).collect()
}

/// An axis: where a value goes, in pixels.
#[derive(Clone, Copy)]
pub(crate) struct Scale {
    low: f64,
    high: f64,
    logarithmic: bool,
    from: i32,
    to: i32,
}

impl Scale {
    pub(crate) fn new(low: f64, high: f64, logarithmic: bool, from: i32, to: i32) -> Self {
        Self { low, high, logarithmic, from, to }
    }

    pub(crate) fn at(&self, value: f64) -> i32 {
        let value = value.clamp(self.low.min(self.high), self.high.max(self.low));
        let share = if self.logarithmic {
            (value / self.low).ln() / (self.high / self.low).ln()
        } else {
            (value - self.low) / (self.high - self.low)
        };
        self.from + (share * f64::from(self.to - self.from)).round() as i32
    }

    /// Values worth a label, at most about so many.
    pub(crate) fn ticks(&self, most: usize) -> Vec<f64> {
        if !self.logarithmic {
            return ticks(self.low, self.high, most);
        }
        let decades = |digits: &[f64]| -> Vec<f64> {
            let (from, to) = (self.low.log10().floor() as i32, self.high.log10().ceil() as i32);
            let all = (from..=to).flat_map(|e| digits.iter().map(move |d| d * 10f64.powi(e)));
            all.filter(|v| *v >= self.low * (1.0 - 1e-9) && *v <= self.high * (1.0 + 1e-9)).collect()
        };
        let choices = [&[1.0, 2.0, 3.0, 5.0, 7.0][..], &[1.0, 2.0, 5.0], &[1.0, 3.0], &[1.0]];
        let lists = choices.map(decades);
        let fits = lists.iter().find(|l| l.len() <= most && l.len() >= 2).cloned();
        // Over many decades not every one has a label.
        let thinned = |l: &Vec<f64>| l.iter().copied().step_by(l.len().div_ceil(most.max(1))).collect();
        fits.or_else(|| lists.iter().rev().find(|l| l.len() >= 2).map(thinned))
            .unwrap_or_else(|| vec![self.low, self.high])
    }
}

/// A label of an axis: three digits at most, without an exponent.
pub(crate) fn label(value: f64) -> String {
    if value == 0.0 {
        return "0".into();
    }
    let text = if value.abs() >= 1e6 {
        format!("{}M", crate::table::significant(value / 1e6, 3))
    } else if value.abs() >= 1e4 {
        format!("{}k", crate::table::significant(value / 1e3, 3))
    } else {
        crate::table::significant(value, 3)
    };
    if text.contains('.') {
        let (number, suffix) = text.split_at(text.find(['k', 'M']).unwrap_or(text.len()));
        return format!("{}{suffix}", number.trim_end_matches('0').trim_end_matches('.'));
    }
    text
}

/// Axes of a panel: grid, labels and names; gives the scales of x and y.
pub(crate) struct Axes<'a> {
    pub(crate) title: &'a str,
    pub(crate) x: (&'a str, f64, f64, bool),
    pub(crate) y: (&'a str, f64, f64, bool),
}

impl Axes<'_> {
    pub(crate) fn draw<B: DrawingBackend>(&self, area: &Area<B>) -> Result<(Scale, Scale), FigureError> {
        let (width, height) = area.dim_in_pixel();
        let (width, height) = (width as i32, height as i32);
        let (left, right, top, bottom) = (58, width - 14, 30, height - 46);
        let x = Scale::new(self.x.1, self.x.2, self.x.3, left, right);
        let y = Scale::new(self.y.1, self.y.2, self.y.3, bottom, top);
        let thin = GRID.stroke_width(1);
        for value in x.ticks(((right - left) / 55).max(2) as usize) {
            let at = x.at(value);
            area.draw(&PathElement::new(vec![(at, top), (at, bottom)], thin)).map_err(drawing)?;
            write(area, &label(value), (at, bottom + 12), SMALL, &INK, HPos::Center)?;
        }
        for value in y.ticks(((bottom - top) / 32).max(2) as usize) {
            let at = y.at(value);
            area.draw(&PathElement::new(vec![(left, at), (right, at)], thin)).map_err(drawing)?;
            write(area, &label(value), (left - 6, at), SMALL, &INK, HPos::Right)?;
        }
        let corner = vec![(left, top), (left, bottom), (right, bottom)];
        area.draw(&PathElement::new(corner, FAINT.stroke_width(1))).map_err(drawing)?;
        write(area, self.x.0, ((left + right) / 2, bottom + 32), SMALL, &INK, HPos::Center)?;
        let style = ("sans-serif", SMALL).into_font().transform(FontTransform::Rotate270).color(&INK);
        let style = style.pos(Pos::new(HPos::Center, VPos::Center));
        area.draw_text(self.y.0, &style, (12, (top + bottom) / 2)).map_err(drawing)?;
        // A title that is wider than its panel begins further left.
        let from = left.min(width - 4 - width_of(self.title, 15)).max(4);
        write(area, self.title, (from, 14), 15, &INK, HPos::Left)?;
        Ok((x, y))
    }
}

/// Lowest and highest of values, with some air; `None` where there is none that is finite.
pub(crate) fn range(values: impl Iterator<Item = f64>, logarithmic: bool) -> Option<(f64, f64)> {
    let ok = |v: &f64| v.is_finite() && (!logarithmic || *v > 0.0);
    let (low, high) = values.filter(ok).fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), v| (l.min(v), h.max(v)));
    if low > high {
        return None;
    }
    if logarithmic {
        let air = (high / low).powf(0.06).max(1.1);
        return Some((low / air, high * air));
    }
    let air = 0.06 * (high - low).max(high.abs() * 0.05).max(1e-12);
    Some((low - air, high + air))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_cover_the_range() {
        assert_eq!(ticks(0.0, 10.0, 5), [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]);
        assert_eq!(ticks(0.72, 1.31, 6).len(), 6);
        assert_eq!(ticks(3.0, 3.0, 6), [3.0]);
        assert_eq!(Scale::new(0.5, 200.0, true, 0, 100).ticks(4), [1.0, 10.0, 100.0]);
        assert_eq!(Scale::new(0.5, 2e5, true, 0, 100).ticks(4), [1.0, 100.0, 1e4]);
    }

    #[test]
    fn a_scale_runs_from_end_to_end() {
        let linear = Scale::new(10.0, 20.0, false, 100, 0);
        assert_eq!((linear.at(10.0), linear.at(15.0), linear.at(20.0), linear.at(99.0)), (100, 50, 0, 0));
        let log = Scale::new(1.0, 100.0, true, 0, 100);
        assert_eq!((log.at(1.0), log.at(10.0), log.at(100.0)), (0, 50, 100));
    }

    #[test]
    fn labels_are_short() {
        let each = [0.0, 0.25, 1.0, 150.0, 12_500.0, 3e6, 0.001];
        assert_eq!(each.map(label), ["0", "0.25", "1", "150", "12.5k", "3M", "0.001"]);
    }
}
