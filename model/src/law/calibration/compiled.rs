//! A model's polynomial as it is evaluated again and again: no division, no list of factors apart for every term.

use super::layer_model::Range;
use super::term::Term;
use crate::base::mark::Places;
use crate::base::number::Number;
use crate::kernel::features::{MAX_VARIABLES, Wanted};
use std::fmt;
use std::sync::OnceLock;

/// The compiled form of a model or of an engine's terms, made when it is first asked for. It is no part of what these say: copies
/// have none yet, and all are equal.
#[derive(Default)]
pub struct Compiled {
    polynomial: OnceLock<Bounded>,
    /// Where engines are, by their names.
    places: OnceLock<Places>,
    /// The variables that say whether a kernel lies within what was fitted.
    bounding: OnceLock<Wanted>,
}

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
    pub(super) fn get(&self, make: impl FnOnce() -> Bounded) -> &Bounded {
        self.polynomial.get_or_init(make)
    }

    /// The same of the variables that bound what was fitted.
    pub(super) fn bounding(&self, make: impl FnOnce() -> Wanted) -> Wanted {
        *self.bounding.get_or_init(make)
    }

    /// The same of where the model's engines are.
    pub(super) fn places(&self, make: impl FnOnce() -> Places) -> &Places {
        self.places.get_or_init(make)
    }
}

/// Intercept and terms, the means folded into the intercept, the scales into the coefficients. Terms that have all variables but
/// one in common are the product of these times a sum over that one.
#[derive(Clone, Debug)]
pub(crate) struct Polynomial {
    constant: f64,
    products: Vec<Product>,
    /// Variables in common, product after product; one to the n-th power n times.
    common: Vec<usize>,
    /// Coefficients, each with the variable that is not in common, product after product.
    sums: Vec<(f64, usize)>,
}

/// Where the variables and the sum of a product end.
#[derive(Clone, Copy, Debug)]
struct Product {
    common: usize,
    sums: usize,
}

impl Polynomial {
    pub fn new(intercept: f64, list: &[Term]) -> Self {
        let coefficient = |term: &Term| term.coefficient / term.scale;
        let constant = intercept - list.iter().map(|term| coefficient(term) * term.mean).sum::<f64>();
        let mut terms = Terms::new(constant);
        for term in list {
            let factors = term.factors.iter();
            let variables = factors.flat_map(|f| std::iter::repeat_n(f.variable, usize::from(f.power)));
            terms.push(coefficient(term), variables);
        }
        terms.grouped()
    }

    /// The sum of intercept and terms, wherever the values lie: as [`LayerModel::polynomial`](super::LayerModel::polynomial) but for rounding.
    pub fn at<V: Number>(&self, values: &[V; MAX_VARIABLES]) -> V {
        V::by_widest(
            #[inline(always)]
            || {
                let mut whole = V::of(self.constant);
                let mut begin = Product { common: 0, sums: 0 };
                for &end in &self.products {
                    let common = self.common.get(begin.common..end.common).unwrap_or_default();
                    let sums = self.sums.get(begin.sums..end.sums).unwrap_or_default();
                    begin = end;
                    let mut factor = V::of(1.0);
                    for &variable in common {
                        factor = factor * values[variable];
                    }
                    // Flags, and what does not apply to a kernel, are zero.
                    if factor.is_zero() {
                        continue;
                    }
                    let mut sum = V::of(0.0);
                    for &(coefficient, variable) in sums {
                        sum = sum + values[variable] * coefficient;
                    }
                    whole = whole + sum * factor;
                }
                whole
            },
        )
    }
}

/// A polynomial of variables that are held to what rows had.
#[derive(Clone, Debug)]
pub(crate) struct Bounded {
    /// The variables that its model reads, whatever its engines read besides.
    pub reads: Wanted,
    /// Those of the polynomial, whose own are places among these.
    variables: Vec<Range>,
    polynomial: Polynomial,
}

impl Bounded {
    /// Later ranges of a variable bound what earlier ones left.
    pub fn new(polynomial: Polynomial, ranges: &[Range], reads: Wanted) -> Self {
        let range_of = |variable: usize| {
            let unbounded = Range { variable, low: f64::NEG_INFINITY, high: f64::INFINITY };
            ranges.iter().filter(|r| r.variable == variable).fold(unbounded, |a, r| Range {
                variable,
                low: a.low.clamp(r.low, r.high),
                high: a.high.clamp(r.low, r.high),
            })
        };
        Self::of(polynomial, range_of, reads)
    }

    /// Of a polynomial of places that stand for variables.
    fn of(mut polynomial: Polynomial, range_of: impl Fn(usize) -> Range, reads: Wanted) -> Self {
        let Polynomial { common, sums, .. } = &mut polynomial;
        let own: Wanted = common.iter().copied().chain(sums.iter().map(|(_, v)| *v)).collect();
        let mut places = [0; MAX_VARIABLES];
        own.each(0..MAX_VARIABLES).enumerate().for_each(|(place, variable)| places[variable] = place);
        common.iter_mut().chain(sums.iter_mut().map(|(_, v)| v)).for_each(|variable| *variable = places[*variable]);
        Self { reads, variables: own.each(0..MAX_VARIABLES).map(range_of).collect(), polynomial }
    }

    /// Of a family's variables; `held`: room for those that it is of.
    pub fn at<V: Number>(&self, values: &[V; MAX_VARIABLES], held: &mut [V; MAX_VARIABLES]) -> V {
        for (held, range) in held.iter_mut().zip(&self.variables) {
            *held = values[range.variable].between(range.low, range.high);
        }
        self.polynomial.at(held)
    }

    /// The same where all variables but some keep their values: what these make of a term goes into its coefficient, and terms
    /// that are alike then are one.
    pub fn where_only(&self, changing: Wanted, values: &[f64]) -> Self {
        let Polynomial { constant, products, common, sums } = &self.polynomial;
        let (left, kept) = (
            |p: &usize| changing.has(self.variables[*p].variable),
            |p: &usize| !changing.has(self.variables[*p].variable),
        );
        let value =
            |p: usize| values[self.variables[p].variable].between(self.variables[p].low, self.variables[p].high);
        let mut terms = Terms::new(*constant);
        let mut begin = Product { common: 0, sums: 0 };
        for &end in products {
            let common = common.get(begin.common..end.common).unwrap_or_default();
            let factor: f64 = common.iter().copied().filter(kept).map(value).product();
            for (coefficient, variable) in sums.get(begin.sums..end.sums).unwrap_or_default() {
                let own = Some(*variable);
                let factor = factor * own.filter(kept).map_or(1.0, value);
                terms.push(coefficient * factor, common.iter().copied().chain(own).filter(left));
            }
            begin = end;
        }
        Self::of(terms.grouped(), |place| self.variables[place], self.reads)
    }
}

/// A sum of products of variables.
pub(crate) struct Terms {
    constant: f64,
    /// Coefficients, and where each one's variables begin and end.
    list: Vec<(f64, usize, usize)>,
    variables: Vec<usize>,
}

impl Terms {
    pub fn new(constant: f64) -> Self {
        Self { constant, list: Vec::new(), variables: Vec::new() }
    }

    /// Adds a product; one of no variable is a constant.
    pub fn push(&mut self, coefficient: f64, variables: impl IntoIterator<Item = usize>) {
        let begin = self.variables.len();
        self.variables.extend(variables);
        match self.variables.len() {
            end if end == begin => self.constant += coefficient,
            end => self.list.push((coefficient, begin, end)),
        }
    }

    /// In the form that is evaluated.
    pub fn grouped(mut self) -> Polynomial {
        let mut often = [0u32; MAX_VARIABLES];
        self.variables.iter().for_each(|&variable| often[variable] += 1);
        // The rarest variable of a term stands last, so that others have the rest in common with it.
        for &(_, begin, end) in &self.list {
            self.variables[begin..end].sort_unstable_by_key(|&v| (u32::MAX - often[v], v));
        }
        let variables = &self.variables;
        let parts = |&(_, begin, end): &(f64, usize, usize)| (&variables[begin..end - 1], variables[end - 1]);
        self.list.sort_by(|a, b| parts(a).cmp(&parts(b)));
        let (mut products, mut common, mut sums): (Vec<Product>, Vec<usize>, Vec<(f64, usize)>) = Default::default();
        let mut before = None;
        for term in &self.list {
            let (others, own) = parts(term);
            if before.is_none_or(|(known, _)| known != others) {
                common.extend(others);
                products.push(Product { common: common.len(), sums: sums.len() });
            }
            match sums.last_mut().filter(|_| before == Some((others, own))) {
                Some((sum, _)) => *sum += term.0,
                None => sums.push((term.0, own)),
            }
            if let Some(product) = products.last_mut() {
                product.sums = sums.len();
            }
            before = Some((others, own));
        }
        Polynomial { constant: self.constant, products, common, sums }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::units::Seconds;
    use crate::catalog::{calibration, calibration_files};
    use crate::kernel::features::Variables;
    use crate::law::calibration::LayerModel;

    fn compiled(model: &LayerModel, values: &[f64; MAX_VARIABLES]) -> f64 {
        Polynomial::new(model.intercept, &model.terms).at(values)
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
                let whole = Polynomial::new(model.intercept, &model.terms);
                let whole = Bounded::new(whole, &[], Wanted::ALL);
                // Where the others keep their values, what they are is not asked again.
                let only: [f64; MAX_VARIABLES] =
                    std::array::from_fn(|v| if changing.has(v) { values[v] } else { f64::NAN });
                let folded = whole.where_only(changing, &values).at(&only, &mut [0.0; MAX_VARIABLES]);
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
