//! A report of paragraphs, tables and figures, as text, Markdown and one HTML file that asks nothing of the network.

use crate::markup::escape;
use crate::markup::markdown_text;
use crate::table::Table;

/// A part of a report.
#[derive(Clone, Debug)]
pub enum Block {
    /// A heading of the second level.
    Heading(String),
    /// A paragraph.
    Text(String),
    /// A table.
    Table(Table),
    /// Short statements.
    List(Vec<String>),
    /// A figure as SVG; only HTML shows it.
    Figure(String),
    /// A figure in a file of its own; only Markdown shows it.
    Link {
        /// What it shows.
        title: String,
        /// Where it is, seen from the page.
        path: String,
    },
}

/// A report.
#[derive(Clone, Debug)]
pub struct Document {
    /// Its title.
    pub title: String,
    /// Its parts, in order.
    pub blocks: Vec<Block>,
}

const STYLE: &str = "\
:root{color-scheme:light dark;--paper:#fff;--ink:#20242a;--faint:#5c636b;--line:#d9dde2;--band:#f6f7f9}
@media screen and (prefers-color-scheme:dark){:root{--paper:#14171b;--ink:#e8eaed;--faint:#a4abb3;--line:#343a42;--band:#1b1f24}}
body{margin:0 auto;padding:1.5rem 1rem 3rem;max-width:72rem;background:var(--paper);color:var(--ink);font:16px/1.5 system-ui,sans-serif}
h1{font-size:1.6rem;line-height:1.25}h2{font-size:1.2rem;margin-top:2.2rem}
p,li{max-width:50rem;overflow-wrap:anywhere}li{margin:.2rem 0}
.scroll{overflow-x:auto}
table{border-collapse:collapse;font-size:.875rem;font-variant-numeric:tabular-nums}
th,td{padding:.3rem .7rem;border-bottom:1px solid var(--line);text-align:left;vertical-align:top}
th{color:var(--faint);font-weight:600}td{white-space:nowrap}
.number{text-align:right}tbody tr:nth-child(even){background:var(--band)}
figure{margin:1.5rem 0;overflow-x:auto}figure svg{display:block;min-width:38rem}
@page{size:landscape;margin:12mm}
@media print{body{max-width:none}figure{break-inside:avoid;overflow:visible}figure svg{min-width:0}
.scroll{overflow:visible}table{font-size:7.5pt}th,td{padding:.1rem .3rem;white-space:normal;overflow-wrap:break-word}tr{break-inside:avoid}}
";

impl Document {
    /// Aligned text.
    pub fn to_text(&self) -> String {
        let block = |b: &Block| match b {
            Block::Heading(text) => Some(format!("{text}\n")),
            Block::Text(text) => Some(format!("{text}\n")),
            Block::Table(table) => Some(table.to_text()),
            Block::List(items) => Some(items.iter().map(|i| format!("note: {i}\n")).collect()),
            Block::Figure(_) | Block::Link { .. } => None,
        };
        let parts: Vec<String> = self.blocks.iter().filter_map(block).collect();
        format!("{}\n\n{}", self.title, parts.join("\n"))
    }

    /// Markdown.
    pub fn to_markdown(&self) -> String {
        let block = |b: &Block| match b {
            Block::Heading(text) => Some(format!("## {}\n", markdown_text(text))),
            Block::Text(text) => Some(format!("{}\n", markdown_text(text))),
            Block::Table(table) => Some(table.to_markdown()),
            Block::List(items) => Some(items.iter().map(|i| format!("* {}\n", markdown_text(i))).collect()),
            Block::Figure(_) => None,
            Block::Link { title, path } => Some(format!("![{}](<{path}>)\n", markdown_text(title))),
        };
        let parts: Vec<String> = self.blocks.iter().filter_map(block).collect();
        format!("# {}\n\n{}", markdown_text(&self.title), parts.join("\n"))
    }

    /// One HTML file: styles and figures are within, nothing is loaded, no script runs.
    pub fn to_html(&self) -> String {
        let block = |b: &Block| match b {
            Block::Heading(text) => format!("<h2>{}</h2>\n", escape(text)),
            Block::Text(text) => format!("<p>{}</p>\n", escape(text)),
            Block::Table(table) => format!("<div class=\"scroll\">{}</div>\n", table.to_html()),
            Block::List(items) => {
                let items: String = items.iter().map(|i| format!("<li>{}</li>\n", escape(i))).collect();
                format!("<ul>\n{items}</ul>\n")
            }
            Block::Figure(svg) => format!("<figure>\n{svg}</figure>\n"),
            Block::Link { .. } => String::new(),
        };
        let title = escape(&self.title);
        let body: String = self.blocks.iter().map(block).collect();
        format!(
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<link rel=\"icon\" href=\"data:,\">\n\
             <title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<h1>{title}</h1>\n{body}</body>\n</html>\n"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_has_every_part_it_can_show() {
        let mut table = Table::new(&["gpu", "kW"], 1);
        table.row(vec!["<t4>".into(), "1.5".into()]);
        let blocks = vec![
            Block::Heading("Fleet".into()),
            Block::Text("a < b".into()),
            Block::Table(table),
            Block::List(vec!["first".into()]),
            Block::Figure("<svg></svg>\n".into()),
            Block::Link { title: "kW".into(), path: "my figures/kw.svg".into() },
        ];
        let document = Document { title: "A & B".into(), blocks };
        let html = document.to_html();
        for part in ["<h1>A &amp; B</h1>", "a &lt; b", "<td>&lt;t4&gt;</td>", "<li>first</li>", "<figure>\n<svg>"] {
            assert!(html.contains(part), "no {part} in\n{html}");
        }
        for outside in ["http", "<script", "url(", "@import"] {
            assert!(!html.contains(outside), "{outside}");
        }
        let markdown = document.to_markdown();
        assert!(markdown.contains("## Fleet\n\na < b\n\n| gpu | kW |"), "{markdown}");
        assert!(markdown.ends_with("* first\n\n![kW](<my figures/kw.svg>)\n"), "{markdown}");
        assert_eq!(document.to_text(), "A & B\n\nFleet\n\na < b\n\ngpu    kW\n----  ---\n<t4>  1.5\n\nnote: first\n");
    }
}
