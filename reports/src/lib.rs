//! Values into bytes: tables, JSON, CSV and Markdown. Nothing is computed here.

pub mod accuracy;
pub mod calibration;
pub mod describe;
pub mod prediction;
pub mod table;
