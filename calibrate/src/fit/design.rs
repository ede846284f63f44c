//! Candidate terms: which monomials of a family's variables the Lasso may choose from.

use joulecast_model::kernel::family::Family;
use joulecast_model::kernel::features::Variables;
use joulecast_model::kernel::key::ModelKey;
use joulecast_model::law::calibration::{Factor, Term};
use ndarray::Array2;
use std::collections::HashSet;

/// Candidate monomials of a family.
#[derive(Clone, Debug)]
pub struct Candidates {
    /// The family whose variables they are of.
    pub family: Family,
    /// Factors of each.
    pub terms: Vec<Vec<Factor>>,
}

/// How rich the candidates are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Richness {
    /// None: a constant efficiency.
    Constant,
    /// Size and occupancy only: the bandwidth model of kinds without rows.
    Bandwidth,
    /// What transfers between chips: roofline, tiles, waves, algorithms, divisibility and classes, hardly any sizes.
    Physical,
    /// Everything.
    Full,
}

/// Whether the rows of a product, which the batch multiplies, divide by something: no candidates. Of row-major operands they
/// move no address; fits that had them let times jump up and down by a fifth from batch to batch.
const OF_ROWS: [&str; 2] = ["m4", "m32"];

/// Whether attention's keys divide by something: no candidates, for these are rows in memory. Fits that had them let a prompt take
/// a third more or less than one of a token less.
const OF_KEYS: [&str; 5] = ["n2", "n4", "n8", "n32", "n64"];

impl Candidates {
    /// The candidates of a family for these rows. Flags of kinds that came after the first fits are among them only where
    /// rows have them: as empty columns they would move other kinds' fits in the last digits.
    pub fn new<'a>(family: Family, richness: Richness, rows: impl Iterator<Item = &'a Variables>) -> Self {
        let mut later = vec![false; family.variables().len()];
        for variables in rows {
            for (there, value) in later.iter_mut().zip(variables.values) {
                *there |= value != 0.0;
            }
        }
        let candidate = |v: usize| v < family.first_variables() || later[v];
        let names: Vec<&str> = (0..later.len()).filter(|&v| candidate(v)).map(|v| family.variables()[v]).collect();
        let mut builder = Builder::new(family);
        match (richness, family) {
            (Richness::Constant, _) => {}
            (Richness::Bandwidth, _) => {
                builder.polynomial(&["bytes", "few", "cached"], 2);
                builder.polynomial(&["wave", "floor"], 1);
            }
            (Richness::Physical, Family::Stream) => {
                builder.polynomial(&["bytes", "few", "cached", "row", "floor"], 2);
                builder.polynomial(&["wave", "rows", "row4", "row32", "window", "overlap", "operands", "shrink"], 1);
                builder.polynomial(&["half", "cold", "nhwc", "training", "balance", "library"], 1);
            }
            (Richness::Physical, Family::Gemm) => {
                builder.polynomial(&["balance", "ridge", "floor", "cached", "second"], 2);
                let prefixed = |prefix: &str| {
                    family.variables().iter().filter(|v| v.starts_with(prefix)).copied().collect::<Vec<_>>()
                };
                builder.polynomial(&prefixed("time_"), 1);
                builder
                    .polynomial(&["best_tile", "best_split", "algobest", "wino2", "wino4", "winobest", "fftbest"], 1);
                builder.polynomial(&["few_128x128", "few_64x64", "few_32x32", "wave_128x128", "wave_64x64"], 1);
                builder.polynomial(&["pad_128x128", "pad_64x64", "pad_32x32", "k", "border", "kernel"], 1);
                builder.polynomial(&["n2", "n4", "n8", "n32", "n64", "k2", "k4", "k8", "k32", "k64"], 1);
                builder.polynomial(&["area2", "c1x1", "c3x3", "large", "strided", "stem"], 1);
                builder.polynomial(&["depthwise", "grouped", "dilated", "stridedim", "library", "cold", "nhwc"], 1);
            }
            (Richness::Full, Family::Stream) => {
                builder.polynomial(&["bytes", "row", "rows", "few", "cached", "floor"], 3);
                builder.polynomial(&names, 2);
            }
            (Richness::Full, Family::Gemm) => {
                let sizes = ["m", "n", "k", "balance"];
                builder.polynomial(&sizes, 3);
                builder.polynomial(
                    &["m", "n", "k", "g", "batch", "area", "inner", "balance", "ridge", "floor", "library", "border"],
                    2,
                );
                let variables = || family.variables().iter().filter(|v| !OF_ROWS.contains(v));
                builder.polynomial(&variables().copied().collect::<Vec<_>>(), 1);
                for variable in variables() {
                    builder.products(variable, &sizes);
                    builder.square(variable);
                }
                builder.polynomial(&["second", "cached", "nhwc", "cold", "balance"], 2);
                builder.products("cold", &["floor", "mem", "comp", "c1x1", "c3x3"]);
                builder.products("nhwc", &["n8", "k8", "c1x1", "c3x3", "stem", "floor"]);
                let classes = ["c1x1", "c3x3", "large", "strided", "stem", "depthwise", "grouped", "library"];
                for class in classes {
                    builder.products(class, &["wave_128x128", "wave_64x64", "best_split", "few_128x128", "n32", "k32"]);
                    builder.products(class, &classes);
                }
                builder.products("n8", &["k8"]);
                builder.products(
                    "bf16",
                    &["m", "n", "k", "batch", "n8", "k8", "c1x1", "c3x3", "large", "strided", "stem", "cold"],
                );
                builder.products("n32", &["k32", "wave_128x128", "winobest"]);
                builder.products("fft", &["batch", "inner", "area", "fftbest", "winobest", "k32", "n32", "kernel"]);
                builder.products("fftbest", &["batch", "inner", "area", "k32", "n32", "kernel"]);
                builder.products("algobest", &["best_split", "best_tile", "wave_128x128", "few_128x128", "ridge"]);
            }
        }
        Self { family, terms: builder.terms }
    }

    /// Those of a model: attention whose scores are in no memory has none of its keys' flags.
    pub fn of(self, key: ModelKey) -> Self {
        let Self { family, mut terms } = self;
        if key.is_attention() && key != ModelKey::AttentionUnfused {
            let names = family.variables();
            terms.retain(|factors| factors.iter().all(|f| !OF_KEYS.contains(&names[f.variable])));
        }
        Self { family, terms }
    }

    /// Those of such positions, in their order.
    pub fn only(self, positions: &[usize]) -> Self {
        Self { terms: positions.iter().map(|&j| self.terms[j].clone()).collect(), ..self }
    }

    /// How many variables one multiplies, each as often as it does.
    pub fn degree(&self, index: usize) -> u32 {
        self.terms[index].iter().map(|f| u32::from(f.power)).sum()
    }

    /// Values of every candidate for every row, n by p.
    pub fn matrix<'a>(&self, rows: impl ExactSizeIterator<Item = &'a Variables>) -> Array2<f64> {
        let mut x = Array2::zeros((rows.len(), self.terms.len()));
        for (mut target, variables) in x.rows_mut().into_iter().zip(rows) {
            for (value, factors) in target.iter_mut().zip(&self.terms) {
                *value = monomial(factors, &variables.values);
            }
        }
        x
    }

    /// Values of every candidate for one row.
    pub fn values(&self, variables: &[f64]) -> Vec<f64> {
        self.terms.iter().map(|factors| monomial(factors, variables)).collect()
    }

    /// A term of the artifact from a candidate.
    pub fn term(&self, index: usize, coefficient: f64, mean: f64, scale: f64) -> Term {
        Term { factors: self.terms[index].clone(), coefficient, mean, scale }
    }
}

fn monomial(factors: &[Factor], values: &[f64]) -> f64 {
    factors.iter().map(|f| values[f.variable].powi(i32::from(f.power))).product()
}

struct Builder {
    family: Family,
    terms: Vec<Vec<Factor>>,
    seen: HashSet<Vec<Factor>>,
}

impl Builder {
    fn new(family: Family) -> Self {
        Self { family, terms: Vec::new(), seen: HashSet::new() }
    }

    /// Adds a product of variables, once, whatever their order. A variable the family lacks is left out.
    fn add(&mut self, variables: &[&str]) {
        let names = self.family.variables();
        let mut factors: Vec<Factor> = Vec::new();
        for name in variables {
            let Some(variable) = names.iter().position(|n| n == name) else { return };
            if self.family.is_flag(variable) && factors.iter().any(|f| f.variable == variable) {
                continue;
            }
            match factors.iter_mut().find(|f| f.variable == variable) {
                Some(factor) => factor.power += 1,
                None => factors.push(Factor { variable, power: 1 }),
            }
        }
        factors.sort_by_key(|f| f.variable);
        if self.seen.insert(factors.clone()) {
            self.terms.push(factors);
        }
    }

    /// All monomials up to a degree.
    fn polynomial(&mut self, variables: &[&str], degree: usize) {
        let mut current: Vec<Vec<usize>> = vec![Vec::new()];
        for _ in 0..degree {
            let mut next = Vec::new();
            for chosen in &current {
                for v in chosen.last().copied().unwrap_or(0)..variables.len() {
                    let mut longer = chosen.clone();
                    longer.push(v);
                    self.add(&longer.iter().map(|&i| variables[i]).collect::<Vec<_>>());
                    next.push(longer);
                }
            }
            current = next;
        }
    }

    fn products(&mut self, variable: &str, others: &[&str]) {
        for other in others {
            self.add(&[variable, other]);
        }
    }

    fn square(&mut self, variable: &str) {
        self.add(&[variable, variable]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use joulecast_model::kernel::features::MAX_VARIABLES;

    #[test]
    fn candidates_are_unique_monomials() {
        for (family, least) in [(Family::Gemm, 350), (Family::Stream, 100)] {
            let candidates = Candidates::new(family, Richness::Full, [].iter());
            assert!(candidates.terms.len() >= least, "{}", candidates.terms.len());
            let unique: HashSet<_> = candidates.terms.iter().collect();
            assert_eq!(unique.len(), candidates.terms.len());
        }
        assert!(Candidates::new(Family::Gemm, Richness::Constant, [].iter()).terms.is_empty());
        let of = |name| move |t: &Vec<Factor>| t.iter().any(|f| Family::Gemm.variables()[f.variable] == name);
        let attention = Candidates::new(Family::Gemm, Richness::Full, [].iter()).of(ModelKey::Kind("attention")).terms;
        assert!(
            !attention.iter().any(of("n32")) && attention.iter().any(of("k32")),
            "heads' dimensions are contiguous"
        );
    }

    #[test]
    fn a_later_kind_is_a_candidate_only_where_rows_have_it() {
        let flag = |name: &str| Family::Stream.position(name).expect("a kind");
        let terms = |kinds: &[&str]| {
            let mut variables = Variables { values: [0.0; MAX_VARIABLES] };
            kinds.iter().for_each(|kind| variables.values[flag(kind)] = 1.0);
            Candidates::new(Family::Stream, Richness::Full, [variables].iter()).terms
        };
        let of =
            |kind, kinds: &[&str]| terms(kinds).iter().filter(|t| t.iter().any(|f| f.variable == flag(kind))).count();
        assert!(of("relu", &[]) > 0, "those of the first fits always are");
        assert_eq!(of("mish", &["softplus"]), 0);
        assert_eq!(of("mish", &["mish"]), of("relu", &["mish"]));
        assert_eq!(terms(&[]).len(), terms(&["relu"]).len());
    }
}
