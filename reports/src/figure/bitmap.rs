//! Figures as bitmaps. Text is drawn here: plotters' own loses each letter's bearings, so that words fall apart.

use super::{Figure, FigureError, PAPER, drawing};
use ab_glyph::{Font, FontRef, Glyph, PxScale, ScaleFont, point};
use plotters::prelude::*;
use plotters::style::{FontStyle, register_font};
use plotters_backend::text_anchor::{HPos, VPos};
use plotters_backend::{BackendColor, BackendCoord, BackendStyle, BackendTextStyle, DrawingErrorKind};

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
        let font = FontRef::try_from_slice(dejavu::sans::regular()).map_err(drawing)?;
        let backend = Lettered { pixels: BitMapBackend::with_buffer(&mut pixels, (width, height)), font };
        let area = backend.into_drawing_area();
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

/// plotters' bitmap with text of our own.
struct Lettered<'a> {
    pixels: BitMapBackend<'a>,
    font: FontRef<'static>,
}

type Drawn<'a> = Result<(), DrawingErrorKind<<BitMapBackend<'a> as DrawingBackend>::ErrorType>>;

/// plotters' vector graphics take a font size of the style's over this.
const SIZE_OVER_EM: f64 = 1.24;

impl Lettered<'_> {
    /// Letters of a text whose em has so many pixels, from 0 on along the base line, and their width.
    fn letters(&self, text: &str, em: f32) -> (Vec<Glyph>, f32) {
        let scale = PxScale::from(em * self.font.height_unscaled() / self.font.units_per_em().unwrap_or(1.0));
        let font = self.font.as_scaled(scale);
        let (mut letters, mut x, mut before) = (Vec::new(), 0.0, None);
        for id in text.chars().map(|c| font.glyph_id(c)) {
            x += before.map_or(0.0, |before| font.kern(before, id));
            letters.push(id.with_scale_and_position(scale, point(x, 0.0)));
            x += font.h_advance(id);
            before = Some(id);
        }
        (letters, x)
    }

    /// Height of a small letter above the base line.
    fn small(&self, em: f32) -> f32 {
        let (letters, _) = self.letters("x", em);
        let outline = letters.into_iter().next().and_then(|x| self.font.outline_glyph(x));
        outline.map_or(0.5 * em, |o| -o.px_bounds().min.y)
    }
}

impl<'a> DrawingBackend for Lettered<'a> {
    type ErrorType = <BitMapBackend<'a> as DrawingBackend>::ErrorType;

    fn get_size(&self) -> (u32, u32) {
        self.pixels.get_size()
    }

    fn ensure_prepared(&mut self) -> Drawn<'a> {
        self.pixels.ensure_prepared()
    }

    fn present(&mut self) -> Drawn<'a> {
        self.pixels.present()
    }

    fn draw_pixel(&mut self, point: BackendCoord, color: BackendColor) -> Drawn<'a> {
        self.pixels.draw_pixel(point, color)
    }

    fn draw_line<S: BackendStyle>(&mut self, from: BackendCoord, to: BackendCoord, style: &S) -> Drawn<'a> {
        self.pixels.draw_line(from, to, style)
    }

    fn draw_rect<S: BackendStyle>(&mut self, a: BackendCoord, b: BackendCoord, style: &S, fill: bool) -> Drawn<'a> {
        self.pixels.draw_rect(a, b, style, fill)
    }

    fn draw_text<S: BackendTextStyle>(&mut self, text: &str, style: &S, at: BackendCoord) -> Drawn<'a> {
        let em = (style.size() / SIZE_OVER_EM) as f32;
        let (letters, width) = self.letters(text, em);
        let dx = match style.anchor().h_pos {
            HPos::Left => 0.0,
            HPos::Right => -width,
            HPos::Center => -width / 2.0,
        };
        // As in vector graphics, where the middle of a text is the middle of its small letters.
        let dy = match style.anchor().v_pos {
            VPos::Top => self.small(em),
            VPos::Center => self.small(em) / 2.0,
            VPos::Bottom => 0.0,
        };
        let ((width, height), turn, color) = (self.get_size(), style.transform(), style.color());
        let mut dots = Vec::new();
        for mut letter in letters {
            letter.position.x += dx;
            letter.position.y = dy.round();
            let Some(outline) = self.font.outline_glyph(letter) else { continue };
            let corner = outline.px_bounds().min;
            outline.draw(|x, y, cover| dots.push((corner.x as i32 + x as i32, corner.y as i32 + y as i32, cover)));
        }
        for (x, y, cover) in dots {
            let (x, y) = turn.transform(x, y);
            let (x, y) = (at.0 + x, at.1 + y);
            if (0..width as i32).contains(&x) && (0..height as i32).contains(&y) {
                let alpha = color.alpha * f64::from(cover.clamp(0.0, 1.0));
                self.draw_pixel((x, y), BackendColor { alpha, ..color })?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Area, INK, write};
    use super::*;

    struct Text(&'static str);

    impl Figure for Text {
        fn title(&self) -> &str {
            self.0
        }
        fn size(&self) -> (u32, u32) {
            (60, 40)
        }
        fn draw<B: DrawingBackend>(&self, area: &Area<B>) -> Result<(), FigureError> {
            write(area, self.0, (4, 20), 16, &INK, plotters::style::text_anchor::HPos::Left)
        }
    }

    /// Darkness of every column and of every row.
    fn dark(text: &'static str) -> (Vec<u32>, Vec<u32>) {
        let bytes = png(&Text(text)).expect("drawn");
        let mut reader = ::png::Decoder::new(std::io::Cursor::new(bytes)).read_info().expect("a PNG");
        let mut pixels = vec![0; reader.output_buffer_size().expect("small")];
        let info = reader.next_frame(&mut pixels).expect("a frame");
        assert_eq!((info.width, info.height), (60, 40));
        let (mut columns, mut rows) = (vec![0; 60], vec![0; 40]);
        for (i, pixel) in pixels.chunks(3).enumerate() {
            let darkness = 255 - u32::from(pixel[0]);
            columns[i % 60] += darkness;
            rows[i / 60] += darkness;
        }
        (columns, rows)
    }

    #[test]
    fn a_bitmap_has_the_size_and_is_not_blank() {
        let (columns, _) = dark("text");
        assert!(columns.iter().any(|c| *c > 255));
    }

    #[test]
    fn letters_keep_their_bearings_and_their_base_line() {
        let first = |list: &[u32]| list.iter().position(|d| *d > 60).expect("something");
        let last = |list: &[u32]| list.iter().rposition(|d| *d > 60).expect("something");
        // A point stands on the base line, as a digit does, and a digit has room before it.
        let ((_, point), (columns, digit)) = (dark("."), dark("1"));
        assert_eq!(last(&point), last(&digit));
        assert!(first(&point) > first(&digit) + 5);
        assert!(first(&columns) > 4, "the bearing of the first letter");
        // Between letters of a word there is less than between words.
        let gaps = |text| {
            let (columns, _) = dark(text);
            let inner = &columns[first(&columns)..=last(&columns)];
            let runs = inner.split(|d| *d > 60).map(<[u32]>::len).filter(|n| *n > 0);
            runs.collect::<Vec<_>>()
        };
        assert_eq!(gaps("ll").len(), 1);
        assert!(gaps("l l")[0] > gaps("ll")[0] + 2);
    }
}
