//! Many points in a panel: cells, each darker the more points lie in it, so that a drawing does not grow with them.

use super::{Area, FigureError, SMALL, colour, drawing, width_of};
use plotters::prelude::*;
use std::collections::BTreeMap;

/// Width of a cell in pixels.
const CELL: i32 = 3;
/// Points from which on a cell takes a deeper shade, and the shades.
const SHADES: [(usize, f64); 3] = [(6, 1.0), (2, 0.7), (1, 0.4)];

/// Draws points given in pixels.
pub(crate) fn cloud<B: DrawingBackend>(
    area: &Area<B>,
    points: impl Iterator<Item = (i32, i32)>,
    index: usize,
) -> Result<(), FigureError> {
    let mut cells: BTreeMap<(i32, i32), usize> = BTreeMap::new();
    for (x, y) in points {
        *cells.entry((x.div_euclid(CELL), y.div_euclid(CELL))).or_default() += 1;
    }
    for ((x, y), count) in cells {
        let shade = SHADES.iter().find(|(least, _)| count >= *least).map_or(1.0, |(_, shade)| *shade);
        let corners = [(x * CELL, y * CELL), ((x + 1) * CELL, (y + 1) * CELL)];
        area.draw(&Rectangle::new(corners, colour(index).mix(shade).filled())).map_err(drawing)?;
    }
    Ok(())
}

/// Text of small letters cut to a width in pixels.
pub(crate) fn cut(text: &str, width: i32) -> String {
    let mut kept = text.to_string();
    while width_of(&kept, SMALL) > width && kept.chars().count() > 2 {
        kept = kept.chars().take(kept.chars().count() - 2).chain(['…']).collect();
    }
    kept
}
