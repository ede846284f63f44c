//! A report of paragraphs, tables and figures, as text, Markdown and one HTML file that asks nothing of the network.

use crate::markup::escape;
use crate::markup::{markdown_text, prose};
use crate::stamp;
use crate::table::Table;

/// A part of a report.
#[derive(Clone, Debug)]
pub enum Block {
    /// What matters, before all else.
    Lead(String),
    /// A heading of the second level.
    Heading(String),
    /// A paragraph.
    Text(String),
    /// What a reader has to know, each under its name.
    Facts(Vec<(String, String)>),
    /// A table.
    Table(Table),
    /// A table that few need, behind what it is called; only HTML shows it.
    Fold(String, Table),
    /// Short statements.
    List(Vec<String>),
    /// A figure as SVG, drawn for screens of rising width; only HTML shows it.
    Figure(Vec<String>),
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

/// A page with fewer headings has no list of them.
const LISTED: usize = 4;

const STYLE: &str = "\
:root{color-scheme:light dark;--paper:#fff;--ink:#20242a;--faint:#5c636b;--line:#d9dde2;--band:#f6f7f9;--link:#0b5cad}
@media screen and (prefers-color-scheme:dark){:root{--paper:#14171b;--ink:#e8eaed;--faint:#a4abb3;--line:#343a42;--band:#1b1f24;--link:#7db8f5}}
*{box-sizing:border-box}
body{margin:0 auto;padding:1.5rem 1rem 3rem;max-width:88rem;background:var(--paper);color:var(--ink);font:16px/1.5 system-ui,sans-serif}
h1{font-size:1.6rem;line-height:1.25;margin:.2rem 0 1rem;overflow-wrap:anywhere}h2{font-size:1.2rem;margin:2.2rem 0 .6rem}
p,li{max-width:50rem;overflow-wrap:break-word}li{margin:.2rem 0}
a{color:var(--link)}
.lead{font-size:1.1rem;font-weight:600}
nav ul{list-style:none;padding:0;display:flex;flex-wrap:wrap;gap:.2rem 1.2rem;font-size:.9rem}nav li{margin:0}nav a{display:inline-block;padding:.2rem 0}
dl{display:grid;grid-template-columns:minmax(8rem,max-content) minmax(0,50rem);gap:.5rem 1.2rem;margin:1rem 0;padding:.8rem 1rem;border:1px solid var(--line);border-radius:.4rem;background:var(--band);max-width:64rem}
dt{font-weight:600}dd{margin:0;overflow-wrap:break-word}
.scroll{overflow-x:auto;margin:.6rem 0}
.scroll:focus-visible,summary:focus-visible,a:focus-visible{outline:2px solid var(--link);outline-offset:2px}
table{border-collapse:separate;border-spacing:0;font-size:.875rem;font-variant-numeric:tabular-nums}
th,td{padding:.3rem .55rem;border-bottom:1px solid var(--line);text-align:left;vertical-align:top;background:var(--paper)}
th{color:var(--faint);font-weight:600;vertical-align:bottom}td{white-space:nowrap}td.pair{white-space:normal}td.pair span{white-space:nowrap}td.long{white-space:normal;min-width:9rem;max-width:30rem}
.number{text-align:right}tbody tr:nth-child(even) td{background:var(--band)}
th:first-child,td:first-child{position:sticky;left:0;z-index:1}
figure{margin:1.5rem 0;overflow-x:auto}figure svg{display:block}
figure svg.narrow,figure svg.middle{display:none}figure:not(.drawn) svg{min-width:38rem}
summary{cursor:pointer;padding:.4rem 0}
footer{margin-top:3rem;border-top:1px solid var(--line);color:var(--faint);font-size:.875rem}footer p{margin:.4rem 0;max-width:none}
code{font:.85rem/1.5 ui-monospace,monospace;overflow-wrap:anywhere}
@media screen and (max-width:60rem){figure.drawn svg.wide{display:none}figure.drawn svg.middle{display:block}}
@media screen and (max-width:40rem){figure.drawn svg.middle{display:none}figure.drawn svg.narrow{display:block}
dl{grid-template-columns:1fr;gap:.1rem}dd{margin-bottom:.6rem}
td.long:first-child{max-width:9rem;min-width:0;overflow-wrap:break-word}table{font-size:.8rem}th,td{padding:.3rem .35rem}}
@page{size:A4 landscape;margin:12mm}
@media print{figure:not(.drawn) svg{min-width:0}figure svg{max-width:24cm!important;max-height:15cm}body{max-width:none;padding:0;font-size:10pt}nav{display:none}figure{break-inside:avoid;overflow:visible}h2{break-after:avoid}dl{break-inside:avoid}
.scroll{overflow:visible}table{font-size:7.5pt}th,td{padding:.1rem .3rem;white-space:normal;overflow-wrap:break-word}
td.long{min-width:0}th:first-child,td:first-child{position:static;min-width:0;max-width:none}tr{break-inside:avoid}thead{display:table-header-group}details{display:none}}
";

/// What an anchor is called: letters and digits of the heading, and its place, so that no two are called alike.
fn anchor(heading: &str, place: usize) -> String {
    let words = heading.to_lowercase();
    let words = words.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    format!("{place}-{}", words.take(6).collect::<Vec<_>>().join("-"))
}

/// A table that can be moved sideways on its own, by keyboard, too.
fn scrolling(table: &Table, called: &str) -> String {
    format!(
        "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{}\">{}</div>\n",
        escape(called),
        table.to_html()
    )
}

impl Document {
    /// Aligned text.
    pub fn to_text(&self) -> String {
        let block = |b: &Block| match b {
            Block::Heading(text) | Block::Text(text) | Block::Lead(text) => Some(format!("{text}\n")),
            Block::Facts(facts) => Some(facts.iter().map(|(name, text)| format!("{name}: {text}\n")).collect()),
            Block::Table(table) => Some(table.to_text()),
            Block::List(items) => Some(items.iter().map(|i| format!("note: {i}\n")).collect()),
            Block::Figure(_) | Block::Link { .. } | Block::Fold(..) => None,
        };
        let parts: Vec<String> = self.blocks.iter().filter_map(block).collect();
        format!("{}\n\n{}", self.title, parts.join("\n"))
    }

    /// Markdown.
    pub fn to_markdown(&self) -> String {
        let block = |b: &Block| match b {
            Block::Heading(text) => Some(format!("## {}\n", markdown_text(text))),
            Block::Text(text) | Block::Lead(text) => Some(format!("{}\n", markdown_text(text))),
            Block::Facts(facts) => {
                let fact =
                    |(name, text): &(String, String)| format!("* {}: {}\n", markdown_text(name), markdown_text(text));
                Some(facts.iter().map(fact).collect())
            }
            Block::Table(table) => Some(table.to_markdown()),
            Block::List(items) => Some(items.iter().map(|i| format!("* {}\n", markdown_text(i))).collect()),
            Block::Figure(_) | Block::Fold(..) => None,
            Block::Link { title, path } => Some(format!("![{}](<{path}>)\n", markdown_text(title))),
        };
        let parts: Vec<String> = self.blocks.iter().filter_map(block).collect();
        format!("# {}\n\n{}", markdown_text(&self.title), parts.join("\n"))
    }

    /// One HTML file: styles and figures are within, nothing is loaded, no script runs.
    pub fn to_html(&self) -> String {
        let headings: Vec<&str> = self
            .blocks
            .iter()
            .filter_map(|b| if let Block::Heading(text) = b { Some(text.as_str()) } else { None })
            .collect();
        let listed = |(place, text): (usize, &&str)| {
            format!("<li><a href=\"#{}\">{}</a></li>\n", anchor(text, place), escape(text))
        };
        let contents = match headings.len() {
            0..LISTED => String::new(),
            _ => {
                let items: String = headings.iter().enumerate().map(listed).collect();
                format!("<nav aria-label=\"Contents\"><ul>\n{items}</ul></nav>\n")
            }
        };
        let (mut body, mut seen, mut listed) = (String::new(), 0usize, false);
        for block in &self.blocks {
            // The list of contents stands behind what the page begins with.
            if matches!(block, Block::Heading(_)) && !std::mem::replace(&mut listed, true) {
                body += &contents;
            }
            let called = seen.checked_sub(1).and_then(|i| headings.get(i)).copied().unwrap_or(&self.title);
            body += &match block {
                Block::Lead(text) => format!("<p class=\"lead\">{}</p>\n", prose(text)),
                Block::Heading(text) => {
                    seen += 1;
                    format!("<h2 id=\"{}\">{}</h2>\n", anchor(text, seen - 1), escape(text))
                }
                Block::Text(text) => format!("<p>{}</p>\n", prose(text)),
                Block::Facts(facts) => {
                    let fact = |(name, text): &(String, String)| {
                        format!("<dt>{}</dt><dd>{}</dd>\n", escape(name), prose(text))
                    };
                    format!("<dl>\n{}</dl>\n", facts.iter().map(fact).collect::<String>())
                }
                Block::Table(table) => scrolling(table, called),
                Block::Fold(name, table) => {
                    format!("<details><summary>{}</summary>\n{}</details>\n", escape(name), scrolling(table, name))
                }
                Block::List(items) => {
                    let items: String = items.iter().map(|i| format!("<li>{}</li>\n", prose(i))).collect();
                    format!("<ul>\n{items}</ul>\n")
                }
                Block::Figure(drawn) => figure(drawn, called),
                Block::Link { .. } => String::new(),
            };
        }
        let title = escape(&self.title);
        let made: Vec<String> = stamp::lines().iter().map(|line| escape(line)).collect();
        let made = match &made[..] {
            [first, command] => format!("<p>{first} <code>{command}</code></p>\n"),
            lines => format!("<p>{}</p>\n", lines.join(" ")),
        };
        format!(
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<link rel=\"icon\" href=\"data:,\">\n\
             <title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n<h1>{title}</h1>\n{body}</main>\n\
             <footer>\n{made}</footer>\n</body>\n</html>\n"
        )
    }
}

/// A figure of one drawing, which is moved sideways where it is too wide, or of one for each of three widths.
fn figure(drawn: &[String], called: &str) -> String {
    let open = format!("<figure tabindex=\"0\" role=\"group\" aria-label=\"{}\"", escape(called));
    let of = |svg: &String, class: &str| svg.replacen("class=\"figure\"", &format!("class=\"figure {class}\""), 1);
    match drawn {
        [narrow, middle, wide] => {
            format!(
                "{open} class=\"drawn\">\n{}{}{}</figure>\n",
                of(narrow, "narrow"),
                of(middle, "middle"),
                of(wide, "wide")
            )
        }
        drawn => format!("{open}>\n{}</figure>\n", drawn.concat()),
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
            Block::Figure(vec!["<svg></svg>\n".into()]),
            Block::Facts(vec![("cost".into(), "1 < 2".into())]),
            Block::Link { title: "kW".into(), path: "my figures/kw.svg".into() },
        ];
        let document = Document { title: "A & B".into(), blocks };
        let html = document.to_html();
        for part in
            ["<h1>A &amp; B</h1>", "a &lt; b", "<td>&lt;t4&gt;</td>", "<li>first</li>", ">\n<svg>", "<dd>1 &lt; 2</dd>"]
        {
            assert!(html.contains(part), "no {part} in\n{html}");
        }
        assert!(!html.contains("<nav"), "one heading needs no list");
        let mut many = document.clone();
        many.blocks.extend(["Cost", "Cost", "2 x <h100>"].map(|text| Block::Heading(text.into())));
        let many = many.to_html();
        for part in
            ["<a href=\"#1-cost\">", "<h2 id=\"2-cost\">Cost</h2>", "<h2 id=\"3-2-x-h100\">2 x &lt;h100&gt;</h2>"]
        {
            assert!(many.contains(part), "no {part} in\n{many}");
        }
        for outside in ["http", "<script", "url(", "@import"] {
            assert!(!html.contains(outside), "{outside}");
        }
        let three = figure(&["n", "m", "w"].map(|name| format!("<svg class=\"figure\" id=\"{name}\">")), "kW");
        assert!(
            three.contains("<svg class=\"figure narrow\" id=\"n\">") && three.contains("class=\"drawn\""),
            "{three}"
        );
        let markdown = document.to_markdown();
        assert!(markdown.contains("## Fleet\n\na < b\n\n| gpu | kW |"), "{markdown}");
        assert!(markdown.ends_with("* first\n\n* cost: 1 < 2\n\n![kW](<my figures/kw.svg>)\n"), "{markdown}");
        assert_eq!(
            document.to_text(),
            "A & B\n\nFleet\n\na < b\n\ngpu    kW\n----  ---\n<t4>  1.5\n\nnote: first\n\ncost: 1 < 2\n"
        );
    }
}
