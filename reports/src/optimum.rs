//! What `predict optimize` found: `optimum/1`.

use crate::document::{Block, Document as Page};
use crate::export::{self, Export, ExportError, Format};
use crate::markup::{capital, markdown_text};
use crate::table::{Table, percent_more, significant, with_unit};
use crate::warnings::words;
use joulecast_ask::metric::Metric;
use joulecast_ask::optimum::{Plan, TIED};
#[cfg(feature = "figures")]
use joulecast_model::base::order::sort_by;
use joulecast_model::step::predictor::Warning;
use joulecast_model::step::predictor::{NetworkPrediction, OperatingPoint};
use serde::Serialize;
use std::fmt::Write as _;

/// A candidate: what is set, and what it gives.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// Clock and limit.
    pub point: OperatingPoint,
    /// The prediction there.
    pub prediction: NetworkPrediction,
}

impl Candidate {
    /// What is set, as it is typed; `default` of nothing.
    pub fn setting(&self) -> String {
        let point = &self.point;
        let setting = match (point.core_clock, point.power_cap) {
            (None, None) => "default".into(),
            (Some(clock), None) => format!("--clock {:.0}", clock.to_mhz()),
            (None, Some(cap)) => format!("--power-cap {:.0}", cap.get()),
            (Some(clock), Some(cap)) => format!("--clock {:.0} --power-cap {:.0}", clock.to_mhz(), cap.get()),
        };
        if self.prediction.fits_in_memory { setting } else { setting + ", does not fit" }
    }
}

/// A clock for every layer, beside one clock for all.
#[derive(Clone, Debug)]
pub struct LayerPlan {
    /// Name and phase of every layer, and its clock in MHz.
    pub layers: Vec<(String, String, f64)>,
    /// What it costs.
    pub plan: Plan,
    /// Its metric over that of the best single clock, less one.
    pub gain: f64,
    /// The same if changing the clock took no time.
    pub gain_without_latency: f64,
    /// Time of a change of clock that was assumed, ms.
    pub latency_ms: f64,
}

/// What was found.
#[derive(Clone, Debug)]
pub struct Found {
    /// Network and GPU, in words.
    pub title: String,
    /// What was made small.
    pub metric: Metric,
    /// The default, against which gains are.
    pub default: Candidate,
    /// All candidates.
    pub candidates: Vec<Candidate>,
    /// Index of the best.
    pub best: usize,
    /// Index of the best if the core voltage rises as little, and as much, as is likely; empty where that is not asked.
    pub by_voltage: Vec<usize>,
    /// Indices of those tied with it, fastest first.
    pub tied: Vec<usize>,
    /// Indices of the Pareto front of time and energy per sample, fastest first.
    pub front: Vec<usize>,
    /// Per-layer clocks, where asked for.
    pub plan: Option<LayerPlan>,
    /// What to know of the best.
    pub warnings: Vec<Warning>,
}

impl Found {
    /// Whether a candidate is the default.
    fn is_default(&self, candidate: usize) -> bool {
        let key = |c: &Candidate| (c.point, c.prediction.batch);
        key(&self.candidates[candidate]) == key(&self.default)
    }
}

#[derive(Serialize)]
struct Row<'a> {
    network: &'a str,
    batch: u64,
    clock_mhz: Option<f64>,
    power_cap_w: Option<f64>,
    core_clock_mhz: f64,
    time_s: f64,
    power_w: f64,
    energy_j: f64,
    edp_js: f64,
    energy_per_sample_j: f64,
    edp_per_sample_js: f64,
    samples_per_s: f64,
    samples_per_s_per_w: f64,
    gflops_per_w: f64,
    fits_in_memory: bool,
    best: bool,
    tied: bool,
    pareto: bool,
}

#[derive(Serialize)]
struct PlanDocument<'a> {
    switch_latency_ms: f64,
    switches: usize,
    time_s: f64,
    energy_j: f64,
    gain_over_one_clock: f64,
    gain_without_latency: f64,
    layers: Vec<LayerClock<'a>>,
}

#[derive(Serialize)]
struct LayerClock<'a> {
    name: &'a str,
    phase: &'a str,
    clock_mhz: f64,
}

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    title: &'a str,
    metric: String,
    default: Row<'a>,
    /// Settings that are best if the core voltage rises as little, and as much, as is likely.
    best_by_voltage: Vec<String>,
    points: Vec<Row<'a>>,
    per_layer: Option<PlanDocument<'a>>,
    warnings: Vec<String>,
}

fn row(c: &Candidate, best: bool, tied: bool, pareto: bool) -> Row<'_> {
    let p = &c.prediction;
    Row {
        network: &p.network,
        batch: p.batch,
        clock_mhz: c.point.core_clock.map(|f| f.to_mhz()),
        power_cap_w: c.point.power_cap.map(|w| w.get()),
        core_clock_mhz: p.clock.to_mhz(),
        time_s: p.time.value.get(),
        power_w: p.power.value.get(),
        energy_j: p.energy.value.get(),
        edp_js: p.edp().get(),
        energy_per_sample_j: p.energy_per_sample().get(),
        edp_per_sample_js: edp_per_sample(p),
        samples_per_s: p.samples_per_second(),
        samples_per_s_per_w: p.samples_per_joule(),
        gflops_per_w: p.ops_per_joule() / 1e9,
        fits_in_memory: p.fits_in_memory,
        best,
        tied,
        pareto,
    }
}

/// Energy per sample times time per sample, in J s: what is compared where batches differ.
fn edp_per_sample(p: &NetworkPrediction) -> f64 {
    p.edp().get() / (p.batch as f64).powi(2)
}

fn rows(found: &Found) -> Vec<Row<'_>> {
    let each = found.candidates.iter().enumerate();
    each.map(|(i, c)| row(c, i == found.best, found.tied.contains(&i), found.front.contains(&i))).collect()
}

/// One optimum, or several of as many networks.
impl Export for [Found] {
    const FORMS: &'static [(Format, &'static str)] = &[
        (Format::Table, "Aligned text"),
        (Format::Json, "The stable document: optimum/1"),
        (Format::Csv, "A header and a row per point"),
        (Format::Markdown, "For a report"),
        (Format::Html, "One file for a browser, with figures"),
    ];

    fn export(&self, format: Format) -> Result<String, ExportError> {
        let texts = |markdown| self.iter().map(|f| text(f, markdown)).collect::<Vec<_>>().join("\n");
        match (format, self) {
            (Format::Table, _) => Ok(texts(false)),
            (Format::Markdown, _) => Ok(texts(true)),
            (Format::Json, [one]) => export::json(&document(one)),
            (Format::Json, several) => export::json(&several.iter().map(document).collect::<Vec<_>>()),
            (Format::Csv, several) => Ok(csv(several)?),
            (Format::Html, several) => Ok(page(several)?.to_html()),
        }
    }
}

fn document(found: &Found) -> Document<'_> {
    let per_layer = found.plan.as_ref().map(|p| PlanDocument {
        switch_latency_ms: p.latency_ms,
        switches: p.plan.switches,
        time_s: p.plan.cost.time.get(),
        energy_j: p.plan.cost.energy.get(),
        gain_over_one_clock: p.gain,
        gain_without_latency: p.gain_without_latency,
        layers: p
            .layers
            .iter()
            .map(|(name, phase, clock_mhz)| LayerClock { name, phase, clock_mhz: *clock_mhz })
            .collect(),
    });
    Document {
        schema: "optimum/1",
        title: &found.title,
        metric: found.metric.to_string(),
        default: row(&found.default, false, false, false),
        best_by_voltage: found.by_voltage.iter().map(|&i| found.candidates[i].setting()).collect(),
        points: rows(found),
        per_layer,
        warnings: found.warnings.iter().map(words).collect(),
    }
}

/// Every candidate as CSV, with the JSON's keys.
fn csv(found: &[Found]) -> Result<String, csv::Error> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    for row in found.iter().flat_map(rows) {
        writer.serialize(row)?;
    }
    let bytes = writer.into_inner().map_err(|e| csv::Error::from(e.into_error()))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn table(found: &Found, chosen: &[usize]) -> Table {
    // Batches are compared by what a sample takes.
    let batches = found.candidates.iter().any(|c| c.prediction.batch != found.default.prediction.batch);
    let (energy, edp) = if batches { ("energy per step", "EDP per sample") } else { ("energy", "EDP") };
    let header = [
        "setting",
        "batch",
        "MHz",
        "time",
        "power",
        energy,
        edp,
        "energy per sample",
        "samples/s",
        "samples/s/W",
        "GFLOPS/W",
        "time %",
        "energy %",
    ];
    let mut table = Table::new(&header, 1);
    let default = &found.default.prediction;
    let (time, energy) = (1.0 / default.samples_per_second(), default.energy_per_sample());
    let others = chosen.iter().filter(|&&i| !found.is_default(i)).map(|&i| &found.candidates[i]);
    for c in std::iter::once(&found.default).chain(others) {
        let p = &c.prediction;
        table.row(vec![
            c.setting(),
            p.batch.to_string(),
            format!("{:.0}", p.clock.to_mhz()),
            with_unit(p.time.value.get(), "s"),
            with_unit(p.power.value.get(), "W"),
            with_unit(p.energy.value.get(), "J"),
            with_unit(if batches { edp_per_sample(p) } else { p.edp().get() }, "J s"),
            with_unit(p.energy_per_sample().get(), "J"),
            significant(p.samples_per_second(), 3),
            significant(p.samples_per_joule(), 3),
            significant(p.ops_per_joule() / 1e9, 3),
            percent_more(1.0 / p.samples_per_second() / time),
            percent_more(p.energy_per_sample() / energy),
        ]);
    }
    table
}

/// Tables show at most so many points of a list; JSON and CSV have all.
const SHOWN: usize = 12;

/// Some of a list, evenly, its ends among them.
fn thinned(list: &[usize]) -> Vec<usize> {
    if list.len() <= SHOWN {
        return list.to_vec();
    }
    (0..SHOWN).map(|i| list[i * (list.len() - 1) / (SHOWN - 1)]).collect()
}

/// Weight of the energy-delay sum that figures show.
#[cfg(feature = "figures")]
const WEIGHT: f64 = 1.5;

/// Time, power and energy over the limits that were tried, or else over the clocks, of all that have some; one batch alone.
#[cfg(feature = "figures")]
fn figure(found: &[Found]) -> Result<Option<Block>, ExportError> {
    use crate::figure::curves::{Axis, Curves, Panel};
    use joulecast_ask::curve::{Run, relative};
    use joulecast_ask::metric::Reference;
    let panel = |f: &Found, axis| {
        let default = &f.default.prediction;
        let setting = |point: &OperatingPoint| match axis {
            Axis::Cap => point.power_cap.filter(|_| point.core_clock.is_none()).map(|w| w.get()),
            Axis::Clock => point.core_clock.filter(|_| point.power_cap.is_none()).map(|c| c.to_mhz()),
        };
        let alike = f.candidates.iter().filter(|c| c.prediction.batch == default.batch);
        let mut runs: Vec<Run> = alike
            .filter_map(|c| {
                let (time, energy) = (c.prediction.time.value, c.prediction.energy.value);
                Some(Run { setting: setting(&c.point)?, time, energy })
            })
            .collect();
        sort_by(&mut runs, |a, b| a.setting.total_cmp(&b.setting));
        let reference = Reference { time: default.time.value, energy: default.energy.value };
        let title = format!("{}, batch {}", default.network, default.batch);
        (runs.len() > 2).then(|| Panel { title, predicted: relative(&runs, &reference, WEIGHT), measured: Vec::new() })
    };
    for (axis, what) in [(Axis::Cap, "power limit"), (Axis::Clock, "core clock")] {
        let panels: Vec<Panel> = found.iter().filter_map(|f| panel(f, axis)).collect();
        if !panels.is_empty() {
            let title = format!("Energy, time and power over the {what}");
            let curves = Curves { title, axis, weight: WEIGHT, panels, notes: Vec::new() };
            return Ok(Some(Block::Figure(crate::figure::drawn(&curves)?)));
        }
    }
    Ok(None)
}

#[cfg(not(feature = "figures"))]
fn figure(_: &[Found]) -> Result<Option<Block>, ExportError> {
    Ok(None)
}

/// What is gained by the best setting, in one sentence.
fn verdict(f: &Found) -> String {
    let (best, default) = (&f.candidates[f.best], &f.default.prediction);
    if f.is_default(f.best) {
        return format!("{}: nothing that was tried takes less {} than the default.", default.network, f.metric);
    }
    let p = &best.prediction;
    let time = percent_more(default.samples_per_second() / p.samples_per_second());
    let energy = percent_more(p.energy_per_sample() / default.energy_per_sample());
    format!(
        "{} with {}{}: {energy} % energy and {time} % time for each sample, against the default.",
        default.network,
        best.setting(),
        if p.batch == default.batch { String::new() } else { format!(", batch {}", p.batch) },
    )
}

fn tied_words(metric: Metric) -> String {
    format!("tied with it: {metric} per sample within {:.0} % of the best one's, fastest first", 100.0 * TIED)
}

const FRONT: &str = "Pareto front of time and energy, fastest first";

/// The page.
fn page(several: &[Found]) -> Result<Page, ExportError> {
    let mut blocks: Vec<Block> = several.iter().map(|f| Block::Lead(verdict(f))).collect();
    blocks.extend(figure(several)?);
    for f in several {
        if several.len() > 1 {
            blocks.push(Block::Heading(f.title.clone()));
        }
        let lists = [("The best", vec![f.best]), (&tied_words(f.metric), f.tied.clone()), (FRONT, f.front.clone())];
        for (label, chosen) in lists {
            let label = capital(label);
            blocks.push(if several.len() > 1 { Block::Text(label) } else { Block::Heading(label) });
            blocks.push(Block::Table(table(f, &thinned(&chosen))));
        }
        blocks.extend(by_voltage(f).map(|line| Block::Text(format!("{line}."))));
        if let Some(plan) = &f.plan {
            blocks.push(Block::Heading("A clock for each layer".into()));
            blocks.push(Block::Text(format!("{}.", per_layer(plan))));
            blocks.push(Block::Table(clocks(plan)));
        }
        if !f.warnings.is_empty() {
            blocks.push(Block::List(f.warnings.iter().map(words).collect()));
        }
    }
    let title = match several {
        [one] => one.title.clone(),
        several => format!("{} networks: the setting with the least {}", several.len(), several[0].metric),
    };
    Ok(Page { title, blocks })
}

/// What would be the best otherwise.
fn by_voltage(found: &Found) -> Option<String> {
    let [little, much] = found.by_voltage[..] else { return None };
    let of = |i: usize| {
        let c = &found.candidates[i];
        format!("{} (batch {}, {:.0} MHz)", c.setting(), c.prediction.batch, c.prediction.clock.to_mhz())
    };
    Some(format!(
        "best if the core voltage rises with the clock as little as is likely: {}; as much: {}",
        of(little),
        of(much)
    ))
}

fn per_layer(plan: &LayerPlan) -> String {
    let cost = plan.plan.cost;
    format!(
        "a clock per layer, {:.1} ms for each of {} changes: {} and {} per step, {} % against the best single clock ({} % if changes took no time)",
        plan.latency_ms,
        plan.plan.switches,
        with_unit(cost.time.get(), "s"),
        with_unit(cost.energy.get(), "J"),
        percent_more(1.0 + plan.gain),
        percent_more(1.0 + plan.gain_without_latency)
    )
}

/// Layers that follow each other at one clock are one line.
fn clocks(plan: &LayerPlan) -> Table {
    let mut table = Table::new(&["layers", "phase", "MHz"], 2);
    let mut i = 0;
    while i < plan.layers.len() {
        let (name, phase, clock) = &plan.layers[i];
        let run = plan.layers[i..].iter().take_while(|(_, p, c)| p == phase && c == clock).count();
        let last = &plan.layers[i + run - 1].0;
        let names = if run == 1 { name.clone() } else { format!("{name} to {last}") };
        table.row(vec![names, phase.clone(), format!("{clock:.0}")]);
        i += run;
    }
    table
}

/// The readable report, or the same in Markdown.
fn text(found: &Found, markdown: bool) -> String {
    let print = |t: &Table| if markdown { t.to_markdown() } else { t.to_text() };
    let metric = found.metric;
    let mut text =
        format!("{}\nleast {metric} per sample; time and energy per sample against the default\n", found.title);
    let tied = tied_words(metric);
    for (label, chosen) in [("best", vec![found.best]), (&tied, found.tied.clone()), (FRONT, found.front.clone())] {
        let shown = thinned(&chosen);
        let some =
            if shown.len() < chosen.len() { format!(", {} of {}", shown.len(), chosen.len()) } else { String::new() };
        let also = if chosen.iter().any(|&i| found.is_default(i)) {
            ""
        } else {
            " (the first row is the default, to compare with)"
        };
        let _ = write!(text, "\n{label}{some}{also}\n\n{}", print(&table(found, &shown)));
    }
    if let Some(line) = by_voltage(found) {
        let _ = writeln!(text, "\n{line}");
    }
    if let Some(plan) = &found.plan {
        let _ = write!(text, "\n{}\n\n{}", per_layer(plan), print(&clocks(plan)));
    }
    for warning in &found.warnings {
        let _ = write!(text, "\n{} {}", if markdown { "-" } else { "note:" }, words(warning));
    }
    if !found.warnings.is_empty() {
        text.push('\n');
    }
    if markdown { markdown_text(&text) } else { text }
}
