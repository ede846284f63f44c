//! Layers of a report: held-out times of every chip.

use super::{Report, verdicts};
use crate::judge::validate::{HeldOut, kind_label};
use crate::rows::prepare::Row;
use anyhow::Result;
use joulecast_model::base::accuracy::Accuracy;
use joulecast_reports::accuracy::Line;
use joulecast_reports::figure::coverage::{Coverage, Row as Held};
use joulecast_reports::figure::histogram::{self, Histograms};
use joulecast_reports::figure::residuals::{self, Residuals, Trend};
use joulecast_reports::figure::scatter::{self, Scatter};
use joulecast_reports::table::Table;
use std::collections::BTreeMap;

/// Panels of a sheet; the kinds with fewest rows share the last one.
const PANELS: usize = 12;
/// Ends of the histograms, and the width of their bins, percent.
const FURTHEST: f64 = 60.0;
const BIN: f64 = 5.0;
/// Places along an axis whose quantiles are drawn.
const PLACES: usize = 16;

type OfRow = fn(&Row) -> f64;
/// What errors are drawn over.
const AXES: [(&str, OfRow); 3] = [
    ("operations, Mop", |r| r.cost.ops.to_f64() / 1e6),
    ("traffic, kB", |r| r.cost.bytes().to_f64() / 1e3),
    ("intensity, op/B", |r| r.cost.ops.to_f64() / r.cost.bytes().to_f64()),
];

/// A row beside its held-out prediction.
struct Point<'a> {
    row: &'a Row,
    /// Seconds.
    predicted: f64,
}

impl Point<'_> {
    fn pair(&self) -> (f64, f64) {
        (self.row.time.get(), self.predicted)
    }

    /// Signed, percent.
    fn error(&self) -> f64 {
        100.0 * (self.predicted / self.row.time.get() - 1.0)
    }
}

/// Points of a chip by kind, those of most rows first; what does not fit into the panels is one group.
fn by_kind<'p, 'a>(points: &'p [Point<'a>]) -> Vec<(String, Vec<&'p Point<'a>>)> {
    let mut kinds: BTreeMap<String, Vec<&Point>> = BTreeMap::new();
    for point in points {
        kinds.entry(kind_label(point.row.kind, point.row.framework)).or_default().push(point);
    }
    let mut list: Vec<(String, Vec<&Point>)> = kinds.into_iter().collect();
    list.sort_by_key(|(_, points)| std::cmp::Reverse(points.len()));
    if list.len() > PANELS {
        let rest = list.split_off(PANELS - 1);
        list.push((format!("{} other kinds", rest.len()), rest.into_iter().flat_map(|(_, points)| points).collect()));
    }
    list
}

/// A panel's title: what, how many, and how far off.
fn title(name: &str, points: &[&Point]) -> String {
    let median = Accuracy::of(points.iter().map(|p| p.pair())).map_or(f64::NAN, |a| a.median);
    format!("{name}: {} rows, median {median:.0} %", points.len())
}

/// Ends of the histograms' bins.
fn edges() -> Vec<f64> {
    let bins = (2.0 * FURTHEST / BIN) as usize;
    (0..=bins).map(|i| -FURTHEST + BIN * i as f64).collect()
}

/// How many errors lie in every bin; what lies beyond counts in the outermost.
fn counts(errors: impl Iterator<Item = f64>) -> Vec<usize> {
    let mut counts = vec![0; (2.0 * FURTHEST / BIN) as usize];
    let last = counts.len() - 1;
    for error in errors {
        counts[(((error + FURTHEST) / BIN).floor().max(0.0) as usize).min(last)] += 1;
    }
    counts
}

/// Quantiles of errors in stretches of equally many points along an axis.
fn trend(points: &[(f64, f64)]) -> Vec<Trend> {
    let mut sorted = points.to_vec();
    sorted.sort_by(|a, b| a.0.total_cmp(&b.0));
    let size = sorted.len().div_ceil(PLACES).max(1);
    sorted
        .chunks(size)
        .map(|chunk| {
            let mut errors: Vec<f64> = chunk.iter().map(|p| p.1).collect();
            errors.sort_by(f64::total_cmp);
            let quantile = |q: f64| errors[((errors.len() - 1) as f64 * q).round() as usize];
            Trend { x: chunk[chunk.len() / 2].0, p05: quantile(0.05), median: quantile(0.5), p95: quantile(0.95) }
        })
        .collect()
}

fn residual_panels(points: &[Point]) -> Vec<residuals::Panel> {
    let panel = |(x, of): (&str, OfRow)| {
        let places = points.iter().map(|p| (of(p.row), p.error()));
        let points: Vec<(f64, f64)> = places.filter(|(x, _)| x.is_finite() && *x > 0.0).collect();
        residuals::Panel { x: x.into(), trend: trend(&points), points }
    };
    AXES.into_iter().map(panel).filter(|p| !p.points.is_empty()).collect()
}

/// Adds the layers of every chip among rows and the table of all.
///
/// # Errors
/// When a figure cannot be drawn or written.
pub fn add(report: &mut Report, rows: &[Row], held_out: &HeldOut, lines: &[Line]) -> Result<()> {
    let mut chips: BTreeMap<&str, Vec<Point>> = BTreeMap::new();
    for row in rows {
        if let Some(&predicted) = held_out.predicted[0].get(row.row_id.as_str()) {
            chips.entry(&row.chip).or_default().push(Point { row, predicted });
        }
    }
    for (chip, points) in &chips {
        let name = |what: &str| format!("layers_{}_{what}", chip.to_lowercase());
        let notes = report.notes();
        let kinds = by_kind(points);
        report.heading(&format!("Layers on {chip}: measured against predicted"));
        report.text(
            "Each cell is one or several kernels that the fit had not seen (grouped 5-fold: rows of one shape stay together). \
             On the line the prediction is exact, above it too long; inside of the band it is within 10 %. \"median\" is that of \
             the absolute errors.",
        );
        let panel = |(kind, points): &(String, Vec<&Point>)| scatter::Panel {
            title: title(kind, points),
            unit: "us".into(),
            points: vec![points.iter().map(|p| (p.row.time.get() * 1e6, p.predicted * 1e6)).collect()],
        };
        let panels = kinds.iter().map(panel).collect();
        let sheet_title = format!("{chip}: layer times, measured and predicted (held out)");
        report.figure(
            &name("measured_predicted"),
            &Scatter { title: sheet_title, series: vec![], panels, notes: notes.clone() },
        )?;
        report.heading(&format!("Layers on {chip}: errors"));
        report.text(
            "How often an error of which size occurs. A good model is narrow and centred at 0; a heap at an edge is what lies \
             outside of the drawing.",
        );
        let panel = |(kind, points): &(String, Vec<&Point>)| histogram::Panel {
            title: title(kind, points),
            counts: counts(points.iter().map(|p| p.error())),
        };
        let panels = kinds.iter().map(panel).collect();
        let x = "error of the time, %".to_string();
        let sheet_title = format!("{chip}: errors of held-out layer times");
        report.figure(
            &name("errors"),
            &Histograms { title: sheet_title, x, edges: edges(), panels, notes: notes.clone() },
        )?;
        report.heading(&format!("Layers on {chip}: errors over size and intensity"));
        report.text(
            "Where errors grow. A median away from 0 is a bias that depends on size; quantiles that open to the left are small \
             kernels, which are hard.",
        );
        let sheet_title = format!("{chip}: errors over operations, traffic and intensity");
        report.figure(&name("residuals"), &Residuals { title: sheet_title, panels: residual_panels(points), notes })?;
    }
    report.heading("Layers: what the intervals hold");
    report.text(
        "The share of held-out rows within their 90 % interval, made of the other folds' residuals. A bar that reaches the line \
         agrees with 90 %; a round mark does not.",
    );
    let rows = lines.iter().filter(|l| l.subset == "all rows").map(|l| Held {
        name: format!("{} {} {} {}", l.chip, l.kind, l.phase, l.precision),
        count: l.rows,
        held: l.held,
        between: (l.held_low, l.held_high),
    });
    let title = "Layers: values within their 90 % intervals".to_string();
    let coverage = Coverage { title, rows: rows.collect(), notes: report.notes() };
    report.figure("layers_coverage", &coverage)?;
    report.verdicts.extend(verdicts::of_layers(lines));
    let what = "Percent. NeuralPower's polynomial sees the same rows and folds; the roofline needs no fit.";
    report.append("Appendix: layers, the numbers", what, Table::of(lines));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_beyond_the_bins_count_in_the_outermost() {
        let counts = counts([-99.0, -60.0, -1.0, 0.0, 4.9, 59.0, 60.0, 300.0].into_iter());
        assert_eq!(counts.len() + 1, edges().len());
        assert_eq!((counts[0], counts[11], counts[12], counts[23]), (2, 1, 2, 3));
        assert_eq!(counts.iter().sum::<usize>(), 8);
    }

    #[test]
    fn a_trend_has_the_quantiles_of_its_stretch() {
        let points: Vec<(f64, f64)> = (0..1600).rev().map(|i| (f64::from(i), f64::from(i % 100))).collect();
        let trend = trend(&points);
        assert_eq!(trend.len(), PLACES);
        assert!(trend.windows(2).all(|pair| pair[0].x < pair[1].x));
        assert_eq!((trend[0].p05, trend[0].median, trend[0].p95), (5.0, 50.0, 94.0));
    }
}
