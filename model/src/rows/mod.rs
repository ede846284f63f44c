//! Measured rows, ours and others', and what papers print.

pub mod splits;
pub mod measurement;
pub mod import;
pub mod papers;
