//! DeleteShareGroupOffsets: deletes the offsets of a share group without members, for whole topics.
//! Kafka: `KafkaApis.handleDeleteShareGroupOffsetsRequest`,
//! `GroupCoordinatorService.deleteShareGroupOffsets`.

use std::collections::BTreeSet;
use std::sync::Arc;

use ottla_coordinator::group::{DeletedShareOffsets, Refused};
use ottla_protocol::messages::delete_share_group_offsets_response::DeleteShareGroupOffsetsResponseTopic as Topic;
use ottla_protocol::messages::{DeleteShareGroupOffsetsRequest, DeleteShareGroupOffsetsResponse};
use ottla_types::ErrorCode;

use ottla_coordination::share_groups;
use ottla_net::{Operation, RequestContext, ResourceType};

use crate::Broker;

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    mut request: DeleteShareGroupOffsetsRequest,
) -> DeleteShareGroupOffsetsResponse {
    let authorizer = &broker.authorizer;
    let (delete, read) = (Operation::Delete, Operation::Read);
    if !share_groups::are_enabled(&broker.share_groups) {
        return DeleteShareGroupOffsetsResponse::refused(ErrorCode::UnsupportedVersion);
    }
    if !authorizer.is_allowed(context, delete, ResourceType::Group, &request.group_id) {
        return DeleteShareGroupOffsetsResponse::refused(ErrorCode::GroupAuthorizationFailed);
    }
    let mut topics = Vec::new();
    request.topics.retain(|topic| {
        let name = &topic.topic_name;
        let is_allowed = authorizer.is_allowed(context, read, ResourceType::Topic, name);
        if !is_allowed {
            let code = ErrorCode::TopicAuthorizationFailed;
            topics.push(Topic {
                topic_name: name.clone(),
                ..failed(code)
            });
        }
        is_allowed
    });
    let deleted = delete_offsets(broker, request).await;
    if deleted.error_code != 0 {
        return deleted;
    }
    topics.extend(deleted.responses);
    DeleteShareGroupOffsetsResponse {
        responses: topics,
        ..deleted
    }
}

async fn delete_offsets(
    broker: &Arc<Broker>,
    request: DeleteShareGroupOffsetsRequest,
) -> DeleteShareGroupOffsetsResponse {
    let group_id = &request.group_id;
    if group_id.is_empty() {
        return DeleteShareGroupOffsetsResponse::refused(ErrorCode::InvalidGroupId);
    }
    let coordinator = match broker.groups.coordinator_of(group_id) {
        Ok(coordinator) => coordinator,
        Err(code) => return DeleteShareGroupOffsetsResponse::refused(code),
    };
    let begun = coordinator.request(&broker.groups, |groups, to, now| {
        groups.begin_delete_share_group_offsets(to, &request, now)
    });
    let (mut response, delete) = match begun.await {
        Ok(DeletedShareOffsets { response, delete }) => (response, delete),
        Err(code) => return DeleteShareGroupOffsetsResponse::refused(code),
    };
    if delete.is_empty() {
        return response;
    }
    let image = Arc::clone(&broker.metadata());
    let (mut topics, mut deleted) = (Vec::new(), BTreeSet::new());
    for (topic_id, answer) in
        share_groups::delete_state(&broker.share_groups.coordinators, group_id, &delete).await
    {
        let name = image.topics.by_id(topic_id).map(|it| it.name.clone());
        let topic = match answer {
            Ok(()) => {
                deleted.insert(topic_id);
                Topic::default()
            }
            Err(code) => failed(code),
        };
        topics.push(Topic {
            topic_id,
            topic_name: name.unwrap_or_default(),
            ..topic
        });
    }
    // Successes precede failures.
    topics.sort_by_key(|topic| topic.error_code != 0);
    topics.append(&mut response.responses);
    response.responses = topics;
    if deleted.is_empty() {
        return response;
    }
    let completed = coordinator.request(&broker.groups, |groups, to, now| {
        groups.complete_delete_share_group_offsets(to, group_id, &deleted, response, now)
    });
    match completed.await {
        Ok(DeletedShareOffsets { response, .. }) => response,
        Err(code) => DeleteShareGroupOffsetsResponse::refused(code),
    }
}

fn failed(code: ErrorCode) -> Topic {
    Topic {
        error_code: code.code(),
        error_message: Some(code.message().into()),
        ..Default::default()
    }
}
