//! StreamsGroupDescribe: state, topology, members and tasks of streams groups (KIP-1071).
//!
//! Kafka: `KafkaApis.handleStreamsGroupDescribe`.

use std::sync::Arc;

use bytestring::ByteString;
use ottla_coordinator::group::GroupCoordinator;
use ottla_net::RequestContext;
use ottla_protocol::messages::streams_group_describe_response::DescribedGroup;
use ottla_protocol::messages::{StreamsGroupDescribeRequest, StreamsGroupDescribeResponse};

use super::group_description::{GroupDescription, describe_all, fields_of_group};
use crate::Broker;

/// The status of a topology description that the broker does not have. Kafka keeps descriptions in a
/// plugin, without which it answers the same.
const NOT_STORED: i8 = 1;

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: StreamsGroupDescribeRequest,
) -> StreamsGroupDescribeResponse {
    let is_served = broker.groups.serves_streams_protocol();
    let with_operations = request.include_authorized_operations;
    let group_ids = request.group_ids;
    let mut groups: Vec<DescribedGroup> =
        describe_all(broker, context, group_ids, is_served, with_operations);
    if request.include_topology_description {
        let described = groups.iter_mut().filter(|group| group.error_code == 0);
        described.for_each(|group| group.topology_description_status = NOT_STORED);
    }
    StreamsGroupDescribeResponse {
        groups,
        ..Default::default()
    }
}

impl GroupDescription for DescribedGroup {
    const HIDDEN: &'static str =
        "The described group uses topics that the client is not authorized to describe.";

    fn of(groups: &GroupCoordinator, group_id: &ByteString) -> Self {
        groups.describe_streams_group(group_id)
    }

    fields_of_group!();

    /// Whether the client may describe every topic of the application.
    fn is_visible(&self, may_see: impl Fn(&str) -> bool) -> bool {
        let subtopologies = self.topology.iter().flat_map(|it| &it.subtopologies);
        let mut topics = subtopologies.flatten().flat_map(|it| {
            let internal = it
                .repartition_source_topics
                .iter()
                .chain(&it.state_changelog_topics);
            it.source_topics
                .iter()
                .chain(&it.repartition_sink_topics)
                .chain(internal.map(|topic| &topic.name))
        });
        topics.all(|topic| may_see(topic))
    }
}
