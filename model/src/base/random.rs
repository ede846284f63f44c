//! Numbers that a seed decides, for simulations: the same on every machine.

/// A sequence of 64-bit numbers (splitmix64: Steele, Lea, Flood, OOPSLA 2014).
#[derive(Clone, Debug, PartialEq)]
pub struct Random(u64);

impl Random {
    /// The sequence of a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Another sequence, which numbers of this one do not show.
    pub fn split(&mut self) -> Self {
        Self(self.next())
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform, above 0 and at most 1: its logarithm is finite.
    pub fn uniform(&mut self) -> f64 {
        ((self.next() >> 11) + 1) as f64 / (1u64 << 53) as f64
    }

    /// Exponential with mean 1.
    pub fn exponential(&mut self) -> f64 {
        -self.uniform().ln()
    }

    /// Normal with mean 0 and deviation 1 (Box and Muller, 1958).
    pub fn normal(&mut self) -> f64 {
        let radius = (2.0 * self.exponential()).sqrt();
        radius * (std::f64::consts::TAU * self.uniform()).cos()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_those_of_the_distributions() {
        const N: usize = 200_000;
        let moments = |draw: fn(&mut Random) -> f64| {
            let mut random = Random::new(7);
            let all: Vec<f64> = (0..N).map(|_| draw(&mut random)).collect();
            let mean = all.iter().sum::<f64>() / N as f64;
            (mean, all.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / N as f64)
        };
        let near = |(mean, variance): (f64, f64), m: f64, v: f64| {
            assert!((mean - m).abs() < 0.01 && (variance - v).abs() < 0.02, "{mean} {variance}");
        };
        near(moments(Random::uniform), 0.5, 1.0 / 12.0);
        near(moments(Random::exponential), 1.0, 1.0);
        near(moments(Random::normal), 0.0, 1.0);
    }

    #[test]
    fn a_seed_decides_the_sequence() {
        let first = |seed| Random::new(seed).next();
        assert_eq!(first(0), 0xe220_a839_7b1d_cdaf, "the reference implementation's first number");
        assert_ne!(first(1), first(2));
    }
}
