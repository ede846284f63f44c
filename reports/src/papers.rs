//! The tables and the page of `predict papers`: what papers printed beside what is predicted.

use crate::export::{self, Export, ExportError, Format};
use crate::table::{Table, significant};
use joulecast_ask::papers::{Compared, Comparison, METRICS, Paper, Quantity, Winner, totals, winners};
use joulecast_model::base::accuracy::Accuracy;
use serde::Serialize;
use std::fmt::Write as _;

/// A value in the unit of its column: milliseconds, watts or joules.
fn shown(quantity: Quantity, value: f64) -> String {
    match quantity {
        Quantity::Time => significant(value * 1e3, 4),
        Quantity::Power | Quantity::Energy => significant(value, 4),
        Quantity::Memory => significant(value / 1_048_576.0, 4),
    }
}

fn unit(quantity: Quantity) -> &'static str {
    match quantity {
        Quantity::Time => "time, ms",
        Quantity::Power => "power, W",
        Quantity::Energy => "energy, J",
        Quantity::Memory => "memory, MiB",
    }
}

/// A value that two readings predict with the same network, once.
fn once(rows: &[Compared]) -> Vec<Compared> {
    let mut list: Vec<Compared> = Vec::with_capacity(rows.len());
    for row in rows {
        let same = |r: &Compared| Compared { reading: row.reading.clone(), ..r.clone() } == *row;
        if !list.iter().any(same) {
            list.push(row.clone());
        }
    }
    list
}

/// Every printed value.
pub fn rows(rows: &[Compared]) -> Table {
    let header = [
        "paper",
        "table",
        "gpu",
        "network",
        "predicted as",
        "phase",
        "of",
        "GPUs",
        "batch",
        "printed",
        "predicted",
        "error %",
        "90 % from",
        "to",
        "holds",
        "left out",
    ];
    let mut table = Table::new(&header, 7).with_trailing_text(2);
    for r in once(rows) {
        table.row(vec![
            r.paper.clone(),
            r.table.clone(),
            r.gpu.clone(),
            r.network.clone(),
            r.net.clone(),
            r.phase.clone(),
            unit(r.quantity).into(),
            r.gpus.to_string(),
            r.batch.to_string(),
            shown(r.quantity, r.printed),
            shown(r.quantity, r.predicted),
            format!("{:+.1}", r.error()),
            shown(r.quantity, r.p05),
            shown(r.quantity, r.p95),
            if r.holds() { "yes" } else { "no" }.into(),
            match (&r.distorted, r.fitted) {
                (Some(_), _) => "distorted",
                (None, true) => "fitted to",
                (None, false) => "",
            }
            .into(),
        ]);
    }
    table
}

/// Mean errors of groups of values, those that are distorted left out. A group is what `key` makes equal; groups come in
/// the order of their first value.
fn grouped(rows: &[Compared], header: &[&str], key: impl Fn(&Compared) -> Vec<String>) -> Table {
    let mut groups: Vec<(Vec<String>, Vec<&Compared>)> = Vec::new();
    for row in rows.iter().filter(|r| r.distorted.is_none() && !r.fitted) {
        let key = key(row);
        match groups.iter_mut().find(|(k, _)| *k == key) {
            Some((_, members)) => members.push(row),
            None => groups.push((key, vec![row])),
        }
    }
    let header: Vec<&str> =
        header.iter().copied().chain(["values", "mean %", "bias %", "worst %", "in interval"]).collect();
    let mut table = Table::new(&header, header.len() - 5);
    for (mut cells, members) in groups {
        let Some(accuracy) = Accuracy::of(members.iter().map(|r| (r.printed, r.predicted))) else { continue };
        let worst = members.iter().map(|r| r.error()).max_by(|a, b| a.abs().total_cmp(&b.abs())).unwrap_or_default();
        cells.extend([
            accuracy.count.to_string(),
            format!("{:.1}", accuracy.mape),
            format!("{:+.1}", accuracy.bias),
            format!("{worst:+.0}"),
            format!("{} of {}", members.iter().filter(|r| r.holds()).count(), accuracy.count),
        ]);
        table.row(cells);
    }
    table
}

/// Mean errors per paper, reading, phase and quantity.
pub fn overall(rows: &[Compared]) -> Table {
    grouped(rows, &["paper", "reading", "phase", "GPUs", "of"], |r| {
        [r.paper.as_str(), &r.reading, &r.phase, &r.gpus.to_string(), r.quantity.name()].map(String::from).to_vec()
    })
}

/// Mean errors per paper, reading, table, GPU, phase and quantity.
pub fn by_gpu(rows: &[Compared]) -> Table {
    grouped(rows, &["paper", "reading", "table", "gpu", "GPUs", "phase", "of"], |r| {
        let gpus = r.gpus.to_string();
        [r.paper.as_str(), &r.reading, &r.table, &r.gpu, &gpus, &r.phase, r.quantity.name()].map(String::from).to_vec()
    })
}

/// Mean errors per GPU, network, phase and quantity.
pub fn by_network(rows: &[Compared]) -> Table {
    grouped(&once(rows), &["paper", "gpu", "GPUs", "network", "predicted as", "phase", "of"], |r| {
        let gpus = r.gpus.to_string();
        [r.paper.as_str(), &r.gpu, &gpus, &r.network, &r.net, &r.phase, r.quantity.name()].map(String::from).to_vec()
    })
}

/// Time, energy and their product of whole steps on all their devices: mean errors by reading and devices.
pub fn derived(rows: &[Compared]) -> Table {
    let mut table = Table::new(&["paper", "reading", "devices", "steps", "time %", "energy %", "EDP %"], 3);
    let all = totals(rows);
    let mut seen: Vec<[&str; 3]> = Vec::new();
    for t in &all {
        let key = [t.paper.as_str(), t.reading.as_str(), t.setup.as_str()];
        if seen.contains(&key) {
            continue;
        }
        seen.push(key);
        let alike: Vec<_> = all.iter().filter(|o| [o.paper.as_str(), &o.reading, &o.setup] == key).collect();
        let mut cells = key.map(String::from).to_vec();
        cells.push(alike.len().to_string());
        for (_, value) in METRICS {
            let pairs = alike.iter().map(|t| (value(&t.printed), value(&t.predicted)));
            cells.push(Accuracy::of(pairs).map_or("-".into(), |a| format!("{:.1}", a.mape)));
        }
        table.row(cells);
    }
    table
}

/// How often the devices that are best as predicted are those that are best as printed.
pub fn best(rows: &[Compared]) -> Table {
    let header = ["paper", "reading", "best by", "cases", "choices", "the same", "the same %", "mean regret %"];
    let mut table = Table::new(&header, 3);
    let all = winners(&totals(rows));
    let mut seen: Vec<[&str; 3]> = Vec::new();
    for w in &all {
        let key = [w.paper.as_str(), w.reading.as_str(), w.metric];
        if seen.contains(&key) {
            continue;
        }
        seen.push(key);
        let alike: Vec<&Winner> =
            all.iter().filter(|o| [o.paper.as_str(), o.reading.as_str(), o.metric] == key).collect();
        let same = alike.iter().filter(|w| w.printed == w.predicted).count();
        let regret = alike.iter().map(|w| w.regret).sum::<f64>() / alike.len() as f64;
        let mut cells = key.map(String::from).to_vec();
        cells.extend([
            alike.len().to_string(),
            alike.iter().map(|w| w.choices).max().unwrap_or(0).to_string(),
            same.to_string(),
            format!("{:.0}", 100.0 * same as f64 / alike.len() as f64),
            format!("{:.1}", 100.0 * regret),
        ]);
        table.row(cells);
    }
    table
}

/// Every case with its best devices.
pub fn each_best(rows: &[Compared]) -> Table {
    let header = ["paper", "reading", "network", "best by", "printed", "predicted", "batch", "regret %"];
    let mut table = Table::new(&header, 6);
    for w in winners(&totals(rows)) {
        table.row(vec![
            w.paper,
            w.reading,
            w.network,
            w.metric.into(),
            w.printed,
            w.predicted,
            w.batch.to_string(),
            format!("{:.0}", 100.0 * w.regret),
        ]);
    }
    table
}

/// Values that enter no mean, and why.
pub fn distorted(rows: &[Compared]) -> Table {
    let mut table =
        Table::new(&["paper", "table", "gpu", "network", "phase", "of", "GPUs", "batch", "printed", "why"], 6)
            .with_trailing_text(1);
    let mut seen: Vec<[String; 10]> = Vec::new();
    for r in rows {
        let Some(why) = &r.distorted else { continue };
        let cells = [
            r.paper.clone(),
            r.table.clone(),
            r.gpu.clone(),
            r.network.clone(),
            r.phase.clone(),
            unit(r.quantity).into(),
            r.gpus.to_string(),
            r.batch.to_string(),
            shown(r.quantity, r.printed),
            why.clone(),
        ];
        // Once, however many readings there are.
        if !seen.contains(&cells) {
            table.row(cells.to_vec());
            seen.push(cells);
        }
    }
    table
}

/// Values that are not predicted, counted by reason.
pub fn not_predicted(comparison: &Comparison) -> Table {
    let mut table = Table::new(&["paper", "table", "why", "values"], 3);
    for n in &comparison.not_predicted {
        table.row(vec![n.paper.clone(), n.table.clone(), n.why.clone(), n.values.to_string()]);
    }
    table
}

/// What the comparison was made with.
fn settings(rows: &[Compared]) -> Table {
    let mut table = Table::new(&["paper", "gpu", "calibration", "fit", "framework profile", "age of cuDNN"], 6);
    let mut seen: Vec<Vec<String>> = Vec::new();
    for r in rows {
        let age = r.cudnn.clone().unwrap_or_else(|| "newest that each model saw".into());
        let cells =
            vec![r.paper.clone(), r.gpu.clone(), r.calibration.clone(), r.fit.clone(), r.framework.clone(), age];
        if !seen.contains(&cells) {
            table.row(cells.clone());
            seen.push(cells);
        }
    }
    table
}

/// Titles and tables, in order.
fn sections(comparison: &Comparison, every: bool) -> Vec<(&'static str, Table)> {
    let all = &comparison.rows;
    let mut list = vec![
        ("Predicted with", settings(all)),
        ("Mean errors", overall(all)),
        ("Per table and GPU", by_gpu(all)),
        ("Per network", by_network(all)),
        ("Whole steps on all their devices", derived(all)),
        ("Best devices", best(all)),
    ];
    if every {
        list.push(("Best devices, case by case", each_best(all)));
        list.push(("Every value", rows(all)));
    }
    list.push(("Left out of the means", distorted(all)));
    list.push(("Not predicted", not_predicted(comparison)));
    list
}

/// Papers beside predictions as they are shown: `papers_comparison/1`, seconds, watts, joules.
#[derive(Clone, Copy, Debug)]
pub struct Beside<'a> {
    /// The papers.
    pub papers: &'a [&'a Paper],
    /// What was compared.
    pub comparison: &'a Comparison,
    /// The command that makes the page.
    pub command: &'a str,
    /// Whether the table shows every value, not only mean errors, as the page and JSON do.
    pub rows: bool,
}

impl Export for Beside<'_> {
    const FORMS: &'static [(Format, &'static str)] = &[
        (Format::Table, "Aligned text"),
        (Format::Markdown, "A page for a report"),
        (Format::Json, "The document papers_comparison/1"),
    ];

    fn export(&self, format: Format) -> Result<String, ExportError> {
        match format {
            Format::Table => Ok(text(self.comparison, self.rows)),
            Format::Markdown => Ok(page(self.papers, self.comparison, self.command)),
            Format::Json => export::json(&Document { schema: "papers_comparison/1", comparison: self.comparison }),
            Format::Html | Format::Csv => Err(ExportError::Absent(format)),
        }
    }
}

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    #[serde(flatten)]
    comparison: &'a Comparison,
}

/// The comparison as aligned text; with every value or without.
fn text(comparison: &Comparison, every: bool) -> String {
    let mut text = String::new();
    for (title, table) in sections(comparison, every).into_iter().filter(|(_, table)| !table.is_empty()) {
        let _ = write!(text, "{}{title}\n\n{}", if text.is_empty() { "" } else { "\n" }, table.to_text());
    }
    text
}

/// The comparison as a Markdown page that says how it was made.
fn page(papers: &[&Paper], comparison: &Comparison, command: &str) -> String {
    let mut text = format!(
        "# Papers' tables beside predictions\n\n\
         Written by `{command}`. What the papers printed is in `data/published/papers`, what its names mean in \
         `papers.toml` there. Nothing was fitted to these values, but three things: what a paper does not say and all rows \
         of a network share (batch, one factor) to the rows of some frameworks, and what is particular to a board to its runs under \
         power limits, both marked `fitted to`; and a rule of cuDNN's version to rows marked `distorted`. None of them enter a mean. \
         All of it is development: features, constants and rules were chosen with these errors in view. A fit called `evaluation` knows no layer whose shape \
         occurs in one of these networks, a `shipped` one may. Errors are of the prediction in percent of the printed \
         value: positive where it is too long or too high. Forward and backward \
         passes are those of training; rates are compared as times of a step. Clocks are the printed ones where they are below the boost clock, else the \
         default ones. Of several GPUs, power, energy and memory are of one; their sums follow under whole steps.\n\n"
    );
    for paper in papers {
        let _ = writeln!(text, "* **{}**: {}. Tables {}. {}.", paper.key, paper.title, paper.tables, paper.software);
    }
    for (title, table) in sections(comparison, true).into_iter().filter(|(_, table)| !table.is_empty()) {
        let _ = write!(text, "\n## {title}\n\n{}", table.to_markdown());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use joulecast_ask::papers::NotPredicted;

    fn value(reading: &str, printed: f64, distorted: Option<&str>) -> Compared {
        Compared {
            paper: "p".into(),
            table: "Table 1".into(),
            gpu: "g".into(),
            gpus: 1,
            setup: "1xg".into(),
            count: 1,
            network: "N".into(),
            reading: reading.into(),
            net: "n".into(),
            phase: "forward".into(),
            batch: 2,
            framework: "caffe".into(),
            calibration: "c-1".into(),
            fit: "shipped".into(),
            cudnn: None,
            quantity: Quantity::Time,
            printed,
            predicted: 1.1e-3,
            p05: 0.9e-3,
            p95: 1.3e-3,
            fitted: false,
            distorted: distorted.map(String::from),
        }
    }

    #[test]
    fn distorted_values_enter_no_mean_and_are_listed_once() {
        let rows = [value("a", 1e-3, None), value("a", 9e-3, Some("odd")), value("b", 9e-3, Some("odd"))];
        let text = overall(&rows).to_text();
        let line: Vec<&str> = text.lines().nth(2).unwrap_or_default().split_whitespace().collect();
        assert_eq!(line[line.len() - 7..], ["1", "10.0", "+10.0", "+10", "1", "of", "1"], "{text}");
        assert_eq!(distorted(&rows).to_text().matches("odd").count(), 1);
    }

    #[test]
    fn a_network_that_two_readings_share_counts_once_per_network_and_once_per_reading() {
        let rows = [value("a", 1e-3, None), value("b", 1e-3, None)];
        assert_eq!(by_network(&rows).to_text().matches("1 of 1").count(), 1);
        assert_eq!(super::rows(&rows).to_text().matches("yes").count(), 1);
        assert_eq!(overall(&rows).to_text().matches("1 of 1").count(), 2);
    }

    #[test]
    fn the_page_has_every_value_and_every_reason() {
        let not = NotPredicted { paper: "p".into(), table: "Table 2".into(), why: "4 GPUs".into(), values: 3 };
        let comparison = Comparison { rows: vec![value("", 2e-3, None)], not_predicted: vec![not] };
        let page = page(&[], &comparison, "predict papers");
        for part in
            ["`predict papers`", "| time, ms | 1 | 2 | 2.000 | 1.100 | -45.0 | 0.9000 | 1.300 | no |", "| 4 GPUs | 3 |"]
        {
            assert!(page.contains(part), "no {part} in\n{page}");
        }
        assert!(!page.contains("## Left out of the means"));
    }
}
