//! The section `[power]` of a calibration.

use super::CalibrationError;
use super::bounds::{GB, MOST_BANDWIDTH, MOST_COEFFICIENT, MOST_RESIDUAL, MOST_VARIABLE, either_side, number};
use crate::base::file::within;
use crate::base::text::shown;
use crate::base::units::{BytesPerSecond, Hertz};
use crate::law::power::{ACTIVITIES, COUNT, Correction, PowerModel, TRAITS};
use serde::Deserialize;
use std::fmt::Write;

/// No board lets a burst draw more times its limit.
const MOST_BURST: f64 = 4.0;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PowerFile {
    /// In files from before power followed the voltage.
    exponent: Option<f64>,
    /// Bandwidth that shares of traffic are of.
    bandwidth_gbs: Option<f64>,
    /// Power of bursts over the limit.
    burst: Option<f64>,
    headroom: f64,
    /// Lower and upper log quantile.
    residuals: (f64, f64),
    mape_percent: f64,
    rows: usize,
    /// Lowest and highest core clock of the rows.
    clocks_mhz: Option<(f64, f64)>,
    /// activity, coefficient.
    terms: Vec<(String, f64)>,
    correction: Option<CorrectionFile>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CorrectionFile {
    intercept: f64,
    /// variable, coefficient.
    terms: Vec<(String, f64)>,
    /// variable, lowest and highest value.
    clamp: Vec<(String, f64, f64)>,
}

pub(super) fn write_power(text: &mut String, power: &PowerModel) {
    text.push_str("\n[power]\n");
    let bandwidth = power.bandwidth.map(|b| b.get() / GB);
    for (field, value) in [("exponent", power.exponent), ("bandwidth_gbs", bandwidth), ("burst", power.burst)] {
        if let Some(value) = value {
            let _ = writeln!(text, "{field} = {}", number(value));
        }
    }
    let _ = write!(
        text,
        "headroom = {}\nresiduals = [{}, {}]\nmape_percent = {}\nrows = {}\n",
        number(power.headroom),
        number(power.residuals.0),
        number(power.residuals.1),
        number(power.mape),
        power.rows,
    );
    if let Some((low, high)) = power.clocks {
        let _ = writeln!(text, "clocks_mhz = [{}, {}]", number(low.to_mhz()), number(high.to_mhz()));
    }
    text.push_str("terms = [\n");
    for (name, coefficient) in ACTIVITIES.iter().zip(power.coefficients).filter(|(_, c)| *c > 0.0) {
        let _ = writeln!(text, "  [\"{name}\", {}],", number(coefficient));
    }
    text.push_str("]\n");
    if let Some(correction) = &power.correction {
        let _ = write!(text, "\n[power.correction]\nintercept = {}\nterms = [\n", number(correction.intercept));
        for (at, coefficient) in &correction.terms {
            let _ = writeln!(text, "  [\"{}\", {}],", TRAITS[*at], number(*coefficient));
        }
        text.push_str("]\nclamp = [\n");
        for (name, (low, high)) in TRAITS.iter().zip(&correction.clamp) {
            let _ = writeln!(text, "  [\"{name}\", {}, {}],", number(*low), number(*high));
        }
        text.push_str("]\n");
    }
}

fn read_correction(file: CorrectionFile) -> Result<Correction, CalibrationError> {
    let fail = |why: &str| CalibrationError(format!("power.correction: {why}"));
    let terms = file.terms.into_iter().map(|(name, c)| {
        let at =
            TRAITS.iter().position(|t| *t == name).ok_or_else(|| fail(&format!("no variable \"{}\"", shown(&name))))?;
        within(&format!("the coefficient of {name}"), c, either_side(MOST_COEFFICIENT))
            .map_err(|e| fail(&e.to_string()))?;
        Ok((at, c))
    });
    let terms = terms.collect::<Result<_, _>>()?;
    let clamp = TRAITS.iter().zip(&file.clamp).map(|(name, (of, low, high))| {
        let sound = [low, high].iter().all(|v| either_side(MOST_VARIABLE).contains(*v)) && low <= high;
        let valid = name == of && sound;
        valid.then_some((*low, *high)).ok_or_else(|| fail(&format!("clamp of {}: not the range of {name}", shown(of))))
    });
    let clamp: Vec<(f64, f64)> = clamp.collect::<Result<_, _>>()?;
    within("intercept", file.intercept, either_side(MOST_RESIDUAL)).map_err(|e| fail(&e.to_string()))?;
    if clamp.len() != TRAITS.len() || file.clamp.len() != TRAITS.len() {
        return Err(fail("needs a range of every variable"));
    }
    Ok(Correction { intercept: file.intercept, terms, clamp })
}

pub(super) fn read_power(file: PowerFile) -> Result<PowerModel, CalibrationError> {
    let fail = |why: &str| CalibrationError(format!("power: {why}"));
    let (low, high) = file.residuals;
    for (field, value, range) in [
        ("exponent", file.exponent.unwrap_or(0.0), 0.0..=4.0),
        ("burst", file.burst.unwrap_or(1.0), 1.0..=MOST_BURST),
        ("bandwidth_gbs", file.bandwidth_gbs.unwrap_or(1.0), 1.0..=MOST_BANDWIDTH),
        ("headroom", file.headroom, 0.01..=1.0),
        ("mape_percent", file.mape_percent, 0.0..=1e9),
        ("residuals", low, either_side(MOST_RESIDUAL)),
        ("residuals", high, either_side(MOST_RESIDUAL)),
    ] {
        within(field, value, range).map_err(|e| fail(&e.to_string()))?;
    }
    if low > high {
        return Err(fail("residuals are not an interval"));
    }
    if file.clocks_mhz.is_some_and(|(low, high)| !(low >= 1.0 && low <= high && high <= 1e6)) {
        return Err(fail("clocks_mhz is not a range of clocks"));
    }
    let mut coefficients = [0.0; COUNT];
    for (name, value) in file.terms {
        let at = ACTIVITIES
            .iter()
            .position(|a| *a == name)
            .ok_or_else(|| fail(&format!("no activity \"{}\"", shown(&name))))?;
        within(&format!("the coefficient of {name}"), value, 0.0..=MOST_COEFFICIENT)
            .map_err(|e| fail(&e.to_string()))?;
        coefficients[at] = value;
    }
    Ok(PowerModel {
        coefficients,
        correction: file.correction.map(read_correction).transpose()?,
        bandwidth: file.bandwidth_gbs.map(|b| BytesPerSecond::new(b * GB)),
        exponent: file.exponent,
        burst: file.burst,
        headroom: file.headroom,
        residuals: file.residuals,
        mape: file.mape_percent,
        rows: file.rows,
        clocks: file.clocks_mhz.map(|(low, high)| (Hertz::from_mhz(low), Hertz::from_mhz(high))),
    })
}
