//! Networks out of files of other programs: ONNX, Caffe, Hugging Face. The project's own format is read by
//! [`joulecast_model::read`].
//!
//! Pure as the model: what is read is bytes, and every failure is the input's.

pub mod onnx;
pub mod caffe;
pub mod huggingface;
mod format;

pub use format::{CONFIG, Format};
