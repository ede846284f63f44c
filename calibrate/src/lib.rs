//! Calibration: published files into datasets, datasets into fitted models, models against held-out rows.

// They end the program where nobody reads: `notes::note` and `cli::print` do not.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

pub mod check;
pub mod cli;
pub mod dataset;
pub mod design;
pub mod detect;
pub mod device;
pub mod few_shot;
pub mod fit;
pub mod folds;
pub mod import;
pub mod journal;
pub mod lasso;
pub mod learning;
pub mod least_squares;
pub mod leave_out;
pub mod lock;
pub mod measure;
pub mod memory;
pub mod neuralpower;
pub mod networks;
pub mod notes;
pub mod others;
pub mod plan;
pub mod power;
pub mod published;
pub mod quiet;
pub mod recipe;
pub mod report;
pub mod restore;
pub mod rows;
pub mod run;
pub mod search;
pub mod spread;
pub mod status;
pub mod sweep;
pub mod siblings;
pub mod transfer;
pub mod universal;
pub mod validate;
pub mod waiting;
pub mod whole;
pub mod workbook;
