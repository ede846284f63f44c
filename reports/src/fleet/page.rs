//! A plan as a page: paragraphs, tables and figures.

use super::cells::{span, whole};
use super::values::{AtSetting, COSTS, Candidate, DAY, FLEETS, Figure, Plan, SENSITIVITY, Value};
use super::{hours, pictures, services};
use crate::document::{Block, Document};
use crate::export::ExportError;
use crate::table::{Table, percent_more, significant, thousands, with_unit};
use joulecast_ask::capacity::{Change, Fleet, Minimise, Price, Target, objective};
use joulecast_model::base::order::sort_by;
use joulecast_model::base::units::Watts;
use std::path::Path;

fn plural(count: u64, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

fn of(o: &AtSetting, value: Value, by: f64) -> String {
    span(o.figure(|f| Some(value(f))), by)
}

fn candidates(plan: &Plan) -> Table {
    let money = &plan.file.currency;
    let cost = [format!("{money}/year"), format!("{money}/million")];
    let mut header = vec!["gpu", "setting", "GPUs", "servers", "racks", "facility kW at peak", "MWh/year"];
    header.extend([cost[0].as_str(), cost[1].as_str(), "g CO2e/million", "J/inference", "binding"]);
    let mut table = Table::new(&header, 2).with_trailing_text(1);
    let lacking: Vec<&str> = plan.lacking_embodied().iter().map(|c| c.name.as_str()).collect();
    for c in &plan.candidates {
        let Some((o, fleet)) = c.taken().and_then(|o| Some((o, o.value.as_ref()?))) else {
            let mut row = vec![c.name.clone()];
            row.resize(header.len() - 1, String::new());
            row.push(format!("{}: no fleet", c.reason.as_deref().unwrap_or_default()));
            table.row(row);
            continue;
        };
        let carbon = of(o, Fleet::carbon_g_per_million, 1.0);
        let carbon = if lacking.contains(&c.name.as_str()) { format!("{carbon}, not all embodied") } else { carbon };
        table.row(vec![
            c.name.clone(),
            o.setting(),
            whole(o.figure(|f| Some(f.gpus as f64))),
            whole(o.figure(|f| Some(f.servers as f64))),
            if fleet.racks.is_some() { whole(o.racks()) } else { "-".into() },
            of(o, |f| f.facility_peak.get(), 1e3),
            of(o, Fleet::kwh_per_year, 1e3),
            of(o, |f| f.cost_per_year, 1.0),
            of(o, Fleet::cost_per_million, 1.0),
            carbon,
            of(o, |f| f.energy_per_request().get(), 1.0),
            c.binding(plan, fleet),
        ]);
    }
    table
}

fn pools(plan: &Plan, target: &Target, o: &AtSetting, fleet: &Fleet) -> Table {
    let latency = format!("p{} latency, ms", 100.0 * target.quantile);
    let header =
        ["network", "requests/s at peak", "batch", "GPUs", "busy % at peak", &latency, "kW of boards", "binding"];
    let mut table = Table::new(&header, 1).with_trailing_text(1);
    for (i, ((_, limit), network)) in fleet.pools.iter().zip(&plan.file.networks).enumerate() {
        table.row(vec![
            network.net.clone(),
            significant(network.share * plan.file.peak_per_s, 4),
            whole(o.pool(i, |p| p.batch as f64)),
            whole(o.pool(i, |p| p.gpus as f64)),
            whole(o.pool(i, |p| 100.0 * p.utilisation)),
            span(o.pool(i, |p| p.latency.to_ms()), 1.0),
            span(o.pool(i, |p| p.power.get()), 1e3),
            limit.to_string(),
        ]);
    }
    table
}

fn sensitivity_table(c: &Candidate, base: &Fleet) -> Table {
    let header = ["10 % less / more of", "GPUs %", "facility kW %", "cost %", "carbon %"];
    let mut table = Table::new(&header, 1);
    for change in &c.sensitivity {
        let both = |of: Value| {
            let one = |f: &Option<Fleet>| f.as_ref().map_or("no fleet".into(), |f| percent_more(of(f) / of(base)));
            format!("{} / {}", one(&change.less), one(&change.more))
        };
        table.row(vec![
            change.input.to_string(),
            both(|f| f.gpus as f64),
            both(|f| f.facility_peak.get()),
            both(|f| f.cost_per_year),
            both(Fleet::carbon_g_per_year),
        ]);
    }
    table
}

fn settings_table(plan: &Plan, c: &Candidate) -> Table {
    let cost = format!("{}/year", plan.file.currency);
    let header = ["setting", "GPUs", "facility kW at peak", "MWh/year", &cost, "t CO2e/year", ""];
    let mut table = Table::new(&header, 1).with_trailing_text(1);
    for (i, o) in c.options.iter().enumerate().filter(|(_, o)| o.value.is_some()) {
        table.row(vec![
            o.setting(),
            whole(o.figure(|f| Some(f.gpus as f64))),
            of(o, |f| f.facility_peak.get(), 1e3),
            of(o, Fleet::kwh_per_year, 1e3),
            of(o, |f| f.cost_per_year, 1.0),
            of(o, Fleet::carbon_g_per_year, 1e6),
            if c.chosen == Some(i) { "taken".into() } else { String::new() },
        ]);
    }
    table
}

fn assumptions(plan: &Plan) -> Table {
    let file = &plan.file;
    let mut table = Table::new(&["assumption", "value", "source"], 3);
    let mut row = |a: &str, b: String, c: &str| table.row(vec![a.into(), thousands(&b), c.into()]);
    if let Some(target) = file.target {
        row("peak load", format!("{} requests/s", file.peak_per_s), "plan");
        let mean = file.profile_per_s.iter().sum::<f64>() / file.profile_per_s.len() as f64;
        let parts = file.profile_per_s.len();
        let through = if parts == 1 { String::new() } else { format!(", in {parts} parts of the day") };
        row("mean load", format!("{} requests/s{through}", significant(mean, 4)), "plan");
        let kept = format!("{} at p{}", with_unit(target.latency.get(), "s"), 100.0 * target.quantile);
        row("latency target", kept, "plan");
        for n in &file.networks {
            row("network", format!("{}, {:.0} % of the requests", n.net, 100.0 * n.share), "plan");
        }
        let how = format!("{}, {} profile ({})", file.precision, file.framework, plan.launch.name());
        row("arithmetic and framework", how, "plan");
    }
    for (what, value) in file.languages.iter().flat_map(services::assumed) {
        row(&what, value, "plan");
    }
    let headroom =
        format!("GPUs are busy for at most {} % of the time at the peak", significant(100.0 * file.utilisation, 3));
    row("headroom", headroom, "plan");
    row("PUE", significant(file.site.pue, 3), "plan");
    row("price of energy", format!("{} {}/kWh", file.site.price_per_kwh, file.currency), "plan");
    row("carbon intensity", format!("{} g CO2e/kWh, location-based", file.site.carbon_g_per_kwh), &file.carbon_source);
    row("amortisation", format!("{} years, straight line", file.site.amortisation_years), "plan");
    let kw = |w: Option<Watts>| w.map_or("none".into(), |w| format!("{} kW", w.get() / 1e3));
    row("power limit of a rack, of the site", format!("{}, {}", kw(file.site.rack), kw(file.site.site)), "plan");
    for c in &plan.candidates {
        let price = match c.price {
            Price::Buy(p) => format!("{p} {} to buy", file.currency),
            Price::PerHour(p) => format!("{p} {} per hour, energy included", file.currency),
        };
        row(&format!("{} ({})", c.name, c.title), price, &c.price_source);
        let s = &c.server;
        let embodied = match (c.embodied_kg, s.embodied_kg) {
            (Some(gpu), Some(server)) => format!("; embodied {gpu} kg CO2e a GPU, {server} kg a server"),
            (Some(gpu), None) => format!("; embodied {gpu} kg CO2e a GPU, of a server unknown"),
            _ => "; embodied carbon unknown: left out".into(),
        };
        let server = format!("{} GPUs, {} besides{embodied}", s.gpus, with_unit(s.overhead.get(), "W"));
        row(&format!("server for {}", c.name), server, "plan");
        let planned = file.candidates.iter().find(|planned| planned.name == c.name);
        let spares = planned.map_or(0.0, |planned| planned.spares);
        row(&format!("spares of {}", c.name), format!("{} % of the GPUs", significant(100.0 * spares, 3)), "plan");
        let (power, source) = &c.waiting;
        row(&format!("power of a waiting board of {}", c.name), with_unit(power.get(), "W"), source);
    }
    table
}

/// How networks, and how language models are sized.
fn sized(plan: &Plan) -> Vec<String> {
    let mut list = Vec::new();
    if !plan.file.networks.is_empty() {
        list.push("Each network has a pool of its own. Requests arrive at random (Poisson) and gather into batches of a fixed size; a batch waits for a GPU and takes its predicted time: E_b/D/c, Erlang C with Cosmetatos's correction for fixed service times over the batch. Latency is from arrival to result on the GPU: network transfer and preprocessing are not in it. Steps are taken to last exactly as predicted; `utilisation` in the plan is the slack for what varies.".into());
    }
    if !plan.file.languages.is_empty() {
        list.push("Each language model has a pool of replicas, each of one or several GPUs of one server. Requests are divided among them by chance; what one replica does of its part is simulated as `predict serve` does it, at rates up to the highest that keeps the target, and read between them. Replicas are as many as the peak needs, on the layout that takes the fewest GPUs; they stay on all day.".into());
    }
    list
}

fn conventions(plan: &Plan) -> Vec<String> {
    let mut list = vec![
        "Board power is not wall power: predictions are of GPU boards; servers draw what the plan says besides, power supplies and cooling are in the PUE, which is applied once.".into(),
        "In brackets: lowest and highest with every step's time and energy as predicted, at its 5 % and at its 95 % quantile together, the fleet sized anew. That is wider than 90 % where errors of networks are independent. \"none\": no fleet keeps the target then.".into(),
    ];
    list.extend(sized(plan));
    list.extend([
        "All GPUs stay on; each part of the day takes the batch with the least power that keeps the target. Power limits and clocks hold all day; hardware is paid by the hour of its years.".into(),
        "Sensitivity is of the values: GPUs come whole, so that a tenth of an input may change nothing or a whole GPU.".into(),
        format!("Carbon: SCI (ISO/IEC 21031), (E I + M) / R, R = 1 million inferences, location-based; M {}.", if plan.candidates.iter().any(|c| c.embodied_kg.is_none()) { "only where the plan gives embodied emissions" } else { "straight line over the years of amortisation" }),
        "Racks hold as many servers as their power allows with every board at its limit. Spare GPUs wait, switched on, in servers like the others, and are among the GPUs; `spares` in the plan says how many.".into(),
    ]);
    list
}

/// What a year costs in what the plan makes small, where that has a word of its own.
fn year(plan: &Plan, o: &AtSetting) -> String {
    format!("{} {}", of(o, |f| f.cost_per_year, 1.0), plan.file.currency)
}

/// The choice, its cost, its risk and what would change it: what somebody reads who reads no more.
fn summary(plan: &Plan, (c, o, fleet): (&Candidate, &AtSetting, &Fleet)) -> Vec<(String, String)> {
    let racks = fleet.racks.map_or(String::new(), |r| format!(" in {}", plural(r, "rack")));
    let named = if c.name == c.gpu { String::new() } else { format!(" ({})", c.name) };
    let how = if o.clock.is_some() { "locked to" } else { "limited to" };
    let spares = if fleet.spares > 0 {
        format!(", {} of them spare", whole(o.figure(|f| Some(f.spares as f64))))
    } else {
        String::new()
    };
    let choice = format!(
        "{} {}{named} {how} {}{spares}, {}{racks}: the least {}{}. What keeps it from being smaller: {}.",
        whole(o.figure(|f| Some(f.gpus as f64))),
        c.title,
        o.setting(),
        plural(fleet.servers, "server"),
        plan.file.minimise.name(),
        if plan.rivals().is_empty() { "" } else { ", as predicted" },
        c.binding(plan, fleet)
    );
    let energy = 100.0 * fleet.energy_cost_per_year / fleet.cost_per_year;
    let energy = match c.price {
        Price::Buy(_) if fleet.cost_per_year > 0.0 => format!(", {energy:.0} % of it energy"),
        _ => String::new(),
    };
    let cost = format!(
        "{} a year{energy}; {} {} for a million requests. The facility draws {} kW at peak and {} MWh a year, and emits {} t CO2e.",
        year(plan, o),
        of(o, Fleet::cost_per_million, 1.0),
        plan.file.currency,
        of(o, |f| f.facility_peak.get(), 1e3),
        of(o, Fleet::kwh_per_year, 1e3),
        of(o, Fleet::carbon_g_per_year, 1e6),
    );
    vec![
        ("Choice".into(), choice),
        ("Cost".into(), cost),
        ("Risk".into(), risk(plan, c, o)),
        ("What would change it".into(), turning(plan, c, fleet)),
    ]
}

/// What may go wrong with a choice.
fn risk(plan: &Plan, c: &Candidate, o: &AtSetting) -> String {
    let over = |f: &Fleet| plan.file.site.site.is_some_and(|limit| f.facility_peak > limit);
    let worst = match &o.high {
        None => {
            "Were all steps as long as their 95 % quantiles, no fleet would keep the target: measure before you build."
                .into()
        }
        Some(high) if over(high) => {
            "Were all steps as long as their 95 % quantiles, the site's power would not do: measure before you build."
                .into()
        }
        Some(high) => {
            let exactly = |value: f64| span(Figure { value: Some(value), p05: Some(value), p95: Some(value) }, 1.0);
            format!(
                "Were all steps as long as their 95 % quantiles, {} of {} would be needed, at {} {} a year.",
                thousands(&high.gpus.to_string()),
                c.name,
                exactly(high.cost_per_year),
                plan.file.currency
            )
        }
    };
    let trust = match c.rests_on.first() {
        Some(first) if c.rests_on.len() == 1 => format!(" Trust in {first}."),
        Some(first) => format!(" Trust in {first}; others below."),
        None => String::new(),
    };
    worst + &trust
}

/// Inputs that move what the plan makes small the most, and candidates that may be better.
fn turning(plan: &Plan, c: &Candidate, fleet: &Fleet) -> String {
    let base = objective(fleet, plan.file.minimise);
    let by = |f: &Option<Fleet>| f.as_ref().map(|f| objective(f, plan.file.minimise) / base);
    let far = |change: &&Change| {
        let moved = |end: &Option<Fleet>| by(end).map_or(f64::INFINITY, |ratio| (ratio - 1.0).abs());
        moved(&change.less).max(moved(&change.more))
    };
    let mut changes: Vec<&Change> = c.sensitivity.iter().filter(|change| far(change) > 0.0).collect();
    sort_by(&mut changes, |a, b| far(b).total_cmp(&far(a)));
    let percent = |ratio: Option<f64>| ratio.map_or("no fleet".into(), |ratio| format!("{} %", percent_more(ratio)));
    let told = changes.iter().take(3).map(|change| {
        format!(
            "{} ({} with a tenth less, {} with a tenth more)",
            change.input,
            percent(by(&change.less)),
            percent(by(&change.more))
        )
    });
    let told: Vec<String> = told.collect();
    let rivals: Vec<&str> = plan.rivals().iter().map(|c| c.name.as_str()).collect();
    let rivals = match &rivals[..] {
        [] => "No other candidate comes near within the predictions' intervals.".into(),
        names => format!("Within the predictions' intervals {} may turn out better.", names.join(", ")),
    };
    match told.is_empty() {
        true => rivals,
        false => {
            format!("{rivals} Of the inputs, the {} moves most with: {}.", plan.file.minimise.name(), told.join(", "))
        }
    }
}

/// How figures are shown.
#[derive(Clone, Copy)]
pub(super) enum Show<'a> {
    /// Not at all.
    Nothing,
    /// Where they are.
    Within,
    /// As files of this folder.
    Beside(&'a Path),
}

/// A figure as a part of the report, where the plan has something to draw in it.
fn figure(plan: &Plan, name: &str, show: Show<'_>) -> Result<Option<Block>, ExportError> {
    Ok(match show {
        Show::Nothing => None,
        Show::Within => pictures::drawn(plan, name)?.map(Block::Figure),
        Show::Beside(folder) => {
            let path = folder.join(format!("{name}.svg")).display().to_string();
            pictures::title_of(plan, name).map(|title| Block::Link { title, path })
        }
    })
}

/// The report's parts.
pub(super) fn document(plan: &Plan, show: Show<'_>) -> Result<Document, ExportError> {
    let mut blocks = Vec::new();
    let winner = plan.winner.map(|i| &plan.candidates[i]);
    let taken = winner.and_then(|c| Some((c, c.taken()?, c.taken()?.value.as_ref()?)));
    match taken {
        Some(of) => {
            blocks.extend(plan.conclusion().map(|line| Block::Lead(line + ".")));
            blocks.push(Block::Facts(summary(plan, of)));
        }
        None => blocks.push(Block::Text("No candidate carries the load within its limits.".into())),
    }
    let lacking = plan.lacking_embodied();
    if plan.file.minimise == Minimise::Carbon && !lacking.is_empty() {
        let names: Vec<&str> = lacking.iter().map(|c| c.name.as_str()).collect();
        blocks.push(Block::Text(format!(
            "The comparison is not a fair one: embodied carbon of {} is not or not wholly known and left out, that of other candidates is in.",
            names.join(", ")
        )));
    }
    blocks.push(Block::Heading("Candidates".into()));
    blocks.push(Block::Table(candidates(plan)));
    blocks.extend(figure(plan, COSTS, show)?);
    blocks.extend(figure(plan, FLEETS, show)?);
    if let Some((c, o, fleet)) = taken {
        if let Some(target) = &plan.file.target {
            blocks.push(Block::Heading(format!("Pools of {}", c.name)));
            blocks.push(Block::Table(pools(plan, target, o, fleet)));
        }
        if !fleet.languages.is_empty() {
            blocks.push(Block::Heading(format!("Language models on {}", c.name)));
            blocks.push(Block::Table(services::table(plan, o, fleet)));
            blocks.push(Block::Heading("Where the joules go".into()));
            blocks.push(Block::Table(services::joules(plan, c, o, fleet)));
        }
        if fleet.day.len() > 1 {
            blocks.push(Block::Heading(format!("Through the day, {} at {}", c.name, o.setting())));
            blocks.push(Block::Table(hours::table(o, fleet, &plan.file.currency)));
            blocks.extend(figure(plan, DAY, show)?);
        }
        blocks.push(Block::Heading(format!("Power limits and clocks of {}", c.name)));
        blocks.push(Block::Table(settings_table(plan, c)));
        blocks.push(Block::Heading("Sensitivity".into()));
        blocks.push(Block::Table(sensitivity_table(c, fleet)));
        blocks.extend(figure(plan, SENSITIVITY, show)?);
    }
    blocks.push(Block::Heading("Assumptions".into()));
    blocks.push(Block::Table(assumptions(plan)));
    blocks.push(Block::Heading("How to read this".into()));
    let mut notes = conventions(plan);
    for c in &plan.candidates {
        if !c.rests_on.is_empty() {
            notes.push(format!("{} rests on: {}.", c.name, c.rests_on.join("; ")));
        }
        notes.extend(c.warnings.iter().map(|w| format!("{}: {w}", c.name)));
    }
    // A page says it at its foot.
    if !matches!(show, Show::Within) {
        notes.push(format!("Made by: {}", plan.command));
    }
    blocks.push(Block::List(notes));
    Ok(Document { title: plan.file.title.clone(), blocks })
}
