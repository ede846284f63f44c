//! The buffers of a step of one sample, over more: with as many samples each is as many times as large, and taken and given back
//! at the same time. That sizes are rounded up decides no choice of a buffer from some number of samples on: what all take is then
//! a sum over those that were new.

use super::{ALIGNMENT, Pool, rounded};
use std::ops::RangeInclusive;

/// What becomes of buffers, one after the other.
#[derive(Clone, Copy, Debug)]
pub(super) enum Turn {
    /// A new one of so many bytes.
    Grown(u64),
    /// One of so many bytes, new or not.
    Taken(u64),
    /// The one of that turn, of so many bytes, is given back.
    Given(usize, u64),
}

impl Turn {
    fn bytes(self) -> u64 {
        let (Self::Grown(bytes) | Self::Taken(bytes) | Self::Given(_, bytes)) = self;
        bytes
    }
}

/// All of them, in order.
pub(in super::super) struct Script {
    turns: Vec<Turn>,
    settled: Option<Settled>,
}

/// Samples for which the same buffers are taken, and bytes of a sample of those that are new.
#[derive(Debug, PartialEq)]
struct Settled {
    samples: RangeInclusive<u64>,
    grown: Vec<u64>,
}

/// A size in whole units over samples: so many bytes of each, and less than a unit for each time that one was rounded, up or down.
#[derive(Clone, Copy)]
struct Size {
    each: i64,
    up: i64,
    down: i64,
    /// Whether nothing was taken of it.
    whole: bool,
}

impl Size {
    /// Of a buffer of so many bytes of a sample.
    fn of(each: i64) -> Self {
        Self { each, up: i64::from(each % ALIGNMENT as i64 != 0), down: 0, whole: true }
    }

    /// What another leaves of it.
    fn without(self, other: Self) -> Self {
        let Self { each, up, down, .. } = other;
        Self { each: self.each - each, up: self.up + down, down: self.down + up, whole: false }
    }

    /// From how many samples on it is larger than another, or always at least as large; `None` where it may be smaller.
    fn least(self, other: Self) -> Option<i64> {
        let Self { each, down, .. } = self.without(other);
        let same = self.whole && other.whole && each == 0;
        match each {
            1.. => Some(1 + down * ALIGNMENT as i64 / each),
            0 => (down == 0 || same).then_some(1),
            _ => None,
        }
    }
}

impl Settled {
    /// `None` where rounding may always decide, or sizes are too large to be added up.
    fn of(turns: &[Turn]) -> Option<Self> {
        let bytes = turns.iter().try_fold(0u64, |sum, turn| sum.checked_add(turn.bytes())?.checked_add(ALIGNMENT))?;
        let most = i64::MAX / i64::try_from(bytes).ok()?.max(1);
        let (mut from, mut free, mut grown) = (1, Vec::<Size>::new(), Vec::new());
        for turn in turns {
            let own = turn.bytes() as i64;
            match turn {
                Turn::Grown(bytes) => grown.push(*bytes),
                Turn::Given(..) => free.push(Size::of(own)),
                Turn::Taken(bytes) => {
                    let wanted = Size { up: 0, ..Size::of(own) };
                    let mut chosen: Option<usize> = None;
                    for (i, size) in free.iter().enumerate() {
                        let Some(least) = size.least(wanted) else {
                            from = from.max(wanted.least(*size).filter(|_| size.each < own)?);
                            continue;
                        };
                        let against = chosen.map_or(Some(1), |other| size.least(free[other]));
                        if chosen.is_none() || against.is_none() {
                            let other = chosen.map_or(Some(1), |other| free[other].least(*size))?;
                            (from, chosen) = (from.max(other), Some(i));
                        }
                        from = from.max(least).max(against.unwrap_or(1));
                    }
                    let Some(chosen) = chosen else {
                        grown.push(*bytes);
                        continue;
                    };
                    let (size, taken) = (free.swap_remove(chosen), Size::of(own));
                    from = from.max(size.least(taken)?);
                    if size.each > own {
                        free.push(size.without(taken));
                    } else if taken.least(size).is_none() {
                        return None;
                    }
                }
            }
        }
        Some(Self { samples: from as u64..=most as u64, grown })
    }
}

impl Script {
    pub(super) fn new(turns: Vec<Turn>) -> Self {
        Self { settled: Settled::of(&turns), turns }
    }

    /// [`BufferPlan::bytes`](super::BufferPlan) of so many samples.
    pub fn bytes(&self, samples: u64) -> u64 {
        match &self.settled {
            Some(settled) if settled.samples.contains(&samples) => {
                settled.grown.iter().map(|bytes| rounded(bytes * samples)).sum()
            }
            _ => self.walked(samples),
        }
    }

    /// The same buffer by buffer.
    fn walked(&self, samples: u64) -> u64 {
        let mut pool = Pool::default();
        let mut offsets = vec![0; self.turns.len()];
        let times = |bytes: u64| bytes.saturating_mul(samples);
        for (i, turn) in self.turns.iter().enumerate() {
            match *turn {
                Turn::Grown(bytes) => offsets[i] = pool.grow(times(bytes)),
                Turn::Taken(bytes) => offsets[i] = pool.take(times(bytes)),
                Turn::Given(made, bytes) => pool.give(offsets[made], times(bytes)),
            }
        }
        pool.used
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of buffers of less than a unit, of about one, and of many, whatever is taken of them.
    #[test]
    fn a_sum_over_new_buffers_is_what_they_take_buffer_by_buffer() {
        let mut bits: u64 = 3;
        let mut draw = |of: u64| {
            bits = bits.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (bits >> 33) % of
        };
        let mut settled = 0;
        for i in 0..2000 {
            let sizes = [[4, 512, 520, 1000], [512, 1024, 1536, 4096], [100, 700, 4100, 9000]][i % 3];
            let (mut turns, mut live) = (Vec::new(), Vec::new());
            for _ in 0..3 + draw(30) {
                if draw(5) < 2 && !live.is_empty() {
                    let (turn, bytes) = live.swap_remove(draw(live.len() as u64) as usize);
                    turns.push(Turn::Given(turn, bytes));
                } else {
                    let bytes = sizes[draw(4) as usize];
                    live.push((turns.len(), bytes));
                    turns.push(if draw(4) == 0 { Turn::Grown(bytes) } else { Turn::Taken(bytes) });
                }
            }
            let script = Script::new(turns);
            settled += usize::from(script.settled.is_some());
            for samples in (1..40).chain([64, 127, 500, 4096, 100_000, 1 << 40]) {
                assert_eq!(script.bytes(samples), script.walked(samples), "{samples} of {:?}", script.turns);
            }
        }
        assert!(settled > 1000, "{settled}");
    }
}
