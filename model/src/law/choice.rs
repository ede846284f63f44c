//! Which engine a library chooses for a convolution, foreseen by a decision tree over the convolution's sizes.
//!
//! Libraries choose by heuristics of their own, which can be asked without running anything; `calibrate fit --choices`
//! learns the trees from such answers. An engine that is foreseen has its own terms in the models of time.

use super::calibration::engine_alone;
use crate::base::precision::{Phase, Precision};
use crate::base::units::Bytes;
use crate::kernel::sizes::{ConvSizes, NAMES};
use joulecast_data::pack::{FAR, LONG, SPLIT, from_few_digits};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

/// Nodes of a tree at most: of a file, not of what is worth learning.
pub const MOST_NODES: usize = 100_000;

/// The engines that a library chooses for convolutions in a phase.
#[derive(Clone, Debug, PartialEq)]
pub struct Choice {
    /// Which kernel of the layer.
    pub phase: Phase,
    /// Formats of the operands that it was learned from.
    pub precisions: Vec<Precision>,
    /// Names of the engines, as rows give them.
    pub engines: Vec<String>,
    /// Answers that it was learned from.
    pub asked: usize,
    /// Share of answers for shapes that it was not learned from that it foresees, from 0 to 1.
    pub right: f64,
    /// What decides.
    pub tree: Tree,
    /// What engines take as scratch memory, by [`workspace_key`]; nothing where one is not named.
    pub workspaces: BTreeMap<String, Workspace>,
}

/// Scratch memory of an engine, in multiples of what a convolution reads, writes and learned, which most bring into another order,
/// and of what Fourier transforms of these would keep.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Workspace {
    /// Of the bytes of the input.
    pub input: f64,
    /// Of the bytes of the result.
    pub output: f64,
    /// Of the bytes of the weights.
    pub weights: f64,
    /// Of the bytes of Fourier transforms.
    pub fourier: f64,
}

/// What an engine's workspaces are kept under: its name without knobs, and whether groups or channels that do not fill a vector of
/// 16 bytes make it copy what else it reads as it is.
pub fn workspace_key<'e>(engine: &'e str, sizes: &ConvSizes) -> Cow<'e, str> {
    let alone = engine_alone(engine);
    let size = |name: &str| sizes.named(name).unwrap_or(0.0);
    let vector = 16.0 / sizes.precision.bytes() as f64;
    if size("groups") > 1.0 {
        format!("{alone}{GROUPED}").into()
    } else if size("aligned_inputs").min(size("aligned_outputs")) < vector {
        format!("{alone}{ODD}").into()
    } else {
        alone.into()
    }
}

/// The engine's name of a key of workspaces.
pub fn engine_of_key(key: &str) -> &str {
    key.strip_suffix(GROUPED).or_else(|| key.strip_suffix(ODD)).unwrap_or(key)
}

const GROUPED: &str = "_grouped";
const ODD: &str = "_odd";

impl Workspace {
    /// From the multiples of [`Self::parts`].
    pub fn new([input, output, weights, fourier]: [f64; 4]) -> Self {
        Self { input, output, weights, fourier }
    }

    /// The multiples, in the order of [`Self::parts`].
    pub fn multiples(&self) -> [f64; 4] {
        [self.input, self.output, self.weights, self.fourier]
    }

    /// Bytes of a convolution's input, result and weights, and of their Fourier transforms, which have 32 bits.
    pub fn parts(sizes: &ConvSizes) -> [f64; 4] {
        let bytes = |size: &str| sizes.named(size).unwrap_or(0.0) * sizes.precision.bytes() as f64;
        let fourier = sizes.fourier_numbers() * Precision::Fp32.bytes() as f64;
        [bytes("read"), bytes("written"), bytes("weights"), fourier]
    }

    /// For a convolution of these sizes.
    pub fn of(&self, sizes: &ConvSizes) -> Bytes {
        let parts = Self::parts(sizes).into_iter().zip(self.multiples());
        Bytes::new(parts.map(|(bytes, multiple)| bytes * multiple).sum::<f64>() as u64)
    }
}

/// A binary decision tree.
#[derive(Clone)]
pub struct Tree(Form);

#[derive(Clone)]
enum Form {
    Nodes(Vec<Node>),
    Packed(PackedTree),
}

/// As the build packed it ([`joulecast_data::pack`]): most trees of a large file are never asked.
#[derive(Clone, Copy)]
struct PackedTree {
    /// Engines' numbers of two bytes each.
    engines: &'static [u8],
    nodes: &'static [u8],
}

/// A node, in the order of descent: the branch of small values follows its split.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Node {
    /// By whether a size is at most so large.
    Split {
        /// Position in [`NAMES`].
        size: u8,
        /// The largest value of the branch that follows.
        at: f64,
        /// Where the other branch begins; 0 in a packed tree that does not say it.
        other: u32,
    },
    /// Position of the engine in [`Choice::engines`].
    Engine(u16),
}

impl PartialEq for Tree {
    fn eq(&self, other: &Self) -> bool {
        self.nodes() == other.nodes()
    }
}

impl fmt::Debug for Tree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Tree").field(&self.nodes()).finish()
    }
}

/// A number in groups of seven bits, the lowest first, and where what follows it begins.
#[inline]
fn groups(bytes: &[u8], mut at: usize) -> (u32, usize) {
    let (mut number, mut shift) = (0, 0);
    loop {
        let byte = bytes[at];
        number |= u32::from(byte & 0x7f).wrapping_shl(shift);
        (at, shift) = (at + 1, shift + 7);
        if byte < 0x80 {
            return (number, at);
        }
    }
}

/// A packed split's value, and where what follows it begins.
#[inline]
fn value(nodes: &[u8], at: usize) -> (f64, usize) {
    let (packed, next) = groups(nodes, at);
    if packed != 0 {
        return (from_few_digits(packed), next);
    }
    let mut wide = [0; 8];
    wide.copy_from_slice(&nodes[next..next + 8]);
    (f64::from_le_bytes(wide), next + 8)
}

impl PackedTree {
    /// `None` of what is damaged at its beginning.
    fn new(bytes: &'static [u8]) -> Option<Self> {
        let (engines, begin) = bytes.first().map(|_| groups(bytes, 0))?;
        let (engines, nodes) = bytes.get(begin..)?.split_at_checked(2 * engines as usize)?;
        Some(Self { engines, nodes })
    }

    /// The node that begins at a byte, and where the next one does; other branches are where they begin.
    fn node(&self, at: usize) -> (Node, usize) {
        let head = self.nodes[at];
        if head & SPLIT == 0 {
            let (place, next) = match head.checked_sub(FAR) {
                None => (usize::from(head), at + 1),
                Some(high) => (usize::from(FAR) + (usize::from(high) << 8) + usize::from(self.nodes[at + 1]), at + 2),
            };
            return (Node::Engine(u16::from_le_bytes([self.engines[2 * place], self.engines[2 * place + 1]])), next);
        }
        let (length, at) = match head & LONG {
            0 => (0, at + 1),
            _ => groups(self.nodes, at + 1),
        };
        let (value, next) = value(self.nodes, at);
        let other = if length == 0 { 0 } else { next as u32 + length };
        (Node::Split { size: head & !(SPLIT | LONG), at: value, other }, next)
    }

    /// As [`Tree::leaf`]: of no node more is read than decides.
    fn leaf(&self, values: &[f64]) -> u16 {
        let mut at = 0;
        loop {
            let head = self.nodes[at];
            if head & SPLIT == 0 {
                return match self.node(at).0 {
                    Node::Engine(engine) => engine,
                    Node::Split { .. } => 0,
                };
            }
            let (length, begin) = if head & LONG == 0 { (0, at + 1) } else { groups(self.nodes, at + 1) };
            let (value, next) = value(self.nodes, begin);
            at = match (values[usize::from(head & !(SPLIT | LONG))] <= value, length) {
                (true, _) => next,
                (false, 0) => self.behind(next),
                (false, length) => next + length as usize,
            };
        }
    }

    /// Where what follows a short branch begins.
    fn behind(&self, mut at: usize) -> usize {
        let mut open = 1;
        while open > 0 {
            let head = self.nodes[at];
            if head & SPLIT == 0 {
                at += 1 + usize::from(head >= FAR);
                open -= 1;
            } else {
                // Within a short branch all are.
                at = value(self.nodes, at + 1).1;
                open += 1;
            }
        }
        at
    }

    /// The nodes, other branches as positions among them.
    fn unpacked(&self) -> Vec<Node> {
        let mut nodes = Vec::new();
        let mut waiting: Vec<usize> = Vec::new();
        let mut at = 0;
        while at < self.nodes.len() {
            let (node, next) = self.node(at);
            match node {
                Node::Split { .. } => waiting.push(nodes.len()),
                Node::Engine(_) => {
                    let begins = nodes.len() as u32 + 1;
                    if let Some(Node::Split { other, .. }) = waiting.pop().and_then(|split| nodes.get_mut(split)) {
                        *other = begins;
                    }
                }
            }
            nodes.push(node);
            at = next;
        }
        nodes
    }
}

impl Choice {
    /// Whether it speaks of convolutions in a phase and precision.
    pub fn is_for(&self, phase: Phase, precision: Precision) -> bool {
        self.phase == phase && self.precisions.contains(&precision)
    }

    /// What the engine that the library is expected to choose takes as scratch memory.
    pub fn workspace(&self, sizes: &ConvSizes) -> Bytes {
        let taken = self.engine(sizes).and_then(|engine| self.workspaces.get(&*workspace_key(engine, sizes)));
        taken.map_or(Bytes::ZERO, |workspace| workspace.of(sizes))
    }

    /// The engine that the library is expected to choose.
    pub fn engine(&self, sizes: &ConvSizes) -> Option<&str> {
        self.engines.get(usize::from(self.tree.leaf(&sizes.values))).map(String::as_str)
    }
}

/// The engine that a library whose choices are these is expected to choose for a convolution.
pub fn foreseen<'c>(choices: &'c [Choice], sizes: &ConvSizes) -> Option<&'c str> {
    choices.iter().find(|c| c.is_for(sizes.phase, sizes.precision))?.engine(sizes)
}

/// The first size's sign in the text of a tree; the others' follow it.
const FIRST_SIGN: u8 = b'A';
/// Splits of a line of the text.
const PER_LINE: usize = 24;

/// The highest count for which something that falls as counts rise is not negative; it is at `small`, and is not at `large`. Mostly it
/// falls in proportion, so that a first guess or two tell.
fn last_small(mut small: u64, mut large: u64, of: impl Fn(u64) -> f64) -> u64 {
    const GUESSES: usize = 4;
    let (mut left, mut over) = (of(small), of(large));
    for step in 0.. {
        let width = large - small;
        if width <= 1 {
            break;
        }
        let part = if step < GUESSES { left / (left - over) } else { 0.5 };
        let middle = small + ((width as f64 * part) as u64).clamp(1, width - 1);
        let found = of(middle);
        if found >= 0.0 { (small, left) = (middle, found) } else { (large, over) = (middle, found) }
    }
    small
}

impl Tree {
    /// From nodes in the order of descent.
    ///
    /// # Errors
    /// In words, when they make no tree, or an engine is not among so many.
    pub fn new(nodes: Vec<Node>, engines: usize) -> Result<Self, String> {
        // Subtrees end where the branch beside them begins.
        let mut open: Vec<usize> = Vec::new();
        for (i, node) in nodes.iter().enumerate() {
            match *node {
                Node::Split { size, at, other } => {
                    let name = NAMES.get(usize::from(size));
                    let Some(name) = name.filter(|_| at.is_finite()) else {
                        return Err(format!("node {i} of the tree splits by nothing"));
                    };
                    // Sizes are counts: none is smaller than 0.
                    if at < 0.0 {
                        return Err(format!("node {i} of the tree splits at {at} by {name}, which is never so small"));
                    }
                    open.push(other as usize);
                }
                Node::Engine(engine) if usize::from(engine) >= engines => {
                    return Err(format!("node {i} of the tree names engine {engine} of {engines}"));
                }
                Node::Engine(_) => match open.pop() {
                    Some(next) if next == i + 1 => {}
                    None if i + 1 == nodes.len() => return Ok(Self(Form::Nodes(nodes))),
                    _ => return Err(format!("the tree goes on, or its branches do not meet, at node {i}")),
                },
            }
        }
        Err("the tree is cut".to_string())
    }

    /// A tree of a shipped file.
    ///
    /// # Errors
    /// In words, when it is damaged at its beginning.
    pub(crate) fn packed(bytes: &'static [u8]) -> Result<Self, String> {
        let packed = PackedTree::new(bytes).ok_or_else(|| "the tree is damaged".to_string())?;
        Ok(Self(Form::Packed(packed)))
    }

    /// The nodes, in the order of descent.
    pub fn nodes(&self) -> Cow<'_, [Node]> {
        match &self.0 {
            Form::Nodes(nodes) => nodes.into(),
            Form::Packed(packed) => packed.unpacked().into(),
        }
    }

    /// The node at a place, and the place of the one that follows it.
    fn node(&self, at: usize) -> (Node, usize) {
        match &self.0 {
            Form::Nodes(nodes) => (nodes[at], at + 1),
            Form::Packed(packed) => packed.node(at),
        }
    }

    /// Where the other branch of a split begins, whose first one does at `next`.
    fn other(&self, said: u32, next: usize) -> usize {
        match &self.0 {
            Form::Packed(packed) if said == 0 => packed.behind(next),
            _ => said as usize,
        }
    }

    /// Where sizes that none fall as a count rises lead for counts from one to another: up to which count to which engine, in
    /// rising order. `value`: a size, by its place in [`NAMES`], at a count.
    pub(crate) fn ranges(&self, (least, most): (u64, u64), value: impl Fn(usize, u64) -> f64) -> Vec<(u64, u16)> {
        let mut list: Vec<(u64, u16)> = Vec::new();
        // Branches that counts from one to another lead to, those of small counts on top.
        let mut waiting = vec![(0, least, most)];
        while let Some((mut at, low, mut high)) = waiting.pop() {
            loop {
                match self.node(at) {
                    (Node::Engine(engine), _) => {
                        match list.last_mut() {
                            Some(before) if before.1 == engine => before.0 = high,
                            _ => list.push((high, engine)),
                        }
                        break;
                    }
                    (Node::Split { size, at: most, other }, next) => {
                        let left = |count| most - value(usize::from(size), count);
                        at = if left(high) >= 0.0 {
                            next
                        } else if left(low) < 0.0 {
                            self.other(other, next)
                        } else {
                            let split = last_small(low, high, left);
                            waiting.push((self.other(other, next), split + 1, high));
                            high = split;
                            next
                        };
                    }
                }
            }
        }
        list
    }

    /// Where sizes, in the order of [`NAMES`], lead.
    pub(crate) fn leaf(&self, values: &[f64]) -> u16 {
        let nodes = match &self.0 {
            Form::Nodes(nodes) => nodes,
            Form::Packed(packed) => return packed.leaf(values),
        };
        let mut i = 0;
        loop {
            match nodes[i] {
                Node::Split { size, at, other } => {
                    i = if values[usize::from(size)] <= at { i + 1 } else { other as usize };
                }
                Node::Engine(engine) => return engine,
            }
        }
    }

    /// As text: a split is a sign for its size with the largest value of the branch that follows, an engine its number.
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        for (i, node) in self.nodes().iter().enumerate() {
            if i > 0 {
                text.push(if i % PER_LINE == 0 { '\n' } else { ' ' });
            }
            let _ = match *node {
                Node::Split { size, at, .. } => write!(text, "{}{at}", char::from(FIRST_SIGN + size)),
                Node::Engine(engine) => write!(text, "{engine}"),
            };
        }
        text
    }

    /// From [`Self::to_text`].
    ///
    /// # Errors
    /// In words, when the text is none.
    pub fn from_text(text: &str, engines: usize) -> Result<Self, String> {
        let mut nodes: Vec<Node> = Vec::new();
        // Splits whose other branch has not begun.
        let mut waiting: Vec<usize> = Vec::new();
        for word in text.split_ascii_whitespace() {
            if nodes.len() == MOST_NODES {
                return Err(format!("the tree has more than {MOST_NODES} nodes"));
            }
            let wrong = || format!("the tree has no node \"{}\"", crate::base::text::shown(word));
            let sign = word.as_bytes()[0];
            if sign.is_ascii_digit() {
                nodes.push(Node::Engine(word.parse().map_err(|_| wrong())?));
                let next = u32::try_from(nodes.len()).map_err(|_| wrong())?;
                if let Some(Node::Split { other, .. }) = waiting.pop().and_then(|split| nodes.get_mut(split)) {
                    *other = next;
                }
            } else {
                let size = sign.checked_sub(FIRST_SIGN).filter(|s| usize::from(*s) < NAMES.len()).ok_or_else(wrong)?;
                let at = word.get(1..).and_then(|number| number.parse().ok()).ok_or_else(wrong)?;
                waiting.push(nodes.len());
                nodes.push(Node::Split { size, at, other: 0 });
            }
        }
        Self::new(nodes, engines)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::precision::Mode;
    use crate::base::shape::Shape;
    use crate::kernel::work::Work;
    use crate::net::case::LayerCase;
    use crate::net::layer::{Conv2d, Groups, Layer, Pair};

    /// Batches to 4, then channels to 64; else more of either.
    fn tree() -> Tree {
        let split = |size, at, other| Node::Split { size, at, other };
        let nodes = vec![split(0, 4.0, 4), split(1, 64.0, 3), Node::Engine(0), Node::Engine(1), Node::Engine(2)];
        Tree::new(nodes, 3).expect("a tree")
    }

    fn sizes(batch: u64, channels: u64) -> ConvSizes {
        let layer = Layer::Conv2d(Conv2d {
            channels: 32,
            kernel: Pair::square(3),
            stride: Pair::square(1),
            padding: Pair::square(1),
            dilation: Pair::square(1),
            groups: Groups::Count(1),
            bias: false,
        });
        let case = LayerCase { inputs: vec![Shape::map(channels, 14, 14).expect("a shape")], layer };
        let work = Work::usual(case, Phase::Forward, batch, Precision::Fp32, Mode::Inference).expect("fits");
        ConvSizes::of(&work).expect("a convolution")
    }

    #[test]
    fn branches_of_small_values_follow_their_split() {
        let choice = Choice {
            workspaces: [("c", [1.0, 0.5, 0.0, 0.0]), ("c_odd", [2.0, 0.0, 0.0, 0.0])]
                .map(|(key, multiples)| (key.to_string(), Workspace::new(multiples)))
                .into(),
            phase: Phase::Forward,
            precisions: vec![Precision::Fp32],
            engines: ["a", "b", "c"].map(String::from).to_vec(),
            asked: 3,
            right: 1.0,
            tree: tree(),
        };
        let engine = |batch, channels| choice.engine(&sizes(batch, channels));
        assert_eq!([engine(4, 64), engine(4, 65), engine(5, 64)], [Some("a"), Some("b"), Some("c")]);
        // All of the 5 inputs of 64 channels, half of the results of 32, over 14 x 14 places of four bytes.
        let bytes = |batch| choice.workspace(&sizes(batch, 64)).get();
        assert_eq!((bytes(4), bytes(5)), (0, 4 * 5 * (64 + 16) * 196));
        assert_eq!(choice.workspace(&sizes(5, 63)).get(), 4 * 5 * 2 * 63 * 196, "channels by themselves");
        // 16 x 9 frequencies of two numbers: 5 x 64 planes of inputs, 5 x 32 of results, twice 64 x 32 of weights.
        let fourier = Workspace::new([0.0, 0.0, 0.0, 1.0]).of(&sizes(5, 64));
        assert_eq!(fourier.get(), 4 * 2 * 144 * (5 * 64 + 5 * 32 + 2 * 64 * 32));
    }

    #[test]
    fn ranges_of_batches_lead_where_each_batch_does() {
        let split = |size, at, other| Node::Split { size, at, other };
        // Batches, then rows of 196 each, then batches again.
        let nodes = vec![
            split(0, 4.0, 4),
            split(16, 200.0, 3),
            Node::Engine(0),
            Node::Engine(1),
            split(16, 3000.0, 6),
            Node::Engine(1),
            split(0, 90.0, 8),
            Node::Engine(2),
            Node::Engine(0),
        ];
        let tree = Tree::new(nodes, 3).expect("a tree");
        let one = sizes(1, 64);
        let ranges = tree.ranges((1, 1000), |size, batch| one.of_samples(size, batch));
        assert_eq!(ranges, [(1, 0), (15, 1), (90, 2), (1000, 0)]);
        for batch in 1..=1000 {
            let range = ranges.iter().find(|(most, _)| batch <= *most).expect("covered");
            assert_eq!(range.1, tree.leaf(&sizes(batch, 64).values), "{batch}");
        }
    }

    #[test]
    fn a_tree_reads_back_what_was_written() {
        assert_eq!(tree().to_text(), "A4 B64 0 1 2");
        assert_eq!(Tree::from_text(&tree().to_text(), 3), Ok(tree()));
    }

    #[test]
    fn what_is_no_tree_says_why() {
        for (text, why) in [
            ("", "cut"),
            ("A4 B64 0 1", "cut"),
            ("A4 0 1 2", "do not meet"),
            ("A4 0 3", "engine 3 of 3"),
            ("A4 0 -1", "\"-1\""),
            ("~4 0 1", "\"~4\""),
            ("Ax 0 1", "\"Ax\""),
            ("Ainf 0 1", "by nothing"),
        ] {
            let error = Tree::from_text(text, 3).expect_err(text);
            assert!(error.contains(why), "{text}: {error}");
        }
    }

    #[test]
    fn sizes_are_those_of_the_implicit_product() {
        let sizes = sizes(2, 64);
        let found = ["rows", "depth", "products", "tiles_64", "aligned_inputs"].map(|name| sizes.named(name));
        assert_eq!(found, [392.0, 576.0, 392.0 * 576.0 * 32.0, 4.0, 64.0].map(Some));
    }
}
