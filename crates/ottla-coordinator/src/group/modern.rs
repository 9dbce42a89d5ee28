//! What consumer, share and streams groups have in common: groups whose partitions are assigned by the coordinator.
//!
//! A group has an epoch that grows whenever its assignment has to be made anew: because members came, went or subscribed to
//! something else, or because topics changed, which a hash over the topics' metadata tells (`topic_hash.rs`). An assignor
//! makes a target assignment of that epoch (`assignor.rs`, `target_assignment.rs`), and each member is brought to it by its
//! heartbeats, at its own pace; the epoch that a member has reached is its member epoch.
//!
//! A group is a value: [`ModernGroup`] is cheap to clone, because a clone shares everything that is not changed. A decision
//! clones the group, changes the clone by the records that it writes, and puts it in the place of the former one; who has to
//! show what is committed, or to take back what could not be written, still has that.
//! Nothing here knows a kind of group, a request or a record.
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
