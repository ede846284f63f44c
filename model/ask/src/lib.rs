//! Questions over many predictions of [`joulecast_model`]: operating points, budgets, comparisons, layouts of a node, fleets,
//! language models under a load, and what papers print.
//!
//! Pure as the model: no file, clock or device is touched. Rooms, each above those that it stands on; `capacity` sizes
//! fleets with what `serving` simulates.

pub mod metric;
pub mod optimum;
pub mod curve;
pub mod budget;
pub mod comparison;
pub mod layouts;
pub mod papers;
pub mod capacity;
pub mod serving;
