//! Measuring: which trials, on which device, and how a campaign goes on.

pub mod trials;
pub mod device;
pub mod costs;
pub mod run;
pub mod choices;
pub mod measure;
pub mod limits;
pub mod search;
pub mod check;
pub mod restore;
pub mod status;
