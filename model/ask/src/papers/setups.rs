//! Sums over a step's phases and devices, as papers derive them, and which set of devices is best by each metric.

use super::beside::Compared;
use super::mapping::Quantity;
use std::collections::{BTreeMap, BTreeSet};

/// Time and energy of a step on all its devices, all phases together, in seconds and joules.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Totals {
    /// Time of a step, in seconds.
    pub time: f64,
    /// Energy of a step on all devices, in joules.
    pub energy: f64,
}

impl Totals {
    /// Energy-delay product.
    pub fn edp(&self) -> f64 {
        self.time * self.energy
    }
}

/// A step on a set of devices, printed and predicted.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct SetupTotals {
    /// Key of the paper in `papers.toml`.
    pub paper: String,
    /// Which reading of the paper's description.
    pub reading: String,
    /// The network, in the words of the paper.
    pub network: String,
    /// Samples per step.
    pub batch: u64,
    /// The devices, as in 2xv100.
    pub setup: String,
    /// Sums of printed values.
    pub printed: Totals,
    /// Sums of what is predicted of these values.
    pub predicted: Totals,
}

/// A name, and the number that is to be small.
pub type Measure = (&'static str, fn(&Totals) -> f64);

/// What a set of devices may be best by.
pub const METRICS: [Measure; 3] = [("time", |t| t.time), ("energy", |t| t.energy), ("EDP", Totals::edp)];

/// The best set of devices for a network and batch, as printed and as predicted.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Winner {
    /// Key of the paper in `papers.toml`.
    pub paper: String,
    /// Which reading of the paper's description.
    pub reading: String,
    /// The network, in the words of the paper.
    pub network: String,
    /// Samples per step.
    pub batch: u64,
    /// One of [`METRICS`].
    pub metric: &'static str,
    /// How many sets of devices the paper prints.
    pub choices: usize,
    /// The best as printed.
    pub printed: String,
    /// The best as predicted.
    pub predicted: String,
    /// What the predicted best costs more than the printed one, as printed: 0 where they agree.
    pub regret: f64,
}

/// Sums of forward and backward over all devices, where time and energy of every part are printed and no time among
/// them is distorted.
pub fn totals(rows: &[Compared]) -> Vec<SetupTotals> {
    type Key<'a> = (&'a str, &'a str, &'a str, u64, &'a str);
    let mut groups: BTreeMap<Key<'_>, Vec<&Compared>> = BTreeMap::new();
    for row in rows.iter().filter(|r| ["forward", "backward"].contains(&r.phase.as_str())) {
        let key = (row.paper.as_str(), row.reading.as_str(), row.network.as_str(), row.batch, row.setup.as_str());
        groups.entry(key).or_default().push(row);
    }
    let mut list = Vec::new();
    for ((paper, reading, network, batch, setup), members) in groups {
        if members.iter().any(|r| r.quantity == Quantity::Time && r.distorted.is_some()) {
            continue;
        }
        let of = |quantity| members.iter().filter(move |r| r.quantity == quantity);
        let parts = |quantity| of(quantity).map(|r| (&r.phase, &r.gpu)).collect::<BTreeSet<_>>();
        let kinds = setup.split(',').count();
        if [Quantity::Time, Quantity::Energy].iter().any(|q| parts(*q).len() < 2 * kinds) {
            continue;
        }
        let sum = |value: fn(&Compared) -> f64| Totals {
            // Each kind's table prints the same time: the step's.
            time: of(Quantity::Time).map(|r| value(r)).sum::<f64>() / kinds as f64,
            energy: of(Quantity::Energy).map(|r| value(r) * r.count as f64).sum(),
        };
        list.push(SetupTotals {
            paper: paper.to_string(),
            reading: reading.to_string(),
            network: network.to_string(),
            batch,
            setup: setup.to_string(),
            printed: sum(|r| r.printed),
            predicted: sum(|r| r.predicted),
        });
    }
    list
}

/// The best sets of devices by each metric, of those that have more than one to choose from.
pub fn winners(totals: &[SetupTotals]) -> Vec<Winner> {
    let mut cases: BTreeMap<(&str, &str, &str, u64), Vec<&SetupTotals>> = BTreeMap::new();
    for t in totals {
        cases.entry((&t.paper, &t.reading, &t.network, t.batch)).or_default().push(t);
    }
    let mut list = Vec::new();
    for ((paper, reading, network, batch), sets) in cases.into_iter().filter(|(_, sets)| sets.len() > 1) {
        for (metric, value) in METRICS {
            let least = |of: fn(&SetupTotals) -> &Totals| {
                sets.iter().min_by(|a, b| value(of(a)).total_cmp(&value(of(b)))).copied()
            };
            let (Some(printed), Some(predicted)) = (least(|s| &s.printed), least(|s| &s.predicted)) else { continue };
            list.push(Winner {
                paper: paper.to_string(),
                reading: reading.to_string(),
                network: network.to_string(),
                batch,
                metric,
                choices: sets.len(),
                printed: printed.setup.clone(),
                predicted: predicted.setup.clone(),
                regret: value(&predicted.printed) / value(&printed.printed) - 1.0,
            });
        }
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(setup: &str, printed: (f64, f64), predicted: (f64, f64)) -> SetupTotals {
        let of = |(time, energy)| Totals { time, energy };
        SetupTotals {
            paper: "p".into(),
            reading: String::new(),
            network: "n".into(),
            batch: 64,
            setup: setup.into(),
            printed: of(printed),
            predicted: of(predicted),
        }
    }

    #[test]
    fn the_best_by_each_metric_and_what_a_wrong_choice_costs() {
        let sets = [set("1xa", (4.0, 10.0), (4.0, 9.0)), set("2xa", (2.0, 16.0), (3.0, 13.0))];
        let found = winners(&sets);
        let of = |metric| found.iter().find(|w| w.metric == metric).expect("a winner");
        assert_eq!((of("time").predicted.as_str(), of("time").regret), ("2xa", 0.0));
        assert_eq!(of("energy").printed, "1xa");
        assert_eq!((of("EDP").printed.as_str(), of("EDP").predicted.as_str()), ("2xa", "1xa"));
        assert!((of("EDP").regret - 0.25).abs() < 1e-12);
        assert!(winners(&sets[..1]).is_empty());
    }
}
