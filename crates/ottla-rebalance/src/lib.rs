//! Plans the rebalancing of a cluster: from an image of brokers and partitions to new replicas and
//! leaders.
//!
//! Owns the goals and their order. Never touches a clock, randomness, a socket or a file, and does
//! not depend on requests: the same image always gives the same plan.
//!
//! The goals, in this order; a later one never undoes an earlier one:
//! 1. Brokers that are to be emptied have no replicas. A plan that cannot do so is an error.
//! 2. Racks: no rack has more than its share of a partition's replicas.
//! 3. Disk capacity: no log directory is filled beyond the limit.
//! 4. Number of replicas, 5. number of leaders, 6. bytes in of the leaders: each broker is within a
//!    tolerance of the average.
//!
//! Invariants:
//! 1. A partition keeps its number of replicas, each on another broker.
//! 2. No move puts more replicas of a partition into a rack than its share, or a log directory over
//!    the limit, even if every new replica is copied before an old one is deleted.
//! 3. Where a goal is met, nothing is moved for it.
//! 4. Every loop strictly decreases a number that is bounded below.
//!
//! Kafka has no counterpart; LinkedIn's Cruise Control has goals of the same names.

#![forbid(unsafe_code)]
#![warn(clippy::iter_over_hash_type)]
#![cfg_attr(test, allow(clippy::disallowed_methods, clippy::disallowed_types))]

mod image;

mod placement;

mod disks;
mod empty;
mod racks;

mod replica_spread;

mod leader_links;
mod leader_spread;

mod cost;
mod plan;

#[cfg(test)]
mod tests;

pub use cost::{Cost, Traffic};
pub use image::{Broker, Image, LogDir, Options, Partition, PlanError, Replica};
pub use plan::{BrokerLoad, Change, Plan, Unmet, plan};
