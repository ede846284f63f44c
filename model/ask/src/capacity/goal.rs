//! What settings of a language model's service are compared by.

use super::tariff::Tariff;
use crate::serving::{Summary, Which};

/// What is to become small.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goal {
    /// Money for each token of an answer.
    Cost,
    /// Energy for each token of an answer.
    Energy,
    /// GPUs for each token a second.
    Gpus,
    /// Time to the first token.
    FirstToken,
    /// Time of each token after it.
    EachToken,
    /// Time to the last token.
    Answer,
}

impl Goal {
    /// All, with the names that they have on the command line, and in words.
    pub const ALL: [(Self, &'static str, &'static str); 6] = [
        (Self::Cost, "cost", "least cost for each token"),
        (Self::Energy, "energy", "least energy for each token"),
        (Self::Gpus, "throughput", "most tokens/s for each GPU"),
        (Self::FirstToken, "ttft", "first token soonest"),
        (Self::EachToken, "tpot", "least time for each further token"),
        (Self::Answer, "latency", "last token soonest"),
    ];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(goal, ..)| *goal == self).map_or("", |(_, name, _)| name)
    }

    /// In words.
    pub fn words(self) -> &'static str {
        Self::ALL.iter().find(|(goal, ..)| *goal == self).map_or("", |(.., words)| words)
    }

    /// What so many GPUs have of it under a load, of latencies which; less is better. `None` of cost that nobody knows, and of
    /// further tokens where there are none.
    pub fn of(self, summary: &Summary, which: Which, (gpus, tariff): (u64, Option<&Tariff>)) -> Option<f64> {
        Some(match self {
            Self::Cost => tariff?.per_million(gpus, summary),
            Self::Energy => summary.per_answer_token.get(),
            Self::Gpus => gpus as f64 / summary.tokens_per_s,
            Self::FirstToken => summary.to_first.at(which).get(),
            Self::EachToken => summary.per_token?.at(which).get(),
            Self::Answer => summary.to_last.at(which).get(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serving::Quantiles;
    use joulecast_model::base::units::{Joules, Seconds, Watts};

    #[test]
    fn each_goal_is_the_figure_that_it_names() {
        let at = |p90: f64| Quantiles { p90: Seconds::new(p90), ..Quantiles::default() };
        let summary = Summary {
            to_first: at(0.5),
            per_token: Some(at(0.02)),
            to_last: at(6.0),
            tokens_per_s: 1000.0,
            power: Watts::new(500.0),
            per_answer_token: Joules::new(0.5),
            ..Summary::default()
        };
        let tariff = Tariff { per_gpu_hour: 1.8, per_kwh: 0.0, pue: 1.0, overhead: Watts::ZERO };
        let found = Goal::ALL.map(|(goal, ..)| goal.of(&summary, Which::P90, (2, Some(&tariff))).expect("known"));
        let expected = [1.0, 0.5, 2e-3, 0.5, 0.02, 6.0];
        assert!(found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-12), "{found:?}");
        let unknown = |goal: Goal, summary: &Summary| goal.of(summary, Which::P50, (2, None));
        assert_eq!(unknown(Goal::Cost, &summary), None);
        assert_eq!(unknown(Goal::EachToken, &Summary { per_token: None, ..summary }), None);
        assert_eq!(unknown(Goal::FirstToken, &summary), Some(0.0), "of p50, not of p90");
    }
}
