//! Runs over one setting, a clock or a power limit, relative to the default.

use crate::metric::{Metric, Reference};
use joulecast_model::base::order::sort_by;
use joulecast_model::base::units::{Joules, Seconds};

/// A step at a setting.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Run {
    /// The setting: MHz or W.
    pub setting: f64,
    /// Time of a step.
    pub time: Seconds,
    /// Energy of a step.
    pub energy: Joules,
}

/// A run over the default's; all ratios, 1 at the default.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Relative {
    /// The setting: MHz or W.
    pub setting: f64,
    /// Energy.
    pub energy: f64,
    /// Time.
    pub time: f64,
    /// Mean power.
    pub power: f64,
    /// Energy-delay product.
    pub edp: f64,
    /// Energy-delay sum (Krzywaniak, Czarnul, Proficz 2022).
    pub eds: f64,
}

/// Runs relative to the default, by rising setting. `weight`: k of the energy-delay sum.
pub fn relative(runs: &[Run], default: &Reference, weight: f64) -> Vec<Relative> {
    let mut list: Vec<Relative> = runs
        .iter()
        .map(|run| {
            let (energy, time) = (run.energy / default.energy, run.time / default.time);
            let eds = Metric::Eds(weight).of(run.time, run.energy, default);
            Relative { setting: run.setting, energy, time, power: energy / time, edp: energy * time, eds }
        })
        .collect();
    sort_by(&mut list, |a, b| a.setting.total_cmp(&b.setting));
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_one_in_everything() {
        let default = Reference { time: Seconds::new(2.0), energy: Joules::new(500.0) };
        let run = |setting, time, energy| Run { setting, time: Seconds::new(time), energy: Joules::new(energy) };
        let list = relative(&[run(300.0, 2.0, 500.0), run(200.0, 2.5, 400.0)], &default, 2.0);
        let Relative { setting, energy, time, power, edp, eds } = list[1];
        assert_eq!([setting, energy, time, power, edp, eds], [300.0, 1.0, 1.0, 1.0, 1.0, 1.0]);
        assert!((list[0].power - 0.64).abs() < 1e-12 && (list[0].edp - 1.0).abs() < 1e-12);
        assert!((list[0].eds - (0.5 * 0.8 + 0.5 * 1.25)).abs() < 1e-12);
    }
}
