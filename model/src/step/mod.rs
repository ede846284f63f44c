//! A step of a network through a framework on one or several GPUs: time, power, energy and memory.

pub mod autocast;
pub mod memory;
pub mod framework;
pub mod predictor;
pub mod calibrations;
pub mod predict;
mod engines;
pub mod parallel;
pub mod layout;
pub mod input;
pub mod training;
pub mod generation;
pub mod trust;
pub mod groups;
