//! ConsumerGroupDescribe: state, members and assignments of groups of the consumer protocol (KIP-848).

use std::sync::Arc;

use bytestring::ByteString;
use ottla_protocol::messages::consumer_group_describe_response::DescribedGroup;
use ottla_protocol::messages::{ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse};
use ottla_types::ErrorCode;

use ottla_net::{Operation, RequestContext, ResourceType};

use crate::Broker;

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: ConsumerGroupDescribeRequest,
) -> ConsumerGroupDescribeResponse {
    let authorizer = &broker.authorizer;
    let is_served = broker.groups.serves_consumer_protocol();
    let (operation, resource) = (Operation::Describe, ResourceType::Group);
    // Those that are refused come first, as with Kafka.
    let (allowed, refused): (Vec<ByteString>, Vec<ByteString>) =
        request.group_ids.into_iter().partition(|group_id| {
            !is_served || authorizer.is_allowed(context, operation, resource, group_id)
        });
    let refused = refused.into_iter();
    let mut groups: Vec<DescribedGroup> = refused
        .map(|group_id| failed(group_id, ErrorCode::GroupAuthorizationFailed))
        .collect();
    for group_id in allowed {
        let mut group = match is_served {
            true => describe(broker, group_id),
            false => failed(group_id, ErrorCode::UnsupportedVersion),
        };
        if group.error_code == 0 && sees_too_little(broker, context, &group) {
            group = DescribedGroup {
                error_message: Some(
                    "The group has described topic(s) that the client is not authorized to describe."
                        .into(),
                ),
                ..failed(group.group_id, ErrorCode::TopicAuthorizationFailed)
            };
        }
        if request.include_authorized_operations && group.error_code == 0 {
            group.authorized_operations =
                authorizer.authorized_operations(context, resource, &group.group_id);
        }
        groups.push(group);
    }
    ConsumerGroupDescribeResponse {
        groups,
        ..Default::default()
    }
}

fn describe(broker: &Broker, group_id: ByteString) -> DescribedGroup {
    if group_id.is_empty() {
        return failed(group_id, ErrorCode::InvalidGroupId);
    }
    let described = broker
        .groups
        .coordinator_of(&group_id)
        .and_then(|shard| shard.read(|groups| groups.describe_consumer_group(&group_id)));
    described.unwrap_or_else(|error| failed(group_id, error))
}

/// Whether a member has or is to have a topic that the client may not see.
fn sees_too_little(broker: &Broker, context: &RequestContext, group: &DescribedGroup) -> bool {
    let authorizer = &broker.authorizer;
    let (operation, resource) = (Operation::Describe, ResourceType::Topic);
    group
        .members
        .iter()
        .flat_map(|member| [&member.assignment, &member.target_assignment])
        .flat_map(|assignment| &assignment.topic_partitions)
        .any(|topic| !authorizer.is_allowed(context, operation, resource, &topic.topic_name))
}

fn failed(group_id: ByteString, error: ErrorCode) -> DescribedGroup {
    DescribedGroup {
        group_id,
        error_code: error.code(),
        ..Default::default()
    }
}
