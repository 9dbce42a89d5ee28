//! Fetch: records of partitions that this broker leads, for consumers and replicas; and of
//! partitions that it follows, for consumers that support reading from followers.
//!
//! A request that finds less than `min_bytes` is parked. It registers with each of its partitions
//! at the end offset that it could read up to, checks once more, and is woken when one of them can
//! be read further, or when `max_wait_ms` has passed. It reads again when the partitions that have
//! woken it have enough. A request for records in an older segment is not parked, because a read does
//! not go past the end of a segment. A consumer is woken by an advance of the high
//! watermark, a follower by each append.
//!
//! Kafka: `KafkaApis.handleFetchRequest`, `ReplicaManager.fetchMessages`, `DelayedFetch`.

mod follower;
mod parked;
pub(crate) mod read;
mod read_replica;
mod remote;
pub(crate) mod sessions;

use std::sync::Arc;
use std::time::Duration;

use ottla_protocol::Records;
use ottla_protocol::fetch_session::NO_SESSION;
use ottla_protocol::messages::fetch_response::{
    FetchableTopicResponse, LeaderIdAndEpoch, NodeEndpoint, PartitionData,
};
use ottla_protocol::messages::{FetchRequest, FetchResponse};
use ottla_sync::collections::HashMap;
use ottla_types::{ErrorCode, Offset, TopicName, Uuid};

use self::follower::Follower;
use self::parked::Parked;
use self::read::{
    Lookup, ReadLimits, ReadOutcome, Target, Wanted, cold_regions, error_answer, read_all, warm,
};
use self::read_replica::send_to_read_replicas;
use self::sessions::{FetchPartitions, FetchedPartitions, PartitionKey};
use super::named_leader::{led_elsewhere, name_leader};
use ottla_metrics::Metric;
use ottla_metrics::stalls;
use ottla_metrics::topic_metrics::TopicMetric;
use ottla_net::Connection;
use ottla_net::RequestContext;
use ottla_net::WaitedTime;
use ottla_net::{Operation, ResourceType};
use ottla_partition::partition::{Isolation, Partition};
use ottla_partition::partitions::why_missing;
use ottla_security::CLUSTER_NAME;

use crate::Broker;
use crate::throttling::wire_ms;

/// The first version whose clients support reading from followers.
const READ_REPLICA_VERSION: i16 = 11;

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: FetchRequest,
) -> FetchResponse {
    let uses_topic_ids = context.api_version >= 13;
    let follower = Follower::of(&request);
    let quotas = &broker.quotas;
    let began = quotas.request.is_set().then(ottla_sync::time::now);
    let isolation = match (follower, request.isolation_level) {
        (Some(_), _) => Ok(Isolation::LogEnd),
        (None, 0) => Ok(Isolation::HighWatermark),
        (None, 1) => Ok(Isolation::LastStableOffset),
        (None, _) => Err(unknown_isolation(&request, uses_topic_ids)),
    };
    let limits = ReadLimits {
        isolation: *isolation.as_ref().unwrap_or(&Isolation::HighWatermark),
        max_bytes: request
            .max_bytes
            .min(broker.config().fetch_max_bytes)
            .min(match follower {
                Some(_) => i32::MAX,
                None => quotas.most_fetched_at_once(context),
            })
            .max(0) as u64,
        only_from_leader: follower.is_some() || context.api_version < READ_REPLICA_VERSION,
    };
    let min_bytes = (request.min_bytes.max(0) as u64).min(limits.max_bytes);
    let max_wait = Duration::from_millis(request.max_wait_ms.max(0) as u64);
    let rack = request.rack_id.clone();
    let (session_id, epoch) = (request.session_id, request.session_epoch);
    let (requested, forgotten) = partitions_of(request, uses_topic_ids);
    let begun = broker.fetch_sessions.begin(
        session_id,
        epoch,
        uses_topic_ids,
        follower.is_some(),
        requested,
        &forgotten,
        broker.now_ms(),
    );
    let (session, requested) = match begun {
        Ok(begun) => begun,
        Err(code) => return error_response(code, NO_SESSION),
    };

    let mut topics = ResolvedTopics::new(broker, context, follower.is_some());
    let mut targets = Vec::with_capacity(requested.len());
    let mut keys = Vec::with_capacity(requested.len());
    let mut refused = Vec::new();
    for (key, partition) in &requested {
        match topics.resolve(key) {
            Ok(target) => {
                if let Ok(read) = &target {
                    let next_offset = Offset(partition.fetch_offset);
                    let received_at_ms = context.received_at_ms;
                    note_reader(read, &context.connection, next_offset, received_at_ms);
                }
                targets.push(Wanted {
                    target,
                    requested: partition.clone(),
                    is_held_back: false,
                    undecided: None,
                });
                keys.push(key.clone());
            }
            Err(code) => refused.push((key.clone(), error_answer(key.partition, code))),
        }
    }

    // Kafka checks the isolation level only if there is something to read, after the session has
    // counted the request.
    if let (Err(unknown), false) = (isolation, targets.is_empty()) {
        return unknown;
    }
    match follower {
        Some(follower) => {
            let received_at_ms = context.received_at_ms;
            follower
                .announce(broker, &mut targets, received_at_ms)
                .await;
        }
        None if context.api_version >= READ_REPLICA_VERSION => {
            send_to_read_replicas(broker, context, &rack, &mut targets).await;
        }
        None => {}
    }
    let targets = Arc::new(targets);
    let mut outcome = if targets.is_empty() {
        ReadOutcome::without_answers()
    } else {
        let wait = Wait {
            min_bytes,
            max_wait,
            is_from_follower: follower.is_some(),
            waited: &context.waited,
        };
        read_or_wait(broker, Arc::clone(&targets), limits, wait).await
    };
    let remote_memory = std::mem::take(&mut outcome.remote_memory);
    context.remote_memory.keep(remote_memory);
    let worked = context.worked_since(began);
    let throttle_ms = match follower {
        Some(_) => {
            broker.count_exempt_time(worked);
            0
        }
        None => broker.count_fetch(context, bytes_of(&outcome.answers), worked),
    };
    if throttle_ms > 0 {
        // The client requests them again (KIP-219).
        for answer in &mut outcome.answers {
            answer.records = None;
        }
    }
    count(broker, follower, &targets, &outcome.answers);
    if throttle_ms > 0 {
        return throttled_response(session.throttled(), wire_ms(throttle_ms));
    }
    if follower.is_some() {
        follower::count_throttled(broker, &targets, &outcome.answers);
    }
    let mut answers: FetchedPartitions = keys.into_iter().zip(outcome.answers).collect();
    answers.extend(refused);
    let mut node_endpoints = Vec::new();
    for (key, answer) in &mut answers {
        finish_answer(broker, context, key, answer, &mut node_endpoints);
    }
    match session.finish(&broker.fetch_sessions, requested, answers, broker.now_ms()) {
        Ok((session_id, answers)) => FetchResponse {
            session_id,
            responses: group_by_topic(answers),
            node_endpoints,
            ..Default::default()
        },
        Err((code, session_id)) => error_response(code, session_id),
    }
}

/// Reports the next reads to the page cache.
pub(crate) fn note_reader(
    partition: &Partition,
    connection: &Arc<Connection>,
    next_offset: Offset,
    now_ms: u64,
) {
    let reader = partition.reader();
    let behind = match next_offset >= reader.log_start_offset() {
        true => reader.log_end_offset().0 - next_offset.0,
        // It will be refused.
        false => 0,
    };
    partition
        .readers
        .note(connection, next_offset, behind, now_ms);
}

/// Counts records that are sent from where the page cache had dropped them.
pub(crate) fn count_reread(
    broker: &Broker,
    partition: &Partition,
    next_offset: Offset,
    records: &Records,
) {
    let is_of_file = matches!(records, Records::File(_));
    if is_of_file && partition.readers.needs_dropped(next_offset) {
        let metrics = &broker.context.metrics;
        metrics.add(Metric::PageCacheReread, records.len());
    }
}

fn bytes_of(answers: &[PartitionData]) -> u64 {
    let records = answers.iter().filter_map(|answer| answer.records.as_ref());
    records.map(|records| records.len()).sum()
}

/// Without any partition, so that neither the client nor its session advances.
fn throttled_response(
    session: Result<i32, (ErrorCode, i32)>,
    throttle_time_ms: i32,
) -> FetchResponse {
    let (code, session_id) = match session {
        Ok(session_id) => (ErrorCode::None, session_id),
        Err(failed) => failed,
    };
    FetchResponse {
        throttle_time_ms,
        ..error_response(code, session_id)
    }
}

fn count(
    broker: &Broker,
    follower: Option<Follower>,
    targets: &[Wanted],
    answers: &[PartitionData],
) {
    for (wanted, answer) in targets.iter().zip(answers) {
        if let Ok(partition) = &wanted.target {
            let metrics = &partition.topic_metrics;
            metrics.add(TopicMetric::TotalFetchRequests, 1);
            let bytes = answer.records.as_ref().map_or(0, |records| records.len());
            if bytes > 0 {
                if let Some(records) = &answer.records {
                    let next_offset = Offset(wanted.requested.fetch_offset);
                    count_reread(broker, partition, next_offset, records);
                }
                match follower {
                    Some(_) => broker
                        .context
                        .metrics
                        .add(Metric::ReplicationBytesOut, bytes),
                    None => metrics.add(TopicMetric::BytesOut, bytes),
                }
            }
        }
    }
}

/// The conditions for which a request waits.
struct Wait<'a> {
    min_bytes: u64,
    max_wait: Duration,
    is_from_follower: bool,
    waited: &'a WaitedTime,
}

impl Wait<'_> {
    /// Waits until the time is over, starting now.
    fn is_over<'a>(
        &self,
        broker: &'a Broker,
        partitions: usize,
    ) -> impl Future<Output = ()> + use<'a> {
        let over = ottla_sync::time::sleep(self.max_wait);
        let new_leaderships = &broker.replication.new_leaderships;
        let is_from_follower = self.is_from_follower;
        async move {
            match is_from_follower {
                true => ottla_sync::select! {
                    () = over => {}
                    () = new_leaderships.until_asked_again(partitions) => {}
                },
                false => over.await,
            }
        }
    }
}

/// Reads until there are enough bytes, or the time is over.
async fn read_or_wait(
    broker: &Arc<Broker>,
    targets: Arc<Vec<Wanted>>,
    limits: ReadLimits,
    wait: Wait<'_>,
) -> ReadOutcome {
    let is_enough =
        |outcome: &ReadOutcome| outcome.counted_bytes() >= wait.min_bytes || outcome.must_answer;
    let mut outcome = read_targets(broker, &targets, limits).await;
    if is_enough(&outcome) || wait.max_wait.is_zero() {
        return outcome;
    }
    let _waiting = wait.waited.begin();
    let mut parked = Parked::new(&targets, limits);
    let mut is_over = std::pin::pin!(wait.is_over(broker, targets.len()));
    // A change between the read and the registration has not woken this request.
    if !outcome.is_current(&targets, limits) {
        outcome = read_targets(broker, &targets, limits).await;
    }
    loop {
        // The next fetch steps such a partition again, and may then be served.
        let may_be_served = targets.iter().any(Wanted::is_decided_by_now);
        if is_enough(&outcome) || may_be_served || broker.context.is_stopping() {
            return outcome;
        }
        parked.on_read(&outcome);
        loop {
            if parked.is_over(is_over.as_mut()).await {
                // A follower also receives a high watermark that has advanced since.
                return match outcome.is_current(&targets, limits) {
                    true => outcome,
                    false => read_targets(broker, &targets, limits).await,
                };
            }
            if parked.look(wait.min_bytes) || broker.context.is_stopping() {
                break;
            }
        }
        outcome = read_targets(broker, &targets, limits).await;
    }
}

/// Reads on this thread if no disk is involved, otherwise on a thread of the partition's directory,
/// so that a hanging directory does not take threads from other directories.
pub(crate) async fn read_targets(
    broker: &Arc<Broker>,
    targets: &Arc<Vec<Wanted>>,
    limits: ReadLimits,
) -> ReadOutcome {
    let mut outcome = ReadOutcome::new(targets.len());
    let mut is_cold = false;
    while let Some(miss) = read_all(targets, limits, Lookup::Cached, &mut outcome) {
        if !std::mem::replace(&mut is_cold, true) {
            broker.context.metrics.add(Metric::ColdLookups, 1);
        }
        let reads = miss.log_location().threads.reads.clone();
        let (targets, directory) = (Arc::clone(targets), reads.clone());
        let read = move || {
            read_all(&targets, limits, Lookup::In(&directory), &mut outcome);
            outcome
        };
        outcome = match reads.run(move || stalls::on_other_thread(read)).await {
            Ok(outcome) => outcome,
            Err(_) => return ReadOutcome::without_answers(),
        };
    }
    if let Some(log_dirs) = broker.log_dirs() {
        for (log, error) in outcome.failed.drain(..) {
            log_dirs.on_partition_error(&log, &error);
        }
    }
    for (partition, error) in outcome.damaged.drain(..) {
        let partition = &partition.topic_partition;
        broker.context.failed_reads.say(partition, || {
            tracing::error!(%partition, "read failed: {error}");
        });
    }
    let cold = cold_regions(targets, &outcome.answers);
    if !cold.is_empty() {
        broker
            .context
            .metrics
            .add(Metric::ColdReads, cold.len() as u64);
    }
    for (partition, region) in cold {
        let reads = partition.log_location().threads.reads.clone();
        // Sending the region meets the same error.
        let _ = reads.run(move || warm(&region)).await;
    }
    if !outcome.remote.is_empty() {
        remote::read(broker, targets, limits, &mut outcome).await;
    }
    outcome
}

/// Flattens the topics of a request. The second list contains the partitions to remove from the
/// session.
fn partitions_of(
    request: FetchRequest,
    uses_topic_ids: bool,
) -> (FetchPartitions, Vec<PartitionKey>) {
    let key = |topic: &TopicName, topic_id: Uuid, partition| PartitionKey {
        topic: match uses_topic_ids {
            true => TopicName::new(),
            false => topic.clone(),
        },
        topic_id,
        partition,
    };
    let mut requested = Vec::with_capacity(request.topics.len());
    for topic in request.topics {
        for partition in topic.partitions {
            let key = key(&topic.topic, topic.topic_id, partition.partition);
            requested.push((key, partition));
        }
    }
    let requested = once_each(requested);
    let mut forgotten = Vec::new();
    for topic in request.forgotten_topics_data {
        for partition in topic.partitions {
            forgotten.push(key(&topic.topic, topic.topic_id, partition));
        }
    }
    (requested, forgotten)
}

/// If a partition is named more than once, the last entry counts, as in Kafka
/// (`FetchRequest.fetchData`). Otherwise a parked request would check the same partition as often
/// as it fits into a frame.
fn once_each(requested: FetchPartitions) -> FetchPartitions {
    let mut places: HashMap<PartitionKey, usize> = HashMap::default();
    let mut once = FetchPartitions::with_capacity(requested.len());
    for (key, partition) in requested {
        let next = once.len();
        match *places.entry(key.clone()).or_insert(next) {
            place if place == next => once.push((key, partition)),
            place => once[place].1 = partition,
        }
    }
    once
}

/// Resolves the partitions of a request. Looks up adjacent partitions of a topic only once.
struct ResolvedTopics<'a> {
    broker: &'a Broker,
    context: &'a RequestContext,
    /// Whether a follower may read any partition; `None` for a consumer, whose topics are
    /// authorised one by one.
    may_follow: Option<bool>,
    last: Option<(TopicName, Uuid, Result<TopicName, ErrorCode>)>,
}

impl<'a> ResolvedTopics<'a> {
    fn new(broker: &'a Broker, context: &'a RequestContext, is_from_follower: bool) -> Self {
        let may_follow = is_from_follower.then(|| {
            let (operation, of_cluster) = (Operation::ClusterAction, ResourceType::Cluster);
            let authorizer = &broker.authorizer;
            authorizer.is_allowed(context, operation, of_cluster, CLUSTER_NAME)
        });
        ResolvedTopics {
            broker,
            context,
            may_follow,
            last: None,
        }
    }

    /// The partition, or why it cannot be read. The outer error belongs to a partition that Kafka
    /// puts after all others in the response.
    fn resolve(&mut self, key: &PartitionKey) -> Result<Target, ErrorCode> {
        let is_last =
            |(topic, id, _): &&(TopicName, Uuid, _)| *topic == key.topic && *id == key.topic_id;
        let topic = match self.last.as_ref().filter(is_last) {
            Some((_, _, topic)) => topic.clone(),
            None => {
                let topic = self.topic(key);
                self.last = Some((key.topic.clone(), key.topic_id, topic.clone()));
                topic
            }
        }?;
        if let Some(partition) = self.broker.partitions.get(&topic, key.partition) {
            if !key.topic_id.is_zero() && partition.topic_id != key.topic_id {
                return Ok(refused(key, ErrorCode::InconsistentTopicId));
            }
            return Ok(Ok(partition));
        }
        let metadata = self.broker.metadata();
        let known = metadata.topics.by_name(&topic);
        match known.and_then(|known| known.partition(key.partition.into())) {
            Some(registration) => Ok(refused(
                key,
                why_missing(&self.broker.context, registration),
            )),
            None => Err(ErrorCode::UnknownTopicOrPartition),
        }
    }

    /// The name of the topic, if the client may read it.
    fn topic(&self, key: &PartitionKey) -> Result<TopicName, ErrorCode> {
        let topic = match key.topic_id.is_zero() {
            true if key.topic.is_empty() => return Err(ErrorCode::UnknownTopicId),
            true => key.topic.clone(),
            false => {
                let metadata = self.broker.metadata();
                let topic = metadata.topics.by_id(key.topic_id);
                topic.ok_or(ErrorCode::UnknownTopicId)?.name.clone()
            }
        };
        let is_allowed = self.may_follow.unwrap_or_else(|| {
            let authorizer = &self.broker.authorizer;
            authorizer.is_allowed(self.context, Operation::Read, ResourceType::Topic, &topic)
        });
        match is_allowed {
            true => Ok(topic),
            false => Err(ErrorCode::TopicAuthorizationFailed),
        }
    }
}

fn refused(key: &PartitionKey, code: ErrorCode) -> Target {
    Err(Box::new(error_answer(key.partition, code)))
}

/// Adapts the answer to the version and the client.
fn finish_answer(
    broker: &Broker,
    context: &RequestContext,
    key: &PartitionKey,
    answer: &mut PartitionData,
    node_endpoints: &mut Vec<NodeEndpoint>,
) {
    let code = ErrorCode::from_code(answer.error_code);
    if code == ErrorCode::None {
        return;
    }
    let metadata = broker.metadata();
    let topic = match metadata.topics.by_id(key.topic_id) {
        Some(topic) => &topic.name,
        None => &key.topic,
    };
    let metrics = broker.context.metrics.topics();
    metrics.add_for(topic, TopicMetric::FailedFetchRequests, 1);
    // Clients of these versions treat the storage error as not retriable.
    if code == ErrorCode::KafkaStorageError && context.api_version <= 5 {
        answer.error_code = ErrorCode::NotLeaderOrFollower.code();
    }
    let index = key.partition.into();
    if context.api_version >= 16
        && let Some(known) = led_elsewhere(&metadata, key.topic_id, index, code)
    {
        name_leader!(metadata, context, known, answer, node_endpoints);
    }
}

/// Groups adjacent partitions of the same topic.
fn group_by_topic(answers: FetchedPartitions) -> Vec<FetchableTopicResponse> {
    let mut topics: Vec<FetchableTopicResponse> = Vec::new();
    for (key, answer) in answers {
        match topics.last_mut() {
            Some(last) if last.topic == key.topic && last.topic_id == key.topic_id => {
                last.partitions.push(answer);
            }
            _ => topics.push(FetchableTopicResponse {
                topic: key.topic,
                topic_id: key.topic_id,
                partitions: vec![answer],
                ..Default::default()
            }),
        }
    }
    topics
}

/// Kafka's response to an unknown isolation level. In versions whose clients may ignore the
/// top-level error, it is repeated for all partitions.
fn unknown_isolation(request: &FetchRequest, uses_topic_ids: bool) -> FetchResponse {
    let code = ErrorCode::UnknownServerError;
    let mut response = error_response(code, request.session_id);
    if !uses_topic_ids {
        let topics = request.topics.iter().map(|topic| FetchableTopicResponse {
            topic: topic.topic.clone(),
            partitions: (topic.partitions.iter())
                .map(|partition| error_answer(partition.partition, code))
                .collect(),
            ..Default::default()
        });
        response.responses = topics.collect();
    }
    response
}

fn error_response(code: ErrorCode, session_id: i32) -> FetchResponse {
    FetchResponse {
        error_code: code.code(),
        session_id,
        ..Default::default()
    }
}
