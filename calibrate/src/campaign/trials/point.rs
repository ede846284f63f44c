//! Points of the unit cube, and the sizes that layers take there: spread evenly, snapped to values that real networks have.

use joulecast_model::base::shape::Shape;
use joulecast_model::net::case::LayerCase;
use joulecast_model::net::layer::Layer;
use rand::Rng;
use rand::seq::SliceRandom;
use rand_xoshiro::Xoshiro256PlusPlus;

/// Coordinates of a point; beyond them it is plainly random.
pub const DIMENSIONS: usize = 6;

/// Jittered strata: along each dimension every one of `count` equal intervals holds exactly one point (Latin
/// hypercube sampling; McKay, Beckman, Conover 1979).
pub fn strata(count: usize, random: &mut Xoshiro256PlusPlus) -> Vec<[f64; DIMENSIONS]> {
    let mut points = vec![[0.0; DIMENSIONS]; count];
    for dimension in 0..DIMENSIONS {
        let mut order: Vec<usize> = (0..count).collect();
        order.shuffle(random);
        for (point, place) in points.iter_mut().zip(order) {
            point[dimension] = (place as f64 + random.gen_range(0.0..1.0)) / count as f64;
        }
    }
    points
}

/// Takes one coordinate after the other.
pub struct Point<'a> {
    coordinates: [f64; DIMENSIONS],
    next: usize,
    random: &'a mut Xoshiro256PlusPlus,
}

impl<'a> Point<'a> {
    /// A point of the strata.
    pub fn new(coordinates: [f64; DIMENSIONS], random: &'a mut Xoshiro256PlusPlus) -> Self {
        Self { coordinates, next: 0, random }
    }

    /// Any point.
    pub fn anywhere(random: &'a mut Xoshiro256PlusPlus) -> Self {
        Self { coordinates: [0.0; DIMENSIONS], next: DIMENSIONS, random }
    }

    pub(super) fn coordinate(&mut self) -> f64 {
        let coordinate = self.coordinates.get(self.next).copied();
        self.next += 1;
        coordinate.unwrap_or_else(|| self.random.gen_range(0.0..1.0))
    }

    /// One of a list, evenly; the list must not be empty.
    pub fn choose<'v, T>(&mut self, values: &'v [T]) -> &'v T {
        &values[self.random.gen_range(0..values.len())]
    }

    /// Whether an event of this probability happens.
    pub fn chance(&mut self, share: f64) -> bool {
        self.random.gen_bool(share)
    }

    /// One of these, evenly.
    pub(super) fn pick<T: Copy>(&mut self, values: &[T]) -> T {
        values[self.random.gen_range(0..values.len())]
    }

    /// One of these by weight; the strata spread it, too.
    pub(super) fn weighted<T: Copy>(&mut self, values: &[(f64, T)]) -> T {
        let total: f64 = values.iter().map(|v| v.0).sum();
        let mut left = self.coordinate() * total;
        for &(weight, value) in values {
            if left < weight {
                return value;
            }
            left -= weight;
        }
        values[values.len() - 1].1
    }

    /// Evenly in the logarithm between the bounds, both included.
    pub(super) fn log(&mut self, [low, high]: [u64; 2]) -> u64 {
        let (a, b) = ((low as f64).ln(), (high as f64 + 1.0).ln());
        ((a + (b - a) * self.coordinate()).exp() as u64).clamp(low, high)
    }

    /// A batch: mostly a power of two.
    pub fn batch(&mut self, range: [u64; 2]) -> u64 {
        let batch = self.log(range);
        if self.chance(0.75) { nearest_power(batch).clamp(range[0], range[1]) } else { batch }
    }

    /// Channels: mostly multiples of 8, of 32 where there are many, and some that divide by nothing.
    pub(super) fn channels(&mut self, range: [u64; 2]) -> u64 {
        let raw = self.log(range);
        if self.chance(0.12) { raw } else { aligned(raw).clamp(range[0], range[1]) }
    }

    /// A count within a factor of another, mostly a multiple of 8 as networks have them.
    pub fn around(&mut self, value: u64, factor: f64) -> u64 {
        self.channels(within(value, factor))
    }

    /// A side within a factor of another.
    pub fn around_side(&mut self, value: u64, factor: f64) -> u64 {
        self.side(within(value, factor))
    }

    pub(super) fn features(&mut self, range: [u64; 2]) -> u64 {
        let raw = self.log(range);
        match self.pick(&[0, 1, 1, 2, 2]) {
            0 => raw,
            1 => aligned(raw).clamp(range[0], range[1]),
            _ => nearest_power(raw).clamp(range[0], range[1]),
        }
    }

    /// Height and width: half of them sides that networks have.
    pub(super) fn side(&mut self, range: [u64; 2]) -> u64 {
        const USUAL: [u64; 17] = [1, 4, 7, 8, 13, 14, 16, 17, 27, 28, 32, 35, 55, 56, 64, 112, 224];
        let raw = self.log(range);
        let near = |s: &&u64| ((**s as f64 / raw as f64).ln().abs() * 1e9) as u64;
        let usual = USUAL.iter().filter(|s| (range[0]..=range[1]).contains(s)).min_by_key(near);
        match usual {
            Some(&side) if self.chance(0.6) => side,
            _ => raw,
        }
    }
}

/// Counts within a factor of another.
fn within(value: u64, factor: f64) -> [u64; 2] {
    [(value as f64 / factor) as u64, (value as f64 * factor) as u64].map(|v| v.max(1))
}

fn nearest_power(value: u64) -> u64 {
    1 << (value.max(1) as f64).log2().round() as u32
}

pub(super) fn aligned(value: u64) -> u64 {
    let step = match value {
        0..=7 => 1,
        8..=95 => 8,
        96..=511 => 32,
        _ => 64,
    };
    ((value + step / 2) / step * step).max(1)
}

/// Rows of a sequence: half of them lengths that networks have.
pub(super) fn tokens(point: &mut Point<'_>, range: [u64; 2]) -> u64 {
    const USUAL: [u64; 9] = [49, 50, 64, 128, 196, 197, 256, 384, 512];
    let raw = point.log(range);
    let usual = point.pick(&USUAL);
    if point.chance(0.5) && (range[0]..=range[1]).contains(&usual) { usual } else { raw }
}

/// A layer of one input.
pub(super) fn one(input: Shape, layer: Layer) -> Option<LayerCase> {
    Some(LayerCase { inputs: vec![input], layer })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;

    #[test]
    fn every_interval_of_every_dimension_holds_one_point() {
        let points = strata(50, &mut Xoshiro256PlusPlus::seed_from_u64(3));
        for dimension in 0..DIMENSIONS {
            let mut intervals: Vec<usize> = points.iter().map(|p| (p[dimension] * 50.0) as usize).collect();
            intervals.sort_unstable();
            assert_eq!(intervals, (0..50).collect::<Vec<_>>());
        }
    }
}
