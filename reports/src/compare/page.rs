//! A comparison as tables.

use super::document::{Comparison, LeftOut};
use crate::document::{Block, Document};
use crate::export::ExportError;
use crate::figure::FigureError;
use crate::markup::{capital, markdown_text};
use crate::table::{Table, interval, significant, with_unit};
use crate::verdict::Statement;
use joulecast_ask::budget::{Bound, Budget};
use joulecast_ask::comparison::{Best, Entry, Largest, Measure, best, cheapest, most_accurate, no_choice};
use std::fmt::Write as _;

/// More conclusions are a list.
const LEADS: usize = 4;

/// In place of a GPU where none is the best.
const NONE: &str = "none, the host";

fn table(c: &Comparison, entries: &[&Entry], stopped: Option<&[Bound]>) -> Table {
    let (errors, prices) =
        (entries.iter().any(|e| e.epr.is_some()), entries.iter().any(|e| e.price_per_hour.is_some()));
    let epr = format!("EPR({})", c.alpha);
    let mut header =
        vec!["network", "gpu", "batch", "time", "90 % interval", "samples/s", "power", "per sample", "EDP"];
    header.push("samples/s/W");
    if errors {
        header.extend(["top-1 error", epr.as_str()]);
    }
    if prices {
        header.push("price/million");
    }
    header.extend(["times rest on", "trust in time, energy"]);
    let judged = c.budget.as_ref().filter(|_| stopped.is_none());
    if judged.is_some() {
        header.push("breaks");
    }
    if stopped.is_some() {
        header.push("larger breaks");
    }
    let mut table = Table::new(&header, 2).with_trailing_text(2 + usize::from(c.budget.is_some()));
    for (i, e) in entries.iter().enumerate() {
        let (p, trust) = (&e.summary, &e.trust);
        let batch = if e.fits_in_memory { e.batch.to_string() } else { format!("{} (does not fit)", e.batch) };
        let mut cells = vec![
            e.network.to_string(),
            e.gpu.to_string(),
            batch,
            with_unit(p.time.value.get(), "s"),
            interval(p.time.p05.get(), p.time.p95.get(), "s"),
            significant(p.samples_per_second(e.batch), 3),
            with_unit(p.power.value.get(), "W"),
            with_unit(p.energy_per_sample(e.batch).get(), "J"),
            with_unit(p.edp().get(), "J s"),
            significant(p.samples_per_joule(e.batch), 3),
        ];
        if errors {
            cells.push(e.top1_error.map_or("?".into(), |v| format!("{:.1} %", 100.0 * v)));
            cells.push(e.epr.map_or("?".into(), |v| with_unit(v.get(), "J")));
        }
        if prices {
            cells.push(e.price_per_million.map_or("?".into(), |v| significant(v, 3)));
        }
        cells.extend([p.time_tier.to_string(), format!("{}, {}", trust.time.grade, trust.energy.grade)]);
        cells.extend(judged.map(|budget| {
            let broken = e.kept(budget).filter(|(_, kept)| !kept).map(|(bound, _)| bound.to_string());
            broken.collect::<Vec<_>>().join(", ")
        }));
        cells.extend(stopped.and_then(|s| s.get(i)).map(Bound::to_string));
        table.row(cells);
    }
    table
}

fn budget_words(b: &Budget) -> String {
    let mut words = Vec::new();
    words.extend(b.latency.map(|v| format!("a step within {}", with_unit(v.get(), "s"))));
    words.extend(b.energy_per_sample.map(|v| format!("{} per sample", with_unit(v.get(), "J"))));
    words.extend(b.power.map(|v| format!("{} of board power", with_unit(v.get(), "W"))));
    let sure = if b.sure { ", by the 95 % quantiles" } else { "" };
    format!("{}{sure}, within memory", words.join(", "))
}

/// What the column EPR is.
fn epr_words(alpha: f64) -> String {
    let power = if alpha == 1.0 { String::new() } else { format!(" to the power of {alpha}") };
    format!("EPR({alpha}): energy-precision ratio, energy per sample times the top-1 error{power}; less is better")
}

/// GPUs that are left out for one reason, in the order they came.
fn by_reason(left_out: &[LeftOut]) -> Vec<(&str, Vec<&str>)> {
    let mut list: Vec<(&str, Vec<&str>)> = Vec::new();
    for LeftOut { gpu, why } in left_out {
        match list.iter_mut().find(|(other, _)| other == why) {
            Some((_, gpus)) => gpus.push(gpu),
            None => list.push((why, vec![gpu])),
        }
    }
    list
}

/// Of more GPUs that may be the best the first are named.
const NAMED: usize = 6;

/// The GPUs of which one is the best.
fn either(b: &Best<'_>, word: &str) -> String {
    let names: Vec<&str> = b.contenders().map(|e| e.gpu.as_str()).collect();
    if names.len() > NAMED {
        return format!("{} {word} {} others", names[..NAMED - 1].join(", "), names.len() + 1 - NAMED);
    }
    match names.split_last() {
        Some((last, others)) if !others.is_empty() => format!("{} {word} {last}", others.join(", ")),
        _ => names.concat(),
    }
}

/// What is to be measured to learn which is the best.
fn decided(b: &Best<'_>) -> Option<String> {
    b.decided_by().map(|(e, doubt)| Statement::from(e).measurement(doubt).what)
}

/// Which GPU takes the least time and the least energy, as far as that is sure: a line for every network and batch.
pub(super) fn conclusions(c: &Comparison) -> Vec<String> {
    let found = best(&c.entries);
    let told = found.iter().filter(|b| matches!(b.measure, Measure::Time | Measure::EnergyPerSample));
    let line = |b: &Best<'_>| {
        let of = format!("least {} of {} at batch {}", b.measure.name(), b.entry.network, b.entry.batch);
        match (b.by_gpu, b.sure()) {
            (false, _) => format!("{of}: the host decides, no GPU is the best"),
            (true, true) => format!("{of}: {}, sure", b.entry.gpu),
            (true, false) => {
                let measured = decided(b).map_or(String::new(), |what| format!("; measure {what}"));
                format!("{of}: not sure between {}{measured}", either(b, "and"))
            }
        }
    };
    // One GPU alone is the best of nothing.
    let compared = |b: &&Best<'_>| {
        let alike = |e: &&Entry| (&e.network, e.batch) == (&b.entry.network, b.entry.batch);
        c.entries.iter().filter(alike).any(|e| e.gpu != b.entry.gpu)
    };
    told.filter(compared).map(line).collect()
}

/// Which GPU is the best of each network and batch, and what would decide where none surely is.
fn best_table(found: &[Best<'_>]) -> Table {
    let mut table =
        Table::new(&["network", "least", "batch", "value", "sure", "gpu", "would decide"], 2).with_trailing_text(3);
    for b in found {
        let unit = b.measure.unit();
        table.row(vec![
            b.entry.network.to_string(),
            b.measure.name().into(),
            b.entry.batch.to_string(),
            if unit.is_empty() { significant(b.value, 3) } else { with_unit(b.value, unit) },
            if b.sure() { "yes" } else { "no" }.into(),
            if b.by_gpu { either(b, "or") } else { NONE.into() },
            if b.by_gpu { decided(b).unwrap_or_default() } else { String::new() },
        ]);
    }
    table
}

/// What is said of the best within a budget: the most accurate network, the cheapest GPU.
fn budget_lines(c: &Comparison) -> Vec<String> {
    let mut lines = Vec::new();
    for l in c.largest.iter().filter(|l| l.entry.is_none()) {
        lines.push(format!("no batch of {} on {} does: {}", l.network, l.gpu, l.stopped));
    }
    if let Some(e) = most_accurate(&c.largest) {
        let error = 100.0 * e.top1_error.unwrap_or(f64::NAN);
        let (net, gpu, batch) = (&e.network, &e.gpu, e.batch);
        lines.push(format!(
            "most accurate network that does: {net}, top-1 error {error:.1} %, on {gpu} at batch {batch}"
        ));
    }
    for b in cheapest(&c.largest) {
        let (e, price) = (b.entry, b.value);
        let (net, gpu) = (&e.network, &e.gpu);
        lines.push(match (b.by_gpu, b.sure()) {
            (false, _) => format!("no GPU is called cheapest for {net}: the host decides on {gpu}, which costs least"),
            (true, _) => {
                let doubt = if b.near.is_empty() {
                    String::new()
                } else {
                    format!("not sure between {}; least: ", either(&b, "and"))
                };
                let of = if b.of_all { "" } else { " of those with a price" };
                format!("cheapest GPU{of} for {net}: {doubt}{gpu}, {} per million samples", significant(price, 3))
            }
        });
    }
    let none_priced = c.largest.iter().filter_map(|l| l.entry.as_ref()).all(|e| e.price_per_hour.is_none());
    if none_priced && c.largest.iter().any(|l| l.entry.is_some()) {
        lines.push("no GPU is called cheapest without prices: --price GPU=PRICE per hour".into());
    }
    lines
}

/// The page.
pub(super) fn document(c: &Comparison) -> Result<Document, ExportError> {
    let lines: Vec<String> = conclusions(c).iter().map(|line| format!("{}.", capital(line))).collect();
    // Of many networks and batches nobody reads a line each above all else.
    let mut blocks: Vec<Block> = match lines.len() {
        0..=LEADS => lines.into_iter().map(Block::Lead).collect(),
        _ => vec![Block::List(lines)],
    };
    match super::drawn(c) {
        Ok(drawn) => blocks.push(Block::Figure(drawn)),
        Err(FigureError::Absent | FigureError::Nothing(_)) => {}
        Err(other) => return Err(other.into()),
    }
    if !c.entries.is_empty() {
        blocks.push(Block::Heading("Side by side".into()));
        blocks.push(Block::Table(table(c, &c.entries.iter().collect::<Vec<_>>(), None)));
    }
    let left_out =
        by_reason(&c.left_out).into_iter().map(|(why, gpus)| format!("Left out: {} ({why}).", gpus.join(", ")));
    blocks.extend(left_out.map(Block::Text));
    if c.shown().iter().any(|e| e.epr.is_some()) {
        blocks.push(Block::Text(format!("{}.", epr_words(c.alpha))));
    }
    if c.entries.iter().any(|e| e.gpu != c.entries[0].gpu) {
        blocks.push(Block::Heading("Which GPU for what".into()));
        blocks.push(Block::Text(
            "Where 90 % intervals reach each other none is first, and what would decide is named.".into(),
        ));
        blocks.push(Block::Table(best_table(&best(&c.entries))));
        let none = no_choice(&c.entries).into_iter().map(|(network, batch, gpus)| {
            Block::Text(format!(
                "No choice: {network} at batch {batch} on {} (does not fit in memory).",
                gpus.join(", ")
            ))
        });
        blocks.extend(none);
    }
    if let Some(budget) = &c.budget {
        blocks.push(Block::Heading("Within the budget".into()));
        blocks.push(Block::Text(format!("Largest batch for {}.", budget_words(budget))));
        let kept: Vec<&Largest> = c.largest.iter().filter(|l| l.entry.is_some()).collect();
        let stopped: Vec<Bound> = kept.iter().map(|l| l.stopped).collect();
        let entries: Vec<&Entry> = kept.iter().filter_map(|l| l.entry.as_ref()).collect();
        blocks.extend((!entries.is_empty()).then(|| Block::Table(table(c, &entries, Some(&stopped)))));
        blocks.push(Block::List(budget_lines(c)));
    }
    blocks.push(Block::Heading("How to read this".into()));
    blocks.push(Block::List(vec![
        "Trust: good where predictions of that kind were off by 20 % at most in the mean, fair to 40 %, poor beyond; of time, then of energy.".into(),
        "\"times rest on\": measured by us on that board, imported from others' measurements of it, a sibling board's, transferred from other GPUs, or a roofline bound.".into(),
    ]));
    let mut named: Vec<&str> = Vec::new();
    c.shown().iter().for_each(|e| {
        if !named.contains(&&*e.network) {
            named.push(&e.network)
        }
    });
    let title = match &named[..] {
        [] => capital(&c.title),
        names if names.len() <= LEADS => format!("{} on GPUs: {}", names.join(", "), c.title),
        names => format!("{} networks on GPUs: {}", names.len(), c.title),
    };
    Ok(Document { title, blocks })
}

/// The readable report, or the same in Markdown.
pub fn text(c: &Comparison, markdown: bool) -> String {
    let print = |t: &Table, text: &mut String| match markdown {
        true => *text += &t.to_markdown(),
        false => t.append_text(text),
    };
    let mut text = format!("{}{}\n", if markdown { "## " } else { "" }, c.title);
    let told = conclusions(c);
    if !told.is_empty() {
        text.push('\n');
    }
    for line in told.iter().map(|line| capital(line)) {
        let _ = writeln!(text, "{}{line}", if markdown { "* " } else { "" });
    }
    if !c.entries.is_empty() {
        let all: Vec<&Entry> = c.entries.iter().collect();
        text.push('\n');
        print(&table(c, &all, None), &mut text);
    }
    for (why, gpus) in by_reason(&c.left_out) {
        let _ = write!(text, "\nleft out: {} ({why})\n", gpus.join(", "));
    }
    if c.shown().iter().any(|e| e.epr.is_some()) {
        let _ = write!(text, "\n{}\n", epr_words(c.alpha));
    }
    if c.entries.iter().any(|e| e.gpu != c.entries[0].gpu) {
        let found = best(&c.entries);
        let _ = write!(
            text,
            "\nbest GPU for each; where 90 % intervals reach each other none is first, and what would decide is named\n\n"
        );
        print(&best_table(&found), &mut text);
        if found.iter().any(|b| !b.by_gpu) {
            let _ = write!(
                text,
                "\n{NONE}: it decides how long the step takes where that is least, so that no GPU is the best\n"
            );
        }
        if found.iter().any(|b| !b.of_all) {
            text += "\nno price is surely the least: a GPU without one may cost less\n";
        }
        for (network, batch, gpus) in no_choice(&c.entries) {
            let gpus = gpus.join(", ");
            let _ = write!(text, "\nno choice: {network} at batch {batch} on {gpus} (does not fit in memory)\n");
        }
    }
    if let Some(budget) = &c.budget {
        let _ = write!(text, "\nlargest batch for {}\n\n", budget_words(budget));
        let kept: Vec<&Largest> = c.largest.iter().filter(|l| l.entry.is_some()).collect();
        let stopped: Vec<Bound> = kept.iter().map(|l| l.stopped).collect();
        let entries: Vec<&Entry> = kept.iter().filter_map(|l| l.entry.as_ref()).collect();
        if !entries.is_empty() {
            print(&table(c, &entries, Some(&stopped)), &mut text);
        }
        for line in budget_lines(c) {
            let apart = if line.starts_with("most accurate") { "\n" } else { "" };
            let _ = writeln!(text, "{apart}{line}");
        }
    }
    if markdown { markdown_text(&text) } else { text }
}
