//! A kernel's time on boards of one chip whose memories differ: what traffic takes follows the bandwidth, all else stays.
//!
//! 22,000 trials that an H100 and an H200 both ran say so (data/measurements): products and convolutions take 1.00 to
//! 1.05 times as long on the H100, whose bandwidth is 0.70 of the other's, element-wise kinds up to 1.43 times. The constants
//! below were chosen on these trials (development), of some twenty forms; `calibrate validate --siblings` judges them.

use crate::base::units::Seconds;
use crate::kernel::family::Family;
use crate::kernel::load::Load;
use crate::kernel::setting::Cache;

/// Kernels reach so much of the peak bandwidth when bound by it.
const REACHED: f64 = 0.9;
/// No kernel is traffic alone: at most so much of its time.
const MOST: f64 = 0.98;
/// Where operands stay in place, so much of the second-level cache keeps them from memory.
const KEPT: f64 = 0.5;

/// t^p = rest^p + traffic^p: streams wait for the launch, the cache and the memory one after the other; products hide traffic.
const STREAMS: f64 = 1.5;
const PRODUCTS: f64 = 2.0;

/// What a kernel's traffic takes with the memory that a model is of, and with that of the board it runs on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Carry {
    from: Seconds,
    to: Seconds,
    /// [`STREAMS`] or [`PRODUCTS`].
    exponent: f64,
}

impl Carry {
    /// Nothing differs.
    pub const NONE: Self = Self { from: Seconds::ZERO, to: Seconds::ZERO, exponent: PRODUCTS };

    /// From the memory that a model is of to the board's own.
    pub fn between(model: &Load<'_>, board: &Load<'_>) -> Self {
        let bytes = (board.cost.bytes().to_f64(), board.cost.weights.to_f64());
        Self::of(board, (model.roofline.memory, board.roofline.memory), bytes)
    }

    /// The same where traffic takes so long `from` the model's memory and so long `to` that of the board, and is so many bytes, of
    /// which some are parameters.
    #[inline]
    pub(super) fn of(board: &Load<'_>, (from, to): (Seconds, Seconds), (all, weights): (f64, f64)) -> Self {
        if from == to {
            return Self::NONE;
        }
        let beyond = match (board.work.cache, board.memory.cache) {
            (Cache::Hot, Some(cache)) => {
                // Activations stay where they are, parameters come from memory every time.
                let stays = (all - weights).max(0.0);
                (weights + stays * stays / (stays + KEPT * cache.to_f64())) / all.max(1.0)
            }
            _ => 1.0,
        };
        let exponent = if board.work.family() == Family::Stream { STREAMS } else { PRODUCTS };
        Self { from: from * (beyond / REACHED), to: to * (beyond / REACHED), exponent }
    }

    /// A time with the model's memory as it is on the board.
    pub fn to_board(&self, time: Seconds) -> Seconds {
        exchanged(time, self.from, self.to, self.exponent)
    }

    /// By which factor it shortens any time at most, of as many samples as there may be.
    pub(crate) fn shortest(&self) -> f64 {
        if self.to >= self.from {
            return 1.0;
        }
        let all = Seconds::new(1.0);
        exchanged(all, all, all * (self.to / self.from), self.exponent).get()
    }

    /// A time on the board as it is with the model's memory.
    pub fn to_model(&self, time: Seconds) -> Seconds {
        exchanged(time, self.to, self.from, self.exponent)
    }
}

/// A time whose part that is traffic is exchanged for another.
fn exchanged(time: Seconds, from: Seconds, to: Seconds, exponent: f64) -> Seconds {
    if from == to || time <= Seconds::ZERO {
        return time;
    }
    let part = from.min(time * MOST);
    let other = to * (part / from);
    let sum = |power: fn(f64) -> f64| power(time.get()) - power(part.get()) + power(other.get());
    Seconds::new(match exponent {
        PRODUCTS => sum(|t| t * t).sqrt(),
        _ => sum(|t| t * t.sqrt()).powf(1.0 / STREAMS),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn carry(from: f64, to: f64, exponent: f64) -> Carry {
        Carry { from: Seconds::from_us(from), to: Seconds::from_us(to), exponent }
    }

    #[test]
    fn traffic_follows_the_bandwidth_and_nothing_else_does() {
        let us = Seconds::from_us;
        let bound = carry(98.0, 140.0, 2.0).to_board(us(100.0));
        assert!((bound.to_us() - 141.4).abs() < 0.1, "{bound:?}");
        let hidden = carry(10.0, 14.3, 2.0).to_board(us(100.0));
        assert!((hidden.to_us() - 100.5).abs() < 0.1, "{hidden:?}");
        assert_eq!(Carry::NONE.to_board(us(7.0)), us(7.0));
        // sqrt(5^2 - 3^2 + 6^2)
        assert!((carry(3.0, 6.0, 2.0).to_board(us(5.0)).to_us() - 52f64.sqrt()).abs() < 1e-9);
    }

    #[test]
    fn no_time_is_shortened_by_more_than_the_most() {
        for (exponent, to) in [(1.5, 60.0), (2.0, 60.0), (2.0, 99.0), (1.5, 140.0), (2.0, 100.0)] {
            let carry = carry(100.0, to, exponent);
            let shortened = |time: f64| carry.to_board(Seconds::from_us(time)).to_us() / time;
            let least = [1.0, 50.0, 99.0, 102.0, 104.0, 120.0, 1e3, 1e6].map(shortened).into_iter().fold(1.0, f64::min);
            assert!((carry.shortest() - least).abs() < 1e-9, "{carry:?}: {least}");
        }
        assert_eq!(Carry::NONE.shortest(), 1.0);
    }

    #[test]
    fn parameters_come_from_memory_however_large_the_cache_is() {
        use crate::base::precision::{Mode, Phase, Precision};
        use crate::base::shape::Shape;
        use crate::kernel::load::Memory;
        use crate::kernel::work::Work;
        use crate::net::case::LayerCase;
        use crate::net::layer::{Layer, Linear};
        let (h200, h100) = ["h200", "h100"].map(|gpu| crate::catalog::gpu(gpu).expect("shipped")).into();
        let linear = Layer::Linear(Linear { features: 4096, bias: false });
        let case = LayerCase { inputs: vec![Shape::new(&[4096]).expect("a shape")], layer: linear };
        let of = |batch| {
            let work =
                Work::usual(case.clone(), Phase::Forward, batch, Precision::Bf16, Mode::Inference).expect("fits");
            let cost = work.cost().expect("fits").expect("runs");
            let over = work.clone().costing_over(cost, &h100, Memory::of(&h200)).expect("a peak");
            Carry::between(&over, &work.costing(cost, &h100).expect("a peak"))
        };
        // 32 MiB of parameters fit into the cache of 50 MB and are read nevertheless.
        let bytes = 2.0 * 4096.0 * 4096.0;
        assert!((of(1).from.get() / (bytes / 4.8e12 / REACHED) - 1.0).abs() < 0.01, "{:?}", of(1));
        // 24 MB of activations are read and written, half of them from the cache.
        let stays = 2.0 * 1500.0 * 8192.0;
        let beyond = bytes + stays * stays / (stays + KEPT * 50e6);
        assert!((of(1500).from.get() / (beyond / 4.8e12 / REACHED) - 1.0).abs() < 0.01, "{:?}", of(1500));
    }

    #[test]
    fn there_and_back_is_the_same_time() {
        for exponent in [1.5, 2.0] {
            for (time, off) in [(20.0, 1e-9), (60.0, 1e-9), (101.0, 0.02)] {
                let (carry, time) = (carry(100.0, 143.0, exponent), Seconds::from_us(time + 100.0));
                let back = carry.to_model(carry.to_board(time));
                assert!((back / time - 1.0).abs() <= off, "{back:?} {time:?}");
                assert!(carry.to_board(time) > time);
            }
        }
    }
}
