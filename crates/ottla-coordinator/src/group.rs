//! Classic consumer groups and committed offsets: the state machine behind `__consumer_offsets`.

mod config;
mod coordinator;
mod outcome;
mod record;
mod replay;

mod heartbeat;
mod join;
mod leave;
mod rebalance;
mod sync;

mod expiry;
mod offset_commit;
mod offset_delete;
mod offset_fetch;
mod transactional_offsets;

mod delete;
mod describe;

mod classic_group;
mod foreign;
mod member;
mod offsets;

pub use classic_group::ClassicGroupState;
pub use config::GroupCoordinatorConfig;
pub use coordinator::GroupCoordinator;
pub use join::JoinContext;
pub use outcome::{Outcome, Reply, Response, TimerChange, TimerKey, Write, error_after_append};
pub use record::CoordinatorRecord;
pub use replay::ReplayError;

#[cfg(test)]
mod tests;
