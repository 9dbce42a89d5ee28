//! The share coordinator: the state machine behind `__share_group_state`.
//!
//! It keeps, for the leaders of partitions that share groups read, how far each of these share partitions is: the
//! start offset and what is settled behind it (KIP-932). A snapshot record says all of it, update records what has
//! changed since, and when every share partition of the log has a newer snapshot, what lies before is deleted.

mod batches;
mod config;
mod coordinator;
mod outcome;
mod record;
mod replay;
mod state;

mod delete;
mod initialize;
mod read;
mod snapshots;
mod write;

pub use config::ShareCoordinatorConfig;
pub use coordinator::ShareCoordinator;
pub use outcome::{Command, Outcome, Response, StateError, TimerKey};
pub use record::ShareStateRecord;

#[cfg(test)]
mod tests;
