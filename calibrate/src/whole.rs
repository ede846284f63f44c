//! Files written whole, as both programs write them.

pub use joulecast_reports::whole::{nameless, write};
