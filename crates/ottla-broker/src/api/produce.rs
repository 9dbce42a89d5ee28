//! Produce: validates record batches and appends them to the partitions that this broker leads.
//!
//! Everything up to the append runs on the thread that read the request, in the order of the
//! connection. A batch that must be recompressed, or whose decompression takes long, first reserves
//! a slot in the partition's inbox and is then processed on another thread; the memory of all such
//! batches is bounded. Released acknowledgements are written into the response by the thread that
//! releases them. The last one wakes the connection.
//!
//! Kafka: `KafkaApis.handleProduceRequest`, `ReplicaManager.handleProduceAppend`.

use ottla_sync::atomic::{AtomicI32, AtomicUsize, Ordering};
use std::cell::RefCell;
use std::pin::Pin;
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use bytes::Bytes;
use bytestring::ByteString;
use ottla_coordinator::TransactionalProducer;
use ottla_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use ottla_protocol::messages::produce_response::{
    BatchIndexAndErrorMessage, LeaderIdAndEpoch, NodeEndpoint, PartitionProduceResponse,
    TopicProduceResponse,
};
use ottla_protocol::messages::{ProduceRequest, ProduceResponse};
use ottla_protocol::{ApiKey, Reader, Records};
use ottla_records::{
    AppendOrigin, BatchHeader, CompressionType, RecordBatch, Rejection, ValidatedBatch,
    ValidationBuffers, ValidationRules, read_produced_batch, validate,
};
use ottla_replica::{AckOutcome, RequiredAcks};
use ottla_sync::{BoxFuture, Mutex};
use ottla_types::{ErrorCode, TopicName, Uuid};

use ottla_net::RequestError;

use crate::codec::{decode, encode};
use ottla_metrics::stalls;
use ottla_metrics::topic_metrics::TopicMetric;
use ottla_net::RequestContext;
use ottla_net::{Answer, PendingAnswer};
use ottla_net::{Operation, ResourceType};
use ottla_partition::partition::producer_transaction::{AddedBy, AskedFor, ProducerTransaction};
use ottla_partition::partition::{
    Ack, AppendPlace, AwaitsAppends, OfTransaction, Partition, PendingAppend,
};

use super::named_leader::name_leader;
use crate::Broker;
use crate::throttling::wire_ms;

/// The client ID with which Kafka's own tools may write to internal topics.
const ADMIN_CLIENT_ID: &str = "__admin_client";

/// After this time, a request decompresses no more batches on the thread of its connection, because
/// it may name any number of partitions. Enough for ten batches at the limits of
/// [`inline_rules`](ottla_partition::partition::PartitionSettings::inline_rules) with the slowest
/// codec, or a few dozen with the other codecs.
const INLINE_TIME: Duration = Duration::from_millis(10);

thread_local! {
    static BUFFERS: RefCell<ValidationBuffers> = RefCell::default();
}

/// A Produce request with unreleased acknowledgements.
pub(crate) struct PendingProduce {
    broker: Arc<Broker>,
    context: RequestContext,
    acks: Option<RequiredAcks>,
    transactional_id: Option<ByteString>,
    /// Partitions are filled in at their place.
    response: Mutex<ProduceResponse>,
    /// The number of unreleased appends, plus one while appends are still being submitted.
    remaining: AtomicUsize,
    /// When the submission of the request started. Not set while the request waits for metadata.
    started: OnceLock<Instant>,
    /// How long the client is throttled.
    throttle_time_ms: AtomicI32,
    /// What the connection waits for before it is read further.
    obstacle: Mutex<Option<Obstacle>>,
}

enum Obstacle {
    /// The inbox of this partition is over its bound.
    FullInbox(Arc<Partition>),
    /// This broker is applying metadata that may make it lead a partition of the request. Submits the
    /// request then.
    Metadata(BoxFuture<'static, ()>),
}

/// The properties of a batch while it is validated.
#[derive(Clone, Copy)]
struct Arrival {
    /// The size as received.
    bytes: usize,
    records: i32,
    place: AppendPlace,
    deadline_ms: u64,
}

/// Submits the batches of a request to their partitions.
pub(crate) fn start(
    broker: &Arc<Broker>,
    context: &RequestContext,
    mut reader: Reader,
) -> Result<Answer, RequestError> {
    let request: ProduceRequest = decode(context, &mut reader)?;
    let pending = Arc::new(PendingProduce {
        broker: Arc::clone(broker),
        context: context.clone(),
        acks: RequiredAcks::from_wire(request.acks),
        // In memory of its own, so that it does not keep the request's buffer.
        transactional_id: request.transactional_id.as_deref().map(ByteString::from),
        response: Mutex::default(),
        remaining: AtomicUsize::new(1),
        started: OnceLock::new(),
        throttle_time_ms: AtomicI32::new(0),
        obstacle: Mutex::new(None),
    });
    if let Some(applied) = pending.may_lead_soon(&request) {
        let handed_in = pending.hand_in_after(applied, request);
        *pending.obstacle.lock() = Some(Obstacle::Metadata(handed_in));
        return Ok(Answer::Pending(pending));
    }
    pending.hand_in(request);
    pending.count();
    if pending.remaining.fetch_sub(1, Ordering::AcqRel) == 1 {
        pending.answer()
    } else {
        Ok(Answer::Pending(pending))
    }
}

/// A batch that will be submitted to its partition.
struct Submission {
    partition: Arc<Partition>,
    batch: RecordBatch,
    place: AppendPlace,
}

impl PendingProduce {
    /// Returns when this broker has applied the metadata that it is applying, if it does not lead all
    /// partitions of the request yet. `None` if it leads them, or is applying nothing. Refused, the
    /// client would wait for longer.
    fn may_lead_soon(&self, request: &ProduceRequest) -> Option<BoxFuture<'static, ()>> {
        let applied = self.broker.node.metadata_applied()?;
        let (metadata, map) = (self.broker.metadata(), self.broker.partitions.load());
        let leads_all_of = |topic: &TopicProduceData| {
            let local = match self.context.api_version >= 13 {
                true => {
                    let known = metadata.topics.by_id(topic.topic_id);
                    known.and_then(|known| map.topic_by_id(known.id))
                }
                false => map.topic(&topic.name),
            };
            topic.partition_data.iter().all(|data| {
                let partition = local.and_then(|local| local.partition(data.index));
                partition.is_some_and(|partition| partition.is_leader())
            })
        };
        let leads_all = request.topic_data.iter().all(leads_all_of);
        (!leads_all).then_some(applied)
    }

    /// Submits the request when `applied` completes.
    fn hand_in_after(
        self: &Arc<Self>,
        applied: BoxFuture<'static, ()>,
        request: ProduceRequest,
    ) -> BoxFuture<'static, ()> {
        // Weak, because the request holds this. The connection holds the request until then.
        let waiting = Arc::downgrade(self);
        Box::pin(async move {
            applied.await;
            let Some(pending) = waiting.upgrade() else {
                return;
            };
            pending.hand_in(request);
            pending.count();
            pending.on_answered();
            if let Some(room) = pending.room() {
                room.await;
            }
        })
    }

    /// How long the request has been worked on. Waiting for metadata is no work.
    fn worked(&self) -> Duration {
        let started = self.started.get();
        started.map_or(Duration::ZERO, |&started| {
            ottla_sync::time::elapsed(started)
        })
    }

    /// Creates the response with an entry for every partition, and starts the appends. The response
    /// is not locked during an append, because the thread that runs it may fill in other entries.
    fn hand_in(self: &Arc<Self>, request: ProduceRequest) {
        self.started.get_or_init(ottla_sync::time::now);
        let timeout_ms = request.timeout_ms.max(0) as u64;
        let deadline_ms = self.context.received_at_ms.saturating_add(timeout_ms);
        let refused = self.refuse_as_a_whole(&request);
        let mut submissions = Vec::with_capacity(request.topic_data.len());
        let mut responses = Vec::with_capacity(request.topic_data.len());
        for (topic_index, topic) in request.topic_data.into_iter().enumerate() {
            let resolved = self.resolve_topic(&topic.name, topic.topic_id);
            let mut partition_responses = Vec::with_capacity(topic.partition_data.len());
            for (partition_index, data) in topic.partition_data.into_iter().enumerate() {
                let place = AppendPlace {
                    topic: topic_index,
                    partition: partition_index,
                };
                let index = data.index;
                let submission = match refused {
                    Some(code) => Err(Refusal::from(code)),
                    None => resolved
                        .as_ref()
                        .map_err(|&code| Refusal::from(code))
                        .and_then(|topic| self.check(topic, data)),
                };
                let mut response = PartitionProduceResponse {
                    index,
                    base_offset: -1,
                    ..Default::default()
                };
                match submission {
                    Ok((partition, batch)) => submissions.push(Submission {
                        partition,
                        batch,
                        place,
                    }),
                    Err(refusal) => refusal.write_to(&mut response),
                }
                partition_responses.push(response);
            }
            let name = match resolved {
                Ok(name) if !topic.name.is_empty() => name,
                _ => topic.name,
            };
            responses.push(TopicProduceResponse {
                name,
                topic_id: topic.topic_id,
                partition_responses,
                ..Default::default()
            });
        }
        self.response.lock().responses = responses;
        for submission in submissions {
            self.submit(submission, deadline_ms);
        }
    }

    /// Charges the request to the quotas of its client. Requests may be read ahead of responses, so
    /// this is done before the next request is read.
    fn count(&self) {
        let is_answered = self.acks != Some(RequiredAcks::None);
        let counts_time = is_answered && self.broker.quotas.request.is_set();
        let worked = counts_time.then(|| self.worked());
        let throttle_ms = self.broker.count_produce(&self.context, worked);
        self.throttle_time_ms
            .store(wire_ms(throttle_ms), Ordering::Relaxed);
    }

    /// The name of the topic, if it exists and the client may write to it. If it exists, the name is
    /// that of the metadata: as a slice of the request, it would keep the request's buffer until the
    /// last acknowledgement.
    fn resolve_topic(&self, name: &TopicName, id: Uuid) -> Result<TopicName, ErrorCode> {
        let metadata = self.broker.metadata();
        let name = if self.context.api_version >= 13 {
            let topic = metadata.topics.by_id(id).ok_or(ErrorCode::UnknownTopicId)?;
            topic.name.clone()
        } else {
            let topic = metadata.topics.by_name(name);
            topic.map_or(name, |topic| &topic.name).clone()
        };
        drop(metadata);
        let is_allowed = self.broker.authorizer.is_allowed(
            &self.context,
            Operation::Write,
            ResourceType::Topic,
            &name,
        );
        match is_allowed {
            true => Ok(name),
            false => Err(ErrorCode::TopicAuthorizationFailed),
        }
    }

    /// Checks everything that can be checked without the records.
    fn check(
        &self,
        topic: &TopicName,
        data: PartitionProduceData,
    ) -> Result<(Arc<Partition>, RecordBatch), Refusal> {
        let partition = self.broker.local_partition(topic, data.index);
        if let Err(ErrorCode::UnknownTopicOrPartition) = partition {
            return Err(ErrorCode::UnknownTopicOrPartition.into());
        }
        let batch = read_produced_batch(records_of(data))?;
        let codec = batch.header.compression_type();
        if self.context.api_version < 7 && codec == Ok(CompressionType::Zstd) {
            return Err(ErrorCode::UnsupportedCompressionType.into());
        }
        if self.acks.is_none() {
            return Err(ErrorCode::InvalidRequiredAcks.into());
        }
        let may_write_internally = self.context.client_id.as_deref() == Some(ADMIN_CLIENT_ID);
        if crate::is_internal_topic(topic) && !may_write_internally {
            return Err(ErrorCode::InvalidTopicException.into());
        }
        let partition = partition?;
        Ok((partition, batch))
    }

    fn submit(self: &Arc<Self>, submission: Submission, deadline_ms: u64) {
        let Submission {
            partition,
            batch,
            place,
        } = submission;
        self.remaining.fetch_add(1, Ordering::AcqRel);
        let arrival = Arrival {
            bytes: batch.size_in_bytes(),
            records: batch.header.record_count.max(0),
            place,
            deadline_ms,
        };
        match self.validate_inline(&partition, &batch) {
            Some(validated) => {
                if let Some(append) = self.prepare(&partition, validated, arrival) {
                    partition.append(&self.broker.host, append);
                }
            }
            None => self.validate_elsewhere(Arc::clone(&partition), batch, arrival),
        }
        if partition.is_over_bound() {
            *self.obstacle.lock() = Some(Obstacle::FullInbox(partition));
        }
    }

    /// Validates a batch on this thread. `None` if that takes too long.
    fn validate_inline(
        &self,
        partition: &Partition,
        batch: &RecordBatch,
    ) -> Option<Result<ValidatedBatch, Rejection>> {
        let is_compressed = batch.header.attributes.is_compressed();
        if is_compressed && self.worked() > INLINE_TIME {
            return None;
        }
        let settings = partition.settings();
        let rules = settings.inline_rules(batch)?;
        let watched = stalls::watch();
        let validated = self.validate(partition, batch.clone(), &rules);
        watched.end("validating a batch", &partition.topic_partition);
        match validated {
            Err(rejection) if is_compressed && is_too_large(&rejection) => None,
            validated => Some(validated),
        }
    }

    /// Reserves a slot for the batch, and validates it on another thread when memory is available.
    fn validate_elsewhere(
        self: &Arc<Self>,
        partition: Arc<Partition>,
        batch: RecordBatch,
        arrival: Arrival,
    ) {
        let turn = partition.reserve(&self.broker.host, arrival.bytes);
        let pending = Arc::clone(self);
        let unanswered = Unanswered {
            pending: Arc::clone(self),
            place: arrival.place,
            is_answered: false,
        };
        ottla_sync::task::spawn(async move {
            let mut unanswered = unanswered;
            let mut attempts = partition.settings().attempts(&batch).into_iter();
            while let Some((rules, bytes)) = attempts.next() {
                let is_last = attempts.len() == 0;
                let memory = pending.broker.compression_memory.take(bytes).await;
                let (of_partition, batch) = (Arc::clone(&partition), batch.clone());
                let validating = Arc::clone(&pending);
                let validate = move || {
                    let validated = validating.validate(&of_partition, batch, &rules);
                    drop(memory);
                    validated
                };
                let validated = match ottla_sync::task::spawn_blocking(validate).await {
                    Ok(validated) => validated,
                    // The panic was reported where it happened.
                    Err(_) => Err(Rejection {
                        error_code: ErrorCode::UnknownServerError,
                        message: String::new(),
                        record_errors: Vec::new(),
                    }),
                };
                match validated {
                    Err(rejection) if !is_last && is_too_large(&rejection) => continue,
                    validated => {
                        let append = pending.prepare(&partition, validated, arrival);
                        // By `prepare`, or later by the partition.
                        unanswered.is_answered = true;
                        // Dropping the slot abandons it.
                        if let Some(append) = append {
                            turn.fill(append);
                        }
                        return;
                    }
                }
            }
        });
    }

    fn validate(
        &self,
        partition: &Partition,
        batch: RecordBatch,
        rules: &ValidationRules,
    ) -> Result<ValidatedBatch, Rejection> {
        let now = self.broker.timestamp();
        BUFFERS.with_borrow_mut(|buffers| {
            validate(
                batch,
                rules,
                AppendOrigin::Client,
                &partition.topic_partition,
                now,
                buffers,
            )
        })
    }

    /// Creates the append of a validated batch. A rejected batch is answered here.
    fn prepare(
        self: &Arc<Self>,
        partition: &Partition,
        validated: Result<ValidatedBatch, Rejection>,
        arrival: Arrival,
    ) -> Option<PendingAppend> {
        let Arrival {
            bytes,
            records,
            place,
            deadline_ms,
        } = arrival;
        let metrics = &partition.topic_metrics;
        metrics.add(TopicMetric::TotalProduceRequests, 1);
        let settings = partition.settings();
        let log_start_offset = partition.reader().log_start_offset();
        // Checked here, because a rejection by the log would also fail the appends after it.
        let validated = validated.map_err(Refusal::from).and_then(|validated| {
            match validated.batch.size_in_bytes() > settings.segment_bytes {
                true => Err(ErrorCode::RecordListTooLarge.into()),
                false => Ok(validated),
            }
        });
        match validated {
            Ok(ValidatedBatch {
                batch,
                log_append_time,
                ..
            }) => {
                let of_transaction = self.transaction_of(&batch);
                metrics.add(TopicMetric::BytesIn, bytes as u64);
                metrics.add(TopicMetric::MessagesIn, records as u64);
                self.with_response(place, |response| {
                    response.log_append_time_ms = log_append_time.map_or(-1, |time| time.0);
                    response.log_start_offset = log_start_offset.0;
                });
                let request: Weak<PendingProduce> = Arc::downgrade(self);
                Some(PendingAppend {
                    batch,
                    required_acks: self.acks.unwrap_or(RequiredAcks::None),
                    expected_leader_epoch: None,
                    of_transaction,
                    deadline_ms,
                    ack: Ack::Request { request, place },
                })
            }
            Err(refusal) => {
                match refusal.code {
                    ErrorCode::MessageTooLarge | ErrorCode::RecordListTooLarge => {
                        metrics.add(TopicMetric::BytesRejected, bytes as u64);
                    }
                    ErrorCode::CorruptMessage => {
                        metrics.add(TopicMetric::InvalidMessageCrcRecords, 1);
                    }
                    _ => {}
                }
                let has_record_errors = !refusal.record_errors.is_empty();
                self.with_response(place, |response| {
                    refusal.write_to(response);
                    if has_record_errors {
                        response.log_start_offset = log_start_offset.0;
                    }
                });
                self.on_answered();
                None
            }
        }
    }

    /// The error of a request with transactional records that cannot be written: it has no
    /// transactional ID, its transactional ID is not authorized, or it has records of two
    /// producers.
    fn refuse_as_a_whole(&self, request: &ProduceRequest) -> Option<ErrorCode> {
        let topics = request.topic_data.iter();
        let transactional = topics
            .flat_map(|topic| &topic.partition_data)
            .filter_map(|data| match &data.records {
                // Most batches are not, and their headers are read once, later.
                Some(Records::Bytes(bytes)) => BatchHeader::peek_attributes(bytes)
                    .filter(|attributes| attributes.is_transactional())
                    .and_then(|_| BatchHeader::parse(bytes).ok()),
                _ => None,
            });
        let mut transactional = transactional.peekable();
        transactional.peek()?;
        let authorizer = &self.broker.authorizer;
        let is_allowed = self.transactional_id.as_ref().is_some_and(|id| {
            let (write, of_id) = (Operation::Write, ResourceType::TransactionalId);
            authorizer.is_allowed(&self.context, write, of_id, id)
        });
        if !is_allowed {
            return Some(ErrorCode::TransactionalIdAuthorizationFailed);
        }
        let mut producers = transactional
            .filter(BatchHeader::has_producer_id)
            .map(|header| (header.producer_id, header.producer_epoch));
        let first = producers.next()?;
        let has_another = producers.any(|producer| producer != first);
        has_another.then_some(ErrorCode::InvalidProducerIdMapping)
    }

    fn transaction_of(&self, batch: &RecordBatch) -> OfTransaction {
        let header = &batch.header;
        let Some(transactional_id) = &self.transactional_id else {
            return OfTransaction::No;
        };
        if !header.is_transactional() || !header.has_producer_id() {
            return OfTransaction::No;
        }
        let added_by = match self.context.api_version {
            ..=10 => AddedBy::Client,
            11 => AddedBy::ClientThatMayAbort,
            12.. => AddedBy::Broker,
        };
        let is_verified = added_by == AddedBy::Broker
            || self
                .broker
                .config()
                .transaction_partition_verification_enable;
        if !is_verified {
            return OfTransaction::Unverified;
        }
        OfTransaction::ToVerify(Arc::new(ProducerTransaction {
            transactional_id: transactional_id.clone(),
            producer: TransactionalProducer {
                id: header.producer_id,
                epoch: header.producer_epoch,
            },
            added_by,
            asked_for: AskedFor::Produce,
        }))
    }

    fn with_response(&self, place: AppendPlace, write: impl FnOnce(&mut PartitionProduceResponse)) {
        let mut response = self.response.lock();
        write(&mut response.responses[place.topic].partition_responses[place.partition]);
    }

    fn on_answered(&self) {
        if self.remaining.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.context.connection.wake();
        }
    }

    fn answer(&self) -> Result<Answer, RequestError> {
        let mut response = std::mem::take(&mut *self.response.lock());
        response.throttle_time_ms = self.throttle_time_ms.load(Ordering::Relaxed);
        let partitions = response
            .responses
            .iter()
            .flat_map(|t| &t.partition_responses);
        let failed = partitions
            .filter(|partition| partition.error_code != 0)
            .count();
        if failed > 0 {
            self.count_failed(&response);
        }
        if self.acks == Some(RequiredAcks::None) {
            // A producer that expects no response notices an error when the connection is closed.
            if failed == 0 {
                return Ok(Answer::Nothing);
            }
            let requests = self.broker.context.metrics.requests();
            requests.on_errors(ApiKey::Produce, &response, self.context.api_version);
            return Ok(Answer::Close);
        }
        if failed > 0 && self.context.api_version >= 10 {
            self.name_leaders(&mut response);
        }
        encode(&self.broker, &self.context, &response)
    }

    fn count_failed(&self, response: &ProduceResponse) {
        let metadata = self.broker.metadata();
        for topic in &response.responses {
            let name = match metadata.topics.by_id(topic.topic_id) {
                Some(known) => &known.name,
                None => &topic.name,
            };
            let partitions = topic.partition_responses.iter();
            let failed = partitions.filter(|it| it.error_code != 0).count() as u64;
            let metrics = self.broker.context.metrics.topics();
            metrics.add_for(name, TopicMetric::FailedProduceRequests, failed);
        }
    }

    /// Adds the current leader to errors of clients that contacted another broker (KIP-951).
    fn name_leaders(&self, response: &mut ProduceResponse) {
        let metadata = self.broker.metadata();
        for topic in &mut response.responses {
            let known = match topic.name.is_empty() {
                true => metadata.topics.by_id(topic.topic_id),
                false => metadata.topics.by_name(&topic.name),
            };
            for partition in &mut topic.partition_responses {
                if partition.error_code != ErrorCode::NotLeaderOrFollower.code() {
                    continue;
                }
                let Some(known) = known.and_then(|t| t.partition(partition.index.into())) else {
                    continue;
                };
                tracing::debug!(
                    topic = %topic.name, partition = partition.index, leader = known.leader.0,
                    leader_epoch = known.leader_epoch.0, "a batch is refused: another broker leads"
                );
                let nodes = &mut response.node_endpoints;
                name_leader!(metadata, self.context, known, partition, nodes);
            }
        }
    }
}

/// A partition whose batch is processed on another thread. If that thread panics, the partition is
/// answered with an error: nothing else would answer it, and the request would wait forever.
struct Unanswered {
    pending: Arc<PendingProduce>,
    place: AppendPlace,
    is_answered: bool,
}

impl Drop for Unanswered {
    fn drop(&mut self) {
        if self.is_answered {
            return;
        }
        self.pending.with_response(self.place, |response| {
            response.error_code = ErrorCode::UnknownServerError.code();
            response.log_append_time_ms = -1;
            response.log_start_offset = -1;
        });
        self.pending.on_answered();
    }
}

impl AwaitsAppends for PendingProduce {
    /// Called by the thread that releases the acknowledgement.
    fn on_released(&self, place: AppendPlace, outcome: AckOutcome) {
        let code = outcome.error_code();
        self.with_response(place, |response| {
            match outcome {
                AckOutcome::Appended { base_offset } => response.base_offset = base_offset.0,
                AckOutcome::Duplicate {
                    base_offset,
                    log_append_time,
                } => {
                    response.base_offset = base_offset.0;
                    response.log_append_time_ms = log_append_time.0;
                }
                AckOutcome::NotLeader
                | AckOutcome::FencedLeaderEpoch
                | AckOutcome::UnknownLeaderEpoch
                | AckOutcome::NotEnoughReplicas
                | AckOutcome::NotEnoughReplicasAfterAppend
                | AckOutcome::RequestTimedOut
                | AckOutcome::StorageError => {
                    response.log_append_time_ms = -1;
                    response.log_start_offset = -1;
                }
                // From the start offset, the producer learns whether its records were deleted in
                // the meantime.
                AckOutcome::RefusedForProducer(_) => response.log_append_time_ms = -1,
            }
            response.error_code = code.code();
        });
        self.on_answered();
    }
}

impl PendingAnswer for PendingProduce {
    fn is_ready(&self) -> bool {
        self.remaining.load(Ordering::Acquire) == 0
    }

    fn take(&self) -> Result<Answer, RequestError> {
        self.answer()
    }

    fn room(&self) -> Option<Pin<Box<dyn Future<Output = ()> + Send>>> {
        Some(match self.obstacle.lock().take()? {
            Obstacle::FullInbox(partition) => Box::pin(async move { partition.has_room().await }),
            Obstacle::Metadata(applied) => applied,
        })
    }
}

/// Whether a batch is too large, or its records would decompress to more than the limit.
fn is_too_large(rejection: &Rejection) -> bool {
    rejection.error_code == ErrorCode::MessageTooLarge
}

fn records_of(data: PartitionProduceData) -> Bytes {
    match data.records {
        Some(Records::Bytes(bytes)) => bytes,
        // Decoding never produces a file region.
        Some(Records::File(_)) | None => Bytes::new(),
    }
}

/// Why a batch was not submitted to its partition.
struct Refusal {
    code: ErrorCode,
    message: Option<String>,
    record_errors: Vec<BatchIndexAndErrorMessage>,
}

impl Refusal {
    fn write_to(self, response: &mut PartitionProduceResponse) {
        response.error_code = self.code.code();
        response.error_message = self.message.map(Into::into);
        response.record_errors = self.record_errors;
    }
}

impl From<ErrorCode> for Refusal {
    fn from(code: ErrorCode) -> Self {
        Refusal {
            code,
            message: None,
            record_errors: Vec::new(),
        }
    }
}

impl From<Rejection> for Refusal {
    fn from(rejection: Rejection) -> Self {
        let has_record_errors = !rejection.record_errors.is_empty();
        Refusal {
            code: rejection.error_code,
            message: has_record_errors.then_some(rejection.message),
            record_errors: rejection
                .record_errors
                .into_iter()
                .map(|error| BatchIndexAndErrorMessage {
                    batch_index: error.batch_index,
                    batch_index_error_message: Some(error.message.into()),
                    ..Default::default()
                })
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests;
