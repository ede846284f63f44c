//! Budgets turned round: the largest batch of a network that keeps latency, energy and power within bounds.

use joulecast_model::base::units::{Joules, Seconds, Watts};
use joulecast_model::step::predictor::{Estimate, NetworkPrediction, Summary};
use std::fmt;

/// What a step may take; what is left out is free. It must fit in memory, too.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Budget {
    /// Longest time of a step.
    pub latency: Option<Seconds>,
    /// Most energy per sample.
    pub energy_per_sample: Option<Joules>,
    /// Most mean power of the board.
    pub power: Option<Watts>,
    /// Whether the 95 % quantiles must keep it instead of the values.
    pub sure: bool,
}

/// A bound that is not kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// Device memory.
    Memory,
    /// The time of a step.
    Latency,
    /// Energy per sample.
    Energy,
    /// Mean power.
    Power,
    /// The largest batch that was tried.
    Tried,
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Memory => "memory",
            Self::Latency => "latency",
            Self::Energy => "energy per sample",
            Self::Power => "power",
            Self::Tried => "largest batch tried",
        })
    }
}

impl Budget {
    /// Whether there is any bound but memory.
    pub fn is_free(&self) -> bool {
        self.latency.is_none() && self.energy_per_sample.is_none() && self.power.is_none()
    }

    /// Whether a step of so many samples keeps the bounds, of those that there are; memory is always one.
    pub fn kept(&self, p: &Summary, batch: u64, fits_in_memory: bool) -> impl Iterator<Item = (Bound, bool)> + use<> {
        fn of<T: Copy>(estimate: &Estimate<T>, sure: bool) -> T {
            if sure { estimate.p95 } else { estimate.value }
        }
        let per_sample = of(&p.energy, self.sure) / batch as f64;
        let all = [
            (Bound::Memory, Some(fits_in_memory)),
            (Bound::Latency, self.latency.map(|most| of(&p.time, self.sure) <= most)),
            (Bound::Power, self.power.map(|most| of(&p.power, self.sure) <= most)),
            (Bound::Energy, self.energy_per_sample.map(|most| per_sample <= most)),
        ];
        all.into_iter().filter_map(|(bound, kept)| Some((bound, kept?)))
    }

    /// The first bound that a step does not keep.
    pub fn broken(&self, p: &NetworkPrediction) -> Option<Bound> {
        self.kept(&p.summary(), p.batch, p.fits_in_memory).find(|(_, kept)| !kept).map(|(bound, _)| bound)
    }
}

/// Batches beyond one that breaks a budget that are looked at, at least and at most.
const BEYOND: (u64, u64) = (8, 64);

/// The largest batch from 1 to `most` that keeps a budget, what stops the next one, and both as they were found by
/// `broken`, which says what a batch does not keep. Batches that do are taken to be consecutive, but for those up to a
/// quarter larger, eight at least, which are looked at one by one (time and power grow with the batch, energy per sample falls;
/// where a library changes its engine a larger batch may take less). Where none does, what stops a batch of 1.
///
/// # Errors
/// Those of `broken`.
pub fn largest_batch<E>(
    most: u64,
    mut broken: impl FnMut(u64) -> Result<Option<Bound>, E>,
) -> Result<(Option<u64>, Bound), E> {
    let (mut best, mut stopped) = (None, Bound::Tried);
    let mut batch = 1;
    while batch <= most {
        match broken(batch)? {
            None => (best, stopped) = (Some(batch), Bound::Tried),
            Some(bound) => {
                if stopped == Bound::Tried {
                    stopped = bound;
                }
                // Less of a batch would not help against these, more of it neither.
                if best.is_some() || bound != Bound::Energy {
                    break;
                }
            }
        }
        batch *= 2;
    }
    let mut low = best.unwrap_or(0);
    let mut high = if best.is_some() { batch.min(most + 1) } else { 1 };
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        match broken(middle)? {
            None => low = middle,
            Some(bound) => (high, stopped) = (middle, bound),
        }
    }
    // From each that is found anew the look goes a quarter further.
    let mut larger = (low + 1).max(2);
    while larger <= most && larger - low <= (low / 4).clamp(BEYOND.0, BEYOND.1) {
        match broken(larger)? {
            None => low = larger,
            Some(bound) if larger == low + 1 => stopped = bound,
            Some(_) => {}
        }
        larger += 1;
    }
    Ok((Some(low).filter(|low| *low > 0), stopped))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(most: u64, broken: impl Fn(u64) -> Option<Bound>) -> (Option<u64>, Bound) {
        largest_batch::<()>(most, |b| Ok(broken(b))).expect("no error")
    }

    #[test]
    fn the_largest_batch_is_exact() {
        for limit in [1, 2, 7, 64, 100, 1000] {
            let broken = |b| (b > limit).then_some(Bound::Latency);
            assert_eq!(found(1024, broken), (Some(limit), Bound::Latency), "{limit}");
        }
        assert_eq!(found(1000, |_| None), (Some(1000), Bound::Tried));
        assert_eq!(found(1024, |_| Some(Bound::Memory)), (None, Bound::Memory));
    }

    #[test]
    fn a_larger_batch_may_take_less() {
        let broken = |b: u64| (b > 20 && ![23, 24].contains(&b)).then_some(Bound::Latency);
        assert_eq!(found(1024, broken), (Some(24), Bound::Latency));
        assert_eq!(found(22, broken), (Some(20), Bound::Latency), "no more than may be tried");
        let twice = |b: u64| (b > 20 && ![25, 31].contains(&b)).then_some(Bound::Latency);
        assert_eq!(found(1024, twice), (Some(31), Bound::Latency), "a quarter more than 25, not than 20");
    }

    #[test]
    fn small_batches_may_take_longer_than_larger_ones() {
        let of = |kept: &'static [u64]| move |b: u64| (!kept.contains(&b)).then_some(Bound::Latency);
        assert_eq!(found(1024, of(&[2, 3, 4])), (Some(4), Bound::Latency));
        assert_eq!(found(1024, of(&[1, 6])), (Some(6), Bound::Latency));
        assert_eq!(found(1024, of(&[9])), (None, Bound::Latency), "eight are looked at");
        assert_eq!(found(3, of(&[4])), (None, Bound::Latency), "no more than may be tried");
    }

    #[test]
    fn small_batches_may_take_too_much_energy_each() {
        let broken = |b: u64| {
            if b < 5 { Some(Bound::Energy) } else { (b > 20).then_some(Bound::Power) }
        };
        assert_eq!(found(1024, broken), (Some(20), Bound::Power));
        let never = |b: u64| Some(if b < 512 { Bound::Energy } else { Bound::Memory });
        assert_eq!(found(1024, never), (None, Bound::Energy), "memory is what larger batches lack");
    }
}
