//! ShareFetch (KIP-932): returns records to a member of a share group, and takes acknowledgements
//! of earlier ones.
//!
//! The member's session determines the partitions. Acknowledgements are submitted first; then the
//! partitions are read as for a Fetch, and a request that finds too little is parked. The response
//! contains the records that the share partitions let the member acquire.
//!
//! Kafka: `KafkaApis.handleShareFetchRequest`, `SharePartitionManager.fetchMessages`,
//! `DelayedShareFetch`.

mod answer;
mod batches;
mod reading;

use std::sync::Arc;
use std::time::Duration;

use ottla_coordinator::share_partition::AcquireMode;
use ottla_coordinator::share_session::{
    ConnectionId, FINAL_EPOCH, FetchRequest, SessionFetch, ShareSessionKey, rotate,
};
use ottla_protocol::ErrorResponse;
use ottla_protocol::messages::share_fetch_response::{
    LeaderIdAndEpoch, NodeEndpoint, PartitionData, ShareFetchableTopicResponse,
};
use ottla_protocol::messages::{ShareFetchRequest, ShareFetchResponse};
use ottla_sync::collections::HashMap;
use ottla_types::{ErrorCode, PartitionIndex, TopicIdPartition};

use self::answer::{empty_answer, error_answer};
use self::reading::{FetchLimits, Fetched, fetch};
use super::named_leader::{led_elsewhere, name_leader};
use super::share_acknowledge::{Acknowledged, acknowledge, batches_of, check_member, topic_of};
use ottla_coordination::share_groups::{GroupSettings, PartitionFailure, are_enabled};
use ottla_net::RequestContext;

use crate::Broker;
use crate::throttling::wire_ms;

/// The first version with strict limits on records, and renewal of acquisition locks.
const RENEWAL_VERSION: i16 = 2;

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: ShareFetchRequest,
) -> ShareFetchResponse {
    let quotas = &broker.quotas;
    let began = quotas.request.is_set().then(ottla_sync::time::now);
    let mut response = match serve(broker, context, request).await {
        Ok(response) => response,
        Err(code) => ShareFetchResponse::of_error(code),
    };
    let worked = context.worked_since(began);
    let throttle_ms = broker.count_share_fetch(context, bytes_of(&response), worked);
    response.throttle_time_ms = wire_ms(throttle_ms);
    response
}

fn bytes_of(response: &ShareFetchResponse) -> u64 {
    let topics = response.responses.iter();
    let partitions = topics.flat_map(|topic| &topic.partitions);
    let records = partitions.filter_map(|partition| partition.records.as_ref());
    records.map(|records| records.len()).sum()
}

async fn serve(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: ShareFetchRequest,
) -> Result<ShareFetchResponse, ErrorCode> {
    if !are_enabled(&broker.share_groups) {
        return Err(ErrorCode::UnsupportedVersion);
    }
    let member = request.member_id.clone();
    let key = check_member(broker, context, request.group_id.clone(), member)?;
    let renews = context.api_version >= RENEWAL_VERSION && request.is_renew_ack;
    if renews && asks_for_records(&request) {
        return Err(ErrorCode::InvalidRequest);
    }
    let (named, forgotten) = partitions_of(&request);
    let has_acknowledgements = request
        .topics
        .iter()
        .flat_map(|topic| &topic.partitions)
        .any(|partition| !partition.acknowledgement_batches.is_empty());
    let epoch = request.share_session_epoch;
    let begun = broker.share_groups.sessions.lock().begin_fetch(
        &key,
        FetchRequest {
            epoch,
            added: &named,
            forgotten: &forgotten,
            has_acknowledgements,
            connection: ConnectionId(context.connection.id),
        },
    );
    let session = match begun {
        // Delayed, because otherwise the member would retry immediately.
        Err(ErrorCode::ShareSessionLimitReached) => {
            let _waiting = context.waited.begin();
            ottla_sync::time::sleep(max_wait(&request)).await;
            return Err(ErrorCode::ShareSessionLimitReached);
        }
        begun => begun?,
    };
    if session == SessionFetch::Initial {
        let groups = &broker.share_groups;
        let is_first = groups.sessions.lock().has_one_session(&key.group_id);
        if is_first {
            groups.partitions.confirm_group(&key.group_id);
        }
    }
    let acknowledging = if has_acknowledgements {
        let batches = batches_of_fetch(&request);
        let supports_renewal = context.api_version >= RENEWAL_VERSION;
        acknowledge(broker, context, &key, batches, supports_renewal, renews)
    } else {
        Vec::new()
    };
    let is_subsequent = matches!(session, SessionFetch::Subsequent(_));
    let mut partitions = match session {
        SessionFetch::Initial => named,
        SessionFetch::Subsequent(partitions) => partitions,
        SessionFetch::Final => Vec::new(),
    };
    rotate(&mut partitions, epoch);
    let settings = GroupSettings::of(&broker.host.context, &key.group_id);
    // A renewed lock could expire while the request waits for records.
    let fetched = if renews {
        Fetched::default()
    } else {
        let limits = FetchLimits {
            max_wait: max_wait(&request),
            min_bytes: request.min_bytes.max(0) as u64,
            max_bytes: request
                .max_bytes
                .min(broker.config().fetch_max_bytes)
                .min(broker.quotas.most_fetched_at_once(context))
                .max(0) as u64,
            max_records: request.max_records,
            batch_size: request.batch_size,
            mode: AcquireMode::from_id(request.share_acquire_mode).unwrap_or_default(),
        };
        fetch_named(broker, context, &key, partitions, settings, limits).await
    };
    let Fetched {
        mut answers,
        remote_memory,
    } = fetched;
    context.remote_memory.keep(remote_memory);
    if is_subsequent {
        let mut sessions = broker.share_groups.sessions.lock();
        answers.retain(|(partition, data)| {
            let has_records = data
                .records
                .as_ref()
                .is_some_and(|records| !records.is_empty());
            sessions.must_tell(&key, partition, has_records, data.error_code != 0)
        });
    }
    let mut acknowledged = Vec::with_capacity(acknowledging.len());
    for acknowledging in acknowledging {
        let _waiting = context.waited.begin();
        acknowledged.push(acknowledging.end().await);
    }
    add_acknowledged(&mut answers, acknowledged);
    if epoch == FINAL_EPOCH {
        let _waiting = context.waited.begin();
        broker.share_groups.end_session(&key).await;
    }
    Ok(respond(broker, context, answers, settings))
}

fn max_wait(request: &ShareFetchRequest) -> Duration {
    Duration::from_millis(request.max_wait_ms.max(0) as u64)
}

/// Locks are renewed by requests that do not fetch records (KIP-1222).
fn asks_for_records(request: &ShareFetchRequest) -> bool {
    [
        request.max_bytes,
        request.min_bytes,
        request.max_records,
        request.max_wait_ms,
    ]
    .into_iter()
    .any(|limit| limit != 0)
}

/// The named partitions, and those to remove from the session.
fn partitions_of(request: &ShareFetchRequest) -> (Vec<TopicIdPartition>, Vec<TopicIdPartition>) {
    let named = request.topics.iter().flat_map(|topic| {
        topic.partitions.iter().map(|partition| TopicIdPartition {
            topic_id: topic.topic_id,
            partition: PartitionIndex(partition.partition_index),
        })
    });
    let forgotten = request.forgotten_topics_data.iter().flat_map(|topic| {
        topic.partitions.iter().map(|index| TopicIdPartition {
            topic_id: topic.topic_id,
            partition: PartitionIndex(*index),
        })
    });
    (named.collect(), forgotten.collect())
}

fn batches_of_fetch(
    request: &ShareFetchRequest,
) -> Vec<super::share_acknowledge::PartitionAcknowledgements> {
    let partitions = request.topics.iter().flat_map(|topic| {
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
    partitions.collect()
}

/// Reads the partitions that the member may read, and returns errors for the other partitions.
async fn fetch_named(
    broker: &Arc<Broker>,
    context: &RequestContext,
    key: &ShareSessionKey,
    partitions: Vec<TopicIdPartition>,
    settings: GroupSettings,
    limits: FetchLimits,
) -> Fetched {
    let mut answers = Vec::new();
    let mut readable = Vec::new();
    for partition in partitions {
        match topic_of(broker, context, partition) {
            Ok(topic) => readable.push((partition, topic)),
            Err(code) => answers.push((
                partition,
                error_answer(partition, PartitionFailure::refused(code)),
            )),
        }
    }
    if readable.is_empty() {
        return answers.into();
    }
    let mut fetched = fetch(broker, context, key, readable, settings, limits).await;
    answers.append(&mut fetched.answers);
    Fetched { answers, ..fetched }
}

/// Adds the results of acknowledgements to the entries of their partitions.
fn add_acknowledged(
    answers: &mut Vec<(TopicIdPartition, PartitionData)>,
    acknowledged: Vec<Acknowledged>,
) {
    let mut index_of: HashMap<TopicIdPartition, usize> = HashMap::default();
    for (index, (partition, _)) in answers.iter().enumerate() {
        index_of.entry(*partition).or_insert(index);
    }
    for Acknowledged { partition, result } in acknowledged {
        let index = *index_of.entry(partition).or_insert_with(|| {
            answers.push((partition, empty_answer(partition)));
            answers.len() - 1
        });
        if let Err(failure) = result {
            let answer = &mut answers[index].1;
            answer.acknowledge_error_code = failure.code.code();
            answer.acknowledge_error_message = failure.message;
        }
    }
}

fn respond(
    broker: &Broker,
    context: &RequestContext,
    answers: Vec<(TopicIdPartition, PartitionData)>,
    settings: GroupSettings,
) -> ShareFetchResponse {
    let image = broker.metadata();
    let mut node_endpoints: Vec<NodeEndpoint> = Vec::new();
    let mut responses: Vec<ShareFetchableTopicResponse> = Vec::new();
    let mut index_of: HashMap<ottla_types::TopicId, usize> = HashMap::default();
    for (partition, mut answer) in answers {
        let code = ErrorCode::from_code(answer.error_code);
        let (topic_id, index) = (partition.topic_id, partition.partition);
        if let Some(known) = led_elsewhere(&image, topic_id, index, code) {
            name_leader!(image, context, known, answer, node_endpoints);
        }
        let index = *index_of.entry(partition.topic_id).or_insert_with(|| {
            responses.push(ShareFetchableTopicResponse {
                topic_id: partition.topic_id,
                ..Default::default()
            });
            responses.len() - 1
        });
        responses[index].partitions.push(answer);
    }
    ShareFetchResponse {
        acquisition_lock_timeout_ms: settings.record_lock_duration_ms(),
        responses,
        node_endpoints,
        ..Default::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_of_acknowledgements_are_sent_with_the_records() {
        let partition = |index| TopicIdPartition {
            topic_id: ottla_types::Uuid::from_u128(7),
            partition: PartitionIndex(index),
        };
        let refused = || Err(PartitionFailure::refused(ErrorCode::InvalidRequest));
        let acknowledged = [(1, refused()), (2, refused()), (0, Ok(()))];
        let acknowledged = acknowledged.map(|(index, result)| Acknowledged {
            partition: partition(index),
            result,
        });
        let mut answers =
            Vec::from([0, 1].map(|index| (partition(index), empty_answer(partition(index)))));
        add_acknowledged(&mut answers, acknowledged.into());
        let codes = answers
            .iter()
            .map(|(_, answer)| (answer.partition_index, answer.acknowledge_error_code));
        let invalid = ErrorCode::InvalidRequest.code();
        assert_eq!(Vec::from_iter(codes), [(0, 0), (1, invalid), (2, invalid)]);
    }
}
