//! StreamsGroupDescribe: state, topology, members and tasks of streams groups (KIP-1071).
//!
//! Kafka: `KafkaApis.handleStreamsGroupDescribe`.

use bytestring::ByteString;
use ottla_protocol::messages::streams_group_describe_response::DescribedGroup;
use ottla_protocol::messages::{StreamsGroupDescribeRequest, StreamsGroupDescribeResponse};
use ottla_types::ErrorCode;

use ottla_net::{Operation, RequestContext, ResourceType};

use super::group_describe::group_describe;
use crate::Broker;

group_describe!(
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
    |broker: &Broker| broker.groups.serves_streams_protocol(),
    describe_streams_group,
    sees_all,
    "The described group uses topics that the client is not authorized to describe."
);

/// Whether the client may see every topic that the application uses.
fn sees_all(broker: &Broker, context: &RequestContext, group: &DescribedGroup) -> bool {
    let topologies = group.topology.iter().flat_map(|it| &it.subtopologies);
    let (operation, resource) = (Operation::Describe, ResourceType::Topic);
    let mut topics = topologies.flatten().flat_map(|it| {
        let internal = it
            .repartition_source_topics
            .iter()
            .chain(&it.state_changelog_topics);
        it.source_topics
            .iter()
            .chain(&it.repartition_sink_topics)
            .chain(internal.map(|topic| &topic.name))
    });
    topics.all(|topic| {
        let authorizer = &broker.authorizer;
        authorizer.is_allowed(context, operation, resource, topic)
    })
}
