//! A model's polynomial as it is evaluated again and again: no division, no list of factors apart for every term.

use super::term::Term;
use crate::kernel::features::Wanted;
use std::fmt;
use std::sync::OnceLock;

/// A model's compiled form, made when it is first asked for. It is no part of what the model says: copies have none yet, and all
/// are equal.
#[derive(Default)]
pub struct Compiled(OnceLock<Polynomial>);

impl Clone for Compiled {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl PartialEq for Compiled {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl fmt::Debug for Compiled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Compiled")
    }
}

impl Compiled {
    /// What was made before, or is made now.
    pub(super) fn get(&self, make: impl FnOnce() -> Polynomial) -> &Polynomial {
        self.0.get_or_init(make)
    }
}

/// Intercept and terms, the means folded into the intercept, the scales into the coefficients.
pub(super) struct Polynomial {
    /// The variables that the model reads, its engines' among them.
    pub reads: Wanted,
    constant: f64,
    /// Coefficients, and where each one's variables end.
    terms: Vec<(f64, usize)>,
    /// Variables of all terms, one to the n-th power n times.
    variables: Vec<usize>,
}

impl Polynomial {
    pub fn new(intercept: f64, list: &[Term], reads: Wanted) -> Self {
        let coefficient = |term: &Term| term.coefficient / term.scale;
        let constant = intercept - list.iter().map(|term| coefficient(term) * term.mean).sum::<f64>();
        let (mut terms, mut variables) = (Vec::with_capacity(list.len()), Vec::new());
        for term in list {
            for factor in &term.factors {
                variables.extend(std::iter::repeat_n(factor.variable, usize::from(factor.power)));
            }
            terms.push((coefficient(term), variables.len()));
        }
        Self { reads, constant, terms, variables }
    }

    /// The sum of intercept and terms, wherever the values lie: as [`LayerModel::polynomial`](super::LayerModel::polynomial) but for rounding.
    pub fn at(&self, values: &[f64]) -> f64 {
        let (mut sum, mut begin) = (self.constant, 0);
        for &(coefficient, end) in &self.terms {
            let variables = self.variables.get(begin..end).unwrap_or_default();
            sum += variables.iter().fold(coefficient, |product, &variable| product * values[variable]);
            begin = end;
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::units::Seconds;
    use crate::catalog::{calibration, calibration_files};
    use crate::kernel::features::{MAX_VARIABLES, Variables};
    use crate::law::calibration::LayerModel;

    fn compiled(model: &LayerModel, values: &[f64]) -> f64 {
        Polynomial::new(model.intercept, &model.terms, Wanted::ALL).at(values)
    }

    #[test]
    fn compiled_polynomials_say_what_plain_ones_do() {
        let mut bits: u64 = 7;
        let mut models = 0;
        for (name, _) in calibration_files() {
            for model in calibration(name).expect("packed").expect("there").models.iter() {
                let values: [f64; MAX_VARIABLES] = std::array::from_fn(|_| {
                    bits = bits.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    (bits >> 40) as f64 / f64::from(1 << 22) - 2.0
                });
                let size = |t: &Term| t.coefficient / t.scale * (t.monomial(&values).abs() + t.mean.abs());
                let size = 1.0 + model.terms.iter().map(|t| size(t).abs()).sum::<f64>();
                let (plain, compiled) = (model.polynomial(&values), compiled(model, &values));
                assert!((plain - compiled).abs() <= 1e-12 * size, "{name} {}: {plain} {compiled}", model.key);
                models += 1;
            }
        }
        assert!(models > 500, "{models}");
    }

    #[test]
    fn a_changed_copy_is_compiled_anew() {
        let models = calibration("gv100").expect("packed").expect("there").models;
        let model = models.iter().find(|m| !m.terms.is_empty()).expect("a polynomial");
        let log = |model: &LayerModel| {
            let variables = Variables { values: [0.5; MAX_VARIABLES] };
            model.ratio(&variables, Seconds::new(1.0), None).log
        };
        let wide = LayerModel { ratio_range: (-1e9, 1e9), ordinary_range: (-1e9, 1e9), ..model.clone() };
        let before = log(&wide);
        let other = LayerModel { intercept: wide.intercept + 1.0, ..wide.clone() };
        assert!((log(&other) - before - 1.0).abs() < 1e-9);
    }
}
