//! Whole networks of a report: runs beside their predictions, and what a few of them are made of.

use super::{Report, verdicts};
use crate::judge::networks::{Case, Run};
use anyhow::{Context, Result};
use joulecast_ask::curve::{self, relative};
use joulecast_ask::metric::Reference;
use joulecast_model::base::accuracy::{Accuracy, wilson};
use joulecast_model::base::precision::{Mode, Precision};
use joulecast_model::base::units::{Hertz, Watts};
use joulecast_model::catalog;
use joulecast_model::law::calibration::Calibration;
use joulecast_model::rows::splits::Role;
use joulecast_model::rows::splits::Splits;
use joulecast_model::step::calibrations::Calibrations;
use joulecast_model::step::framework::Launch;
use joulecast_model::step::predict::Predictor;
use joulecast_model::step::predictor::{LayerPrediction, NetworkPrediction, OperatingPoint, core_range};
use joulecast_reports::figure::breakdown::{self, Breakdown, Part};
use joulecast_reports::figure::coverage::{Coverage, Row as Held};
use joulecast_reports::figure::curves::{self, Axis, Curves};
use joulecast_reports::figure::errors::{Error, Errors, Row};
use joulecast_reports::figure::roofline::{self, Kernel, Roofline};
use joulecast_reports::figure::scatter::{self, Scatter};
use joulecast_reports::networks::{Compared, Pair, table};
use joulecast_reports::table::Table;
use std::collections::{BTreeMap, HashMap};

/// Networks that are taken apart, where they were measured.
const REPRESENTATIVES: [&str; 4] = ["resnet50", "vgg16", "bert_base", "vit_b_16"];
/// Kinds with a mark of their own in a roofline; the others share one.
const KINDS: usize = 5;
/// Parts of a breakdown, the rest not counted.
const PARTS: usize = 10;
/// Points of a curve.
const SETTINGS: usize = 40;
/// Below this share of the boost clock or the default limit nothing is drawn.
const LOWEST: f64 = 0.4;
/// Weight of the energy-delay sum in curves.
const WEIGHT: f64 = 1.5;

/// Runs of a framework, predicted.
pub struct Framed<'a> {
    /// Its name.
    pub framework: &'a str,
    /// The runs.
    pub runs: &'a [Run],
    /// Those that could be, beside their predictions.
    pub compared: Vec<Compared>,
}

type Measure = (&'static str, &'static str, f64, fn(&Compared) -> Option<Pair>);

/// Quantities with their units in figures.
const MEASURES: [Measure; 3] =
    [("time", "ms", 1e3, |r| Some(r.time)), ("power", "W", 1.0, |r| r.power), ("energy", "J", 1.0, |r| r.energy)];

fn scatter(compared: &[&Compared], title: String, notes: Vec<String>) -> Scatter {
    let mut series: Vec<String> = compared.iter().map(|r| r.network.clone()).collect();
    series.sort();
    series.dedup();
    let panel = |(name, unit, by, of): &Measure| {
        let pairs: Vec<(&Compared, Pair)> = compared.iter().filter_map(|r| Some((*r, of(r)?))).collect();
        let accuracy = Accuracy::of(pairs.iter().map(|(_, p)| (p.measured, p.predicted)))?;
        let points = series.iter().map(|network| {
            let own = pairs.iter().filter(|(r, _)| r.network == *network);
            own.map(|(_, p)| (p.measured * by, p.predicted * by)).collect()
        });
        let title = format!("{name}: {} runs, mean {:.1} %", accuracy.count, accuracy.mape);
        Some(scatter::Panel { title, unit: unit.to_string(), points: points.collect() })
    };
    let panels = MEASURES.iter().filter_map(panel).collect();
    Scatter { title, series, panels, notes }
}

/// Training is said, inference is usual.
fn of_mode(mode: &str) -> &str {
    if mode == Mode::Inference.name() { "" } else { mode }
}

fn errors(framed: &Framed, notes: Vec<String>) -> Errors {
    let mut rows: Vec<&Compared> = framed.compared.iter().collect();
    rows.sort_by_key(|r| (r.name(), r.mode, r.precision, r.batch, r.launched()));
    let error = |p: Pair| {
        let over = |v: f64| 100.0 * (v / p.measured - 1.0);
        Error { low: over(p.p05), value: over(p.predicted), high: over(p.p95) }
    };
    let row = |r: &&Compared| Row {
        group: r.name(),
        name: format!("{} {}, batch {}, {}", of_mode(r.mode), r.precision, r.batch, r.launched()).trim().into(),
        errors: MEASURES.iter().map(|(.., of)| of(r).map(error)).collect(),
    };
    Errors {
        title: format!("Whole networks through {}: predicted over measured", framed.framework),
        columns: MEASURES.iter().map(|(name, ..)| format!("{name}, %")).collect(),
        rows: rows.iter().map(row).collect(),
        notes,
    }
}

fn coverage(frames: &[Framed], notes: Vec<String>) -> Coverage {
    let mut groups: BTreeMap<(String, usize), Vec<bool>> = BTreeMap::new();
    for framed in frames {
        for r in &framed.compared {
            for (i, (.., of)) in MEASURES.iter().enumerate() {
                if let Some(pair) = of(r) {
                    let name = format!("{} {}, {}", framed.framework, r.mode, r.launched());
                    groups.entry((name, i)).or_default().push(pair.holds());
                }
            }
        }
    }
    let row = |((name, measure), held): ((String, usize), Vec<bool>)| {
        let share = held.iter().filter(|h| **h).count() as f64 / held.len() as f64;
        let (low, high) = wilson(share, held.len());
        let name = format!("{name}: {}", MEASURES[measure].0);
        Held { name, count: held.len(), held: 100.0 * share, between: (100.0 * low, 100.0 * high) }
    };
    let title = "Whole networks: values within their 90 % intervals".to_string();
    Coverage { title, rows: groups.into_iter().map(row).collect(), notes }
}

/// What the intervals are made of, by framework, in sentences: of other networks' errors where the calibrations know such.
fn made_of(frames: &[Framed], calibrations: &[Calibration]) -> String {
    let names = frames.iter().filter(|f| !f.compared.is_empty()).map(|f| f.framework);
    let known = |name: &&str| calibrations.iter().flat_map(|c| &c.networks).any(|n| n.framework == **name);
    let (known, unknown): (Vec<&str>, Vec<&str>) = names.partition(known);
    let mut text = Vec::new();
    if !known.is_empty() {
        text.push(format!("Through {} it is made of the errors of other networks.", known.join(" and ")));
    }
    if !unknown.is_empty() {
        let through = unknown.join(" and ");
        text.push(format!("Through {through} no network's errors are known: it is the sum of the layers' intervals."));
    }
    text.join(" ")
}

/// A network that is taken apart, with its prediction.
struct Taken {
    case: Case,
    predictor: Predictor,
    prediction: NetworkPrediction,
}

impl Taken {
    fn title(&self) -> String {
        let p = &self.prediction;
        let title = format!("{}, {}, {}, batch {}", p.network, self.case.gpu.name, p.precision, p.batch);
        format!("{title} {}", of_mode(self.case.mode.name())).trim_end().into()
    }

    /// Share of the kernels' time, percent.
    fn share(&self, time: f64) -> f64 {
        100.0 * time / self.prediction.layers.iter().map(|l| l.time.value.get()).sum::<f64>()
    }

    fn energy_share(&self, energy: f64) -> f64 {
        100.0 * energy / self.prediction.layers.iter().map(|l| l.energy.get()).sum::<f64>()
    }
}

/// Of every representative the inference with the largest batch, in a graph where there is one: the GPU decides there.
fn taken(frames: &[Framed], calibrations: &[Calibration], role: Option<Role>) -> Result<Vec<Taken>> {
    let splits = Splits::shipped()?;
    let mut best: BTreeMap<usize, (Case, &str)> = BTreeMap::new();
    for framed in frames {
        for run in framed.runs {
            let Some(case) = Case::of(run, &splits, role)? else { continue };
            let Some(place) = REPRESENTATIVES.iter().position(|n| *n == case.name) else { continue };
            if !framed.compared.iter().any(|c| c.gpu == case.gpu.name) {
                continue;
            }
            let rank = |c: &Case| {
                (c.mode == Mode::Inference, c.launch == Launch::Graph, c.precision == Precision::Fp16, c.shaped.batch())
            };
            if best.get(&place).is_none_or(|(other, _)| rank(&case) > rank(other)) {
                best.insert(place, (case, framed.framework));
            }
        }
    }
    let calibrations = Calibrations::given(calibrations.iter().cloned())?;
    best.into_values()
        .map(|(case, framework)| {
            let framework = catalog::framework(framework)?;
            let predictor = case.predictor(&calibrations, &framework);
            let prediction = predictor.predict(&case.shaped, case.mode).with_context(|| case.name.clone())?;
            Ok(Taken { case, predictor, prediction })
        })
        .collect()
}

fn rooflines(taken: &[Taken], notes: Vec<String>) -> Roofline {
    let mut shares: HashMap<&str, f64> = HashMap::new();
    for t in taken {
        for l in &t.prediction.layers {
            *shares.entry(l.kind).or_default() += t.share(l.time.value.get());
        }
    }
    let mut kinds: Vec<(&str, f64)> = shares.into_iter().collect();
    kinds.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(b.0)));
    let more = kinds.len() > KINDS + 1;
    let mut series: Vec<String> =
        kinds.iter().take(if more { KINDS } else { KINDS + 1 }).map(|(k, _)| k.to_string()).collect();
    if more {
        series.push("other kinds".into());
    }
    let kernel = |t: &Taken, l: &LayerPrediction| {
        let (ops, bytes, time) = (l.ops.to_f64(), (l.read + l.written).to_f64(), l.time.value.get());
        (ops > 0.0 && bytes > 0.0).then(|| Kernel {
            name: l.name.to_string(),
            series: series.iter().position(|s| s == l.kind).unwrap_or(KINDS),
            intensity: ops / bytes,
            rate: ops / time,
            share: t.share(time),
        })
    };
    let panel = |t: &Taken| {
        let gpu = &t.case.gpu;
        let peak = gpu.peak(t.case.precision).map(|p| (format!("{} peak", t.case.precision), p.get()));
        let vector = gpu.vector_peak().get();
        let other = peak.as_ref().is_none_or(|p| (p.1 / vector - 1.0).abs() > 0.01);
        roofline::Panel {
            title: t.title(),
            bandwidth: gpu.bandwidth.value.get(),
            peaks: peak.into_iter().chain(other.then(|| ("vector peak".to_string(), vector))).collect(),
            kernels: t.prediction.layers.iter().filter_map(|l| kernel(t, l)).collect(),
        }
    };
    let panels = taken.iter().map(panel).filter(|p| !p.kernels.is_empty()).collect();
    Roofline { title: "Predicted kernels under the roofline".into(), series: series.clone(), panels, notes }
}

/// Shares of time and energy by a name of the layers, the largest first, the rest together.
fn breakdown(taken: &[Taken], title: &str, name: fn(&LayerPrediction) -> String, notes: Vec<String>) -> Breakdown {
    let panel = |t: &Taken| {
        let mut sums: BTreeMap<String, (f64, f64)> = BTreeMap::new();
        for l in &t.prediction.layers {
            let sum = sums.entry(name(l)).or_default();
            *sum = (sum.0 + l.time.value.get(), sum.1 + l.energy.get());
        }
        let part = |(name, (time, energy)): (String, (f64, f64))| Part {
            name,
            time: t.share(time),
            energy: t.energy_share(energy),
        };
        let mut parts: Vec<Part> = sums.into_iter().map(part).collect();
        parts.sort_by(|a, b| b.time.total_cmp(&a.time));
        let mut rest = String::new();
        if parts.len() > PARTS + 1 {
            let others = parts.split_off(PARTS);
            let sum = |of: fn(&Part) -> f64| others.iter().map(of).sum::<f64>();
            let (time, energy) = (sum(|p| p.time), sum(|p| p.energy));
            rest = format!("{} others: {time:.0} % of the time, {energy:.0} % of the energy", others.len());
        }
        breakdown::Panel { title: t.title(), parts, rest }
    };
    Breakdown { title: title.into(), panels: taken.iter().map(panel).collect(), notes }
}

/// Predicted steps over power limits or clocks, relative to the default.
fn curves(taken: &[Taken], axis: Axis, notes: Vec<String>) -> Result<Curves> {
    let panel = |t: &Taken| -> Result<curves::Panel> {
        let gpu = &t.case.gpu;
        let step = t.predictor.step(&t.case.shaped, t.case.mode)?;
        let (low, high) = match axis {
            Axis::Cap => {
                let limit = gpu.power.limit.value;
                let least = gpu.power.limit_minimum.as_ref().map_or(limit * LOWEST, |m| m.value);
                (least.max(limit * LOWEST).get(), limit.get())
            }
            Axis::Clock => {
                let boost = gpu.core_clock.boost.value;
                (core_range(gpu).0.max(boost * LOWEST).get(), boost.get())
            }
        };
        let mut runs = Vec::new();
        for i in 0..=SETTINGS {
            let setting = low + (high - low) * i as f64 / SETTINGS as f64;
            let point = match axis {
                Axis::Cap => OperatingPoint { power_cap: Some(Watts::new(setting)), ..OperatingPoint::default() },
                Axis::Clock => OperatingPoint { core_clock: Some(Hertz::new(setting)), ..OperatingPoint::default() },
            };
            let p = step.at(point)?;
            let setting = if axis == Axis::Cap { setting } else { setting / 1e6 };
            runs.push(curve::Run { setting, time: p.time.value, energy: p.energy.value });
        }
        let default = Reference { time: t.prediction.time.value, energy: t.prediction.energy.value };
        Ok(curves::Panel { title: t.title(), predicted: relative(&runs, &default, WEIGHT), measured: vec![] })
    };
    let title = match axis {
        Axis::Cap => "Predicted energy, time, power and their products over the power limit",
        Axis::Clock => "Predicted energy, time, power and their products over the core clock",
    };
    let panels = taken.iter().map(panel).collect::<Result<_>>()?;
    Ok(Curves { title: title.into(), axis, weight: WEIGHT, panels, notes })
}

/// Adds the runs of every framework, and what representative networks among them are made of.
///
/// # Errors
/// When a prediction fails, or a figure cannot be drawn or written.
pub fn add(report: &mut Report, frames: &[Framed], calibrations: &[Calibration], role: Option<Role>) -> Result<()> {
    let notes = report.notes();
    let whose = role.map_or("all roles".to_string(), |r| format!("the role {}", r.name()));
    report.verdicts.extend(verdicts::of_networks(frames.iter().flat_map(|f| &f.compared)));
    report.heading("Whole networks: measured against predicted");
    report.text(format!(
        "Every mark is a run of a network with {whose}; time, power, energy and the clock are all foreseen, nothing of the run \
         is used. Inside of the band a prediction is within 10 %; \"mean\" is the mean absolute error."
    ));
    let all: Vec<&Compared> = frames.iter().flat_map(|f| &f.compared).collect();
    let title = format!("Whole networks ({whose}): measured and predicted");
    report.figure("networks_measured_predicted", &scatter(&all, title, notes.clone()))?;
    for framed in frames.iter().filter(|f| !f.compared.is_empty()) {
        report.heading(&format!("Whole networks through {}: every run", framed.framework));
        report.text(
            "A bar runs from the measured value (0) to the predicted one, to the right where that is too large; the thin line is \
             the 90 % interval. A square's interval holds the measured value, a round mark's does not.",
        );
        report.figure(&format!("networks_errors_{}", framed.framework), &errors(framed, notes.clone()))?;
        report.text("Means by group, percent:");
        report.table(table(&framed.compared));
        let heading = format!("Appendix: every run through {}", framed.framework);
        report.append(heading, "Measured, predicted and how far off.", Table::of(&framed.compared));
    }
    report.heading("Whole networks: what the intervals hold");
    report.text(format!(
        "The share of runs within their 90 % interval. {} Few runs leave the share itself uncertain: the bar is its 95 % interval.",
        made_of(frames, calibrations)
    ));
    report.figure("networks_coverage", &coverage(frames, notes.clone()))?;
    let taken = taken(frames, calibrations, role)?;
    if taken.is_empty() {
        return Ok(());
    }
    report.heading("Rooflines of networks");
    report.text(
        "Where the predicted kernels lie under the GPU's bandwidth (slope) and peaks (level). What touches the roof cannot be \
         faster by the same algorithm; what lies far below leaves the GPU idle.",
    );
    report.figure("networks_roofline", &rooflines(&taken, notes.clone()))?;
    report.heading("Where time and energy go");
    report.text("Predicted shares, by kind of layer and by layer. Where the energy bar is longer, more power than average is drawn.");
    let kinds = breakdown(&taken, "Time and energy by kind of layer", |l| l.kind.to_string(), notes.clone());
    report.figure("networks_kinds", &kinds)?;
    let layers = breakdown(&taken, "Time and energy by layer", |l| l.name.to_string(), notes.clone());
    report.figure("networks_layers", &layers)?;
    report.heading("Clocks and power limits");
    report.text(
        "Everything over its value at the default. A ring is the least energy, energy-delay product or energy-delay sum; flat \
         stretches of a limit are where it does not bind. Predictions, not measured at these settings.",
    );
    report.figure("networks_caps", &curves(&taken, Axis::Cap, notes.clone())?)?;
    report.figure("networks_clocks", &curves(&taken, Axis::Clock, notes)?)
}
