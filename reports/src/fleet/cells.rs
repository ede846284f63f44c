//! Figures with their intervals as cells of tables.

use super::values::Figure;
use crate::table::{significant, thousands};

/// A figure with its interval.
pub(super) fn span(figure: Figure, by: f64) -> String {
    let number = |v: Option<f64>| {
        v.map_or("none".into(), |v| {
            let value = v / by;
            // Three digits also of what is large: more would be believed.
            if value < 1000.0 {
                return significant(value, 3);
            }
            let scale = 10f64.powi(value.log10().floor() as i32 - 2);
            thousands(&format!("{:.0}", (value / scale).round() * scale))
        })
    };
    spanned(number(figure.value), number(figure.p05), number(figure.p95))
}

/// An interval that has no width is not worth showing.
fn spanned(value: String, low: String, high: String) -> String {
    if value == low && value == high { value } else { format!("{value} ({low} to {high})") }
}

/// A count with its interval.
pub(super) fn whole(figure: Figure) -> String {
    let number = |v: Option<f64>| v.map_or("none".into(), |v| thousands(&format!("{v:.0}")));
    spanned(number(figure.value), number(figure.p05), number(figure.p95))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_three_digits() {
        let of = |value, low, high| span(Figure { value: Some(value), p05: Some(low), p95: Some(high) }, 1.0);
        assert_eq!(of(524_000_012.0, 523_999_000.0, 524_000_044.0), "524,000,000");
        assert_eq!(of(45_678.0, 9_996.0, 123_456.0), "45,700 (10,000 to 123,000)");
        assert_eq!(of(5.274, 0.424_9, 531.2), "5.27 (0.425 to 531)");
        assert_eq!(span(Figure { value: Some(0.0), p05: Some(0.0), p95: None }, 1.0), "0 (0 to none)");
    }
}
