//! AlterShareGroupOffsets: sets the offsets of a share group without members. Any offset is
//! accepted, as by Kafka; the first fetch at an offset before the start of the log continues at its
//! start. Kafka: `KafkaApis.handleAlterShareGroupOffsetsRequest`,
//! `GroupCoordinatorService.alterShareGroupOffsets`.

use std::collections::HashMap;
use std::sync::Arc;

use bytestring::ByteString;
use ottla_coordinator::group::{AlteredShareOffsets, PartitionsOfTopics, Refused};
use ottla_coordinator::persister::{InitializeState, SharePartitionKey, StateFailure};
use ottla_protocol::messages::alter_share_group_offsets_response::{
    AlterShareGroupOffsetsResponsePartition, AlterShareGroupOffsetsResponseTopic,
};
use ottla_protocol::messages::{AlterShareGroupOffsetsRequest, AlterShareGroupOffsetsResponse};
use ottla_types::{ErrorCode, TopicId};

use ottla_coordination::share_groups;
use ottla_net::{Operation, RequestContext, ResourceType};

use crate::Broker;
use ottla_coordination::share_groups::persister;

type Topic = AlterShareGroupOffsetsResponseTopic;
type Partition = AlterShareGroupOffsetsResponsePartition;

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    mut request: AlterShareGroupOffsetsRequest,
) -> AlterShareGroupOffsetsResponse {
    let authorizer = &broker.authorizer;
    let operation = Operation::Read;
    if !share_groups::are_enabled(&broker.share_groups) {
        return AlterShareGroupOffsetsResponse::refused(ErrorCode::UnsupportedVersion);
    }
    if !authorizer.is_allowed(context, operation, ResourceType::Group, &request.group_id) {
        return AlterShareGroupOffsetsResponse::refused(ErrorCode::GroupAuthorizationFailed);
    }
    let image = Arc::clone(&broker.metadata());
    let id_of = |name: &ByteString| image.topics.by_name(name).map(|topic| topic.id);
    let mut topics = Topics::default();
    request.topics.retain(|topic| {
        let name = &topic.topic_name;
        let code = if !authorizer.is_allowed(context, operation, ResourceType::Topic, name) {
            ErrorCode::TopicAuthorizationFailed
        } else if id_of(name).is_none() {
            ErrorCode::UnknownTopicOrPartition
        } else {
            return true;
        };
        let partitions = topic.partitions.iter();
        let partitions = partitions.map(|it| failed(it.partition_index, code.into()));
        topics.add(name, id_of(name), partitions.collect());
        false
    });
    let altered = alter(broker, request).await;
    if altered.error_code != 0 {
        return altered;
    }
    for topic in altered.responses {
        let id = id_of(&topic.topic_name);
        topics.add(&topic.topic_name, id, topic.partitions);
    }
    AlterShareGroupOffsetsResponse {
        responses: topics.answers,
        ..altered
    }
}

/// The response contains each topic once, even if the request names it several times.
#[derive(Default)]
struct Topics {
    answers: Vec<Topic>,
    index_of: HashMap<ByteString, usize>,
}

impl Topics {
    fn add(&mut self, name: &ByteString, id: Option<TopicId>, partitions: Vec<Partition>) {
        let index = *self.index_of.entry(name.clone()).or_insert_with(|| {
            self.answers.push(Topic {
                topic_name: name.clone(),
                topic_id: id.unwrap_or_default(),
                ..Default::default()
            });
            self.answers.len() - 1
        });
        self.answers[index].partitions.extend(partitions);
    }
}

/// Requires that all topics of the request exist.
async fn alter(
    broker: &Arc<Broker>,
    request: AlterShareGroupOffsetsRequest,
) -> AlterShareGroupOffsetsResponse {
    if request.group_id.is_empty() {
        return AlterShareGroupOffsetsResponse::refused(ErrorCode::InvalidGroupId);
    }
    let coordinator = match broker.groups.coordinator_of(&request.group_id) {
        Ok(coordinator) => coordinator,
        Err(code) => return AlterShareGroupOffsetsResponse::refused(code),
    };
    let decided = coordinator.request(&broker.groups, |groups, to, now| {
        groups.handle_alter_share_group_offsets(to, &request, now)
    });
    let (mut response, initialize) = match decided.await {
        Ok(AlteredShareOffsets {
            response,
            initialize,
        }) => (response, initialize),
        Err(code) => return AlterShareGroupOffsetsResponse::refused(code),
    };
    // Kafka's persister rejects the whole request in this case.
    if let Some(key) = initialize
        .iter()
        .map(|it| &it.key)
        .find(|it| it.partition < 0)
    {
        let SharePartitionKey {
            group_id,
            topic_id,
            partition,
        } = key;
        let refused_by = "Initialize share group parameters has invalid partitionId";
        return AlterShareGroupOffsetsResponse {
            error_message: Some(format!("{refused_by} - {group_id} {topic_id} {partition}").into()),
            ..Refused::refused(ErrorCode::UnknownServerError)
        };
    }
    let failures = initialize_all(broker, &initialize).await;
    let mut initialized = PartitionsOfTopics::new();
    for topic in &mut response.responses {
        for partition in topic.partitions.iter_mut().filter(|it| it.error_code == 0) {
            let index = partition.partition_index;
            match failures.get(&(topic.topic_id, index)) {
                Some(failure) => *partition = failed(index, failure.clone()),
                None => {
                    initialized.entry(topic.topic_id).or_default().insert(index);
                }
            }
        }
    }
    if initialized.is_empty() {
        return response;
    }
    let group_id = &request.group_id;
    let completed = coordinator.request(&broker.groups, |groups, to, now| {
        groups.complete_alter_share_group_offsets(to, group_id, &initialized, response, now)
    });
    match completed.await {
        Ok(AlteredShareOffsets { response, .. }) => response,
        Err(code) => AlterShareGroupOffsetsResponse::refused(code),
    }
}

/// The errors of the share coordinators.
async fn initialize_all(
    broker: &Arc<Broker>,
    requests: &[InitializeState],
) -> HashMap<(TopicId, i32), StateFailure> {
    let answers = persister::each(&broker.share_groups.coordinators, requests.to_vec()).await;
    let answers = requests.iter().zip(answers);
    let failures = answers.filter_map(|(request, answer)| {
        let key = (request.key.topic_id, request.key.partition);
        Some((key, answer.err()?))
    });
    failures.collect()
}

fn failed(partition_index: i32, failure: StateFailure) -> Partition {
    Partition {
        partition_index,
        error_code: failure.code.code(),
        error_message: Some(failure.message),
        ..Default::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duplicate_topic_gets_one_response() {
        let mut topics = Topics::default();
        for (name, index) in [("a", 0), ("b", 1), ("a", 2)] {
            let failure = ErrorCode::UnknownTopicOrPartition.into();
            topics.add(&name.into(), None, vec![failed(index, failure)]);
        }
        let partitions_of = |topic: &Topic| {
            let partitions = topic.partitions.iter();
            let partitions: Vec<i32> = partitions.map(|it| it.partition_index).collect();
            (topic.topic_name.to_string(), partitions)
        };
        let answered: Vec<_> = topics.answers.iter().map(partitions_of).collect();
        assert_eq!(
            answered,
            [("a".to_owned(), vec![0, 2]), ("b".to_owned(), vec![1])]
        );
    }
}
