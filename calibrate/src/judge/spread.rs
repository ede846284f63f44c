//! Intervals of whole networks, from what sealed rounds foresaw of networks before anybody ran them, or from networks with the
//! role `conformal`: leaving one network out.

use crate::judge::networks::{Run, compare};
use crate::judge::sealed::compare::verify;
use crate::judge::sealed::round::{Key, Step};
use crate::judge::sealed::seal::Predicted;
use anyhow::Result;
use joulecast_model::base::precision::Mode;
use joulecast_model::catalog;
use joulecast_model::law::calibration::{Calibration, Factors, NetworkSpread};
use joulecast_model::rows::splits::Role;
use joulecast_model::step::predictor::Width;
use joulecast_reports::networks::{Compared, Pair};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// Fewer networks say nothing about the next one.
const FEWEST: usize = 5;
/// So many networks that came from outside the catalog make a group of their own, and so many of sealed rounds: the catalog's
/// were looked at while the model was made, layers of the others may be among the rows, and both err less than a network that
/// nobody saw.
const ENOUGH_NEW: usize = 15;
/// Share of runs that an interval is to hold.
const HOLDS: f64 = 0.9;
/// An interval is never narrower than this share of its pooled half-width on a side.
const NARROWEST: f64 = 0.1;
/// Quantiles of the others are widened in these steps until they hold enough runs of the network left out.
const STEP: f64 = 0.01;
/// Most steps.
const STEPS: usize = 300;

/// A run's error: signed, in pooled half-widths.
struct Score<'a> {
    network: &'a str,
    value: f64,
}

/// What rounds foresaw, by board and step.
type Foreseen = BTreeMap<(String, Key), Predicted>;

/// Reads what the seals of these rounds' folders vouch for.
fn foreseen(rounds: &[PathBuf]) -> Result<Foreseen> {
    let mut found = Foreseen::new();
    for folder in rounds {
        let verified = verify(folder)?;
        found.extend(verified.predicted().map(|(board, row)| ((board.to_string(), row.key()), row.clone())));
    }
    Ok(found)
}

/// A run of one GPU beside what was sealed of it, where something was; language models' are not looked for. Fits that saw its
/// network's layers since then err less.
fn as_sealed(run: &Compared, foreseen: &Foreseen) -> Option<Compared> {
    let mode = if run.mode == Mode::Training.name() { "train" } else { "infer" };
    let step = Step {
        mode: mode.to_string(),
        precision: run.precision.to_string(),
        batch: run.batch,
        launch: run.launch.to_string(),
        gpus: 1,
        sequence: 0,
        cached: 0,
    };
    let row = foreseen.get(&(run.gpu.clone(), Key { network: run.network.clone(), step }))?;
    let mut sealed = run.clone();
    sealed.time.predicted = row.time_s;
    for (pair, predicted) in [(&mut sealed.power, row.power_w), (&mut sealed.energy, row.energy_j)] {
        if let Some(pair) = pair {
            pair.predicted = predicted;
        }
    }
    Some(sealed)
}

/// Adds to every calibration what the runs on its chip say that are of sealed rounds or have the role `conformal`.
///
/// # Errors
/// When a run cannot be predicted, a round's predictions cannot be read.
pub fn add(runs: &[Run], rounds: &[PathBuf], calibrations: &mut [Calibration]) -> Result<()> {
    let foreseen = foreseen(rounds)?;
    let frameworks: BTreeSet<&str> = runs.iter().map(Run::framework).collect();
    let mut found: BTreeMap<String, Vec<NetworkSpread>> = BTreeMap::new();
    for framework in frameworks {
        let runs: Vec<Run> = runs.iter().filter(|r| r.framework() == framework).cloned().collect();
        let new: BTreeSet<&str> = runs.iter().filter(|r| r.is_beside_catalog()).map(Run::name).collect();
        let mut by_chip: BTreeMap<String, Group> = BTreeMap::new();
        // What a host makes of a step is of its machine: the profile says how far hosts differ.
        for compared in compare(&runs, calibrations, framework, None)?.into_iter().filter(|c| !c.host_may_decide) {
            let group = by_chip.entry(catalog::gpu(&compared.gpu)?.chip).or_default();
            if let Some(sealed) = as_sealed(&compared, &foreseen) {
                group.sealed.push(sealed);
            } else if compared.role == Role::Conformal.name() {
                group.others.push(compared);
            }
        }
        for (chip, group) in by_chip {
            found.entry(chip).or_default().extend(group.spreads(framework, &new));
        }
    }
    for calibration in calibrations {
        calibration.networks = found.remove(&calibration.chip).unwrap_or_default();
    }
    Ok(())
}

/// Runs of a chip.
#[derive(Default)]
struct Group {
    /// As they were foreseen before anybody ran their networks.
    sealed: Vec<Compared>,
    /// Of the role `conformal`, as they are foreseen today.
    others: Vec<Compared>,
}

impl Group {
    /// Factors for every framework, mode and kind of launch among the runs that has enough networks: of sealed rounds alone
    /// where these are enough, else of `new` networks alone where those are.
    fn spreads(&self, framework: &str, new: &BTreeSet<&str>) -> Vec<NetworkSpread> {
        let mut groups: BTreeMap<(&str, bool), [Vec<&Compared>; 2]> = BTreeMap::new();
        for (place, runs) in [&self.sealed, &self.others].into_iter().enumerate() {
            for run in runs {
                groups.entry((run.mode, run.launch_bound)).or_default()[place].push(run);
            }
        }
        groups
            .into_iter()
            .filter_map(|((mode, launch_bound), [sealed, others])| {
                let enough = |runs: &[&Compared]| names(runs.iter().copied()).len() >= ENOUGH_NEW;
                let all = || sealed.iter().chain(&others).copied();
                let of_new: Vec<&Compared> = all().filter(|r| new.contains(r.network.as_str())).collect();
                let runs = if enough(&sealed) {
                    sealed
                } else if enough(&of_new) {
                    of_new
                } else {
                    all().collect()
                };
                let networks = names(runs.iter().copied());
                let energetic = |r: &&&Compared| r.energy.is_some();
                if names(runs.iter().filter(energetic).copied()).len() < FEWEST {
                    return None;
                }
                let (time, time_held) = factors(&scores(&runs, |r| Some(r.time), |r| r.widths.time));
                let (power, power_held) = factors(&scores(&runs, |r| r.power, |r| r.widths.power));
                let (energy, energy_held) = factors(&scores(&runs, |r| r.energy, |r| r.widths.energy));
                Some(NetworkSpread {
                    framework: framework.to_string(),
                    mode: Mode::from_name(mode)?,
                    launch_bound,
                    time,
                    power,
                    energy,
                    networks: networks.len(),
                    names: networks.iter().map(|n| n.to_string()).collect(),
                    runs: runs.len(),
                    held: (time_held, power_held, energy_held),
                })
            })
            .collect()
    }
}

fn names<'a>(runs: impl IntoIterator<Item = &'a Compared>) -> BTreeSet<&'a str> {
    runs.into_iter().map(|r| r.network.as_str()).collect()
}

fn scores<'a>(
    runs: &[&'a Compared],
    pair: impl Fn(&Compared) -> Option<Pair>,
    width: impl Fn(&Compared) -> Width,
) -> Vec<Score<'a>> {
    let score = |run: &&'a Compared| {
        let pair = pair(run)?;
        let (Width(half, _), log) = (width(run).pooled(), (pair.measured / pair.predicted).ln());
        (half > 0.0).then(|| Score { network: &run.network, value: log / half })
    };
    runs.iter().filter_map(score).collect()
}

/// Factors below and above from all networks, widened so far that with one network left out the others' hold enough of
/// its runs; and the share they then hold. Every network counts alike, however often it was run.
fn factors(scores: &[Score<'_>]) -> (Factors, f64) {
    let networks: BTreeSet<&str> = scores.iter().map(|s| s.network).collect();
    let held = |widen: f64| {
        let share = |network: &&str| {
            let (others, own): (Vec<&Score<'_>>, Vec<&Score<'_>>) = scores.iter().partition(|s| s.network != *network);
            let (low, high) = quantiles(&others, widen);
            own.iter().filter(|s| (-low..=high).contains(&s.value)).count() as f64 / own.len() as f64
        };
        networks.iter().map(share).sum::<f64>() / networks.len() as f64
    };
    let widen = (0..STEPS).map(|i| 1.0 + STEP * i as f64).find(|w| held(*w) >= HOLDS);
    let widen = widen.unwrap_or(1.0 + STEP * STEPS as f64);
    (quantiles(&scores.iter().collect::<Vec<_>>(), widen), held(widen))
}

/// Weighted quantiles of both tails.
fn quantiles(scores: &[&Score<'_>], widen: f64) -> Factors {
    let mut runs: BTreeMap<&str, f64> = BTreeMap::new();
    for score in scores {
        *runs.entry(score.network).or_default() += 1.0;
    }
    let total = runs.len() as f64;
    let tail = |sign: f64| {
        let mut sorted: Vec<(f64, f64)> = scores.iter().map(|s| (sign * s.value, 1.0 / runs[s.network])).collect();
        sorted.sort_by(|a, b| b.0.total_cmp(&a.0));
        let mut beyond = 0.0;
        let at = sorted.iter().find(|(_, weight)| {
            beyond += weight;
            beyond > total * (1.0 - HOLDS) / 2.0
        });
        at.map_or(1.0, |(value, _)| (value * widen).max(NARROWEST))
    };
    (tail(-1.0), tail(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use joulecast_model::step::predictor::Widths;

    const NAMES: [&str; 12] = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"];

    fn scattered(of: impl Fn(usize, usize) -> f64) -> Vec<Score<'static>> {
        NAMES
            .iter()
            .enumerate()
            .flat_map(|(n, name)| (0..10).map(move |i| (n, i, *name)))
            .map(|(n, i, network)| Score { network, value: of(n, i) })
            .collect()
    }

    fn compared(network: String, off: f64) -> Compared {
        let pair = Pair { measured: off, predicted: 1.0, p05: 0.5, p95: 2.0 };
        let even = Width(0.5, 0.5);
        Compared {
            network,
            role: "conformal",
            gpu: "h200".into(),
            mode: "inference",
            precision: "fp32",
            batch: 1,
            tokens: String::new(),
            launch: "graph",
            launch_bound: false,
            host_decides: false,
            host_may_decide: false,
            time: pair,
            power: Some(pair),
            energy: Some(pair),
            roofline: 1.0,
            clock: (None, 1.0),
            widths: Widths { time: even, power: even, energy: even, ..Widths::default() },
        }
    }

    #[test]
    fn enough_networks_that_nobody_looked_at_decide_alone() {
        let off = |i: usize, far: f64| if i.is_multiple_of(2) { 1.0 + far } else { 1.0 - far };
        let group = |name: &str, count: usize, far: f64| -> Vec<Compared> {
            (0..count).map(|i| compared(format!("{name}{i}"), off(i, far))).collect()
        };
        let of = |sealed: usize, new: usize| {
            let others: Vec<Compared> = group("known", 30, 0.01).into_iter().chain(group("new", new, 0.3)).collect();
            let names: Vec<String> =
                others.iter().map(|r| r.network.clone()).filter(|n| n.starts_with("new")).collect();
            let names = names.iter().map(String::as_str).collect();
            let found = Group { sealed: group("sealed", sealed, 0.5), others }.spreads("pytorch", &names);
            (found[0].networks, found[0].time.1)
        };
        assert_eq!(of(0, ENOUGH_NEW - 1).0, 30 + ENOUGH_NEW - 1);
        assert_eq!(of(0, ENOUGH_NEW).0, ENOUGH_NEW);
        assert!((0.5..0.8).contains(&of(0, ENOUGH_NEW).1), "{:?}", of(0, ENOUGH_NEW));
        assert_eq!(of(ENOUGH_NEW, ENOUGH_NEW).0, ENOUGH_NEW);
        assert!(of(ENOUGH_NEW, ENOUGH_NEW).1 > 0.8, "{:?}", of(ENOUGH_NEW, ENOUGH_NEW));
    }

    #[test]
    fn a_run_is_held_against_what_was_sealed_of_it() {
        let row = Predicted {
            network: "a".into(),
            mode: "infer".into(),
            precision: "fp32".into(),
            batch: 1,
            launch: "graph".into(),
            gpus: 1,
            time_s: 3.0,
            power_w: 4.0,
            energy_j: 12.0,
            ..Predicted::default()
        };
        let of = |board: &str| {
            let foreseen = Foreseen::from([(("h200".to_string(), row.key()), row.clone())]);
            as_sealed(&Compared { gpu: board.into(), ..compared("a".into(), 2.0) }, &foreseen)
        };
        let sealed = of("h200").expect("the same step");
        assert_eq!((sealed.time.measured, sealed.time.predicted), (2.0, 3.0));
        assert_eq!([sealed.power, sealed.energy].map(|pair| pair.map(|p| p.predicted)), [Some(4.0), Some(12.0)]);
        assert!(of("h100-sxm").is_none());
    }

    #[test]
    fn both_tails_are_five_percent() {
        // Evenly from -1 to 1.
        let scores = scattered(|n, i| ((n * 10 + i) as f64 * 0.618_034).fract() * 2.0 - 1.0);
        let ((low, high), held) = factors(&scores);
        assert!((0.85..1.05).contains(&low) && (0.85..1.05).contains(&high), "{low} {high}");
        assert!(held >= HOLDS);
    }

    #[test]
    fn a_bias_makes_one_side_narrow() {
        let scores = scattered(|n, i| 0.5 + 0.1 * ((n * 10 + i) as f64 * 0.618_034).fract());
        let ((low, high), held) = factors(&scores);
        assert_eq!(low, NARROWEST);
        assert!(high >= 0.59, "{high}");
        assert!(held >= HOLDS);
    }

    #[test]
    fn networks_that_differ_widen_what_the_others_say() {
        // The outermost network of each tail lies twice as far out as the next.
        let scores = scattered(|n, _| if n % 2 == 0 { -1.0 } else { 1.0 } * 2f64.powi(n as i32 / 2));
        let ((low, high), held) = factors(&scores);
        assert!(low.max(high) >= 64.0, "{low} {high}");
        assert!(held >= HOLDS);
    }
}
