//! Coordinators: the runtime that keeps their state in partitions of internal topics, and the
//! coordinators on it.
//!
//! From below: `runtime` loads a coordinator from its partition, steps it, appends its records and
//! sends responses when they are committed. `share_groups` has the share coordinators and the share
//! partitions led here, `groups` the group coordinators, `transactions` the transaction
//! coordinators. Transaction markers complete the offsets of groups, so `transactions` is above
//! `groups`.
//!
//! The decisions are in `ottla-coordinator`.
//!
//! Kafka: `CoordinatorRuntime`, `GroupCoordinatorService`, `TransactionCoordinator`, `ShareCoordinatorService`,
//! `SharePartitionManager`.

// Tests may use files and threads directly.
#![cfg_attr(test, allow(clippy::disallowed_methods, clippy::disallowed_types))]

#[cfg(not(feature = "planted-bugs"))]
mod planted;
#[cfg(feature = "planted-bugs")]
pub mod planted;

pub mod at_once;

pub mod surroundings;

pub mod runtime;

pub mod share_groups;

pub mod groups;

pub mod transactions;

#[cfg(test)]
mod simulation;

pub use groups::Groups;
pub use share_groups::ShareGroups;
pub use surroundings::Surroundings;
pub use transactions::Transactions;
