//! One kernel: what runs, how, and the variables that its time is predicted from.

pub mod setting;
pub mod family;
pub mod key;
pub mod work;
mod twin;
mod alignment;
pub mod sizes;
pub mod load;
pub mod algorithm;
pub mod features;
pub mod library;
