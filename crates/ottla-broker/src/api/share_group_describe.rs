//! ShareGroupDescribe: state, members and assignments of share groups (KIP-932).

use bytestring::ByteString;
use ottla_protocol::messages::share_group_describe_response::DescribedGroup;
use ottla_protocol::messages::{ShareGroupDescribeRequest, ShareGroupDescribeResponse};
use ottla_types::ErrorCode;

use ottla_coordination::share_groups;
use ottla_net::{Operation, RequestContext, ResourceType};

use super::group_describe::group_describe;
use crate::Broker;

group_describe!(
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
    |broker: &Broker| share_groups::are_enabled(&broker.share_groups),
    describe_share_group,
    sees_all,
    "The group has described topic(s) that the client is not authorized to describe."
);

/// Whether the client may see every topic that a member has.
fn sees_all(broker: &Broker, context: &RequestContext, group: &DescribedGroup) -> bool {
    let authorizer = &broker.authorizer;
    let (operation, resource) = (Operation::Describe, ResourceType::Topic);
    group
        .members
        .iter()
        .flat_map(|member| &member.assignment.topic_partitions)
        .all(|topic| authorizer.is_allowed(context, operation, resource, &topic.topic_name))
}
