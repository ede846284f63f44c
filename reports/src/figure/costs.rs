//! What candidates come to, part by part: a bar of stacked parts for each, with the interval of the whole.

use super::cloud::cut;
use super::{
    Area, Figure, FigureError, GRID, INK, SMALL, Sample, Scale, colour, drawing, frame, label, legend, legend_height,
    ticks, titled_height, width_of, write,
};
use plotters::prelude::*;
use plotters::style::text_anchor::HPos;

/// A candidate.
#[derive(Clone, Debug)]
pub struct Bar {
    /// Its name.
    pub name: String,
    /// As many as there are parts, in their order.
    pub parts: Vec<f64>,
    /// Ends of the whole, where they are known.
    pub ends: (Option<f64>, Option<f64>),
    /// Whether it is the one to take.
    pub taken: bool,
}

/// The figure.
#[derive(Clone, Debug)]
pub struct Costs {
    /// What it shows, with its unit.
    pub title: String,
    /// Names of the parts.
    pub parts: Vec<String>,
    /// The candidates, from above.
    pub bars: Vec<Bar>,
    /// The command that made it.
    pub notes: Vec<String>,
}

const ROW: i32 = 30;
const WIDTH: u32 = 760;

impl Costs {
    fn all_notes(&self) -> Vec<String> {
        let line =
            "lines: from every step at its 5 % quantile to every step at its 95 % quantile; > : the plan's choice";
        std::iter::once(line.to_string()).chain(self.notes.iter().cloned()).collect()
    }

    fn entries(&self) -> Vec<(usize, Sample, &str)> {
        self.parts.iter().enumerate().map(|(i, n)| (i, Sample::Mark, n.as_str())).collect()
    }

    fn named(bar: &Bar) -> String {
        format!("{}{}", if bar.taken { "> " } else { "" }, bar.name)
    }
}

impl Figure for Costs {
    fn title(&self) -> &str {
        &self.title
    }

    fn size(&self) -> (u32, u32) {
        (WIDTH, self.height_at(WIDTH).unwrap_or_default())
    }

    fn height_at(&self, width: u32) -> Option<u32> {
        let frame = titled_height(&self.title, &self.all_notes(), width);
        Some(frame + legend_height(&self.entries(), width - 16) + 34 + ROW as u32 * self.bars.len() as u32)
    }

    fn draw<B: DrawingBackend>(&self, area: &Area<B>) -> Result<(), FigureError> {
        let whole = |bar: &Bar| bar.parts.iter().sum::<f64>();
        let most = self.bars.iter().map(|bar| whole(bar).max(bar.ends.1.unwrap_or(0.0))).fold(0.0, f64::max);
        if !(most > 0.0 && most.is_finite()) {
            return Err(FigureError::Nothing("no costs to draw".into()));
        }
        let inner = frame(area, &self.title, &self.all_notes())?;
        let (entries, width) = (self.entries(), area.dim_in_pixel().0);
        let (names, sheet) = inner.split_vertically(legend_height(&entries, width - 16));
        legend(&names, &entries)?;
        let widest = self.bars.iter().map(|bar| width_of(&Self::named(bar), SMALL)).max().unwrap_or(0);
        let left = (widest + 16).min(width as i32 * 2 / 5);
        let x = Scale::new(0.0, most * 1.04, false, left, width as i32 - 44);
        let bottom = ROW * self.bars.len() as i32;
        for value in ticks(0.0, most * 1.04, ((width as i32 - left) / 80).clamp(2, 8) as usize) {
            let at = x.at(value);
            sheet.draw(&PathElement::new(vec![(at, 0), (at, bottom)], GRID.stroke_width(1))).map_err(drawing)?;
            write(&sheet, &label(value), (at, bottom + 12), SMALL, &INK, HPos::Center)?;
        }
        for (i, bar) in self.bars.iter().enumerate() {
            let y = ROW * i as i32;
            write(&sheet, &cut(&Self::named(bar), left - 8), (4, y + ROW / 2), SMALL, &INK, HPos::Left)?;
            let mut from = 0.0;
            for (index, part) in bar.parts.iter().enumerate() {
                let corners = [(x.at(from), y + 6), (x.at(from + part), y + ROW - 10)];
                sheet.draw(&Rectangle::new(corners, colour(index).filled())).map_err(drawing)?;
                from += part;
            }
            if let (Some(low), Some(high)) = bar.ends {
                let at = y + ROW - 6;
                let line = vec![(x.at(low), at), (x.at(high), at)];
                sheet.draw(&PathElement::new(line, INK.stroke_width(2))).map_err(drawing)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::{drawn, svg};
    use super::*;

    #[test]
    fn parts_are_stacked_to_the_whole_and_the_choice_is_marked() {
        let bar = |name: &str, taken| Bar {
            name: name.into(),
            parts: vec![30.0, 10.0],
            ends: (Some(35.0), Some(50.0)),
            taken,
        };
        let figure = Costs {
            title: "Cost of a year, EUR".into(),
            parts: vec!["hardware".into(), "energy".into()],
            bars: vec![bar("t4", true), bar("v100", false)],
            notes: vec!["predict plan".into()],
        };
        let text = svg(&figure).expect("drawn");
        for expected in ["hardware", "energy", "&gt; t4", "v100", "predict plan"] {
            assert!(text.contains(expected), "{expected} in {text}");
        }
        // Where hardware ends energy begins: two bars of either part, the second three times as far as long.
        let widths: Vec<i32> =
            text.split("width=\"").skip(1).filter_map(|t| t.split('"').next()?.parse().ok()).collect();
        assert!(widths.iter().any(|a| widths.iter().any(|b| *b > 20 && (a - 3 * b).abs() <= 3)), "{widths:?}");
        assert_eq!(drawn(&figure).expect("drawn").len(), 3);
        assert!(svg(&Costs { bars: vec![], ..figure }).is_err());
    }
}
