//! Fleets of GPUs for a load: how many, at which power, cost and carbon.
//!
//! A pool of GPUs serves one network: requests gather into batches, batches wait for a GPU ([`queueing`]), each takes its
//! predicted time ([`pool`]). Pools make a fleet of servers and racks with its facility power, energy, cost and carbon
//! ([`fleet`]); a plan file says what to plan for ([`PlanFile`]). A language model has a pool of replicas ([`replicas`]), each
//! of which is simulated as [`crate::serving`] does it.

mod choice;
mod file;
mod fleet;
mod goal;
mod pool;
pub mod queueing;
mod replicas;
mod tariff;

pub use choice::{CHANGES, Change, Input, best, objective, sensitivity};
pub use file::{CandidateFile, Minimise, PlanError, PlanFile, PlannedLanguage, PlannedNetwork, Vary};
pub use fleet::{
    Assumptions, Board, Fleet, HOURS_PER_YEAR, Headroom, Misfit, Part, Price, Scenario, Server, Site, plan_fleet,
};
pub use goal::Goal;
pub use pool::{Limit, Pool, Service, Target, size_pool};
pub use replicas::{Carrier, Carriers, ReplicaAt, ReplicaPool, Requests, Slower, Wanted};
pub use tariff::Tariff;
