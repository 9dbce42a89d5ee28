//! Coordinators: the runtime that keeps their state in partitions of internal topics, and what runs on it.
//!
//! From below: `runtime` loads a coordinator from its partition, steps it, appends what it decides and answers when that
//! is committed. `share_groups` is the state of share groups and the share partitions that are led here, `groups` are the
//! groups of consumers, `transactions` are those of producers; markers of transactions end offsets of groups, so they are
//! above.
//!
//! What is decided is decided by `ottla-coordinator`.
//!
//! Kafka: `CoordinatorRuntime`, `GroupCoordinatorService`, `TransactionCoordinator`, `ShareCoordinatorService`,
//! `SharePartitionManager`.

// Tests make files and threads of their own.
#![cfg_attr(test, allow(clippy::disallowed_methods, clippy::disallowed_types))]

#[cfg(all(feature = "planted-bugs", not(debug_assertions)))]
compile_error!("planted-bugs are for simulations: no build with optimisations may have them");

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
