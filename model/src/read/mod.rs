//! Networks from and to files of other programs.

pub mod own;
pub mod onnx;
pub mod caffe;
pub mod huggingface;
mod format;

pub use format::{CONFIG, Format};
