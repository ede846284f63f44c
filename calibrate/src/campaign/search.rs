//! Which settings to measure so that the least of a metric is found without measuring all of them.
//!
//! Settings stand in a row: position 0 is the default, the others go down from it. A walk in large strides goes down
//! until the metric has risen beyond its noise for some points in a row; around the least, strides are then halved.
//! The next position follows from what is known alone, so that a sweep which was stopped goes on as if it had not been.

use std::collections::BTreeMap;

/// A metric at a position.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Known {
    /// The metric; `None` where the measurement told none.
    pub value: Option<f64>,
    /// Its uncertainty, relative.
    pub noise: f64,
}

/// How to search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Search {
    last: usize,
    stride: usize,
    patience: usize,
}

/// So few settings are all walked through: strides would skip most of them.
const FEW: usize = 8;

impl Search {
    /// Over positions 0 to `last`; the walk ends after `patience` risen points in a row.
    pub fn new(last: usize, patience: usize) -> Self {
        // About as many points to walk as to skip between two of them; a power of two, to be halved.
        let stride = if last <= FEW { 1 } else { ((last as f64).sqrt() as usize).next_power_of_two() / 2 };
        Self { last, stride: stride.max(1), patience: patience.max(1) }
    }

    /// Positions of the walk, as far as it may go.
    pub fn walk(&self) -> Vec<usize> {
        let mut list: Vec<usize> = (0..=self.last).step_by(self.stride).collect();
        if list.last() != Some(&self.last) {
            list.push(self.last);
        }
        list
    }

    /// The next position to measure; `None` when the least is found.
    pub fn next(&self, known: &BTreeMap<usize, Known>) -> Option<usize> {
        let mut best: Option<(usize, f64, f64)> = None;
        let mut risen = 0;
        for position in self.walk() {
            let Some(at) = known.get(&position) else { return Some(position) };
            let Some(value) = at.value else { continue };
            match best {
                Some((_, least, noise)) if value > least * (1.0 + noise.max(at.noise)) => risen += 1,
                Some((_, least, _)) if value >= least => risen = 0,
                _ => (best, risen) = (Some((position, value, at.noise)), 0),
            }
            if risen >= self.patience {
                break;
            }
        }
        let (mut centre, mut least, _) = best?;
        let mut stride = self.stride / 2;
        while stride > 0 {
            let around = [centre.checked_sub(stride), Some(centre + stride).filter(|p| *p <= self.last)];
            for position in around.into_iter().flatten() {
                let Some(at) = known.get(&position) else { return Some(position) };
                if let Some(value) = at.value.filter(|v| *v < least) {
                    (centre, least) = (position, value);
                }
            }
            stride /= 2;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Positions in the order measured, of a metric that is known everywhere.
    fn order(search: Search, metric: impl Fn(usize) -> Option<f64>) -> Vec<usize> {
        let mut known = BTreeMap::new();
        let mut order = Vec::new();
        while let Some(position) = search.next(&known) {
            assert!(known.insert(position, Known { value: metric(position), noise: 0.01 }).is_none(), "{order:?}");
            order.push(position);
        }
        order
    }

    fn valley(bottom: f64) -> impl Fn(usize) -> Option<f64> {
        move |position| Some(10.0 + ((position as f64 - bottom) / 10.0).powi(2))
    }

    #[test]
    fn the_least_is_found_in_fewer_points_wherever_it_lies() {
        for bottom in 0..=100 {
            let order = order(Search::new(100, 2), valley(f64::from(bottom)));
            assert!(order.contains(&(bottom as usize)), "{bottom}: {order:?}");
            assert!(order.len() < 40, "{bottom}: {}", order.len());
            assert_eq!(order.first(), Some(&0), "the default comes first");
        }
        assert!(order(Search::new(100, 2), valley(10.0)).len() < 16, "what lies beyond the bracket is left out");
    }

    #[test]
    fn noise_is_no_rise() {
        let noisy = |position: usize| Some(10.0 + 0.05 * (position % 2) as f64);
        assert_eq!(order(Search::new(8, 2), noisy).len(), 9, "0.5 % with a noise of 1 % ends no walk");
        let rising = |position: usize| Some(10.0 + position as f64);
        assert_eq!(order(Search::new(8, 3), rising), [0, 1, 2, 3]);
    }

    #[test]
    fn points_without_a_value_are_passed_over() {
        let gaps = |position: usize| if position.is_multiple_of(2) { None } else { valley(5.0)(position) };
        assert!(order(Search::new(8, 2), gaps).contains(&5));
        assert_eq!(order(Search::new(3, 1), |_| None), [0, 1, 2, 3]);
    }

    #[test]
    fn a_search_goes_on_from_what_is_known() {
        let (search, metric) = (Search::new(60, 2), valley(23.0));
        let whole = order(search, &metric);
        let known: BTreeMap<usize, Known> =
            whole[..5].iter().map(|p| (*p, Known { value: metric(*p), noise: 0.01 })).collect();
        assert_eq!(search.next(&known), Some(whole[5]));
    }
}
