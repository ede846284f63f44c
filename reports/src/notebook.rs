//! Results as a part of somebody else's page: what a notebook shows of them, and their figure. Nothing is loaded, no script
//! runs, and the style touches nothing around it.

pub use crate::breakdown::figure;

use crate::generation::parts;
use crate::markup::{capital, escape};
use crate::prediction::{Shown, footnotes, group_table, heading, layer_table, provenance, totals};
use crate::table::Table;
use crate::verdict::Verdict;
use crate::warnings::words;
use joulecast_model::step::generation::Generation;
use joulecast_model::step::predictor::NetworkPrediction;

/// Twice the class: notebooks align all cells to the right and wrap aligned text by rules of their own.
const STYLE: &str = "\
.joulecast table{border-collapse:collapse;font-size:.875rem;font-variant-numeric:tabular-nums;margin:.4rem 0}\
.joulecast.joulecast tr>*{padding:.2rem .6rem;text-align:left;white-space:nowrap}\
.joulecast.joulecast tr>.number{text-align:right}\
.joulecast.joulecast pre{font:.8rem/1.4 monospace;white-space:pre;overflow-x:auto}\
.joulecast figure{margin:.6rem 0;overflow-x:auto}.joulecast .scroll{overflow-x:auto}";

fn part(title: &str, below: &str, body: &str) -> String {
    let (title, below) = (escape(title), escape(below));
    format!(
        "<div class=\"joulecast\"><style>{STYLE}</style>\n<p><strong>{title}</strong><br>{below}</p>\n{body}</div>\n"
    )
}

fn scrolling(table: &Table) -> String {
    format!("<div class=\"scroll\">{}</div>\n", table.to_html())
}

fn notes(p: &NetworkPrediction) -> String {
    let items: String = p.warnings.iter().map(|w| format!("<li>{}</li>\n", escape(&words(w)))).collect();
    if items.is_empty() { items } else { format!("<ul>\n{items}</ul>\n") }
}

/// The costliest layers, all of them behind a mark that opens them, the notes and the figure.
fn below(p: &NetworkPrediction) -> String {
    let count = p.layers.len();
    let footnotes: String = footnotes(p).map(|line| format!("<p>{line}</p>\n")).collect();
    let figure = figure(p).map(|svg| format!("<figure>\n{svg}</figure>\n")).unwrap_or_default();
    format!(
        "{}<details><summary>all {count} kernels</summary>\n{}{footnotes}</details>\n{}{figure}",
        scrolling(&group_table(p).0),
        scrolling(&layer_table(p)),
        notes(p)
    )
}

/// The verdict, and what it rests on.
fn judged(p: &NetworkPrediction) -> String {
    format!("{} {}.", Verdict::of(p).line(), capital(&provenance(p)))
}

/// A step.
pub fn step(result: &Shown<'_>) -> String {
    let Shown { prediction: p, gpu, asked, .. } = *result;
    part(&heading(p, gpu, asked), &judged(p), &(scrolling(&totals(p, gpu)) + &below(p)))
}

/// A language model's answer.
pub fn answer(result: &Shown<'_, Generation>) -> String {
    let Shown { prediction: g, gpu, asked, .. } = *result;
    let tables = scrolling(&parts(g)) + &scrolling(&totals(&g.total, gpu));
    part(&heading(&g.total, gpu, asked), &judged(&g.total), &(tables + &below(&g.total)))
}

/// A table with what is said above it.
pub fn table(title: &str, below: &str, table: &Table) -> String {
    part(title, below, &scrolling(table))
}

/// A report of aligned text, with a figure where there is one.
pub fn text(report: &str, figure: Option<&str>) -> String {
    let (first, rest) = report.split_once('\n').unwrap_or((report, ""));
    let figure = figure.map(|svg| format!("<figure>\n{svg}</figure>\n")).unwrap_or_default();
    part(first, "", &format!("<pre>{}</pre>\n{figure}", escape(rest.trim_start_matches('\n'))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_shown_as_it_is() {
        let html = text("5 < 6\n\na  b\n1  2\n", Some("<svg></svg>"));
        assert!(html.starts_with("<div class=\"joulecast\"><style>") && html.ends_with("</div>\n"));
        assert!(
            html.contains("pre{font:.8rem/1.4 monospace;white-space:pre;"),
            "columns stay below each other: {html}"
        );
        assert!(html.contains("<strong>5 &lt; 6</strong>") && html.contains("<pre>a  b\n1  2\n</pre>"), "{html}");
        assert!(html.contains("<figure>\n<svg></svg></figure>") && !html.contains("<script"), "{html}");
    }
}
