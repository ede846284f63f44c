//! How far steps that the host decides are from their predictions: from visit to visit, and within one.

use super::networks::{Run, compare_through, read_runs};
use anyhow::{Context, Result, ensure};
use joulecast_model::base::precision::{Mode, Precision};
use joulecast_model::law::calibration::Calibration;
use joulecast_model::step::framework::{ByGroup, Framework, Group, HostRecord, HostSpeed, Launch};
use joulecast_reports::given::text;
use joulecast_reports::networks::Compared;
use joulecast_reports::table::{Table, significant};
use serde::Deserialize;
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

/// The schema of a file of visits.
const SCHEMA: &str = "visits/1";

/// The host decides clearly where it would at this share of its time.
const CLEARLY: f64 = 1.0 / 1.3;

/// Deviations below this count alike, so that the least sum of their magnitudes is found by weighting.
const ALIKE: f64 = 0.05;

/// Rounds of weighting.
const ROUNDS: usize = 40;

/// Visits with the files of their hosts.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct VisitsFile {
    schema: String,
    #[serde(rename = "visit")]
    visits: Vec<HostsOf>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HostsOf {
    name: String,
    /// The file of runs, and those of hosts (`host/1`), from the folder of this file.
    runs: PathBuf,
    hosts: Vec<PathBuf>,
}

/// A step that the host clearly decides.
struct Step {
    group: Group,
    visit: usize,
    /// Logarithms of how many times as long as the table says chains and this step took.
    chains: f64,
    took: f64,
}

/// `took = constant + exponent chains`, by the least sum of deviations' magnitudes. `None` of fewer than two visits.
fn line<'a>(steps: impl Iterator<Item = &'a Step> + Clone) -> Option<(f64, f64)> {
    let mut line: Option<(f64, f64)> = None;
    for _ in 0..ROUNDS {
        let weight = |s: &Step| line.map_or(1.0, |(c, e)| 1.0 / (s.took - c - e * s.chains).abs().max(ALIKE));
        let sum = |of: fn(&Step) -> f64| steps.clone().map(|s| weight(s) * of(s)).sum::<f64>();
        let whole = sum(|_| 1.0);
        let (x, y) = (sum(|s| s.chains) / whole, sum(|s| s.took) / whole);
        let (xx, xy) = (sum(|s| s.chains * s.chains) / whole - x * x, sum(|s| s.chains * s.took) / whole - x * y);
        if xx.is_nan() || xx <= f64::EPSILON {
            return None;
        }
        line = Some((y - xy / xx * x, xy / xx));
    }
    line
}

fn geometric_mean(records: &[HostRecord]) -> ByGroup {
    let mut mean = ByGroup::all(1.0);
    for group in Group::ALL {
        let sum: f64 = records.iter().map(|r| r.of_chains()[group].ln()).sum();
        mean[group] = (sum / records.len() as f64).exp();
    }
    mean
}

/// Steps of a visit that its host clearly decides.
fn steps(
    at: usize,
    (visit, folder): (&HostsOf, &Path),
    calibrations: &[Calibration],
    framework: &Framework,
) -> Result<Vec<Step>> {
    let read = |path: &PathBuf| {
        let path = folder.join(path);
        HostRecord::from_toml(&text(&path)?).with_context(|| path.display().to_string())
    };
    let records = visit.hosts.iter().map(read).collect::<Result<Vec<_>>>()?;
    ensure!(!records.is_empty(), "{}: no host", visit.name);
    let chains = geometric_mean(&records);
    let runs: Vec<Run> =
        read_runs(&folder.join(&visit.runs))?.into_iter().filter(|r| r.visit() == visit.name).collect();
    ensure!(!runs.is_empty(), "{}: no run in {}", visit.name, visit.runs.display());
    let on = |share: f64| -> Result<Vec<Compared>> {
        let mut factors = chains;
        Group::ALL.iter().for_each(|&g| factors[g] *= share);
        let speed = HostSpeed { factors, spreads: ByGroup::all(1.0), source: visit.name.clone() };
        compare_through(&runs, calibrations, &framework.clone().on_host(speed), None)
    };
    let (whole, lessened) = (on(1.0)?, on(CLEARLY)?);
    let clearly = whole.iter().zip(&lessened).filter(|(c, l)| c.launch == Launch::Eager.name() && l.host_decides);
    let step = |(c, _): (&Compared, &Compared)| {
        let mode = Mode::from_name(c.mode)?;
        let group = Group::of(mode, Precision::from_name(c.precision)?);
        let chains = chains[group].ln();
        Some(Step { group, visit: at, chains, took: (c.time.measured / c.time.predicted).ln() + chains })
    };
    Ok(clearly.filter_map(step).collect())
}

/// How launches of networks follow those of chains, learned from visits whose hosts were measured: constant and exponent of
/// `[host] networks` in a profile, and how far steps are from that where their visit was left out, beside now.
///
/// # Errors
/// When a file cannot be read, a visit has no host or no run, or a run cannot be predicted.
pub fn learned(path: &Path, calibrations: &[Calibration], framework: &Framework) -> Result<Table> {
    let file: VisitsFile = toml::from_str(&text(path)?).with_context(|| path.display().to_string())?;
    ensure!(file.schema == SCHEMA, "{}: schema \"{}\" instead of {SCHEMA}", path.display(), file.schema);
    let folder = path.parent().unwrap_or(Path::new("."));
    let mut all = Vec::new();
    for (at, visit) in file.visits.iter().enumerate() {
        all.extend(steps(at, (visit, folder), calibrations, framework)?);
    }
    let header =
        ["steps", "visits", "number", "constant", "exponent", "off as chains", "off, visit left out", "90 % within"];
    let mut table = Table::new(&header, 1);
    for group in Group::ALL {
        let of = all.iter().filter(|s| s.group == group);
        let mut visits: Vec<usize> = of.clone().map(|s| s.visit).collect();
        visits.sort_unstable();
        visits.dedup();
        let (constant, exponent) = line(of.clone()).context("visits whose hosts differ are wanted")?;
        let mut left_out: Vec<f64> = Vec::new();
        for visit in &visits {
            let others = of.clone().filter(|s| s.visit != *visit);
            let (c, e) = line(others).context("visits whose hosts differ are wanted")?;
            left_out.extend(of.clone().filter(|s| s.visit == *visit).map(|s| (s.took - c - e * s.chains).abs()));
        }
        left_out.sort_by(f64::total_cmp);
        let count = left_out.len();
        let mean = |sum: f64| format!("{:.1} %", 100.0 * sum / count as f64);
        table.row(vec![
            group.name().into(),
            visits.len().to_string(),
            count.to_string(),
            significant(constant.exp(), 3),
            significant(exponent, 3),
            mean(of.map(|s| (s.took - s.chains).abs()).sum()),
            mean(left_out.iter().sum()),
            significant(quantile(&left_out, HOLDS).exp(), 3),
        ]);
    }
    Ok(table)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_through_steps_is_not_drawn_to_the_one_that_strays() {
        let step = |chains: f64, took: f64| Step { group: Group::Training, visit: 0, chains, took };
        let mut steps: Vec<Step> = (0..10).map(|i| 0.03 * f64::from(i)).map(|x| step(x, 0.1 + 1.5 * x)).collect();
        steps.push(step(0.0, 2.0));
        let (constant, exponent) = line(steps.iter()).expect("hosts differ");
        assert!((constant - 0.1).abs() < 0.02 && (exponent - 1.5).abs() < 0.1, "{constant} {exponent}");
        assert!(line(steps[..1].iter()).is_none());
    }

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
