//! What engines of convolutions take as scratch memory, from what was asked of them: multiples of what a convolution reads, writes
//! and learned, and of Fourier transforms of these. Most engines bring maps into another order.

use super::choice::Choices;
use super::least_squares::non_negative;
use crate::rows::prepare::Row;
use joulecast_model::law::calibration::engine_alone;
use joulecast_model::law::choice::{Workspace, engine_of_key, workspace_key};
use ndarray::{Array1, Array2};
use std::collections::BTreeMap;

/// Rows of an engine, at least.
const FEWEST: usize = 20;
/// Less than so many bytes is none.
const NONE: f64 = 65_536.0;
/// What a convolution's multiples are rounded to, one over it.
const DIGITS: f64 = 100.0;

/// Bytes of a convolution's parts ([`Workspace::parts`]) and of its scratch memory.
type Sample = ([f64; 4], f64);

/// Learns the workspaces of the engines that choices name.
pub fn learn(choices: &mut Choices, rows: &[Row]) {
    for (chip, choices) in choices {
        for choice in choices {
            let mut samples: BTreeMap<String, Vec<Sample>> = BTreeMap::new();
            for row in rows.iter().filter(|row| row.chip == *chip && choice.is_for(row.phase, row.precision)) {
                if let (Some(sizes), Some(engine), Some(bytes)) = (&row.sizes, &row.engine, row.workspace) {
                    let key = workspace_key(engine, sizes).into_owned();
                    samples.entry(key).or_default().push((Workspace::parts(sizes), bytes as f64));
                }
            }
            let known: Vec<&str> = choice.engines.iter().map(|engine| engine_alone(engine)).collect();
            samples.retain(|key, of| known.contains(&engine_of_key(key)) && of.len() >= FEWEST);
            choice.workspaces = samples.into_iter().filter_map(|(key, of)| Some((key, fitted(&of)?))).collect();
        }
    }
}

/// The multiples with which bytes are least off; `None` where most convolutions take none.
fn fitted(samples: &[Sample]) -> Option<Workspace> {
    if 2 * samples.iter().filter(|(_, bytes)| *bytes > NONE).count() < samples.len() {
        return None;
    }
    // In shares of the operands, so that large convolutions weigh no more than small ones.
    let whole = |row: usize| samples[row].0[..3].iter().sum::<f64>();
    let parts = Array2::from_shape_fn((samples.len(), 4), |(row, part)| samples[row].0[part] / whole(row));
    let bytes = Array1::from_shape_fn(samples.len(), |row| samples[row].1 / whole(row));
    let multiples = non_negative(&parts, &bytes);
    let multiples = [0, 1, 2, 3].map(|part| (multiples[part] * DIGITS).round() / DIGITS);
    // What is further off than nothing would be says nothing.
    let off = (parts.dot(&Array1::from_iter(multiples)) - &bytes).mapv(f64::abs).sum();
    (off < bytes.sum()).then(|| Workspace::new(multiples))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(of: impl Fn([f64; 4]) -> f64) -> Vec<Sample> {
        let size = |i: i32, every: i32, least: f64| least * f64::from(1 + i % every);
        let parts = (0..60).map(|i| [size(i, 7, 1e6), size(i, 5, 1e6), size(i, 11, 1e5), size(i, 13, 4e6)]);
        parts.map(|parts| (parts, of(parts))).collect()
    }

    #[test]
    fn what_an_engine_copies_is_found() {
        let of = |multiples: [f64; 4]| {
            fitted(&samples(|parts| parts.iter().zip(multiples).map(|(bytes, multiple)| bytes * multiple).sum()))
        };
        for multiples in [[1.0, 1.0, 0.0, 0.0], [1.0, 0.0, 2.5, 0.0], [0.0, 0.0, 0.0, 1.0]] {
            let found = of(multiples).expect("some").multiples();
            assert!(found.iter().zip(multiples).all(|(a, b)| (a - b).abs() < 0.02), "{found:?} for {multiples:?}");
        }
        // What would be negative is nothing.
        let less = of([1.0, -0.05, 0.0, 0.0]).expect("some");
        assert!(less.output == 0.0 && (less.input - 0.95).abs() < 0.06, "{less:?}");
    }

    #[test]
    fn engines_that_mostly_take_nothing_take_nothing() {
        assert_eq!(fitted(&samples(|_| 0.0)), None);
        assert_eq!(fitted(&samples(|[input, ..]| if input > 5.5e6 { input } else { 0.0 })), None);
        assert!(fitted(&samples(|[input, ..]| if input > 1.5e6 { input } else { 1000.0 })).is_some());
    }
}
