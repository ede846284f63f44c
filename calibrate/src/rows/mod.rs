//! Datasets: what was measured or published, kept, and made ready for fitting.

pub mod writer;
pub mod segment;
pub mod journal;
pub mod dataset;
pub mod aiconfigurator;
pub mod import;
pub mod workbook;
pub mod raw;
pub mod choices;
pub mod prepare;
