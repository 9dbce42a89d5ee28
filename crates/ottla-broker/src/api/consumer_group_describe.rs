//! ConsumerGroupDescribe: state, members and assignments of groups of the consumer protocol (KIP-848).

use std::sync::Arc;

use bytestring::ByteString;
use ottla_coordinator::group::GroupCoordinator;
use ottla_net::RequestContext;
use ottla_protocol::messages::consumer_group_describe_response::DescribedGroup;
use ottla_protocol::messages::{ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse};

use super::group_description::{GroupDescription, describe_all, fields_of_group};
use crate::Broker;

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: ConsumerGroupDescribeRequest,
) -> ConsumerGroupDescribeResponse {
    let is_served = broker.groups.serves_consumer_protocol();
    let with_operations = request.include_authorized_operations;
    let group_ids = request.group_ids;
    ConsumerGroupDescribeResponse {
        groups: describe_all(broker, context, group_ids, is_served, with_operations),
        ..Default::default()
    }
}

impl GroupDescription for DescribedGroup {
    const HIDDEN: &'static str =
        "The group has described topic(s) that the client is not authorized to describe.";

    fn of(groups: &GroupCoordinator, group_id: &ByteString) -> Self {
        groups.describe_consumer_group(group_id)
    }

    fields_of_group!();

    /// Whether the client may describe all topics of the members' current and target assignments.
    fn is_visible(&self, may_see: impl Fn(&str) -> bool) -> bool {
        let members = self.members.iter();
        members
            .flat_map(|member| [&member.assignment, &member.target_assignment])
            .flat_map(|assignment| &assignment.topic_partitions)
            .all(|topic| may_see(&topic.topic_name))
    }
}
