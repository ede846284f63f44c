//! Decision trees of which engine a library chooses, from what its heuristics answered (CART: Breiman and others 1984).
//!
//! A tree is grown by the Gini index until it separates what it can: heuristics answer the same whenever they are asked, so
//! that there is no chance to be pruned away (pruned by shapes kept aside, trees are wrong half as often again). A twentieth
//! of the shapes is not learned from and says how often the tree is right.

use crate::rows::choices::{Answer, engine_name};
use crate::rows::prepare::Row;
use crate::system::hash::drawn;
use anyhow::{Context, Result};
use joulecast_model::base::precision::{Phase, Precision};
use joulecast_model::catalog;
use joulecast_model::kernel::sizes::{ConvSizes, NAMES};
use joulecast_model::law::choice::{Choice, MOST_NODES, Node, Tree, foreseen};
use rayon::prelude::*;
use std::collections::BTreeMap;

/// The size that answers lack.
const DILATION: &str = "dilation";
/// Answers in a leaf, at least.
const FEWEST: usize = 2;
/// Of so many shapes one is not learned from: it judges.
const JUDGES: u32 = 20;
/// A tree that fewer answers judge is left out: nothing is known of how often it is right.
const FEWEST_JUDGED: usize = 20;

/// Answers of a phase and arithmetic from which on a tree is about to be learned.
pub const FEWEST_ANSWERS: usize = FEWEST_JUDGED * JUDGES as usize;

/// The choices on each chip.
pub type Choices = BTreeMap<String, Vec<Choice>>;

/// Learns what the libraries choose on each chip, by phase and arithmetic: both 16-bit formats together. Too few answers
/// make no tree. Of dilated windows heuristics were not asked: there rows say what ran.
///
/// # Errors
/// When an answer is of a GPU that the catalog does not know.
pub fn learned(answers: &[Answer], rows: &[Row]) -> Result<Choices> {
    let mut parts: BTreeMap<(String, Phase, Vec<Precision>), Vec<Sample<'_>>> = BTreeMap::new();
    let mut chips: BTreeMap<&str, String> = BTreeMap::new();
    for answer in answers {
        let Some(sizes) = ConvSizes::of(&answer.trial) else { continue };
        let chip = match chips.get(answer.gpu.as_str()) {
            Some(chip) => chip.clone(),
            None => {
                let chip = catalog::gpu(&answer.gpu)?.chip;
                chips.insert(&answer.gpu, chip.clone());
                chip
            }
        };
        let judges = judges(&answer.trial.case.fold_key());
        let sample = Sample { sizes, engine: engine_name(&answer.algorithm), judges };
        parts.entry((chip, sizes.phase, arithmetic(sizes.precision))).or_default().push(sample);
    }
    for row in rows {
        let (Some(sizes), Some(engine)) = (row.sizes.as_deref().copied(), &row.engine) else { continue };
        if sizes.named(DILATION).is_some_and(|dilation| dilation > 1.0) {
            let sample = Sample { sizes, engine, judges: judges(&row.key) };
            parts.entry((row.chip.to_string(), sizes.phase, arithmetic(sizes.precision))).or_default().push(sample);
        }
    }
    let learned: Vec<(String, Choice)> = parts
        .into_par_iter()
        .filter(|(_, samples)| samples.iter().filter(|s| s.judges).count() >= FEWEST_JUDGED)
        .map(|((chip, phase, precisions), samples)| Ok((chip, choice(phase, precisions, &samples)?)))
        .collect::<Result<_>>()?;
    let mut choices = Choices::new();
    for (chip, choice) in learned {
        choices.entry(chip).or_default().push(choice);
    }
    Ok(choices)
}

/// Precisions whose engines are chosen alike.
fn arithmetic(precision: Precision) -> Vec<Precision> {
    match precision {
        Precision::Fp16 | Precision::Bf16 => vec![Precision::Fp16, Precision::Bf16],
        other => vec![other],
    }
}

/// What was learned, in words: a line for each chip.
pub fn in_words(choices: &Choices) -> String {
    let line = |(chip, choices): (&String, &Vec<Choice>)| {
        let asked: usize = choices.iter().map(|c| c.asked).sum();
        let right = choices.iter().map(|c| 100.0 * c.right);
        let (low, high) = right.fold((100.0f64, 0.0f64), |(low, high), r| (low.min(r), high.max(r)));
        let right = if low.round() == high.round() { format!("{low:.0}") } else { format!("{low:.0} to {high:.0}") };
        let trees = choices.len();
        format!(
            "{chip}: engines of convolutions from {asked} answers, {trees} trees, {right} % right for shapes kept aside\n"
        )
    };
    choices.iter().map(line).collect()
}

/// Foresees the engines of rows.
pub fn foresee(rows: &mut [Row], choices: &Choices) {
    for row in rows {
        let (Some(choices), Some(sizes)) = (choices.get(&*row.chip), &row.sizes) else { continue };
        row.foreseen = foreseen(choices, sizes).map(str::to_string);
    }
}

struct Sample<'a> {
    sizes: ConvSizes,
    engine: &'a str,
    /// Whether it is not learned from.
    judges: bool,
}

/// Whether answers for a shape judge: all of them or none.
fn judges(key: &str) -> bool {
    drawn(key).is_multiple_of(JUDGES)
}

fn choice(phase: Phase, precisions: Vec<Precision>, samples: &[Sample<'_>]) -> Result<Choice> {
    let mut engines: Vec<&str> = samples.iter().map(|s| s.engine).collect();
    engines.sort_unstable();
    engines.dedup();
    let class = |s: &Sample<'_>| engines.binary_search(&s.engine).unwrap_or(0) as u16;
    let learned = || samples.iter().filter(|s| !s.judges);
    let columns: Vec<Vec<f64>> = (0..NAMES.len()).map(|i| learned().map(|s| s.sizes.values[i]).collect()).collect();
    let classes: Vec<u16> = learned().map(class).collect();
    let nodes = Growing::new(&columns, &classes, engines.len()).grow();
    let what = || format!("engines of {phase} in {precisions:?}");
    anyhow::ensure!(nodes.len() <= MOST_NODES, "{}: a tree of {} nodes", what(), nodes.len());
    let tree = Tree::new(nodes, engines.len()).map_err(anyhow::Error::msg).with_context(what)?;
    let engines = engines.iter().map(|e| e.to_string()).collect();
    let workspaces = BTreeMap::new();
    let choice = Choice { phase, precisions, engines, asked: samples.len(), right: 0.0, tree, workspaces };
    let judging = samples.iter().filter(|s| s.judges);
    let judged: Vec<bool> = judging.map(|s| choice.engine(&s.sizes) == Some(s.engine)).collect();
    let right = judged.iter().filter(|right| **right).count() as f64 / judged.len() as f64;
    Ok(Choice { right, ..choice })
}

/// A tree while it is made, and its rows in the order of each column, of which every branch has a stretch.
struct Growing<'a> {
    columns: &'a [Vec<f64>],
    classes: &'a [u16],
    orders: Vec<Vec<u32>>,
    engines: usize,
    low: Vec<bool>,
    scratch: Vec<u32>,
    nodes: Vec<Node>,
}

impl<'a> Growing<'a> {
    fn new(columns: &'a [Vec<f64>], classes: &'a [u16], engines: usize) -> Self {
        let order = |column: &Vec<f64>| {
            let mut order: Vec<u32> = (0..column.len() as u32).collect();
            order.sort_by(|a, b| column[*a as usize].total_cmp(&column[*b as usize]));
            order
        };
        let orders = columns.par_iter().map(order).collect();
        let low = vec![false; classes.len()];
        Self { columns, classes, orders, engines, low, scratch: Vec::new(), nodes: Vec::new() }
    }

    /// The nodes in the order of descent.
    fn grow(mut self) -> Vec<Node> {
        self.branch(0, self.classes.len());
        self.nodes
    }

    fn branch(&mut self, from: usize, to: usize) {
        let mut counts = vec![0u64; self.engines];
        for &row in &self.orders[0][from..to] {
            counts[usize::from(self.classes[row as usize])] += 1;
        }
        // Of equals the first.
        let most = (0..counts.len()).rev().max_by_key(|&c| counts[c]).unwrap_or(0);
        let split = if counts[most] == (to - from) as u64 { None } else { self.split(from, to, &counts) };
        // Of a split the place, until its other branch begins.
        let here = self.nodes.len();
        self.nodes.push(Node::Engine(most as u16));
        let Some((size, at)) = split else { return };
        for &row in &self.orders[size][from..to] {
            self.low[row as usize] = self.columns[size][row as usize] <= at;
        }
        let mut middle = from;
        for order in &mut self.orders {
            self.scratch.clear();
            let stretch = &mut order[from..to];
            let mut kept = 0;
            for i in 0..stretch.len() {
                let row = stretch[i];
                if self.low[row as usize] {
                    stretch[kept] = row;
                    kept += 1;
                } else {
                    self.scratch.push(row);
                }
            }
            stretch[kept..].copy_from_slice(&self.scratch);
            middle = from + kept;
        }
        self.branch(from, middle);
        self.nodes[here] = Node::Split { size: size as u8, at, other: self.nodes.len() as u32 };
        self.branch(middle, to);
    }

    /// The split with the least Gini index: the largest sum of n_c^2 / n over its two sides.
    fn split(&self, from: usize, to: usize, counts: &[u64]) -> Option<(usize, f64)> {
        let n = (to - from) as f64;
        let square = |counts: &[u64]| counts.iter().map(|c| (c * c) as f64).sum::<f64>();
        let whole = square(counts);
        let mut best: Option<(f64, usize, f64)> = None;
        for (size, column) in self.columns.iter().enumerate() {
            let order = &self.orders[size][from..to];
            let value = |i: usize| column[order[i] as usize];
            if value(0) == value(order.len() - 1) {
                continue;
            }
            let (mut low, mut high) = (vec![0u64; self.engines], counts.to_vec());
            let (mut low_square, mut high_square) = (0.0, whole);
            for i in 0..order.len() - 1 {
                let class = usize::from(self.classes[order[i] as usize]);
                low_square += (2 * low[class] + 1) as f64;
                high_square -= (2 * high[class] - 1) as f64;
                low[class] += 1;
                high[class] -= 1;
                let here = i + 1;
                if here < FEWEST || order.len() - here < FEWEST || value(i) == value(here) {
                    continue;
                }
                let score = low_square / here as f64 + high_square / (n - here as f64);
                if best.is_none_or(|(most, ..)| score > most) {
                    best = Some((score, size, between(value(i), value(here))));
                }
            }
        }
        let (score, size, at) = best?;
        (score > whole / n * (1.0 + 1e-12)).then_some((size, at))
    }
}

/// The number with the fewest digits that is at least `low` and below `high`: text is shorter for it.
fn between(low: f64, high: f64) -> f64 {
    let mut step = 10f64.powi(high.max(1.0).log10().floor() as i32);
    while step >= 1.0 {
        let at = (low / step).ceil() * step;
        if at < high {
            return at;
        }
        step /= 10.0;
    }
    low
}

#[cfg(test)]
mod tests {
    use super::*;
    use joulecast_model::base::precision::Mode;
    use joulecast_model::base::shape::Shape;
    use joulecast_model::kernel::work::Trial;
    use joulecast_model::net::case::LayerCase;
    use joulecast_model::net::layer::{Conv2d, Groups, Layer, Pair};

    fn answer(batch: u64, channels: u64, side: u64, algorithm: &str) -> Answer {
        let layer = Layer::Conv2d(Conv2d {
            channels: 64,
            kernel: Pair::square(3),
            stride: Pair::square(1),
            padding: Pair::square(1),
            dilation: Pair::square(1),
            groups: Groups::Count(1),
            bias: false,
        });
        let case = LayerCase { inputs: vec![Shape::map(channels, side, side).expect("a shape")], layer };
        let trial = Trial::usual(case, Phase::Forward, batch, Precision::Fp32, Mode::Inference).expect("fits");
        Answer { gpu: "h200".into(), trial, algorithm: algorithm.into() }
    }

    /// A rule of three engines: by channels, then by batch.
    fn rule(batch: u64, channels: u64) -> &'static str {
        match (channels <= 48, batch <= 9) {
            (true, _) => "eng1{2=4} tensor_core",
            (false, true) => "eng2{2=4}",
            (false, false) => "eng2{2=8}",
        }
    }

    #[test]
    fn a_rule_is_learned_and_foreseen_for_other_shapes() -> Result<()> {
        let mut answers = Vec::new();
        for channels in (8..=128).step_by(8) {
            for side in 4..20 {
                for batch in [1, 2, 4, 8, 12, 16, 32] {
                    answers.push(answer(batch, channels, side, rule(batch, channels)));
                }
            }
        }
        let choices = learned(&answers, &[])?;
        let [choice] = &choices["GH100"][..] else { panic!("one phase and precision") };
        assert_eq!((choice.right, choice.tree.nodes().len()), (1.0, 5), "{}", choice.tree.to_text());
        for (batch, channels) in [(3, 44), (9, 100), (24, 100)] {
            let sizes = ConvSizes::of(&answer(batch, channels, 33, "").trial).context("a convolution")?;
            assert_eq!(choice.engine(&sizes), Some(engine_name(rule(batch, channels))), "{batch} {channels}");
        }
        Ok(())
    }

    #[test]
    fn what_ran_dilated_is_learned_from_rows() -> Result<()> {
        let shapes = || (8..=512).step_by(8).flat_map(|channels| [1u64, 4, 16].map(|batch| (batch, channels)));
        let answers: Vec<Answer> =
            shapes().flat_map(|(b, c)| (8..16).map(move |side| answer(b, c, side, "eng5{}"))).collect();
        let dilated = |batch: u64, channels: u64, side: u64| {
            let trial = answer(batch, channels, side, "").trial;
            let mut case = trial.case.into_owned();
            if let Layer::Conv2d(conv) = &mut case.layer {
                (conv.dilation, conv.padding) = (Pair::square(2), Pair::square(2));
            }
            Trial { case: case.into(), ..trial }
        };
        let rows: Vec<Row> = shapes()
            .flat_map(|(b, c)| [9, 11, 14].map(|side| dilated(b, c, side)))
            .map(|trial| Row {
                key: trial.case.fold_key().into(),
                sizes: ConvSizes::of(&trial).map(Box::new),
                engine: Some("eng0{}".into()),
                ..crate::rows::prepare::testing::row("GH100", 8, 0.1)
            })
            .collect();
        let of = |rows: &[Row], trial: &Trial| -> Result<Option<String>> {
            let choices = learned(&answers, rows)?;
            let sizes = ConvSizes::of(trial).context("a convolution")?;
            Ok(choices["GH100"][0].engine(&sizes).map(str::to_string))
        };
        let (plain, open) = (answer(8, 100, 12, "").trial, dilated(8, 100, 12));
        assert_eq!((of(&rows, &plain)?.as_deref(), of(&rows, &open)?.as_deref()), (Some("eng5{}"), Some("eng0{}")));
        assert_eq!(of(&[], &open)?.as_deref(), Some("eng5{}"));
        Ok(())
    }

    #[test]
    fn splits_stand_at_round_numbers() {
        assert_eq!(
            [between(63.0, 65.0), between(1234.0, 5678.0), between(7.0, 8.0), between(99.0, 101.0)],
            [63.0, 2000.0, 7.0, 100.0]
        );
    }
}
