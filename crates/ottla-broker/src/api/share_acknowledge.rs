//! ShareAcknowledge (KIP-932): a member accepts, releases or rejects records that it has acquired.
//!
//! Kafka does the same in `KafkaApis.handleShareAcknowledgeRequest` and `SharePartitionManager.acknowledge`.

use std::sync::Arc;

use bytestring::ByteString;
use ottla_coordinator::persister::StateFailure;
use ottla_coordinator::share_partition::{AcknowledgeType, AcknowledgementBatch};
use ottla_coordinator::share_session::{FINAL_EPOCH, ShareSessionKey};
use ottla_protocol::ErrorResponse;
use ottla_protocol::messages::share_acknowledge_response::{
    LeaderIdAndEpoch, NodeEndpoint, PartitionData, ShareAcknowledgeTopicResponse,
};
use ottla_protocol::messages::{ShareAcknowledgeRequest, ShareAcknowledgeResponse};
use ottla_sync::collections::HashMap;
use ottla_sync::task::JoinHandle;
use ottla_types::{ErrorCode, Offset, PartitionIndex, TopicId, TopicIdPartition, TopicName};

use ottla_coordination::share_groups::{GroupSettings, PartitionFailure, are_enabled, panicked};
use ottla_net::RequestContext;
use ottla_net::{Operation, ResourceType};

use super::named_leader::{led_elsewhere, name_leader};
use crate::Broker;

/// The first version that can renew acquisition locks.
const RENEWAL_VERSION: i16 = 2;
/// The maximum length of a member ID: that of a UUID as text.
const MAX_MEMBER_ID_CHARS: usize = 36;

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: ShareAcknowledgeRequest,
) -> ShareAcknowledgeResponse {
    match serve(broker, context, request).await {
        Ok(response) => response,
        Err(code) => ShareAcknowledgeResponse::of_error(code),
    }
}

async fn serve(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: ShareAcknowledgeRequest,
) -> Result<ShareAcknowledgeResponse, ErrorCode> {
    if !are_enabled(&broker.share_groups) {
        return Err(ErrorCode::UnsupportedVersion);
    }
    let (group_id, member_id) = (request.group_id.clone(), request.member_id.clone());
    let key = check_member(broker, context, group_id, member_id)?;
    let epoch = request.share_session_epoch;
    let begun = broker
        .share_groups
        .sessions
        .lock()
        .begin_acknowledge(&key, epoch);
    begun?;
    let asked = request.topics.iter().flat_map(|topic| {
        topic.partitions.iter().map(|partition| {
            let batches = partition.acknowledgement_batches.iter();
            let batches = batches.map(|batch| {
                (
                    batch.first_offset,
                    batch.last_offset,
                    batch.acknowledge_types.as_slice(),
                )
            });
            batches_of(topic.topic_id, partition.partition_index, batches)
        })
    });
    let supports_renewal = context.api_version >= RENEWAL_VERSION;
    let renews = request.is_renew_ack;
    let acknowledging = acknowledge(
        broker,
        context,
        &key,
        asked.collect(),
        supports_renewal,
        renews,
    );
    let mut answers = Vec::with_capacity(acknowledging.len());
    for acknowledging in acknowledging {
        let _waiting = context.waited.begin();
        answers.push(acknowledging.end().await);
    }
    if epoch == FINAL_EPOCH {
        let _waiting = context.waited.begin();
        broker.share_groups.end_session(&key).await;
    }
    let settings = GroupSettings::of(&broker.host.context, &key.group_id);
    Ok(respond(broker, context, answers, settings))
}

/// Whether this is a valid member ID. Kafka: `KafkaApis.isMemberIdValid`.
pub(super) fn is_member_id(id: &str) -> bool {
    !id.is_empty() && id.chars().count() <= MAX_MEMBER_ID_CHARS
}

/// The session key, if the member ID is valid and the client may read the group.
pub(super) fn check_member(
    broker: &Broker,
    context: &RequestContext,
    group_id: Option<ByteString>,
    member_id: Option<ByteString>,
) -> Result<ShareSessionKey, ErrorCode> {
    let group_id = group_id.ok_or(ErrorCode::InvalidRequest)?;
    let (read, of_group) = (Operation::Read, ResourceType::Group);
    if !broker
        .authorizer
        .is_allowed(context, read, of_group, &group_id)
    {
        return Err(ErrorCode::GroupAuthorizationFailed);
    }
    let member_id = member_id
        .filter(|id| is_member_id(id))
        .ok_or(ErrorCode::InvalidRequest)?;
    // Copied, because slices would keep the whole request in memory.
    Ok(ShareSessionKey {
        group_id: ByteString::from(group_id.to_string()),
        member_id: ByteString::from(member_id.to_string()),
    })
}

/// The acknowledgements of one partition in a request.
pub(super) struct PartitionAcknowledgements {
    partition: TopicIdPartition,
    /// `None` if they are invalid.
    batches: Option<Vec<AcknowledgementBatch>>,
    has_renewal: bool,
}

/// `batches` are first offset, last offset and types.
pub(super) fn batches_of<'a>(
    topic_id: TopicId,
    partition: i32,
    batches: impl Iterator<Item = (i64, i64, &'a [i8])>,
) -> PartitionAcknowledgements {
    let mut before = -1;
    let mut has_renewal = false;
    let batches = batches.map(|(first, last, types)| {
        let is_single = types.len() == 1;
        let is_each = last.checked_sub(first) == i64::try_from(types.len()).ok()?.checked_sub(1);
        if first > last || first < before || types.is_empty() || !(is_single || is_each) {
            return None;
        }
        before = last;
        let types: Option<Vec<AcknowledgeType>> = types
            .iter()
            .map(|id| AcknowledgeType::from_id(*id))
            .collect();
        let types = types?;
        has_renewal |= types.contains(&AcknowledgeType::Renew);
        Some(AcknowledgementBatch {
            first_offset: Offset(first),
            last_offset: Offset(last),
            types,
        })
    });
    let batches = batches.collect();
    PartitionAcknowledgements {
        partition: TopicIdPartition {
            topic_id,
            partition: PartitionIndex(partition),
        },
        batches,
        has_renewal,
    }
}

/// The result of the acknowledgements of one partition.
pub(super) struct Acknowledged {
    pub(super) partition: TopicIdPartition,
    pub(super) result: Result<(), PartitionFailure>,
}

/// The acknowledgements of one partition in progress.
pub(super) struct Acknowledging {
    partition: TopicIdPartition,
    progress: Progress,
}

enum Progress {
    /// There was nothing to submit.
    Ended(Result<(), PartitionFailure>),
    /// Submitted; completes when the acknowledgements are persisted.
    Task(JoinHandle<Result<(), PartitionFailure>>),
}

impl Acknowledging {
    pub(super) async fn end(self) -> Acknowledged {
        let result = match self.progress {
            Progress::Ended(result) => result,
            Progress::Task(task) => {
                let ended = task.await;
                ended.unwrap_or_else(|_| Err(panicked().into()))
            }
        };
        Acknowledged {
            partition: self.partition,
            result,
        }
    }
}

/// Submits acknowledgements. If a partition is named more than once, the last entry counts, as in
/// Kafka; so there are at most as many tasks as share partitions led by this broker.
pub(super) fn acknowledge(
    broker: &Arc<Broker>,
    context: &RequestContext,
    key: &ShareSessionKey,
    asked: Vec<PartitionAcknowledgements>,
    supports_renewal: bool,
    renews: bool,
) -> Vec<Acknowledging> {
    let acknowledging = last_of_each(asked).into_iter().map(|asked| {
        let partition = asked.partition;
        let may_renew = supports_renewal && renews;
        let batches = asked
            .batches
            .filter(|_| may_renew || !asked.has_renewal)
            .ok_or(ErrorCode::InvalidRequest);
        let checked = topic_of(broker, context, partition).and(batches);
        let progress = match checked {
            Err(code) => Progress::Ended(Err(PartitionFailure::refused(code))),
            Ok(batches) if batches.is_empty() => Progress::Ended(Ok(())),
            Ok(batches) => match broker.share_groups.partitions.get(&key.group_id, partition) {
                None => {
                    let failure = StateFailure::from(ErrorCode::UnknownTopicOrPartition);
                    Progress::Ended(Err(failure.into()))
                }
                Some(led) => {
                    let member = key.member_id.clone();
                    Progress::Task(ottla_sync::task::spawn(async move {
                        let acknowledged = led.acknowledge(&member, &batches).await;
                        acknowledged.map_err(PartitionFailure::from)
                    }))
                }
            },
        };
        Acknowledging {
            partition,
            progress,
        }
    });
    acknowledging.collect()
}

/// In the order in which the partitions are first named.
fn last_of_each(asked: Vec<PartitionAcknowledgements>) -> Vec<PartitionAcknowledgements> {
    let mut last: Vec<PartitionAcknowledgements> = Vec::with_capacity(asked.len());
    let mut index_of: HashMap<TopicIdPartition, usize> = HashMap::default();
    for asked in asked {
        let index = *index_of.entry(asked.partition).or_insert(last.len());
        match last.get_mut(index) {
            Some(before) => *before = asked,
            None => last.push(asked),
        }
    }
    last
}

fn respond(
    broker: &Broker,
    context: &RequestContext,
    answers: Vec<Acknowledged>,
    settings: GroupSettings,
) -> ShareAcknowledgeResponse {
    let image = broker.metadata();
    let mut node_endpoints: Vec<NodeEndpoint> = Vec::new();
    let mut responses: Vec<ShareAcknowledgeTopicResponse> = Vec::new();
    let mut index_of: HashMap<TopicId, usize> = HashMap::default();
    for acknowledged in answers {
        let partition = acknowledged.partition;
        let mut answer = PartitionData {
            partition_index: partition.partition.0,
            ..Default::default()
        };
        if let Err(failure) = acknowledged.result {
            let (topic_id, index) = (partition.topic_id, partition.partition);
            if let Some(known) = led_elsewhere(&image, topic_id, index, failure.code) {
                name_leader!(image, context, known, answer, node_endpoints);
            }
            answer.error_code = failure.code.code();
            answer.error_message = failure.message;
        }
        let index = *index_of.entry(partition.topic_id).or_insert_with(|| {
            responses.push(ShareAcknowledgeTopicResponse {
                topic_id: partition.topic_id,
                ..Default::default()
            });
            responses.len() - 1
        });
        responses[index].partitions.push(answer);
    }
    ShareAcknowledgeResponse {
        acquisition_lock_timeout_ms: settings.record_lock_duration_ms(),
        responses,
        node_endpoints,
        ..Default::default()
    }
}

/// The name of the partition's topic, if the partition exists and the client may read the topic.
pub(super) fn topic_of(
    broker: &Broker,
    context: &RequestContext,
    partition: TopicIdPartition,
) -> Result<TopicName, ErrorCode> {
    let image = broker.metadata();
    let topic = image
        .topics
        .by_id(partition.topic_id)
        .ok_or(ErrorCode::UnknownTopicId)?;
    let (read, of_topic) = (Operation::Read, ResourceType::Topic);
    if !broker
        .authorizer
        .is_allowed(context, read, of_topic, &topic.name)
    {
        return Err(ErrorCode::TopicAuthorizationFailed);
    }
    match topic.partition(partition.partition) {
        Some(_) => Ok(topic.name.clone()),
        None => Err(ErrorCode::UnknownTopicOrPartition),
    }
}

#[cfg(test)]
mod tests {
    use ottla_protocol::ApiKey;

    use super::*;
    use crate::tests::TestBroker;
    use ottla_testkit::peer::client_context;

    #[tokio::test(flavor = "multi_thread")]
    async fn acknowledgements_without_a_local_leader_need_no_task() {
        let broker = TestBroker::start().await;
        broker.create_topic("t", 3, &[]).await;
        let topic_id = broker.broker().metadata().topics.by_name("t").unwrap().id;
        let accepted: (i64, i64, &[i8]) = (0, 0, &[1]);
        let upside_down: (i64, i64, &[i8]) = (1, 0, &[1]);
        let asked = vec![
            batches_of(topic_id, 0, [accepted].into_iter()),
            batches_of(topic_id, 1, [accepted].into_iter()),
            batches_of(topic_id, 2, [].into_iter()),
            batches_of(topic_id, 3, [accepted].into_iter()),
            // The last entry of this partition counts.
            batches_of(topic_id, 0, [upside_down].into_iter()),
        ];
        let key = ShareSessionKey {
            group_id: "g".into(),
            member_id: "m".into(),
        };
        let context = client_context(ApiKey::ShareAcknowledge, 2);
        let acknowledging = acknowledge(broker.broker(), &context, &key, asked, true, false);
        let ended = acknowledging.into_iter().map(|it| match it.progress {
            Progress::Ended(ended) => (it.partition.partition.0, ended.err().map(|it| it.code)),
            Progress::Task(_) => panic!("no member can take it"),
        });
        assert_eq!(
            Vec::from_iter(ended),
            [
                (0, Some(ErrorCode::InvalidRequest)),
                // The group has no state for this partition.
                (1, Some(ErrorCode::UnknownTopicOrPartition)),
                (2, None),
                (3, Some(ErrorCode::UnknownTopicOrPartition)),
            ]
        );
    }
}
