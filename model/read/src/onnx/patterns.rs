//! What several operators say and a framework runs as one kernel.
//!
//! Each line of [`PATTERNS`] names an operator and the expression that means it. In an expression, `x` is any tensor
//! (the same one wherever the name occurs), `$w` a constant tensor, `_` a constant of one element, a number a constant
//! of about that value, `a | b` either. Operands of `Add` and `Mul` match in both orders; dropout, and what only guards
//! against rows without numbers, is looked through.
//! Lines are tried from the first to the last, so larger expressions come before their parts.

use super::graph::{Graph, Id, Kind, Op};
use super::wire::metadata;
use std::collections::{HashMap, HashSet};

const PATTERNS: &[(&str, &str)] = &[
    // Normalizations, as exporters before operator set 17 write them.
    (
        "LayerNormalization(x, w, b)",
        "Add(Mul(Div(Sub(x, ReduceMean(x)), \
         Sqrt(Add(ReduceMean(Pow(Sub(x, ReduceMean(x)), 2) | Mul(Sub(x, ReduceMean(x)), Sub(x, ReduceMean(x)))), _))), $w), $b)",
    ),
    (
        "LayerNormalization(x)",
        "Div(Sub(x, ReduceMean(x)), \
         Sqrt(Add(ReduceMean(Pow(Sub(x, ReduceMean(x)), 2) | Mul(Sub(x, ReduceMean(x)), Sub(x, ReduceMean(x)))), _)))",
    ),
    // One kernel of PyTorch's. An unbiased variance is multiplied by the number of values and divided by one less.
    ("Variance(x)", "Div(Mul(ReduceMean(Mul(Sub(x, ReduceMean(x)), Sub(x, ReduceMean(x)))), _), _)"),
    ("Variance(x)", "ReduceMean(Mul(Sub(x, ReduceMean(x)), Sub(x, ReduceMean(x))))"),
    ("Rsqrt(x)", "Reciprocal(Sqrt(x))"),
    ("Rsqrt(x)", "Div(1, Sqrt(x))"),
    // With the factors first it is a module's own code, as all of transformers' are, one operation after the other.
    ("WrittenRMSNormalization(x, w)", "Mul.($w, Mul(x, Rsqrt(Add(ReduceMean(Pow(x, 2) | Mul(x, x)), _))))"),
    // As a function where some numbers have 16 bits: in 32, and back.
    (
        "RMSNormalization(x, w)",
        "Cast(Mul.(Mul(Cast(x), Rsqrt(Add(ReduceMean(Pow(Cast(x), 2) | Mul(Cast(x), Cast(x))), _))), $w))",
    ),
    (
        "RMSNormalization(x, w)",
        "Mul(Mul(x, Rsqrt(Add(ReduceMean(Pow(x, 2) | Mul(x, x)), _))) \
         | Div(x, Sqrt(Add(ReduceMean(Pow(x, 2) | Mul(x, x)), _))), $w)",
    ),
    // A group normalization by the one of instances: as many ones as there are groups, then a factor and a shift per channel.
    ("GroupNorm(x, w, b, g)", "Add(Mul(Reshape(InstanceNormalization(Reshape(x, s), $g, $c), t), $w), $b)"),
    ("GroupNorm(x, w, b)", "Add(Mul(Reshape(InstanceNormalization(Reshape(x, s), _, _), t), $w), $b)"),
    // Without a bias, in whose place a zero is exported.
    ("GroupNorm(x, w, w, g)", "Add(Mul(Reshape(InstanceNormalization(Reshape(x, s), $g, $c), t), $w), _)"),
    ("GroupNorm(x, w)", "Add(Mul(Reshape(InstanceNormalization(Reshape(x, s), _, _), t), $w), _)"),
    // Windows side by side: nn.Unfold.
    ("Im2Col(x, r, c)", "Reshape(Transpose(Gather(Gather(Pad(x) | x, $r), $c)))"),
    // Activations.
    ("Gelu(x)", "Mul(Mul(x, Add(Erf(Div(x, 1.41421) | Mul(x, 0.70711)), 1)), 0.5)"),
    // Halved first it is the function as torch.export decomposes it; with a division (ESM's own formula) it is written out.
    ("Gelu(x)", "Mul(Mul(x, 0.5), Add(Erf(Mul(x, 0.70711)), 1))"),
    ("Gelu(x)", "Mul(x, Mul(Add(Erf(Div(x, 1.41421) | Mul(x, 0.70711)), 1), 0.5))"),
    // With a power in this place it is written out, one operation after the other: as a function of PyTorch's it is exported
    // with products, or halved last.
    ("GeluTanh(x)", "Mul(Mul(x, 0.5), Add(Tanh(Mul(Add(x, Mul(Mul(Mul(x, x), x), 0.044715)), 0.79788)), 1))"),
    (
        "GeluTanh(x)",
        "Mul(x, Mul(Add(Tanh(Mul(Add(x, Mul(Pow(x, 3) | Mul(Mul(x, x), x), 0.044715)), 0.79788)), 1), 0.5))",
    ),
    ("GeluTanh(x)", "Mul(Mul(x, 0.5), Add(Tanh(Mul(Mul(x, 0.79788), Add(Mul(Mul(x, 0.044715), x), 1))), 1))"),
    ("Silu(x)", "Mul(x, Sigmoid(x))"),
    ("HardSwish(x)", "Mul(x, HardSigmoid(x))"),
    ("HardSwish(x)", "Mul(x, Div(Clip(Add(x, 3)), 6) | Mul(Clip(Add(x, 3)), 0.166667))"),
    ("HardSwish(x)", "Div(Mul(x, Clip(Add(x, 3))), 6)"),
    ("HardSigmoid(x)", "Div(Clip(Add(x, 3)), 6)"),
    ("Mish(x)", "Mul(x, Tanh(Softplus(x)))"),
    // Rotary position embedding: pairs of features turned by an angle.
    ("RotaryEmbedding(x)", "Add(Mul(x, c), Mul(Concat(Neg(Slice(x)), Slice(x)), s))"),
    ("RotaryEmbedding(x)", "Add(Mul(x, c), Mul(Concat(Neg(Split(x)), Split(x)), s))"),
    // Rows of a softmax that are all masked, set to zero: looked through, and no kernel.
    ("Guarded(s)", "Where(IsNaN(s), _, s)"),
    // Scaled dot-product attention; the keys come transposed. PyTorch's own function scales queries and keys by the root.
    (
        "Attention(q, k, v, m)",
        "MatMul(Softmax(Add(MatMul(Mul(q, _), Mul(k, _)), m) | MatMul(Mul(q, _), Mul(k, _))), v)",
    ),
    // Written out: scaled before the product or after it.
    (
        "UnfusedAttention(q, k, v)",
        "MatMul(Softmax(Add(Mul(MatMul(q, k), _) | Div(MatMul(q, k), _) \
         | MatMul(Mul(q, _) | Div(q, _) | q, Mul(k, _) | Div(k, _) | k), m)), v)",
    ),
    (
        "UnfusedAttention(q, k, v)",
        "MatMul(Softmax(Where(m, Mul(MatMul(q, k), _) | Div(MatMul(q, k), _) | MatMul(q, k), f)), v)",
    ),
    (
        "UnfusedAttention(q, k, v)",
        "MatMul(Softmax(Mul(MatMul(q, k), _) | Div(MatMul(q, k), _) \
         | MatMul(Mul(q, _) | Div(q, _) | q, Mul(k, _) | Div(k, _) | k)), v)",
    ),
    // `torch.addcmul`: one kernel.
    ("Scale(x, w, b)", "Add($b, Mul(Mul($w, x), 1))"),
    // One factor and one shift per channel, as Caffe and inference engines run them.
    ("Scale(x, w, b)", "Add(Mul(x, $w), $b)"),
    // A product and its bias.
    ("Linear(x, w, b)", "Add(MatMul(x, $w), $b)"),
];

/// Behind the name of an operator whose operands stand in the order of the file.
const ORDERED: char = '.';

/// An expression of a pattern.
#[derive(Clone, Debug, PartialEq)]
enum Expression {
    Operator(String, Vec<Expression>),
    Either(Vec<Expression>),
    Tensor(String),
    Constant(String),
    Scalar,
    Number(f64),
}
use Expression::{Constant, Either, Number, Operator, Scalar, Tensor};

/// Reads an expression; returns what follows it.
fn parse(text: &str) -> Option<(Expression, &str)> {
    let (first, mut rest) = parse_one(text)?;
    let mut options = vec![first];
    while let Some(more) = rest.trim_start().strip_prefix('|') {
        let (next, after) = parse_one(more)?;
        options.push(next);
        rest = after;
    }
    let single = if options.len() == 1 { options.pop()? } else { Either(options) };
    Some((single, rest))
}

fn parse_one(text: &str) -> Option<(Expression, &str)> {
    let text = text.trim_start();
    let end = text.find(|c: char| !(c.is_alphanumeric() || "._$-".contains(c))).unwrap_or(text.len());
    let (word, rest) = text.split_at(end);
    if let Some(mut rest) = rest.strip_prefix('(') {
        let mut operands = Vec::new();
        loop {
            let (operand, after) = parse(rest)?;
            operands.push(operand);
            let after = after.trim_start();
            match after.strip_prefix(',') {
                Some(next) => rest = next,
                None => return Some((Operator(word.to_string(), operands), after.strip_prefix(')')?)),
            }
        }
    }
    let leaf = match word {
        "" => return None,
        "_" => Scalar,
        _ => match (word.strip_prefix('$'), word.parse()) {
            (Some(name), _) => Constant(name.to_string()),
            (None, Ok(number)) => Number(number),
            (None, Err(_)) => Tensor(word.to_string()),
        },
    };
    Some((leaf, rest))
}

/// Replaces what the patterns match.
pub fn fuse(graph: &mut Graph<'_>) {
    let mut present: HashSet<String> = graph.ops.iter().map(|op| op.op.clone()).collect();
    for (meaning, pattern) in PATTERNS {
        let (Some((Operator(name, operands), _)), Some((pattern, _))) = (parse(meaning), parse(pattern)) else {
            continue;
        };
        if matches!(&pattern, Operator(root, _) if present.contains(root.trim_end_matches(ORDERED)))
            && fuse_one(graph, &name, &operands, &pattern)
        {
            present.insert(name);
        }
    }
    leave_out_expansions(graph);
}

/// Element-wise operators repeat an operand themselves: what only expands one for them runs nothing.
fn leave_out_expansions(graph: &mut Graph<'_>) {
    const SPREAD: &[&str] = &["Add", "Sub", "Mul", "Div", "Pow", "Min", "Max", "Where"];
    let site = Site::new(graph);
    let dims = |id: Id| &graph.values[id].tensor.dims;
    let spreads = |reader: &usize, made: Id| {
        let op = &graph.ops[*reader];
        let whole = |id: &Id| *id != made && op.outputs.first().is_some_and(|&result| dims(*id) == dims(result));
        SPREAD.contains(&&op.op[..]) && op.inputs.iter().flatten().any(whole)
    };
    let bare: HashMap<Id, Id> = graph
        .ops
        .iter()
        .filter(|op| op.op == "Expand")
        .filter_map(|op| {
            let (from, made) = (op.inputs.first().copied().flatten()?, *op.outputs.first()?);
            let all = site.readers.get(&made)?.iter().all(|reader| spreads(reader, made));
            (all && !graph.outputs.contains(&made)).then_some((made, from))
        })
        .collect();
    graph.ops.retain(|op| op.outputs.first().is_none_or(|made| !bare.contains_key(made)));
    for id in graph.ops.iter_mut().flat_map(|op| op.inputs.iter_mut().flatten()) {
        *id = bare.get(id).copied().unwrap_or(*id);
    }
}

/// Replaces what one pattern matches; whether anything did.
fn fuse_one(graph: &mut Graph<'_>, name: &str, operands: &[Expression], pattern: &Expression) -> bool {
    let Operator(root, _) = pattern else { return false };
    let mut gone: HashSet<usize> = HashSet::new();
    let mut found: Vec<(usize, Vec<Option<Id>>)> = Vec::new();
    let site = Site::new(graph);
    for position in (0..graph.ops.len()).filter(|&i| graph.ops[i].op == *root.trim_end_matches(ORDERED)) {
        let mut attempt = Attempt { site: &site, bound: HashMap::new(), used: vec![] };
        if gone.contains(&position) || !attempt.operator(pattern, position) {
            continue;
        }
        attempt.used.sort_unstable();
        attempt.used.dedup();
        let inner: Vec<usize> = attempt.used.iter().copied().filter(|&i| i != position).collect();
        let inside = |op: &usize| *op == position || inner.contains(op);
        let private = inner.iter().flat_map(|&i| &graph.ops[i].outputs).all(|id| {
            !graph.outputs.contains(id) && site.readers.get(id).is_none_or(|readers| readers.iter().all(inside))
        });
        let free = inner.iter().all(|i| !gone.contains(i));
        if !private || !free || !fits(graph, name, &attempt.bound) {
            continue;
        }
        let inputs = operands.iter().map(|operand| match operand {
            Tensor(name) => attempt.bound.get(&name[..]).copied(),
            _ => None,
        });
        found.push((position, inputs.collect()));
        gone.extend(inner);
    }
    if found.is_empty() {
        return false;
    }
    for (position, inputs) in found {
        let root = &graph.ops[position];
        let (node, outputs) = (root.node, root.outputs.clone());
        // What its exporter says where the form leaves it open.
        let said = |word: &str| node.said(metadata::SCOPES).is_some_and(|scopes| scopes.contains(word));
        let name = match name {
            // A scale of one leaves no factors to tell PyTorch's function by.
            "UnfusedAttention" if said("scaled_dot_product_attention") => "Attention",
            // A module's own code converts back to the type of what it got, with the factors in 32 bits, as Gemma's does.
            "RMSNormalization" if said("type_as") => "WideRMSNormalization",
            _ => name,
        };
        graph.ops[position] = Op { op: name.to_string(), node, inputs, outputs };
    }
    let mut position = 0;
    graph.ops.retain(|_| {
        position += 1;
        !gone.contains(&(position - 1))
    });
    true
}

/// What the shapes must be for the meaning to hold.
fn fits(graph: &Graph<'_>, name: &str, bound: &HashMap<&str, Id>) -> bool {
    let value = |name: &str| bound.get(name).map(|&id| &graph.values[id]);
    let dims = |name: &str| value(name).map_or(&[][..], |v| &v.tensor.dims[..]);
    match name {
        "Linear" => dims("w").len() == 2 && dims("b").len() == 1 && dims("w").last() == dims("b").last(),
        "GroupNorm" => {
            let channels = dims("x").get(1).copied().unwrap_or(0);
            let per_channel = |name: &str| dims(name).iter().product::<i64>() == channels;
            let learned = |name: &str| value(name).is_some_and(|v| !v.learned.is_empty());
            let bias = value("b").is_none() || per_channel("b") && learned("b");
            per_channel("w") && learned("w") && bias
        }
        // PyTorch's own function hands any bias to its kernel. Written out, a learned one, which differs from head to head as a
        // mask does not, is added by a kernel of its own.
        "Attention" | "UnfusedAttention" => {
            let of_all_heads = |dims: &[i64]| dims.len() < 3 || dims[dims.len() - 3] == 1;
            let masks = ["m", "f"].into_iter().filter_map(value);
            let computed = ["q", "k", "v"].into_iter().filter_map(value).all(|x| x.kind == Kind::Activation);
            computed
                && masks.into_iter().all(|m| {
                    m.kind != Kind::Activation
                        && (name == "Attention" || m.learned.is_empty() || of_all_heads(&m.tensor.dims))
                })
        }
        "RotaryEmbedding" => ["c", "s"].into_iter().filter_map(value).all(|v| v.kind != Kind::Activation),
        "Scale" => {
            let wide: Vec<i64> = dims("w").iter().copied().filter(|d| *d != 1).collect();
            let learned = |name: &str| value(name).is_some_and(|v| !v.learned.is_empty());
            dims("w") == dims("b") && wide.len() == 1 && learned("w") && learned("b")
        }
        _ => true,
    }
}

/// Who makes and who reads a tensor.
struct Site<'g, 'a> {
    graph: &'g Graph<'a>,
    maker: HashMap<Id, usize>,
    readers: HashMap<Id, Vec<usize>>,
}

impl<'g, 'a> Site<'g, 'a> {
    fn new(graph: &'g Graph<'a>) -> Self {
        let (mut maker, mut readers) = (HashMap::new(), HashMap::<Id, Vec<usize>>::new());
        for (position, op) in graph.ops.iter().enumerate() {
            maker.extend(op.outputs.iter().map(|&id| (id, position)));
            op.inputs.iter().flatten().for_each(|&id| readers.entry(id).or_default().push(position));
        }
        Self { graph, maker, readers }
    }
}

/// A pattern laid over the graph, as far as it fits.
struct Attempt<'s, 'g, 'a, 'p> {
    site: &'s Site<'g, 'a>,
    bound: HashMap<&'p str, Id>,
    used: Vec<usize>,
}

impl<'p> Attempt<'_, '_, '_, 'p> {
    fn tensor(&mut self, pattern: &'p Expression, id: Id) -> bool {
        let value = &self.site.graph.values[id];
        match pattern {
            Tensor(name) => *self.bound.entry(name).or_insert(id) == id,
            Constant(name) => {
                value.kind == Kind::Constant
                    && value.tensor.elements() > 1
                    && *self.bound.entry(name).or_insert(id) == id
            }
            Scalar => value.kind == Kind::Constant && value.tensor.elements() == 1,
            Number(number) => value.tensor.scalar().is_some_and(|v| (v - number).abs() <= 2e-3 * number.abs()),
            Either(options) => options.iter().any(|option| self.either_or_nothing(|a| a.tensor(option, id))),
            Operator(..) => self.site.maker.get(&id).is_some_and(|&maker| self.operator(pattern, maker)),
        }
    }

    fn operator(&mut self, pattern: &'p Expression, position: usize) -> bool {
        let Operator(name, operands) = pattern else { return false };
        let op = &self.site.graph.ops[position];
        let ordered = name.strip_suffix(ORDERED);
        let name = ordered.unwrap_or(name);
        if op.op != *name {
            let through = match (&op.op[..], op.inputs.first()) {
                ("Dropout" | "Guarded", Some(Some(id))) => self.site.maker.get(id).copied(),
                _ => None,
            };
            return through.is_some_and(|maker| {
                self.used.push(position);
                self.operator(pattern, maker)
            });
        }
        let both = ordered.is_none() && matches!(name, "Add" | "Mul");
        let inputs: Vec<Option<Id>> = op.inputs.clone();
        let straight = |a: &mut Self, order: &[Option<Id>]| {
            a.used.push(position);
            order.len() >= operands.len()
                && operands.iter().zip(order).all(|(operand, id)| id.is_some_and(|id| a.tensor(operand, id)))
        };
        if self.either_or_nothing(|a| straight(a, &inputs)) {
            return true;
        }
        let reversed: Vec<Option<Id>> = inputs.into_iter().rev().collect();
        both && self.either_or_nothing(|a| straight(a, &reversed))
    }

    /// Undoes what was bound where the rest does not fit.
    fn either_or_nothing(&mut self, fits: impl FnOnce(&mut Self) -> bool) -> bool {
        let (bound, used) = (self.bound.clone(), self.used.len());
        let fits = fits(self);
        if !fits {
            self.bound = bound;
            self.used.truncate(used);
        }
        fits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pattern_reads_to_its_end_and_binds_what_its_meaning_names() {
        fn names(expression: &Expression, found: &mut Vec<String>) {
            match expression {
                Operator(_, inner) | Either(inner) => inner.iter().for_each(|e| names(e, found)),
                Tensor(name) | Constant(name) => found.push(name.clone()),
                Scalar | Number(_) => {}
            }
        }
        for (meaning, pattern) in PATTERNS {
            let (expression, rest) = parse(pattern).expect(pattern);
            assert_eq!(rest, "", "{pattern}");
            assert!(matches!(expression, Operator(..)), "{pattern}");
            let (mut bound, mut wanted) = (vec![], vec![]);
            names(&expression, &mut bound);
            let (meaning, rest) = parse(meaning).expect(meaning);
            assert_eq!(rest, "");
            names(&meaning, &mut wanted);
            assert!(wanted.iter().all(|name| bound.contains(name)), "{pattern}");
        }
    }
}
