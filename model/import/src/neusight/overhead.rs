//! Rows whose time is mostly the dispatch of the call.

use joulecast_model::rows::measurement::Measurement;
use std::collections::BTreeMap;

/// Flag of a row under 1.5 times the floor of its GPU and operation, the time of a call with next to no work.
///
/// The floor is estimated from the file itself as the 0.5 % quantile of the times (linear interpolation), for
/// convolutions, of which few are small, as the shortest time. A file whose smallest row already is real
/// work (at least 20 MFLOP of a convolution or matrix product, 100,000 elements of a vector: about 4 us on the
/// slowest of the GPUs), such as those of the test split, tells no floor, and none of its rows is flagged.
pub const OVERHEAD: &str = "overhead_dominated";

const FACTOR: f64 = 1.5;
const QUANTILE: f64 = 0.005;
const SMALL_FLOP: f64 = 2e7;
const SMALL_ELEMENTS: f64 = 1e5;

/// Flags the rows; `operations` holds each row's operation and work, in the same order.
pub(super) fn flag(rows: &mut [Measurement], operations: &[(&'static str, f64)]) {
    let mut groups: BTreeMap<(String, &str), (Vec<f64>, f64)> = BTreeMap::new();
    for (row, (op, work)) in rows.iter().zip(operations) {
        let (times, least) = groups.entry((row.gpu.clone(), *op)).or_insert((Vec::new(), f64::INFINITY));
        times.push(row.time_s);
        *least = least.min(*work);
    }
    let floors: BTreeMap<_, f64> = groups
        .into_iter()
        .filter(|((_, op), (_, least))| *least < small(op))
        .filter_map(|((gpu, op), (mut times, _))| Some(((gpu, op), floor(op, &mut times)?)))
        .collect();
    for (row, (op, _)) in rows.iter_mut().zip(operations) {
        if floors.get(&(row.gpu.clone(), *op)).is_some_and(|floor| row.time_s < FACTOR * floor) {
            row.flags.push(OVERHEAD.to_string());
        }
    }
}

fn small(op: &str) -> f64 {
    if matches!(op, "conv" | "linear" | "bmm") { SMALL_FLOP } else { SMALL_ELEMENTS }
}

/// `None` without times.
fn floor(op: &str, times: &mut [f64]) -> Option<f64> {
    times.sort_by(f64::total_cmp);
    let first = *times.first()?;
    if op == "conv" {
        return Some(first);
    }
    let place = QUANTILE * (times.len() - 1) as f64;
    let below = *times.get(place as usize)?;
    let above = times.get(place as usize + 1).copied().unwrap_or(below);
    Some(below + place.fract() * (above - below))
}

#[cfg(test)]
mod tests {
    use super::*;
    use joulecast_model::base::precision::Phase;
    use joulecast_model::base::shape::Shape;
    use joulecast_model::net::case::LayerCase;
    use joulecast_model::net::layer::{Add, Layer};

    fn row(time_s: f64) -> Measurement {
        let input = Shape::new(&[8]).expect("a shape");
        let case = LayerCase { inputs: vec![input; 2], layer: Layer::Add(Add {}) };
        Measurement::imported("neusight", "1", "t4", case, Phase::Forward, 1, time_s)
    }

    #[test]
    fn the_quantile_interpolates() {
        let mut times: Vec<f64> = (0..=400).rev().map(f64::from).collect();
        assert_eq!(floor("add", &mut times), Some(2.0));
        assert_eq!(floor("add", &mut [1.0, 3.0]), Some(1.01));
        assert_eq!(floor("conv", &mut times), Some(0.0));
        assert_eq!(floor("add", &mut []), None);
    }

    #[test]
    fn only_files_with_small_shapes_tell_a_floor() {
        let mut rows = vec![row(1e-5), row(1.4e-5), row(1.6e-5)];
        flag(&mut rows, &[("add", 64.0), ("add", 1e6), ("add", 1e6)]);
        assert_eq!(rows.iter().map(Measurement::usable).collect::<Vec<_>>(), [false, false, true]);
        let mut rows = vec![row(1e-5), row(1.4e-5)];
        flag(&mut rows, &[("add", 1e6), ("add", 1e6)]);
        assert!(rows.iter().all(Measurement::usable));
    }
}
