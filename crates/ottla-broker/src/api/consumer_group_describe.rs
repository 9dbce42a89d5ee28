//! ConsumerGroupDescribe: state, members and assignments of groups of the consumer protocol (KIP-848).

use bytestring::ByteString;
use ottla_protocol::messages::consumer_group_describe_response::DescribedGroup;
use ottla_protocol::messages::{ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse};
use ottla_types::ErrorCode;

use ottla_net::{Operation, RequestContext, ResourceType};

use super::group_describe::group_describe;
use crate::Broker;

group_describe!(
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    |broker: &Broker| broker.groups.serves_consumer_protocol(),
    describe_consumer_group,
    sees_all,
    "The group has described topic(s) that the client is not authorized to describe."
);

/// Whether the client may see every topic that a member has or is to have.
fn sees_all(broker: &Broker, context: &RequestContext, group: &DescribedGroup) -> bool {
    let authorizer = &broker.authorizer;
    let (operation, resource) = (Operation::Describe, ResourceType::Topic);
    group
        .members
        .iter()
        .flat_map(|member| [&member.assignment, &member.target_assignment])
        .flat_map(|assignment| &assignment.topic_partitions)
        .all(|topic| authorizer.is_allowed(context, operation, resource, &topic.topic_name))
}
