//! What fits are worth: on rows and networks that they did not see, and on what others printed.

pub mod given;
pub mod validate;
pub mod leave_out;
pub mod learning;
pub mod networks;
pub mod beside;
pub mod spread;
pub mod hosts;
pub mod activity;
pub mod published;
pub mod sealed;
pub mod report;
