//! What both halves of the program ask of the system: memory, hashes, files written whole, panics of libraries.

pub mod hash;
pub mod memory;
pub mod quiet;
pub mod whole;
