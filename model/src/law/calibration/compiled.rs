//! A model's polynomial as it is evaluated again and again: no division, no list of factors apart for every term.

use super::term::Term;
use crate::base::number::Number;
use crate::kernel::features::Wanted;
use std::collections::HashMap;
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
#[derive(Clone, Debug)]
pub(crate) struct Polynomial {
    /// The variables that its model reads, whatever its engines read besides.
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
        let mut polynomial = Self { reads, constant, terms: Vec::with_capacity(list.len()), variables: Vec::new() };
        for term in list {
            let factors = term.factors.iter();
            let variables = factors.flat_map(|f| std::iter::repeat_n(f.variable, usize::from(f.power)));
            polynomial.push(coefficient(term), variables);
        }
        polynomial
    }

    /// A sum of products of variables.
    pub fn of(constant: f64, terms: impl IntoIterator<Item = (f64, Vec<usize>)>) -> Self {
        let mut polynomial = Self { reads: Wanted::ALL, constant, terms: Vec::new(), variables: Vec::new() };
        for (coefficient, variables) in terms {
            polynomial.push(coefficient, variables);
        }
        polynomial
    }

    fn push(&mut self, coefficient: f64, variables: impl IntoIterator<Item = usize>) {
        self.variables.extend(variables);
        self.terms.push((coefficient, self.variables.len()));
    }

    fn terms(&self) -> impl Iterator<Item = (f64, &[usize])> {
        let mut begin = 0;
        self.terms.iter().map(move |&(coefficient, end)| {
            let variables = self.variables.get(std::mem::replace(&mut begin, end)..end);
            (coefficient, variables.unwrap_or_default())
        })
    }

    /// The sum of intercept and terms, wherever the values lie: as [`LayerModel::polynomial`](super::LayerModel::polynomial) but for rounding.
    pub fn at<V: Number>(&self, values: &[V]) -> V {
        V::by_widest(
            #[inline(always)]
            || {
                let mut sum = V::of(self.constant);
                let mut begin = 0;
                for &(coefficient, end) in &self.terms {
                    let mut product = V::of(coefficient);
                    for &variable in self.variables.get(begin..end).unwrap_or_default() {
                        product = product * values[variable];
                    }
                    sum = sum + product;
                    begin = end;
                }
                sum
            },
        )
    }

    /// The same where all variables but some keep their values: what these make of a term goes into its coefficient, and terms
    /// that are alike then are one.
    pub fn where_only(&self, changing: Wanted, values: &[f64]) -> Self {
        let mut whole = Self { reads: self.reads, constant: self.constant, terms: Vec::new(), variables: Vec::new() };
        // Variables that are left, one to a byte, with their place in the new terms.
        let mut known: HashMap<u128, usize> = HashMap::new();
        let mut left: Vec<usize> = Vec::new();
        for (mut coefficient, variables) in self.terms() {
            left.clear();
            for &variable in variables {
                match changing.has(variable) {
                    true => left.push(variable),
                    false => coefficient *= values[variable],
                }
            }
            left.sort_unstable();
            if left.is_empty() {
                whole.constant += coefficient;
                continue;
            }
            let key = left.iter().fold(0, |key: u128, &variable| (key << 8) | (variable as u128 + 1));
            let place =
                if left.len() > BYTES { whole.terms.len() } else { *known.entry(key).or_insert(whole.terms.len()) };
            match whole.terms.get_mut(place) {
                Some((sum, _)) => *sum += coefficient,
                None => whole.push(coefficient, left.iter().copied()),
            }
        }
        whole
    }
}

/// Variables that a key has room for.
const BYTES: usize = u128::BITS as usize / 8;

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
                let changing: Wanted = (0..MAX_VARIABLES).filter(|v| bits >> (v % 64) & 1 == 1).collect();
                let whole = Polynomial::new(model.intercept, &model.terms, Wanted::ALL);
                // Where the others keep their values, what they are is not asked again.
                let only: [f64; MAX_VARIABLES] =
                    std::array::from_fn(|v| if changing.has(v) { values[v] } else { f64::NAN });
                let folded = whole.where_only(changing, &values).at(&only);
                assert!((plain - folded).abs() <= 1e-12 * size, "{name} {}: {plain} {folded}", model.key);
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
