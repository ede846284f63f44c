//! Importers: published measurements, from text or cells, into [`Measurement`] rows.
//!
//! Flags (reasons to leave a row out of fits) are computed here from the upstream files. The file name an
//! importer is given ends up in row ids, so it should be the path inside the source's own repository:
//! NeuSight, for one, calls the files of all its operations alike.

pub mod aiconfigurator;
mod columns;
pub mod deepbench;
pub mod neusight;
pub mod sheet;
pub mod table;
pub mod torch;

#[cfg(test)]
mod crosscheck;

use joulecast_model::base::shape::MAX_DIMENSION;
use joulecast_model::net::case::LayerCase;
use joulecast_model::net::layer::LayerOp;
use joulecast_model::rows::measurement::Measurement;
use std::collections::BTreeMap;

/// What an importer found.
#[derive(Clone, Debug, Default)]
pub struct Imported {
    /// Rows, flagged ones included.
    pub rows: Vec<Measurement>,
    /// Rows left out, by reason.
    pub skipped: BTreeMap<String, usize>,
}

/// Why a file could not be imported: one line that names the place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImportError {
    /// The file as a whole.
    #[error("{file}: {what}")]
    File {
        /// File, or mapping where the text has no name.
        file: String,
        /// What is wrong.
        what: String,
    },
    /// A line of a text file.
    #[error("{file}, line {line}: {what}")]
    Line {
        /// File, or mapping where the text has no name.
        file: String,
        /// From 1, the header included.
        line: u64,
        /// What is wrong.
        what: String,
    },
    /// A sheet of a workbook.
    #[error("{file}, sheet \"{sheet}\", row {row}: {what}")]
    Sheet {
        /// Workbook.
        file: String,
        /// Sheet.
        sheet: String,
        /// From 1, as the spreadsheet shows it.
        row: usize,
        /// What is wrong.
        what: String,
    },
}

/// More distinct reasons than this come from garbage in a text column, not from a table.
const MOST_REASONS: usize = 100;

impl Imported {
    fn skip(&mut self, reason: impl Into<String>) {
        let reason = reason.into();
        let known = self.skipped.contains_key(&reason) || self.skipped.len() < MOST_REASONS;
        *self.skipped.entry(if known { reason } else { "other reasons".to_string() }).or_default() += 1;
    }
}

/// Longest time of one layer that is believed: one hour.
const LONGEST_S: f64 = 3600.0;

/// A time in seconds from a number and its unit, where it can be one: above zero, at most an hour.
fn seconds(value: f64, unit_s: f64) -> Option<f64> {
    let time = value * unit_s;
    (time.is_finite() && time > 0.0 && time <= LONGEST_S).then_some(time)
}

/// A whole number from 0 to the largest dimension.
fn whole(value: f64) -> Option<u64> {
    (value.fract() == 0.0 && (0.0..=MAX_DIMENSION as f64).contains(&value)).then_some(value as u64)
}

/// A number of samples or elements: whole and at least 1.
fn count(value: f64) -> Option<u64> {
    whole(value).filter(|n| *n >= 1)
}

/// Foreign text for a message: short, quoted, on one line.
fn shown(text: &str) -> String {
    let short: String = text.chars().take(40).collect();
    format!("{short:?}")
}

/// Whether the layer takes its inputs.
fn check(case: &LayerCase) -> Result<(), String> {
    case.layer.output(&case.inputs).map(|_| ()).map_err(|e| format!("{}: {e}", case.layer.kind()))
}

#[cfg(test)]
mod tests {
    use super::sheet::{Cell, Sheet};
    use super::*;
    use proptest::prelude::*;

    /// Text that is often almost right.
    fn cell() -> impl Strategy<Value = String> {
        let words = "conv|linear|bmm|ln|Tesla T4|N|T|Convolution|Dense Matrix Multiplication|W|H|C|K|M";
        let numbers = "-?[0-9]{1,25}|0|NaN|inf|1e400|[0-9]\\.[0-9]";
        prop_oneof![words.prop_map(|s: String| s), numbers.prop_map(|s: String| s), "\\PC{0,4}"]
    }

    proptest! {
        #[test]
        fn no_text_panics(rows in prop::collection::vec(prop::collection::vec(cell(), 16), 0..6), raw in "\\PC{0,80}") {
            let head = "OPName,Latency,Device,CUDNN Version,CUDA Version,B,M,N,K,H,Input_Channel,Output_Channel,Kernel_Szie,\
                        Input_Size,Stride,Padding";
            let body: Vec<String> = rows.iter().map(|row| row.join(",")).collect();
            let _ = neusight::import("f", &format!("{head}\n{}", body.join("\n")), Some("t4"), &|_| Some(1e12));
            let _ = neusight::import("f", &raw, None, &|_| None);
            let _ = table::Mapping::from_toml(&raw);
            let cells = |row: &Vec<String>| {
                row.iter().map(|t| t.parse().map_or_else(|_| Cell::Text(t.clone()), Cell::Number)).collect()
            };
            let mut sheet = Sheet { name: "fp32".to_string(), rows: rows.iter().map(cells).collect() };
            let _ = deepbench::import("f", &[sheet.clone()], Some("t4"));
            let titled = |words: &str| words.split(' ').map(|t| Cell::Text(t.replace('_', " "))).collect();
            let header = "Dense_Matrix_Multiplication - M N K A_Transpose B_Transpose Time_(msec)";
            sheet.rows.insert(0, titled(header));
            let _ = deepbench::import("f", &[sheet], Some("t4"));
        }
    }

    #[test]
    fn impossible_numbers_are_refused() {
        for bad in [f64::NAN, f64::INFINITY, -1.0, 0.0, 1e9] {
            assert_eq!(seconds(bad, 1.0), None, "{bad}");
        }
        assert_eq!(seconds(2.0, 1e-3), Some(0.002));
        for bad in [f64::NAN, f64::INFINITY, -1.0, 0.0, 1.5, 1e18] {
            assert_eq!(count(bad), None, "{bad}");
        }
        assert_eq!(whole(0.0), Some(0));
    }

    #[test]
    fn reasons_do_not_grow_without_end() {
        let mut imported = Imported::default();
        for i in 0..1000 {
            imported.skip(format!("reason {i}"));
        }
        assert!(imported.skipped.len() <= MOST_REASONS + 1);
        assert_eq!(imported.skipped.values().sum::<usize>(), 1000);
    }

    #[test]
    fn foreign_text_stays_on_one_line() {
        assert_eq!(shown("a\nb"), r#""a\nb""#);
        assert!(shown(&"x".repeat(1000)).len() < 50);
    }
}
