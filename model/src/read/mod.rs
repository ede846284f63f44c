//! `network/1`: the program's own files of networks, read and written.

mod file;
mod write;

pub use file::{MAX_LAYERS, check_names};
