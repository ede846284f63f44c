//! Figures: values into drawings, one file per figure. Nothing is computed here but where a mark goes.
//!
//! Colours are Okabe and Ito's, told apart by most colour-blind readers and never the only difference: lines differ by
//! their dashes, marks by their shapes. On a dark screen paper, ink and grid are exchanged by a style sheet in the SVG;
//! in print they are not.

pub mod comparison;
pub mod curves;
pub mod fleet;
pub mod sensitivity;

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

/// Why a figure was not drawn.
#[derive(Debug, thiserror::Error)]
pub enum FigureError {
    /// There is nothing to draw, or values that no axis shows.
    #[error("no figure: {0}")]
    Nothing(String),
    /// The drawing library refused.
    #[error("the figure could not be drawn: {0}")]
    Drawing(String),
}

pub(crate) type Area<B> = DrawingArea<B, Shift>;

/// Something that can be drawn.
pub trait Figure {
    /// What it shows, for those who cannot see it.
    fn title(&self) -> &str;
    /// Width and height in pixels.
    fn size(&self) -> (u32, u32);
    /// Draws it.
    ///
    /// # Errors
    /// Where there is nothing to draw, or the backend refuses.
    fn draw<B: DrawingBackend>(&self, area: &Area<B>) -> Result<(), FigureError>;
}

pub(crate) const PAPER: RGBColor = RGBColor(0xFF, 0xFF, 0xFF);
pub(crate) const INK: RGBColor = RGBColor(0x20, 0x24, 0x2A);
pub(crate) const FAINT: RGBColor = RGBColor(0x6A, 0x70, 0x78);
pub(crate) const GRID: RGBColor = RGBColor(0xE2, 0xE5, 0xE9);

/// Okabe and Ito's colours that are seen on white and on black.
pub(crate) const PALETTE: [RGBColor; 6] = [
    RGBColor(0xD5, 0x5E, 0x00),
    RGBColor(0x00, 0x72, 0xB2),
    RGBColor(0x00, 0x9E, 0x73),
    RGBColor(0xCC, 0x79, 0xA7),
    RGBColor(0xE6, 0x9F, 0x00),
    RGBColor(0x56, 0xB4, 0xE9),
];

pub(crate) fn colour(index: usize) -> RGBColor {
    PALETTE[index % PALETTE.len()]
}

/// What a dark screen shows instead of paper, ink, faint ink and grid.
const DARK: [(RGBColor, &str); 4] = [(PAPER, "#14171B"), (INK, "#E8EAED"), (FAINT, "#A4ABB3"), (GRID, "#343A42")];

/// Vector graphics: one SVG document.
///
/// # Errors
/// Where there is nothing to draw.
pub fn svg(figure: &impl Figure) -> Result<String, FigureError> {
    let mut text = String::new();
    {
        #[cfg(feature = "bitmap")]
        bitmap::fonts()?;
        let area = SVGBackend::with_string(&mut text, figure.size()).into_drawing_area();
        area.fill(&PAPER).map_err(drawing)?;
        figure.draw(&area)?;
        area.present().map_err(drawing)?;
    }
    let rules: String = DARK
        .iter()
        .map(|(RGBColor(r, g, b), dark)| {
            let light = format!("#{r:02X}{g:02X}{b:02X}");
            format!("svg.figure [fill=\"{light}\"]{{fill:{dark}}}svg.figure [stroke=\"{light}\"]{{stroke:{dark}}}")
        })
        .collect();
    let head = format!(
        "<svg class=\"figure\" role=\"img\" aria-label=\"{}\" style=\"max-width:100%;height:auto\" ",
        escape(figure.title())
    );
    let style = format!("<style>@media screen and (prefers-color-scheme: dark){{{rules}}}</style>\n");
    let text = text.replacen("<svg ", &head, 1);
    Ok(match text.find('\n') {
        Some(end) => format!("{}\n{style}{}", &text[..end], &text[end + 1..]),
        None => text,
    })
}

#[cfg(feature = "bitmap")]
pub use bitmap::png;

#[cfg(feature = "bitmap")]
mod bitmap {
    use super::{Figure, FigureError, PAPER, drawing};
    use plotters::prelude::*;
    use plotters::style::{FontStyle, register_font};

    /// With the bitmap backend's fonts even vector graphics are laid out by a font's own widths.
    pub(super) fn fonts() -> Result<(), FigureError> {
        register_font("sans-serif", FontStyle::Normal, dejavu::sans::regular())
            .map_err(|_| FigureError::Drawing("the font is not readable".into()))
    }

    /// A bitmap: one PNG document.
    ///
    /// # Errors
    /// Where there is nothing to draw.
    pub fn png(figure: &impl Figure) -> Result<Vec<u8>, FigureError> {
        fonts()?;
        let (width, height) = figure.size();
        let mut pixels = vec![0u8; width as usize * height as usize * 3];
        {
            let area = BitMapBackend::with_buffer(&mut pixels, (width, height)).into_drawing_area();
            area.fill(&PAPER).map_err(drawing)?;
            figure.draw(&area)?;
            area.present().map_err(drawing)?;
        }
        let mut bytes = Vec::new();
        let mut encoder = png::Encoder::new(&mut bytes, width, height);
        encoder.set_color(png::ColorType::Rgb);
        encoder.set_depth(png::BitDepth::Eight);
        let written = encoder.write_header().and_then(|mut writer| writer.write_image_data(&pixels));
        written.map_err(|e| FigureError::Drawing(e.to_string()))?;
        Ok(bytes)
    }
}

pub(crate) fn drawing(error: impl std::fmt::Display) -> FigureError {
    FigureError::Drawing(error.to_string())
}

/// Text within markup.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;").replace('\'', "&#39;")
}

/// Width of text of a size in pixels, roughly: no font is read.
pub(crate) fn width_of(text: &str, size: u32) -> i32 {
    (text.chars().count() as f64 * f64::from(size) * 0.56).ceil() as i32
}

/// Text from a place on.
pub(crate) fn write<B: DrawingBackend>(
    area: &Area<B>,
    text: &str,
    at: (i32, i32),
    size: u32,
    ink: &RGBColor,
    anchor: HPos,
) -> Result<(), FigureError> {
    let style = ("sans-serif", size).into_font().color(ink).pos(Pos::new(anchor, VPos::Center));
    area.draw_text(text, &style, at).map_err(drawing)
}

/// Small lines under a figure, each cut into as many as its width needs.
pub(crate) fn wrapped(lines: &[String], width: u32, size: u32) -> Vec<String> {
    let most = (f64::from(width) / (f64::from(size) * 0.56)) as usize;
    let mut out: Vec<String> = Vec::new();
    for line in lines {
        let mut current = String::new();
        for word in line.split(' ') {
            if !current.is_empty() && current.chars().count() + 1 + word.chars().count() > most {
                out.push(std::mem::take(&mut current));
            }
            if !current.is_empty() {
                current.push(' ');
            }
            current += word;
        }
        out.push(current);
    }
    out
}

/// Size of small text.
pub(crate) const SMALL: u32 = 13;

/// Title above and small lines below; gives the area between.
pub(crate) fn frame<B: DrawingBackend>(area: &Area<B>, title: &str, notes: &[String]) -> Result<Area<B>, FigureError> {
    let (width, height) = area.dim_in_pixel();
    write(area, title, (12, 22), 18, &INK, HPos::Left)?;
    let notes = wrapped(notes, width - 24, SMALL);
    let line = SMALL as i32 + 4;
    let top = height as i32 - 8 - line * notes.len() as i32;
    for (i, note) in notes.iter().enumerate() {
        write(area, note, (12, top + line * i as i32 + line / 2), SMALL, &FAINT, HPos::Left)?;
    }
    Ok(area.clone().margin(40, height.saturating_sub(top.max(60) as u32) + 4, 8, 8))
}

/// Pixels that a frame needs above and below.
pub(crate) fn frame_height(notes: &[String], width: u32) -> u32 {
    40 + 12 + (SMALL + 4) * wrapped(notes, width - 24, SMALL).len() as u32
}

/// Dashes of the lines of a figure, in pixels drawn and left out; solid first.
pub(crate) const DASHES: [(i32, i32); 6] = [(1, 0), (9, 4), (2, 4), (14, 5), (5, 2), (3, 8)];

/// A line through points given in pixels, with dashes.
pub(crate) fn line<B: DrawingBackend>(
    area: &Area<B>,
    points: &[(i32, i32)],
    index: usize,
    width: u32,
) -> Result<(), FigureError> {
    let style = colour(index).stroke_width(width);
    let (on, off) = DASHES[index % DASHES.len()];
    if off == 0 {
        return area.draw(&PathElement::new(points.to_vec(), style)).map_err(drawing);
    }
    for piece in dashed(points, f64::from(on), f64::from(off)) {
        area.draw(&PathElement::new(piece, style)).map_err(drawing)?;
    }
    Ok(())
}

/// A line cut into dashes along its length.
fn dashed(points: &[(i32, i32)], on: f64, off: f64) -> Vec<Vec<(i32, i32)>> {
    let (mut pieces, mut piece) = (Vec::new(), Vec::new());
    let (mut drawing, mut left) = (true, on);
    for pair in points.windows(2) {
        let (a, b) = ((f64::from(pair[0].0), f64::from(pair[0].1)), (f64::from(pair[1].0), f64::from(pair[1].1)));
        let length = (b.0 - a.0).hypot(b.1 - a.1);
        let at =
            |s: f64| ((a.0 + (b.0 - a.0) * s / length).round() as i32, (a.1 + (b.1 - a.1) * s / length).round() as i32);
        let mut done = 0.0;
        if drawing && piece.is_empty() {
            piece.push(pair[0]);
        }
        while length - done > left {
            done += left;
            if drawing {
                piece.push(at(done));
                pieces.push(std::mem::take(&mut piece));
                left = off;
            } else {
                piece = vec![at(done)];
                left = on;
            }
            drawing = !drawing;
        }
        left -= length - done;
        if drawing {
            piece.push(pair[1]);
        }
    }
    if piece.len() > 1 {
        pieces.push(piece);
    }
    pieces
}

/// A mark whose shape tells series apart.
pub(crate) fn mark<B: DrawingBackend>(
    area: &Area<B>,
    at: (i32, i32),
    index: usize,
    size: i32,
) -> Result<(), FigureError> {
    let fill = colour(index).filled();
    let (x, y) = at;
    let polygon = |corners: Vec<(i32, i32)>| area.draw(&Polygon::new(corners, fill)).map_err(drawing);
    match index % 5 {
        0 => area.draw(&Circle::new(at, size, fill)).map_err(drawing),
        1 => area.draw(&Rectangle::new([(x - size, y - size), (x + size, y + size)], fill)).map_err(drawing),
        2 => polygon(vec![(x, y - size - 1), (x - size - 1, y + size), (x + size + 1, y + size)]),
        3 => polygon(vec![(x, y - size - 2), (x + size + 2, y), (x, y + size + 2), (x - size - 2, y)]),
        _ => polygon(vec![(x - size - 1, y - size), (x + size + 1, y - size), (x, y + size + 1)]),
    }
}

/// How a series is shown in a legend.
#[derive(Clone, Copy)]
pub(crate) enum Sample {
    Line,
    Mark,
}

/// Samples with their names, in a row from the left, in the middle of the area's height.
pub(crate) fn legend<B: DrawingBackend>(area: &Area<B>, entries: &[(usize, Sample, &str)]) -> Result<(), FigureError> {
    let (width, height) = area.dim_in_pixel();
    let (mut x, mut y) = (8, height as i32 / 2);
    for &(index, sample, name) in entries {
        let needs = 52 + width_of(name, SMALL);
        if x > 8 && x + needs > width as i32 {
            (x, y) = (8, y + SMALL as i32 + 6);
        }
        match sample {
            Sample::Line => line(area, &[(x, y), (x + 28, y)], index, 2)?,
            Sample::Mark => mark(area, (x + 14, y), index, 4)?,
        }
        write(area, name, (x + 34, y), SMALL, &INK, HPos::Left)?;
        x += needs;
    }
    Ok(())
}

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
        fits.or_else(|| lists.iter().find(|l| l.len() >= 2).cloned()).unwrap_or_else(|| vec![self.low, self.high])
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
        write(area, self.title, (left, 14), 15, &INK, HPos::Left)?;
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
    }

    #[test]
    fn a_scale_runs_from_end_to_end() {
        let linear = Scale::new(10.0, 20.0, false, 100, 0);
        assert_eq!((linear.at(10.0), linear.at(15.0), linear.at(20.0), linear.at(99.0)), (100, 50, 0, 0));
        let log = Scale::new(1.0, 100.0, true, 0, 100);
        assert_eq!((log.at(1.0), log.at(10.0), log.at(100.0)), (0, 50, 100));
    }

    #[test]
    fn dashes_have_their_length() {
        let pieces = dashed(&[(0, 0), (30, 0), (60, 0)], 10.0, 5.0);
        assert_eq!(pieces[0], [(0, 0), (10, 0)]);
        assert_eq!(pieces[1], [(15, 0), (25, 0)]);
        assert_eq!(pieces.len(), 4);
    }

    #[test]
    fn labels_are_short() {
        let each = [0.0, 0.25, 1.0, 150.0, 12_500.0, 3e6, 0.001];
        assert_eq!(each.map(label), ["0", "0.25", "1", "150", "12.5k", "3M", "0.001"]);
    }

    #[cfg(feature = "bitmap")]
    #[test]
    fn a_bitmap_has_the_size_and_is_not_blank() {
        struct Dot;
        impl Figure for Dot {
            fn title(&self) -> &str {
                "dot"
            }
            fn size(&self) -> (u32, u32) {
                (60, 40)
            }
            fn draw<B: DrawingBackend>(&self, area: &Area<B>) -> Result<(), FigureError> {
                write(area, "text", (4, 20), 12, &INK, HPos::Left)
            }
        }
        let bytes = png(&Dot).expect("drawn");
        let mut reader = ::png::Decoder::new(std::io::Cursor::new(bytes)).read_info().expect("a PNG");
        let mut pixels = vec![0; reader.output_buffer_size().expect("small")];
        let info = reader.next_frame(&mut pixels).expect("a frame");
        assert_eq!((info.width, info.height), (60, 40));
        assert!(pixels.iter().any(|p| *p < 100) && pixels.iter().any(|p| *p == 255));
    }

    #[test]
    fn lines_are_cut_between_words() {
        assert_eq!(wrapped(&["aa bb cc".into()], 40, 13), ["aa bb", "cc"]);
    }
}
