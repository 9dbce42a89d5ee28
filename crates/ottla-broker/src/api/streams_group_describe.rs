//! StreamsGroupDescribe: state, topology, members and tasks of streams groups (KIP-1071).
//!
//! Kafka: `KafkaApis.handleStreamsGroupDescribe`.

use std::sync::Arc;

use bytestring::ByteString;
use ottla_protocol::messages::streams_group_describe_response::{DescribedGroup, Topology};
use ottla_protocol::messages::{StreamsGroupDescribeRequest, StreamsGroupDescribeResponse};
use ottla_types::ErrorCode;

use ottla_net::{Operation, RequestContext, ResourceType};

use crate::Broker;

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: StreamsGroupDescribeRequest,
) -> StreamsGroupDescribeResponse {
    let authorizer = &broker.authorizer;
    let is_served = broker.groups.serves_streams_protocol();
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
        if request.include_authorized_operations && group.error_code == 0 {
            group.authorized_operations =
                authorizer.authorized_operations(context, resource, &group.group_id);
        }
        let topology = group.topology.as_ref();
        if topology.is_some_and(|topology| !sees_all_of(broker, context, topology)) {
            group = DescribedGroup {
                error_message: Some(
                    "The described group uses topics that the client is not authorized to describe."
                        .into(),
                ),
                ..failed(group.group_id, ErrorCode::TopicAuthorizationFailed)
            };
        }
        groups.push(group);
    }
    StreamsGroupDescribeResponse {
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
        .and_then(|shard| shard.read(|groups| groups.describe_streams_group(&group_id)));
    described.unwrap_or_else(|error| failed(group_id, error))
}

/// Whether the client may see every topic that the application uses.
fn sees_all_of(broker: &Broker, context: &RequestContext, topology: &Topology) -> bool {
    let (operation, resource) = (Operation::Describe, ResourceType::Topic);
    let mut topics = topology.subtopologies.iter().flatten().flat_map(|it| {
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

fn failed(group_id: ByteString, error: ErrorCode) -> DescribedGroup {
    DescribedGroup {
        group_id,
        error_code: error.code(),
        ..Default::default()
    }
}
