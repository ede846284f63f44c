//! How far steps that the host decides are from their predictions: from visit to visit, and within one.

use super::networks::{Run, compare_through, read_runs};
use anyhow::Result;
use joulecast_model::law::calibration::Calibration;
use joulecast_model::step::framework::{Framework, Launch};
use joulecast_reports::table::{Table, significant};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The share of runs that lie within a factor.
const HOLDS: f64 = 0.9;

/// Weights add up to whole visits but for this.
const ROUNDING: f64 = 1e-9;

/// Runs of one visit and mode.
struct Visit {
    name: String,
    mode: &'static str,
    /// Logarithms of measured over predicted times, ascending.
    errors: Vec<f64>,
    /// How many lie in their 90 % intervals.
    held: usize,
}

/// What of sorted values lies below, between two of them on the line that joins them.
fn quantile(sorted: &[f64], share: f64) -> f64 {
    let at = share * (sorted.len() - 1) as f64;
    let (low, high) = (sorted[at.floor() as usize], sorted[at.ceil() as usize]);
    low + (high - low) * at.fract()
}

impl Visit {
    fn median(&self) -> f64 {
        quantile(&self.errors, 0.5)
    }

    fn around(&self, center: f64) -> impl Iterator<Item = (f64, f64)> {
        let each = 1.0 / self.errors.len() as f64;
        self.errors.iter().map(move |e| ((e - center).abs(), each))
    }
}

/// The factor within which a share of runs lies, visits counting alike.
fn factor(weighted: impl Iterator<Item = (f64, f64)>, visits: usize, share: f64) -> f64 {
    let mut sorted: Vec<(f64, f64)> = weighted.collect();
    sorted.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut below = 0.0;
    let at = sorted.iter().find(|(_, weight)| {
        below += weight;
        below >= share * visits as f64 - ROUNDING
    });
    at.or(sorted.last()).map_or(1.0, |(log, _)| log.exp())
}

/// The factor within which 90 % of runs lie: at the level that makes an interval from so many visits hold 90 % of the next
/// one's (split conformal: 0.9 (1 + 1 / visits)).
fn of_the_next(visits: &[Visit]) -> f64 {
    let count = visits.len();
    factor(visits.iter().flat_map(|v| v.around(0.0)), count, HOLDS * (1.0 + 1.0 / count as f64))
}

/// The factor within which 90 % of runs lie around the median of their own visit.
fn of_their_own(visits: &[Visit]) -> f64 {
    factor(visits.iter().flat_map(|v| v.around(v.median())), visits.len(), HOLDS)
}

fn visits(path: &Path, calibrations: &[Calibration], framework: &Framework) -> Result<Vec<Visit>> {
    let mut by_visit: BTreeMap<String, Vec<Run>> = BTreeMap::new();
    for run in read_runs(path)?.into_iter().filter(|run| run.framework() == framework.name) {
        by_visit.entry(run.visit().to_string()).or_default().push(run);
    }
    let mut list = Vec::new();
    for (visit, runs) in by_visit {
        let mut modes: BTreeMap<&'static str, Visit> = BTreeMap::new();
        let compared = compare_through(&runs, calibrations, framework, None)?;
        for c in compared.iter().filter(|c| c.launch == Launch::Eager.name() && c.host_decides) {
            let name =
                if visit.is_empty() { path.display().to_string() } else { format!("{} {visit}", path.display()) };
            let of = modes.entry(c.mode).or_insert(Visit { name, mode: c.mode, errors: Vec::new(), held: 0 });
            of.errors.push((c.time.measured / c.time.predicted).ln());
            of.held += usize::from(c.time.holds());
        }
        list.extend(modes.into_values());
    }
    list.iter_mut().for_each(|visit| visit.errors.sort_by(f64::total_cmp));
    Ok(list)
}

/// Runs that the host decides, by file, visit and mode, beside their predictions; and within which factors 90 % of them
/// lie: of the prediction, and of their visit's median.
///
/// # Errors
/// When a file cannot be read, or a run cannot be predicted.
pub fn tables(files: &[PathBuf], calibrations: &[Calibration], framework: &Framework) -> Result<Vec<Table>> {
    let mut all = Vec::new();
    for path in files {
        all.extend(visits(path, calibrations, framework)?);
    }
    let header = ["visit", "mode", "runs", "median", "from", "to", "around its median", "in the interval"];
    let mut table = Table::new(&header, 2);
    for visit in &all {
        let mut apart: Vec<f64> = visit.errors.iter().map(|e| (e - visit.median()).abs()).collect();
        apart.sort_by(f64::total_cmp);
        let own = quantile(&apart, HOLDS).exp();
        let ratio = |log: f64| significant(log.exp(), 3);
        table.row(vec![
            visit.name.clone(),
            visit.mode.into(),
            visit.errors.len().to_string(),
            ratio(visit.median()),
            ratio(quantile(&visit.errors, 0.05)),
            ratio(quantile(&visit.errors, 0.95)),
            significant(own, 3),
            format!("{:.0} %", 100.0 * visit.held as f64 / visit.errors.len() as f64),
        ]);
    }
    let mut total = Table::new(&["90 % of runs, visits counting alike", "within a factor of"], 1);
    total.row(vec!["of the prediction, on a machine of another visit".into(), significant(of_the_next(&all), 3)]);
    total.row(vec!["of their visit's median".into(), significant(of_their_own(&all), 3)]);
    Ok(vec![table, total])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn visit(errors: &[f64]) -> Visit {
        Visit { name: "v".into(), mode: "inference", errors: errors.to_vec(), held: 0 }
    }

    #[test]
    fn visits_count_alike_however_many_runs_they_have() {
        let all = [visit(&[1.0]), visit(&[0.1; 99])];
        // Half of the weight is at 1, though one run of a hundred is.
        assert!((of_the_next(&all) - 1f64.exp()).abs() < 1e-9);
        assert!((of_their_own(&all) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn few_visits_ask_for_a_wider_factor() {
        let all: Vec<Visit> = (0..10).map(|i| visit(&[0.1 * f64::from(i)])).collect();
        // 0.9 (1 + 1 / 10) of ten is the tenth, of twenty the nineteenth.
        assert!((of_the_next(&all) - 0.9f64.exp()).abs() < 1e-9);
        let all: Vec<Visit> = (0..20).map(|i| visit(&[0.1 * f64::from(i)])).collect();
        assert!((of_the_next(&all) - 1.8f64.exp()).abs() < 1e-9);
        assert!((quantile(&[1.0, 2.0, 4.0], 0.75) - 3.0).abs() < 1e-12);
    }

    #[test]
    fn a_visit_s_own_runs_are_compared_with_its_median() {
        let all = [visit(&[0.5, 0.6, 0.8]), visit(&[-0.7, -0.6, -0.5])];
        assert!((of_their_own(&all) - 0.2f64.exp()).abs() < 1e-9);
    }
}
