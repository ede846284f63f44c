//! What `predict serve` found: `serving/1`.

mod document;

use crate::document::{Block, Document as Page};
use crate::export::{self, Export, ExportError, Format};
use crate::markup::{capital, markdown_text};
use crate::record;
use crate::table::{Table, significant, thousands, with_unit};
use crate::verdict::{of_power, of_time};
use crate::warnings::words;
use document::{Figures, Point, with_all};
use joulecast_ask::capacity::{Goal, Tariff};
use joulecast_ask::serving::times::Room;
use joulecast_ask::serving::{Limits, Outlook, Quantiles, SPANS, Summary, Target, Which};
use joulecast_model::base::units::Seconds;
use joulecast_model::law::calibration::Tier;
use joulecast_model::net::share::Layout;
use joulecast_model::step::framework::Scheduling;
use joulecast_model::step::predictor::{Estimate, OperatingPoint, Warning};
use serde_json::Value;
use std::fmt::Write as _;

/// A replica as it lies on GPUs, at a clock and power limit.
#[derive(Clone, Debug)]
pub struct At {
    /// How GPUs share the network, and how many replicas there are.
    pub layout: Layout,
    /// All GPUs, of all replicas.
    pub gpus: u64,
    /// Most sequences of a step.
    pub sequences: u64,
    /// Most new tokens of a step.
    pub tokens: u64,
    /// Clock and limit.
    pub point: OperatingPoint,
    /// Requests a second: those that come, or the most that keep the target; none where no rate keeps it, and of users.
    pub rate: Option<f64>,
    /// The most that keep the target, with what they are if all steps take as long as their 95 and 5 % quantiles; none where
    /// that was not looked for, or no rate keeps it.
    pub highest: Option<Estimate<f64>>,
    /// Under that load; none where no rate keeps the target.
    pub outlook: Option<Outlook>,
}

/// What GPUs and electricity cost.
#[derive(Clone, Debug, PartialEq)]
pub struct Priced {
    /// For each GPU.
    pub tariff: Tariff,
    /// In what, where that was said.
    pub currency: Option<String>,
}

impl Priced {
    /// With its currency.
    fn money(&self, amount: f64) -> String {
        let currency = self.currency.as_ref().map_or(String::new(), |name| format!(" {name}"));
        format!("{}{currency}", significant(amount, 3))
    }

    /// What is paid, in words.
    fn words(&self) -> String {
        let Tariff { per_gpu_hour, per_kwh, pue, overhead } = self.tariff;
        let mut words = format!("prices: {} for every hour of a GPU", self.money(per_gpu_hour));
        if per_kwh > 0.0 {
            let beside = match overhead.get() {
                w if w > 0.0 => format!(", {} of its server among it", with_unit(w, "W")),
                _ => String::new(),
            };
            let _ = write!(words, ", {} for a kWh (PUE {pue}{beside})", self.money(per_kwh));
        } else {
            words.push_str(", energy included");
        }
        words
    }
}

/// What was found.
#[derive(Clone, Debug)]
pub struct Served {
    /// The network.
    pub network: String,
    /// The GPU as typed, and in words.
    pub gpu: (String, String),
    /// How it lies on several GPUs, and what joins them.
    pub layout: Option<(Layout, String)>,
    /// Storage and arithmetic.
    pub precision: String,
    /// Framework profile.
    pub framework: String,
    /// Where requests come from, in words.
    pub load: String,
    /// How many requests were simulated.
    pub requests: usize,
    /// What decides arrivals and lengths.
    pub seed: u64,
    /// The scheduler's limits.
    pub limits: Limits,
    /// Memory.
    pub room: Room,
    /// What decode's time and power rest on.
    pub tiers: (Tier, Tier),
    /// What is to be kept, where something is.
    pub target: Option<Target>,
    /// Replicas for prompts, replicas for answers, and what joins them, where they are apart.
    pub pools: Option<(usize, usize, String)>,
    /// What GPUs and electricity cost, where that is known.
    pub priced: Option<Priced>,
    /// What settings are compared by, and which requests' latencies.
    pub objective: Option<(Goal, Which)>,
    /// As the driver runs it, or as was asked for.
    pub base: At,
    /// At other clocks and limits, on other layouts, with other batches.
    pub points: Vec<At>,
    /// Layouts that were asked for and cannot be: why.
    pub left_out: Vec<(Layout, String)>,
    /// What to know.
    pub warnings: Vec<Warning>,
}

impl Served {
    fn title(&self) -> String {
        let Limits { rule, tokens, sequences, blocks, block, chunked, reserve: _ } = self.limits;
        let whole = if chunked { "" } else { ", prompts whole" };
        let order = match rule {
            Scheduling::AnswersFirst => "",
            Scheduling::PromptsFirst => ", prompts in steps of their own",
            Scheduling::WholeAnswers => ", begun where whole answers have room",
        };
        let of = if block == 1 { "a token".to_string() } else { format!("{block} tokens") };
        let Room { footprint, cache, per_token } = &self.room;
        format!(
            "{} on {}{} ({}), {} inference, {} profile; {}\n{}\n\nsteps of at most {tokens} tokens and {sequences} sequences{order}{whole}; weights {:.2} GiB, cache {:.2} GiB: {blocks} blocks of {of}, {:.1} KiB a token",
            self.network,
            if self.base.gpus > 1 { format!("{} x ", self.base.gpus) } else { String::new() },
            self.gpu.0,
            self.gpu.1,
            self.precision,
            self.framework,
            setting(&self.base.point),
            self.rests(),
            footprint.weights.to_gib(),
            cache.to_gib(),
            per_token.to_f64() / 1024.0,
        )
    }

    /// What the time of a token rests on, whose part of it is lent, and what power does.
    fn rests(&self) -> String {
        let lent = |warning: &Warning| match warning {
            Warning::Of { part, warning } if part == "decode" => match &**warning {
                Warning::Substituted { kinds, share, .. } => Some((*share, kinds.clone())),
                _ => None,
            },
            _ => None,
        };
        let (shares, kinds): (Vec<f64>, Vec<Vec<&str>>) = self.warnings.iter().filter_map(lent).unzip();
        let (share, mut kinds) = (shares.iter().sum::<f64>(), kinds.concat());
        kinds.sort_unstable();
        kinds.dedup();
        let time = if kinds.is_empty() {
            of_time(self.tiers.0).to_string()
        } else {
            let (percent, kinds) = (100.0 * share, kinds.join(", "));
            format!("{percent:.0} % of it was not measured on this GPU and is estimated from others ({kinds})")
        };
        format!("a token's time: {time}; {}", of_power(self.tiers.1))
    }
}

fn setting(point: &OperatingPoint) -> String {
    let words = [
        point.core_clock.map(|c| format!("--clock {:.0}", c.to_mhz())),
        point.memory_clock.map(|c| format!("--mem-clock {:.0}", c.to_mhz())),
        point.power_cap.map(|w| format!("--power-cap {:.0}", w.get())),
    ];
    let words: Vec<String> = words.into_iter().flatten().collect();
    if words.is_empty() { "default clock and limit".into() } else { words.join(" ") }
}

/// A layout, as options that ask for it.
fn options(layout: &Layout) -> String {
    let mut words = format!("--tensor-parallel {}", layout.tensor());
    let others = [
        ("pipeline", layout.pipeline()),
        ("expert", layout.expert()),
        ("data", if layout.replicas() > 1 { layout.data() } else { 1 }),
    ];
    for (name, n) in others.into_iter().filter(|(_, n)| *n > 1) {
        let _ = write!(words, " --{name}-parallel {n}");
    }
    words
}

/// Where it differs from another one, as options that ask for it; where layouts do, its own in any case, which nobody may have
/// asked for.
fn changed(at: &At, base: &At, layouts: bool) -> String {
    let words = [
        layouts.then(|| options(&at.layout)),
        (at.sequences != base.sequences).then(|| format!("--max-num-seqs {}", at.sequences)),
        (at.tokens != base.tokens).then(|| format!("--max-num-batched-tokens {}", at.tokens)),
        (at.point != base.point).then(|| setting(&at.point)),
    ];
    let words: Vec<String> = words.into_iter().flatten().collect();
    if words.is_empty() { "as asked for".into() } else { words.join(" ") }
}

/// What intervals are of.
const ENDS: &str = "intervals: from all steps as short as their 5 % quantiles say to all as long as their 95 %; \"to overload\": with steps that long more requests come than are answered, and waits grow without end";
/// In place of a figure where more requests come than are answered.
const OVERLOADED: &str = "overloaded";
/// How settings are compared under a target.
const EACH: &str = ", each at the highest rate that keeps the target";

/// A target in words.
pub(crate) fn target_words(target: &Target) -> String {
    let part = |name: &str, limit: Option<Seconds>| limit.map(|t| format!("{name} within {}", with_unit(t.get(), "s")));
    let parts = [part("first token", target.to_first), part("each token", target.per_token)];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    format!("{} ({})", parts.join(", "), target.which.name())
}

/// A figure at the value and at both ends; the ends are nothing where the replica is overloaded there.
fn between(outlook: &Outlook, figure: impl Fn(&Summary) -> f64, print: impl Fn(f64) -> String) -> (String, String) {
    let of = |summary: &Option<Summary>| summary.as_ref().map(&figure);
    let (value, low, high) = (of(&outlook.value), of(&outlook.low), of(&outlook.high));
    let most_likely = value.or(low).unwrap_or_default();
    let value = value.map_or(OVERLOADED.into(), &print);
    let interval = match (low, high) {
        // What batches make of steps may be less, or more, than at either end.
        (Some(a), Some(b)) => match (print(a.min(b).min(most_likely)), print(a.max(b).max(most_likely))) {
            // What the load decides, not how long steps take.
            (low, high) if low == high && low == value => String::new(),
            (low, high) => format!("{low} to {high}"),
        },
        (Some(a), None) => format!("{} to overload", print(a.min(most_likely))),
        _ => OVERLOADED.into(),
    };
    (value, interval)
}

/// Latencies over requests.
fn latencies(outlook: &Outlook) -> Option<Table> {
    let summary = outlook.value.as_ref()?;
    let mut table = Table::new(&["", "mean", "p50", "p90", "p99", "90 % interval of p90"], 1);
    type Row<'a> = (&'a str, fn(&Summary) -> Option<Quantiles>);
    let rows: [Row<'_>; 3] = [
        ("time to first token", |s| Some(s.to_first)),
        ("time per token", |s| s.per_token),
        ("end to end", |s| Some(s.to_last)),
    ];
    for (name, of) in rows {
        let Some(q) = of(summary) else { continue };
        let seconds = |t: Seconds| with_unit(t.get(), "s");
        let (_, interval) = between(outlook, |s| of(s).map_or(0.0, |q| q.p90.get()), |t| with_unit(t, "s"));
        table.row(vec![name.into(), seconds(q.mean), seconds(q.p50), seconds(q.p90), seconds(q.p99), interval]);
    }
    Some(table)
}

/// Rates, power, energy and cost.
fn figures(outlook: &Outlook, gpus: u64, priced: Option<&Priced>) -> Table {
    let mut table = Table::new(&["", "value", "90 % interval"], 1);
    let number = |x: f64| significant(x, 3);
    let percent = |x: f64| format!("{:.1} %", 100.0 * x);
    let Estimate { value, p05, p95 } = outlook.most;
    let rate = |x: f64| format!("{} /s", significant(x, 3));
    table.row(vec!["requests carried at most".into(), rate(value), format!("{} to {}", rate(p05), rate(p95))]);
    if outlook.value.is_none() {
        return table;
    }
    type Row<'a> = (&'a str, fn(&Summary) -> f64, &'a dyn Fn(f64) -> String);
    let rows: [Row<'_>; 12] = [
        ("requests", |s| s.requests_per_s, &rate),
        ("tokens of answers", |s| s.tokens_per_s, &rate),
        ("time in steps", |s| s.busy, &percent),
        ("sequences of a step", |s| s.batch, &number),
        ("sequences that wait", |s| s.queue, &number),
        ("sent back, for each request", |s| s.preemptions, &number),
        ("power", |s| s.power.get(), &|x| with_unit(x, "W")),
        ("energy for each token of an answer", |s| s.per_answer_token.get(), &|x| with_unit(x, "J")),
        ("energy for each request", |s| s.per_request.get(), &|x| with_unit(x, "J")),
        ("of that for prompts", |s| s.energy_per_s.prefill / s.energy_per_s.total(), &percent),
        ("for answers", |s| s.energy_per_s.decode / s.energy_per_s.total(), &percent),
        ("waiting", |s| s.energy_per_s.idle / s.energy_per_s.total(), &percent),
    ];
    for (name, figure, print) in rows {
        let (value, interval) = between(outlook, figure, print);
        table.row(vec![name.into(), value, interval]);
    }
    if let Some(priced) = priced {
        let tariff = &priced.tariff;
        let money = |x: f64| priced.money(x);
        let electricity = |s: &Summary| {
            let (hardware, electricity) = tariff.per_hour(gpus, s.power);
            electricity / (hardware + electricity)
        };
        let (value, interval) = between(outlook, |s| tariff.per_million(gpus, s), money);
        table.row(vec![COST.into(), value, interval]);
        let per_hour = |s: &Summary| {
            let (hardware, electricity) = tariff.per_hour(gpus, s.power);
            hardware + electricity
        };
        let (value, interval) = between(outlook, per_hour, money);
        table.row(vec!["cost of an hour".into(), value, interval]);
        if tariff.per_kwh > 0.0 {
            let (value, interval) = between(outlook, electricity, percent);
            table.row(vec!["of that electricity".into(), value, interval]);
        }
    }
    table
}

/// What a token costs.
const COST: &str = "cost of a million tokens of answers";

/// Requests that came in a second.
fn came(outlook: &Outlook) -> String {
    let lasts = outlook.value.as_ref().filter(|_| !outlook.is_overloaded());
    lasts.map_or(OVERLOADED.into(), |s| significant(s.requests_per_s, 3))
}

/// A rate with its interval.
fn rate_words(rate: &Estimate<f64>) -> String {
    let [value, low, high] = [(rate.value, 3), (rate.p05, 2), (rate.p95, 2)].map(|(x, digits)| significant(x, digits));
    format!("{value} ({low} to {high})")
}

/// Settings, a line each.
fn points(base: &At, all: &[&At], layouts: bool, priced: Option<&Priced>) -> Table {
    // As the options of targets are called, so that a terminal has room for a line.
    let mut header = vec![
        "setting",
        "requests/s",
        "carries",
        "TTFT p90",
        "TPOT p90",
        "busy",
        "power",
        "energy/token",
        "90 % interval",
    ];
    // Told where settings differ in it.
    let gpus = all.iter().any(|at| at.gpus != base.gpus);
    if gpus {
        header.insert(1, "GPUs");
    }
    if priced.is_some() {
        header.extend(["cost/M tokens", "90 % interval"]);
    }
    let mut table = Table::new(&header, 1);
    for at in all {
        let mut cells = vec![changed(at, base, layouts)];
        cells.extend(gpus.then(|| at.gpus.to_string()));
        let Some(outlook) = &at.outlook else {
            cells.push("none".into());
            table.row(cells);
            continue;
        };
        cells.extend([
            at.highest.as_ref().map_or_else(|| came(outlook), rate_words),
            significant(outlook.most.value, 3),
        ]);
        if let Some(s) = &outlook.value {
            let energy = between(outlook, |s| s.per_answer_token.get(), |x| with_unit(x, "J"));
            cells.extend([
                with_unit(s.to_first.p90.get(), "s"),
                s.per_token.map_or(String::new(), |q| with_unit(q.p90.get(), "s")),
                format!("{:.0} %", 100.0 * s.busy),
                with_unit(s.power.get(), "W"),
                energy.0,
                energy.1,
            ]);
            if let Some(priced) = priced {
                let cost = between(outlook, |s| priced.tariff.per_million(at.gpus, s), |x| priced.money(x));
                cells.extend([cost.0, cost.1]);
            }
        }
        table.row(cells);
    }
    table
}

/// The setting that has the least of a figure, or the most of its inverse, and by how much it is sure: not where ends of the
/// intervals of both lie within each other. None of those that do not carry the load.
fn best<'a>(all: &[&'a At], figure: impl Fn(&At, &Summary) -> Option<f64>) -> Option<(&'a At, bool)> {
    let carries = |outlook: &&Outlook| !outlook.is_overloaded();
    let value = |at: &At| figure(at, at.outlook.as_ref().filter(carries)?.value.as_ref()?);
    let ends = |at: &At| {
        let outlook = at.outlook.as_ref()?;
        let (low, high) = (figure(at, outlook.low.as_ref()?)?, figure(at, outlook.high.as_ref()?)?);
        Some((low.min(high), low.max(high)))
    };
    let known = |at: &&&At| value(at).is_some();
    let least = all
        .iter()
        .filter(known)
        .min_by(|a, b| value(a).unwrap_or(f64::MAX).total_cmp(&value(b).unwrap_or(f64::MAX)))?;
    let sure = |other: &&&At| matches!((ends(least), ends(other)), (Some((_, high)), Some((low, _))) if high < low);
    let others = || all.iter().filter(known).filter(|at| !std::ptr::eq(**at, *least));
    (others().count() > 0).then(|| (*least, others().all(|at| sure(&at))))
}

impl Served {
    /// Whether several layouts were tried.
    fn has_layouts(&self) -> bool {
        self.points.iter().any(|at| at.layout != self.base.layout)
    }

    fn figures(&self, outlook: &Outlook) -> Table {
        figures(outlook, self.base.gpus, self.priced.as_ref())
    }

    fn settings(&self) -> Table {
        points(&self.base, &self.all(), self.has_layouts(), self.priced.as_ref())
    }

    /// The setting that is asked for and all others.
    fn all(&self) -> Vec<&At> {
        std::iter::once(&self.base).chain(&self.points).collect()
    }

    fn point(&self, at: &At) -> Point {
        Point::of(at, self.priced.as_ref())
    }

    /// The best of several settings, and whether that is sure.
    fn best(&self, (goal, which): (Goal, Which)) -> Option<(&At, bool)> {
        let tariff = self.priced.as_ref().map(|priced| &priced.tariff);
        best(&self.all(), |at, s| goal.of(s, which, (at.gpus, tariff)))
    }

    /// Which of several settings is best, in words: what is asked for first.
    fn verdict(&self) -> String {
        let usual = [Goal::Cost, Goal::Energy, Goal::Gpus].map(|goal| (goal, Which::P90));
        let others = usual.into_iter().filter(|(goal, _)| self.objective.is_none_or(|(asked, _)| asked != *goal));
        let line = |objective: (Goal, Which)| {
            let (at, sure) = self.best(objective)?;
            let doubt = if sure { "" } else { ", not surely: intervals overlap" };
            let what = objective.0.words();
            Some(format!("{what}: {}{doubt}\n", changed(at, &self.base, self.has_layouts())))
        };
        self.objective.into_iter().chain(others).filter_map(line).collect()
    }

    /// Who comes, and how many of them count.
    fn load_words(&self) -> String {
        let counted = self.base.outlook.as_ref().and_then(|o| o.value.as_ref()).map_or(0, |s| s.requests);
        format!("{}; {} requests, of which {counted} count; seed {}", self.load, self.requests, self.seed)
    }

    /// How it lies on GPUs.
    fn shares(&self) -> Option<String> {
        let (layout, joined) = self.layout.as_ref()?;
        let experts = if layout.expert() > 1 { format!(", experts by {}", layout.expert()) } else { String::new() };
        let divided = format!("each block divided by {}{experts}", layout.tensor());
        let stages = format!("{} stages of blocks one after the other", layout.pipeline());
        let copies = format!("{} replicas that take requests in turn", layout.replicas());
        let parts = [
            (layout.replicas() > 1).then_some(copies),
            (layout.pipeline() > 1).then_some(stages),
            (layout.tensor() > 1).then_some(divided),
            (layout.of_replica().gpus() > 1).then(|| format!("joined by {joined}; memory is that of each GPU")),
        ];
        let fullest = if layout.pipeline() > 1 { " in the stage that has the least room" } else { "" };
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        Some(format!("{}{fullest}", parts.join(", ")))
    }

    fn replicas(&self) -> Option<String> {
        let (prefill, decode, joined) = self.pools.as_ref()?;
        Some(format!("replicas: {prefill} for prompts, {decode} for answers, joined by {joined}"))
    }

    fn overloaded(&self) -> Option<String> {
        let outlook = self.base.outlook.as_ref().filter(|outlook| outlook.is_overloaded())?;
        let rate = significant(outlook.rate?, 3);
        Some(match &outlook.value {
            Some(s) => format!(
                "overloaded: {rate} requests/s come, and the queue grows until the last of {}: whoever comes after them waits longer",
                s.simulated
            ),
            None => format!(
                "overloaded: {rate} requests/s come, {} are carried: the queue grows as long as they come",
                significant(outlook.most.value, 3)
            ),
        })
    }

    /// Why no setting that was tried carries the load.
    pub fn unserved(&self) -> Option<String> {
        let carries = |at: &&At| at.outlook.as_ref().is_some_and(|outlook| !outlook.is_overloaded());
        if self.all().iter().any(carries) {
            return None;
        }
        let why = self.highest().filter(|_| self.base.highest.is_none()).or_else(|| self.overloaded())?;
        let others =
            if self.points.is_empty() { "" } else { "; nor does any other setting that was tried carry the load" };
        Some(format!("{why}{others}"))
    }

    /// Which runs are too short for their figures.
    pub(super) fn short(&self) -> Option<String> {
        let short = |at: &&&At| at.outlook.as_ref().and_then(|o| o.value.as_ref()).is_some_and(Summary::is_short);
        let all = self.all();
        let whose = match all.iter().filter(short).count() {
            0 => return None,
            n if all.len() > 1 => format!("of {n} of {} settings ", all.len()),
            _ => String::new(),
        };
        Some(format!(
            "{whose}requests that count come for less than {SPANS} times as long as one takes, and begin to count before the replica is full: rates, energy and cost of a token may be a tenth off and more; more --requests"
        ))
    }

    /// The highest rate that keeps the target.
    fn highest(&self) -> Option<String> {
        let target = self.target.as_ref()?;
        let target = target_words(target);
        Some(match &self.base.highest {
            Some(rate) => format!("the highest rate that keeps {target}: {} requests/s", rate_words(rate)),
            None => format!("no rate keeps {target}: a lone request misses it"),
        })
    }

    fn text(&self, print: fn(&Table) -> String) -> String {
        let mut text = format!("{}\n", self.title());
        let prices = self.priced.as_ref().map(Priced::words);
        for line in [self.shares(), self.replicas(), prices, Some(self.load_words())].into_iter().flatten() {
            let _ = writeln!(text, "{line}");
        }
        if let Some(highest) = self.highest() {
            let with = if self.base.highest.is_some() { "; with it" } else { "" };
            let _ = writeln!(text, "\n{highest}{with}");
        }
        if let Some(outlook) = &self.base.outlook {
            if let Some(line) = self.overloaded() {
                let _ = writeln!(text, "\n{line}");
            }
            if let Some(table) = latencies(outlook) {
                let _ = write!(text, "\n{}", print(&table));
            }
            let _ = write!(text, "\n{}\n{ENDS}\n", print(&self.figures(outlook)));
        }
        if !self.points.is_empty() {
            let what = if self.target.is_some() { EACH } else { "" };
            let _ = write!(text, "\nsettings{what}\n\n{}", print(&self.settings()));
            let _ = write!(text, "\n{}", self.verdict());
        }
        if let Some(short) = self.short() {
            let _ = writeln!(text, "\n{short}");
        }
        for (layout, why) in &self.left_out {
            let _ = writeln!(text, "{} is left out: {why}", options(layout));
        }
        text
    }

    /// What a reader who reads no more has to know.
    fn lead(&self) -> Option<String> {
        if let Some(line) = self.overloaded() {
            return Some(capital(&line));
        }
        let outlook = self.base.outlook.as_ref()?;
        let s = outlook.value.as_ref()?;
        let seconds = |t: Seconds| with_unit(t.get(), "s");
        let token = s.per_token.map_or(String::new(), |q| format!(", each further one {}", seconds(q.p90)));
        Some(format!(
            "{} requests/s: the first token within {}{token} for nine requests of ten; {} and {} for each token; it carries {} requests/s at most",
            significant(s.requests_per_s, 3),
            seconds(s.to_first.p90),
            with_unit(s.power.get(), "W"),
            with_unit(s.per_answer_token.get(), "J"),
            significant(outlook.most.value, 3)
        ))
    }

    /// The page.
    fn page(&self) -> Page {
        let title = self.title();
        let (first, rest) = title.split_once('\n').unwrap_or((&title, ""));
        let mut blocks = vec![];
        blocks.extend(self.highest().map(|line| Block::Lead(format!("{}.", capital(&line)))));
        blocks.extend(self.lead().map(|line| Block::Lead(format!("{line}."))));
        let about = rest.split('\n').filter(|line| !line.is_empty()).map(str::to_string);
        let about = about
            .chain(self.shares())
            .chain(self.replicas())
            .chain(self.priced.as_ref().map(Priced::words))
            .chain([self.load_words()]);
        blocks.push(Block::Heading("What is served".into()));
        blocks.push(Block::List(about.map(|line| thousands(&format!("{}.", capital(&line)))).collect()));
        if let Some(outlook) = &self.base.outlook {
            blocks.push(Block::Heading("Latencies".into()));
            blocks.extend(self.overloaded().map(|line| Block::Text(format!("{}.", capital(&line)))));
            blocks.extend(latencies(outlook).map(Block::Table));
            blocks.push(Block::Heading("Load, power and energy".into()));
            blocks.push(Block::Table(self.figures(outlook)));
            blocks.push(Block::Text(format!("{}.", capital(ENDS))));
        }
        if !self.points.is_empty() {
            let what = if self.target.is_some() { EACH } else { "" };
            blocks.push(Block::Heading(format!("Settings{what}")));
            let verdict = self.verdict();
            blocks.push(Block::List(verdict.lines().map(|line| format!("{}.", capital(line))).collect()));
            blocks.push(Block::Table(self.settings()));
        }
        let left_out = |(layout, why): &(Layout, String)| format!("{} is left out: {why}", options(layout));
        let notes: Vec<String> =
            self.left_out.iter().map(left_out).chain(self.short()).chain(self.warnings.iter().map(words)).collect();
        if !notes.is_empty() {
            blocks.push(Block::Heading("To be known".into()));
            blocks.push(Block::List(notes));
        }
        Page { title: first.into(), blocks }
    }

    fn notes(&self, mark: &str) -> String {
        self.warnings.iter().map(|w| format!("{mark} {}\n", words(w))).collect()
    }
}

impl Export for Served {
    const FORMS: &'static [(Format, &'static str)] = &[
        (Format::Table, "Aligned text"),
        (Format::Markdown, "For a report"),
        (Format::Json, "A document with all digits, in seconds, watts and joules"),
        (Format::Csv, "A line for each setting, with the JSON's keys"),
        (Format::Html, "One file for a browser"),
    ];

    fn export(&self, format: Format) -> Result<String, ExportError> {
        match format {
            Format::Table => Ok(format!("{}\n{}", self.text(Table::to_text), self.notes("note:"))),
            Format::Markdown => Ok(markdown_text(&format!("{}\n{}", self.text(Table::to_markdown), self.notes("-")))),
            Format::Json => export::json(&self.document()),
            Format::Csv => {
                let rows = self.all().into_iter().map(|at| serde_json::to_value(self.point(at)));
                let rows = rows.collect::<Result<Vec<_>, _>>()?;
                let one = Summary { per_token: Some(Quantiles::default()), ..Summary::default() };
                let columns = serde_json::to_value(Figures::of(&one, 1, None))?;
                let whole = |mut row: Value| {
                    for part in ["value", "steps_p05", "steps_p95"] {
                        row[part] = with_all(&columns, &row[part]);
                    }
                    row
                };
                Ok(record::csv(&rows.into_iter().map(whole).collect::<Vec<_>>(), &[]))
            }
            Format::Html => Ok(self.page().to_html()),
        }
    }
}
