//! FindCoordinator: the broker that coordinates a group, a transactional ID or a share partition.
//!
//! Without share groups, their internal topic is not created, and a share partition gets
//! `COORDINATOR_NOT_AVAILABLE`. Kafka: `KafkaApis.handleFindCoordinatorRequest`; KIP-699 (several
//! keys), KIP-932 (share groups).

use std::sync::Arc;

use bytestring::ByteString;
use ottla_protocol::messages::find_coordinator_response::Coordinator;
use ottla_protocol::messages::{FindCoordinatorRequest, FindCoordinatorResponse};
use ottla_types::ErrorCode;

use ottla_coordination::groups::OFFSETS_TOPIC;
use ottla_coordination::share_groups::{SHARE_STATE_TOPIC, are_enabled};
use ottla_coordination::transactions::TRANSACTION_TOPIC;
use ottla_net::{Operation, RequestContext, ResourceType};

use crate::Broker;

/// `CoordinatorType` of the request.
mod key_type {
    pub(super) const GROUP: i8 = 0;
    pub(super) const TRANSACTION: i8 = 1;
    pub(super) const SHARE: i8 = 2;
}

struct Node {
    id: i32,
    host: ByteString,
    port: i32,
}

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: FindCoordinatorRequest,
) -> FindCoordinatorResponse {
    if context.api_version >= 4 {
        let keys = request.coordinator_keys.into_iter();
        let coordinators = keys.map(|key| {
            let (error, node) = answer(find(broker, context, request.key_type, &key));
            Coordinator {
                key,
                error_code: error.code(),
                node_id: node.id,
                host: node.host,
                port: node.port,
                ..Default::default()
            }
        });
        return FindCoordinatorResponse {
            coordinators: coordinators.collect(),
            ..Default::default()
        };
    }
    let found = find(broker, context, request.key_type, &request.key);
    let (error, node) = answer(found);
    let message = match error {
        ErrorCode::None => None,
        error => Some(ByteString::from_static(message_of(error))),
    };
    FindCoordinatorResponse {
        error_code: error.code(),
        error_message: message,
        node_id: node.id,
        host: node.host,
        port: node.port,
        ..Default::default()
    }
}

/// An unknown node has the ID -1 and an empty address.
fn answer(found: Result<Node, ErrorCode>) -> (ErrorCode, Node) {
    match found {
        Ok(node) => (ErrorCode::None, node),
        Err(error) => (
            error,
            Node {
                id: -1,
                host: ByteString::new(),
                port: -1,
            },
        ),
    }
}

fn find(
    broker: &Arc<Broker>,
    context: &RequestContext,
    key_type: i8,
    key: &str,
) -> Result<Node, ErrorCode> {
    let authorizer = &broker.authorizer;
    let describe = Operation::Describe;
    match key_type {
        key_type::GROUP => {
            if !authorizer.is_allowed(context, describe, ResourceType::Group, key) {
                return Err(ErrorCode::GroupAuthorizationFailed);
            }
            let index = broker.groups.partition_of(key);
            coordinator(broker, context, OFFSETS_TOPIC, index)
        }
        key_type::TRANSACTION => {
            if !authorizer.is_allowed(context, describe, ResourceType::TransactionalId, key) {
                return Err(ErrorCode::TransactionalIdAuthorizationFailed);
            }
            let index = broker.transactions.partition_of(key);
            coordinator(broker, context, TRANSACTION_TOPIC, index)
        }
        key_type::SHARE if context.api_version < 6 => Err(ErrorCode::InvalidRequest),
        key_type::SHARE if !is_share_partition_key(key) => Err(ErrorCode::InvalidRequest),
        key_type::SHARE if !are_enabled(&broker.share_groups) => {
            Err(ErrorCode::CoordinatorNotAvailable)
        }
        key_type::SHARE => {
            let (act, of_cluster) = (Operation::ClusterAction, ResourceType::Cluster);
            if !authorizer.is_allowed(context, act, of_cluster, "kafka-cluster") {
                return Err(ErrorCode::ClusterAuthorizationFailed);
            }
            let index = broker.share_groups.partition_of(key);
            coordinator(broker, context, SHARE_STATE_TOPIC, index)
        }
        _ => Err(ErrorCode::InvalidRequest),
    }
}

/// The leader of a partition of an internal topic. Creates the topic if it does not exist.
fn coordinator(
    broker: &Arc<Broker>,
    context: &RequestContext,
    topic: &'static str,
    index: i32,
) -> Result<Node, ErrorCode> {
    let image = broker.metadata();
    let Some(topic) = image.topics.by_name(topic) else {
        broker
            .auto_topic_creation
            .create_topics_in_background(None, vec![topic.into()]);
        return Err(ErrorCode::CoordinatorNotAvailable);
    };
    let unavailable = ErrorCode::CoordinatorNotAvailable;
    let partition = topic.partition(index.into()).ok_or(unavailable)?;
    let leader = image.cluster.broker(partition.leader).ok_or(unavailable)?;
    let endpoint = leader
        .listener(&context.listener().name)
        .ok_or(unavailable)?;
    if leader.fenced {
        return Err(unavailable);
    }
    Ok(Node {
        id: leader.id.0,
        host: endpoint.host.clone(),
        port: i32::from(endpoint.port),
    })
}

/// `group:topicId:partition`. The group may contain colons.
fn is_share_partition_key(key: &str) -> bool {
    let mut parts = key.rsplitn(3, ':');
    let (partition, topic_id, group_id) = (parts.next(), parts.next(), parts.next());
    partition.is_some_and(|text| text.trim().parse::<i32>().is_ok())
        && topic_id.is_some_and(|text| text.trim().parse::<ottla_types::Uuid>().is_ok())
        && group_id.is_some_and(|text| !text.trim().is_empty())
}

/// Kafka's message for each error that can occur here.
fn message_of(error: ErrorCode) -> &'static str {
    match error {
        ErrorCode::CoordinatorNotAvailable => "The coordinator is not available.",
        ErrorCode::GroupAuthorizationFailed => "Group authorization failed.",
        ErrorCode::TransactionalIdAuthorizationFailed => "Transactional Id authorization failed.",
        _ => {
            "This most likely occurs because of a request being malformed by the client library or the message was sent to an incompatible broker. See the broker logs for more details."
        }
    }
}

#[cfg(test)]
mod tests {
    use super::is_share_partition_key;

    #[test]
    fn share_partition_keys_have_three_parts() {
        for good in [
            "g:AAAAAAAAAAAAAAAAAAAAAQ:0",
            "a:b:AAAAAAAAAAAAAAAAAAAAAQ:12",
        ] {
            assert!(is_share_partition_key(good), "{good}");
        }
        for bad in [
            "",
            "g",
            "g:AAAAAAAAAAAAAAAAAAAAAQ",
            ":AAAAAAAAAAAAAAAAAAAAAQ:0",
            "g:x:0",
            "g:AAAAAAAAAAAAAAAAAAAAAQ:x",
        ] {
            assert!(!is_share_partition_key(bad), "{bad}");
        }
    }
}
