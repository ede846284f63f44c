//! What both halves of the program ask of the system: memory, locks, files written whole, notes.

pub mod hash;
pub mod memory;
pub mod quiet;
pub mod notes;
pub mod lock;
pub mod hash;
pub mod whole;
