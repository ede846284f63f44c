//! What `predict plan` found: a fleet of GPUs for a load, `capacity_plan/1`.

mod cells;
mod document;
mod hours;
mod page;
mod pictures;
mod values;

pub use document::{csv, json};
pub use page::{html, markdown, text};
pub use pictures::{FIGURE_NAMES, figures};
pub use values::{AtSetting, Candidate, Plan};
