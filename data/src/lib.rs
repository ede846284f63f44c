//! The files under `data/` that the programs embed: the name (without extension) and the text of each, in the order of
//! their names. Nothing is parsed here; `joulecast_model::catalog` reads them.

include!(concat!(env!("OUT_DIR"), "/files.rs"));
