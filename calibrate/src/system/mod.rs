//! What both halves of the program ask of the system: memory, hashes, moments, the repository's history, files written
//! whole, panics of libraries.

pub mod git;
pub mod hash;
pub mod memory;
pub mod quiet;
pub mod whole;

pub use joulecast_reports::utc;
