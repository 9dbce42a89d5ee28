//! A member of a classic group.
//!
//! Source: `ClassicGroupMember`. The fields of a member are copied from the requests, so that a
//! short string does not keep a whole request buffer in memory.

use bytes::Bytes;
use bytestring::ByteString;
use ottla_protocol::messages::describe_groups_response::DescribedGroupMember;
use ottla_protocol::messages::join_group_request::JoinGroupRequestProtocol;
use ottla_protocol::messages::{JoinGroupResponse, SyncGroupResponse};

use crate::runtime::ReplyTo;

/// The reply address of a parked request.
pub(crate) type JoinReply = ReplyTo<JoinGroupResponse>;
pub(crate) type SyncReply = ReplyTo<SyncGroupResponse>;

#[derive(Debug)]
pub(crate) struct ClassicGroupMember {
    pub(crate) member_id: ByteString,
    pub(crate) group_instance_id: Option<ByteString>,
    pub(crate) client_id: ByteString,
    pub(crate) client_host: ByteString,
    pub(crate) rebalance_timeout_ms: i32,
    pub(crate) session_timeout_ms: i32,
    pub(crate) protocol_type: ByteString,
    /// In the member's order of preference.
    pub(crate) supported_protocols: Vec<Protocol>,
    /// The assignment in the current generation; empty until the leader has sent it.
    pub(crate) assignment: Bytes,
    /// The parked JoinGroup. Only `ClassicGroup` changes it, because the group counts parked
    /// members.
    pub(crate) awaiting_join: Option<JoinReply>,
    /// The parked SyncGroup.
    pub(crate) awaiting_sync: Option<SyncReply>,
    /// Joined for the first time and does not know its member id yet, so it cannot send heartbeats.
    pub(crate) is_new: bool,
}

/// A protocol that a member supports, with its metadata for the other members.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Protocol {
    pub(crate) name: ByteString,
    pub(crate) metadata: Bytes,
}

impl ClassicGroupMember {
    pub(crate) fn is_static(&self) -> bool {
        self.group_instance_id.is_some()
    }

    /// The member's metadata for `protocol_name`, if it supports the protocol.
    pub(crate) fn metadata(&self, protocol_name: &str) -> Option<&Bytes> {
        self.supported_protocols
            .iter()
            .find(|protocol| &*protocol.name == protocol_name)
            .map(|protocol| &protocol.metadata)
    }

    /// A member with a parked request need not send heartbeats. A new member can time out even
    /// then, because a client that gave up and retried would leave dead members.
    pub(crate) fn has_satisfied_heartbeat(&self) -> bool {
        !self.is_new && (self.awaiting_join.is_some() || self.awaiting_sync.is_some())
    }

    pub(crate) fn matches(&self, protocols: &[JoinGroupRequestProtocol]) -> bool {
        self.supported_protocols.len() == protocols.len()
            && self
                .supported_protocols
                .iter()
                .zip(protocols)
                .all(|(ours, theirs)| ours.name == theirs.name && ours.metadata == theirs.metadata)
    }

    pub(crate) fn describe(&self, protocol_name: Option<&str>) -> DescribedGroupMember {
        let member_metadata = protocol_name
            .and_then(|name| self.metadata(name))
            .cloned()
            .unwrap_or_default();
        DescribedGroupMember {
            member_id: self.member_id.clone(),
            group_instance_id: self.group_instance_id.clone(),
            client_id: self.client_id.clone(),
            client_host: self.client_host.clone(),
            member_metadata,
            member_assignment: self.assignment.clone(),
            ..Default::default()
        }
    }
}

/// The protocols of a request, copied out of its buffer.
pub(crate) fn owned_protocols(protocols: &[JoinGroupRequestProtocol]) -> Vec<Protocol> {
    protocols
        .iter()
        .map(|protocol| Protocol {
            name: owned(&protocol.name),
            metadata: Bytes::copy_from_slice(&protocol.metadata),
        })
        .collect()
}

/// A copy that does not keep the buffer of the request alive.
pub(crate) fn owned(text: &ByteString) -> ByteString {
    if text.is_empty() {
        return ByteString::new();
    }
    ByteString::from(String::from(&**text))
}
