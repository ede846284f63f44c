//! Calibration: published files into datasets, datasets into fitted models, models against held-out rows.

pub mod cli;
pub mod dataset;
pub mod design;
pub mod fit;
pub mod folds;
pub mod import;
pub mod lasso;
pub mod neuralpower;
pub mod recipe;
pub mod rows;
pub mod validate;
