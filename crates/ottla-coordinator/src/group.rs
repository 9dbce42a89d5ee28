//! Classic consumer groups and committed offsets: the state machine behind `__consumer_offsets`.

mod config;
mod coordinator;
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
pub use record::CoordinatorRecord;
pub use replay::ReplayError;

#[cfg(test)]
mod tests;
