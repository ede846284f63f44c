//! Sources in which every drawn mutant stands behind a switch: `a + b` becomes
//! `(if !MUTANT(7) { a + b } else { a - b })`.

use anyhow::{Context, Result};
use proc_macro2::LineColumn;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::ops::Range;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

/// A change that cargo-mutants would make.
#[derive(Clone, Debug)]
pub struct Mutant {
    /// Its number in this run.
    pub id: usize,
    /// The file, from the repository's root.
    pub file: String,
    /// Line and column where it begins, both from 1.
    pub place: (usize, usize),
    /// Operator, value of a function, arm or guard.
    pub genre: String,
    /// What stands there instead.
    pub replacement: String,
    /// In cargo-mutants' words.
    pub what: String,
}

impl Mutant {
    /// What tells it from others, as the results begin with.
    pub fn key(&self) -> String {
        format!("{},{},{},\"{}\"", self.file, self.place.0, self.place.1, self.what.replace('"', "'"))
    }
}

/// The mutants of a package in the JSON list of cargo-mutants.
pub fn listed(text: &str, package: &str) -> Result<Vec<Mutant>> {
    let list: Vec<Value> =
        serde_json::from_str(text).context("the list is no JSON of `cargo mutants --list --json`")?;
    let mutant = |v: &Value| {
        let text = |key: &str| v.get(key).and_then(Value::as_str).map(str::to_string);
        let number = |key: &str| v.pointer(&format!("/span/start/{key}")).and_then(Value::as_u64).map(|n| n as usize);
        (text("package")? == package).then_some(())?;
        let name = text("name")?;
        let what = name.splitn(4, ':').nth(3).unwrap_or(&name).trim().to_string();
        let place = (number("line")?, number("column")?);
        Some(Mutant {
            id: 0,
            file: text("file")?,
            place,
            genre: text("genre")?,
            replacement: text("replacement")?,
            what,
        })
    };
    Ok(list.iter().filter_map(mutant).collect())
}

/// A piece of a source in which something can be switched.
enum Piece {
    /// Left operand, operator, right operand.
    Binary(Range<usize>, Range<usize>, Range<usize>),
    /// What follows an operator.
    Unary(Range<usize>),
    /// The inside of a function.
    Body,
    /// End of an arm's pattern, and its guard.
    Arm(usize, Option<Range<usize>>),
    /// An arm's guard.
    Guard,
}

struct Pieces {
    /// By genre and the place that cargo-mutants names.
    found: BTreeMap<(&'static str, usize, usize), (Range<usize>, Piece)>,
    constant: usize,
}

fn at(place: LineColumn) -> (usize, usize) {
    (place.line, place.column + 1)
}

impl Pieces {
    fn add(&mut self, genre: &'static str, place: LineColumn, range: Range<usize>, piece: Piece) {
        if self.constant == 0 {
            let (line, column) = at(place);
            self.found.insert((genre, line, column), (range, piece));
        }
    }

    fn function(&mut self, constant: bool, block: &syn::Block, inner: impl FnOnce(&mut Self)) {
        // What runs while compiling cannot ask which mutant is on.
        let outside = std::mem::replace(&mut self.constant, usize::from(constant));
        if let (Some(first), Some(last)) = (block.stmts.first(), block.stmts.last()) {
            let range = first.span().byte_range().start..last.span().byte_range().end;
            self.add("FnValue", first.span().start(), range, Piece::Body);
        }
        inner(self);
        self.constant = outside;
    }
}

impl<'a> Visit<'a> for Pieces {
    fn visit_item_fn(&mut self, f: &'a syn::ItemFn) {
        self.function(f.sig.constness.is_some(), &f.block, |s| visit::visit_item_fn(s, f));
    }

    fn visit_impl_item_fn(&mut self, f: &'a syn::ImplItemFn) {
        self.function(f.sig.constness.is_some(), &f.block, |s| visit::visit_impl_item_fn(s, f));
    }

    fn visit_item_const(&mut self, item: &'a syn::ItemConst) {
        self.constant += 1;
        visit::visit_item_const(self, item);
        self.constant -= 1;
    }

    fn visit_item_static(&mut self, item: &'a syn::ItemStatic) {
        self.constant += 1;
        visit::visit_item_static(self, item);
        self.constant -= 1;
    }

    fn visit_expr_binary(&mut self, e: &'a syn::ExprBinary) {
        let (left, op, right) = (e.left.span().byte_range(), e.op.span().byte_range(), e.right.span().byte_range());
        self.add("BinaryOperator", e.op.span().start(), left.start..right.end, Piece::Binary(left, op, right));
        visit::visit_expr_binary(self, e);
    }

    fn visit_expr_unary(&mut self, e: &'a syn::ExprUnary) {
        let all = e.span().byte_range();
        self.add("UnaryOperator", e.op.span().start(), all, Piece::Unary(e.expr.span().byte_range()));
        visit::visit_expr_unary(self, e);
    }

    fn visit_arm(&mut self, arm: &'a syn::Arm) {
        let pattern = arm.pat.span().byte_range();
        let guard = arm.guard.as_ref().map(|(_, guard)| guard.span());
        let range = pattern.start..guard.map_or(pattern.end, |g| g.byte_range().end);
        self.add("MatchArm", arm.span().start(), range, Piece::Arm(pattern.end, guard.map(|g| g.byte_range())));
        if let Some(guard) = guard {
            self.add("MatchArmGuard", guard.start(), guard.byte_range(), Piece::Guard);
        }
        visit::visit_arm(self, arm);
    }
}

/// A piece with the mutants that change it, and what lies inside of it.
struct Node {
    range: Range<usize>,
    piece: Piece,
    mutants: Vec<Mutant>,
    inside: Vec<Node>,
}

/// The source with all of a file's mutants behind switches, and those that no switch was found for.
pub fn rewrite(source: &str, mutants: &[Mutant]) -> Result<(String, Vec<usize>)> {
    let mut pieces = Pieces { found: BTreeMap::new(), constant: 0 };
    pieces.visit_file(&syn::parse_file(source)?);
    let mut nodes: BTreeMap<(usize, std::cmp::Reverse<usize>, &'static str), Node> = BTreeMap::new();
    let mut without = Vec::new();
    for mutant in mutants {
        let genre = ["BinaryOperator", "UnaryOperator", "FnValue", "MatchArmGuard", "MatchArm"]
            .into_iter()
            .find(|g| *g == mutant.genre)
            .unwrap_or("");
        let key = (genre, mutant.place.0, mutant.place.1);
        let Some((range, _)) = pieces.found.get(&key) else {
            without.push(mutant.id);
            continue;
        };
        let order = (range.start, std::cmp::Reverse(range.end), genre);
        if let Some(node) = nodes.get_mut(&order) {
            node.mutants.push(mutant.clone());
        } else if let Some((range, piece)) = pieces.found.get(&key) {
            let piece = match piece {
                Piece::Binary(a, b, c) => Piece::Binary(a.clone(), b.clone(), c.clone()),
                Piece::Unary(a) => Piece::Unary(a.clone()),
                Piece::Arm(a, b) => Piece::Arm(*a, b.clone()),
                Piece::Body => Piece::Body,
                Piece::Guard => Piece::Guard,
            };
            let node = Node { range: range.clone(), piece, mutants: vec![mutant.clone()], inside: Vec::new() };
            nodes.insert(order, node);
        }
    }
    let nodes = nest(nodes.into_values().collect());
    Ok((render(source, 0..source.len(), &nodes), without))
}

/// Nodes in order of their beginnings, outer before inner, into trees.
fn nest(list: Vec<Node>) -> Vec<Node> {
    fn insert(level: &mut Vec<Node>, node: Node) {
        match level.last_mut() {
            Some(last) if last.range.end >= node.range.end => insert(&mut last.inside, node),
            _ => level.push(node),
        }
    }
    let mut roots = Vec::new();
    list.into_iter().for_each(|node| insert(&mut roots, node));
    roots
}

/// A stretch of the source, with switches for the nodes in it.
fn render(source: &str, range: Range<usize>, nodes: &[Node]) -> String {
    let (mut text, mut from) = (String::new(), range.start);
    for node in nodes.iter().filter(|n| n.range.start >= range.start && n.range.end <= range.end) {
        text.push_str(&source[from..node.range.start]);
        switch(source, node, &mut text);
        from = node.range.end;
    }
    text.push_str(&source[from..range.end]);
    text
}

fn asked(mutants: &[Mutant]) -> String {
    let any: Vec<String> = mutants.iter().map(|m| format!("crate::mutant::on({})", m.id)).collect();
    any.join(" || ")
}

/// Marks what a mutant puts in, so that an error of the compiler can be laid at its door.
fn marked(id: usize, text: &str) -> String {
    format!("/*<M{id}*/{text}/*M>*/")
}

fn switch(source: &str, node: &Node, text: &mut String) {
    let inner = |range: &Range<usize>| render(source, range.clone(), &node.inside);
    let plain = inner(&node.range);
    let ids: Vec<String> = node.mutants.iter().map(|m| m.id.to_string()).collect();
    let _ = write!(text, "/*<N{}*/", ids.join(","));
    let alternatives = |make: &dyn Fn(&Mutant) -> String| {
        let mut rest = String::new();
        for (i, m) in node.mutants.iter().enumerate() {
            let made = marked(m.id, &make(m));
            let last = i + 1 == node.mutants.len();
            let _ = if last {
                write!(rest, "{{ {made} }}")
            } else {
                write!(rest, "if crate::mutant::on({}) {{ {made} }} else ", m.id)
            };
        }
        format!("(if !({}) {{ {plain} }} else {rest})", asked(&node.mutants))
    };
    let made = match &node.piece {
        Piece::Binary(left, _, right) => {
            alternatives(&|m| format!("{} {} {}", inner(left), m.replacement, inner(right)))
        }
        Piece::Unary(operand) => alternatives(&|_| inner(operand)),
        Piece::Guard => alternatives(&|m| m.replacement.clone()),
        Piece::Body => {
            let mut before = String::new();
            for m in &node.mutants {
                let made = marked(m.id, &format!("return {};", m.replacement));
                let _ = writeln!(before, "if crate::mutant::on({}) {{ {made} }}", m.id);
            }
            before + &plain
        }
        Piece::Arm(end, guard) => {
            let pattern = inner(&(node.range.start..*end));
            let off = format!("!({})", asked(&node.mutants));
            match guard {
                Some(guard) => format!("{pattern} if {off} && ({})", inner(guard)),
                None => format!("{pattern} if {off}"),
            }
        }
    };
    text.push_str(&made);
    text.push_str("/*N>*/");
}

/// The mutants whose text holds a byte of a rewritten source: those of the innermost mark.
pub fn blamed(text: &str, byte: usize) -> Vec<usize> {
    let mut open: Vec<Vec<usize>> = Vec::new();
    let mut rest = &text[..byte.min(text.len())];
    while let Some(start) = rest.find("/*") {
        let Some(end) = rest[start..].find("*/") else { break };
        let mark = &rest[start + 2..start + end];
        rest = &rest[start + end + 2..];
        if let Some(ids) = mark.strip_prefix("<M").or(mark.strip_prefix("<N")) {
            if let Ok(ids) = ids.split(',').map(str::parse).collect() {
                open.push(ids);
            }
        } else if mark == "M>" || mark == "N>" {
            open.pop();
        }
    }
    open.pop().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mutant(id: usize, line: usize, column: usize, genre: &str, replacement: &str) -> Mutant {
        let (file, what) = (String::new(), String::new());
        Mutant { id, file, place: (line, column), genre: genre.into(), replacement: replacement.into(), what }
    }

    #[test]
    fn operators_bodies_arms_and_guards_get_switches() {
        let source = "fn f(a: i64) -> i64 {\n    match a {\n        0 => -1,\n        n if n > 3 => n + 2 * n,\n        _ => 0,\n    }\n}\n";
        let mutants = [
            mutant(1, 4, 25, "BinaryOperator", "-"),
            mutant(2, 4, 29, "BinaryOperator", "+"),
            mutant(3, 3, 14, "UnaryOperator", ""),
            mutant(4, 2, 5, "FnValue", "0"),
            mutant(5, 3, 9, "MatchArm", ""),
            mutant(6, 4, 14, "MatchArmGuard", "true"),
            mutant(7, 9, 9, "BinaryOperator", "-"),
        ];
        let (text, without) = rewrite(source, &mutants).expect("a source");
        assert_eq!(without, [7]);
        for part in [
            "if crate::mutant::on(4) { /*<M4*/return 0;/*M>*/ }",
            "0 if !(crate::mutant::on(5))/*N>*/ =>",
            "(if !(crate::mutant::on(3)) { -1 } else { /*<M3*/1/*M>*/ })",
            "(if !(crate::mutant::on(6)) { n > 3 } else { /*<M6*/true/*M>*/ })",
            "/*<M1*/n - /*<N2*/(if !(crate::mutant::on(2)) { 2 * n } else { /*<M2*/2 + n/*M>*/ })/*N>*//*M>*/",
        ] {
            assert!(text.contains(part), "{part}\n{text}");
        }
        assert!(syn::parse_file(&text).is_ok(), "{text}");
        assert_eq!(blamed(&text, text.find("2 + n").unwrap_or(0) + 2), [2]);
        assert_eq!(blamed(&text, text.find("return 0").unwrap_or(0)), [4]);
        assert_eq!(blamed(&text, 3), [0; 0]);
    }

    #[test]
    fn what_is_computed_while_compiling_has_no_switch() {
        let source = "const A: u32 = 1 + 2;\nconst fn f(a: u32) -> u32 {\n    a + 1\n}\n";
        let mutants = [mutant(1, 1, 18, "BinaryOperator", "-"), mutant(2, 3, 7, "BinaryOperator", "-")];
        let (text, without) = rewrite(source, &mutants).expect("a source");
        assert_eq!((text.as_str(), without), (source, vec![1, 2]));
    }
}
