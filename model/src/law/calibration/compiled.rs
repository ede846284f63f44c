//! A model's polynomial as it is evaluated again and again: no division, no list of factors apart for every term.

use super::layer_model::{Range, SideBySide};
use super::term::Term;
use crate::base::mark::Places;
use crate::base::number::{Lanes, Number};
use crate::kernel::features::{MAX_VARIABLES, Wanted};
use std::cell::RefCell;
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
    /// How far a kernel's sizes are from those of rows.
    distance: OnceLock<Bounded>,
    /// Where rows' sizes lie; nothing where they are many.
    sizes: OnceLock<Option<Box<SideBySide>>>,
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

    /// The same of the distance from rows.
    pub(super) fn distance(&self, make: impl FnOnce() -> Bounded) -> &Bounded {
        self.distance.get_or_init(make)
    }

    /// The same of where rows' sizes lie.
    pub(super) fn sizes(&self, make: impl FnOnce() -> Option<SideBySide>) -> &Option<Box<SideBySide>> {
        self.sizes.get_or_init(|| make().map(Box::new))
    }

    /// The same of where the model's engines are.
    pub(super) fn places(&self, make: impl FnOnce() -> Places) -> &Places {
        self.places.get_or_init(make)
    }
}

/// Intercept and terms, the means folded into the intercept, the scales into the coefficients, by how many variables are
/// multiplied; one to the n-th power counts n times.
#[derive(Clone, Debug)]
pub(crate) struct Polynomial {
    constant: f64,
    linear: Vec<(f64, [u8; 1])>,
    pairs: Vec<(f64, [u8; 2])>,
    triples: Vec<(f64, [u8; 3])>,
    /// What no shipped model has.
    higher: Vec<(f64, Vec<u8>)>,
}

/// Values of variables by their places: any place that a byte can be.
pub(crate) type Values<V> = [V; 256];
const _: () = assert!(MAX_VARIABLES < 256);

/// Sums of a few terms each, which do not wait for each other.
#[inline(always)]
fn sum<V: Number, T>(terms: &[T], of: impl Fn(&T) -> V) -> V {
    let mut sums = [V::of(0.0); 4];
    let some = terms.chunks_exact(sums.len());
    let rest = some.remainder();
    for terms in some {
        for i in 0..sums.len() {
            sums[i] = sums[i] + of(&terms[i]);
        }
    }
    for (i, term) in rest.iter().enumerate() {
        sums[i] = sums[i] + of(term);
    }
    let [a, b, c, d] = sums;
    (a + b) + (c + d)
}

impl Polynomial {
    pub fn new(intercept: f64, list: &[Term]) -> Self {
        let coefficient = |term: &Term| term.coefficient / term.scale;
        let constant = intercept - list.iter().map(|term| coefficient(term) * term.mean).sum::<f64>();
        let mut terms = Terms::new(constant, list.len());
        for term in list {
            let factors = term.factors.iter();
            let variables = factors.flat_map(|f| std::iter::repeat_n(f.variable, usize::from(f.power)));
            terms.push(coefficient(term), variables);
        }
        terms.grouped()
    }

    /// The sum of intercept and terms, wherever the values lie: as [`LayerModel::polynomial`](super::LayerModel::polynomial) but for rounding.
    pub fn at<V: Number>(&self, values: &Values<V>) -> V {
        V::by_widest(
            #[inline(always)]
            || self.sum(values),
        )
    }

    #[inline(always)]
    fn sum<V: Number>(&self, values: &Values<V>) -> V {
        let of = |variable: &u8| values[usize::from(*variable)];
        let linear = sum(&self.linear, |(c, [a])| of(a) * *c);
        let pairs = sum(&self.pairs, |(c, [a, b])| of(a) * of(b) * *c);
        let triples = sum(&self.triples, |(c, [a, b, d])| of(a) * of(b) * (of(d) * *c));
        let product = |(c, variables): &(f64, Vec<u8>)| variables.iter().fold(V::of(*c), |p, v| p * of(v));
        let higher = self.higher.iter().fold(V::of(self.constant), |sum, term| sum + product(term));
        (linear + pairs) + (triples + higher)
    }

    /// Makes these its constant and the coefficients of its terms.
    fn set(&mut self, coefficients: &[f64]) {
        let mut all = coefficients.iter();
        let mut set = |coefficient: &mut f64| all.next().into_iter().for_each(|known| *coefficient = *known);
        set(&mut self.constant);
        self.linear.iter_mut().for_each(|(c, _)| set(c));
        self.pairs.iter_mut().for_each(|(c, _)| set(c));
        self.triples.iter_mut().for_each(|(c, _)| set(c));
        self.higher.iter_mut().for_each(|(c, _)| set(c));
    }

    /// Every place of a variable in it.
    fn places(&mut self) -> impl Iterator<Item = &mut u8> {
        let linear = self.linear.iter_mut().flat_map(|(_, v)| v);
        let pairs = self.pairs.iter_mut().flat_map(|(_, v)| v);
        let triples = self.triples.iter_mut().flat_map(|(_, v)| v);
        linear.chain(pairs).chain(triples).chain(self.higher.iter_mut().flat_map(|(_, v)| v))
    }

    /// Its terms: coefficients with the places of what they multiply.
    fn terms(&self) -> impl Iterator<Item = (f64, &[u8])> {
        let linear = self.linear.iter().map(|(c, v)| (*c, &v[..]));
        let pairs = self.pairs.iter().map(|(c, v)| (*c, &v[..]));
        let triples = self.triples.iter().map(|(c, v)| (*c, &v[..]));
        linear.chain(pairs).chain(triples).chain(self.higher.iter().map(|(c, v)| (*c, &v[..])))
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
    /// The same of all variables, once one kernel is asked for.
    whole: OnceLock<Box<Whole>>,
}

/// A polynomial of all variables at their own places, which are held to their ranges side by side.
#[derive(Clone, Debug)]
struct Whole {
    low: [f64; MAX_VARIABLES],
    high: [f64; MAX_VARIABLES],
    polynomial: Polynomial,
}

impl Whole {
    fn of(bounded: &Bounded) -> Self {
        let (mut low, mut high) = ([f64::NEG_INFINITY; MAX_VARIABLES], [f64::INFINITY; MAX_VARIABLES]);
        for range in &bounded.variables {
            (low[range.variable], high[range.variable]) = (range.low, range.high);
        }
        let mut polynomial = bounded.polynomial.clone();
        polynomial.places().for_each(|place| *place = bounded.variables[usize::from(*place)].variable as u8);
        Self { low, high, polynomial }
    }

    fn at(&self, values: &[f64; MAX_VARIABLES]) -> f64 {
        thread_local! {
            /// Room that need not be cleared: of what is not written nothing is read.
            static HELD: RefCell<Values<f64>> = const { RefCell::new([0.0; 256]) };
        }
        HELD.with_borrow_mut(|held| {
            Lanes::by_widest(
                #[inline(always)]
                || {
                    for (((held, value), low), high) in held.iter_mut().zip(values).zip(&self.low).zip(&self.high) {
                        *held = value.between(*low, *high);
                    }
                },
            );
            self.polynomial.at(held)
        })
    }
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
        let own: Wanted = polynomial.terms().flat_map(|(_, variables)| variables).map(|v| usize::from(*v)).collect();
        let mut places = [0; MAX_VARIABLES];
        own.each(0..MAX_VARIABLES).enumerate().for_each(|(place, variable)| places[variable] = place as u8);
        polynomial.places().for_each(|variable| *variable = places[usize::from(*variable)]);
        let variables = own.each(0..MAX_VARIABLES).map(range_of).collect();
        Self { reads, variables, polynomial, whole: OnceLock::new() }
    }

    /// Of a family's variables; `held`: room for those that it is of.
    pub fn at<V: Number>(&self, values: &[V; MAX_VARIABLES], held: &mut Values<V>) -> V {
        V::by_widest(
            #[inline(always)]
            || {
                for (held, range) in held.iter_mut().zip(&self.variables) {
                    *held = values[range.variable].between(range.low, range.high);
                }
                self.polynomial.sum(held)
            },
        )
    }

    /// The same of one kernel.
    pub fn of_one(&self, values: &[f64; MAX_VARIABLES]) -> f64 {
        self.whole.get_or_init(|| Box::new(Whole::of(self))).at(values)
    }

    /// The same where all variables but some keep their values: what these make of a term goes into its coefficient, and terms
    /// that are alike then are one.
    pub fn where_only(&self, changing: Wanted, values: &[f64]) -> Self {
        Narrowing::of(self, changing).at(values)
    }
}

/// A polynomial where only some of its variables are left, whatever values the others keep.
struct Narrowing<'m> {
    whole: &'m Bounded,
    changing: Wanted,
    /// Of each variable whether it is left.
    is_left: Vec<bool>,
    /// Of each term which it becomes part of: the constant, or one of those that are left, from 1 on.
    parts: Vec<usize>,
    /// How many there are of these.
    count: usize,
    /// What is left, with other coefficients.
    left: Bounded,
}

impl<'m> Narrowing<'m> {
    fn of(whole: &'m Bounded, changing: Wanted) -> Self {
        let is_left: Vec<bool> = whole.variables.iter().map(|range| changing.has(range.variable)).collect();
        let mut terms = Terms::new(0.0, whole.polynomial.terms().count());
        for (_, places) in whole.polynomial.terms() {
            terms.push(0.0, places.iter().map(|place| usize::from(*place)).filter(|place| is_left[*place]));
        }
        let (polynomial, parts) = terms.arranged();
        let count = 1 + polynomial.terms().count();
        let left = Bounded::of(polynomial, |place| whole.variables[place], whole.reads);
        Self { whole, changing, is_left, parts, count, left }
    }

    /// Where the others keep these.
    fn at(&self, values: &[f64]) -> Bounded {
        let Bounded { variables, polynomial, reads, .. } = self.whole;
        let held = variables.iter().map(|range| values[range.variable].between(range.low, range.high));
        let held: Vec<f64> = held.zip(&self.is_left).map(|(held, left)| if *left { 1.0 } else { held }).collect();
        let of = |place: &u8| held[usize::from(*place)];
        let Polynomial { constant, linear, pairs, triples, higher } = polynomial;
        let mut sums = vec![0.0; self.count];
        sums[0] = *constant;
        let mut parts = self.parts.iter();
        let mut add = |value| {
            if let Some(part) = parts.next() {
                sums[*part] += value;
            }
        };
        linear.iter().for_each(|(c, [a])| add(c * of(a)));
        pairs.iter().for_each(|(c, [a, b])| add(c * of(a) * of(b)));
        triples.iter().for_each(|(c, [a, b, d])| add(c * of(a) * of(b) * of(d)));
        higher.iter().for_each(|(c, places)| add(places.iter().fold(*c, |product, place| product * of(place))));
        let mut left = self.left.polynomial.clone();
        left.set(&sums);
        Bounded { reads: *reads, variables: self.left.variables.clone(), polynomial: left, whole: OnceLock::new() }
    }
}

/// Polynomials that were narrowed: kernels of a model mostly leave the same of it.
#[derive(Default)]
pub(crate) struct Narrowings<'m>(Vec<Narrowing<'m>>);

impl<'m> Narrowings<'m> {
    /// [`Bounded::where_only`].
    pub fn where_only(&mut self, whole: &'m Bounded, changing: Wanted, values: &[f64]) -> Bounded {
        let known = self.0.iter().position(|known| std::ptr::eq(known.whole, whole) && known.changing == changing);
        let place = known.unwrap_or_else(|| {
            self.0.push(Narrowing::of(whole, changing));
            self.0.len() - 1
        });
        self.0[place].at(values)
    }
}

/// A sum of products of variables.
pub(crate) struct Terms {
    constant: f64,
    /// Of each product.
    coefficients: Vec<f64>,
    /// What products are of, with which of them.
    list: Vec<(Factors, usize)>,
    /// The same of more variables than [`Factors`] has room for.
    longer: Vec<(Vec<u8>, usize)>,
}

/// What a product is of, as one number: its variables rising, each one more than its place, in the bytes from the highest on.
type Factors = u64;

/// How many it is of.
fn bytes_of(factors: Factors) -> u32 {
    size_of::<Factors>() as u32 - factors.trailing_zeros() / u8::BITS
}

impl Terms {
    /// With room for so many products.
    pub fn new(constant: f64, products: usize) -> Self {
        let (coefficients, list) = (Vec::with_capacity(products), Vec::with_capacity(products));
        Self { constant, coefficients, list, longer: Vec::new() }
    }

    /// Adds a product; one of no variable is a constant.
    pub fn push(&mut self, coefficient: f64, variables: impl IntoIterator<Item = usize>) {
        let (mut bytes, mut more, mut count) = ([0; size_of::<Factors>()], Vec::new(), 0);
        for variable in variables {
            match bytes.get_mut(count) {
                Some(byte) => *byte = variable as u8 + 1,
                None => more.push(variable as u8),
            }
            count += 1;
        }
        let product = self.coefficients.len();
        self.coefficients.push(coefficient);
        match count {
            0 => {}
            _ if more.is_empty() => {
                bytes[..count].sort_unstable();
                self.list.push((Factors::from_be_bytes(bytes), product));
            }
            _ => {
                more.extend(bytes.map(|byte| byte - 1));
                more.sort_unstable();
                self.longer.push((more, product));
            }
        }
    }

    /// In the form that is evaluated: products that are alike are one.
    pub fn grouped(self) -> Polynomial {
        let (constant, coefficients) = (self.constant, self.coefficients.clone());
        let (mut polynomial, parts) = self.arranged();
        let mut sums = vec![0.0; 1 + polynomial.terms().count()];
        sums[0] = constant;
        parts.iter().zip(coefficients).for_each(|(part, coefficient)| sums[*part] += coefficient);
        polynomial.set(&sums);
        polynomial
    }

    /// The same with other coefficients, and of each product which one it is part of: the constant, or one of
    /// the terms from 1 on.
    fn arranged(mut self) -> (Polynomial, Vec<usize>) {
        self.list.sort_unstable();
        let each = || self.list.chunk_by(|(a, _), (b, _)| a == b);
        // Where those of so many variables begin.
        let kind = |factors: Factors| bytes_of(factors).min(4) as usize - 1;
        let mut counts = [0; 4];
        each().for_each(|alike| counts[kind(alike[0].0)] += 1);
        let [linear, pairs, triples, _] = counts;
        let mut next = [1, 1 + linear, 1 + linear + pairs, 1 + linear + pairs + triples];
        let mut polynomial = Polynomial {
            constant: 0.0,
            linear: Vec::with_capacity(linear),
            pairs: Vec::with_capacity(pairs),
            triples: Vec::with_capacity(triples),
            higher: Vec::new(),
        };
        // Those of no variable are part of the constant.
        let mut parts = vec![0; self.coefficients.len()];
        for alike in each() {
            let factors = alike[0].0;
            let next = &mut next[kind(factors)];
            alike.iter().for_each(|(_, product)| parts[*product] = *next);
            *next += 1;
            match factors.to_be_bytes() {
                [a, 0, ..] => polynomial.linear.push((0.0, [a - 1])),
                [a, b, 0, ..] => polynomial.pairs.push((0.0, [a - 1, b - 1])),
                [a, b, c, 0, ..] => polynomial.triples.push((0.0, [a - 1, b - 1, c - 1])),
                more => {
                    let variables = more.iter().filter(|byte| **byte > 0).map(|byte| byte - 1);
                    polynomial.higher.push((0.0, variables.collect()));
                }
            }
        }
        for (place, (variables, product)) in (next[3]..).zip(self.longer) {
            parts[product] = place;
            polynomial.higher.push((0.0, variables));
        }
        (polynomial, parts)
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
        let mut all = [0.0; 256];
        all[..MAX_VARIABLES].copy_from_slice(values);
        Polynomial::new(model.intercept, &model.terms).at(&all)
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
                let folded = whole.where_only(changing, &values).of_one(&only);
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
