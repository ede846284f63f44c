//! From rows to models: terms, folds, the Lasso, and which models make a calibration.

pub mod design;
pub mod folds;
mod columns;
pub mod lasso;
pub mod least_squares;
pub mod waiting;
pub mod polynomial;
pub mod choice;
pub mod workspace;
pub mod engines;
pub mod neuralpower;
pub mod task;
pub mod efficiency;
pub mod passport;
pub mod universal;
pub mod others;
pub mod few_shot;
pub mod board;
pub mod power;
pub mod over_chip;
pub mod transfer;
pub mod siblings;
pub mod recipe;
