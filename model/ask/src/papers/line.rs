//! Lines of the files of papers, as printed: `data/published/papers/*.csv`.

use joulecast_model::base::file::FileError;
use serde::Deserialize;

/// Columns by which rows are told apart, besides `table`, `metric`, `unit`, `value`, `note` and `line`.
pub(super) const COLUMNS: [&str; 11] = [
    "gpu",
    "n_gpus",
    "network",
    "dataset",
    "framework",
    "phase",
    "batch",
    "precision",
    "core_mhz",
    "mem_mhz",
    "power_cap_w",
];

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
pub fn lines(text: &str) -> Result<Vec<(u64, Line)>, FileError> {
    let malformed = |e: csv::Error| FileError::Syntax(e.to_string());
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let header = reader.headers().map_err(malformed)?.clone();
    let (mut list, mut record) = (Vec::new(), csv::StringRecord::new());
    while reader.read_record(&mut record).map_err(malformed)? {
        let number = record.position().map_or(0, csv::Position::line);
        list.push((number, record.deserialize(Some(&header)).map_err(|e| malformed(e).at(format!("line {number}")))?));
    }
    Ok(list)
}

/// What was measured: everything but the quantity.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Case {
    /// The GPU or CPU.
    pub gpu: String,
    /// How many GPUs; 0 of a run on the CPU, 1 where it is not said.
    pub gpus: u64,
    /// The network.
    pub network: String,
    /// The data.
    pub dataset: String,
    /// The framework.
    pub framework: String,
    /// forward, backward, train, inference.
    pub phase: String,
    /// Samples per step, as printed.
    pub batch: String,
    /// Precision, as printed.
    pub precision: String,
    /// Core clock in MHz, as printed.
    pub core_mhz: String,
    /// Memory clock in MHz, as printed.
    pub mem_mhz: String,
    /// Power limit in watts, as printed.
    pub power_cap_w: String,
}

impl Case {
    /// What it is of: network and dataset.
    pub(super) fn subject(&self) -> (String, String) {
        (self.network.clone(), self.dataset.clone())
    }

    /// A column's text, by name.
    pub(super) fn column(&self, name: &str) -> String {
        match name {
            "gpu" => self.gpu.clone(),
            "n_gpus" => self.gpus.to_string(),
            "network" => self.network.clone(),
            "dataset" => self.dataset.clone(),
            "framework" => self.framework.clone(),
            "phase" => self.phase.clone(),
            "batch" => self.batch.clone(),
            "precision" => self.precision.clone(),
            "core_mhz" => self.core_mhz.clone(),
            "mem_mhz" => self.mem_mhz.clone(),
            _ => self.power_cap_w.clone(),
        }
    }
}
