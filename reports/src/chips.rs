//! The tables of `calibrate validate --leave-one-chip-out`.

use crate::accuracy::percent;
use crate::export::{self, Export, ExportError, Format};
use crate::table::{Column, Row, Table};
use serde::Serialize;
use std::collections::BTreeSet;

/// Accuracy of some rows, in percent.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Score {
    /// Mean absolute percentage error.
    pub mape: f64,
    /// Median absolute percentage error.
    pub median: f64,
    /// Share of the rows whose time the 90 % interval holds.
    pub coverage: f64,
}

impl Score {
    /// Means over draws; `None` without any.
    pub fn mean(scores: impl Iterator<Item = Self>) -> Option<Self> {
        let scores: Vec<Self> = scores.collect();
        let n = scores.len() as f64;
        let mean = |value: fn(&Self) -> f64| scores.iter().map(value).sum::<f64>() / n;
        (!scores.is_empty()).then(|| Self {
            mape: mean(|s| s.mape),
            median: mean(|s| s.median),
            coverage: mean(|s| s.coverage),
        })
    }
}

/// A chip that was left out: one kind, phase and precision.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Line {
    /// Chip.
    pub chip: String,
    /// Layer kind.
    pub kind: String,
    /// Phase.
    pub phase: String,
    /// Precision.
    pub precision: String,
    /// Rows of the chip.
    pub rows: usize,
    /// MAPE of max(operations / peak, bytes / bandwidth).
    pub roofline: f64,
    /// MAPE of the roofline with the efficiency that the other chips reach.
    pub constant: f64,
    /// MAPE of the model of the nearest chip that has rows, scaled by peak, bandwidth and multiprocessors.
    pub nearest: Option<f64>,
    /// The models of all other chips.
    pub zero: Score,
    /// With so many own rows of all kinds together.
    pub few: Vec<(usize, Score)>,
}

impl Line {
    fn few(&self, rows: usize) -> Option<&Score> {
        self.few.iter().find(|(n, _)| *n == rows).map(|(_, score)| score)
    }
}

/// Kinds whose means are the headline.
const MAIN: [&str; 3] = ["conv2d", "linear", "matmul"];

fn levels(lines: &[Line]) -> BTreeSet<usize> {
    lines.iter().flat_map(|l| l.few.iter().map(|(n, _)| *n)).collect()
}

fn maybe(value: Option<f64>) -> String {
    value.map_or("-".to_string(), percent)
}

/// Every chip, kind, phase and precision.
fn table(lines: &[Line]) -> Table {
    let levels = levels(lines);
    let header: Vec<String> = ["chip", "kind", "phase", "precision", "rows", "roofline", "constant", "nearest chip"]
        .into_iter()
        .chain(["no own row", "median", "held %"])
        .map(str::to_string)
        .chain(levels.iter().flat_map(|n| [format!("{n} rows"), "median".into(), "held %".into()]))
        .collect();
    let mut table = Table::new(&header.iter().map(String::as_str).collect::<Vec<_>>(), 4);
    for l in lines {
        let mut cells = vec![l.chip.clone(), l.kind.clone(), l.phase.clone(), l.precision.clone(), l.rows.to_string()];
        cells.extend([percent(l.roofline), percent(l.constant), maybe(l.nearest)]);
        let scores = std::iter::once(Some(&l.zero)).chain(levels.iter().map(|&n| l.few(n)));
        for score in scores {
            cells.extend([
                maybe(score.map(|s| s.mape)),
                maybe(score.map(|s| s.median)),
                maybe(score.map(|s| s.coverage)),
            ]);
        }
        table.row(cells);
    }
    table
}

/// Means over chips of one phase's lines, by kind and precision; the last rows are means over chips and the main kinds.
fn means(lines: &[Line]) -> Table {
    let levels = levels(lines);
    let header: Vec<String> =
        ["kind", "phase", "precision", "chips", "roofline", "constant", "nearest chip", "no own row", "held %"]
            .into_iter()
            .map(str::to_string)
            .chain(levels.iter().flat_map(|n| [format!("{n} rows"), "held %".into()]))
            .collect();
    let mut table = Table::new(&header.iter().map(String::as_str).collect::<Vec<_>>(), 3);
    let groups: BTreeSet<(&str, &str, &str)> =
        lines.iter().map(|l| (l.kind.as_str(), l.phase.as_str(), l.precision.as_str())).collect();
    for (kind, phase, precision) in groups {
        let members = |l: &&Line| (l.kind.as_str(), l.phase.as_str(), l.precision.as_str()) == (kind, phase, precision);
        mean_row(&mut table, [kind, phase, precision], &lines.iter().filter(members).collect::<Vec<_>>(), &levels);
    }
    let main = |l: &&Line| MAIN.contains(&l.kind.as_str()) && l.phase == "forward";
    let full: Vec<&Line> = lines.iter().filter(main).filter(|l| l.precision == "fp32").collect();
    let reduced: Vec<&Line> = lines.iter().filter(main).filter(|l| l.precision != "fp32").collect();
    mean_row(&mut table, ["main kinds", "forward", "fp32"], &full, &levels);
    let newest = |l: &&&Line| l.chip != "GH100";
    let older: Vec<&Line> = full.iter().filter(newest).copied().collect();
    mean_row(&mut table, ["main kinds but GH100", "forward", "fp32"], &older, &levels);
    mean_row(&mut table, ["main kinds", "forward", "others"], &reduced, &levels);
    table
}

fn mean_row(table: &mut Table, labels: [&str; 3], lines: &[&Line], levels: &BTreeSet<usize>) {
    let mean = |values: Vec<f64>| (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64);
    let of = |value: &dyn Fn(&Line) -> Option<f64>| maybe(mean(lines.iter().filter_map(|l| value(l)).collect()));
    let chips: BTreeSet<&str> = lines.iter().map(|l| l.chip.as_str()).collect();
    let mut cells: Vec<String> = labels.iter().map(|l| l.to_string()).chain([chips.len().to_string()]).collect();
    cells.extend([of(&|l| Some(l.roofline)), of(&|l| Some(l.constant)), of(&|l| l.nearest)]);
    cells.extend([of(&|l| Some(l.zero.mape)), of(&|l| Some(l.zero.coverage))]);
    for &n in levels {
        cells.extend([of(&|l| Some(l.few(n)?.mape)), of(&|l| Some(l.few(n)?.coverage))]);
    }
    table.row(cells);
}

/// What the tables do not say by themselves.
const REST: &str = "\
## What was learned, and what the rest is

* Intercepts per source of a chip help the few physical candidates, and make no difference to a chip's own many; both end at the same error, and the few make the smaller file. Chips lie apart by what no data sheet says: \
libraries (cuDNN 4 to 9), clocks held under a limit, shared memory per lane. Covariates per chip (watts and second-level cache per peak, lanes per \
multiprocessor) were tried and left out: chips left out were predicted no better. The median of the chips' own polynomials, tried too, was about as good \
as one polynomial, at several times the size. A full covariance of the chips' slopes did no better than their deviations.
* A model must be much worse than an efficiency to give way to it. Demanding that it be better lost more on linear layers than it saved elsewhere.
* GH100 is the farthest from the others: the only chip with cuDNN 9, whose fp32 engines for convolutions are not the older ones, with most of its rows \
shorter than what single calls on the other chips could show, and the only one with tf32, bf16, most memory-bound kinds and most backward phases. Without it there \
is nothing to learn these from.
* GP104 (P4, 75 W) is slow at long linear layers by its power limit, which no size explains: more rows hardly help.
* fp16 without GH100 is 25 to 160 rows a class on three chips, of which one has no tensor cores.
* Few rows are those of all kinds together: of 50, a NeuSight chip has 12 per kind. In the same precision and phase they help at once; convolutions, whose \
algorithms change with the shape, gain least, and where a chip's own fit of thousands of rows ends at 14 to 19 %, so do they. Two sources of one chip lie apart: \
backward rows of one are not helped by forward rows of the other.

";

/// A way of fitting that was tried: MAPE without own rows, forward, fp32, mean over chips.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Trial {
    /// What it is.
    pub fit: &'static str,
    /// Of convolutions, linear layers and matrix products.
    pub kinds: [f64; 3],
    /// Of all three.
    pub mean: f64,
}

impl Row for Trial {
    const COLUMNS: &'static [Column<Self>] = &[
        Column::text("fit", |t| t.fit.to_string()),
        Column::number(MAIN[0], |t| format!("{:.1}", t.kinds[0])),
        Column::number(MAIN[1], |t| format!("{:.1}", t.kinds[1])),
        Column::number(MAIN[2], |t| format!("{:.1}", t.kinds[2])),
        Column::number("mean", |t| format!("{:.1}", t.mean)),
    ];
}

/// Chips that were left out, as they are shown.
#[derive(Clone, Copy, Debug)]
pub struct LeftOut<'a> {
    /// What is told of every chip, kind, phase and precision.
    pub lines: &'a [Line],
    /// Other ways of fitting; only the page has them.
    pub trials: &'a [Trial],
    /// Draws of own rows.
    pub seeds: u64,
    /// Whether shapes of networks that are held out were left out.
    pub evaluation: bool,
}

impl Export for LeftOut<'_> {
    const FORMS: &'static [(Format, &'static str)] = &[
        (Format::Table, "Aligned text"),
        (Format::Markdown, "A page for a report"),
        (Format::Json, "A list of objects, with all digits"),
    ];

    fn export(&self, format: Format) -> Result<String, ExportError> {
        match format {
            Format::Table => Ok(format!("{}\n{}", table(self.lines).to_text(), means(self.lines).to_text())),
            Format::Markdown => Ok(page(self)),
            Format::Json => export::json(self.lines),
            Format::Html | Format::Csv => Err(ExportError::Absent(format)),
        }
    }
}

fn page(left_out: &LeftOut<'_>) -> String {
    let LeftOut { lines, trials, seeds, evaluation } = *left_out;
    let rows = if evaluation {
        "Rows of the shapes of networks that are held out (`data/splits.toml`) are left out everywhere."
    } else {
        "All rows."
    };
    format!(
        "# Layer times of a GPU that was never measured, or hardly\n\n\
         Each chip is left out in turn. *No own row*: what `predict` would say of it from the other chips' rows alone. *20, 50, 100 \
         rows*: so many of its own rows, of all kinds, phases and precisions together (drawn evenly over kinds and precisions \
         and, within these, over roofline times; {seeds} draws), correct those models as `calibrate fit --base` does; judged on \
         its other rows whose shape was not drawn. MAPE in percent; *held*: share of the times in the 90 % interval, which \
         comes from leaving out chips among the others. {rows} At most 500 rows of a source, kind class, phase and precision are \
         judged. Comparators: the roofline; the roofline with one efficiency per kind, phase and precision, the median over \
         the other chips; the same polynomial fitted to the nearest chip alone (by peak, bandwidth and multiprocessors), which has \
         rows of that kind and precision. What a way of measuring adds to a time (the shortest times of its kind) is added to all \
         of them. Chips share DeepBench's and NeuSight's shapes: a chip is new, its shapes are often not.\n\n\
         ## Means over chips\n\n{}\n## Other ways of fitting\n\n\
         MAPE without own rows, forward, fp32, means over chips; every model taken, whether better than an efficiency or not.\n\n{}\n\
         {REST}## Every chip\n\n{}",
        means(lines).to_markdown(),
        Table::of(trials).to_markdown(),
        table(lines).to_markdown(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_are_over_chips() {
        let score = |mape| Score { mape, median: mape, coverage: 90.0 };
        let line = |chip: &str, mape| Line {
            chip: chip.into(),
            kind: "linear".into(),
            phase: "forward".into(),
            precision: "fp32".into(),
            rows: 10,
            roofline: 50.0,
            constant: 40.0,
            nearest: None,
            zero: score(mape),
            few: vec![(20, score(mape / 2.0))],
        };
        let text = means(&[line("GA100", 10.0), line("GH100", 30.0)]).to_text();
        let row = |label: &str| {
            text.lines().find(|l| l.starts_with(label)).map(|l| l.split_whitespace().collect::<Vec<_>>().join(" "))
        };
        assert_eq!(row("linear").as_deref(), Some("linear forward fp32 2 50.0 40.0 - 20.0 90.0 10.0 90.0"));
        assert!(row("main kinds but").is_some_and(|l| l.ends_with("fp32 1 50.0 40.0 - 10.0 90.0 5.0 90.0")));
    }

    #[test]
    fn draws_are_averaged() {
        let score = |mape| Score { mape, median: 1.0, coverage: 80.0 };
        assert_eq!(Score::mean([score(2.0), score(4.0)].into_iter()).map(|s| s.mape), Some(3.0));
        assert!(Score::mean(std::iter::empty()).is_none());
    }
}
