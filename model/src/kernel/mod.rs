//! One kernel: what runs, how, and the variables that its time is predicted from.

pub mod trial;
pub mod features;
pub mod algorithm;
pub mod library;
