//! ShareGroupDescribe: state, members and assignments of share groups (KIP-932).

use std::sync::Arc;

use bytestring::ByteString;
use ottla_coordination::share_groups;
use ottla_coordinator::group::GroupCoordinator;
use ottla_net::RequestContext;
use ottla_protocol::messages::share_group_describe_response::DescribedGroup;
use ottla_protocol::messages::{ShareGroupDescribeRequest, ShareGroupDescribeResponse};

use super::group_description::{GroupDescription, describe_all, fields_of_group};
use crate::Broker;

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: ShareGroupDescribeRequest,
) -> ShareGroupDescribeResponse {
    let is_served = share_groups::are_enabled(&broker.share_groups);
    let with_operations = request.include_authorized_operations;
    let group_ids = request.group_ids;
    ShareGroupDescribeResponse {
        groups: describe_all(broker, context, group_ids, is_served, with_operations),
        ..Default::default()
    }
}

impl GroupDescription for DescribedGroup {
    const HIDDEN: &'static str =
        "The group has described topic(s) that the client is not authorized to describe.";

    fn of(groups: &GroupCoordinator, group_id: &ByteString) -> Self {
        groups.describe_share_group(group_id)
    }

    fields_of_group!();

    fn is_visible(&self, may_see: impl Fn(&str) -> bool) -> bool {
        let members = self.members.iter();
        members
            .flat_map(|member| &member.assignment.topic_partitions)
            .all(|topic| may_see(&topic.topic_name))
    }
}
