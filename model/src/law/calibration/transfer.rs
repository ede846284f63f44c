//! What the models of all chips know about a chip that was not among them: how far its slopes may lie from theirs, and
//! how far times lie from predictions once few of its rows are known.

use super::bounds::{MOST_RESIDUAL, MOST_VARIABLE, either_side};
use super::term::{parse_term, term_name};
use super::{CalibrationError, Factor};
use crate::base::file::within;
use crate::base::precision::{Precision, named_enum};
use crate::kernel::family::Family;
use crate::kernel::key::ModelKey;
use serde::{Deserialize, Serialize};
use std::fmt::Write as _;

named_enum!(
    /// Kinds that share what is learned of a chip from few rows.
    Share {
        /// Convolutions of all classes.
        Convolution = "convolution",
        /// Linear layers.
        Linear = "linear",
        /// Batched matrix products.
        Product = "product",
        /// Everything that is bound by memory traffic.
        Bandwidth = "bandwidth",
    }
);

impl Share {
    /// Of a model and its family.
    pub fn of(key: ModelKey, family: Family) -> Self {
        match (family, key) {
            (Family::Stream, _) => Self::Bandwidth,
            (Family::Gemm, ModelKey::Kind("linear")) => Self::Linear,
            (Family::Gemm, ModelKey::Kind("matmul")) => Self::Product,
            (Family::Gemm, _) => Self::Convolution,
        }
    }

    /// The family of its kernels.
    pub fn family(self) -> Family {
        if self == Self::Bandwidth { Family::Stream } else { Family::Gemm }
    }
}

named_enum!(
    /// Formats whose kernels are alike.
    Arithmetic {
        /// fp32.
        Full = "full",
        /// tf32 and what is stored in fewer bits: tensor cores, where there are any.
        Reduced = "reduced",
    }
);

impl Arithmetic {
    /// Of a precision.
    pub fn of(precision: Precision) -> Self {
        if precision == Precision::Fp32 { Self::Full } else { Self::Reduced }
    }
}

/// How far chips' slopes in a variable lie from the common one.
#[derive(Clone, Debug, PartialEq)]
pub struct Slope {
    /// The kinds whose models have that slope.
    pub share: Share,
    /// The variable, or product of variables.
    pub factors: Vec<Factor>,
    /// Root mean square, over the chips, of their slope less the common one.
    pub deviation: f64,
}

/// Log residuals ln(measured / predicted) of a left-out chip of which so many rows were known.
#[derive(Clone, Debug, PartialEq)]
pub struct FewShot {
    /// The kinds that the residuals are of.
    pub share: Share,
    /// The formats that the residuals are of.
    pub arithmetic: Arithmetic,
    /// Known rows, of all kinds together.
    pub rows: usize,
    /// 5 % quantile of the residuals.
    pub low: f64,
    /// 95 % quantile of the residuals.
    pub high: f64,
}

/// Log residuals ln(measured / predicted) of boards whose rows were left out, by models of other boards of their chips.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Siblings {
    /// 5 % quantile of the residuals.
    pub low: f64,
    /// 95 % quantile of the residuals.
    pub high: f64,
    /// How often a board was left out: once per kind, phase and precision.
    pub boards: usize,
    /// Residuals that the quantiles are of.
    pub rows: usize,
}

impl Siblings {
    /// An interval of a model, as log quantiles, on a board that it does not know.
    pub fn widened(&self, (low, high): (f64, f64)) -> (f64, f64) {
        (low.min(self.low), high.max(self.high))
    }
}

/// Everything about transfer to a chip of which few rows are known.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Transfer {
    /// Residuals on other boards of a measured chip; `None` where no chip has rows of several.
    pub siblings: Option<Siblings>,
    /// Slopes that a correction may have.
    pub slopes: Vec<Slope>,
    /// Residuals by number of known rows.
    pub residuals: Vec<FewShot>,
}

impl Transfer {
    /// Residuals for the largest number of known rows that is not above `rows`; `None` below the smallest.
    pub fn residuals(&self, share: Share, arithmetic: Arithmetic, rows: usize) -> Option<&FewShot> {
        let of = |f: &&FewShot| f.share == share && f.arithmetic == arithmetic && f.rows <= rows;
        self.residuals.iter().filter(of).max_by_key(|f| f.rows)
    }

    pub(super) fn write(&self, text: &mut String, number: impl Fn(f64) -> String) {
        text.push_str("\n[transfer]\n");
        if let Some(s) = &self.siblings {
            let _ = writeln!(text, "siblings = [{}, {}, {}, {}]", number(s.low), number(s.high), s.boards, s.rows);
        }
        text.push_str("slopes = [\n");
        for s in &self.slopes {
            let name = term_name(&s.factors, s.share.family());
            let _ = writeln!(text, "  [\"{}\", \"{name}\", {}],", s.share, number(s.deviation));
        }
        text.push_str("]\nresiduals = [\n");
        for r in &self.residuals {
            let (low, high) = (number(r.low), number(r.high));
            let _ = writeln!(text, "  [\"{}\", \"{}\", {}, {low}, {high}],", r.share, r.arithmetic, r.rows);
        }
        text.push_str("]\n");
    }

    pub(super) fn read(file: TransferFile) -> Result<Self, CalibrationError> {
        let fail = |why: String| CalibrationError(format!("transfer: {why}"));
        let slopes = file
            .slopes
            .into_iter()
            .map(|(share, name, deviation)| {
                let factors = parse_term(&name, share.family()).map_err(|e| fail(e.0))?;
                within(&format!("the deviation of {name}"), deviation, 0.0..=MOST_VARIABLE)
                    .map_err(|e| fail(e.to_string()))?;
                Ok(Slope { share, factors, deviation })
            })
            .collect::<Result<_, _>>()?;
        let residuals = file
            .residuals
            .into_iter()
            .map(|(share, arithmetic, rows, low, high)| {
                let field = format!("residuals of {share}");
                within(&field, low, either_side(MOST_RESIDUAL)).map_err(|e| fail(e.to_string()))?;
                within(&field, high, low..=MOST_RESIDUAL).map_err(|e| fail(e.to_string()))?;
                Ok(FewShot { share, arithmetic, rows, low, high })
            })
            .collect::<Result<_, _>>()?;
        let siblings = file.siblings.map(|(low, high, boards, rows)| Siblings { low, high, boards, rows });
        if siblings.is_some_and(|s| !(s.low.is_finite() && s.high.is_finite() && s.low <= s.high)) {
            return Err(fail("the residuals of siblings are not an interval".into()));
        }
        Ok(Self { siblings, slopes, residuals })
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TransferFile {
    /// Lower and upper log quantile, boards left out, rows.
    siblings: Option<(f64, f64, usize, usize)>,
    /// share, term, deviation.
    slopes: Vec<(Share, String, f64)>,
    /// share, arithmetic, known rows, lower and upper log quantile.
    residuals: Vec<(Share, Arithmetic, usize, f64, f64)>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn residuals_are_those_of_no_more_rows_than_are_known() {
        let of =
            |rows, high: f64| FewShot { share: Share::Linear, arithmetic: Arithmetic::Full, rows, low: -high, high };
        let transfer = Transfer { siblings: None, slopes: Vec::new(), residuals: vec![of(20, 0.5), of(100, 0.3)] };
        let high = |rows| transfer.residuals(Share::Linear, Arithmetic::Full, rows).map(|f| f.high);
        assert_eq!((high(19), high(20), high(99), high(5000)), (None, Some(0.5), Some(0.5), Some(0.3)));
        assert!(transfer.residuals(Share::Linear, Arithmetic::Reduced, 100).is_none());
    }
}
