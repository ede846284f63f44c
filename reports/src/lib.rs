//! Values into bytes: tables, JSON, CSV and Markdown, and bytes into files. Nothing is computed here.

pub mod accuracy;
pub mod calibration;
pub mod compare;
pub mod describe;
pub mod document;
pub mod exit;
pub mod export;
#[cfg(feature = "figures")]
pub mod figure;
mod generation;
mod list;
pub mod optimum;
pub mod papers;
pub mod fleet;
pub mod prediction;
mod markup;
mod record;
mod standard;
pub mod table;
pub mod transfer;
pub mod warnings;
pub mod whole;

pub use markup::csv_cell;
pub use standard::{command_line, error_line, print, say};
