//! The buffers of a step of one sample, over more: with as many samples each is as many times as large, and taken and given back
//! at the same time.

use super::{Pool, rounded};
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

    /// The same where all of them take the same buffers; `None` where they do not.
    #[inline(always)]
    fn together(&self, samples: [u64; LANES]) -> Option<[u64; LANES]> {
        let mut used = [0u64; LANES];
        // Sizes, and which turn gave them back.
        let mut free: Vec<[u64; LANES]> = Vec::new();
        let grow = |used: &mut [u64; LANES], bytes: [u64; LANES]| {
            used.iter_mut().zip(bytes).for_each(|(used, bytes)| *used = used.saturating_add(rounded(bytes)));
        };
        for turn in &self.0 {
            let (Turn::Grown(bytes) | Turn::Taken(bytes) | Turn::Given(_, bytes)) = *turn;
            let bytes = samples.map(|samples| bytes.saturating_mul(samples));
            match turn {
                Turn::Grown(_) => grow(&mut used, bytes),
                Turn::Given(..) => free.push(bytes.map(rounded)),
                Turn::Taken(_) => {
                    let fitting = free.iter().enumerate().filter(|(_, size)| size[0] >= bytes[0]);
                    let chosen = fitting.min_by_key(|(_, size)| size[0]).map(|(i, _)| i);
                    // As the first of them chooses, so must the others.
                    let same = free.iter().enumerate().all(|(j, size)| {
                        let own = chosen.map_or([u64::MAX; LANES], |chosen| free[chosen]);
                        let is_earlier = chosen.is_some_and(|chosen| j < chosen);
                        (0..LANES).fold(true, |same, lane| {
                            let fits = size[lane] >= bytes[lane];
                            let better = size[lane] < own[lane] || size[lane] == own[lane] && is_earlier;
                            same & if Some(j) == chosen { fits } else { !(fits & better) }
                        })
                    });
                    if !same {
                        return None;
                    }
                    let Some(chosen) = chosen else {
                        grow(&mut used, bytes);
                        continue;
                    };
                    let size = free.swap_remove(chosen);
                    let rest: [u64; LANES] =
                        std::array::from_fn(|lane| size[lane].saturating_sub(rounded(bytes[lane])));
                    if rest.iter().all(|rest| *rest > 0) {
                        free.push(rest);
                    } else if rest.iter().any(|rest| *rest > 0) {
                        return None;
                    }
                }
            }
        }
        Some(used)
    }
}
