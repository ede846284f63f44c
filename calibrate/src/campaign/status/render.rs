//! A dataset's summary for people.

use super::Status;
use joulecast_reports::table::{Table, significant};

/// As aligned text.
pub fn text(status: &Status) -> String {
    page(status, Table::to_text, "")
}

/// As Markdown.
pub fn markdown(status: &Status) -> String {
    page(status, Table::to_markdown, "- ")
}

fn page(status: &Status, table: fn(&Table) -> String, bullet: &str) -> String {
    let mut parts = vec![table(&groups(status))];
    if !status.ceilings.is_empty() {
        parts.push(table(&ceilings(status)));
    }
    if !status.flags.is_empty() {
        parts.push(table(&flags(status)));
    }
    let lines: String = lines(status).iter().map(|line| format!("{bullet}{line}\n")).collect();
    parts.push(lines);
    parts.join("\n")
}

fn groups(status: &Status) -> Table {
    let header = ["gpu", "kind", "phase", "precision", "source", "time rows", "energy rows", "flagged"];
    let mut table = Table::new(&header, 5);
    for g in &status.groups {
        let names = [&g.gpu, &g.kind, &g.phase, &g.precision, &g.source].map(Clone::clone);
        let counts = [g.time_rows, g.energy_rows, g.flagged].map(|n| n.to_string());
        table.row(names.into_iter().chain(counts).collect());
    }
    table
}

fn ceilings(status: &Status) -> Table {
    let mut table = Table::new(&["gpu", "source", "precision", "best TFLOP/s", "best TB/s beyond the cache"], 3);
    for c in &status.ceilings {
        table.row(vec![
            c.gpu.clone(),
            c.source.clone(),
            c.precision.to_string(),
            significant(c.tflop_per_s, 4),
            c.tb_per_s.map_or(String::new(), |b| significant(b, 3)),
        ]);
    }
    table
}

fn flags(status: &Status) -> Table {
    let mut table = Table::new(&["flag", "rows", "share"], 1);
    for f in &status.flags {
        table.row(vec![f.flag.clone(), f.rows.to_string(), percent(f.share)]);
    }
    table
}

fn percent(share: f64) -> String {
    format!("{:.2} %", share * 100.0)
}

/// One line per aspect of quality that the rows tell something about.
fn lines(status: &Status) -> Vec<String> {
    let flagged: usize = status.groups.iter().map(|g| g.flagged).sum();
    let mut lines = vec![format!("{} rows of {} trials, {flagged} flagged", status.rows, status.trials)];
    if let Some(s) = status.spread {
        let [p50, p90, p99] = [s.p50, s.p90, s.p99].map(percent);
        lines.push(format!("spread of a burst's blocks (p90/p10 - 1): median {p50}, p90 {p90}, p99 {p99}"));
    }
    if let Some(c) = status.cross_check {
        let [within, median, worst] = [c.within_2_percent, c.median, c.worst].map(percent);
        lines.push(format!(
            "energy counter against integral of power: {within} of {} rows within 2 %, median {median}, worst {worst}",
            c.rows
        ));
    }
    for (repeats, boards) in [(status.repeats, "on one board"), (status.repeats_across_boards, "on different boards")] {
        let Some(r) = repeats else { continue };
        let energy = r.energy.map_or(String::new(), |e| format!(", energy {}", percent(e)));
        let time = percent(r.time);
        lines.push(format!("repeats {boards}: median difference of {} pairs: time {time}{energy}", r.pairs));
    }
    if let Some(c) = status.clocks {
        lines.push(format!(
            "clocks of burst and sustained run differ by 10 % or more in {} of {} pairs",
            c.differing, c.pairs
        ));
    }
    if let Some(r) = status.runs {
        let (minutes, rate) = (significant(r.gpu_minutes, 3), significant(r.rows_per_minute, 3));
        lines.push(format!("{} runs, {minutes} GPU minutes, {rate} rows per minute", r.count));
    }
    if !status.skipped.is_empty() {
        let list: Vec<String> = status.skipped.iter().map(|(reason, n)| format!("{n} {reason}")).collect();
        lines.push(format!("skipped trials: {}", list.join(", ")));
    }
    lines
}
