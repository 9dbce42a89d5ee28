//! The state of a share group. Cheap to clone, so that a decision works on a clone (`recorded.rs`).
//!
//! Changed only by records (`replay.rs`).
//! Source: `ShareGroup`.

use std::sync::Arc;

use bytestring::ByteString;

use super::member::ShareGroupMember;
use super::state_partitions::{PartitionsOfTopics, StatePartitions};
use crate::group::modern::{ModernGroup, SubscriptionType};
use crate::group::recorded::{CountsMembers, deref_to_base};

#[derive(Clone, Debug)]
pub(in crate::group) struct ShareGroup {
    base: ModernGroup<ShareGroupMember>,
    /// The partitions with state at the share coordinators according to the log, if it has such a
    /// record.
    pub(super) recorded_state: Option<Arc<StatePartitions>>,
}

deref_to_base!(ShareGroup, ShareGroupMember);

impl CountsMembers<ShareGroupMember> for ShareGroup {}

impl ShareGroup {
    pub(in crate::group) fn new(group_id: ByteString) -> Self {
        ShareGroup {
            base: ModernGroup::new(group_id),
            recorded_state: None,
        }
    }

    /// Kafka's name, as clients see it. Members of a share group never wait for each other.
    pub(in crate::group) fn state_name(&self) -> &'static str {
        if self.is_empty() { "Empty" } else { "Stable" }
    }

    pub(super) fn subscription_type(&self) -> SubscriptionType {
        self.subscribed_topics()
            .subscription_type(self.num_members())
    }

    pub(super) fn state_partitions(&self) -> &StatePartitions {
        static NONE: StatePartitions = StatePartitions::NONE;
        self.recorded_state.as_deref().unwrap_or(&NONE)
    }

    /// Whether the assignable partitions differ from the assigned ones.
    pub(super) fn has_unassigned_partitions(&self) -> bool {
        if self.is_empty() {
            return false;
        }
        let mut assigned = PartitionsOfTopics::new();
        for (_, target) in self.target.iter() {
            for (topic_id, partitions) in target.topics() {
                assigned.entry(topic_id).or_default().extend(partitions);
            }
        }
        let mut initialized = self.state_partitions().initialized.iter();
        initialized.any(|(topic_id, topic)| {
            self.subscribed_topics().contains(&topic.name)
                && assigned.get(topic_id) != Some(&topic.partitions)
        })
    }
}
