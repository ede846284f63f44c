//! A plan as a page: paragraphs, tables and figures.

use super::{AtLimit, Candidate, Plan, Value};
use crate::document::{Block, Document};
use crate::figure::fleet::{Fleet as FleetFigure, Point, Series};
use crate::figure::sensitivity::{Bar, Sensitivity};
use crate::figure::{FigureError, svg};
use crate::table::{Table, percent_more, significant, with_unit};
use joulecast_model::capacity::{Change, Fleet, Minimise, Price};
use joulecast_model::units::Watts;

/// A figure with its interval.
fn span(o: &AtLimit, of: Value, by: f64) -> String {
    let number = |f: &Option<Fleet>| {
        f.as_ref().map_or("none".into(), |f| {
            let value = of(f) / by;
            if value >= 100.0 { format!("{value:.0}") } else { significant(value, 3) }
        })
    };
    spanned(number(&o.value), number(&o.low), number(&o.high))
}

/// An interval that has no width is not worth showing.
fn spanned(value: String, low: String, high: String) -> String {
    if value == low && value == high { value } else { format!("{value} ({low} to {high})") }
}

fn plural(count: u64, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

fn whole(o: &AtLimit, of: fn(&Fleet) -> u64) -> String {
    let number = |f: &Option<Fleet>| f.as_ref().map_or("none".into(), |f| of(f).to_string());
    spanned(number(&o.value), number(&o.low), number(&o.high))
}

fn candidates(plan: &Plan) -> Table {
    let money = &plan.file.currency;
    let cost = [format!("{money}/year"), format!("{money}/million")];
    let mut header = vec!["gpu", "limit W", "GPUs", "servers", "racks", "facility kW at peak", "MWh/year"];
    header.extend([cost[0].as_str(), cost[1].as_str(), "g CO2e/million", "J/inference", "binding"]);
    let mut table = Table::new(&header, 1).with_trailing_text(1);
    for c in &plan.candidates {
        let Some((o, fleet)) = c.taken().and_then(|o| Some((o, o.value.as_ref()?))) else {
            let why =
                if c.options.iter().all(|o| o.value.is_none()) { "latency: no fleet" } else { "site power: no fleet" };
            let mut row = vec![c.gpu.clone()];
            row.resize(header.len() - 1, String::new());
            row.push(why.into());
            table.row(row);
            continue;
        };
        table.row(vec![
            c.gpu.clone(),
            format!("{:.0}", o.cap.get()),
            whole(o, |f| f.gpus),
            fleet.servers.to_string(),
            fleet.racks.map_or("-".into(), |r| r.to_string()),
            span(o, |f| f.facility_peak.get(), 1e3),
            span(o, Fleet::kwh_per_year, 1e3),
            span(o, |f| f.cost_per_year, 1.0),
            span(o, Fleet::cost_per_million, 1.0),
            span(o, Fleet::carbon_g_per_million, 1.0),
            span(o, |f| f.energy_per_request().get(), 1.0),
            c.binding(plan, fleet),
        ]);
    }
    table
}

fn pools(plan: &Plan, fleet: &Fleet) -> Table {
    let quantile = format!("p{} latency", 100.0 * plan.file.target.quantile);
    let header = ["network", "requests/s at peak", "batch", "GPUs", "busy at peak", &quantile, "boards", "binding"];
    let mut table = Table::new(&header, 1).with_trailing_text(1);
    for ((pool, limit), network) in fleet.pools.iter().zip(&plan.file.networks) {
        table.row(vec![
            network.net.clone(),
            significant(network.share * plan.file.peak_per_s, 4),
            pool.batch.to_string(),
            pool.gpus.to_string(),
            format!("{:.0} %", 100.0 * pool.utilisation),
            with_unit(pool.latency.get(), "s"),
            with_unit(pool.power.get(), "W"),
            limit.to_string(),
        ]);
    }
    table
}

/// What a plan makes small, of a fleet, and what that is called.
fn objective(minimise: Minimise) -> (Value, &'static str) {
    match minimise {
        Minimise::Cost => (|f| f.cost_per_year, "cost of a year"),
        Minimise::Energy => (|f| f.energy_per_year.get(), "energy of a year"),
        Minimise::Carbon => (Fleet::carbon_g_per_year, "carbon of a year"),
        Minimise::Gpus => (|f| f.gpus as f64, "GPUs"),
    }
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

fn limits_table(plan: &Plan, c: &Candidate) -> Table {
    let cost = format!("{}/year", plan.file.currency);
    let header = ["limit W", "GPUs", "facility kW at peak", "MWh/year", &cost, "kg CO2e/year", ""];
    let mut table = Table::new(&header, 0).with_trailing_text(1);
    for (i, o) in c.options.iter().enumerate() {
        let Some(fleet) = &o.value else { continue };
        table.row(vec![
            format!("{:.0}", o.cap.get()),
            whole(o, |f| f.gpus),
            span(o, |f| f.facility_peak.get(), 1e3),
            significant(fleet.kwh_per_year() / 1e3, 4),
            format!("{:.0}", fleet.cost_per_year),
            format!("{:.0}", fleet.carbon_g_per_year() / 1e3),
            if c.chosen == Some(i) { "taken".into() } else { String::new() },
        ]);
    }
    table
}

fn assumptions(plan: &Plan) -> Table {
    let file = &plan.file;
    let mut table = Table::new(&["assumption", "value", "source"], 3);
    let mut row = |a: &str, b: String, c: &str| table.row(vec![a.into(), b, c.into()]);
    row("peak load", format!("{} requests/s", file.peak_per_s), "plan");
    let mean = file.profile_per_s.iter().sum::<f64>() / file.profile_per_s.len() as f64;
    let parts = file.profile_per_s.len();
    let through = if parts == 1 { String::new() } else { format!(", in {parts} parts of the day") };
    row("mean load", format!("{} requests/s{through}", significant(mean, 4)), "plan");
    row(
        "latency target",
        format!("{} at p{}", with_unit(file.target.latency.get(), "s"), 100.0 * file.target.quantile),
        "plan",
    );
    for n in &file.networks {
        row("network", format!("{}, {:.0} % of the requests", n.net, 100.0 * n.share), "plan");
    }
    let how = format!("{}, {} profile ({})", file.precision, file.framework, plan.launch.name());
    row("arithmetic and framework", how, "plan");
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
        row(&format!("{} ({})", c.gpu, c.title), price, &c.price_source);
        let s = &c.server;
        let embodied = match (c.embodied_kg, s.embodied_kg) {
            (Some(gpu), Some(server)) => format!("; embodied {gpu} kg CO2e a GPU, {server} kg a server"),
            (Some(gpu), None) => format!("; embodied {gpu} kg CO2e a GPU, of a server unknown"),
            _ => "; embodied carbon unknown: left out".into(),
        };
        let server = format!("{} GPUs, {} besides{embodied}", s.gpus, with_unit(s.overhead.get(), "W"));
        row(&format!("server for {}", c.gpu), server, "plan");
    }
    table
}

fn conventions(plan: &Plan) -> Vec<String> {
    vec![
        "Board power is not wall power: predictions are of GPU boards; servers draw what the plan says besides, power supplies and cooling are in the PUE, which is applied once.".into(),
        "In brackets: every step's time and energy at its 5 % and at its 95 % quantile together, the fleet sized anew. That is wider than 90 % where errors of networks are independent. \"none\": no fleet keeps the target then.".into(),
        "Each network has a pool of its own. Requests arrive at random (Poisson) and gather into batches of a fixed size; a batch waits for a GPU and takes its predicted time: E_b/D/c, Erlang C with Cosmetatos's correction for fixed service times over the batch (exact and simulated waits are within the tests of model/src/capacity/queueing.rs). Latency is from arrival to result on the GPU: network transfer and preprocessing are not in it. Steps are taken to last exactly as predicted: a pool that is busy more than nine tenths of the time has little slack for what varies.".into(),
        "All GPUs stay on; each part of the day takes the batch with the least power that keeps the target. Power limits hold all day.".into(),
        format!("Carbon: SCI (ISO/IEC 21031), (E I + M) / R, R = 1 million inferences, location-based; M {}.", if plan.candidates.iter().any(|c| c.embodied_kg.is_none()) { "only where the plan gives embodied emissions" } else { "straight line over the years of amortisation" }),
        "Racks hold as many servers as their power allows with every board at its limit. No spares: add what your availability needs.".into(),
    ]
}

/// The report's parts; figures only where they are drawn.
fn document(plan: &Plan, figures: bool) -> Result<Document, FigureError> {
    let mut blocks = Vec::new();
    let winner = plan.winner.map(|i| &plan.candidates[i]);
    let taken = winner.and_then(|c| Some((c, c.taken()?, c.taken()?.value.as_ref()?)));
    match taken {
        Some((c, o, fleet)) => {
            let racks = fleet.racks.map_or(String::new(), |r| format!(" in {}", plural(r, "rack")));
            blocks.push(Block::Text(format!(
                "Least {}: {} {} limited to {:.0} W, {}{racks}. The facility draws {} kW at peak and {} MWh a year; a year costs {} {} and emits {} t CO2e. Binding: {}.",
                plan.file.minimise.name(),
                whole(o, |f| f.gpus),
                c.title,
                o.cap.get(),
                plural(fleet.servers, "server"),
                span(o, |f| f.facility_peak.get(), 1e3),
                span(o, Fleet::kwh_per_year, 1e3),
                span(o, |f| f.cost_per_year, 1.0),
                plan.file.currency,
                span(o, Fleet::carbon_g_per_year, 1e6),
                c.binding(plan, fleet)
            )));
        }
        None => blocks.push(Block::Text("No candidate carries the load within its limits.".into())),
    }
    let over = |f: &Fleet| plan.file.site.site.is_some_and(|limit| f.facility_peak > limit);
    if taken.is_some_and(|(_, o, _)| o.high.as_ref().is_none_or(over)) {
        blocks.push(Block::Text(
            "At the 95 % quantiles the site's power or the latency target would not be kept: measure before you build."
                .into(),
        ));
    }
    blocks.push(Block::Heading("Candidates".into()));
    blocks.push(Block::Table(candidates(plan)));
    if figures && plan.candidates.iter().any(|c| c.options.iter().any(|o| o.value.is_some())) {
        blocks.push(Block::Figure(svg(&fleets(plan))?));
    }
    if let Some((c, _, fleet)) = taken {
        blocks.push(Block::Heading(format!("Pools of {}", c.gpu)));
        blocks.push(Block::Table(pools(plan, fleet)));
        blocks.push(Block::Heading(format!("Power limits of {}", c.gpu)));
        blocks.push(Block::Table(limits_table(plan, c)));
        blocks.push(Block::Heading("Sensitivity".into()));
        blocks.push(Block::Table(sensitivity_table(c, fleet)));
        if figures {
            let (of, name) = objective(plan.file.minimise);
            let end = |f: &Option<Fleet>| f.as_ref().map(|f| 100.0 * (of(f) / of(fleet) - 1.0));
            let bar = |s: &Change| Bar { name: s.input.to_string(), less: end(&s.less), more: end(&s.more) };
            let figure = Sensitivity {
                title: format!("Change of the {name}, {}", c.gpu),
                bars: c.sensitivity.iter().map(bar).collect(),
                notes: vec![plan.command.clone()],
            };
            blocks.push(Block::Figure(svg(&figure)?));
        }
    }
    blocks.push(Block::Heading("Assumptions".into()));
    blocks.push(Block::Table(assumptions(plan)));
    blocks.push(Block::Heading("How to read this".into()));
    let mut notes = conventions(plan);
    for c in &plan.candidates {
        notes.push(format!("{} rests on: {}.", c.gpu, c.rests_on.join("; ")));
        notes.extend(c.warnings.iter().map(|w| format!("{}: {w}", c.gpu)));
    }
    notes.push(format!("Made by: {}", plan.command));
    blocks.push(Block::List(notes));
    Ok(Document { title: plan.file.title.clone(), blocks })
}

/// GPUs against facility power over the power limits of all candidates.
pub fn fleets(plan: &Plan) -> FleetFigure {
    let series = |(i, c): (usize, &Candidate)| Series {
        name: c.gpu.clone(),
        points: c
            .options
            .iter()
            .enumerate()
            .filter_map(|(j, o)| {
                let fleet = o.value.as_ref()?;
                Some(Point {
                    kw: fleet.facility_peak.get() / 1e3,
                    gpus: fleet.gpus as f64,
                    setting: format!("{} at {:.0} W", c.gpu, o.cap.get()),
                    chosen: plan.winner == Some(i) && c.chosen == Some(j),
                })
            })
            .collect(),
    };
    FleetFigure {
        title: "GPUs against facility power".into(),
        series: plan.candidates.iter().enumerate().map(series).collect(),
        limit_kw: plan.file.site.site.map(|w| w.get() / 1e3),
        notes: vec![plan.command.clone()],
    }
}

/// Aligned text.
pub fn text(plan: &Plan) -> String {
    document(plan, false).map(|d| d.to_text()).unwrap_or_default()
}

/// Markdown.
pub fn markdown(plan: &Plan) -> String {
    document(plan, false).map(|d| d.to_markdown()).unwrap_or_default()
}

/// One HTML file with its figures.
///
/// # Errors
/// Where a figure cannot be drawn.
pub fn html(plan: &Plan) -> Result<String, FigureError> {
    Ok(document(plan, true)?.to_html())
}
