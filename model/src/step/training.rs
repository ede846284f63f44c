//! A whole training: many steps.

use crate::base::units::{JouleSeconds, Joules, Seconds, Watts};
use crate::step::predictor::{Estimate, NetworkPrediction, Warning};

/// Joules in a kilowatt-hour.
const KWH: f64 = 3.6e6;

/// How much is trained.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Plan {
    /// Passes over the dataset, at least 1.
    pub epochs: u64,
    /// Samples of the dataset, at least 1.
    pub dataset_size: u64,
    /// Price of a kilowatt-hour, in any currency.
    pub price_per_kwh: Option<f64>,
    /// What the program takes before the first step.
    pub start: Seconds,
}

/// Samples that a step is charged for without having them are worth a note from this share of all on.
const WORTH_A_NOTE: f64 = 0.01;

impl Plan {
    /// What to tell of the last step of an epoch, which takes what the others do however few samples are left for it.
    pub fn leftover(&self, batch: u64) -> Option<Warning> {
        let (steps, left) = (self.dataset_size.div_ceil(batch), self.dataset_size % batch);
        let missing = 1.0 - self.dataset_size as f64 / (steps as f64 * batch as f64);
        let note = Warning::Leftover { only: steps == 1, left, batch, share: missing };
        (left > 0 && missing >= WORTH_A_NOTE).then_some(note)
    }
}

/// Time and energy of a whole training: the program's start and the steps, without validation and checkpoints.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Training {
    /// How much is trained, at which price.
    pub plan: Plan,
    /// Steps; the last of an epoch, where samples are left over, counts as a whole one.
    pub iterations: u64,
    /// Time of the whole training, the start of the program included.
    pub time: Estimate<Seconds>,
    /// Energy of all devices.
    pub energy: Estimate<Joules>,
    /// Price of that energy, in the currency of the plan.
    pub cost: Option<f64>,
}

impl Training {
    /// A training whose steps are all like this one. While the program starts, its GPUs draw `waiting` together.
    pub fn of(step: &NetworkPrediction, plan: Plan, waiting: Watts) -> Self {
        let iterations = plan.dataset_size.div_ceil(step.batch.max(1)).saturating_mul(plan.epochs);
        let n = iterations as f64;
        let (start, idle) = (plan.start, waiting * plan.start);
        let energy = step.energy.value * n + idle;
        Self {
            plan,
            iterations,
            time: Estimate {
                value: step.time.value * n + start,
                p05: step.time.p05 * n + start,
                p95: step.time.p95 * n + start,
            },
            energy: Estimate { value: energy, p05: step.energy.p05 * n + idle, p95: step.energy.p95 * n + idle },
            cost: plan.price_per_kwh.map(|price| energy.get() / KWH * price),
        }
    }

    /// Energy-delay product of the whole.
    pub fn edp(&self) -> JouleSeconds {
        self.energy.value * self.time.value
    }

    /// Energy in kilowatt-hours.
    pub fn kilowatt_hours(&self) -> f64 {
        self.energy.value.get() / KWH
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::precision::{Mode, Precision};
    use crate::catalog;
    use crate::net::network::ShapedNetwork;
    use crate::step::predict::Predictor;

    #[test]
    fn a_step_that_is_charged_whole_is_told() {
        let plan = |dataset_size| Plan { epochs: 1, dataset_size, price_per_kwh: None, start: Seconds::ZERO };
        let note = Warning::Leftover { only: true, left: 10, batch: 64, share: 54.0 / 64.0 };
        assert_eq!(plan(10).leftover(64), Some(note));
        assert!(plan(100).leftover(64).is_some_and(|n| matches!(n, Warning::Leftover { only: false, .. })));
        assert_eq!((plan(128).leftover(64), plan(1_281_167).leftover(256)), (None, None));
    }

    #[test]
    fn a_training_is_its_steps() -> Result<(), Box<dyn std::error::Error>> {
        let (gpu, framework) = (catalog::gpu("v100")?, catalog::framework("cudnn")?);
        let network = ShapedNetwork::new(&catalog::network("lenet5")?, 64, Precision::Fp32, &[])?;
        let step = Predictor::shipped(gpu, framework).predict(&network, Mode::Training)?;
        let plan = Plan { epochs: 3, dataset_size: 60_000, price_per_kwh: Some(0.25), start: Seconds::ZERO };
        let whole = Training::of(&step, plan, Watts::new(50.0));
        assert_eq!(whole.iterations, 3 * 938);
        assert!((whole.time.value / step.time.value - 2814.0).abs() < 1e-6);
        assert!((whole.energy.value / step.energy.value - 2814.0).abs() < 1e-6);
        assert_eq!(whole.cost, Some(whole.kilowatt_hours() * 0.25));
        assert!((whole.edp().get() / (step.edp().get() * 2814.0 * 2814.0) - 1.0).abs() < 1e-9);
        let started = Training::of(&step, Plan { start: Seconds::new(20.0), ..plan }, Watts::new(50.0));
        assert!(((started.time.value - whole.time.value).get() - 20.0).abs() < 1e-9);
        assert!(((started.energy.value - whole.energy.value).get() - 1000.0).abs() < 1e-6);
        Ok(())
    }
}
