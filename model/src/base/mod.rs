//! Quantities, shapes, precisions and texts: what every other room speaks in.

pub mod text;
pub mod name;
pub mod units;
pub mod file;
pub mod packed;
pub(crate) mod mark;
pub mod number;
pub mod order;
pub mod random;
pub mod precision;
pub mod shape;
pub mod shard;
pub mod accuracy;
