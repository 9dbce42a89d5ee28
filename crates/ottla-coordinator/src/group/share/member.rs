//! A member of a share group. Immutable: a change creates a new value.
//!
//! Source: `ShareGroupMember`.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytestring::ByteString;
use ottla_protocol::coordinator_records::{
    ShareGroupCurrentMemberAssignmentValue, ShareGroupMemberMetadataValue,
};

use crate::group::member::owned;
use crate::group::modern::{Assignment, MemberState, ModernMember};
use crate::group::recorded::RecordedMember;

/// The member epoch with which a member leaves.
pub(super) const LEAVE_GROUP_EPOCH: i32 = -1;

#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::group) struct ShareGroupMember {
    pub(super) member_id: ByteString,
    pub(super) member_epoch: i32,
    /// The epoch before `member_epoch`. A member that missed a response still has it.
    pub(super) previous_member_epoch: i32,
    pub(super) rack_id: Option<ByteString>,
    pub(super) client_id: ByteString,
    pub(super) client_host: ByteString,
    pub(super) subscribed_topic_names: BTreeSet<ByteString>,
    pub(super) state: MemberState,
    pub(super) assigned: Arc<Assignment>,
}

impl ModernMember for ShareGroupMember {
    type Assignment = Assignment;

    fn member_id(&self) -> &ByteString {
        &self.member_id
    }

    fn subscribed_topic_names(&self) -> &BTreeSet<ByteString> {
        &self.subscribed_topic_names
    }
}

impl RecordedMember for ShareGroupMember {
    fn new(member_id: ByteString) -> Self {
        ShareGroupMember {
            member_id,
            member_epoch: 0,
            previous_member_epoch: -1,
            rack_id: None,
            client_id: ByteString::new(),
            client_host: ByteString::new(),
            subscribed_topic_names: BTreeSet::new(),
            state: MemberState::Stable,
            assigned: Arc::default(),
        }
    }

    fn without_current_assignment(&self) -> Self {
        ShareGroupMember {
            member_epoch: LEAVE_GROUP_EPOCH,
            previous_member_epoch: LEAVE_GROUP_EPOCH,
            assigned: Arc::default(),
            ..self.clone()
        }
    }

    fn revocation(&self) -> Option<(i32, i32)> {
        // Members of a share group never wait for each other's partitions.
        None
    }
}

impl ShareGroupMember {
    pub(super) fn with_metadata(&self, value: &ShareGroupMemberMetadataValue) -> Self {
        ShareGroupMember {
            rack_id: value.rack_id.as_ref().map(owned),
            client_id: owned(&value.client_id),
            client_host: owned(&value.client_host),
            subscribed_topic_names: value.subscribed_topic_names.iter().map(owned).collect(),
            ..self.clone()
        }
    }

    pub(super) fn with_current_assignment(
        &self,
        value: &ShareGroupCurrentMemberAssignmentValue,
    ) -> Self {
        let partitions = value.assigned_partitions.iter().flat_map(|topic| {
            let topic_id = topic.topic_id;
            topic.partitions.iter().map(move |index| (topic_id, *index))
        });
        ShareGroupMember {
            member_epoch: value.member_epoch,
            previous_member_epoch: value.previous_member_epoch,
            state: MemberState::from_code(value.state),
            assigned: Arc::new(partitions.collect()),
            ..self.clone()
        }
    }

    pub(super) fn is_reconciled_to(&self, target_epoch: i32) -> bool {
        self.state == MemberState::Stable && self.member_epoch == target_epoch
    }
}
