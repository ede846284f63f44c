//! The buffers of a step of one sample, over more: with as many samples each is as many times as large, and taken and given back
//! at the same time.

use super::{ALIGNMENT, Pool};
use crate::base::number::{LANES, Lanes, Number};

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
pub(in super::super) struct Script(pub(super) Vec<Turn>);

impl Script {
    /// [`BufferPlan::bytes`](super::BufferPlan) of so many samples.
    pub fn bytes(&self, samples: u64) -> u64 {
        let mut pool = Pool::default();
        let mut offsets = vec![0; self.0.len()];
        let times = |bytes: u64| bytes.saturating_mul(samples);
        for (i, turn) in self.0.iter().enumerate() {
            match *turn {
                Turn::Grown(bytes) => offsets[i] = pool.grow(times(bytes)),
                Turn::Taken(bytes) => offsets[i] = pool.take(times(bytes)),
                Turn::Given(made, bytes) => pool.give(offsets[made], times(bytes)),
            }
        }
        pool.used
    }

    /// The same of several numbers of samples.
    pub fn bytes_of_each(&self, samples: [u64; LANES]) -> [u64; LANES] {
        let together = Lanes::by_widest(
            #[inline(always)]
            || self.together(samples),
        );
        together.unwrap_or_else(|| samples.map(|samples| self.bytes(samples)))
    }

    /// The same where all of them take the same buffers; `None` where they do not, or are too large for signed numbers, which
    /// processors compare several at once.
    #[inline(always)]
    fn together(&self, samples: [u64; LANES]) -> Option<[u64; LANES]> {
        const BELOW: i64 = ALIGNMENT as i64 - 1;
        const _: () = assert!(ALIGNMENT.is_power_of_two());
        let largest = self.0.iter().map(|turn| turn.bytes()).max()?.checked_mul(samples.into_iter().max()?)?;
        i64::try_from(largest.checked_add(ALIGNMENT)?.checked_mul(self.0.len() as u64)?).ok()?;
        let samples = samples.map(|samples| samples as i64);
        let mut used = [0; LANES];
        // Sizes of those that were given back.
        let mut free: Vec<[i64; LANES]> = Vec::new();
        for turn in &self.0 {
            let bytes = samples.map(|samples| turn.bytes() as i64 * samples);
            let whole = bytes.map(|bytes| (bytes + BELOW) & !BELOW);
            let mut grow = || used.iter_mut().zip(whole).for_each(|(used, whole)| *used += whole);
            match turn {
                Turn::Grown(_) => grow(),
                Turn::Given(..) => free.push(whole),
                Turn::Taken(_) => {
                    let mut chosen = None;
                    let mut own = [i64::MAX; LANES];
                    for (i, size) in free.iter().enumerate() {
                        if size[0] >= bytes[0] && size[0] < own[0] {
                            (chosen, own) = (Some(i), *size);
                        }
                    }
                    // As the first of them chooses, so must the others; of two that are as large either leaves the same.
                    let mut same = (0..LANES).fold(true, |same, lane| same & (own[lane] >= bytes[lane]));
                    for size in &free {
                        let better = |lane: usize| (size[lane] >= bytes[lane]) & (size[lane] < own[lane]);
                        same &= (0..LANES).fold(true, |same, lane| same & !better(lane));
                    }
                    if !same {
                        return None;
                    }
                    let Some(chosen) = chosen else {
                        grow();
                        continue;
                    };
                    free.swap_remove(chosen);
                    let rest: [i64; LANES] = std::array::from_fn(|lane| own[lane] - whole[lane]);
                    if rest.iter().all(|rest| *rest > 0) {
                        free.push(rest);
                    } else if rest.iter().any(|rest| *rest > 0) {
                        return None;
                    }
                }
            }
        }
        Some(used.map(|used| used as u64))
    }
}
