//! `DeleteTopics`.
//!
//! In Kafka: `ControllerApis.deleteTopics`, `ReplicationControlManager.deleteTopics`. Kafka
//! shuffles the results, so that their order reveals nothing about topics that the client must not
//! see. Here they are in the order of the request.

use std::collections::{BTreeMap, BTreeSet};

use bytestring::ByteString;
use ottla_protocol::messages::delete_topics_request::DeleteTopicsRequest;
use ottla_protocol::messages::delete_topics_response::{
    DeletableTopicResult, DeleteTopicsResponse,
};
use ottla_protocol::metadata_records::{MetadataRecord, RemoveTopicRecord};
use ottla_types::{ErrorCode, TopicId, Uuid};

use crate::decision::{ApiError, ControllerContext, Decision};

/// How a request identifies a topic.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Target {
    Name(ByteString),
    Id(TopicId),
}

/// The caller checks `delete.topic.enable`, because the error code depends on the version of the
/// request.
pub fn delete_topics(
    context: &ControllerContext<'_>,
    request: &DeleteTopicsRequest,
) -> Decision<DeleteTopicsResponse> {
    let mut responses = Vec::new();
    let mut respond = |name: Option<ByteString>, topic_id: TopicId, error: ApiError| {
        responses.push(DeletableTopicResult {
            name,
            topic_id,
            error_code: error.code.code(),
            error_message: error.wire_message(),
            ..Default::default()
        });
    };
    let invalid = |message: &'static str| ApiError::new(ErrorCode::InvalidRequest, message);

    let mut targets = Vec::new();
    targets.extend(request.topic_names.iter().cloned().map(Target::Name));
    for topic in &request.topics {
        match (&topic.name, topic.topic_id) {
            (None, Uuid::ZERO) => {
                respond(
                    None,
                    Uuid::ZERO,
                    invalid("Neither topic name nor id were specified."),
                );
            }
            (None, id) => targets.push(Target::Id(id)),
            (Some(name), Uuid::ZERO) => targets.push(Target::Name(name.clone())),
            (Some(name), id) => respond(
                Some(name.clone()),
                id,
                invalid("You may not specify both topic name and topic id."),
            ),
        }
    }

    let mut counts: BTreeMap<Target, usize> = BTreeMap::new();
    for target in &targets {
        *counts.entry(target.clone()).or_default() += 1;
    }
    let mut seen = BTreeSet::new();
    let mut ids_by_id = BTreeSet::new();
    for target in &targets {
        if let Target::Id(id) = target {
            ids_by_id.insert(*id);
        }
    }
    let mut removed = Vec::new();
    for target in targets {
        if !seen.insert(target.clone()) {
            continue;
        }
        let is_duplicate = counts.get(&target).is_some_and(|&count| count > 1);
        match target {
            Target::Name(name) if is_duplicate => {
                respond(Some(name), Uuid::ZERO, invalid("Duplicate topic name."));
            }
            Target::Id(id) if is_duplicate => respond(None, id, invalid("Duplicate topic id.")),
            Target::Name(name) => match context.image.topics.by_name(&name) {
                None => respond(
                    Some(name),
                    Uuid::ZERO,
                    ApiError::new(
                        ErrorCode::UnknownTopicOrPartition,
                        "This server does not host this topic-partition.",
                    ),
                ),
                // The same topic is given by name and by id: neither is deleted, and both entries
                // get the error.
                Some(topic) if ids_by_id.contains(&topic.id) => respond(
                    Some(name),
                    topic.id,
                    invalid("The provided topic name maps to an ID that was already supplied."),
                ),
                Some(topic) => {
                    let counted = context.count_mutations(topic.partition_count());
                    if counted.is_ok() {
                        removed.push(topic.id);
                    }
                    respond(
                        Some(name),
                        topic.id,
                        counted.err().unwrap_or(ApiError::NONE),
                    );
                }
            },
            Target::Id(id) => match context.image.topics.by_id(id) {
                None => respond(
                    None,
                    id,
                    ApiError::new(
                        ErrorCode::UnknownTopicId,
                        "This server does not host this topic ID.",
                    ),
                ),
                Some(topic) if seen_by_name(&request.topic_names, &request.topics, &topic.name) => {
                }
                Some(topic) => {
                    let counted = context.count_mutations(topic.partition_count());
                    if counted.is_ok() {
                        removed.push(id);
                    }
                    let error = counted.err().unwrap_or(ApiError::NONE);
                    respond(Some(topic.name.clone()), id, error);
                }
            },
        }
    }
    let records = removed
        .into_iter()
        .map(|topic_id| {
            MetadataRecord::RemoveTopic(RemoveTopicRecord {
                topic_id,
                ..Default::default()
            })
        })
        .collect();
    let response = DeleteTopicsResponse {
        responses,
        ..Default::default()
    };
    Decision::new(records, response)
}

/// Whether the request also contains the topic by name, where it is refused.
fn seen_by_name(
    names: &[ByteString],
    topics: &[ottla_protocol::messages::delete_topics_request::DeleteTopicState],
    name: &ByteString,
) -> bool {
    let count = names.iter().filter(|other| *other == name).count()
        + topics
            .iter()
            .filter(|topic| topic.name.as_ref() == Some(name) && topic.topic_id.is_zero())
            .count();
    // A name that is given twice is refused as a duplicate, and not resolved to the id.
    count == 1
}

#[cfg(test)]
mod tests;
