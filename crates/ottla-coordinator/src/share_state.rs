//! The share coordinator: the state machine of `__share_group_state`.
//!
//! It stores the state of each share partition for its leader: the start offset and the settled
//! records after it (KIP-932). A snapshot record contains the full state, and update records the
//! changes since then. When every share partition in the log has a newer snapshot, the records
//! before these snapshots are deleted.

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
