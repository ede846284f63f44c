//! The page of a sealed round, in Markdown.

use super::compare::{Board, Compared, Group, Outcome};
use super::history::History;
use super::measured::HostFactors;
use joulecast_model::base::accuracy::{Accuracy, wilson};
use joulecast_model::base::precision::Precision;
use joulecast_reports::networks::Pair;
use joulecast_reports::table::Table;
use std::collections::BTreeMap;
use std::fmt::Write as _;

type Of = fn(&Compared) -> Option<Pair>;
/// Quantities with intervals.
const MEASURES: [(&str, Of); 3] = [("Time", |r| Some(r.time)), ("Power", |r| r.power), ("Energy", |r| r.energy)];
/// Groups of rows: a name, and what is in it.
type Part = (&'static str, fn(Group) -> bool);
const PARTS: [Part; 11] = [
    ("graph and GPU-bound eager", |g| matches!(g, Group::Graph | Group::EagerGpu)),
    (Group::Graph.name(), |g| g == Group::Graph),
    (Group::EagerGpu.name(), |g| g == Group::EagerGpu),
    (Group::TrainingGpu.name(), |g| g == Group::TrainingGpu),
    (Group::EagerHost.name(), |g| g == Group::EagerHost),
    (Group::TrainingHost.name(), |g| g == Group::TrainingHost),
    (Group::PairGpu.name(), |g| g == Group::PairGpu),
    (Group::PairHost.name(), |g| g == Group::PairHost),
    (Group::Prompt.name(), |g| g == Group::Prompt),
    (Group::Decode.name(), |g| g == Group::Decode),
    ("all", |_| true),
];

/// Columns of a table of errors after its groups.
const ERRORS: [&str; 9] =
    ["rows", "mean %", "median %", "bias %", "worst %", "held", "held %", "95 % interval", "half-width %"];

/// Number of rows, mean, median, mean signed and largest absolute error; and of intervals how many hold, the share of these
/// with its interval, and their mean half-width.
fn errors(pairs: &[Pair], intervals: bool) -> Vec<String> {
    let Some(a) = Accuracy::of(pairs.iter().map(|p| (p.measured, p.predicted))) else { return vec!["0".into()] };
    let worst = pairs.iter().map(Pair::error).max_by(|a, b| a.abs().total_cmp(&b.abs())).unwrap_or(0.0);
    let mut cells = vec![
        pairs.len().to_string(),
        format!("{:.1}", a.mape),
        format!("{:.1}", a.median),
        format!("{:+.1}", a.bias),
        format!("{worst:+.0}"),
    ];
    if intervals {
        let held = pairs.iter().filter(|p| p.holds()).count();
        let share = held as f64 / pairs.len() as f64;
        let (low, high) = wilson(share, pairs.len());
        let half = |p: &Pair| 50.0 * (p.p95 - p.p05) / p.predicted;
        let width = pairs.iter().map(half).sum::<f64>() / pairs.len() as f64;
        cells.extend([
            format!("{held}/{}", pairs.len()),
            format!("{:.0}", 100.0 * share),
            format!("{:.0} to {:.0}", 100.0 * low, 100.0 * high),
            format!("{width:.0}"),
        ]);
    }
    cells
}

/// Errors of a quantity by group and precision.
fn by_group(rows: &[Compared], of: Of, intervals: bool) -> Table {
    let columns = if intervals { &ERRORS[..] } else { &ERRORS[..5] };
    let mut table = Table::new(&[&["group", "precision"][..], columns].concat(), 2);
    for (name, is_in) in PARTS {
        let group: Vec<&Compared> = rows.iter().filter(|r| is_in(r.group)).collect();
        let precisions =
            Precision::ALL.iter().map(|p| p.name()).filter(|p| group.iter().any(|r| r.key.step.precision == *p));
        for precision in ["all"].into_iter().chain(precisions) {
            let own = group.iter().filter(|r| precision == "all" || r.key.step.precision == precision);
            let pairs: Vec<Pair> = own.filter_map(|r| of(r)).collect();
            if !pairs.is_empty() {
                table.row([vec![name.to_string(), precision.to_string()], errors(&pairs, intervals)].concat());
            }
        }
    }
    table
}

/// Errors of groups that hosts tell apart, by the profile's host.
fn by_foreseen(rows: &[Compared]) -> Table {
    let mut table = Table::new(&[&["group", "quantity"][..], &ERRORS].concat(), 2);
    let told = [
        (Group::EagerGpu, Group::EagerHost),
        (Group::TrainingGpu, Group::TrainingHost),
        (Group::PairGpu, Group::PairHost),
    ];
    let parts = PARTS.into_iter().filter(|(_, is_in)| told.iter().any(|&(gpu, host)| is_in(gpu) != is_in(host)));
    for (name, is_in) in parts {
        for (quantity, of) in MEASURES {
            let pairs: Vec<Pair> = rows.iter().filter(|r| is_in(r.foreseen)).filter_map(of).collect();
            if !pairs.is_empty() {
                table.row([vec![name.to_string(), quantity.to_lowercase()], errors(&pairs, true)].concat());
            }
        }
    }
    table
}

/// Mean and signed error of every quantity by network.
fn by_network(rows: &[Compared], libraries: &BTreeMap<&str, &str>) -> Table {
    let header =
        ["network", "of", "rows", "time %", "bias %", "power %", "bias %", "energy %", "bias %", "memory %", "bias %"];
    let mut table = Table::new(&header, 2);
    let mut networks: BTreeMap<&str, Vec<&Compared>> = BTreeMap::new();
    for row in rows {
        networks.entry(&row.key.network).or_default().push(row);
    }
    let measures: [Of; 4] = [MEASURES[0].1, MEASURES[1].1, MEASURES[2].1, |r| r.memory];
    for (network, rows) in networks {
        let library = libraries.get(network).copied().unwrap_or_default();
        let mut cells = vec![network.to_string(), library.to_string(), rows.len().to_string()];
        for of in measures {
            let accuracy = Accuracy::of(rows.iter().filter_map(|r| of(r)).map(|p| (p.measured, p.predicted)));
            cells.push(accuracy.map_or("-".into(), |a| format!("{:.1}", a.mape)));
            cells.push(accuracy.map_or("-".into(), |a| format!("{:+.1}", a.bias)));
        }
        table.row(cells);
    }
    table
}

/// Every row.
fn every(rows: &[Compared]) -> Table {
    let header = [
        "row",
        "group",
        "ms",
        "sealed",
        "error %",
        "held",
        "W",
        "sealed",
        "error %",
        "held",
        "energy error %",
        "held",
        "MiB",
        "sealed",
        "error %",
    ];
    let mut table = Table::new(&header, 2);
    let signed = |p: Option<Pair>| p.map_or("-".into(), |p| format!("{:+.1}", p.error()));
    let held = |p: Option<Pair>| p.map_or("-".into(), |p| if p.holds() { "yes" } else { "no" }.to_string());
    let number = |value: Option<f64>, digits: usize| value.map_or("-".into(), |v| format!("{v:.digits$}"));
    const MIB: f64 = (1u64 << 20) as f64;
    for row in rows {
        let (time, power, energy, memory) = (row.time, row.power, row.energy, row.memory);
        table.row(vec![
            row.key.to_string(),
            row.group.name().to_string(),
            number(Some(time.measured * 1e3), 3),
            number(Some(time.predicted * 1e3), 3),
            signed(Some(time)),
            held(Some(time)),
            number(power.map(|p| p.measured), 0),
            number(power.map(|p| p.predicted), 0),
            signed(power),
            held(power),
            signed(energy),
            held(energy),
            number(memory.map(|p| p.measured / MIB), 0),
            number(memory.map(|p| p.predicted / MIB), 0),
            signed(memory),
        ]);
    }
    table
}

/// How the round went: what was sealed at which commit, committed when, measured when and with what.
fn protocol(outcome: &Outcome, History { committed, lost }: &History) -> String {
    let (seal, round) = (&outcome.verified.seal, &outcome.verified.round);
    let mut text = String::new();
    let dirty = if seal.dirty { ", **whose working tree had changes**" } else { "" };
    let rows = round.keys().count();
    let _ = writeln!(
        text,
        "{} networks, {rows} rows a board, drawn by the hash of \"{}\"; exported by {}. Not exported or not read: {}.\n",
        round.networks.len(),
        round.seed,
        round.exported,
        round.refused.len()
    );
    let _ = writeln!(text, "* Sealed at {} by {} at commit `{}`{dirty}.", seal.utc, seal.program, seal.commit);
    let rests = if lost.is_none() { "; this history rests on both" } else { "" };
    let _ = writeln!(text, "* Committed in `{}` at {}{rests}.", committed.commit, committed.utc);
    if let Some(lost) = lost {
        let _ = writeln!(
            text,
            "* **Of {} this history does not show that the predictions were committed before the rows were measured.** {}",
            lost.boards.join(" and "),
            lost.why
        );
    }
    let _ = writeln!(
        text,
        "* The round's file (SHA-256 `{}`), {} networks and {} files of predictions are those that the seal names. Calibrations: {}.",
        seal.round_sha256,
        seal.networks.len(),
        seal.predictions.len(),
        seal.calibrations
            .iter()
            .map(|(name, sum)| format!("`{name}` {}", &sum[..12.min(sum.len())]))
            .collect::<Vec<_>>()
            .join(", ")
    );
    for Board { name, visit, rows, failed, not_reached, hosts } in &outcome.boards {
        if visit.first.is_empty() {
            let _ = writeln!(text, "* {name}: not measured.");
            continue;
        }
        let _ = writeln!(
            text,
            "* {name}: measured from {} to {} on {} GPU{}: {}. {} rows compared, {} failed, {not_reached} not reached in the time that there was.",
            visit.first,
            visit.last,
            visit.gpus,
            if visit.gpus == 1 { "" } else { "s" },
            visit.software.join("; and "),
            rows.len(),
            failed.len()
        );
        if !hosts.is_empty() {
            let range = |of: fn(&HostFactors) -> f64| {
                let values = || hosts.iter().map(of);
                let (low, high) = (values().fold(f64::INFINITY, f64::min), values().fold(0.0, f64::max));
                format!("{low:.2} to {high:.2}")
            };
            let _ = writeln!(
                text,
                "* {name}: the host took {} times as long as the profile's table in inference, {} in training, {} in training in 16 bits \
                 ({} times measured in the visits).",
                range(|h| h.inference),
                range(|h| h.training),
                range(|h| h.autocast),
                hosts.len()
            );
        }
    }
    text
}

/// The page of a round.
pub fn page(outcome: &Outcome, history: &History) -> String {
    let round = &outcome.verified.round;
    let mut text = format!("## Round {}\n\n{}\n", round.round, protocol(outcome, history));
    let libraries: BTreeMap<&str, &str> =
        round.networks.iter().map(|m| (m.name.as_str(), m.library.as_str())).collect();
    for board in outcome.boards.iter().filter(|board| !board.rows.is_empty()) {
        let mut section = |title: &str, table: &Table| {
            let _ = writeln!(text, "### {}: {title}\n\n{}", board.name, table.to_markdown());
        };
        for (title, of) in MEASURES {
            section(&title.to_lowercase(), &by_group(&board.rows, of, true));
        }
        let hosted: Vec<Compared> =
            board.rows.iter().filter(|r| r.group.of_host() && r.hosted.is_some()).cloned().collect();
        if !hosted.is_empty() {
            section(
                "time of host-bound steps with the host as it was measured in the visit",
                &by_group(&hosted, |r| r.hosted, true),
            );
        }
        if board.rows.iter().any(|row| row.foreseen != row.group) {
            section("steps sorted by the profile's host, without looking at the visit's", &by_foreseen(&board.rows));
        }
        section("peak memory of the allocator", &by_group(&board.rows, |r| r.memory, false));
        section("networks", &by_network(&board.rows, &libraries));
        section("rows", &every(&board.rows));
        if !board.failed.is_empty() {
            let mut table = Table::new(&["row", "why"], 2);
            board.failed.iter().for_each(|f| table.row(vec![f.row.clone(), f.reason.clone()]));
            section("rows that failed", &table);
        }
    }
    if !round.refused.is_empty() {
        let mut table = Table::new(&["network", "why"], 2);
        round.refused.iter().for_each(|r| table.row(vec![r.name.clone(), r.reason.clone()]));
        let _ = writeln!(text, "### Networks that are not in the round\n\n{}", table.to_markdown());
    }
    text
}
