//! The common parts of consumer, share and streams groups, whose partitions the coordinator
//! assigns.
//!
//! A group has an epoch, which is raised when a new assignment is needed: when members join, leave
//! or change their subscription, or when topics change, which a hash of the topics' metadata shows
//! (`topic_hash.rs`). An assignor computes a target assignment for that epoch (`assignor.rs`,
//! `target_assignment.rs`). The heartbeats of each member reconcile it with its target at its own
//! pace; the epoch that a member has reached is its member epoch.
//!
//! A group is an immutable value: [`ModernGroup`] is cheap to clone, because a clone shares
//! everything that does not change. A decision clones the group, applies its records to the clone,
//! and replaces the former one, which stays available to readers of the committed state and for a
//! rollback of a failed write. Nothing here depends on a kind of group, a request or a record.
//! Source: `ModernGroup`, `modern/**`; KIP-848.

pub mod assignment;
pub mod assignor;
pub mod assignors;
mod error;
mod group;
mod groups_metadata;
mod member_state;
mod refresh;
pub mod subscription;
mod target_assignment;
pub mod topic_hash;

pub use assignment::Assignment;
pub use assignor::{Assignor, AssignorError, GroupSpec, MemberSpec, Subscription};
pub use error::GroupError;
pub use group::{ModernGroup, ModernMember};
pub use groups_metadata::GroupsMetadata;
pub use member_state::MemberState;
pub use refresh::MetadataRefresh;
pub use subscription::{SubscribedTopics, SubscriptionCount, SubscriptionType};
pub use target_assignment::{TargetAssignment, may_assign_now};
pub use topic_hash::TopicHashes;

#[cfg(test)]
pub(crate) mod test_image;
