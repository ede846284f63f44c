//! What a formula is of: one number, several side by side, or only whether it depends on what changes. Formulas over [`Number`]
//! are written once and evaluated for one batch, for eight at a time, or to learn what another batch leaves as it is.

use std::ops::{Add, Div, Mul, Sub};

/// A real number, as far as formulas of kernels need one.
pub(crate) trait Number:
    Copy
    + 'static
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Add<f64, Output = Self>
    + Sub<f64, Output = Self>
    + Mul<f64, Output = Self>
    + Div<f64, Output = Self>
{
    /// One that never changes.
    fn of(value: f64) -> Self;
    /// Natural logarithm.
    fn ln(self) -> Self;
    /// e to its power.
    fn exp(self) -> Self;
    fn sqrt(self) -> Self;
    /// The largest whole number that is not above it, which is not negative.
    fn floor(self) -> Self;
    /// The smallest whole number that is not below it, which is not negative.
    fn ceil(self) -> Self;
    fn min(self, other: Self) -> Self;
    fn max(self, other: Self) -> Self;
    /// `then` where it is at most `bound`, else `otherwise`.
    fn at_most(self, bound: Self, then: Self, otherwise: Self) -> Self;

    /// Between two bounds.
    fn between(self, low: f64, high: f64) -> Self {
        self.max(Self::of(low)).min(Self::of(high))
    }

    /// 1 where it is a multiple of a power of two, else 0.
    fn divides(self, by: f64) -> Self {
        let quotient = self / by;
        quotient.at_most(quotient.floor(), Self::of(1.0), Self::of(0.0))
    }

    /// Whether it is one number, so that processors have room for others beside it.
    const ALONE: bool = false;

    /// Natural logarithms of several.
    fn ln_of_each<const N: usize>(values: [Self; N]) -> [Self; N] {
        values.map(Self::ln)
    }

    /// Takes the natural logarithms of those at some places.
    fn ln_at(values: &mut [Self], places: impl Iterator<Item = usize>) {
        places.for_each(|place| values[place] = values[place].ln());
    }

    /// Writes what a formula says of numbers for each of as many sets of constants as there are [`LANES`].
    #[inline(always)]
    fn for_each<F: Formula<N, C, R>, const N: usize, const C: usize, const R: usize>(
        formula: &F,
        numbers: [Self; N],
        constants: &[[f64; LANES]; C],
        results: [&mut [Self; LANES]; R],
    ) {
        for lane in 0..LANES {
            let mut own = [numbers[0]; C];
            for i in 0..C {
                own[i] = Self::of(constants[i][lane]);
            }
            let each = formula.at(numbers, own);
            for i in 0..R {
                results[i][lane] = each[i];
            }
        }
    }

    /// What a function gives, made of the widest instructions that there are for such numbers.
    fn by_widest<R>(function: impl FnOnce() -> R) -> R {
        function()
    }

    /// 1 over it.
    fn inverse(self) -> Self {
        Self::of(1.0) / self
    }
}

/// A formula of some numbers and of constants.
pub(crate) trait Formula<const N: usize, const C: usize, const R: usize> {
    fn at<V: Number>(&self, numbers: [V; N], constants: [V; C]) -> [V; R];
}

impl Number for f64 {
    const ALONE: bool = true;

    /// Side by side.
    fn ln_of_each<const N: usize>(mut values: [Self; N]) -> [Self; N] {
        let (whole, some) = values.as_chunks_mut::<LANES>();
        for lanes in whole {
            *lanes = Lanes(*lanes).ln().0;
        }
        if !some.is_empty() {
            let mut lanes = Lanes::of(1.0);
            lanes.0.iter_mut().zip(&*some).for_each(|(lane, value)| *lane = *value);
            some.iter_mut().zip(lanes.ln().0).for_each(|(value, log)| *value = log);
        }
        values
    }

    /// Side by side.
    fn ln_at(values: &mut [Self], mut places: impl Iterator<Item = usize>) {
        loop {
            let (mut lanes, mut own, mut count) = (Lanes::of(1.0), [0; LANES], 0);
            for place in places.by_ref().take(LANES) {
                (lanes.0[count], own[count]) = (values[place], place);
                count += 1;
            }
            if count == 0 {
                return;
            }
            own.iter().zip(lanes.ln().0).take(count).for_each(|(place, log)| values[*place] = log);
        }
    }

    /// The sets of constants side by side.
    fn for_each<F: Formula<N, C, R>, const N: usize, const C: usize, const R: usize>(
        formula: &F,
        numbers: [Self; N],
        constants: &[[f64; LANES]; C],
        results: [&mut [Self; LANES]; R],
    ) {
        Lanes::by_widest(
            #[inline(always)]
            || {
                let each = formula.at(numbers.map(Lanes::of), constants.map(Lanes));
                for i in 0..R {
                    *results[i] = each[i].0;
                }
            },
        );
    }

    fn of(value: f64) -> Self {
        value
    }
    fn ln(self) -> Self {
        self.ln()
    }
    fn exp(self) -> Self {
        self.exp()
    }
    fn sqrt(self) -> Self {
        self.sqrt()
    }
    #[inline(always)]
    fn floor(self) -> Self {
        floor_of_positive(self)
    }
    #[inline(always)]
    fn ceil(self) -> Self {
        ceil_of_positive(self)
    }
    #[inline(always)]
    fn min(self, other: Self) -> Self {
        if self < other { self } else { other }
    }
    #[inline(always)]
    fn max(self, other: Self) -> Self {
        if self > other { self } else { other }
    }
    fn at_most(self, bound: Self, then: Self, otherwise: Self) -> Self {
        if self <= bound { then } else { otherwise }
    }
}

/// What a function gives, made of the widest instructions that the processor has: of it and of what is inlined into it. They
/// compute the same, several numbers at once.
#[inline(always)]
pub fn by_widest<R>(function: impl FnOnce() -> R) -> R {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx512f") && std::arch::is_x86_feature_detected!("avx512dq") {
        #[target_feature(enable = "avx512f,avx512dq")]
        fn by_avx512<R>(function: impl FnOnce() -> R) -> R {
            function()
        }
        // SAFETY: as below.
        return unsafe { by_avx512(function) };
    }
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        #[target_feature(enable = "avx2")]
        fn by_avx2<R>(function: impl FnOnce() -> R) -> R {
            function()
        }
        // SAFETY: the processor has these instructions.
        return unsafe { by_avx2(function) };
    }
    function()
}

/// How many numbers lie side by side.
pub(crate) const LANES: usize = 8;

/// So many numbers side by side. Loops over them are what compilers make vector instructions of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lanes(pub [f64; LANES]);

impl Lanes {
    #[inline(always)]
    fn map(mut self, f: impl Fn(f64) -> f64) -> Self {
        for value in &mut self.0 {
            *value = f(*value);
        }
        self
    }

    #[inline(always)]
    fn with(mut self, other: Self, f: impl Fn(f64, f64) -> f64) -> Self {
        for i in 0..LANES {
            self.0[i] = f(self.0[i], other.0[i]);
        }
        self
    }

    #[inline(always)]
    fn logarithms(self) -> Self {
        match self.all_within(f64::MIN_POSITIVE, f64::INFINITY) {
            true => self.map(ln_of_normal),
            false => self.map(f64::ln),
        }
    }

    /// Whether all lie from a number that is not negative up to a larger one, without that. Bits of numbers are in the order of
    /// these; of what lies outside one of the two differences is negative, which is asked of all at once.
    #[inline(always)]
    fn all_within(self, low: f64, high: f64) -> bool {
        let (least, most) = (low.to_bits() as i64, high.to_bits() as i64 - 1);
        let beyond = |value: f64| {
            let bits = value.to_bits() as i64;
            bits.wrapping_sub(least) | most.wrapping_sub(bits)
        };
        self.0.iter().fold(0, |any, &value| any | beyond(value)) >= 0
    }
}

macro_rules! operators {
    ($($trait:ident $method:ident $operator:tt),*) => { $(
        impl $trait for Lanes {
            type Output = Self;
            #[inline(always)]
            fn $method(self, other: Self) -> Self {
                self.with(other, |a, b| a $operator b)
            }
        }
        impl $trait<f64> for Lanes {
            type Output = Self;
            #[inline(always)]
            fn $method(self, other: f64) -> Self {
                self.map(|a| a $operator other)
            }
        }
        impl $trait for Changes {
            type Output = Self;
            fn $method(self, other: Self) -> Self {
                self.or(other)
            }
        }
        impl $trait<f64> for Changes {
            type Output = Self;
            fn $method(self, _: f64) -> Self {
                self
            }
        }
    )* };
}

operators!(Add add +, Sub sub -, Mul mul *, Div div /);

/// Adding and taking away so much rounds to a whole number: numbers so large have no fractions.
const WHOLE: f64 = (1u64 << 52) as f64;
/// The same with room for negative numbers.
const SIGNED: f64 = 1.5 * WHOLE;

#[inline(always)]
fn rounded(value: f64) -> f64 {
    (value + WHOLE) - WHOLE
}

/// What processors without an instruction for it are quicker at than at a call.
#[inline(always)]
fn floor_of_positive(x: f64) -> f64 {
    let near = rounded(x);
    let below = near - if near > x { 1.0 } else { 0.0 };
    if x < WHOLE { below } else { x }
}

#[inline(always)]
fn ceil_of_positive(x: f64) -> f64 {
    let near = rounded(x);
    let above = near + if near < x { 1.0 } else { 0.0 };
    if x < WHOLE { above } else { x }
}

/// ln 2, the first digits with zeros behind them.
const LN2_HIGH: f64 = 0.693_147_180_369_123_8;
const LN2_LOW: f64 = 1.908_214_929_270_587_7e-10;

/// The logarithm of a positive normal number: x = 2^k (1 + f) with 1 + f from sqrt(1/2) to sqrt(2), ln(1 + f) by a minimax
/// polynomial of s = f / (2 + f). That of FreeBSD's `e_log.c`, whose error is below an ulp, without its branches.
#[inline(always)]
fn ln_of_normal(x: f64) -> f64 {
    const ROOT: u64 = 0x3fe6_a09e_0000_0000;
    const ONE: u64 = 0x3ff0_0000_0000_0000;
    const FRACTION: u64 = 0x000f_ffff_ffff_ffff;
    let bits = x.to_bits().wrapping_add(ONE - ROOT);
    let exponent = f64::from_bits(WHOLE.to_bits() | bits >> 52) - WHOLE - 1023.0;
    let f = f64::from_bits((bits & FRACTION) + ROOT) - 1.0;
    let half = 0.5 * f * f;
    let s = f / (2.0 + f);
    let z = s * s;
    let w = z * z;
    let even = w * (0.399_999_999_994_094_2 + w * (0.222_221_984_321_497_84 + w * 0.153_138_376_992_093_73));
    let odd = z
        * (0.666_666_666_666_673_5
            + w * (0.285_714_287_436_623_9 + w * (0.181_835_721_616_180_5 + w * 0.147_981_986_051_165_86)));
    s * (half + even + odd) + exponent * LN2_LOW - half + f + exponent * LN2_HIGH
}

/// e to the power of a number whose result is normal: x = k ln 2 + r, e^r by the rational function of FreeBSD's `e_exp.c`.
#[inline(always)]
fn exp_of_small(x: f64) -> f64 {
    let shifted = x * std::f64::consts::LOG2_E + SIGNED;
    let k = shifted - SIGNED;
    let (high, low) = (x - k * LN2_HIGH, k * LN2_LOW);
    let r = high - low;
    let z = r * r;
    let c = r - z
        * (0.166_666_666_666_666_02
            + z * (-0.002_777_777_777_701_559_3
                + z * (6.613_756_321_437_934e-5 + z * (-1.653_390_220_546_525_2e-6 + z * 4.138_136_797_057_238_5e-8))));
    let fraction = 1.0 + (r * c / (2.0 - c) - low + high);
    fraction * f64::from_bits((shifted.to_bits() << 52).wrapping_add(1.0f64.to_bits()))
}

/// Up to here e to a number's power is normal.
const MOST_EXPONENT: f64 = 700.0;

impl Number for Lanes {
    #[inline(always)]
    fn of(value: f64) -> Self {
        Self([value; LANES])
    }
    fn ln(self) -> Self {
        Self::by_widest(
            #[inline(always)]
            || self.logarithms(),
        )
    }
    fn ln_at(values: &mut [Self], places: impl Iterator<Item = usize>) {
        Self::by_widest(
            #[inline(always)]
            || {
                for place in places {
                    values[place] = values[place].logarithms();
                }
            },
        );
    }
    fn exp(self) -> Self {
        Self::by_widest(
            #[inline(always)]
            || match self.map(f64::abs).all_within(0.0, MOST_EXPONENT) {
                true => self.map(exp_of_small),
                false => self.map(f64::exp),
            },
        )
    }
    #[inline(always)]
    fn by_widest<R>(function: impl FnOnce() -> R) -> R {
        by_widest(function)
    }
    #[inline(always)]
    fn sqrt(self) -> Self {
        self.map(f64::sqrt)
    }
    #[inline(always)]
    fn floor(self) -> Self {
        self.map(floor_of_positive)
    }
    #[inline(always)]
    fn ceil(self) -> Self {
        self.map(ceil_of_positive)
    }
    #[inline(always)]
    fn min(self, other: Self) -> Self {
        self.with(other, |a, b| if a < b { a } else { b })
    }
    #[inline(always)]
    fn max(self, other: Self) -> Self {
        self.with(other, |a, b| if a > b { a } else { b })
    }
    #[inline(always)]
    fn at_most(mut self, bound: Self, then: Self, otherwise: Self) -> Self {
        for i in 0..LANES {
            self.0[i] = if self.0[i] <= bound.0[i] { then.0[i] } else { otherwise.0[i] };
        }
        self
    }
}

/// In place of a number: whether it may change where something else does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Changes(pub bool);

impl Changes {
    fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl Number for Changes {
    fn of(_: f64) -> Self {
        Self(false)
    }
    fn ln(self) -> Self {
        self
    }
    fn exp(self) -> Self {
        self
    }
    fn sqrt(self) -> Self {
        self
    }
    fn floor(self) -> Self {
        self
    }
    fn ceil(self) -> Self {
        self
    }
    fn min(self, other: Self) -> Self {
        self.or(other)
    }
    fn max(self, other: Self) -> Self {
        self.or(other)
    }
    fn at_most(self, bound: Self, then: Self, otherwise: Self) -> Self {
        self.or(bound).or(then).or(otherwise)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pseudorandom numbers from 0 to 1, eight at a time.
    fn random(count: usize) -> impl Iterator<Item = Lanes> {
        let mut bits: u64 = 11;
        (0..count).map(move |_| {
            Lanes(std::array::from_fn(|_| {
                bits = bits.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (bits >> 11) as f64 / (1u64 << 53) as f64
            }))
        })
    }

    fn check(values: Lanes, name: &str, lanes: fn(Lanes) -> Lanes, alone: fn(f64) -> f64, most: f64) {
        for (x, found) in values.0.into_iter().zip(lanes(values).0) {
            let expected = alone(x);
            let same = found == expected || found.is_nan() && expected.is_nan();
            assert!(same || (found - expected).abs() <= most * expected.abs(), "{name} {x}: {found} {expected}");
        }
    }

    #[test]
    fn logarithms_and_powers_side_by_side_are_those_of_each() {
        const MOST: f64 = 4.5e-16;
        for u in random(20_000) {
            for scale in [1.0, 1e-12, 1e12, 1e-300, 1e300] {
                check(u * scale, "ln", Number::ln, f64::ln, MOST);
            }
            // Where the logarithm is near zero.
            check(u * 1e-3 + 1.0, "ln", Number::ln, f64::ln, MOST);
            check(u * 1e-9 + (1.0 - 5e-10), "ln", Number::ln, f64::ln, MOST);
            check((u - 0.5) * 40.0, "exp", Number::exp, f64::exp, MOST);
            check((u - 0.5) * 1380.0, "exp", Number::exp, f64::exp, MOST);
            check((u - 0.5) * 1e-7, "exp", Number::exp, f64::exp, MOST);
        }
        let edges = Lanes([0.0, -1.0, f64::INFINITY, f64::NAN, 5e-324, 1.0, f64::MIN_POSITIVE, f64::MAX]);
        check(edges, "ln", Number::ln, f64::ln, 0.0);
        check(Lanes([-1e3, 1e3, f64::INFINITY, f64::NAN, 0.0, -0.0, 709.0, -745.0]), "exp", Number::exp, f64::exp, 0.0);
    }

    struct Quotient;

    impl Formula<2, 1, 2> for Quotient {
        fn at<V: Number>(&self, [a, b]: [V; 2], [c]: [V; 1]) -> [V; 2] {
            [a / (b + c), c.ceil()]
        }
    }

    #[test]
    fn formulas_of_several_constants_are_those_of_each() {
        let constants = [[0.5, 1.0, 1.5, 2.0, 3.0, 5.0, 8.0, 13.5]];
        let (mut one, mut several) = ([[0.0; LANES]; 2], [[Lanes::of(0.0); LANES]; 2]);
        f64::for_each(&Quotient, [3.0, 4.0], &constants, one.each_mut());
        Lanes::for_each(&Quotient, [3.0, 4.0].map(Lanes::of), &constants, several.each_mut());
        for (i, c) in constants[0].into_iter().enumerate() {
            assert_eq!([one[0][i], one[1][i]], [3.0 / (4.0 + c), c.ceil()]);
            assert_eq!([several[0][i].0, several[1][i].0], [[one[0][i]; LANES], [one[1][i]; LANES]]);
        }
        let values: [f64; 11] = std::array::from_fn(|i| 0.3 + i as f64);
        for (log, value) in f64::ln_of_each(values).into_iter().zip(values) {
            assert!((log - value.ln()).abs() <= 4.5e-16 * value.ln().abs(), "{value}");
        }
    }

    #[test]
    fn whole_numbers_side_by_side_are_those_of_each() {
        for u in random(5_000) {
            for values in [u * 100.0, u * 1e15, u * 1e18, (u * 1e6).floor(), (u * 1e6).floor() + 0.5] {
                check(values, "floor", Number::floor, f64::floor, 0.0);
                check(values, "ceil", Number::ceil, f64::ceil, 0.0);
            }
            let whole = (u * 4096.0).floor();
            check(whole, "divides", |x| x.divides(8.0), |x| f64::from(u8::from(x % 8.0 == 0.0)), 0.0);
        }
    }

    #[test]
    fn what_changes_is_told_from_what_does_not() {
        let (changes, stays) = (Changes(true), Changes::of(3.0));
        assert_eq!((changes * stays).ln().max(stays), changes);
        assert_eq!((stays / stays + 1.0).at_most(stays, stays, stays), stays);
        assert_eq!(stays.at_most(changes, stays, stays), changes, "which of two it is changes");
    }
}
