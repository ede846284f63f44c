//! Layouts of a language model over the GPUs of a node: `layouts/1`.

use crate::document::{Block, Document as Page};
use crate::export::{self, Export, ExportError, Format};
use crate::markup::{capital, markdown_text};
use crate::record;
use crate::table::{Table, significant, with_unit};
use crate::warnings::words;
use joulecast_ask::layouts::{Held, LaidOut, Load, Refused};
use joulecast_model::device::gpu::Gpu;
use joulecast_model::step::predictor::Warning;
use serde::Serialize;

/// Layouts as they are shown.
#[derive(Debug)]
pub struct Layouts<'a> {
    /// The network.
    pub network: &'a str,
    /// The GPU.
    pub gpu: &'a Gpu,
    /// What joins them.
    pub interconnect: &'a str,
    /// Storage and arithmetic.
    pub precision: &'a str,
    /// Framework profile.
    pub framework: &'a str,
    /// What is asked of each.
    pub load: Load,
    /// The layouts.
    pub list: &'a [LaidOut],
    /// What to tell.
    pub warnings: &'a [Warning],
}

/// Keys are added, never renamed.
#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    network: &'a str,
    gpu: &'a str,
    interconnect: &'a str,
    precision: &'a str,
    framework: &'a str,
    batch: u64,
    context: u64,
    layouts: Vec<Line>,
    warnings: Vec<String>,
}

/// A layout. Times and energies are of a token of every sample at the end of the context, whether or not that fits.
#[derive(Serialize)]
struct Line {
    tensor_parallel: u64,
    pipeline_parallel: u64,
    expert_parallel: u64,
    data_parallel: u64,
    gpus: u64,
    fits: bool,
    /// Why not.
    why: Option<String>,
    memory_bytes: Option<u64>,
    weights_bytes: Option<u64>,
    cache_bytes: Option<u64>,
    largest_batch: Option<u64>,
    largest_context: Option<u64>,
    time_per_token_s: Option<f64>,
    time_per_token_s_p05: Option<f64>,
    time_per_token_s_p95: Option<f64>,
    tokens_per_s: Option<f64>,
    power_w: Option<f64>,
    energy_per_token_j: Option<f64>,
    energy_per_token_j_p05: Option<f64>,
    energy_per_token_j_p95: Option<f64>,
}

/// Why a layout does not hold the load; none where it does.
fn why(laid: &LaidOut) -> Option<String> {
    match &laid.outcome {
        Err(Refused::Divides(why)) => Some(why.to_string()),
        Err(Refused::Batch(why)) => Some(why.to_string()),
        Ok(held) if held.fits() => None,
        Ok(held) if held.memory.weights > held.has => {
            Some(format!("weights alone are {:.1} of {:.1} GiB", held.memory.weights.to_gib(), held.has.to_gib()))
        }
        Ok(held) => Some(format!("takes {:.1} of {:.1} GiB", held.memory.total().to_gib(), held.has.to_gib())),
    }
}

impl Line {
    fn of(laid: &LaidOut) -> Self {
        let (layout, held) = (laid.layout, laid.outcome.as_ref().ok());
        let token = held.map(|held| held.token);
        Self {
            tensor_parallel: layout.tensor(),
            pipeline_parallel: layout.pipeline(),
            expert_parallel: layout.expert(),
            data_parallel: layout.data(),
            gpus: layout.gpus(),
            fits: held.is_some_and(Held::fits),
            why: why(laid),
            memory_bytes: held.map(|h| h.memory.total().get()),
            weights_bytes: held.map(|h| h.memory.weights.get()),
            cache_bytes: held.map(|h| h.memory.cache.get()),
            largest_batch: held.and_then(|h| h.largest_batch),
            largest_context: held.and_then(|h| h.largest_context),
            time_per_token_s: token.map(|t| t.time.value.get()),
            time_per_token_s_p05: token.map(|t| t.time.p05.get()),
            time_per_token_s_p95: token.map(|t| t.time.p95.get()),
            tokens_per_s: token.map(|t| t.per_second),
            power_w: token.map(|t| t.power.value.get()),
            energy_per_token_j: token.map(|t| t.energy.value.get()),
            energy_per_token_j_p05: token.map(|t| t.energy.p05.get()),
            energy_per_token_j_p95: token.map(|t| t.energy.p95.get()),
        }
    }
}

impl Layouts<'_> {
    fn document(&self) -> Document<'_> {
        Document {
            schema: "layouts/1",
            network: self.network,
            gpu: &self.gpu.name,
            interconnect: self.interconnect,
            precision: self.precision,
            framework: self.framework,
            batch: self.load.batch,
            context: self.load.context,
            layouts: self.list.iter().map(Line::of).collect(),
            warnings: self.warnings.iter().map(words).collect(),
        }
    }

    fn title(&self) -> String {
        format!(
            "layouts of {} over {} ({}), {}, {} profile: batch {}, context {}",
            self.network,
            self.gpu.name,
            self.interconnect,
            self.precision,
            self.framework,
            self.load.batch,
            self.load.context
        )
    }

    fn table(&self) -> Table {
        let header = [
            "GPUs",
            "tensor",
            "pipeline",
            "expert",
            "data",
            "GiB each",
            "largest batch",
            "largest context",
            "per token",
            "90 % interval",
            "tokens/s",
            "power",
            "J/token",
            "",
        ];
        let mut table = Table::new(&header, 0).with_trailing_text(1);
        for laid in self.list {
            let (layout, why) = (laid.layout, why(laid).unwrap_or_default());
            let numbers = [layout.gpus(), layout.tensor(), layout.pipeline(), layout.expert(), layout.data()];
            let mut cells: Vec<String> = numbers.iter().map(u64::to_string).collect();
            let none = |n: Option<u64>| n.map_or("none".into(), |n| n.to_string());
            cells.extend(match &laid.outcome {
                Err(_) => vec![String::new(); 8],
                Ok(held) => {
                    let (token, fits) = (held.token, held.fits());
                    let time = token.time;
                    let (low, high) = (with_unit(time.p05.get(), "s"), with_unit(time.p95.get(), "s"));
                    // What does not fit does not run.
                    let of = |text: String| if fits { text } else { String::new() };
                    vec![
                        format!("{:.1}", held.memory.total().to_gib()),
                        none(held.largest_batch),
                        none(held.largest_context),
                        of(with_unit(time.value.get(), "s")),
                        of(format!("{low} to {high}")),
                        of(significant(token.per_second, 3)),
                        of(with_unit(token.power.value.get(), "W")),
                        of(significant(token.energy.value.get(), 3)),
                    ]
                }
            });
            cells.push(why);
            table.row(cells);
        }
        table
    }
}

/// Where the figures stop.
const LOAD: &str = "of the fullest GPU; the largest batch at that context and the longest context at that batch that fit; a token of every sample \
    at the end of the context. Prompts are taken to be filled in parts.";

impl Export for Layouts<'_> {
    const FORMS: &'static [(Format, &'static str)] = &[
        (Format::Table, "Aligned text"),
        (Format::Json, "The stable document: layouts/1"),
        (Format::Csv, "A row per layout"),
        (Format::Markdown, "For a report"),
        (Format::Html, "One file for a browser"),
    ];

    fn export(&self, format: Format) -> Result<String, ExportError> {
        let notes = |before: &str| self.warnings.iter().map(|w| format!("{before}{}\n", words(w))).collect::<String>();
        match format {
            Format::Table => Ok(format!("{}\n\n{}\n{LOAD}\n{}", self.title(), self.table().to_text(), notes("note: "))),
            Format::Markdown => {
                let text = format!("## {}\n\n{}\n{LOAD}\n\n{}", self.title(), self.table().to_markdown(), notes("- "));
                Ok(markdown_text(&text))
            }
            Format::Json => export::json(&self.document()),
            Format::Csv => {
                let lines = self.list.iter().map(|laid| serde_json::to_value(Line::of(laid)));
                Ok(record::csv(&lines.collect::<Result<Vec<_>, _>>()?, &[]))
            }
            Format::Html => {
                let mut blocks = vec![Block::Table(self.table()), Block::Text(format!("Memory {LOAD}"))];
                if !self.warnings.is_empty() {
                    blocks.push(Block::List(self.warnings.iter().map(words).collect()));
                }
                Ok(Page { title: capital(&self.title()), blocks }.to_html())
            }
        }
    }
}
