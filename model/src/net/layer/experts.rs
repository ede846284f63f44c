//! A mixture of experts.

use super::linear::yes;
use super::{Layer, LayerOp, ShapeError};
use crate::base::number::Number;
use crate::base::precision::Phase;
use crate::base::shape::{MAX_DIMENSION, Shape, product};
use crate::base::units::Ops;
use crate::net::cost::{LayerCost, Site};
use serde::{Deserialize, Serialize};

/// Operations per logit: softmax and the choice of the largest.
const PER_LOGIT: u64 = 5;
/// Operations per inner value: an activation, and the product with the gate's other half.
const PER_INNER: u64 = 5;

/// Feed-forward networks of which a token runs through few (Shazeer et al. 2017). Reads tokens `[tokens, features]` and the
/// router's logits `[tokens, experts]`, a linear layer's; writes `[tokens, features]`: the sum of the chosen experts' results,
/// weighted by softmax. Experts whom all tokens share are layers of their own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Experts {
    /// Experts that there are.
    pub experts: u64,
    /// Experts that a token runs through.
    pub active: u64,
    /// Inner features of an expert.
    pub hidden: u64,
    /// Whether inner features are the product of two halves, one activated (Shazeer 2020): three products, otherwise two.
    #[serde(default = "yes")]
    pub gated: bool,
    /// Whether products have biases.
    #[serde(default)]
    pub bias: bool,
    /// How many times as many tokens a busy expert has as the mean of all: tokens go to so many times fewer experts, to all
    /// of these alike. 1: all experts are as busy. Where whole experts lie on several GPUs the step waits for the one that has
    /// the fullest: its experts are all busy ones, as far as there are so many.
    #[serde(default = "even", skip_serializing_if = "is_even")]
    pub imbalance: f64,
    /// Which part of the experts lies here, where several GPUs hold them; all of them without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<Part>,
}

/// Whole experts that one of several GPUs holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Part {
    /// Parts into which the experts are divided.
    pub of: u64,
    /// How many groups of as many tokens as the input has choose among them: those of GPUs that attend to other samples.
    pub groups: u64,
}

fn even() -> f64 {
    1.0
}

fn is_even(imbalance: &f64) -> bool {
    *imbalance == 1.0
}

impl Layer {
    /// Elements per sample that lie in memory between the kernels of a layer that has several, but for attention's scores.
    pub fn between(&self, inputs: &[Shape]) -> u64 {
        match (self, inputs.first().map(Shape::dims)) {
            (Self::Experts(experts), Some([tokens, features])) => experts.between(*tokens, *features),
            (Self::LatentAttention(attention), _) => attention.between(inputs),
            _ => 0,
        }
    }
}

impl Experts {
    /// Products of an expert, each of `hidden` by the network's features.
    pub fn products(&self) -> u64 {
        if self.gated { 3 } else { 2 }
    }

    /// How many experts some of so many tokens run through, in the mean, where each token chooses by itself: of n busy ones
    /// n (1 - (1 - active / n)^tokens). Of a part the same of its experts, as busy as they are where the fullest is, but at least
    /// one: a step waits for the GPU that has one.
    pub(crate) fn used<V: Number>(&self, tokens: V) -> V {
        let busy = (self.experts as f64 / self.imbalance).max(self.active as f64);
        match self.part {
            None => (V::of(1.0) - (tokens * (1.0 - self.active as f64 / busy).ln()).exp()) * busy,
            Some(part) => {
                let held = self.experts as f64 / part.of as f64;
                let missed = 1.0 - self.active as f64 * self.fullest(part) / self.experts as f64;
                let tokens = tokens * part.groups as f64;
                ((V::of(1.0) - (tokens * missed.ln()).exp()) * held).max(V::of(1.0))
            }
        }
    }

    /// How many times as many tokens as the mean of all the part has that has the fullest expert: as many as that one, until
    /// all tokens are there. That yet fewer experts are read then is left out, so that more imbalance is never less to do.
    fn fullest(&self, part: Part) -> f64 {
        self.imbalance.min(part.of as f64)
    }

    /// Experts that lie here.
    fn held(&self) -> u64 {
        self.experts / self.part.map_or(1, |part| part.of.max(1))
    }

    /// Pairs of a token and an expert that it runs through here, of so many tokens of the input.
    pub(crate) fn chosen<V: Number>(&self, tokens: V) -> V {
        let all = tokens * self.active as f64;
        match self.part {
            None => all,
            Some(part) => (all * (part.groups as f64 * self.fullest(part) / part.of as f64)).ceil(),
        }
    }

    /// The same of a number that is counted.
    fn chosen_of(&self, tokens: u64) -> u64 {
        let all = tokens.saturating_mul(self.active);
        self.part.map_or(all, |part| match self.fullest(part) {
            1.0 => all.saturating_mul(part.groups).div_ceil(part.of.max(1)),
            _ => self.chosen(tokens as f64) as u64,
        })
    }

    /// Learned values of one expert over so many features.
    fn of_one(&self, features: u64) -> u64 {
        let inner = product(&[self.products() - 1, self.hidden]);
        let biases = if self.bias { inner.saturating_add(features) } else { 0 };
        product(&[self.products(), self.hidden, features]).saturating_add(biases)
    }

    /// What an expert's kernels hand on for every token of each: inner features before and after their activation, and its
    /// result before all are summed.
    fn between(&self, tokens: u64, features: u64) -> u64 {
        let inner = product(&[self.products(), self.hidden]);
        product(&[self.chosen_of(tokens), inner.saturating_add(features)])
    }
}

impl LayerOp for Experts {
    fn output(&self, inputs: &[Shape]) -> Result<Shape, ShapeError> {
        let [tokens, logits] = inputs else {
            return Err(ShapeError::Arity { expected: "two", found: inputs.len() });
        };
        match (tokens.dims(), logits.dims()) {
            ([rows, _], [others, experts]) if rows == others && *experts == self.experts => {}
            ([_, _], _) => return Err(ShapeError::Mismatch { first: *tokens, other: *logits }),
            _ => return Err(ShapeError::Rank { needs: "[tokens, features]", found: *tokens }),
        }
        if !(1..=self.experts).contains(&self.active) || !(1..=MAX_DIMENSION).contains(&self.hidden) {
            return Err(ShapeError::Field("active is from 1 to the number of experts, hidden at least 1"));
        }
        // A number that is none is in no range.
        if !(1.0..=self.experts as f64 / self.active as f64).contains(&self.imbalance) {
            return Err(ShapeError::Field("imbalance is from 1 to experts over active ones"));
        }
        if self.part.is_some_and(|p| p.of == 0 || p.groups == 0 || !self.experts.is_multiple_of(p.of)) {
            return Err(ShapeError::Field("the parts must divide the experts"));
        }
        Ok(*tokens)
    }

    fn parameters(&self, inputs: &[Shape]) -> u64 {
        inputs.first().map_or(0, |tokens| product(&[self.held(), self.of_one(tokens.last())]))
    }

    /// Forward reads the experts that some token runs through, and hands on what lies between its kernels; backward the
    /// gradient of data and that of weights are as many products again, and gradients are of all experts.
    fn cost(&self, phase: Phase, site: &Site<'_>) -> Option<LayerCost> {
        let [tokens, features] = *site.input().dims() else { return None };
        let rows = site.batch.saturating_mul(tokens);
        let chosen = self.chosen_of(rows);
        let macs = [chosen, self.products(), self.hidden, features];
        let (x, logits) = (site.in_elements(), rows.saturating_mul(self.experts));
        let between = self.between(rows, features);
        let weights = (self.used(rows as f64) * self.of_one(features) as f64).round() as u64;
        let both = |a: u64, b: u64| a.saturating_add(b);
        let beside =
            both(product(&[PER_LOGIT, logits]), product(&[chosen, both(self.hidden * PER_INNER, 2 * features)]));
        let (mut cost, beside) = match phase {
            Phase::Forward => (site.dense(&macs, both(both(x, logits), between), both(x, between), weights), beside),
            Phase::BackwardData => {
                let read = both(both(x, logits), both(between, between));
                (site.dense(&macs, read, both(both(x, logits), between), weights), beside.saturating_mul(2))
            }
            Phase::BackwardWeights => {
                (site.dense(&macs, both(x, both(between, between)), self.parameters(site.inputs), 0), 0)
            }
            Phase::Update => return None,
        };
        cost.ops += Ops::new(beside);
        Some(cost)
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{cost, shape};
    use super::*;
    use crate::base::precision::Mode;

    fn experts(experts: u64, active: u64) -> Experts {
        Experts { experts, active, hidden: 24, gated: true, bias: false, imbalance: 1.0, part: None }
    }

    fn inputs(tokens: u64, experts: u64) -> [Shape; 2] {
        [shape(&[tokens, 10]), shape(&[tokens, experts])]
    }

    #[test]
    fn one_expert_of_one_is_a_plain_gated_network() {
        let layer = experts(1, 1);
        let c = cost(&layer, &inputs(7, 1), 2, Phase::Forward, Mode::Inference).expect("runs");
        assert_eq!((c.macs, layer.parameters(&inputs(7, 1))), (2 * 7 * 3 * 24 * 10, 3 * 24 * 10));
        assert_eq!(c.weights.get(), 4 * 3 * 24 * 10);
        let plain = Experts { gated: false, bias: true, ..layer };
        assert_eq!(plain.parameters(&inputs(7, 1)), 2 * 24 * 10 + 24 + 10);
    }

    /// Of every way in which tokens can choose, the mean of how many experts are read.
    #[test]
    fn experts_that_are_read_are_those_that_some_token_chose() {
        let choices: [[usize; 2]; 6] = [[0, 1], [0, 2], [0, 3], [1, 2], [1, 3], [2, 3]];
        let (mut ways, mut used) = (0u32, 0u32);
        for (a, b, c) in (0..6).flat_map(|a| (0..6).flat_map(move |b| (0..6).map(move |c| (a, b, c)))) {
            let mut chosen = [false; 4];
            [a, b, c].iter().flat_map(|&i: &usize| choices[i]).for_each(|expert| chosen[expert] = true);
            used += chosen.iter().map(|&c| u32::from(c)).sum::<u32>();
            ways += 1;
        }
        let layer = experts(4, 2);
        assert!((layer.used(3.0) - f64::from(used) / f64::from(ways)).abs() < 1e-12);
        assert_eq!((layer.used(1.0), layer.used(u64::MAX as f64)), (2.0, 4.0));
        let read =
            |tokens| cost(&layer, &inputs(tokens, 4), 1, Phase::Forward, Mode::Inference).expect("runs").weights.get();
        assert_eq!((read(1), read(2), read(1000)), (4 * 2 * 720, 4 * 3 * 720, 4 * 4 * 720));
    }

    #[test]
    fn where_few_are_busy_fewer_are_read_and_as_much_is_computed() {
        let of = |imbalance| {
            let layer = Experts { imbalance, ..experts(8, 2) };
            cost(&layer, &inputs(500, 8), 1, Phase::Forward, Mode::Inference).expect("runs")
        };
        assert_eq!((of(1.0).macs, of(1.0).weights.get()), (of(2.0).macs, 2 * of(2.0).weights.get()));
        for (imbalance, fits) in [(0.5, false), (1.0, true), (4.0, true), (4.5, false), (f64::NAN, false)] {
            let layer = Experts { imbalance, ..experts(8, 2) };
            assert_eq!(layer.output(&inputs(3, 8)).is_ok(), fits, "{imbalance}");
        }
    }

    /// 16 experts of which a token takes two, on four GPUs.
    #[test]
    fn on_several_gpus_the_one_with_the_fullest_expert_decides() {
        let of = |imbalance, tokens, groups| {
            let layer = Experts { imbalance, part: Some(Part { of: 4, groups }), ..experts(16, 2) };
            let cost = cost(&layer, &inputs(tokens, 16), 1, Phase::Forward, Mode::Inference).expect("runs");
            (cost.macs, cost.weights.get())
        };
        let (even, read) = of(1.0, 512, 1);
        // Experts with twice the tokens are on one of the GPUs, then all tokens are.
        assert_eq!((of(2.0, 512, 1), of(4.0, 512, 1)), ((2 * even, read), (4 * even, read)));
        for (tokens, groups) in [(1, 1), (3, 1), (3, 4), (40, 1), (512, 4)] {
            let all = [1.0, 1.3, 1.9, 2.5, 4.0, 5.5, 8.0].map(|imbalance| of(imbalance, tokens, groups));
            assert!(all.is_sorted_by(|a, b| a.0 <= b.0 && a.1 <= b.1), "{tokens} {groups}: {all:?}");
        }
    }

    #[test]
    fn a_step_of_training_takes_three_times_the_products_and_writes_all_gradients() {
        let layer = experts(16, 2);
        let of = |phase| cost(&layer, &inputs(3, 16), 1, phase, Mode::Training);
        let macs = |phase| of(phase).map_or(0, |c| c.macs);
        assert_eq!(macs(Phase::BackwardData) + macs(Phase::BackwardWeights), 2 * macs(Phase::Forward));
        assert_eq!(of(Phase::BackwardWeights).map(|c| c.written.get()), Some(4 * layer.parameters(&inputs(3, 16))));
        assert!(of(Phase::Update).is_none());
    }

    #[test]
    fn parts_of_the_experts_are_all_of_them_together() {
        let whole = experts(16, 4);
        let of = |layer: &Experts, tokens| cost(layer, &inputs(tokens, 16), 1, Phase::Forward, Mode::Inference);
        for parts in [1, 2, 4, 8] {
            // GPUs that have the same tokens, and GPUs that each have a share of them.
            for groups in [1, parts] {
                let part = Experts { part: Some(Part { of: parts, groups }), ..whole.clone() };
                let each = of(&part, 1024 / groups).expect("runs");
                let all = of(&whole, 1024).expect("runs");
                assert_eq!(parts * each.macs, all.macs, "{parts} {groups}");
                assert_eq!(parts * each.weights.get(), all.weights.get(), "{parts} {groups}");
                assert_eq!(parts * part.parameters(&inputs(3, 16)), whole.parameters(&inputs(3, 16)));
            }
        }
        // Of one token's four experts each of eight GPUs has half of one, which some GPU reads.
        let part = Experts { part: Some(Part { of: 8, groups: 1 }), ..whole.clone() };
        assert_eq!(of(&part, 1).map(|c| c.weights.get()), Some(4 * 720));
        for wrong in [Part { of: 3, groups: 1 }, Part { of: 0, groups: 1 }, Part { of: 4, groups: 0 }] {
            assert!(Experts { part: Some(wrong), ..whole.clone() }.output(&inputs(3, 16)).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        assert!(experts(8, 2).output(&inputs(3, 8)).is_ok());
        assert!(experts(8, 2).output(&inputs(3, 9)).is_err());
        assert!(experts(8, 9).output(&inputs(3, 8)).is_err());
        assert!(experts(8, 0).output(&inputs(3, 8)).is_err());
        assert!(experts(8, 2).output(&[shape(&[3, 10]), shape(&[4, 8])]).is_err());
        assert!(experts(8, 2).output(&inputs(3, 8)[..1]).is_err());
        assert!(Experts { hidden: 0, ..experts(8, 2) }.output(&inputs(3, 8)).is_err());
    }
}
