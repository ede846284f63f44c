//! Accuracy measures of predictions against measurements.

use crate::base::order::sort_by;
use serde::Serialize;

/// How far predictions are from measurements, in percent of the measurement.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Accuracy {
    /// Pairs behind it.
    pub count: usize,
    /// Mean absolute percentage error.
    pub mape: f64,
    /// Median absolute percentage error.
    pub median: f64,
    /// Mean signed percentage error: positive where predictions are too long.
    pub bias: f64,
    /// Root mean square percentage error.
    pub rmspe: f64,
    /// Sum of absolute errors over the sum of measurements.
    pub weighted: f64,
    /// Share of pairs within 10 %.
    pub within_10: f64,
}

impl Accuracy {
    /// Of pairs (measured, predicted), measured above zero; `None` for no pairs.
    pub fn of(pairs: impl IntoIterator<Item = (f64, f64)>) -> Option<Self> {
        let pairs: Vec<(f64, f64)> = pairs.into_iter().collect();
        if pairs.is_empty() {
            return None;
        }
        let n = pairs.len() as f64;
        let errors: Vec<f64> = pairs.iter().map(|(m, p)| (p - m) / m).collect();
        let mut absolute: Vec<f64> = errors.iter().map(|e| e.abs()).collect();
        absolute.sort_by(f64::total_cmp);
        let total: f64 = pairs.iter().map(|(m, _)| m).sum();
        let missed: f64 = pairs.iter().map(|(m, p)| (p - m).abs()).sum();
        Some(Self {
            count: pairs.len(),
            mape: 100.0 * absolute.iter().sum::<f64>() / n,
            median: 100.0 * median_of_sorted(&absolute),
            bias: 100.0 * errors.iter().sum::<f64>() / n,
            rmspe: 100.0 * (errors.iter().map(|e| e * e).sum::<f64>() / n).sqrt(),
            weighted: 100.0 * missed / total,
            within_10: 100.0 * absolute.iter().filter(|e| **e <= 0.1 + 1e-9).count() as f64 / n,
        })
    }
}

fn median_of_sorted(sorted: &[f64]) -> f64 {
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 { sorted[middle] } else { (sorted[middle - 1] + sorted[middle]) / 2.0 }
}

/// 97.5 % quantile of the normal distribution.
const TWO_SIGMA: f64 = 1.959_964;

/// Wilson's 95 % interval of a share seen in `count` trials (Wilson 1927).
pub fn wilson(share: f64, count: usize) -> (f64, f64) {
    let (n, z2) = (count as f64, TWO_SIGMA * TWO_SIGMA);
    let centre = (share + z2 / (2.0 * n)) / (1.0 + z2 / n);
    let half = TWO_SIGMA / (1.0 + z2 / n) * (share * (1.0 - share) / n + z2 / (4.0 * n * n)).sqrt();
    ((centre - half).max(0.0), (centre + half).min(1.0))
}

/// Split-conformal interval of residuals at a coverage such as 0.9: the quantiles with the finite-sample
/// correction (Lei et al. 2018); with too few residuals the extremes.
pub fn conformal(residuals: &[f64], coverage: f64) -> Option<(f64, f64)> {
    conformal_weighted(residuals.iter().map(|r| (*r, 1.0)).collect(), coverage)
}

/// The same of residuals with weights. Rows that stand or fall together share the weight of one.
pub fn conformal_weighted(mut residuals: Vec<(f64, f64)>, coverage: f64) -> Option<(f64, f64)> {
    sort_by(&mut residuals, |a, b| a.0.total_cmp(&b.0));
    let total: f64 = residuals.iter().map(|r| r.1).sum();
    let outside = (total + 1.0) * (1.0 - coverage) / 2.0 + 1e-9;
    let low = edge(residuals.iter(), outside)?;
    let high = edge(residuals.iter().rev(), outside)?;
    Some((low.min(high), high.max(low)))
}

/// The last residual from one end up to which the weights add to no more than `outside`; at least the first.
fn edge<'a>(residuals: impl Iterator<Item = &'a (f64, f64)>, outside: f64) -> Option<f64> {
    let mut passed = 0.0;
    let within = residuals.enumerate().take_while(|(i, (_, weight))| {
        passed += weight;
        *i == 0 || passed <= outside
    });
    within.last().map(|(_, (residual, _))| *residual)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measures_of_a_small_set() -> Result<(), &'static str> {
        let a = Accuracy::of([(1.0, 1.1), (2.0, 1.0), (4.0, 4.0)]).ok_or("pairs")?;
        assert!((a.mape - 20.0).abs() < 1e-9);
        assert!((a.median - 10.0).abs() < 1e-9);
        assert!((a.bias + 40.0 / 3.0).abs() < 1e-9);
        assert!((a.weighted - 100.0 * 1.1 / 7.0).abs() < 1e-9);
        assert!((a.within_10 - 200.0 / 3.0).abs() < 1.0);
        assert!(Accuracy::of([]).is_none());
        Ok(())
    }

    #[test]
    fn conformal_quantiles_cover_what_they_say() {
        let residuals: Vec<f64> = (1..=99).map(f64::from).collect();
        // 5 of 100 on each side: the 5th smallest and the 95th of 99.
        assert_eq!(conformal(&residuals, 0.9), Some((5.0, 95.0)));
        assert_eq!(conformal(&[1.0, 2.0], 0.9), Some((1.0, 2.0)));
        assert_eq!(conformal(&[], 0.9), None);
    }

    #[test]
    fn wilsons_interval_of_a_known_share() {
        // 81 of 263: Newcombe (1998), table I, method 3 gives 0.2553 to 0.3662.
        let (low, high) = wilson(81.0 / 263.0, 263);
        assert!((low - 0.2553).abs() < 5e-5 && (high - 0.3662).abs() < 5e-5, "{low} {high}");
        assert_eq!(wilson(1.0, 5).1, 1.0);
    }

    #[test]
    fn rows_of_one_shape_count_once() {
        // 39 shapes of one row, and a slow one of ten.
        let mut residuals: Vec<(f64, f64)> = (1..=39).map(|i| (f64::from(i), 1.0)).collect();
        residuals.extend((0..10).map(|i| (100.0 + f64::from(i), 0.1)));
        assert_eq!(conformal_weighted(residuals.clone(), 0.9), Some((2.0, 39.0)));
        residuals.iter_mut().for_each(|r| r.1 = 1.0);
        assert_eq!(conformal_weighted(residuals, 0.9), Some((2.0, 108.0)));
    }
}
