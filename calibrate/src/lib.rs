//! Calibration: published files into datasets, datasets into fitted models, models against held-out rows.

pub mod check;
pub mod cli;
pub mod dataset;
pub mod design;
pub mod device;
pub mod fit;
pub mod folds;
pub mod import;
pub mod journal;
pub mod lasso;
pub mod learning;
pub mod measure;
pub mod neuralpower;
pub mod networks;
pub mod plan;
pub mod power;
pub mod published;
pub mod recipe;
pub mod restore;
pub mod rows;
pub mod run;
pub mod status;
pub mod sweep;
pub mod validate;
