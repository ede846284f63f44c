//! A prediction as table, JSON, CSV and Markdown: the contract `prediction/1`.

use crate::export::{self, ExportError, Format};
use crate::layout;
use crate::markup::markdown_text;
use crate::record::{self, Figures};
use crate::table::{Table, interval, significant, thousands, with_unit};
use crate::verdict::{self, Verdict};
use crate::warnings::words;
use joulecast_model::base::units::Seconds;
use joulecast_model::device::gpu::Gpu;
use joulecast_model::law::calibration::Tier;
use joulecast_model::step::framework::Launch;
use joulecast_model::step::groups::groups;
use joulecast_model::step::parallel::DevicePrediction;
use joulecast_model::step::predictor::{Estimate, HostOf, LayerPrediction, NetworkPrediction};
use joulecast_model::step::training::Training;
use serde::Serialize;
use std::fmt::Write as _;

/// What the user typed, for the record.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// The GPU as typed.
    pub gpu: &'a str,
    /// Where the network came from: `zoo`, `file`, `onnx`, `prototxt` or `huggingface`.
    pub source: &'a str,
    /// Framework profile.
    pub framework: &'a str,
    /// How a step is launched.
    pub launch: Launch,
    /// The whole training, where one is asked for.
    pub training: Option<Training>,
}

/// The JSON document, in the order of the contract. Keys are added, never renamed.
#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    network: &'a str,
    source: &'a str,
    batch: u64,
    precision: &'a str,
    mode: &'a str,
    framework: &'a str,
    launch: &'a str,
    host: Option<HostDocument<'a>>,
    gpu: &'a str,
    gpus: u64,
    devices: Vec<Device<'a>>,
    core_clock_mhz: f64,
    memory_clock_mhz: Option<f64>,
    power_cap_w: Option<f64>,
    calibration: CalibrationRef<'a>,
    #[serde(flatten)]
    figures: Figures,
    /// In which no kernel runs: layers and this add up to `time_s`.
    waiting_s: f64,
    gflops_per_w: f64,
    ops: u64,
    read_bytes: u64,
    written_bytes: u64,
    ctc_ops_per_byte: Option<f64>,
    parameters: u64,
    memory_bytes: u64,
    memory: Memory,
    fits_in_memory: bool,
    bound_s: f64,
    communication: Option<CommunicationOf<'a>>,
    input: Option<InputOf>,
    training: Option<TrainingOf>,
    phases: serde_json::Map<String, serde_json::Value>,
    layers: Vec<Layer<'a>>,
    warnings: Vec<String>,
    verdict: verdict::Document,
    /// Only of a language model on several GPUs.
    #[serde(skip_serializing_if = "Option::is_none")]
    layout: Option<layout::Document>,
    /// Only where a language model generates: everything above is of the whole answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    generation: Option<serde_json::Value>,
}

/// The host of an eager step.
#[derive(Serialize)]
struct HostDocument<'a> {
    /// How many times as long as the profile says its launches take.
    factor: f64,
    /// 90 % of steps that it decides lie within this factor.
    spread: f64,
    /// Who says how fast it is; null where nobody does.
    source: Option<&'a str>,
    decides: bool,
}

impl<'a> HostDocument<'a> {
    fn of(host: &'a HostOf) -> Self {
        Self { factor: host.factor, spread: host.spread, source: host.source.as_deref(), decides: host.decides }
    }
}

/// Powers and energies are of each of the `count` GPUs.
#[derive(Serialize)]
struct Device<'a> {
    gpu: &'a str,
    count: u64,
    batch: u64,
    core_clock_mhz: f64,
    busy_s: f64,
    power_w: f64,
    energy_j: f64,
    /// What of that is drawn while it waits for the others or for gradients.
    waiting_energy_j: f64,
}

impl<'a> Device<'a> {
    fn of(d: &'a DevicePrediction) -> Self {
        Self {
            gpu: &d.gpu,
            count: d.count,
            batch: d.batch,
            core_clock_mhz: d.clock.to_mhz(),
            busy_s: d.time.get(),
            power_w: d.power.value.get(),
            energy_j: d.energy.value.get(),
            waiting_energy_j: d.waiting.get(),
        }
    }
}

/// Of one GPU, in bytes.
#[derive(Serialize)]
struct Memory {
    weights: u64,
    gradients: u64,
    optimizer_state: u64,
    activations: u64,
    cache: u64,
    workspace: u64,
    context: u64,
}

#[derive(Serialize)]
struct CommunicationOf<'a> {
    interconnect: &'a str,
    gradient_bytes: u64,
    time_s: f64,
    exposed_s: f64,
}

/// What the step waits for its samples; a part of `waiting_s`.
#[derive(Serialize)]
struct InputOf {
    samples_per_s: f64,
    waits_s: f64,
}

#[derive(Serialize)]
struct TrainingOf {
    epochs: u64,
    dataset_size: u64,
    iterations: u64,
    start_s: f64,
    time_s: f64,
    time_s_p05: f64,
    time_s_p95: f64,
    energy_j: f64,
    energy_j_p05: f64,
    energy_j_p95: f64,
    energy_kwh: f64,
    edp_js: f64,
    price_per_kwh: Option<f64>,
    cost: Option<f64>,
}

impl TrainingOf {
    fn of(t: &Training) -> Self {
        Self {
            epochs: t.plan.epochs,
            dataset_size: t.plan.dataset_size,
            iterations: t.iterations,
            start_s: t.plan.start.get(),
            time_s: t.time.value.get(),
            time_s_p05: t.time.p05.get(),
            time_s_p95: t.time.p95.get(),
            energy_j: t.energy.value.get(),
            energy_j_p05: t.energy.p05.get(),
            energy_j_p95: t.energy.p95.get(),
            energy_kwh: t.kilowatt_hours(),
            edp_js: t.edp().get(),
            price_per_kwh: t.plan.price_per_kwh,
            cost: t.cost,
        }
    }
}

#[derive(Serialize)]
struct CalibrationRef<'a> {
    id: &'a str,
    time_tier: &'a str,
    power_tier: &'a str,
}

#[derive(Serialize)]
struct Layer<'a> {
    name: &'a str,
    kind: &'a str,
    phase: &'a str,
    ops: u64,
    read_bytes: u64,
    written_bytes: u64,
    time_s: f64,
    time_s_p05: f64,
    time_s_p95: f64,
    power_w: f64,
    energy_j: f64,
    bound_s: f64,
    bound_by: &'a str,
    tier: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    algorithm: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    engine: Option<&'a str>,
    in_domain: bool,
    jump: Option<&'a str>,
}

fn document<'a>(p: &'a NetworkPrediction, asked: &Asked<'a>, generation: Option<serde_json::Value>) -> Document<'a> {
    let clock = p.clock.to_mhz();
    let bytes = (p.read + p.written).to_f64();
    let phase = |t: &joulecast_model::step::predictor::PhaseTotal| {
        (t.phase.to_string(), serde_json::json!({"time_s": t.time.get(), "energy_j": t.energy.get()}))
    };
    let layer = |l: &'a LayerPrediction| Layer {
        name: &l.name,
        kind: l.kind,
        phase: l.phase.name(),
        ops: l.ops.get(),
        read_bytes: l.read.get(),
        written_bytes: l.written.get(),
        time_s: l.time.value.get(),
        time_s_p05: l.time.p05.get(),
        time_s_p95: end_within(l.time, p).get(),
        power_w: l.power.get(),
        energy_j: l.energy.get(),
        bound_s: l.bound.get(),
        bound_by: l.bound_by.name(),
        tier: l.tier.name(),
        algorithm: l.algorithm.map(|a| a.name()),
        engine: l.engine.as_deref(),
        in_domain: l.in_domain,
        jump: l.jump.as_deref(),
    };
    Document {
        schema: "prediction/1",
        network: &p.network,
        source: asked.source,
        batch: p.batch,
        precision: p.precision.name(),
        mode: p.mode.name(),
        framework: asked.framework,
        launch: asked.launch.name(),
        host: p.host.as_ref().map(HostDocument::of),
        gpu: asked.gpu,
        gpus: p.devices.iter().map(|d| d.count).sum(),
        devices: p.devices.iter().map(Device::of).collect(),
        core_clock_mhz: clock,
        memory_clock_mhz: p.memory_clock.map(|c| c.to_mhz()),
        power_cap_w: p.power_cap.map(|c| c.get()),
        calibration: CalibrationRef {
            id: &p.calibration,
            time_tier: p.time_tier.name(),
            power_tier: p.power_tier.name(),
        },
        figures: Figures::of(&p.summary(), p.batch),
        waiting_s: p.waiting * p.time.value.get(),
        gflops_per_w: p.ops_per_joule() / 1e9,
        ops: p.ops.get(),
        read_bytes: p.read.get(),
        written_bytes: p.written.get(),
        ctc_ops_per_byte: (bytes > 0.0).then(|| p.ops.to_f64() / bytes),
        parameters: p.parameters,
        memory_bytes: p.memory.total().get(),
        memory: Memory {
            weights: p.memory.weights.get(),
            gradients: p.memory.gradients.get(),
            optimizer_state: p.memory.optimizer_state.get(),
            activations: p.memory.activations.get(),
            cache: p.memory.cache.get(),
            workspace: p.memory.workspace.get(),
            context: p.memory.context.get(),
        },
        fits_in_memory: p.fits_in_memory,
        bound_s: p.bound.get(),
        communication: p.communication.as_ref().map(|c| CommunicationOf {
            interconnect: &c.interconnect,
            gradient_bytes: c.bytes.get(),
            time_s: c.time.get(),
            exposed_s: c.exposed.get(),
        }),
        input: p.fed.map(|f| InputOf { samples_per_s: f.samples_per_second, waits_s: f.waits.get() }),
        training: asked.training.as_ref().map(TrainingOf::of),
        phases: p.phases.iter().map(phase).collect(),
        layers: p.layers.iter().map(layer).collect(),
        warnings: p.warnings.iter().map(words).collect(),
        verdict: Verdict::of(p).document(),
        layout: p.layout.as_ref().map(layout::Document::of),
        generation,
    }
}

/// JSON and CSV of a prediction, or of the answer that `generation` is about. CSV is one row with a header, the JSON's keys,
/// nested ones joined by dots, without the layers; or with `layers` a row for each of these, without all else.
pub(crate) fn data(
    p: &NetworkPrediction,
    asked: &Asked<'_>,
    generation: Option<serde_json::Value>,
    layers: bool,
    format: Format,
) -> Result<String, ExportError> {
    let document = document(p, asked, generation);
    match format {
        Format::Json => export::json(&document),
        Format::Csv if layers => {
            // The same columns whatever the layers are of: these two not every layer has.
            let columns = |layer: &Layer<'_>| -> Result<serde_json::Value, ExportError> {
                let mut row = serde_json::to_value(layer)?;
                if let Some(row) = row.as_object_mut() {
                    for key in ["algorithm", "engine"] {
                        let value = row.shift_remove(key).unwrap_or_default();
                        row.insert(key.to_string(), value);
                    }
                }
                Ok(row)
            };
            let rows: Vec<_> = document.layers.iter().map(columns).collect::<Result<_, _>>()?;
            Ok(record::csv(&rows, &[]))
        }
        Format::Csv => Ok(record::csv(&[serde_json::to_value(document)?], &["layers", "devices", "verdict"])),
        Format::Table | Format::Markdown | Format::Html => Err(ExportError::Absent(format)),
    }
}

/// A prediction as it is shown: `prediction/1`.
#[derive(Clone, Copy, Debug)]
pub struct Shown<'a, P = NetworkPrediction> {
    /// What was predicted.
    pub prediction: &'a P,
    /// The GPU, of several kinds the first.
    pub gpu: &'a Gpu,
    /// What was typed.
    pub asked: &'a Asked<'a>,
    /// Whether tables show every layer, not only the costliest.
    pub layers: bool,
}

/// How many groups of layers the short table shows.
const COSTLIEST: usize = 10;

/// The totals as lines of label, value and interval.
pub(crate) fn totals(p: &NetworkPrediction, gpu: &Gpu) -> Table {
    let mut table = Table::new(&["per step", "value", "90 % interval"], 3);
    let mut row = |label: &str, value: String, interval: String| table.row(vec![label.into(), value, interval]);
    row("time", with_unit(p.time.value.get(), "s"), interval(p.time.p05.get(), p.time.p95.get(), "s"));
    row("power", with_unit(p.power.value.get(), "W"), interval(p.power.p05.get(), p.power.p95.get(), "W"));
    row("energy", with_unit(p.energy.value.get(), "J"), interval(p.energy.p05.get(), p.energy.p95.get(), "J"));
    row("EDP", with_unit(p.edp().get(), "J s"), String::new());
    row("throughput", format!("{} samples/s", significant(p.samples_per_second(), 3)), String::new());
    if let Some(fed) = p.fed {
        let rate = format!("{} samples/s are fed", significant(fed.samples_per_second, 3));
        row("waits for input", with_unit(fed.waits.get(), "s"), rate);
    }
    row("per sample", with_unit(p.energy_per_sample().get(), "J"), String::new());
    let efficiency = format!("{} samples/s/W", significant(p.samples_per_joule(), 3));
    row("efficiency", efficiency, format!("{} GFLOPS/W", significant(p.ops_per_joule() / 1e9, 3)));
    let fits = if p.fits_in_memory { "fits in" } else { "does not fit in" };
    let memory = format!("{:.2} GiB", p.memory.total().to_gib());
    let each = if gpus(p) > 1 { " each" } else { "" };
    let room = match p.devices.len() {
        0 | 1 => format!("{fits} {:.1} GiB", gpu.memory.value.to_gib()),
        _ => format!("{fits} the memory of every kind of GPU"),
    };
    row("memory", memory + each, room);
    let more = if p.bound > p.time.value { ": kernels do with fewer operations" } else { "" };
    let of_time = format!("{:.0} % of the time{more}", 100.0 * (p.bound / p.time.value));
    row("direct roofline", with_unit(p.bound.get(), "s"), of_time);
    table
}

/// Layers by kind and phase, the costliest first, and how many kinds are left out that take less.
pub(crate) fn group_table(p: &NetworkPrediction) -> (Table, usize) {
    let training = p.phases.len() > 1;
    let mut header = vec!["kind"];
    if training {
        header.push("phase");
    }
    let text_columns = header.len();
    header.extend(["kernels", "time", "share", "90 % interval", "power", "energy", "Gop", "MB", "roofline"]);
    header.extend(["bound by", "rests on", "costliest"]);
    let mut table = Table::new(&header, text_columns).with_trailing_text(3);
    let groups = groups(&p.layers);
    for g in groups.iter().take(COSTLIEST) {
        let mut cells = vec![g.kind.to_string()];
        if training {
            cells.push(g.phase.to_string());
        }
        let outside = if g.outside / g.time.value >= WORTH_A_STAR { " *" } else { "" };
        let costliest = g.costliest;
        let of_it = || format!(" ({:.1} %)", 100.0 * (costliest.time.value / p.time.value));
        cells.extend([
            g.count.to_string(),
            with_unit(g.time.value.get(), "s"),
            format!("{:.1} %", 100.0 * (g.time.value / p.time.value)),
            interval(g.time.p05.get(), end_within(g.time, p).get(), "s"),
            with_unit(g.power().get(), "W"),
            with_unit(g.energy.get(), "J"),
            significant(g.ops.to_f64() / 1e9, 3),
            significant(g.bytes.to_f64() / 1e6, 3),
            with_unit(g.bound.get(), "s"),
            g.bound_by.to_string(),
            format!("{}{outside}", g.tier),
            format!("{}{}", costliest.name, if g.count > 1 { of_it() } else { String::new() }),
        ]);
        table.row(cells);
    }
    (table, groups.len().saturating_sub(COSTLIEST))
}

/// The upper end of a part's time: not beyond the whole's, since it takes no longer than the whole.
fn end_within(part: Estimate<Seconds>, whole: &NetworkPrediction) -> Seconds {
    part.p95.min(whole.time.p95).max(part.value)
}

/// The share of a group's time from which on its lying outside of what was measured is told.
const WORTH_A_STAR: f64 = 0.01;

/// A table of all layers, in order.
pub(crate) fn layer_table(p: &NetworkPrediction) -> Table {
    let training = p.phases.len() > 1;
    let mut header = vec!["layer", "kind"];
    if training {
        header.push("phase");
    }
    let text_columns = header.len();
    header.extend([
        "time",
        "share",
        "90 % interval",
        "power",
        "energy",
        "Gop",
        "MB",
        "roofline",
        "bound by",
        "rests on",
    ]);
    let mut table = Table::new(&header, text_columns).with_trailing_text(2);
    for l in &p.layers {
        let mut cells = vec![l.name.to_string(), l.kind.to_string()];
        if training {
            cells.push(l.phase.to_string());
        }
        let outside = if starred(l) { " *" } else { "" };
        cells.extend([
            with_unit(l.time.value.get(), "s"),
            format!("{:.1} %", 100.0 * (l.time.value / p.time.value)),
            interval(l.time.p05.get(), end_within(l.time, p).get(), "s"),
            with_unit(l.power.get(), "W"),
            with_unit(l.energy.get(), "J"),
            significant(l.ops.to_f64() / 1e9, 3),
            significant((l.read + l.written).to_f64() / 1e6, 3),
            with_unit(l.bound.get(), "s"),
            l.bound_by.to_string(),
            format!("{}{outside}{}", l.tier, l.jump.as_ref().map_or(String::new(), |name| format!(", {name}"))),
        ]);
        table.row(cells);
    }
    table
}

fn gpus(p: &NetworkPrediction) -> u64 {
    p.devices.iter().map(|d| d.count).sum()
}

/// What each kind of GPU does, and what they wait for; nothing of one GPU.
pub(crate) fn sharing(p: &NetworkPrediction) -> Option<Table> {
    p.communication.as_ref()?;
    let mut table =
        Table::new(&["GPUs", "samples each", "busy", "power each", "energy each", "of it waiting", "MHz"], 1);
    for d in &p.devices {
        table.row(vec![
            format!("{} x {}", d.count, d.gpu),
            d.batch.to_string(),
            format!("{:.0} %", 100.0 * (d.time / p.time.value)),
            with_unit(d.power.value.get(), "W"),
            with_unit(d.energy.value.get(), "J"),
            with_unit(d.waiting.get(), "J"),
            format!("{:.0}", d.clock.to_mhz()),
        ]);
    }
    Some(table)
}

/// The sum of gradients in words; none where there is none.
pub(crate) fn reduced(p: &NetworkPrediction) -> Option<String> {
    let c = p.communication.as_ref().filter(|c| c.time.get() > 0.0)?;
    Some(format!(
        "all-reduce of {:.0} MB over {}: {}, of which the step waits for {}",
        c.bytes.to_f64() / 1e6,
        c.interconnect,
        with_unit(c.time.get(), "s"),
        with_unit(c.exposed.get(), "s")
    ))
}

/// The whole training.
pub(crate) fn whole(t: &Training) -> Table {
    let title = thousands(&format!("{} epochs of {} samples", t.plan.epochs, t.plan.dataset_size));
    let mut table = Table::new(&[title.as_str(), "value", "90 % interval"], 3);
    let hours = |s: f64| if s < 3600.0 { with_unit(s, "s") } else { format!("{} h", significant(s / 3600.0, 3)) };
    let kwh = |j: f64| format!("{} kWh", significant(j / 3.6e6, 3));
    let mut row = |label: &str, value: String, interval: String| table.row(vec![label.into(), value, interval]);
    row("iterations", thousands(&t.iterations.to_string()), String::new());
    if t.plan.start.get() > 0.0 {
        row("program start", with_unit(t.plan.start.get(), "s"), String::new());
    }
    let (low, high) = (t.time.p05.get(), t.time.p95.get());
    row("time", hours(t.time.value.get()), format!("{} to {}", hours(low), hours(high)));
    let (low, high) = (t.energy.p05.get(), t.energy.p95.get());
    row("energy", kwh(t.energy.value.get()), format!("{} to {}", kwh(low), kwh(high)));
    row("EDP", with_unit(t.edp().get(), "J s"), String::new());
    if let (Some(cost), Some(price)) = (t.cost, t.plan.price_per_kwh) {
        row("cost", significant(cost, 3), format!("at {price} per kWh"));
    }
    table
}

/// Phases of a training's step.
pub(crate) fn phase_table(p: &NetworkPrediction) -> Table {
    let mut table = Table::new(&["phase", "time", "energy"], 1);
    for t in &p.phases {
        table.row(vec![t.phase.to_string(), with_unit(t.time.get(), "s"), with_unit(t.energy.get(), "J")]);
    }
    table
}

/// What memory is taken by.
pub(crate) fn memory(p: &NetworkPrediction) -> String {
    let m = &p.memory;
    let parts = [
        ("weights", m.weights),
        ("gradients", m.gradients),
        ("optimizer", m.optimizer_state),
        ("activations", m.activations),
        ("cache", m.cache),
        ("workspace", m.workspace),
        ("context", m.context),
    ];
    let shown = parts.iter().filter(|(_, bytes)| bytes.get() > 0);
    let mib = |bytes: &joulecast_model::base::units::Bytes| significant(bytes.to_f64() / 1_048_576.0, 3);
    shown.map(|(name, bytes)| format!("{name} {}", mib(bytes))).collect::<Vec<_>>().join(", ") + " MiB"
}

pub(crate) fn heading(p: &NetworkPrediction, gpu: &Gpu, asked: &Asked<'_>) -> String {
    let count = gpus(p);
    let title = match p.devices.len() {
        1 if count == 1 => gpu.title.clone(),
        1 => format!("{count} x {}", gpu.title),
        _ => format!("{count} GPUs"),
    };
    let each = p.devices.first().filter(|_| count > 1).map(|d| format!(" ({} on each GPU)", d.batch));
    let title = if title == asked.gpu { String::new() } else { format!(" ({title})") };
    format!(
        "{} on {}{title}, batch {}{}, {} {}, {} profile ({}), {:.0} MHz{}",
        p.network,
        asked.gpu,
        p.batch,
        each.unwrap_or_default(),
        p.precision,
        p.mode,
        asked.framework,
        asked.launch,
        p.clock.to_mhz(),
        p.power_cap.map_or(String::new(), |cap| format!(", limit {:.0} W", cap.get()))
    )
}

pub(crate) fn provenance(p: &NetworkPrediction) -> String {
    format!("time: {} ({}); power: {}", p.time_tier, p.calibration, p.power_tier)
}

/// What the tables of kernels say in few signs, in words.
pub(crate) fn footnotes(p: &NetworkPrediction) -> impl Iterator<Item = &'static str> {
    let outside = p.layers.iter().any(starred).then_some("* outside of what was measured: wider interval");
    let beyond = p.layers.iter().any(|l| l.time.value < l.bound * BEYOND).then_some(
        "faster than their roofline: kernels that find part of what they read in a cache, or whose algorithm saves operations",
    );
    outside.into_iter().chain(beyond)
}

/// Of a bound: what is nearer shows the same digits.
const BEYOND: f64 = 0.995;

/// A bound is never inside of what was measured; saying so once, in the tier, is enough.
pub(crate) fn starred(l: &LayerPrediction) -> bool {
    !l.in_domain && l.tier != Tier::Roofline
}

/// The readable report.
pub(crate) fn text(p: &NetworkPrediction, gpu: &Gpu, asked: &Asked<'_>, all_layers: bool) -> String {
    let mut text = format!("{}\n", heading(p, gpu, asked));
    Verdict::of(p).lines().iter().for_each(|line| text += &format!("{line}\n"));
    let _ = write!(text, "{}\n\n", provenance(p));
    // The header line of the totals carries no information but the interval's coverage.
    let body = totals(p, gpu).to_text();
    body.lines().filter(|l| !l.starts_with("---")).for_each(|l| {
        let _ = writeln!(text, "{l}");
    });
    if p.phases.len() > 1 {
        text.push('\n');
        for t in &p.phases {
            let _ = writeln!(
                text,
                "{:<17} {:>9}  {:>9}",
                t.phase,
                with_unit(t.time.get(), "s"),
                with_unit(t.energy.get(), "J")
            );
        }
    }
    let _ = writeln!(text, "{:<17} {}", "memory of", memory(p));
    if let Some(table) = sharing(p) {
        let _ = write!(text, "\n{}", table.to_text());
    }
    reduced(p).iter().for_each(|line| text += &format!("{line}\n"));
    if let Some(layout) = &p.layout {
        let _ = write!(text, "\n{}", layout::table(p, layout).to_text());
    }
    if let Some(training) = &asked.training {
        let _ = write!(text, "\n{}", whole(training).to_text());
    }
    text + &layers_and_notes(p, all_layers)
}

/// How many kinds the table leaves out.
pub(crate) fn fewer(others: usize) -> Option<String> {
    (others > 0).then(|| format!("and {others} more that take less"))
}

/// The lower part of the readable report: layers, then notes.
pub(crate) fn layers_and_notes(p: &NetworkPrediction, all_layers: bool) -> String {
    let mut text = String::new();
    let kernels = p.layers.len();
    let whose = match &p.layout {
        Some(layout) if layout.stages.len() > 1 => " of one GPU of each stage, one microbatch long",
        Some(_) => " of one GPU",
        None if gpus(p) > 1 => " of one GPU, of the slowest kind",
        None => "",
    };
    if all_layers {
        let _ = write!(text, "\nall {kernels} kernels{whose}\n{}", layer_table(p).to_text());
    } else {
        let (table, others) = group_table(p);
        let _ = write!(text, "\n{kernels} kernels{whose} by kind (--layers shows each)\n{}", table.to_text());
        text += &fewer(others).map_or(String::new(), |line| line + "\n");
    }
    footnotes(p).for_each(|line| text += &format!("{line}\n"));
    if !p.warnings.is_empty() {
        text.push('\n');
    }
    for warning in &p.warnings {
        let _ = writeln!(text, "note: {}", words(warning));
    }
    text
}

/// The report in Markdown.
pub(crate) fn markdown(p: &NetworkPrediction, gpu: &Gpu, asked: &Asked<'_>, all_layers: bool) -> String {
    let mut text = format!("## {}\n\n", heading(p, gpu, asked));
    Verdict::of(p).lines().iter().for_each(|line| text += &format!("{line}\n\n"));
    let _ = write!(text, "{}\n\n", provenance(p));
    text += &totals(p, gpu).to_markdown();
    if let Some(table) = sharing(p) {
        let _ = write!(text, "\n{}", table.to_markdown());
    }
    reduced(p).iter().for_each(|line| text += &format!("\n{line}\n"));
    if let Some(layout) = &p.layout {
        let _ = write!(text, "\n{}", layout::table(p, layout).to_markdown());
    }
    if let Some(training) = &asked.training {
        let _ = write!(text, "\n{}", whole(training).to_markdown());
    }
    text.push('\n');
    markdown_text(&(text + &layers_and_notes_in_markdown(p, all_layers)))
}

/// The lower part of the report in Markdown.
pub(crate) fn layers_and_notes_in_markdown(p: &NetworkPrediction, all_layers: bool) -> String {
    let (table, others) = if all_layers { (layer_table(p), 0) } else { group_table(p) };
    let mut text = table.to_markdown();
    text += &fewer(others).map_or(String::new(), |line| format!("\n{line}\n"));
    footnotes(p).for_each(|line| text += &format!("\n{}\n", line.replacen('*', "\\*", 1)));
    if !p.warnings.is_empty() {
        text.push('\n');
    }
    for warning in &p.warnings {
        let _ = writeln!(text, "- {}", words(warning));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use joulecast_model::base::precision::{Mode, Precision};
    use joulecast_model::catalog;
    use joulecast_model::net::network::ShapedNetwork;
    use joulecast_model::step::predict::Predictor;

    /// A model of few rows may leave open a time of many times what it says, which no part of a step can take.
    #[test]
    fn no_part_ends_beyond_the_whole() {
        let network = catalog::network("alexnet").expect("known");
        let shaped = ShapedNetwork::new(&network, 8, Precision::Fp32, &[]).expect("has shapes");
        let (gpu, framework) = (catalog::gpu("v100").expect("known"), catalog::framework("cudnn").expect("known"));
        let mut p = Predictor::shipped(gpu, framework).predict(&shaped, Mode::Inference).expect("runs");
        let end = p.time.p95;
        let tight = p.layers.iter().map(|l| l.time.p95).find(|own| *own < end).expect("a layer is a part");
        let wide = p.layers.iter().position(|l| l.kind == "max_pool2d").expect("it pools");
        p.layers[wide].time.p95 = end * 50.0;

        let asked = Asked { gpu: "v100", source: "zoo", framework: "cudnn", launch: Launch::Graph, training: None };
        let ends: Vec<f64> = document(&p, &asked, None).layers.iter().map(|l| l.time_s_p95).collect();
        assert!(ends[wide] == end.get() && ends.contains(&tight.get()), "{ends:?}");
        let told = format!(" to {} ", with_unit(end.get(), "s"));
        let line =
            |text: String, begins: &str| text.lines().find(|l| l.starts_with(begins)).expect("a row").to_string();
        let (of_groups, of_layers) = (group_table(&p).0.to_text(), layer_table(&p).to_text());
        for row in [line(of_groups, "max_pool2d"), line(of_layers, &p.layers[wide].name)] {
            assert!(row.contains(&told), "{told}: {row}");
        }
    }
}
