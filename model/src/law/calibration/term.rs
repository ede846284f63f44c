//! Terms of a model's polynomial: monomials of a family's variables, and their names.

use super::CalibrationError;
use crate::base::text::shown;
use crate::kernel::family::Family;

/// A monomial with its coefficient on the standardised column (value - mean) / scale.
#[derive(Clone, Debug, PartialEq)]
pub struct Term {
    /// The variables that are multiplied.
    pub factors: Vec<Factor>,
    /// What ln(t / t_ref) changes by per standard deviation of the column.
    pub coefficient: f64,
    /// Mean of the column in the fit.
    pub mean: f64,
    /// Standard deviation of the column in the fit.
    pub scale: f64,
}

/// A variable to a small power.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Factor {
    /// Position in [`Family::variables`].
    pub variable: usize,
    /// Exponent, at least 1.
    pub power: u8,
}

impl Term {
    /// Value of the monomial before standardisation.
    pub fn monomial(&self, values: &[f64]) -> f64 {
        let factor = |f: &Factor| match (values[f.variable], f.power) {
            // Most are, and a call of powi costs more than they do.
            (value, 1) => value,
            (value, 2) => value * value,
            (value, power) => value.powi(i32::from(power)),
        };
        self.factors.iter().map(factor).product()
    }

    /// Name such as `m^2*n`.
    pub fn name(&self, family: Family) -> String {
        term_name(&self.factors, family)
    }
}

/// Name of a monomial such as `m^2*n`.
pub(crate) fn term_name(factors: &[Factor], family: Family) -> String {
    let names = family.variables();
    let name = |f: &Factor| match f.power {
        1 => names[f.variable].to_string(),
        p => format!("{}^{p}", names[f.variable]),
    };
    factors.iter().map(name).collect::<Vec<_>>().join("*")
}

/// Variables that a product of them has at most.
const MOST_FACTORS: usize = 8;

/// A monomial from its name. A large calibration has thousands: bytes are compared, not characters.
pub(crate) fn parse_term(name: &str, family: Family) -> Result<Vec<Factor>, CalibrationError> {
    let bytes = name.as_bytes();
    let fail = |why: &str| CalibrationError(format!("term {}: {why}", shown(name)));
    let parts = 1 + bytes.iter().filter(|byte| **byte == b'*').count();
    if parts > MOST_FACTORS {
        return Err(fail(&format!("more than {MOST_FACTORS} variables")));
    }
    let mut factors = Vec::with_capacity(parts);
    for part in bytes.split(|byte| *byte == b'*') {
        let (base, power) = match part.iter().position(|byte| *byte == b'^') {
            None => (part, 1),
            Some(at) => match part[at + 1..] {
                [power @ b'1'..=b'4'] => (&part[..at], power - b'0'),
                _ => return Err(fail("exponents are 1 to 4")),
            },
        };
        let unknown = || {
            let base = String::from_utf8_lossy(base);
            fail(&format!("the {family} family has no variable \"{}\"", shown(&base)))
        };
        factors.push(Factor { variable: family.position_of(base).ok_or_else(unknown)?, power });
    }
    Ok(factors)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_terms_read_back() -> Result<(), CalibrationError> {
        for name in ["m", "m^2*n", "m*n*k", "c1x1*wave_64x64"] {
            assert_eq!(term_name(&parse_term(name, Family::Gemm)?, Family::Gemm), name);
        }
        assert!(parse_term("m^9", Family::Gemm).is_err());
        assert!(parse_term("bytes", Family::Gemm).is_err());
        assert!(parse_term("", Family::Gemm).is_err());
        Ok(())
    }
}
