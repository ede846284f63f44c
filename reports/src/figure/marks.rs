//! Lines and marks that are told apart without their colour, and the legend that names them.

use super::{Area, FigureError, INK, PALETTE, SMALL, colour, drawing, width_of, write};
use plotters::prelude::*;
use plotters::style::text_anchor::HPos;

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
    // As many dashes as colours: shifted by one when both begin anew.
    let (on, off) = DASHES[(index + index / PALETTE.len()) % DASHES.len()];
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

/// Pixels between a legend's lines.
const LINE: i32 = SMALL as i32 + 6;

/// Where every entry of a legend begins: pixels from the left, and its line.
fn places(entries: &[(usize, Sample, &str)], width: u32) -> Vec<(i32, i32)> {
    let (mut x, mut line) = (8, 0);
    let place = |(_, _, name): &(usize, Sample, &str)| {
        let needs = 52 + width_of(name, SMALL);
        if x > 8 && x + needs > width as i32 {
            (x, line) = (8, line + 1);
        }
        x += needs;
        (x - needs, line)
    };
    entries.iter().map(place).collect()
}

/// Pixels that a legend needs; none without entries.
pub(crate) fn legend_height(entries: &[(usize, Sample, &str)], width: u32) -> u32 {
    places(entries, width).last().map_or(0, |(_, line)| (30 + LINE * line) as u32)
}

/// Samples with their names, in rows from the left, in the middle of the area's height.
pub(crate) fn legend<B: DrawingBackend>(area: &Area<B>, entries: &[(usize, Sample, &str)]) -> Result<(), FigureError> {
    let (width, height) = area.dim_in_pixel();
    let places = places(entries, width);
    let top = (height as i32 - LINE * places.last().map_or(0, |p| p.1)) / 2;
    for (&(index, sample, name), (x, line_of)) in entries.iter().zip(places) {
        let y = top + LINE * line_of;
        match sample {
            Sample::Line => line(area, &[(x, y), (x + 28, y)], index, 2)?,
            Sample::Mark => mark(area, (x + 14, y), index, 4)?,
        }
        write(area, name, (x + 34, y), SMALL, &INK, HPos::Left)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dashes_have_their_length() {
        let pieces = dashed(&[(0, 0), (30, 0), (60, 0)], 10.0, 5.0);
        assert_eq!(pieces[0], [(0, 0), (10, 0)]);
        assert_eq!(pieces[1], [(15, 0), (25, 0)]);
        assert_eq!(pieces.len(), 4);
    }
}
