//! Layer-wise cost model, calibrated time and power models, and the predictor of Joulecast.
//!
//! Pure: no file, clock or device is touched, so every failure is the input's. Read the modules in this order.

pub mod units;
pub mod precision;
pub mod shape;
pub mod cost;
pub mod layer;
pub mod network;
pub mod counting;
pub mod gpu;
pub mod clock;
pub mod features;
pub mod calibration;
pub mod power;
pub mod metric;
pub mod optimum;
pub mod library;
pub mod curve;
pub mod framework;
pub mod predictor;
pub mod parallel;
pub mod input;
pub mod training;
pub mod generation;
pub mod budget;
pub mod comparison;
pub mod capacity;
pub mod catalog;
pub mod splits;
pub mod measurement;
pub mod algorithm;
pub mod trial;
pub mod import;
pub mod onnx;
pub mod caffe;
pub mod papers;
pub mod accuracy;
pub mod text;
