//! A step and a language model's answer as a page for a browser.

use crate::breakdown;
use crate::document::{Block, Document};
use crate::export::ExportError;
use crate::figure::FigureError;
use crate::layout;
use crate::prediction::{
    Shown, fewer, footnotes, group_table, heading, layer_table, memory, phase_table, provenance, reduced, sharing,
    totals, whole,
};
use crate::table::Table;
use crate::verdict::Verdict;
use crate::warnings::words;
use joulecast_model::step::predictor::NetworkPrediction;

/// Where time and energy go; nothing of a program that was built without what draws, or of a step without layers.
fn figure(p: &NetworkPrediction) -> Result<Option<Block>, ExportError> {
    match breakdown::drawings(p) {
        Ok(drawn) => Ok(Some(Block::Figure(drawn))),
        Err(FigureError::Absent | FigureError::Nothing(_)) => Ok(None),
        Err(other) => Err(other.into()),
    }
}

/// What stands above the totals: how long, how far to trust it, why, what would make it surer.
fn first(p: &NetworkPrediction) -> Vec<Block> {
    let mut lines = Verdict::of(p).lines().into_iter();
    let mut blocks: Vec<Block> = lines.next().map(Block::Lead).into_iter().collect();
    blocks.extend(lines.map(Block::Text));
    blocks
}

/// Layers by kind, each of them behind a mark, and what is to be known.
fn rest(p: &NetworkPrediction) -> Result<Vec<Block>, ExportError> {
    let mut blocks = vec![Block::Heading("Its kernels".into())];
    blocks.extend(figure(p)?);
    let (table, others) = group_table(p);
    blocks.push(Block::Table(table));
    blocks.extend(fewer(others).map(|line| Block::Text(format!("{line}."))));
    blocks.push(Block::Fold(format!("Each of {} kernels", p.layers.len()), layer_table(p)));
    blocks.extend(footnotes(p).map(|line| Block::Text(format!("{line}."))));
    blocks.push(Block::Heading("What it rests on".into()));
    blocks.push(Block::Text(format!("{}.", provenance(p))));
    if !p.warnings.is_empty() {
        blocks.push(Block::List(p.warnings.iter().map(words).collect()));
    }
    Ok(blocks)
}

/// A step.
pub(crate) fn step(shown: &Shown<'_>) -> Result<Document, ExportError> {
    let Shown { prediction: p, gpu, asked, .. } = *shown;
    let mut blocks = first(p);
    blocks.push(Block::Heading("The step".into()));
    blocks.push(Block::Table(totals(p, gpu)));
    blocks.push(Block::Text(format!("Memory: {}.", memory(p))));
    blocks.extend((p.phases.len() > 1).then(|| Block::Table(phase_table(p))));
    blocks.extend(sharing(p).map(Block::Table));
    blocks.extend(reduced(p).map(|line| Block::Text(format!("{line}."))));
    blocks.extend(p.layout.as_ref().map(|of| Block::Table(layout::table(p, of))));
    if let Some(training) = &asked.training {
        blocks.push(Block::Heading("The whole training".into()));
        blocks.push(Block::Table(whole(training)));
    }
    blocks.extend(rest(p)?);
    Ok(Document { title: heading(p, gpu, asked), blocks })
}

/// An answer: `parts` of it, `memory` in words, and the GPUs that share it.
pub(crate) fn answer(
    title: String,
    total: &NetworkPrediction,
    (parts, memory, used): (Table, String, Option<Table>),
) -> Result<Document, ExportError> {
    let mut blocks = first(total);
    blocks.push(Block::Heading("The answer".into()));
    blocks.push(Block::Table(parts));
    blocks.push(Block::Text(format!("{memory}.")));
    blocks.extend(used.map(Block::Table));
    blocks.extend(rest(total)?);
    Ok(Document { title, blocks })
}
