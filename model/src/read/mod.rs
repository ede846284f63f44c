//! Networks from and to files of other programs.

pub mod own;
pub mod onnx;
pub mod caffe;
mod format;

pub use format::Format;
