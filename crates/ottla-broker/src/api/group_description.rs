//! The common part of ConsumerGroupDescribe, ShareGroupDescribe and StreamsGroupDescribe:
//! authorisation, and the errors for hidden groups.

use bytestring::ByteString;
use ottla_coordinator::group::{GroupCoordinator, GroupError, Refused};
use ottla_net::{Operation, RequestContext, ResourceType};
use ottla_types::ErrorCode;

use crate::Broker;

/// A described group in one of these APIs.
pub(super) trait GroupDescription: Refused {
    /// The message for a client that may not describe all topics of the group.
    const HIDDEN: &'static str;

    fn of(groups: &GroupCoordinator, group_id: &ByteString) -> Self;

    fn error_code(&self) -> i16;

    fn set_group_id(&mut self, group_id: ByteString);

    fn set_authorized_operations(&mut self, operations: i32);

    /// Whether the client may describe every topic that the group names.
    fn is_visible(&self, may_see: impl Fn(&str) -> bool) -> bool;
}

/// The methods of [`GroupDescription`] for the fields that all three APIs have.
macro_rules! fields_of_group {
    () => {
        fn error_code(&self) -> i16 {
            self.error_code
        }

        fn set_group_id(&mut self, group_id: ByteString) {
            self.group_id = group_id;
        }

        fn set_authorized_operations(&mut self, operations: i32) {
            self.authorized_operations = operations;
        }
    };
}
pub(super) use fields_of_group;

/// `is_served`: whether the cluster supports groups of this kind.
pub(super) fn describe_all<D: GroupDescription>(
    broker: &Broker,
    context: &RequestContext,
    group_ids: Vec<ByteString>,
    is_served: bool,
    include_authorized_operations: bool,
) -> Vec<D> {
    let authorizer = &broker.authorizer;
    let (operation, resource) = (Operation::Describe, ResourceType::Group);
    // Denied groups come first, as in Kafka.
    let (allowed, refused): (Vec<ByteString>, Vec<ByteString>) =
        group_ids.into_iter().partition(|group_id| {
            !is_served || authorizer.is_allowed(context, operation, resource, group_id)
        });
    let refused = refused.into_iter();
    let mut groups: Vec<D> = refused
        .map(|group_id| failed(group_id, ErrorCode::GroupAuthorizationFailed))
        .collect();
    let may_see = |topic: &str| {
        authorizer.is_allowed(context, Operation::Describe, ResourceType::Topic, topic)
    };
    for group_id in allowed {
        let mut group: D = if is_served {
            describe(broker, &group_id)
        } else {
            failed(group_id.clone(), ErrorCode::UnsupportedVersion)
        };
        if group.error_code() == 0 && !group.is_visible(may_see) {
            let error = GroupError::new(ErrorCode::TopicAuthorizationFailed, D::HIDDEN);
            group = failed(group_id.clone(), error);
        }
        if include_authorized_operations && group.error_code() == 0 {
            let operations = authorizer.authorized_operations(context, resource, &group_id);
            group.set_authorized_operations(operations);
        }
        groups.push(group);
    }
    groups
}

fn describe<D: GroupDescription>(broker: &Broker, group_id: &ByteString) -> D {
    if group_id.is_empty() {
        return failed(group_id.clone(), ErrorCode::InvalidGroupId);
    }
    let shard = broker.groups.coordinator_of(group_id);
    let described = shard.and_then(|shard| shard.read(|groups| D::of(groups, group_id)));
    described.unwrap_or_else(|error| failed(group_id.clone(), error))
}

fn failed<D: GroupDescription>(group_id: ByteString, error: impl Into<GroupError>) -> D {
    let mut group = D::refused(error);
    group.set_group_id(group_id);
    group
}
