//! Values into bytes: tables, JSON, CSV and Markdown, and bytes into files. Nothing is computed here.

pub mod accuracy;
pub mod beside;
pub mod calibration;
pub mod check;
pub mod compare;
pub mod describe;
pub mod document;
pub mod exit;
pub mod export;
pub mod figure;
mod generation;
pub mod given;
pub mod levels;
pub mod limits;
mod list;
pub mod optimum;
pub mod papers;
pub mod fleet;
pub mod lock;
pub mod networks;
pub mod prediction;
pub mod published;
mod markup;
mod record;
pub mod siblings;
mod standard;
pub mod status;
pub mod table;
pub mod chips;
pub mod trials;
pub mod warnings;
pub mod whole;

pub use markup::csv_cell;
pub use standard::{command_line, error_line, print, say};
