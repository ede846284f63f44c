//! The verdict on a prediction in words: what it says, how far to trust it, why it takes so long, what would make it surer.
//! The same words stand in `predict`, `compare`, `plan`, and on the page. Values are judged in `model/src/step/trust.rs`.

use crate::table::with_unit;
use joulecast_ask::comparison::Entry;
use joulecast_model::law::calibration::Tier;
use joulecast_model::step::groups::{Slow, groups, slow};
use joulecast_model::step::predictor::{Estimate, HostOf, NetworkPrediction, Summary, Warning};
use joulecast_model::step::trust::{Cause, Doubt, Expected, Trust};
use serde::Serialize;
use std::borrow::Cow;

/// Parts of a step, and of a doubt, that are smaller are not named.
const WORTH_NAMING: f64 = 0.15;

/// The verdict on a prediction.
#[derive(Clone, Debug)]
pub struct Verdict<'a> {
    prediction: &'a NetworkPrediction,
    stated: Statement<'a>,
}

/// What is stated of a step: all of a verdict but why it takes so long, which its layers say.
#[derive(Clone, Debug)]
pub struct Statement<'a> {
    summary: Summary,
    fits_in_memory: bool,
    host: Option<&'a HostOf>,
    gpu: Option<&'a str>,
    trust: Cow<'a, Trust>,
}

/// What would settle a doubt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Measurement {
    /// What is to be measured.
    pub what: String,
    /// The command that does, where one does.
    pub by: Option<&'static str>,
}

/// As JSON: the key `verdict` of `prediction/1`.
#[derive(Serialize)]
pub(crate) struct Document {
    /// The line that `predict` prints first.
    text: String,
    /// The worse of time's and energy's.
    grade: &'static str,
    time: Judged,
    power: Judged,
    energy: Judged,
    why_so_long: String,
    surer: Option<String>,
    /// What makes the intervals wide, the widest first.
    doubts: Vec<DoubtDocument>,
}

/// A value's expected error.
#[derive(Serialize)]
struct Judged {
    grade: &'static str,
    /// Mean absolute error, as a share.
    expected_error: f64,
}

#[derive(Serialize)]
struct DoubtDocument {
    cause: &'static str,
    /// Of kernels.
    kind: Option<&'static str>,
    measure: String,
    by: Option<&'static str>,
    share_of_time: f64,
    share_of_energy: f64,
}

impl From<Expected> for Judged {
    fn from(expected: Expected) -> Self {
        Self { grade: expected.grade.name(), expected_error: expected.error }
    }
}

fn percent(share: f64) -> String {
    format!("{:.0} %", 100.0 * share)
}

/// An interval, with its unit once where both ends have the same.
fn range(low: f64, high: f64, unit: &str) -> String {
    let (low, high) = (with_unit(low, unit), with_unit(high, unit));
    match (low.split_once(' '), high.split_once(' ')) {
        (Some((number, one)), Some((_, other))) if one == other => format!("{number} to {high}"),
        _ => format!("{low} to {high}"),
    }
}

/// What times of a tier rest on.
pub(crate) fn of_time(tier: Tier) -> &'static str {
    match tier {
        Tier::Measured => "measured on this GPU",
        Tier::Imported => "measured by others on this GPU",
        Tier::Sibling => "measured on another board of its chip",
        Tier::Transferred => "lent by other GPUs",
        Tier::Roofline => "a roofline with what other GPUs reach of it",
    }
}

/// What powers of a tier rest on.
pub(crate) fn of_power(tier: Tier) -> &'static str {
    match tier {
        Tier::Measured => "power measured on this GPU",
        Tier::Imported => "power measured by others on this GPU",
        Tier::Sibling => "power of another board of its chip",
        Tier::Transferred | Tier::Roofline => "power lent by another GPU",
    }
}

/// What bounds kernels, where something does; of what is waited for, that.
fn bound(slow: Slow) -> Result<&'static str, &'static str> {
    match slow {
        Slow::Compute => Ok("arithmetic"),
        Slow::Memory => Ok("memory traffic"),
        Slow::Launch => Ok("launches of short kernels"),
        Slow::Exchange => Ok("what GPUs exchange"),
        Slow::Host => Err("the host"),
        Slow::Input => Err("samples"),
    }
}

/// Parts of a step as a list: `70 % of the time is bound by arithmetic, 30 % by memory traffic`.
fn parts(parts: &[(Slow, f64)]) -> String {
    let mut said = (false, false);
    let mut words = Vec::with_capacity(parts.len());
    for (slow, share) in parts {
        let of_time = if words.is_empty() { " of the time" } else { "" };
        let (told, verb, what) = match bound(*slow) {
            Ok(what) => (&mut said.0, "is bound by", what),
            Err(what) => (&mut said.1, "waits for", what),
        };
        let verb = match std::mem::replace(told, true) {
            false => verb,
            true => verb.rsplit(' ').next().unwrap_or(verb),
        };
        words.push(format!("{}{of_time} {verb} {what}", percent(*share)));
    }
    words.join(", ")
}

impl<'a> From<&'a Entry> for Statement<'a> {
    fn from(e: &'a Entry) -> Self {
        Self {
            summary: e.summary,
            fits_in_memory: e.fits_in_memory,
            host: e.host.as_deref(),
            gpu: e.device.as_deref(),
            trust: Cow::Borrowed(&e.trust),
        }
    }
}

impl<'a> From<&'a NetworkPrediction> for Statement<'a> {
    fn from(p: &'a NetworkPrediction) -> Self {
        Self {
            summary: p.summary(),
            fits_in_memory: p.fits_in_memory,
            host: p.host.as_ref(),
            gpu: p.devices.first().map(|device| &*device.gpu),
            trust: Cow::Owned(Trust::of(p)),
        }
    }
}

impl Statement<'_> {
    /// What it says and how far to trust that: one line.
    pub fn line(&self) -> String {
        let Summary { time: Estimate { value, p05, p95 }, energy, .. } = self.summary;
        let time = format!("{} ({})", with_unit(value.get(), "s"), range(p05.get(), p95.get(), "s"));
        let fits = if self.fits_in_memory { "fits" } else { "does not fit in memory" };
        format!("{time}, {}, {fits}. Trust: {}.", with_unit(energy.value.get(), "J"), self.words())
    }

    /// How far to trust it, and why.
    fn words(&self) -> String {
        let Trust { time, energy, time_tier, power_tier, .. } = &*self.trust;
        let decides = self.host.filter(|h| h.decides).map(|h| h.source.is_some());
        let rests = match decides {
            Some(false) => "a host decides that nobody measured",
            Some(true) => "the host as given decides",
            None => of_time(*time_tier),
        };
        format!(
            "{} in time ({rests}, expected error {}), {} in energy ({}, {})",
            time.grade,
            percent(time.error),
            energy.grade,
            of_power(*power_tier),
            percent(energy.error)
        )
    }

    /// What would settle a doubt.
    pub fn measurement(&self, doubt: &Doubt) -> Measurement {
        let gpu = self.gpu.unwrap_or("this GPU");
        let (what, by) = match doubt.cause {
            Cause::Host if self.host_is_known() => {
                ("steps of this network on this machine".into(), Some("calibrate measure"))
            }
            Cause::Host => ("how fast this machine's host launches".into(), Some("calibrate host")),
            Cause::Clocks => (format!("steps on {gpu} at this clock or limit"), Some("calibrate sweep")),
            Cause::Power => (format!("power on {gpu}"), Some("calibrate run")),
            Cause::Exchange => ("what GPUs exchange over these links".into(), None),
            Cause::Kernels(kind) => {
                let more = if doubt.measured { "more shapes of " } else { "" };
                (format!("{more}{kind} on {gpu}"), Some("calibrate run"))
            }
        };
        Measurement { what, by }
    }

    fn host_is_known(&self) -> bool {
        self.host.is_some_and(|h| h.source.is_some())
    }
}

impl<'a> Verdict<'a> {
    /// On a prediction.
    pub fn of(prediction: &'a NetworkPrediction) -> Self {
        Self { prediction, stated: prediction.into() }
    }

    /// How far it can be trusted.
    pub fn trust(&self) -> &Trust {
        &self.stated.trust
    }

    /// What it says and how far to trust that: one line.
    pub fn line(&self) -> String {
        self.stated.line()
    }

    /// How far to trust it, and why.
    pub fn words(&self) -> String {
        self.stated.words()
    }

    /// What bounds the step, in one line.
    pub fn why_so_long(&self) -> String {
        let p = self.prediction;
        let parts = slow(p);
        let mut named: Vec<(Slow, f64)> = parts.iter().copied().filter(|(_, share)| *share >= WORTH_NAMING).collect();
        named.extend(parts.first().filter(|_| named.is_empty()));
        let mut text = self::parts(&named);
        if let Some(most) = groups(&p.layers).first() {
            let share = percent(most.time.value / p.time.value);
            text += &format!("; costliest: {}{}, {share}", kernels(most.count), most.kind);
        }
        let held = p.warnings.iter().find_map(|warning| match warning {
            Warning::Held { clock, ceiling, .. } => Some(1.0 - *clock / *ceiling),
            _ => None,
        });
        if let Some(held) = held.filter(|held| *held >= 0.02) {
            text += &format!("; the power limit takes {} of the clock", percent(held));
        }
        text
    }

    /// The measurement that would make it surer, in one line; `None` where nothing is open.
    pub fn surer(&self) -> Option<String> {
        let doubts = &self.trust().doubts;
        let first = |of: fn(&Doubt) -> f64| doubts.iter().max_by(|a, b| of(a).total_cmp(&of(b)));
        let (time, energy) = (first(|d| d.of_time)?, first(|d| d.of_energy).filter(|d| d.of_energy > 0.0));
        let energy = energy.filter(|energy| energy.cause != time.cause);
        let (measured, share) = (self.stated.measurement(time), percent(time.of_time));
        let mut text = format!("{} ({share} of the doubt in time)", measured.what);
        let mut by = vec![measured.by];
        if let Some(energy) = energy {
            let measured = self.stated.measurement(energy);
            text += &format!(", then {} ({} of that in energy)", measured.what, percent(energy.of_energy));
            by.extend(Some(measured.by).filter(|other| !by.contains(other)));
        }
        let by: Vec<String> = by.into_iter().flatten().map(|command| format!("`{command}`")).collect();
        Some(if by.is_empty() { text } else { format!("{text}: {}", by.join(", ")) })
    }

    pub(crate) fn document(&self) -> Document {
        let Trust { time, power, energy, doubts, .. } = self.trust();
        let doubt = |doubt: &Doubt| {
            let (cause, kind) = match doubt.cause {
                Cause::Host => ("host", None),
                Cause::Clocks => ("clocks", None),
                Cause::Power => ("power", None),
                Cause::Exchange => ("exchange", None),
                Cause::Kernels(kind) => ("kernels", Some(kind)),
            };
            let Measurement { what: measure, by } = self.stated.measurement(doubt);
            DoubtDocument { cause, kind, measure, by, share_of_time: doubt.of_time, share_of_energy: doubt.of_energy }
        };
        Document {
            text: self.line(),
            grade: self.trust().grade().name(),
            time: (*time).into(),
            power: (*power).into(),
            energy: (*energy).into(),
            why_so_long: self.why_so_long(),
            surer: self.surer(),
            doubts: doubts.iter().map(doubt).collect(),
        }
    }

    /// The lines that a report begins with.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = vec![self.line()];
        let why = self.why_so_long();
        lines.extend((!why.is_empty()).then(|| format!("Why so long: {why}.")));
        lines.extend(self.surer().map(|measured| format!("Surer by measuring: {measured}.")));
        lines
    }
}

/// How many kernels, before their kind; nothing of one.
fn kernels(count: usize) -> String {
    if count == 1 { String::new() } else { format!("{count} x ") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use joulecast_model::base::precision::{Mode, Precision};
    use joulecast_model::catalog;
    use joulecast_model::net::network::ShapedNetwork;
    use joulecast_model::step::predict::Predictor;
    use joulecast_model::step::predictor::{HostOf, NetworkPrediction};

    fn predicted(gpu: &str, framework: &str, batch: u64) -> NetworkPrediction {
        let network = catalog::network("resnet50").expect("known");
        let shaped = ShapedNetwork::new(&network, batch, Precision::Fp32, &[]).expect("has shapes");
        let (gpu, framework) = (catalog::gpu(gpu).expect("known"), catalog::framework(framework).expect("known"));
        Predictor::shipped(gpu, framework).predict(&shaped, Mode::Inference).expect("runs")
    }

    #[test]
    fn the_line_says_what_it_takes_and_how_far_to_trust_it() {
        let p = predicted("v100", "cudnn", 8);
        let verdict = Verdict::of(&p);
        let line = verdict.line();
        let (time, energy) = (&verdict.trust().time, &verdict.trust().energy);
        assert!(line.starts_with(&with_unit(p.time.value.get(), "s")) && line.contains(", fits. Trust: "), "{line}");
        let words = format!(
            "good in time (measured by others on this GPU, expected error {:.0} %), fair in energy (power lent by another GPU, {:.0} %).",
            100.0 * time.error,
            100.0 * energy.error
        );
        assert!(line.ends_with(&words), "{line}");
        assert!(verdict.why_so_long().contains("bound by arithmetic"), "{}", verdict.why_so_long());
        let surer = verdict.surer().expect("something is open");
        assert!(surer.contains(" on v100 (") && surer.ends_with(": `calibrate run`"), "{surer}");
    }

    #[test]
    fn a_host_that_decides_is_named_and_what_measures_it() {
        let p = predicted("h200", "pytorch", 1);
        let verdict = Verdict::of(&p);
        assert!(verdict.line().contains("a host decides that nobody measured"), "{}", verdict.line());
        assert!(verdict.why_so_long().contains("waits for the host"), "{}", verdict.why_so_long());
        assert!(
            verdict
                .surer()
                .is_some_and(|s| s.starts_with("how fast this machine's host") && s.ends_with("`calibrate host`"))
        );
        let known = p.host.clone().map(|host| HostOf { source: Some("host.toml".into()), ..host });
        let p = NetworkPrediction { host: known, ..p };
        assert!(Verdict::of(&p).line().contains("the host as given decides"));
        assert!(Verdict::of(&p).surer().is_some_and(|s| s.ends_with("`calibrate measure`")));
    }

    #[test]
    fn what_does_not_fit_is_said_and_nothing_open_is_no_line() {
        let mut p = predicted("v100", "cudnn", 8);
        p.fits_in_memory = false;
        p.layers.clear();
        (p.doubts, p.widths) = Default::default();
        let lines = Verdict::of(&p).lines();
        assert!(lines[0].contains(", does not fit in memory. "), "{lines:?}");
        assert!(!lines.iter().any(|line| line.starts_with("Surer")), "{lines:?}");
    }

    #[test]
    fn documents_say_what_was_judged() {
        for (gpu, framework) in [("v100", "cudnn"), ("h200", "pytorch")] {
            let p = predicted(gpu, framework, 8);
            let verdict = Verdict::of(&p);
            let trust = verdict.trust();
            let document = serde_json::to_value(verdict.document()).expect("JSON");
            assert_eq!(document["grade"], trust.grade().name(), "{gpu}");
            for (key, of) in [("time", &trust.time), ("power", &trust.power), ("energy", &trust.energy)] {
                assert_eq!(document[key]["grade"], of.grade.name(), "{gpu} {key}");
                assert_eq!(document[key]["expected_error"], of.error, "{gpu} {key}");
            }
            let doubts = document["doubts"].as_array().expect("a list");
            assert_eq!(doubts.len(), trust.doubts.len());
            for (written, doubt) in doubts.iter().zip(&trust.doubts) {
                assert_eq!(
                    (&written["share_of_time"], &written["share_of_energy"]),
                    (&doubt.of_time.into(), &doubt.of_energy.into())
                );
            }
        }
    }

    #[test]
    fn what_powers_and_times_rest_on_differs_by_tier() {
        let measured = [Tier::Measured, Tier::Imported, Tier::Sibling, Tier::Transferred];
        for of in [of_time as fn(Tier) -> &'static str, of_power] {
            let words = measured.map(of);
            assert!((1..words.len()).all(|i| !words[..i].contains(&words[i])), "{words:?}");
        }
        assert_eq!(of_power(Tier::Sibling), "power of another board of its chip");
        assert_ne!(of_time(Tier::Transferred), of_time(Tier::Roofline));
    }

    #[test]
    fn each_doubt_is_settled_by_its_own_measurement() {
        let (p, others) = (predicted("h200", "cudnn", 8), predicted("v100", "cudnn", 8));
        let of = |p: &NetworkPrediction, cause| {
            let stated = Statement::from(p);
            let doubt = stated.trust.doubts.iter().find(|d| d.cause == cause).copied();
            stated.measurement(&doubt.unwrap_or(Doubt { cause, measured: false, of_time: 0.0, of_energy: 0.0 }))
        };
        let clocks = of(&p, Cause::Clocks);
        assert_eq!((&clocks.what[..], clocks.by), ("steps on h200 at this clock or limit", Some("calibrate sweep")));
        assert_eq!(of(&p, Cause::Power).what, "power on h200");
        assert_eq!(of(&p, Cause::Exchange).by, None);
        let kind = p.layers[0].model();
        assert_eq!(of(&p, Cause::Kernels(kind)).what, format!("more shapes of {kind} on h200"));
        assert_eq!(of(&others, Cause::Kernels(kind)).what, format!("{kind} on v100"));
        // What makes both wide is named once.
        for p in [&p, &others, &predicted("h200", "pytorch", 1)] {
            let (verdict, said) = (Verdict::of(p), Verdict::of(p).surer().expect("something is open"));
            let most = |of: fn(&Doubt) -> f64| {
                let doubts = &verdict.trust().doubts;
                doubts.iter().max_by(|a, b| of(a).total_cmp(&of(b))).map(|d| d.cause)
            };
            assert_eq!(said.contains(", then "), most(|d| d.of_time) != most(|d| d.of_energy), "{said}");
        }
    }

    #[test]
    fn parts_are_a_sentence() {
        let list = [(Slow::Host, 0.5), (Slow::Memory, 0.3), (Slow::Compute, 0.15), (Slow::Input, 0.05)];
        assert_eq!(
            parts(&list),
            "50 % of the time waits for the host, 30 % is bound by memory traffic, 15 % by arithmetic, 5 % for samples"
        );
        assert_eq!(range(0.0731, 0.108, "s"), "73.1 to 108 ms");
        assert_eq!(range(0.5e-3, 1.5e-3, "s"), "500 us to 1.50 ms");
    }
}
