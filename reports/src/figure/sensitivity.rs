//! What changes when an input is 10 % less or more: bars around the plan's own value, the widest first.

use super::cloud::cut;
use super::{
    Area, FAINT, Figure, FigureError, GRID, INK, SMALL, Sample, Scale, colour, drawing, frame, frame_height, label,
    legend, range, ticks, titled_height, width_of, write,
};
use joulecast_model::base::order::sort_by;
use plotters::prelude::*;
use plotters::style::text_anchor::HPos;

/// An input and what the result becomes, in percent of change; `None` where there is no plan then.
#[derive(Clone, Debug)]
pub struct Bar {
    /// The input.
    pub name: String,
    /// With 10 % less of it.
    pub less: Option<f64>,
    /// With 10 % more.
    pub more: Option<f64>,
}

/// The figure.
#[derive(Clone, Debug)]
pub struct Sensitivity {
    /// Which result changes.
    pub title: String,
    /// One per input.
    pub bars: Vec<Bar>,
    /// The command that made it.
    pub notes: Vec<String>,
}

const ROW: i32 = 26;
const WIDTH: u32 = 760;

impl Figure for Sensitivity {
    fn title(&self) -> &str {
        &self.title
    }

    fn size(&self) -> (u32, u32) {
        (WIDTH, frame_height(&self.notes, WIDTH) + 30 + 40 + ROW as u32 * self.bars.len() as u32)
    }

    fn height_at(&self, width: u32) -> Option<u32> {
        Some(titled_height(&self.title, &self.notes, width) + 30 + 40 + ROW as u32 * self.bars.len() as u32)
    }

    fn draw<B: DrawingBackend>(&self, area: &Area<B>) -> Result<(), FigureError> {
        let ends = || self.bars.iter().flat_map(|b| [b.less, b.more]).flatten().chain([0.0]);
        let nothing = || FigureError::Nothing("no sensitivity to draw".into());
        let (low, high) = range(ends(), false).filter(|_| !self.bars.is_empty()).ok_or_else(nothing)?;
        let inner = frame(area, &self.title, &self.notes)?;
        let (names, sheet) = inner.split_vertically(30);
        legend(&names, &[(1, Sample::Mark, "10 % less"), (0, Sample::Mark, "10 % more")])?;
        let widest = self.bars.iter().map(|b| width_of(&b.name, SMALL)).max().unwrap_or(0);
        let right = area.dim_in_pixel().0 as i32 - 60;
        let left = (widest + 24).min(right / 2 + 40);
        let bottom = ROW * self.bars.len() as i32;
        let x = Scale::new(low, high, false, left, right);
        for value in ticks(low, high, ((right - left) / 60).clamp(2, 8) as usize) {
            let at = x.at(value);
            sheet.draw(&PathElement::new(vec![(at, 0), (at, bottom)], GRID.stroke_width(1))).map_err(drawing)?;
            let sign = if value > 0.0 { "+" } else { "" };
            write(&sheet, &format!("{sign}{} %", label(value)), (at, bottom + 12), SMALL, &INK, HPos::Center)?;
        }
        let zero = x.at(0.0);
        sheet.draw(&PathElement::new(vec![(zero, 0), (zero, bottom)], FAINT.stroke_width(1))).map_err(drawing)?;
        let mut order: Vec<&Bar> = self.bars.iter().collect();
        let span = |b: &Bar| b.less.unwrap_or(f64::INFINITY).abs().max(b.more.unwrap_or(f64::INFINITY).abs());
        sort_by(&mut order, |a, b| span(b).total_cmp(&span(a)));
        for (i, bar) in order.into_iter().enumerate() {
            let y = ROW * i as i32;
            write(&sheet, &cut(&bar.name, left - 14), (8, y + ROW / 2), SMALL, &INK, HPos::Left)?;
            for (end, index, half) in [(bar.less, 1, 0), (bar.more, 0, 1)] {
                let (top, low) = (y + 4 + 9 * half, y + 4 + 9 * (half + 1));
                match end {
                    Some(value) => {
                        let corners = [(zero.min(x.at(value)), top), (zero.max(x.at(value)).max(zero + 1), low)];
                        sheet.draw(&Rectangle::new(corners, colour(index).filled())).map_err(drawing)?;
                    }
                    None => write(&sheet, "no plan", (zero + 6, (top + low) / 2), SMALL - 2, &FAINT, HPos::Left)?,
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::svg;
    use super::*;

    #[test]
    fn bars_stand_by_their_reach_and_a_missing_plan_is_said() {
        let bar = |name: &str, less, more| Bar { name: name.into(), less, more };
        let figure = Sensitivity {
            title: "Cost".into(),
            bars: vec![bar("PUE", Some(-2.0), Some(3.0)), bar("load", Some(-14.0), None)],
            notes: vec!["predict plan".into()],
        };
        let text = svg(&figure).expect("drawn");
        let place = |name: &str| text.find(name).unwrap_or_else(|| panic!("{name}"));
        assert!(place("load") < place("PUE"));
        assert_eq!(text.matches("no plan").count(), 1);
        // -14 to 3 % in steps of 2.5: none is rounded to a whole percent.
        assert!(text.contains("-2.5 %") && text.contains("+2.5 %"), "{text}");
    }
}
