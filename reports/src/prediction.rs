//! A prediction as table, JSON, CSV and Markdown: the contract `prediction/1`.

use crate::csv_cell;
use crate::table::{Table, significant, with_unit};
use joulecast_model::calibration::Tier;
use joulecast_model::framework::Launch;
use joulecast_model::gpu::Gpu;
use joulecast_model::predictor::{LayerPrediction, NetworkPrediction};
use serde::Serialize;
use std::fmt::Write as _;

/// What the user typed, for the record.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// The GPU as typed.
    pub gpu: &'a str,
    /// Where the network came from: `zoo` or `file`.
    pub source: &'a str,
    /// Framework profile.
    pub framework: &'a str,
    /// How a step is launched.
    pub launch: Launch,
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
    gpu: &'a str,
    gpus: u64,
    devices: Vec<Device<'a>>,
    core_clock_mhz: f64,
    memory_clock_mhz: Option<f64>,
    power_cap_w: Option<f64>,
    calibration: CalibrationRef<'a>,
    time_s: f64,
    time_s_p05: f64,
    time_s_p95: f64,
    /// In which no kernel runs: layers and this add up to `time_s`.
    waiting_s: f64,
    power_w: f64,
    power_w_p05: f64,
    power_w_p95: f64,
    energy_j: f64,
    energy_j_p05: f64,
    energy_j_p95: f64,
    edp_js: f64,
    samples_per_s: f64,
    energy_per_sample_j: f64,
    samples_per_s_per_w: f64,
    gflops_per_w: f64,
    ops: u64,
    read_bytes: u64,
    written_bytes: u64,
    ctc_ops_per_byte: Option<f64>,
    parameters: u64,
    memory_bytes: u64,
    fits_in_memory: bool,
    bound_s: f64,
    phases: serde_json::Map<String, serde_json::Value>,
    layers: Vec<Layer<'a>>,
    warnings: &'a [String],
}

#[derive(Serialize)]
struct Device<'a> {
    gpu: &'a str,
    count: u64,
    core_clock_mhz: f64,
    power_w: f64,
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
    tier: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    algorithm: Option<&'a str>,
    in_domain: bool,
}

fn document<'a>(p: &'a NetworkPrediction, gpu: &'a Gpu, asked: &Asked<'a>) -> Document<'a> {
    let clock = p.clock.to_mhz();
    let bytes = (p.read + p.written).to_f64();
    let phase = |t: &joulecast_model::predictor::PhaseTotal| {
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
        time_s_p95: l.time.p95.get(),
        power_w: l.power.get(),
        energy_j: l.energy.get(),
        bound_s: l.bound.get(),
        tier: l.tier.name(),
        algorithm: l.algorithm.map(|a| a.name()),
        in_domain: l.in_domain,
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
        gpu: asked.gpu,
        gpus: 1,
        devices: vec![Device { gpu: &gpu.name, count: 1, core_clock_mhz: clock, power_w: p.power.value.get() }],
        core_clock_mhz: clock,
        memory_clock_mhz: p.memory_clock.map(|c| c.to_mhz()),
        power_cap_w: p.power_cap.map(|c| c.get()),
        calibration: CalibrationRef {
            id: &p.calibration,
            time_tier: p.time_tier.name(),
            power_tier: p.power_tier.name(),
        },
        time_s: p.time.value.get(),
        time_s_p05: p.time.p05.get(),
        time_s_p95: p.time.p95.get(),
        waiting_s: p.waiting * p.time.value.get(),
        power_w: p.power.value.get(),
        power_w_p05: p.power.p05.get(),
        power_w_p95: p.power.p95.get(),
        energy_j: p.energy.value.get(),
        energy_j_p05: p.energy.p05.get(),
        energy_j_p95: p.energy.p95.get(),
        edp_js: p.edp().get(),
        samples_per_s: p.samples_per_second(),
        energy_per_sample_j: p.energy_per_sample().get(),
        samples_per_s_per_w: p.samples_per_joule(),
        gflops_per_w: p.ops_per_joule() / 1e9,
        ops: p.ops.get(),
        read_bytes: p.read.get(),
        written_bytes: p.written.get(),
        ctc_ops_per_byte: (bytes > 0.0).then(|| p.ops.to_f64() / bytes),
        parameters: p.parameters,
        memory_bytes: p.memory.total().get(),
        fits_in_memory: p.fits_in_memory,
        bound_s: p.bound.get(),
        phases: p.phases.iter().map(phase).collect(),
        layers: p.layers.iter().map(layer).collect(),
        warnings: &p.warnings,
    }
}

/// The JSON document.
///
/// # Errors
/// Only if a number is not finite.
pub fn json(p: &NetworkPrediction, gpu: &Gpu, asked: &Asked<'_>) -> Result<String, serde_json::Error> {
    Ok(serde_json::to_string_pretty(&document(p, gpu, asked))? + "\n")
}

/// One CSV row with a header: the JSON's keys, nested ones joined by dots, without the layers.
///
/// # Errors
/// Only if a number is not finite.
pub fn csv(p: &NetworkPrediction, gpu: &Gpu, asked: &Asked<'_>) -> Result<String, serde_json::Error> {
    let serde_json::Value::Object(map) = serde_json::to_value(document(p, gpu, asked))? else {
        return Ok(String::new());
    };
    let mut cells = Vec::new();
    for (key, value) in map.iter().filter(|(key, _)| *key != "layers" && *key != "devices") {
        flatten(key, value, &mut cells);
    }
    let line = |items: Vec<String>| items.join(",") + "\n";
    let (keys, values): (Vec<String>, Vec<String>) = cells.into_iter().unzip();
    Ok(line(keys) + &line(values))
}

fn flatten(key: &str, value: &serde_json::Value, cells: &mut Vec<(String, String)>) {
    use serde_json::Value;
    match value {
        Value::Object(map) => map.iter().for_each(|(k, v)| flatten(&format!("{key}.{k}"), v, cells)),
        Value::Array(items) => {
            let text = items.iter().filter_map(Value::as_str).collect::<Vec<_>>().join("; ");
            cells.push((key.to_string(), csv_cell(&text)));
        }
        Value::Null => cells.push((key.to_string(), String::new())),
        Value::String(text) => cells.push((key.to_string(), csv_cell(text))),
        other => cells.push((key.to_string(), other.to_string())),
    }
}

/// How many layers the short table shows.
const COSTLIEST: usize = 5;

/// The totals as lines of label, value and interval.
fn totals(p: &NetworkPrediction, gpu: &Gpu) -> Table {
    let mut table = Table::new(&["per step", "value", "90 % interval"], 3);
    let range = |low: f64, high: f64, unit: &str| format!("{} to {}", with_unit(low, unit), with_unit(high, unit));
    let mut row = |label: &str, value: String, interval: String| table.row(vec![label.into(), value, interval]);
    row("time", with_unit(p.time.value.get(), "s"), range(p.time.p05.get(), p.time.p95.get(), "s"));
    row("power", with_unit(p.power.value.get(), "W"), range(p.power.p05.get(), p.power.p95.get(), "W"));
    row("energy", with_unit(p.energy.value.get(), "J"), range(p.energy.p05.get(), p.energy.p95.get(), "J"));
    row("EDP", with_unit(p.edp().get(), "J s"), String::new());
    row("throughput", format!("{} samples/s", significant(p.samples_per_second(), 3)), String::new());
    row("per sample", with_unit(p.energy_per_sample().get(), "J"), String::new());
    let efficiency = format!("{} samples/s/W", significant(p.samples_per_joule(), 3));
    row("efficiency", efficiency, format!("{} GFLOPS/W", significant(p.ops_per_joule() / 1e9, 3)));
    let fits = if p.fits_in_memory { "fits in" } else { "does not fit in" };
    let memory = format!("{:.2} GiB", p.memory.total().to_gib());
    row("memory", memory, format!("{fits} {:.1} GiB; without workspace", gpu.memory.value.to_gib()));
    row(
        "direct roofline",
        with_unit(p.bound.get(), "s"),
        format!("{:.0} % of the time", 100.0 * (p.bound / p.time.value)),
    );
    table
}

/// The layers to show: all in order, or the costliest first.
fn shown(p: &NetworkPrediction, all: bool) -> Vec<&LayerPrediction> {
    let mut order: Vec<&LayerPrediction> = p.layers.iter().collect();
    if !all {
        order.sort_by(|a, b| b.time.value.get().total_cmp(&a.time.value.get()));
        order.truncate(COSTLIEST);
    }
    order
}

/// A table of layers: all in order, or the costliest first.
fn layer_table(p: &NetworkPrediction, all: bool) -> Table {
    let training = p.phases.len() > 1;
    let mut header = vec!["layer", "kind"];
    if training {
        header.push("phase");
    }
    let text_columns = header.len();
    header.extend(["time", "share", "90 % interval", "power", "energy", "Gop", "MB", "roofline", "rests on"]);
    let mut table = Table::new(&header, text_columns).with_trailing_text(1);
    for l in shown(p, all) {
        let mut cells = vec![l.name.clone(), l.kind.to_string()];
        if training {
            cells.push(l.phase.to_string());
        }
        let outside = if starred(l) { " *" } else { "" };
        cells.extend([
            with_unit(l.time.value.get(), "s"),
            format!("{:.1} %", 100.0 * (l.time.value / p.time.value)),
            format!("{} to {}", with_unit(l.time.p05.get(), "s"), with_unit(l.time.p95.get(), "s")),
            with_unit(l.power.get(), "W"),
            with_unit(l.energy.get(), "J"),
            significant(l.ops.to_f64() / 1e9, 3),
            significant((l.read + l.written).to_f64() / 1e6, 3),
            with_unit(l.bound.get(), "s"),
            format!("{}{outside}", l.tier),
        ]);
        table.row(cells);
    }
    table
}

fn heading(p: &NetworkPrediction, gpu: &Gpu, asked: &Asked<'_>) -> String {
    format!(
        "{} on {} ({}), batch {}, {} {}, {} profile ({}), {:.0} MHz{}",
        p.network,
        asked.gpu,
        gpu.title,
        p.batch,
        p.precision,
        p.mode,
        asked.framework,
        asked.launch,
        p.clock.to_mhz(),
        p.power_cap.map_or(String::new(), |cap| format!(", limit {:.0} W", cap.get()))
    )
}

fn provenance(p: &NetworkPrediction) -> String {
    format!("time: {} ({}); power: {}", p.time_tier, p.calibration, p.power_tier)
}

const FOOTNOTE: &str = "* outside of what was measured: wider interval";

/// A bound is never inside of what was measured; saying so once, in the tier, is enough.
fn starred(l: &LayerPrediction) -> bool {
    !l.in_domain && l.tier != Tier::Roofline
}

/// The readable report.
pub fn text(p: &NetworkPrediction, gpu: &Gpu, asked: &Asked<'_>, all_layers: bool) -> String {
    let mut text = format!("{}\n{}\n\n", heading(p, gpu, asked), provenance(p));
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
    let kernels = p.layers.len();
    let label = if all_layers {
        format!("all {kernels} kernels")
    } else {
        format!("costliest of {kernels} kernels (--layers shows all)")
    };
    let _ = write!(text, "\n{label}\n{}", layer_table(p, all_layers).to_text());
    if shown(p, all_layers).into_iter().any(starred) {
        let _ = writeln!(text, "{FOOTNOTE}");
    }
    if !p.warnings.is_empty() {
        text.push('\n');
    }
    for warning in &p.warnings {
        let _ = writeln!(text, "note: {warning}");
    }
    text
}

/// The report in Markdown.
pub fn markdown(p: &NetworkPrediction, gpu: &Gpu, asked: &Asked<'_>, all_layers: bool) -> String {
    let mut text = format!("## {}\n\n{}\n\n", heading(p, gpu, asked), provenance(p));
    text += &totals(p, gpu).to_markdown();
    text.push('\n');
    text += &layer_table(p, all_layers).to_markdown();
    if shown(p, all_layers).into_iter().any(starred) {
        let _ = write!(text, "\n\\{FOOTNOTE}\n");
    }
    if !p.warnings.is_empty() {
        text.push('\n');
    }
    for warning in &p.warnings {
        let _ = writeln!(text, "- {warning}");
    }
    text
}
