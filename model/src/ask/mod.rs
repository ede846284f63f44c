//! Questions over many predictions: operating points, budgets, comparisons, fleets.

pub mod metric;
pub mod optimum;
pub mod curve;
pub mod budget;
pub mod comparison;
pub mod layouts;
pub mod capacity;
pub mod serving;
