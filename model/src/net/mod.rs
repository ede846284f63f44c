//! Networks: layers with their operations and traffic, and graphs of them with shapes.

pub mod cost;
pub mod layer;
pub mod case;
pub mod network;
pub mod share;
pub mod counting;
pub mod written_out;
