//! What measuring a calibration takes.

use crate::campaign::trials::{self, Level, Measure, Plan, REFERENCE};
use anyhow::{Context, Result};
use clap::ValueEnum as _;
use joulecast_reports::table::Table;
use joulecast_reports::trials::Cost;

/// Device and host time of a row on an H200: a time, and an energy beyond it (reports/published/h200.md).
const TIME_ROW_S: f64 = 0.06;
const ENERGY_ROW_S: f64 = 2.4;

/// Minutes of a plan at the rates of an H200.
pub fn minutes(plan: &Plan) -> f64 {
    let energies = plan.count(Measure::Energy) as f64;
    (TIME_ROW_S * (plan.items.len() as f64 + energies) + ENERGY_ROW_S * energies) / 60.0
}

/// What each level of the shipped recipe takes, and what to call then, in words.
///
/// # Errors
/// When the recipe cannot be expanded.
pub fn text() -> Result<String> {
    let cost = |level: &Level| -> Result<Cost> {
        let plan = trials::expand(REFERENCE, *level).context("data/plans/reference.toml")?;
        let energies = plan.count(Measure::Energy);
        Ok(Cost { level: level.name(), rows: plan.items.len() + energies, energies, minutes: minutes(&plan).ceil() })
    };
    let levels = Level::value_variants().iter().map(cost).collect::<Result<Vec<_>>>()?;
    Ok(Table::of(&levels).to_text()
        + "minutes at the rates of an H200: 1,000 times a minute, 2.4 s for each energy\n\
           then: calibrate fit --dataset rows --out my_calibrations    (--base universal where rows are few)\n\
           and: predict --calibration my_calibrations/CHIP.toml ...\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_larger_plan_takes_longer() {
        let of = |level| minutes(&trials::expand(REFERENCE, level).expect("expands"));
        let (quick, standard, reference) = (of(Level::Quick), of(Level::Standard), of(Level::Reference));
        assert!(1.0 < quick && quick < standard && standard < reference && reference < 60.0);
    }
}
