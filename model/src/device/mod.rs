//! GPUs, their clocks and the links between them.

pub mod gpu;
pub mod clock;
pub mod collective;
pub mod interconnect;
