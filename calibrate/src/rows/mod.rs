//! Datasets: what was measured or published, kept, and made ready for fitting.

pub mod dataset;
pub mod journal;
pub mod import;
pub mod workbook;
pub mod raw;
pub mod prepare;
