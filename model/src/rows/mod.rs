//! Measured rows, and which of them fits may see.

pub mod splits;
pub mod measurement;
