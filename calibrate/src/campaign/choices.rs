//! `calibrate choices`: which algorithms the libraries choose, asked of their heuristics for many trials in a minute.

use super::run::in_shard;
use super::trials::Plan;
use crate::rows::choices::{Answer, holds};
use anyhow::Result;
use joulecast_kernels::{DeviceError, LayerRunner};
use joulecast_model::base::shard::Shard;
use joulecast_model::base::units::Seconds;
use std::fmt;
use std::time::Instant;

/// What was asked.
#[derive(Debug, Default)]
pub struct Asked {
    /// One for each trial that an algorithm was named for.
    pub answers: Vec<Answer>,
    /// Convolutions and linear layers that the library has none for.
    pub refused: usize,
    /// Trials of other kinds, which are not asked for.
    pub others: usize,
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
    for item in plan.items.iter().filter(|item| in_shard(shard, item)) {
        if !holds(&item.trial) {
            asked.others += 1;
            continue;
        }
        if budget.is_some_and(|b| begun.elapsed().as_secs_f64() > b.get()) {
            asked.left += 1;
            continue;
        }
        match runner.algorithm(&item.trial) {
            Ok(Some(algorithm)) => {
                asked.answers.push(Answer { gpu: gpu.to_string(), trial: item.trial.clone(), algorithm })
            }
            Ok(None) | Err(DeviceError::Unsupported { .. } | DeviceError::Call { .. }) => asked.refused += 1,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(asked)
}

impl fmt::Display for Asked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = if self.answers.len() == 1 { "" } else { "s" };
        write!(f, "{} algorithm{plural}", self.answers.len())?;
        for (trials, why) in [
            (self.refused, "trials that the library has none for"),
            (self.left, "not asked in time"),
            (self.others, "trials of other kinds than convolutions and linear layers"),
        ] {
            if trials > 0 {
                write!(f, ", {trials} {why}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::campaign::device::Kind;
    use crate::campaign::trials::{self, Level};

    #[test]
    fn the_parts_of_a_plan_are_asked_once_together() -> Result<()> {
        let plan = trials::expand(trials::REFERENCE, Level::Quick)?;
        let (mut runner, gpu) = Kind::Fake.to_ask()?;
        let mut ask = |part: &str, budget| {
            let shard = part.parse().map_err(anyhow::Error::msg)?;
            super::ask(&plan, (runner.as_mut(), &gpu.name), shard, budget)
        };
        let whole = ask("1/1", None)?;
        let held = plan.items.iter().filter(|item| holds(&item.trial)).count();
        assert_eq!((whole.answers.len() + whole.refused, whole.left), (held, 0));
        assert_eq!(whole.others, plan.items.len() - held);
        assert!(whole.answers.iter().all(|a| a.gpu == "h200" && a.algorithm.starts_with("fake_")));
        let parts = [ask("1/2", None)?.answers, ask("2/2", None)?.answers];
        assert_eq!(parts.iter().map(Vec::len).sum::<usize>(), whole.answers.len());
        assert!(parts.iter().all(|part| !part.is_empty()));
        assert_eq!(ask("1/1", Some(Seconds::new(-1.0)))?.left, held);
        Ok(())
    }
}
