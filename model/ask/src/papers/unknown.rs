//! What a paper does not say and all rows of a network share: the batch, and how much slower everything was than foreseen
//! (versions of libraries, input), on GPUs and on processors. Fitted to the rates of some frameworks; the rows of the others
//! test, and power, in which a slower GPU is one that waits.

use super::beside::Nuisance;
use super::error::{PaperError, Refusal};
use super::mapping::{Metric, Paper};
use super::printed::{Cell, Printed};
use super::subject::{Devices, Subject};
use std::collections::BTreeMap;

/// The batch, of those that fit in the memory of every device that ran it, with which the frameworks' processes take what
/// is foreseen (where memory is printed) or their rates differ least from it but for one factor; and that factor, per
/// network and dataset. None for papers that say their batches.
///
/// # Errors
/// When a prediction fails.
pub(super) fn fit(
    paper: &Paper,
    cells: &[Cell],
    devices: &mut Devices<'_>,
) -> Result<BTreeMap<(String, String), Nuisance>, PaperError> {
    let Some(unknown) = &paper.unknown else { return Ok(BTreeMap::new()) };
    let mut networks: BTreeMap<(String, String), Vec<&Cell>> = BTreeMap::new();
    for cell in cells.iter().filter(|c| [Metric::Rate, Metric::Memory].contains(&c.metric)) {
        if unknown.fitted_on.contains(&cell.case.framework) && paper.rule_of(cell).is_none() {
            networks.entry(cell.case.subject()).or_default().push(cell);
        }
    }
    let mut found = BTreeMap::new();
    for (network, cells) in networks {
        let mut best: Option<(f64, Nuisance)> = None;
        'batches: for &batch in &unknown.batches {
            let (mut logs, mut processors, mut memory) = (Vec::new(), Vec::new(), Vec::new());
            for cell in &cells {
                let subject = match Subject::of(paper, &cell.case, Some(batch), devices) {
                    Ok(subject) => subject,
                    Err(Refusal::Case(_)) => continue,
                    Err(Refusal::Paper(error)) => return Err(error),
                };
                let predicted = subject.predict(paper, &cell.case)?;
                let Some(first) = predicted.first() else { continue };
                if !first.fits_in_memory() {
                    continue 'batches;
                }
                match cell.value {
                    Printed::Rate(rate) => {
                        let list = if cell.case.gpus == 0 { &mut processors } else { &mut logs };
                        list.push((batch as f64 / rate / first.time().get()).ln());
                    }
                    Printed::Memory(bytes) => memory.push((first.memory(paper) / bytes.to_f64()).ln().abs()),
                    _ => {}
                }
            }
            let Some((middle, scatter)) = median(&mut logs) else { continue };
            let distance = median(&mut memory).map_or(scatter, |(middle, _)| middle);
            if best.as_ref().is_none_or(|(least, _)| distance < *least) {
                let fitted_on = unknown.fitted_on.clone();
                let factor = middle.exp();
                let on_processors = median(&mut processors).map_or(factor, |(middle, _)| middle.exp());
                best = Some((distance, Nuisance { batch, factor, on_processors, fitted_on }));
            }
        }
        found.extend(best.map(|(_, nuisance)| (network, nuisance)));
    }
    Ok(found)
}

/// The median, and the mean distance from it; `None` of nothing.
fn median(values: &mut [f64]) -> Option<(f64, f64)> {
    values.sort_by(f64::total_cmp);
    let n = values.len();
    let (low, high) = (values.get(n.checked_sub(1)? / 2)?, values.get(n / 2)?);
    let middle = (low + high) / 2.0;
    Some((middle, values.iter().map(|v| (v - middle).abs()).sum::<f64>() / n as f64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_median_has_a_mean_distance() {
        assert_eq!(median(&mut []), None);
        assert_eq!(median(&mut [3.0]), Some((3.0, 0.0)));
        assert_eq!(median(&mut [4.0, 1.0, 2.0, 3.0]), Some((2.5, 1.0)));
    }
}
