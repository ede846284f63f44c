//! Sealed tests: what of a round is predicted and hashed before anything of it is measured (`calibrate seal`), and what
//! became of it (`calibrate sealed`). How a round goes: data/sealed/README.md.

pub mod round;
pub mod seal;
pub mod measured;
pub mod compare;
pub mod history;
pub mod page;

/// The framework that rounds run through: the only one whose steps `calibrate/tools/torch_sealed.py` measures.
const FRAMEWORK: &str = "pytorch";

#[cfg(test)]
mod tests;
