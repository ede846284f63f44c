//! Accuracy measures of predictions against measurements.

/// How far predictions are from measurements, in percent of the measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
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

/// Split-conformal interval of residuals at a coverage such as 0.9: the quantiles with the finite-sample
/// correction (Lei et al. 2018); with too few residuals the extremes.
pub fn conformal(residuals: &[f64], coverage: f64) -> Option<(f64, f64)> {
    if residuals.is_empty() {
        return None;
    }
    let mut sorted = residuals.to_vec();
    sorted.sort_by(f64::total_cmp);
    let n = sorted.len();
    let tail = (1.0 - coverage) / 2.0;
    let outside = ((n + 1) as f64 * tail + 1e-9).floor() as usize;
    let skip = outside.saturating_sub(1).min(n / 2);
    Some((sorted[skip], sorted[n - 1 - skip]))
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
    }
}
