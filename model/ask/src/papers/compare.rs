//! A paper's values, each beside its prediction.

use super::beside::{Comparison, Doubt, NotPredicted, Options};
use super::error::{PaperError, Refusal};
use super::line::Case;
use super::mapping::{Metric, Paper};
use super::printed::from_csv;
use super::subject::{Devices, Predicted, Subject};
use super::unknown;
use std::collections::BTreeMap;

/// Compares one paper's values.
///
/// # Errors
/// When its file is malformed or a prediction fails, in one line that says where.
pub fn compare(paper: &Paper, text: &str, options: &Options<'_>) -> Result<Comparison, PaperError> {
    let cells = from_csv(paper, text).map_err(|why| PaperError::Values { key: paper.key.clone(), why })?;
    let mut doubts: BTreeMap<Case, Doubt> = BTreeMap::new();
    for cell in &cells {
        doubts.entry(cell.case.clone()).or_default().add(cell);
    }
    let mut comparison = Comparison::default();
    let mut missing: BTreeMap<(String, String), usize> = BTreeMap::new();
    let mut predicted: BTreeMap<Case, Result<Vec<Predicted>, String>> = BTreeMap::new();
    let mut devices = Devices::new(options);
    let nuisances = unknown::fit(paper, &cells, &mut devices)?;
    for cell in &cells {
        let nuisance = nuisances.get(&cell.case.subject());
        let found = match cell.metric {
            Metric::Other => Err("not a time, power, energy or memory".to_string()),
            _ => match predicted.get(&cell.case) {
                Some(found) => found.clone(),
                None => {
                    let found = match Subject::of(paper, &cell.case, nuisance.map(|n| n.batch), &mut devices) {
                        Ok(subject) => Ok(subject.predict(paper, &cell.case)?),
                        Err(Refusal::Case(why)) => Err(why),
                        Err(Refusal::Paper(error)) => return Err(error),
                    };
                    predicted.insert(cell.case.clone(), found.clone());
                    found
                }
            },
        };
        match found {
            Ok(readings) => {
                let doubt = doubts.get(&cell.case);
                for reading in readings {
                    comparison.rows.extend(reading.beside(paper, cell, doubt, nuisance)?);
                }
            }
            Err(why) => *missing.entry((cell.table.clone(), why)).or_default() += 1,
        }
    }
    let not = |((table, why), values)| NotPredicted { paper: paper.key.clone(), table, why, values };
    comparison.not_predicted = missing.into_iter().map(not).collect();
    Ok(comparison)
}
