//! Physical quantities as types: only meaningful products compile, and a bare number never
//! stands for a quantity between functions.
//!
//! Raw units are SI (seconds, watts, joules, hertz, bytes, operations); named constructors and
//! getters say the prefix. NaN is never turned into a number: callers check with `is_finite`.

use crate::base::text::shown;
use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Div, Mul, Sub};

macro_rules! quantity {
    ($(#[$doc:meta])* $name:ident, $unit:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
        pub struct $name(f64);

        impl $name {
            /// Zero.
            pub const ZERO: Self = Self(0.0);
            /// From a number in the base unit.
            pub const fn new(value: f64) -> Self {
                Self(value)
            }
            /// The number in the base unit.
            pub const fn get(self) -> f64 {
                self.0
            }
            /// The larger of the two.
            pub fn max(self, other: Self) -> Self {
                Self(self.0.max(other.0))
            }
            /// The smaller of the two.
            pub fn min(self, other: Self) -> Self {
                Self(self.0.min(other.0))
            }
        }
        impl Add for $name {
            type Output = Self;
            fn add(self, other: Self) -> Self {
                Self(self.0 + other.0)
            }
        }
        impl AddAssign for $name {
            fn add_assign(&mut self, other: Self) {
                self.0 += other.0;
            }
        }
        impl Sub for $name {
            type Output = Self;
            fn sub(self, other: Self) -> Self {
                Self(self.0 - other.0)
            }
        }
        impl Mul<f64> for $name {
            type Output = Self;
            fn mul(self, factor: f64) -> Self {
                Self(self.0 * factor)
            }
        }
        impl Div<f64> for $name {
            type Output = Self;
            fn div(self, divisor: f64) -> Self {
                Self(self.0 / divisor)
            }
        }
        /// The ratio of two equal quantities is a number.
        impl Div for $name {
            type Output = f64;
            fn div(self, other: Self) -> f64 {
                self.0 / other.0
            }
        }
        impl Sum for $name {
            fn sum<I: Iterator<Item = Self>>(iter: I) -> Self {
                iter.fold(Self::ZERO, |a, b| a + b)
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{} {}", self.0, $unit)
            }
        }
    };
}

macro_rules! count {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
        pub struct $name(u64);

        impl $name {
            /// None at all.
            pub const ZERO: Self = Self(0);
            /// From a whole number.
            pub const fn new(value: u64) -> Self {
                Self(value)
            }
            /// The whole number.
            pub const fn get(self) -> u64 {
                self.0
            }
            /// As a real number, for ratios and rates.
            pub fn to_f64(self) -> f64 {
                self.0 as f64
            }
        }
        impl Add for $name {
            type Output = Self;
            /// Saturates: sums beyond 2^64 are refused where networks are built, not here.
            fn add(self, other: Self) -> Self {
                Self(self.0.saturating_add(other.0))
            }
        }
        impl AddAssign for $name {
            fn add_assign(&mut self, other: Self) {
                *self = *self + other;
            }
        }
        impl Sum for $name {
            fn sum<I: Iterator<Item = Self>>(iter: I) -> Self {
                iter.fold(Self::ZERO, |a, b| a + b)
            }
        }
    };
}

quantity!(
    /// A duration.
    Seconds,
    "s"
);
quantity!(
    /// A power.
    Watts,
    "W"
);
quantity!(
    /// An energy.
    Joules,
    "J"
);
quantity!(
    /// Energy-delay product: energy times time.
    JouleSeconds,
    "J s"
);
quantity!(
    /// A clock frequency.
    Hertz,
    "Hz"
);
quantity!(
    /// Arithmetic throughput; one multiply-accumulate is two operations.
    OpsPerSecond,
    "op/s"
);
quantity!(
    /// Memory throughput.
    BytesPerSecond,
    "B/s"
);
quantity!(
    /// Arithmetic intensity: the computation-to-communication ratio (CTC).
    OpsPerByte,
    "op/B"
);
count!(
    /// A number of bytes.
    Bytes
);
count!(
    /// A number of arithmetic operations.
    Ops
);

impl Seconds {
    /// From milliseconds.
    pub const fn from_ms(ms: f64) -> Self {
        Self(ms * 1e-3)
    }
    /// In milliseconds.
    pub const fn to_ms(self) -> f64 {
        self.0 * 1e3
    }
    /// From microseconds.
    pub const fn from_us(us: f64) -> Self {
        Self(us * 1e-6)
    }
    /// In microseconds.
    pub const fn to_us(self) -> f64 {
        self.0 * 1e6
    }
}

impl Hertz {
    /// From megahertz.
    pub const fn from_mhz(mhz: f64) -> Self {
        Self(mhz * 1e6)
    }
    /// In megahertz.
    pub const fn to_mhz(self) -> f64 {
        self.0 * 1e-6
    }
}

impl Bytes {
    /// The larger of two.
    pub fn max(self, other: Self) -> Self {
        if other > self { other } else { self }
    }
    /// In GiB (2^30 bytes).
    pub fn to_gib(self) -> f64 {
        self.to_f64() / f64::from(1 << 30)
    }
}

impl Mul<Seconds> for Watts {
    type Output = Joules;
    fn mul(self, time: Seconds) -> Joules {
        Joules(self.0 * time.0)
    }
}

impl Div<Seconds> for Joules {
    type Output = Watts;
    fn div(self, time: Seconds) -> Watts {
        Watts(self.0 / time.0)
    }
}

impl Mul<Seconds> for Joules {
    type Output = JouleSeconds;
    fn mul(self, time: Seconds) -> JouleSeconds {
        JouleSeconds(self.0 * time.0)
    }
}

impl Div<OpsPerSecond> for Ops {
    type Output = Seconds;
    fn div(self, rate: OpsPerSecond) -> Seconds {
        Seconds(self.to_f64() / rate.0)
    }
}

impl Div<BytesPerSecond> for Bytes {
    type Output = Seconds;
    fn div(self, rate: BytesPerSecond) -> Seconds {
        Seconds(self.to_f64() / rate.0)
    }
}

impl Div<Bytes> for Ops {
    type Output = OpsPerByte;
    fn div(self, bytes: Bytes) -> OpsPerByte {
        OpsPerByte(self.to_f64() / bytes.to_f64())
    }
}

/// Reads a number with its unit, such as `"900 GB/s"`, into base units of the given dimension.
///
/// Decimal (`GB`) and binary (`GiB`) prefixes are distinct. A missing or unknown unit, a negative or
/// non-finite number is an error that names the text.
pub fn parse_with_unit(text: &str, dimension: Dimension) -> Result<f64, UnitError> {
    let fail = |why: &'static str| UnitError {
        text: shown(&text.chars().take(60).collect::<String>()),
        why,
        expected: dimension.example(),
    };
    let trimmed = text.trim();
    let (number, unit) = trimmed.split_once(' ').ok_or_else(|| fail("no unit after the number"))?;
    let value: f64 = number.trim().parse().map_err(|_| fail("the number is malformed"))?;
    if !value.is_finite() || value.is_sign_negative() {
        return Err(fail("the number must be finite and not negative"));
    }
    let unit = unit.trim();
    let bare =
        dimension.suffixes().iter().find_map(|suffix| unit.strip_suffix(suffix)).ok_or_else(|| fail("unknown unit"))?;
    let factor = match bare {
        "" => 1.0,
        "k" | "K" => 1e3,
        "M" => 1e6,
        "G" => 1e9,
        "T" => 1e12,
        "P" => 1e15,
        "m" => 1e-3,
        "u" => 1e-6,
        "Ki" => 1024.0,
        "Mi" => 1024f64.powi(2),
        "Gi" => 1024f64.powi(3),
        "Ti" => 1024f64.powi(4),
        _ => return Err(fail("unknown prefix")),
    };
    let value = value * factor;
    let (low, high) = dimension.plausible();
    if value != 0.0 && !(low..=high).contains(&value) {
        return Err(fail("no device is near that"));
    }
    Ok(value)
}

/// What a number with a unit measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dimension {
    /// Bytes.
    Memory,
    /// Bytes per second.
    Bandwidth,
    /// Operations per second.
    Throughput,
    /// Hertz.
    Frequency,
    /// Watts.
    Power,
    /// Seconds.
    Time,
    /// Joules.
    Energy,
}

impl Dimension {
    fn suffixes(self) -> &'static [&'static str] {
        match self {
            Self::Memory => &["B"],
            Self::Bandwidth => &["B/s"],
            Self::Throughput => &["FLOP/s", "OP/s"],
            Self::Frequency => &["Hz"],
            Self::Power => &["W"],
            Self::Time => &["s"],
            Self::Energy => &["J"],
        }
    }

    /// Smallest and largest value of any device, generously.
    fn plausible(self) -> (f64, f64) {
        match self {
            Self::Memory => (1.0, 1e17),
            Self::Bandwidth => (1e6, 1e17),
            Self::Throughput => (1e6, 1e19),
            Self::Frequency => (1e3, 1e12),
            Self::Power => (1e-3, 1e6),
            Self::Time => (1e-12, 1e3),
            Self::Energy => (1e-12, 1e12),
        }
    }

    fn example(self) -> &'static str {
        match self {
            Self::Memory => "16 GiB",
            Self::Bandwidth => "900 GB/s",
            Self::Throughput => "15.7 TFLOP/s",
            Self::Frequency => "1530 MHz",
            Self::Power => "300 W",
            Self::Time => "5 us",
            Self::Energy => "5 J",
        }
    }
}

/// A quantity that could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("\"{text}\": {why}; write it like \"{expected}\"")]
pub struct UnitError {
    text: String,
    why: &'static str,
    expected: &'static str,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn legal_products_have_the_right_units() {
        let energy = Watts::new(250.0) * Seconds::from_ms(100.0);
        assert_eq!(energy, Joules::new(25.0));
        assert_eq!(energy * Seconds::new(0.1), JouleSeconds::new(2.5));
        assert_eq!(energy / Seconds::new(0.1), Watts::new(250.0));
        assert_eq!(Ops::new(30) / OpsPerSecond::new(15.0), Seconds::new(2.0));
        assert_eq!(Ops::new(30) / Bytes::new(10), OpsPerByte::new(3.0));
    }

    #[test]
    fn decimal_and_binary_prefixes_differ() {
        assert_eq!(parse_with_unit("16 GiB", Dimension::Memory), Ok(17179869184.0));
        assert_eq!(parse_with_unit("16 GB", Dimension::Memory), Ok(16e9));
        assert_eq!(parse_with_unit("900 GB/s", Dimension::Bandwidth), Ok(900e9));
        assert_eq!(parse_with_unit("15.7 TFLOP/s", Dimension::Throughput), Ok(15.7e12));
        assert_eq!(parse_with_unit("1530 MHz", Dimension::Frequency), Ok(1530e6));
    }

    #[test]
    fn a_missing_or_foreign_unit_is_an_error() {
        for bad in [
            "900",
            "900 W",
            "900GB/s",
            "-1 GB/s",
            "-0 GB/s",
            "NaN GB/s",
            "x GB/s",
            "900 XB/s",
            "1e-300 GB/s",
            "1e300 GB/s",
            "",
        ] {
            assert!(parse_with_unit(bad, Dimension::Bandwidth).is_err(), "{bad}");
        }
    }
}
