//! Recurrent layers: LSTM and GRU.

use super::linear::Linear;
use super::{LayerOp, ShapeError, one};
use crate::base::precision::{Mode, Phase, named_enum};
use crate::base::shape::{Shape, product};
use crate::net::cost::{LayerCost, Site};
use serde::{Deserialize, Serialize};

named_enum!(
    /// A recurrent cell.
    Cell {
        /// Long short-term memory: four gates.
        Lstm = "lstm",
        /// Gated recurrent unit: three gates.
        Gru = "gru",
        /// A sum and its hyperbolic tangent or rectifier: no gates.
        Rnn = "rnn",
    }
);

impl Cell {
    /// Products of the hidden size per step.
    pub fn gates(self) -> u64 {
        match self {
            Self::Lstm => 4,
            Self::Gru => 3,
            Self::Rnn => 1,
        }
    }
}

/// Stacked layers over `[tokens, features]`, token after token: the hidden states of the last one, `[tokens, hidden]`,
/// twice as wide in both directions. Over `[sequences, tokens, features]`, as rows or columns of a map are, the sequences of
/// a sample run side by side. Two biases per gate, as cuDNN and PyTorch keep them.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recurrent {
    /// Which cell.
    pub cell: Cell,
    /// Size of the hidden state.
    pub hidden: u64,
    /// Layers on top of each other.
    #[serde(default = "single")]
    pub layers: u64,
    /// A second set of weights reads from the end.
    #[serde(default)]
    pub bidirectional: bool,
    /// Whether there are biases.
    #[serde(default = "super::linear::yes")]
    pub bias: bool,
}

fn single() -> u64 {
    1
}

impl Recurrent {
    /// Directions that it reads in.
    pub fn directions(&self) -> u64 {
        1 + u64::from(self.bidirectional)
    }

    /// Steps that can only run one after the other.
    pub fn steps(&self, inputs: &[Shape]) -> u64 {
        let tokens = inputs.first().and_then(|s| s.dims().iter().rev().nth(1)).copied().unwrap_or(1);
        tokens.saturating_mul(self.layers)
    }

    /// Sequences of a sample that run side by side.
    pub fn sequences(inputs: &[Shape]) -> u64 {
        match inputs.first().map(Shape::dims) {
            Some([sequences, _, _]) => *sequences,
            _ => 1,
        }
    }

    /// The products that it is made of, with what each reads and how often it runs: those of all tokens at once, and those of
    /// states, token after token, of which only the gradients of weights are of all tokens. Both directions' are one.
    pub fn products(&self, inputs: &[Shape], phase: Phase) -> Vec<(Linear, Shape, u64)> {
        let features = product(&[self.cell.gates(), self.hidden, self.directions()]);
        let (read, sequences) = (inputs.first().map_or(0, Shape::last), Self::sequences(inputs));
        let tokens = inputs.first().map_or(0, Shape::elements) / read.max(1);
        let states = match phase {
            Phase::BackwardWeights => (tokens, self.layers),
            _ => (sequences, self.steps(inputs)),
        };
        let between = self.hidden.saturating_mul(self.directions());
        let all = [
            (self.bias, tokens, read, 1),
            (self.bias, tokens, between, self.layers.saturating_sub(1)),
            (false, states.0, self.hidden, states.1),
        ];
        let some = all.into_iter().filter(|(.., times)| *times > 0);
        some.filter_map(|(bias, rows, read, times)| {
            Some((Linear { features, bias }, Shape::new(&[rows, read]).ok()?, times))
        })
        .collect()
    }

    /// Weights of the gates of all layers and directions.
    fn weights(&self, inputs: &[Shape]) -> u64 {
        let first = inputs.first().map_or(0, Shape::last);
        let next = self.hidden.saturating_mul(self.directions());
        let read = first
            .saturating_add(next.saturating_mul(self.layers.saturating_sub(1)))
            .saturating_add(self.hidden.saturating_mul(self.layers));
        product(&[self.cell.gates(), self.hidden, self.directions(), read])
    }
}

impl LayerOp for Recurrent {
    fn output(&self, inputs: &[Shape]) -> Result<Shape, ShapeError> {
        let input = one(inputs)?;
        if self.layers == 0 {
            return Err(ShapeError::Field("layers must be at least 1"));
        }
        let states = self.hidden.saturating_mul(self.directions());
        match *input.dims() {
            [tokens, _] => Ok(Shape::new(&[tokens, states])?),
            [sequences, tokens, _] => Ok(Shape::new(&[sequences, tokens, states])?),
            _ => Err(ShapeError::Rank { needs: "[tokens, features] or [sequences, tokens, features]", found: input }),
        }
    }

    fn parameters(&self, inputs: &[Shape]) -> u64 {
        let biases = if self.bias { 2 } else { 0 };
        let each = product(&[biases, self.cell.gates(), self.hidden, self.directions(), self.layers]);
        self.weights(inputs).saturating_add(each)
    }

    /// Every weight once per token, and about three operations per gate and hidden feature for nonlinearities and the
    /// cell. Weights are counted as read once; layers hand their states on through memory; training keeps the gates.
    fn cost(&self, phase: Phase, site: &Site<'_>) -> Option<LayerCost> {
        let tokens = site.in_elements() / site.input().last().max(1);
        let learned = self.parameters(site.inputs);
        let x = site.in_elements();
        let states = product(&[tokens, self.hidden, self.directions(), self.layers]);
        let gates = states.saturating_mul(self.cell.gates());
        let between = states.saturating_sub(site.out_elements());
        let sum = |parts: &[u64]| parts.iter().fold(0u64, |a, &b| a.saturating_add(b));
        let (read, written, weights) = match phase {
            Phase::Forward => {
                let kept = if site.mode == Mode::Training { gates } else { 0 };
                (sum(&[x, between]), sum(&[states, kept]), learned)
            }
            Phase::BackwardData => (sum(&[states, gates]), sum(&[x, between, gates]), learned),
            Phase::BackwardWeights => (sum(&[x, states, gates]), learned, 0),
            Phase::Update => return None,
        };
        let mut cost = site.dense(&[tokens, self.weights(site.inputs)], read, written, weights);
        if phase != Phase::BackwardWeights {
            cost.ops += crate::base::units::Ops::new(gates.saturating_mul(3));
        }
        Some(cost)
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{cost, shape};
    use super::*;

    fn lstm(layers: u64, bidirectional: bool) -> Recurrent {
        Recurrent { cell: Cell::Lstm, hidden: 20, layers, bidirectional, bias: true }
    }

    /// PyTorch: sum(p.numel() for p in torch.nn.LSTM(10, 20, layers, bidirectional=...).parameters()).
    #[test]
    fn parameters_are_those_of_pytorch() {
        let input = [shape(&[5, 10])];
        assert_eq!(lstm(1, false).parameters(&input), 4 * 20 * (10 + 20 + 2));
        assert_eq!(lstm(2, false).parameters(&input), 4 * 20 * (10 + 20 + 2) + 4 * 20 * (20 + 20 + 2));
        assert_eq!(lstm(2, true).parameters(&input), 2 * (4 * 20 * (10 + 20 + 2) + 4 * 20 * (40 + 20 + 2)));
        let gru = Recurrent { cell: Cell::Gru, ..lstm(1, false) };
        assert_eq!(gru.parameters(&input), 3 * 20 * (10 + 20 + 2));
    }

    #[test]
    fn sequences_of_a_sample_run_side_by_side() {
        let (map, row) = ([shape(&[14, 32, 10])], [shape(&[32, 10])]);
        let layer = lstm(2, true);
        assert_eq!(layer.output(&map), Ok(shape(&[14, 32, 40])));
        assert_eq!((layer.steps(&map), Recurrent::sequences(&map)), (64, 14));
        assert_eq!((layer.steps(&row), Recurrent::sequences(&row)), (64, 1));
        assert_eq!(layer.parameters(&map), layer.parameters(&row));
        let of = |input: &[_], batch| cost(&layer, input, batch, Phase::Forward, Mode::Training).expect("runs");
        assert_eq!(of(&map, 3), of(&row, 42), "as so many samples more");
        assert!(layer.output(&[shape(&[2, 14, 32, 10])]).is_err());
    }

    #[test]
    fn its_products_multiply_as_much() {
        let inputs = [shape(&[14, 32, 10])];
        for (layers, bidirectional) in [(1, false), (3, true)] {
            let layer = lstm(layers, bidirectional);
            for phase in [Phase::Forward, Phase::BackwardData, Phase::BackwardWeights] {
                let whole = cost(&layer, &inputs, 3, phase, Mode::Training).expect("runs").macs;
                let parts = layer.products(&inputs, phase).into_iter().map(|(linear, input, times)| {
                    times * cost(&linear, &[input], 3, phase, Mode::Training).expect("runs").macs
                });
                assert_eq!(parts.sum::<u64>(), whole, "{layers} {phase}");
            }
        }
        let steps = |phase| lstm(3, false).products(&inputs, phase).last().map(|(_, input, times)| (*input, *times));
        assert_eq!(steps(Phase::Forward), Some((shape(&[14, 20]), 96)));
        assert_eq!(steps(Phase::BackwardWeights), Some((shape(&[448, 20]), 3)));
    }

    #[test]
    fn every_weight_works_once_per_token() {
        let input = [shape(&[5, 10])];
        let c = cost(&lstm(2, true), &input, 3, Phase::Forward, Mode::Inference).expect("runs");
        assert_eq!(c.macs, 15 * 2 * (4 * 20 * (10 + 20) + 4 * 20 * (40 + 20)));
        assert_eq!(lstm(2, true).output(&input), Ok(shape(&[5, 40])));
        assert_eq!(lstm(2, true).steps(&input), 10);
    }
}
