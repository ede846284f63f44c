//! The head of a report: how good predictions are of each board, and what changed since an earlier report.

use anyhow::{Context as _, Result, ensure};
use joulecast_model::base::accuracy::Accuracy;
use joulecast_model::step::trust::Grade;
use joulecast_reports::accuracy::Line;
use joulecast_reports::networks::{Compared, Pair};
use joulecast_reports::table::Table;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;

/// Name of the file that keeps them, within the report's folder.
pub const FILE: &str = "verdicts.json";
const SCHEMA: &str = "verdicts/1";

/// How good predictions of one kind are on one board, or layers on one chip. All in percent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// Board, of layers chip.
    pub board: String,
    /// What was predicted: `networks`, `networks that wait for the host` or `layers`.
    pub of: String,
    /// How many runs, or rows.
    pub count: usize,
    /// Mean absolute errors.
    pub time: f64,
    /// Of power, where that was measured.
    pub power: Option<f64>,
    /// Likewise.
    pub energy: Option<f64>,
    /// Share of times within their 90 % interval.
    pub held: f64,
}

#[derive(Serialize, Deserialize)]
struct Document {
    schema: String,
    program: String,
    command: String,
    verdicts: Vec<Verdict>,
}

/// Runs of whole networks, by board and whether the host decides.
pub fn of_networks<'a>(compared: impl Iterator<Item = &'a Compared>) -> Vec<Verdict> {
    let mut groups: BTreeMap<(String, bool), Vec<&Compared>> = BTreeMap::new();
    for run in compared {
        groups.entry((run.gpu.clone(), run.host_decides)).or_default().push(run);
    }
    let verdict = |((board, hosted), runs): ((String, bool), Vec<&Compared>)| {
        let mean = |of: fn(&Compared) -> Option<Pair>| {
            let pairs = runs.iter().filter_map(|r| of(r)).map(|pair| (pair.measured, pair.predicted));
            Accuracy::of(pairs.collect::<Vec<_>>()).map(|accuracy| accuracy.mape)
        };
        let held = runs.iter().filter(|r| r.time.holds()).count() as f64 / runs.len() as f64;
        Some(Verdict {
            board,
            of: if hosted { "networks that wait for the host" } else { "networks" }.into(),
            count: runs.len(),
            time: mean(|r| Some(r.time))?,
            power: mean(|r| r.power),
            energy: mean(|r| r.energy),
            held: 100.0 * held,
        })
    };
    groups.into_iter().filter_map(verdict).collect()
}

/// Layers that the fit had not seen, by chip; each row counts once.
pub fn of_layers(lines: &[Line]) -> Vec<Verdict> {
    let mut chips: BTreeMap<&str, Vec<&Line>> = BTreeMap::new();
    lines.iter().filter(|l| l.subset == "all rows").for_each(|l| chips.entry(&l.chip).or_default().push(l));
    let verdict = |(chip, lines): (&str, Vec<&Line>)| {
        let count: usize = lines.iter().map(|l| l.rows).sum();
        let mean = |of: fn(&Line) -> f64| lines.iter().map(|l| of(l) * l.rows as f64).sum::<f64>() / count as f64;
        Verdict {
            board: chip.into(),
            of: "layers".into(),
            count,
            time: mean(|l| l.mape.mean),
            power: None,
            energy: None,
            held: mean(|l| l.held),
        }
    };
    chips.into_iter().map(verdict).collect()
}

/// As they are kept for a later report.
///
/// # Errors
/// When a number is none.
pub fn document(verdicts: &[Verdict], command: &str) -> Result<String> {
    let document = Document {
        schema: SCHEMA.into(),
        program: concat!("calibrate ", env!("CARGO_PKG_VERSION")).into(),
        command: command.into(),
        verdicts: verdicts.to_vec(),
    };
    Ok(serde_json::to_string_pretty(&document)? + "\n")
}

/// Those of an earlier report.
///
/// # Errors
/// When the file is none of these; names it.
pub fn read(path: &Path) -> Result<Vec<Verdict>> {
    let text = joulecast_reports::given::text(path)?;
    let document: Document = serde_json::from_str(&text).with_context(|| path.display().to_string())?;
    ensure!(document.schema == SCHEMA, "{}: schema is \"{}\", expected \"{SCHEMA}\"", path.display(), document.schema);
    Ok(document.verdicts)
}

/// A sentence for each board: what predictions are worth there.
pub fn sentences(verdicts: &[Verdict]) -> Vec<String> {
    let sentence = |v: &Verdict| {
        let named =
            |name: &str, error: Option<f64>| error.map_or(String::new(), |error| format!(", {name} {error:.1} %"));
        format!(
            "{}, {}: {}; time is off by {:.1} % in the mean{}{}, and {:.0} % of times lie in their 90 % interval.",
            v.board,
            v.of,
            Grade::of(v.time / 100.0),
            v.time,
            named("power by", v.power),
            named("energy by", v.energy),
            v.held
        )
    };
    verdicts.iter().map(sentence).collect()
}

/// All of them, beside those of an earlier report.
pub fn table(verdicts: &[Verdict], since: Option<&[Verdict]>) -> Table {
    let mut header = vec!["board", "of", "count", "time %", "power %", "energy %", "held %"];
    if since.is_some() {
        header.extend(["time since", "power since", "energy since", "held since"]);
    }
    let mut table = Table::new(&header, 2);
    for v in verdicts {
        let shown = |value: Option<f64>| value.map_or(String::new(), |value| format!("{value:.1}"));
        let values = [Some(v.time), v.power, v.energy, Some(v.held)];
        let mut cells = vec![v.board.clone(), v.of.clone(), v.count.to_string()];
        cells.extend(values.map(shown));
        if let Some(since) = since {
            let before = since.iter().find(|old| (&old.board, &old.of) == (&v.board, &v.of));
            let old = before.map_or([None; 4], |old| [Some(old.time), old.power, old.energy, Some(old.held)]);
            let change = |(new, old): (Option<f64>, Option<f64>)| match (new, old) {
                (Some(new), Some(old)) => format!("{:+.1}", new - old),
                (Some(_), None) => "new".into(),
                _ => String::new(),
            };
            cells.extend(values.into_iter().zip(old).map(change));
        }
        table.row(cells);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(board: &str, time: f64, power: Option<f64>) -> Verdict {
        Verdict { board: board.into(), of: "networks".into(), count: 12, time, power, energy: None, held: 90.0 }
    }

    #[test]
    fn a_verdict_is_a_sentence_and_what_changed_has_its_sign() {
        let (new, old) = ([verdict("h200", 8.8, Some(6.9)), verdict("t4", 33.0, None)], [verdict("h200", 9.3, None)]);
        let said = sentences(&new);
        assert_eq!(
            said[0],
            "h200, networks: good; time is off by 8.8 % in the mean, power by 6.9 %, and 90 % of times lie in their 90 % interval."
        );
        assert!(said[1].starts_with("t4, networks: fair; time is off by 33.0 % in the mean, and "), "{}", said[1]);
        let text = table(&new, Some(&old)).to_text();
        let cells = |row: usize| text.lines().nth(row).unwrap_or_default().split_whitespace().collect::<Vec<_>>();
        assert_eq!(cells(2), ["h200", "networks", "12", "8.8", "6.9", "90.0", "-0.5", "new", "+0.0"]);
        assert_eq!(cells(3), ["t4", "networks", "12", "33.0", "90.0", "new", "new"]);
        assert!(!table(&new, None).to_text().contains("since"));
    }

    #[test]
    fn what_was_kept_is_read_again() -> Result<()> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join(FILE);
        let kept = vec![verdict("h200", 8.8, None)];
        std::fs::write(&path, document(&kept, "calibrate validate")?)?;
        assert_eq!(read(&path)?, kept);
        std::fs::write(&path, document(&kept, "x")?.replace(SCHEMA, "verdicts/2"))?;
        assert!(read(&path).is_err_and(|e| e.to_string().contains("expected \"verdicts/1\"")));
        Ok(())
    }
}
