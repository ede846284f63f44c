//! What a paper prints, in the units of what it is of.

use super::line::{Case, lines};
use super::mapping::{Metric, Paper, Rule};
use joulecast_model::base::file::FileError;
use joulecast_model::base::units::{Bytes, Joules, Seconds, Watts};

/// Bytes in a mebibyte.
const MIB: f64 = 1_048_576.0;

/// A printed value.
#[derive(Clone, Debug)]
pub(super) struct Cell {
    pub table: String,
    pub case: Case,
    pub metric: Metric,
    pub value: Printed,
}

/// A value in the unit of its metric.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Printed {
    Time(Seconds),
    /// Samples per second.
    Rate(f64),
    Power(Watts),
    Energy(Joules),
    /// Device memory in use.
    Memory(Bytes),
    /// What is not predicted.
    Other,
}

impl Paper {
    /// The rule by which a printed value is distorted, of its quantities.
    pub(super) fn rule_of(&self, cell: &Cell) -> Option<&Rule> {
        self.distorted.iter().find(|rule| rule.holds(cell))
    }
}

impl Rule {
    pub(super) fn holds(&self, cell: &Cell) -> bool {
        let of = |(name, text): (&String, &String)| cell.case.column(name) == *text;
        self.only.iter().all(of) && self.quantities.contains(&cell.metric.quantity())
    }
}

fn value(metric: Metric, unit: &str, value: f64) -> Result<Printed, String> {
    let printed = match (metric, unit) {
        (Metric::Other, _) => return Ok(Printed::Other),
        (Metric::StepTime | Metric::RunTime, "s") => Printed::Time(Seconds::new(value)),
        (Metric::Rate, "1/s" | "img/sec" | "images/s") => Printed::Rate(value),
        (Metric::Power, "W") => Printed::Power(Watts::new(value)),
        (Metric::StepEnergy | Metric::RunEnergy, "J") => Printed::Energy(Joules::new(value)),
        (Metric::StepEnergy | Metric::RunEnergy, "kJ") => Printed::Energy(Joules::new(value * 1e3)),
        (Metric::Memory, "MiB") => Printed::Memory(Bytes::new((value * MIB) as u64)),
        _ => return Err(format!("unit \"{unit}\" is not one of {metric}")),
    };
    if !(value.is_finite() && value > 0.0) {
        return Err(format!("{value} is not above 0"));
    }
    Ok(printed)
}

/// Reads a paper's file. Empty values, which stand for dashes in the print, are left out.
///
/// # Errors
/// One line that names the line of the file.
pub(super) fn from_csv(paper: &Paper, text: &str) -> Result<Vec<Cell>, FileError> {
    let mut cells = Vec::new();
    for (line, row) in lines(text)? {
        let at = |what: String| FileError::value(format!("line {line}"), what);
        if row.document != paper.key {
            return Err(at(format!("document \"{}\" in the file of {}", row.document, paper.key)));
        }
        let metric = paper.metrics.get(&row.metric);
        let metric = *metric.ok_or_else(|| at(format!("metric \"{}\" is not in papers.toml", row.metric)))?;
        if row.value.is_empty() {
            continue;
        }
        let number = row.number().ok_or_else(|| at(format!("value \"{}\" is not a number", row.value)))?;
        let gpus = if row.n_gpus.is_empty() { Ok(1) } else { row.n_gpus.parse() };
        let case = Case {
            gpu: row.gpu,
            gpus: gpus.map_err(|_| at(format!("n_gpus \"{}\" is not a number", row.n_gpus)))?,
            network: row.network,
            dataset: row.dataset,
            framework: row.framework,
            phase: row.phase,
            batch: row.batch,
            precision: row.precision,
            core_mhz: row.core_mhz,
            mem_mhz: row.mem_mhz,
            power_cap_w: row.power_cap_w,
        };
        cells.push(Cell { table: row.table, case, metric, value: value(metric, &row.unit, number).map_err(at)? });
    }
    Ok(cells)
}
