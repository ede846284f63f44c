//! Values as a paper prints them: `data/published/papers/*.csv`.

use super::cell::{Case, Cell, value};
use super::mapping::Paper;
use serde::Deserialize;

/// A line of a paper's file: its text, column by column.
#[derive(Clone, Debug, Deserialize)]
pub struct Line {
    /// Key of the paper.
    pub document: String,
    /// Which table.
    pub table: String,
    /// GPU, as the paper calls it, like everything below.
    pub gpu: String,
    /// How many of it.
    pub n_gpus: String,
    /// Network.
    pub network: String,
    /// Data.
    pub dataset: String,
    /// Framework.
    pub framework: String,
    /// train, inference, forward ...
    pub phase: String,
    /// Samples per step, or a range of them.
    pub batch: String,
    /// Precision.
    pub precision: String,
    /// Core clock in MHz, or a range.
    pub core_mhz: String,
    /// Memory clock in MHz.
    pub mem_mhz: String,
    /// Power limit in watts.
    pub power_cap_w: String,
    /// What the value is of.
    pub metric: String,
    /// In which unit.
    pub unit: String,
    /// The value; empty for a dash in the print.
    pub value: String,
    /// Remark of the transcription.
    pub note: String,
}

impl Line {
    /// The value, where it is a number.
    pub fn number(&self) -> Option<f64> {
        self.value.parse().ok()
    }
}

/// The lines of a file, each with its number in it.
///
/// # Errors
/// One line that names the line of the file.
pub fn lines(text: &str) -> Result<Vec<(u64, Line)>, String> {
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let header = reader.headers().map_err(|e| e.to_string())?.clone();
    let (mut list, mut record) = (Vec::new(), csv::StringRecord::new());
    while reader.read_record(&mut record).map_err(|e| e.to_string())? {
        let number = record.position().map_or(0, csv::Position::line);
        list.push((number, record.deserialize(Some(&header)).map_err(|e| format!("line {number}: {e}"))?));
    }
    Ok(list)
}

/// Reads a paper's file. Empty values, which stand for dashes in the print, are left out.
///
/// # Errors
/// One line that names the line of the file.
pub(super) fn from_csv(paper: &Paper, text: &str) -> Result<Vec<Cell>, String> {
    let mut cells = Vec::new();
    for (line, row) in lines(text)? {
        let at = |what: String| format!("line {line}: {what}");
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
