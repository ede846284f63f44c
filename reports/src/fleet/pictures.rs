//! The figures of a plan.

use super::values::{AtSetting, COSTS, Candidate, DAY, FIGURE_NAMES, FLEETS, Figure, OF_PARTS, Plan, Value};
use crate::figure::costs::{Bar, Costs};
use crate::figure::day::{Day, Panel};
use crate::figure::fleet::{Curve, Fleets, Point, Series};
use crate::figure::sensitivity::{self, Sensitivity};
use crate::figure::{self, Figure as _, FigureError, svg};
use joulecast_ask::capacity::{Change, Fleet, Minimise};
use joulecast_ask::optimum::front;

/// Names and SVG documents of all figures of a plan.
///
/// # Errors
/// Where a figure cannot be drawn.
pub fn figures(plan: &Plan) -> Result<Vec<(&'static str, String)>, FigureError> {
    let all = FIGURE_NAMES.map(|name| Ok(svg_of(plan, name)?.map(|svg| (name, svg))));
    all.into_iter().filter_map(Result::transpose).collect()
}

/// A figure as SVG; `None` where the plan has nothing to draw in it.
fn svg_of(plan: &Plan, name: &str) -> Result<Option<String>, FigureError> {
    match name {
        COSTS => costs(plan).as_ref().map(svg).transpose(),
        FLEETS => fleets(plan).as_ref().map(svg).transpose(),
        DAY => day(plan).as_ref().map(svg).transpose(),
        _ => sensitivity(plan).as_ref().map(svg).transpose(),
    }
}

/// A figure as drawings for a page; `None` where the plan has nothing to draw in it.
pub(super) fn drawn(plan: &Plan, name: &str) -> Result<Option<Vec<String>>, FigureError> {
    // A page says itself what made it.
    let plan = &Plan { command: String::new(), ..plan.clone() };
    match name {
        COSTS => costs(plan).as_ref().map(figure::drawn).transpose(),
        FLEETS => fleets(plan).as_ref().map(figure::drawn).transpose(),
        DAY => day(plan).as_ref().map(figure::drawn).transpose(),
        _ => sensitivity(plan).as_ref().map(figure::drawn).transpose(),
    }
}

/// A figure's title; `None` where the plan has nothing to draw in it.
pub(super) fn title_of(plan: &Plan, name: &str) -> Option<String> {
    match name {
        COSTS => costs(plan).map(|f| f.title().to_string()),
        FLEETS => fleets(plan).map(|f| f.title().to_string()),
        DAY => day(plan).map(|f| f.title().to_string()),
        _ => sensitivity(plan).map(|f| f.title().to_string()),
    }
}

/// The parts of a fleet that a picture stacks.
type PartsOf = fn(&Fleet) -> Vec<f64>;

/// What the candidates come to of what the plan makes small, where that has parts; `None` where none has a fleet.
fn costs(plan: &Plan) -> Option<Costs> {
    let money = &plan.file.currency;
    let (of, parts, title): (PartsOf, &[&str], String) = match plan.file.minimise {
        Minimise::Cost => (
            |f| vec![f.cost_per_year - f.energy_cost_per_year, f.energy_cost_per_year],
            &["hardware, or rent with energy", "energy"],
            format!("Cost of a year, {money}"),
        ),
        Minimise::Carbon => (
            |f| vec![f.embodied_g_per_year.unwrap_or(0.0) / 1e6, f.operational_g_per_year / 1e6],
            &["embodied", "operation"],
            "Carbon of a year, t CO2e".into(),
        ),
        Minimise::Energy => (|f| vec![f.kwh_per_year() / 1e3], &["energy"], "Energy of a year, MWh".into()),
        Minimise::Gpus => (|f| vec![f.gpus as f64], &["GPUs"], "GPUs".into()),
    };
    let bar = |(i, c): (usize, &Candidate)| {
        let o = c.taken()?;
        let fleet = o.value.as_ref()?;
        let whole = o.figure(|f| Some(of(f).iter().sum()));
        let name = format!("{} at {}", c.name, o.setting());
        Some(Bar { name, parts: of(fleet), ends: (whole.p05, whole.p95), taken: plan.winner == Some(i) })
    };
    let bars: Vec<Bar> = plan.candidates.iter().enumerate().filter_map(bar).collect();
    let parts = parts.iter().map(|part| part.to_string()).collect();
    (!bars.is_empty()).then(|| Costs { title, parts, bars, notes: made_by(plan) })
}

fn made_by(plan: &Plan) -> Vec<String> {
    Some(&plan.command).filter(|command| !command.is_empty()).cloned().into_iter().collect()
}

fn taken(plan: &Plan) -> Option<(&Candidate, &AtSetting, &Fleet)> {
    let c = &plan.candidates[plan.winner?];
    let o = c.taken()?;
    Some((c, o, o.value.as_ref()?))
}

/// GPUs against facility power over the settings of all candidates.
fn fleets(plan: &Plan) -> Option<Fleets> {
    let all: Vec<&Fleet> = plan.candidates.iter().flat_map(|c| &c.options).filter_map(|o| o.value.as_ref()).collect();
    let places: Vec<_> = all.iter().map(|f| (f.facility_peak.get(), f.gpus as f64)).collect();
    let best: Vec<&Fleet> = front(&places).into_iter().map(|i| all[i]).collect();
    let point = |i: usize, c: &Candidate, j: usize, o: &AtSetting| {
        let fleet = o.value.as_ref()?;
        let ends = |figure: Figure, by: f64| Some((figure.p05? / by, figure.p95? / by));
        let chosen = c.chosen == Some(j);
        let value = |of: Value| o.figure(|f| Some(of(f)));
        Some(Point {
            kw: fleet.facility_peak.get() / 1e3,
            gpus: fleet.gpus as f64,
            ends: ends(value(|f| f.facility_peak.get()), 1e3)
                .zip(ends(value(|f| f.gpus as f64), 1.0))
                .filter(|_| chosen),
            name: chosen.then(|| format!("{} at {}", c.name, o.setting())),
            taken: chosen && plan.winner == Some(i),
            front: best.iter().any(|f| std::ptr::eq(*f, fleet)),
        })
    };
    let series = |(i, c): (usize, &Candidate)| {
        let points = |clock: bool| {
            let options = c.options.iter().enumerate().filter(|(_, o)| o.clock.is_some() == clock);
            Curve { clock, points: options.filter_map(|(j, o)| point(i, c, j, o)).collect() }
        };
        Series { name: c.name.clone(), curves: [points(false), points(true)] }
    };
    (!all.is_empty()).then(|| Fleets {
        title: "GPUs against facility power".into(),
        series: plan.candidates.iter().enumerate().map(series).collect(),
        limit_kw: plan.file.site.site.map(|w| w.get() / 1e3),
        notes: made_by(plan),
    })
}

/// The day of the fleet that is taken; `None` where the load has no profile.
fn day(plan: &Plan) -> Option<Day> {
    let (c, o, fleet) = taken(plan).filter(|(_, _, fleet)| fleet.day.len() > 1)?;
    let panel = |index: usize, name: String, by: f64, limit: Option<(f64, &str)>| {
        let (_, of) = OF_PARTS[index];
        let part = |i: usize| {
            let figure = o.part(i, of);
            let value = figure.value.unwrap_or(f64::NAN);
            (figure.p05.map_or(f64::NAN, |v| v / by), value / by, figure.p95.map_or(f64::NAN, |v| v / by))
        };
        Panel {
            name,
            parts: (0..fleet.day.len()).map(part).collect(),
            limit: limit.map(|(value, name)| (value, name.to_string())),
        }
    };
    let site = plan.file.site.site.map(|w| (w.get() / 1e3, "site limit"));
    Some(Day {
        title: format!("Through the day, {} {} at {}", fleet.gpus, c.name, o.setting()),
        panels: vec![
            panel(0, "GPUs busy".into(), 1.0, Some((fleet.gpus as f64, "all GPUs"))),
            panel(1, "busy, %".into(), 0.01, None),
            panel(2, "facility, kW".into(), 1e3, site),
            panel(3, format!("cost, {}/h", plan.file.currency), 1.0, None),
            panel(4, "kg CO2e/h".into(), 1e3, None),
        ],
        notes: made_by(plan),
    })
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

fn sensitivity(plan: &Plan) -> Option<Sensitivity> {
    let (c, _, fleet) = taken(plan)?;
    let (of, name) = objective(plan.file.minimise);
    let end = |f: &Option<Fleet>| f.as_ref().map(|f| 100.0 * (of(f) / of(fleet) - 1.0));
    let bar = |s: &Change| sensitivity::Bar { name: s.input.to_string(), less: end(&s.less), more: end(&s.more) };
    Some(Sensitivity {
        title: format!("Change of the {name}, {}", c.name),
        bars: c.sensitivity.iter().map(bar).collect(),
        notes: vec![format!("{} inputs, each 10 % less and 10 % more, % of the {name}", c.sensitivity.len())]
            .into_iter()
            .chain(made_by(plan))
            .collect(),
    })
}
