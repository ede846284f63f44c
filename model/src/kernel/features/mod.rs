//! From a layer on a device to the variables that time models are polynomials of.
//!
//! One function, [`Work::on`](crate::kernel::work::Work::on) and [`Load::variables`], serves fitting and prediction alike. Two
//! families of layers have variables of their own: matrix-product kernels ([`gemm`]) and kernels that stream
//! through memory ([`stream`]).

mod gemm;
mod positions;
mod schedule;
mod stream;

use crate::base::number::{Changes, LANES, Number};
use crate::base::text::joined;
use crate::base::units::{Bytes, Seconds};
use crate::kernel::family::Family;
use crate::kernel::load::{Amounts, Load};
use positions::Positions;
use std::ops::Range;

/// More variables than any family has.
pub const MAX_VARIABLES: usize = 96;

/// What a variable is, beside a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// A size that varies continuously, which a layer must share with the fitted rows to lie inside of what was measured.
    Size,
    /// Another extent that it must share.
    Extent,
    /// 0 or 1, which it must share.
    Class,
    /// 0 or 1.
    Flag,
    /// What follows from the sizes: waste, waves, times.
    Derived,
}

/// One variable of a family: `F` computes it of what the family knows of a kernel.
struct Variable<F> {
    name: &'static str,
    role: Role,
    /// Whether it is the logarithm of what is computed.
    log: bool,
    value: F,
}

/// A function of what a family knows of a kernel, made of the widest instructions that there are for its numbers.
macro_rules! widest {
    (|$known:ident| $value:expr) => {
        |$known| {
            V::by_widest(
                #[inline(always)]
                || $value,
            )
        }
    };
}
use widest;

/// Variables that are quicker worked out together than one by one.
struct Together<F> {
    /// Of each the place in its family; further numbers are of none.
    places: &'static [usize],
    /// Whether they are logarithms of what is computed.
    log: bool,
    values: F,
}

/// The same as sets.
const fn sets<F, const N: usize>(together: &[Together<F>; N]) -> [Wanted; N] {
    let mut sets = [Wanted(0); N];
    let mut i = 0;
    while i < N {
        let places = together[i].places;
        let mut at = 0;
        while at < places.len() {
            sets[i].0 |= 1 << places[at];
            at += 1;
        }
        i += 1;
    }
    sets
}

/// Writes some of so many variables, and others of which several are worked out together. `of`: of each what it is computed of, and
/// whether it is that one's logarithm.
#[inline(always)]
fn fill<V: Number, F, const N: usize>(
    (together, sets): (&[Together<F>; N], &[Wanted; N]),
    of_several: impl Fn(&F) -> [V; LANES],
    (mut wanted, count): (Wanted, usize),
    of: impl Fn(usize) -> (V, bool),
    values: &mut [V],
) {
    let mut logs = Wanted(0);
    for (together, set) in together.iter().zip(sets) {
        let own = wanted.and(*set);
        if own.are_several() {
            let mut each = of_several(&together.values);
            match (together.log, V::ALONE) {
                (true, true) => each = V::ln_of_each(each),
                (true, false) => logs = logs.or(own),
                (false, _) => {}
            }
            together.places.iter().zip(&each).for_each(|(place, value)| values[*place] = *value);
            wanted = wanted.without(*set);
        }
    }
    for place in wanted.each(0..count) {
        let (value, is_log) = of(place);
        values[place] = value;
        logs.0 |= u128::from(is_log) << place;
    }
    V::ln_at(values, logs.each(0..count));
}

const fn names<F, const N: usize>(variables: &[Variable<F>]) -> [&'static str; N] {
    let mut names = [""; N];
    let mut i = 0;
    while i < variables.len() {
        names[i] = variables[i].name;
        i += 1;
    }
    names
}

const GEMM: [&str; gemm::VARIABLES.len()] = names(gemm::VARIABLES);

const STREAM: [&str; stream::VARIABLES.len() + stream::KINDS.len()] =
    joined(&[&names::<_, { stream::VARIABLES.len() }>(&stream::VARIABLES), stream::KINDS]);

const fn sizes<F>(variables: &[Variable<F>]) -> Wanted {
    let mut sizes = 0;
    let mut i = 0;
    while i < variables.len() {
        if matches!(variables[i].role, Role::Size) {
            sizes |= 1 << i;
        }
        i += 1;
    }
    Wanted(sizes)
}

const GEMM_SIZES: Wanted = sizes(gemm::VARIABLES);
const STREAM_SIZES: Wanted = sizes(&stream::VARIABLES);

static GEMM_POSITIONS: Positions = Positions::of(&GEMM);
static STREAM_POSITIONS: Positions = Positions::of(&STREAM);

impl Family {
    /// Names of its variables, in order. The list is part of the format: a calibration names the variables
    /// it uses, and an unknown name is an error.
    pub fn variables(self) -> &'static [&'static str] {
        match self {
            Self::Gemm => &GEMM,
            Self::Stream => &STREAM,
        }
    }

    /// The position of a variable, by its name.
    pub fn position(self, name: &str) -> Option<usize> {
        self.position_of(name.as_bytes())
    }

    /// The same by the bytes of its name.
    pub(crate) fn position_of(self, name: &[u8]) -> Option<usize> {
        let positions = if self == Self::Gemm { &GEMM_POSITIONS } else { &STREAM_POSITIONS };
        positions.find(self.variables(), name)
    }

    /// The role of a variable (by position); a kind's flag is one.
    fn role(self, variable: usize) -> Option<Role> {
        let listed = match self {
            Self::Gemm => gemm::VARIABLES.get(variable).map(|v| v.role),
            Self::Stream => stream::VARIABLES.get(variable).map(|v| v.role),
        };
        listed.or((variable < self.variables().len()).then_some(Role::Flag))
    }

    /// Whether a variable (by position) is 0 or 1, so that its square says nothing new.
    pub fn is_flag(self, variable: usize) -> bool {
        matches!(self.role(variable), Some(Role::Flag | Role::Class))
    }

    /// Whether a variable (by position) is a size or a class, which a layer must share with the fitted rows to lie
    /// inside of what was measured. Waste and waves follow from the sizes.
    pub fn bounds_domain(self, variable: usize) -> bool {
        matches!(self.role(variable), Some(Role::Size | Role::Extent | Role::Class))
    }

    /// How many of its variables the first fits knew. Later ones are flags of kinds.
    pub fn first_variables(self) -> usize {
        match self {
            Self::Gemm => gemm::VARIABLES.len(),
            Self::Stream => stream::VARIABLES.len() + stream::FLAGGED.len(),
        }
    }

    /// Positions of the sizes that vary continuously.
    pub fn sizes(self) -> Vec<usize> {
        (0..self.variables().len()).filter(|&v| self.role(v) == Some(Role::Size)).collect()
    }
}

impl Load<'_> {
    /// Share of the multiprocessors that it fills, at most 1.
    pub fn occupancy(&self) -> f64 {
        self.occupancy_of(&self.amounts())
    }

    /// The same where so much is to be done.
    pub(crate) fn occupancy_of<V: Number>(&self, amounts: &Amounts<V>) -> V {
        let filled = match self.work.family() {
            Family::Gemm => gemm::blocks(&self.work, amounts.batch),
            Family::Stream => stream::blocks(&self.work, amounts),
        };
        (filled / self.gpu.sms.value as f64).min(V::of(1.0))
    }

    /// Values of its family's variables over a launch floor, for a library of an age ([`library_age`]).
    pub fn variables(&self, floor: Seconds, library: f64) -> Variables {
        self.some_variables(floor, library, Wanted::ALL)
    }

    /// The same of those that are wanted; the others are zero, or what was worked out beside them.
    pub fn some_variables(&self, floor: Seconds, library: f64, wanted: Wanted) -> Variables {
        let mut values = Variables { values: [0.0; MAX_VARIABLES] };
        self.fill(&self.amounts(), (floor, library), wanted, &mut values.values);
        values
    }

    /// Writes those that are wanted into `values`, and others that are worked out beside them, where so much is to be done, over a launch floor, for a library of an age.
    pub(crate) fn fill<V: Number>(
        &self,
        amounts: &Amounts<V>,
        over: (Seconds, f64),
        wanted: Wanted,
        values: &mut [V; MAX_VARIABLES],
    ) {
        match self.work.family() {
            Family::Gemm => gemm::fill(self, amounts, over, wanted, values),
            Family::Stream => stream::fill(self, amounts, over, wanted, values),
        }
    }

    /// Those of some variables that say whether it lies within what was fitted which another batch changes: sizes, for classes
    /// and extents are of shapes.
    pub(crate) fn moving(&self, over: (Seconds, f64), of: Wanted) -> Wanted {
        let sizes = of.and(if self.work.family() == Family::Gemm { GEMM_SIZES } else { STREAM_SIZES });
        let amounts = self.amounts();
        let mut changes = [Changes(false); MAX_VARIABLES];
        self.fill(&amounts.with(&amounts, |_, _| Changes(true)), over, sizes, &mut changes);
        sizes.each(0..MAX_VARIABLES).filter(|&variable| changes[variable].0).collect()
    }
}

/// Some of a family's variables, by their positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted(u128);

const _: () = assert!(MAX_VARIABLES <= u128::BITS as usize);

impl Wanted {
    /// All of them.
    pub const ALL: Self = Self(u128::MAX);

    /// These and others.
    #[must_use]
    pub fn or(self, others: Self) -> Self {
        Self(self.0 | others.0)
    }

    /// Those of these that are among others.
    #[must_use]
    pub(crate) fn and(self, others: Self) -> Self {
        Self(self.0 & others.0)
    }

    /// These but for others.
    #[must_use]
    pub(crate) fn without(self, others: Self) -> Self {
        Self(self.0 & !others.0)
    }

    /// Positions of those among some positions, rising.
    pub(crate) fn each(self, among: Range<usize>) -> impl Iterator<Item = usize> {
        let all = self.0 & (u128::MAX << among.start) & !(u128::MAX << among.end);
        // Two words are quicker to go through than a number of twice their size.
        let (mut left, mut more, mut at) = (all as u64, (all >> u64::BITS) as u64, 0);
        std::iter::from_fn(move || {
            if left == 0 {
                (left, more, at) = (more, 0, u64::BITS as usize);
                if left == 0 {
                    return None;
                }
            }
            let next = at + left.trailing_zeros() as usize;
            left &= left - 1;
            Some(next)
        })
    }

    /// Whether there are more than two.
    pub(crate) fn are_several(self) -> bool {
        let but_one = |set: u128| set & set.wrapping_sub(1);
        but_one(but_one(self.0)) != 0
    }

    /// Whether there are none.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether a variable is among them.
    pub fn has(self, variable: usize) -> bool {
        self.0 >> variable & 1 == 1
    }
}

impl FromIterator<usize> for Wanted {
    fn from_iter<I: IntoIterator<Item = usize>>(variables: I) -> Self {
        // As above.
        let mut words = [0u64; 2];
        let mut add = |variable: usize| words[variable / u64::BITS as usize] |= 1 << (variable % u64::BITS as usize);
        variables.into_iter().for_each(&mut add);
        Self(u128::from(words[0]) | u128::from(words[1]) << u64::BITS)
    }
}

/// Values of a family's variables, in the order of [`Family::variables`]; the rest is zero.
#[derive(Clone, Copy, Debug)]
pub struct Variables {
    /// The values.
    pub values: [f64; MAX_VARIABLES],
}

impl Default for Variables {
    fn default() -> Self {
        Self { values: [0.0; MAX_VARIABLES] }
    }
}

/// Age of a library as a covariate: 0 for cuDNN 9, -1 per major version before it, fractions for minor ones.
/// `None` for a version that cannot be read.
pub fn library_age(cudnn: &str) -> Option<f64> {
    let mut parts = cudnn.split('.').map(|p| p.parse::<f64>());
    let major = parts.next()?.ok()?;
    let minor = parts.next().and_then(Result::ok).unwrap_or(0.0);
    Some(major + minor / 10.0 - 9.0)
}

/// 1 + cache / traffic, of which the logarithm: how much of the traffic the second-level cache may hold.
fn cached<V: Number>(load: &Load<'_>, amounts: &Amounts<V>) -> V {
    const UNKNOWN_CACHE: f64 = 4e6;
    let cache = load.memory.cache.map_or(UNKNOWN_CACHE, Bytes::to_f64);
    V::of(cache) / amounts.bytes.max(V::of(1.0)) + 1.0
}

/// A count over a typical one.
fn over<V: Number>(value: V, unit: f64) -> V {
    value.max(V::of(1.0)) / unit
}

/// 1 where the condition holds, else 0.
fn flag(condition: bool) -> f64 {
    f64::from(u8::from(condition))
}

/// Whether a count divides by another.
fn divides(value: u64, by: u64) -> f64 {
    flag(value.is_multiple_of(by))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::precision::{Mode, Phase, Precision};
    use crate::base::shape::Shape;
    use crate::device::gpu::testing::toy;
    use crate::kernel::key::ModelKey;
    use crate::kernel::work::Work;
    use crate::net::case::LayerCase;
    use crate::net::layer::{Attention, Cell, Experts, Kind, Layer, Linear, Recurrent, SharedModel};

    #[test]
    fn names_are_unique_and_fit() {
        for family in Family::ALL {
            let names = family.variables();
            assert!(names.len() <= MAX_VARIABLES);
            for (i, name) in names.iter().enumerate() {
                assert_eq!(family.position(name), Some(i), "{name}");
            }
            assert_eq!(family.position("").or(family.position("no variable")), None);
        }
    }

    #[test]
    fn kinds_that_share_a_model_differ_by_a_flag() {
        // The first kind of copies is told by the absence of the others' flags.
        for kind in Layer::KINDS.iter().filter(|kind| **kind != "embedding") {
            let shares = Kind::named(kind).is_some_and(|row| row.shares != SharedModel::Own);
            assert!(!shares || stream::KINDS.contains(kind), "{kind}");
        }
    }

    #[test]
    fn a_variable_is_finite_for_the_smallest_and_a_huge_layer() {
        let gpu = toy();
        for (inputs, features, batch) in [(1, 1, 1), (1 << 20, 1 << 20, 1 << 20)] {
            let case = LayerCase {
                inputs: vec![Shape::new(&[inputs]).expect("shape")],
                layer: Layer::Linear(Linear { features, bias: true }),
            };
            let (phase, precision, mode) = (Phase::Forward, Precision::Fp32, Mode::Inference);
            let load = Work::usual(case, phase, batch, precision, mode).expect("fits").on(&gpu);
            let load = load.expect("fits").expect("fp32");
            let variables = load.variables(Seconds::from_us(4.0), 0.0);
            assert!(variables.values.iter().all(|v| v.is_finite()), "{variables:?}");
            assert!(load.roofline.reference(4, Seconds::ZERO) >= load.roofline.bound());
        }
    }

    /// Of a forward pass in fp32 on the toy.
    fn values_of(layer: Layer, inputs: &[&[u64]], batch: u64) -> (ModelKey, Family, [f64; MAX_VARIABLES]) {
        let gpu = toy();
        let inputs: Vec<Shape> = inputs.iter().map(|d| Shape::new(d).expect("shape")).collect();
        let case = LayerCase { inputs, layer };
        let work = Work::usual(&case, Phase::Forward, batch, Precision::Fp32, Mode::Inference).expect("fits");
        let (key, family) = (work.key(), work.family());
        let values = work.on(&gpu).expect("fits").expect("fp32").variables(Seconds::from_us(4.0), 0.0).values;
        assert!(values.iter().all(|v| v.is_finite()), "{case:?}");
        (key, family, values)
    }

    #[test]
    fn attention_is_three_kinds_of_kernels() {
        let attention = |cached, fused| {
            Layer::Attention(Attention { kv_heads: Some(2), causal: true, cached, fused, ..Attention::of(4) })
        };
        let class = |layer, tokens: u64| {
            let (key, family, _) = values_of(layer, &[&[tokens, 64], &[tokens, 32], &[tokens, 32]], 2);
            (key.name(), family)
        };
        assert_eq!(class(attention(None, true), 100), ("attention", Family::Gemm));
        assert_eq!(class(attention(Some(0), true), 100), ("attention", Family::Gemm));
        assert_eq!(class(attention(None, false), 100), ("attention_unfused", Family::Gemm));
        assert_eq!(class(attention(Some(99), true), 1), ("attention_decode", Family::Stream));
    }

    #[test]
    fn attention_multiplies_per_sample_and_head() {
        let (_, _, values) = values_of(Layer::Attention(Attention::of(4)), &[&[128, 3 * 4 * 32]], 2);
        let value = |name| values[Family::Gemm.position(name).expect("a variable")];
        assert_eq!((value("m"), value("n")), (over(128.0, 4096.0).ln(), over(128.0, 256.0).ln()));
        assert_eq!((value("k"), value("g")), (over(32.0, 1024.0).ln(), over(8.0, 1.0).ln()));
    }

    #[test]
    fn a_linear_layer_does_not_tell_tokens_from_samples() {
        let linear = || Layer::Linear(Linear { features: 96, bias: false });
        let of = |dims: &[u64], batch| values_of(linear(), &[dims], batch).2;
        assert_eq!(of(&[64, 32], 8), of(&[32], 512));
        assert_eq!(of(&[64, 32], 8), of(&[8, 32], 64));
    }

    #[test]
    fn experts_do_not_tell_tokens_from_samples() {
        let experts =
            Experts { experts: 8, active: 2, hidden: 96, gated: true, bias: false, imbalance: 1.0, part: None };
        let of = |tokens, batch| values_of(Layer::Experts(experts.clone()), &[&[tokens, 64], &[tokens, 8]], batch).2;
        assert_eq!(of(64, 8), of(1, 512));
        assert_ne!(of(64, 8), of(1, 511));
    }

    #[test]
    fn the_steps_of_a_recurrent_layer_take_time_however_small_it_is() {
        let gpu = toy();
        let layer =
            Layer::Recurrent(Recurrent { cell: Cell::Lstm, hidden: 1, layers: 2, bidirectional: false, bias: true });
        let case = LayerCase { inputs: vec![Shape::new(&[50, 1]).expect("shape")], layer };
        let work = Work::usual(case, Phase::Forward, 1, Precision::Fp32, Mode::Inference).expect("fits");
        let load = work.on(&gpu).expect("fits").expect("fp32");
        assert_eq!((load.roofline.waiting, load.roofline.second), (Seconds::from_us(50.0), Seconds::ZERO));
        assert!(load.bound >= load.roofline.waiting && load.roofline.arithmetic() < Seconds::from_us(1.0));
    }

    #[test]
    fn library_versions_become_ages() {
        assert_eq!(library_age("7.5"), Some(-1.5));
        assert!(library_age("unknown").is_none());
    }

    #[test]
    fn flags_are_told_from_sizes() {
        for (family, flags, sizes) in [
            (Family::Gemm, ["c1x1", "bf16", "n8"], ["m", "n", "k"]),
            (Family::Stream, ["row4", "training", "relu"], ["bytes", "rows", "row"]),
        ] {
            let of = |name: &str| family.position(name).expect(name);
            assert!(flags.iter().all(|name| family.is_flag(of(name))), "{family}");
            assert!(sizes.iter().all(|name| !family.is_flag(of(name)) && family.bounds_domain(of(name))), "{family}");
            assert!(sizes.iter().all(|name| family.sizes().contains(&of(name))), "{family}");
            assert!(!family.is_flag(usize::MAX) && !family.bounds_domain(of("library")), "{family}");
        }
        let bounding = |family: Family| (0..family.variables().len()).filter(|&v| family.bounds_domain(v)).count();
        assert_eq!((bounding(Family::Gemm), bounding(Family::Stream)), (17, 7));
        assert_eq!((Family::Gemm.sizes().len(), Family::Stream.sizes().len()), (7, 3));
    }
}

#[cfg(test)]
mod oracles;
