//! The sheet that figures are drawn on: colours, text, frame, and SVG out of it.

use super::FigureError;
#[cfg(feature = "bitmap")]
use super::bitmap;
use crate::markup::escape;
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

pub(super) type Area<B> = DrawingArea<B, Shift>;

/// Something that can be drawn.
pub trait Figure {
    /// What it shows, for those who cannot see it.
    fn title(&self) -> &str;
    /// Width and height in pixels.
    fn size(&self) -> (u32, u32);
    /// Height of a drawing that is so wide, where it can be; `None` of what has one width alone.
    fn height_at(&self, _width: u32) -> Option<u32> {
        None
    }
    /// Draws it.
    ///
    /// # Errors
    /// Where there is nothing to draw, or the backend refuses.
    fn draw<B: DrawingBackend>(&self, area: &Area<B>) -> Result<(), FigureError>;
}

pub(super) const PAPER: RGBColor = RGBColor(0xFF, 0xFF, 0xFF);
pub(super) const INK: RGBColor = RGBColor(0x20, 0x24, 0x2A);
pub(super) const FAINT: RGBColor = RGBColor(0x6A, 0x70, 0x78);
pub(super) const GRID: RGBColor = RGBColor(0xE2, 0xE5, 0xE9);

/// Okabe and Ito's colours that are seen on white and on black.
pub(super) const PALETTE: [RGBColor; 6] = [
    RGBColor(0xD5, 0x5E, 0x00),
    RGBColor(0x00, 0x72, 0xB2),
    RGBColor(0x00, 0x9E, 0x73),
    RGBColor(0xCC, 0x79, 0xA7),
    RGBColor(0xE6, 0x9F, 0x00),
    RGBColor(0x56, 0xB4, 0xE9),
];

pub(super) fn colour(index: usize) -> RGBColor {
    PALETTE[index % PALETTE.len()]
}

/// What a dark screen shows instead of paper, ink, faint ink and grid.
const DARK: [(RGBColor, &str); 4] = [(PAPER, "#14171B"), (INK, "#E8EAED"), (FAINT, "#A4ABB3"), (GRID, "#343A42")];

/// Widths of the drawings of a page: for phones, for tablets, for desks. `document.rs` says on which screens each is seen.
const WIDTHS: [u32; 3] = [328, 640, 1000];

/// Vector graphics for a page: a drawing for each of three widths, or one alone.
///
/// # Errors
/// Where there is nothing to draw.
pub fn drawn(figure: &impl Figure) -> Result<Vec<String>, FigureError> {
    let at = |width| Some((width, figure.height_at(width)?));
    match WIDTHS.map(at) {
        [Some(narrow), Some(middle), Some(wide)] => {
            [narrow, middle, wide].map(|size| sized(figure, size)).into_iter().collect()
        }
        _ => Ok(vec![svg(figure)?]),
    }
}

/// Vector graphics: one SVG document.
///
/// # Errors
/// Where there is nothing to draw.
pub fn svg(figure: &impl Figure) -> Result<String, FigureError> {
    sized(figure, figure.size())
}

fn sized(figure: &impl Figure, size: (u32, u32)) -> Result<String, FigureError> {
    let mut text = String::new();
    {
        #[cfg(feature = "bitmap")]
        bitmap::fonts()?;
        let area = SVGBackend::with_string(&mut text, size).into_drawing_area();
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

pub(super) fn drawing(error: impl std::fmt::Display) -> FigureError {
    FigureError::Drawing(error.to_string())
}

/// Width of a letter over the size, roughly: no font is read. Those of DejaVu Sans, a wide one, are 0.64 em at most but for
/// few, and an em is the size over 1.24.
const LETTER: f64 = 0.52;

/// Width of text of a size in pixels, roughly.
pub(super) fn width_of(text: &str, size: u32) -> i32 {
    (text.chars().count() as f64 * f64::from(size) * LETTER).ceil() as i32
}

/// Text from a place on.
pub(super) fn write<B: DrawingBackend>(
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
pub(super) fn wrapped(lines: &[String], width: u32, size: u32) -> Vec<String> {
    let most = (f64::from(width) / (f64::from(size) * LETTER)) as usize;
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
pub(super) const SMALL: u32 = 13;

/// Size of a title, and the height of its lines.
const TITLE: u32 = 18;
const TITLED: i32 = 24;

/// Title above and small lines below; gives the area between.
pub(super) fn frame<B: DrawingBackend>(area: &Area<B>, title: &str, notes: &[String]) -> Result<Area<B>, FigureError> {
    let (width, height) = area.dim_in_pixel();
    let titles = wrapped(&[title.to_string()], width - 24, TITLE);
    for (i, title) in titles.iter().enumerate() {
        write(area, title, (12, 22 + TITLED * i as i32), TITLE, &INK, HPos::Left)?;
    }
    let notes = wrapped(notes, width - 24, SMALL);
    let line = SMALL as i32 + 4;
    let top = height as i32 - 8 - line * notes.len() as i32;
    for (i, note) in notes.iter().enumerate() {
        write(area, note, (12, top + line * i as i32 + line / 2), SMALL, &FAINT, HPos::Left)?;
    }
    let above = 40 + TITLED * (titles.len() as i32 - 1);
    Ok(area.clone().margin(above, height.saturating_sub(top.max(60) as u32) + 4, 8, 8))
}

/// Pixels that a frame needs above and below where the title may take several lines.
pub(super) fn titled_height(title: &str, notes: &[String], width: u32) -> u32 {
    let lines = wrapped(&[title.to_string()], width - 24, TITLE).len() as u32;
    frame_height(notes, width) + TITLED as u32 * (lines - 1)
}

/// Pixels that a frame needs above and below.
pub(super) fn frame_height(notes: &[String], width: u32) -> u32 {
    40 + 12 + (SMALL + 4) * wrapped(notes, width - 24, SMALL).len() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_cut_between_words() {
        assert_eq!(wrapped(&["aa bb cc".into()], 40, 13), ["aa bb", "cc"]);
    }
}
