//! `calibrate choices`: which algorithms the libraries choose, asked of their heuristics for many trials in a minute.

use super::run::Shard;
use super::trials::Plan;
use crate::rows::choices::{Answer, holds};
use anyhow::Result;
use joulecast_kernels::{DeviceError, LayerRunner};
use joulecast_model::base::units::Seconds;
use std::fmt;
use std::time::Instant;

/// What was asked.
#[derive(Debug, Default)]
pub struct Asked {
    /// One for each trial that an algorithm was named for.
    pub answers: Vec<Answer>,
    /// Trials without one.
    pub refused: usize,
    /// Trials that were left when the time was up.
    pub left: usize,
}

/// Asks for the convolutions and linear layers of a plan, until the time is up. `gpu`: what the device counts as.
///
/// # Errors
/// When the device fails.
pub fn ask(
    plan: &Plan,
    (runner, gpu): (&mut (dyn LayerRunner + 'static), &str),
    shard: Shard,
    budget: Option<Seconds>,
) -> Result<Asked> {
    let begun = Instant::now();
    let mut asked = Asked::default();
    for item in plan.items.iter().filter(|item| holds(&item.trial) && shard.holds(item)) {
        if budget.is_some_and(|b| begun.elapsed().as_secs_f64() > b.get()) {
            asked.left += 1;
            continue;
        }
        match runner.algorithm(&item.trial) {
            Ok(Some(algorithm)) => asked.answers.push(Answer { gpu: gpu.to_string(), trial: item.trial.clone(), algorithm }),
            Ok(None) => asked.refused += 1,
            Err(DeviceError::Unsupported { .. } | DeviceError::Call { .. }) => asked.refused += 1,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(asked)
}

impl fmt::Display for Asked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} algorithms", self.answers.len())?;
        if self.refused > 0 {
            write!(f, ", {} trials without one", self.refused)?;
        }
        if self.left > 0 {
            write!(f, ", {} not asked in time", self.left)?;
        }
        Ok(())
    }
}
