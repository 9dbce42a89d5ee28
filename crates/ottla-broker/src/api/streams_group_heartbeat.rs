//! StreamsGroupHeartbeat: a member of a streams group (KIP-1071) reports that it is alive, sends
//! its changes, and receives its tasks. Missing internal topics of the application are created.
//!
//! Kafka: `KafkaApis.handleStreamsGroupHeartbeat`.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use bytestring::ByteString;
use ottla_controller::is_valid_topic_name;
use ottla_coordinator::group::{
    GroupError, Refused, StreamsHeartbeat, StreamsHeartbeatContext, StreamsStatus,
    validate_streams_heartbeat,
};
use ottla_protocol::messages::create_topics_request::CreatableTopic;
use ottla_protocol::messages::streams_group_heartbeat_request::Topology;
use ottla_protocol::messages::{StreamsGroupHeartbeatRequest, StreamsGroupHeartbeatResponse};
use ottla_types::ErrorCode;

use ottla_net::{Operation, RequestContext, ResourceType};

use super::consumer_group_heartbeat::JOINS;
use crate::{Broker, is_internal_topic};

/// The maximum number of failed topic creations in a response.
const MAX_FAILURES_LISTED: usize = 3;
/// After a failure, the creation of a topic is not retried for this number of heartbeats.
const HEARTBEATS_WITHOUT_CREATION: u64 = 2;
/// From this version on, clients send the offsets of their tasks, and know all status codes of 4.4.
const VERSION_WITH_OFFSETS: i16 = 1;

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: StreamsGroupHeartbeatRequest,
) -> StreamsGroupHeartbeatResponse {
    if !broker.groups.serves_streams_protocol() {
        return StreamsGroupHeartbeatResponse::refused(ErrorCode::UnsupportedVersion);
    }
    let authorizer = &broker.authorizer;
    let group_id = request.group_id.clone();
    if !authorizer.is_allowed(context, Operation::Read, ResourceType::Group, &group_id) {
        return StreamsGroupHeartbeatResponse::refused(ErrorCode::GroupAuthorizationFailed);
    }
    if let Some(topology) = &request.topology
        && let Err(error) = check_topics(broker, context, topology)
    {
        return StreamsGroupHeartbeatResponse::refused(error);
    }
    if let Err(error) = validate_streams_heartbeat(&request) {
        return StreamsGroupHeartbeatResponse::refused(error);
    }
    if request.member_epoch == JOINS
        && let Err(error) = broker.context.check_heap()
    {
        return StreamsGroupHeartbeatResponse::refused(error);
    }
    let heartbeat = StreamsHeartbeatContext {
        client_id: context.client_id(),
        client_host: context.client_host().into(),
        knows_offsets_and_tags: context.api_version >= VERSION_WITH_OFFSETS,
    };
    let heard = broker
        .groups
        .request(&broker.groups, &group_id, |coordinator, to, now| {
            coordinator.handle_streams_group_heartbeat(to, request, heartbeat, now)
        });
    match heard.await {
        Ok(StreamsHeartbeat {
            mut response,
            topics_to_create,
        }) => {
            if !topics_to_create.is_empty() {
                create_topics(broker, context, topics_to_create, &mut response);
            }
            *response
        }
        Err(error) => StreamsGroupHeartbeatResponse::refused(error),
    }
}

/// Whether the topology may use these topics, and the client may describe them.
fn check_topics(
    broker: &Broker,
    context: &RequestContext,
    topology: &Topology,
) -> Result<(), GroupError> {
    let topics = topics_of(topology);
    let named = |is_wrong: &dyn Fn(&str) -> bool| -> Vec<&str> {
        let topics = topics.iter().map(|topic| &***topic);
        topics.filter(|topic| is_wrong(topic)).collect()
    };
    let invalid =
        |message: String| Err(GroupError::new(ErrorCode::StreamsInvalidTopology, message));
    let internal = named(&is_internal_topic);
    if !internal.is_empty() {
        let names = internal.join(",");
        return invalid(format!(
            "Use of Kafka internal topics {names} in a Kafka Streams topology is prohibited."
        ));
    }
    let misnamed = named(&|topic| !is_valid_topic_name(topic));
    if !misnamed.is_empty() {
        let names = misnamed.join(",");
        return invalid(format!("Topic names {names} are not valid topic names."));
    }
    let (operation, resource) = (Operation::Describe, ResourceType::Topic);
    let is_visible = |topic: &str| {
        broker
            .authorizer
            .is_allowed(context, operation, resource, topic)
    };
    if topics.iter().all(|topic| is_visible(topic)) {
        Ok(())
    } else {
        Err(ErrorCode::TopicAuthorizationFailed.into())
    }
}

/// Each topic once, in the order of the topology.
fn topics_of(topology: &Topology) -> Vec<&ByteString> {
    let topics = topology.subtopologies.iter().flat_map(|subtopology| {
        let internal = subtopology
            .repartition_source_topics
            .iter()
            .chain(&subtopology.state_changelog_topics);
        subtopology
            .source_topics
            .iter()
            .chain(&subtopology.repartition_sink_topics)
            .chain(internal.map(|topic| &topic.name))
    });
    let mut seen = HashSet::new();
    topics.filter(|topic| seen.insert(*topic)).collect()
}

/// Starts the creation of topics without waiting for it, and adds obstacles to the response:
/// missing permissions, or the last failure.
fn create_topics(
    broker: &Arc<Broker>,
    context: &RequestContext,
    topics: Vec<CreatableTopic>,
    response: &mut StreamsGroupHeartbeatResponse,
) {
    let authorizer = &broker.authorizer;
    let create = Operation::Create;
    if !authorizer.is_allowed_quietly(context, create, ResourceType::Cluster, "kafka-cluster") {
        let names = topics.iter().map(|topic| &*topic.name);
        let refused: Vec<&str> = names
            .filter(|name| !authorizer.is_allowed(context, create, ResourceType::Topic, name))
            .collect();
        if !refused.is_empty() {
            let names = refused.join(", ");
            add_detail(
                response,
                &format!("Unauthorized to CREATE on topics {names}."),
            );
            return;
        }
    }
    let interval_ms = u64::try_from(response.heartbeat_interval_ms).unwrap_or(0);
    let pause = Duration::from_millis(interval_ms * HEARTBEATS_WITHOUT_CREATION);
    let names: Vec<ByteString> = topics.iter().map(|topic| topic.name.clone()).collect();
    let counting = broker.count_mutations(context, true);
    broker
        .auto_topic_creation
        .create_topics_for(&counting, topics, pause);
    let failures = broker.auto_topic_creation.failed_creations(&names);
    if !failures.is_empty() {
        add_detail(response, &creation_failed(&failures));
    }
}

/// `failures` are topics and the reason of each failure.
fn creation_failed(failures: &[(ByteString, ByteString)]) -> String {
    let listed = failures.iter().take(MAX_FAILURES_LISTED);
    let listed: Vec<String> = listed
        .map(|(topic, reason)| format!("{topic} ({reason})"))
        .collect();
    let more = match failures.len() - listed.len() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("Creation failed: {}{more}.", listed.join(", "))
}

/// Appends to the message about missing topics.
fn add_detail(response: &mut StreamsGroupHeartbeatResponse, detail: &str) {
    let missing = StreamsStatus::MissingInternalTopics.code();
    let mut status = response.status.iter_mut().flatten();
    if let Some(missing) = status.find(|it| it.status_code == missing) {
        missing.status_detail = format!("{}; {detail}", missing.status_detail).into();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_names_at_most_three_failures() {
        let failures = |count: usize| -> Vec<(ByteString, ByteString)> {
            let names = (0..count).map(|index| format!("t{index}"));
            names.map(|name| (name.into(), "no".into())).collect()
        };
        assert_eq!(
            creation_failed(&failures(3)),
            "Creation failed: t0 (no), t1 (no), t2 (no)."
        );
        assert_eq!(
            creation_failed(&failures(5)),
            "Creation failed: t0 (no), t1 (no), t2 (no) and 2 more."
        );
    }
}
