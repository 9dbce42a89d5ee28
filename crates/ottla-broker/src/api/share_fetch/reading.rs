//! Reads partitions for a member, and waits if there is too little.
//!
//! A share partition is read for one member at a time, because the records that it acquires
//! determine where the next read starts. Other members wait for this to end, for new records, or
//! for records that another member releases. Records that only remote storage has are read there,
//! as for a Fetch. Kafka: `DelayedShareFetch`, `ShareFetchUtils.processFetchResponse`,
//! `PartitionMaxBytesStrategy`.

use std::sync::Arc;
use std::time::Duration;

use ottla_coordinator::persister::StateFailure;
use ottla_coordinator::share_partition::{
    AbortedTransaction, AcquireMode, AcquireRequest, AcquiredRecords, FetchedBatch, MemberId,
};
use ottla_coordinator::share_session::ShareSessionKey;
use ottla_net::Connection;
use ottla_protocol::Records;
use ottla_protocol::messages::fetch_request::FetchPartition;
use ottla_protocol::messages::fetch_response;
use ottla_protocol::messages::share_fetch_response::{self, PartitionData};
use ottla_sync::OwnedSemaphorePermit;
use ottla_sync::collections::HashSet;
use ottla_types::{ErrorCode, Offset, ProducerId, TopicIdPartition, TopicName};

use super::answer::{empty_answer, error_answer};
use super::batches::{located_batches, slice};
use ottla_partition::partition::Isolation;

use crate::api::fetch::read::{ReadLimits, ReadOutcome, Wanted};
use crate::api::fetch::{count_reread, note_reader, read_targets};
use ottla_coordination::share_groups::{GroupSettings, LedPartition, Reading};
use ottla_metrics::topic_metrics::TopicMetric;
use ottla_net::RequestContext;
use ottla_partition::partition::{Registration, Waiter};

use crate::Broker;

#[derive(Clone, Copy)]
pub(super) struct FetchLimits {
    pub(super) max_wait: Duration,
    pub(super) min_bytes: u64,
    pub(super) max_bytes: u64,
    pub(super) max_records: i32,
    pub(super) batch_size: i32,
    pub(super) mode: AcquireMode,
}

/// A partition of the request, and its share partition if this broker leads it.
struct Wished {
    partition: TopicIdPartition,
    led: Result<Arc<LedPartition>, ErrorCode>,
}

/// The result of a fetch.
#[derive(Default)]
pub(super) struct Fetched {
    pub(super) answers: Vec<(TopicIdPartition, PartitionData)>,
    /// The memory of the records from remote storage, until the response leaves.
    pub(super) remote_memory: Vec<OwnedSemaphorePermit>,
}

impl From<Vec<(TopicIdPartition, PartitionData)>> for Fetched {
    fn from(answers: Vec<(TopicIdPartition, PartitionData)>) -> Self {
        Fetched {
            answers,
            remote_memory: Vec::new(),
        }
    }
}

/// One fetch of a member.
struct Fetching<'a> {
    broker: &'a Arc<Broker>,
    connection: &'a Arc<Connection>,
    member: MemberId,
    settings: GroupSettings,
    limits: FetchLimits,
    wished: Vec<Wished>,
    waiter: Waiter,
    /// With the share partition and with the partition, for each of [`Fetching::led`].
    registered: Vec<(Registration, Registration)>,
}

pub(super) async fn fetch(
    broker: &Arc<Broker>,
    context: &RequestContext,
    key: &ShareSessionKey,
    partitions: Vec<(TopicIdPartition, TopicName)>,
    settings: GroupSettings,
    limits: FetchLimits,
) -> Fetched {
    if limits.max_records == 0 || limits.max_bytes == 0 {
        return Fetched::default();
    }
    let opened = partitions.into_iter().map(|(partition, topic)| Wished {
        led: broker
            .share_groups
            .partitions
            .get_or_open(&key.group_id, &topic, partition),
        partition,
    });
    let fetching = Fetching {
        broker,
        connection: &context.connection,
        member: MemberId::from(&*key.member_id),
        settings,
        limits,
        wished: opened.collect(),
        waiter: Waiter::default(),
        registered: Vec::new(),
    };
    for led in fetching.led() {
        led.partition
            .topic_metrics
            .add(TopicMetric::TotalFetchRequests, 1);
    }
    let _waiting = context.waited.begin();
    fetching.run().await
}

impl Fetching<'_> {
    fn led(&self) -> impl Iterator<Item = &Arc<LedPartition>> {
        self.wished
            .iter()
            .filter_map(|wished| wished.led.as_ref().ok())
    }

    async fn run(mut self) -> Fetched {
        let mut deadline = std::pin::pin!(ottla_sync::time::sleep(self.limits.max_wait));
        let mut is_last_try = self.limits.max_wait.is_zero();
        loop {
            // Registers first, so that no change after this point is missed.
            self.register();
            let errors = self.errors();
            if errors.len() == self.wished.len() {
                return errors.into();
            }
            if let Some(mut fetched) = self.try_once(is_last_try).await {
                fetched.answers = self.with_errors(fetched.answers, errors);
                return fetched;
            }
            if is_last_try || self.broker.context.is_stopping() {
                return errors.into();
            }
            ottla_sync::select! {
                biased;
                // First: appends that never are enough must not prolong the wait.
                () = &mut deadline => is_last_try = true,
                () = self.waiter.notified() => {}
            }
        }
    }

    /// Registers to be woken when a partition can be read further, or records are released.
    fn register(&mut self) {
        self.take_out();
        let registered = self.led().map(|led| {
            let end = self.settings.isolation.upper_bound(&led.partition.reader());
            (
                led.waiters.register(Offset(i64::MAX), &self.waiter),
                led.partition.waiters.register(end, &self.waiter),
            )
        });
        self.registered = registered.collect();
    }

    fn take_out(&mut self) {
        let registered = std::mem::take(&mut self.registered);
        for (led, (of_share, of_partition)) in self.led().zip(registered) {
            led.waiters.take_out(of_share);
            led.partition.waiters.take_out(of_partition);
        }
    }

    fn errors(&self) -> Vec<(TopicIdPartition, PartitionData)> {
        let failed = self.wished.iter().filter_map(|wished| {
            let failure = match &wished.led {
                Err(code) => StateFailure::from(*code),
                Ok(led) => led.failure()?,
            };
            Some((
                wished.partition,
                error_answer(wished.partition, failure.into()),
            ))
        });
        failed.collect()
    }

    fn with_errors(
        &self,
        mut answers: Vec<(TopicIdPartition, PartitionData)>,
        errors: Vec<(TopicIdPartition, PartitionData)>,
    ) -> Vec<(TopicIdPartition, PartitionData)> {
        let mut answered: HashSet<TopicIdPartition> =
            answers.iter().map(|(partition, _)| *partition).collect();
        let errors = errors.into_iter();
        answers.extend(errors.filter(|(partition, _)| answered.insert(*partition)));
        answers
    }

    /// Reads the partitions that are available. `None` if that is too little for a response.
    async fn try_once(&self, is_last_try: bool) -> Option<Fetched> {
        let mut readings = Vec::new();
        for wished in &self.wished {
            let led = wished.led.as_ref().ok();
            if let Some(reading) = led.and_then(|led| led.begin_reading(&self.settings)) {
                readings.push((wished.partition, reading));
            }
        }
        if readings.is_empty() {
            return None;
        }
        let outcome = self.read(&readings).await;
        let has_enough = outcome.bytes >= self.limits.min_bytes || outcome.must_answer;
        if !has_enough && !is_last_try {
            readings
                .into_iter()
                .for_each(|(_, reading)| reading.give_up());
            return None;
        }
        let mut answers = Vec::with_capacity(readings.len());
        let mut remaining = i64::from(self.limits.max_records);
        for ((partition, reading), read) in readings.into_iter().zip(outcome.answers) {
            let answer = self.acquire(partition, &reading, read, &mut remaining);
            answers.push((partition, answer));
        }
        Some(Fetched {
            answers,
            remote_memory: outcome.remote_memory,
        })
    }

    async fn read(&self, readings: &[(TopicIdPartition, Reading)]) -> ReadOutcome {
        for (_, reading) in readings {
            let partition = &reading.led().partition;
            let now_ms = self.broker.now_ms();
            note_reader(partition, self.connection, reading.fetch_offset, now_ms);
        }
        let share = (self.limits.max_bytes / readings.len() as u64).max(1);
        let targets = readings.iter().map(|(partition, reading)| Wanted {
            target: Ok(Arc::clone(&reading.led().partition)),
            requested: FetchPartition {
                partition: partition.partition.0,
                current_leader_epoch: reading.led().leader_epoch.0,
                fetch_offset: reading.fetch_offset.0,
                last_fetched_epoch: -1,
                log_start_offset: -1,
                partition_max_bytes: i32::try_from(share).unwrap_or(i32::MAX),
                ..Default::default()
            },
            is_held_back: false,
            undecided: None,
        });
        let limits = ReadLimits {
            isolation: self.settings.isolation,
            max_bytes: self.limits.max_bytes,
            only_from_leader: true,
        };
        read_targets(self.broker, &Arc::new(targets.collect()), limits).await
    }

    /// The records that the member acquires from the batches read.
    fn acquire(
        &self,
        partition: TopicIdPartition,
        reading: &Reading,
        read: fetch_response::PartitionData,
        remaining: &mut i64,
    ) -> PartitionData {
        let led = reading.led();
        match ErrorCode::from_code(read.error_code) {
            ErrorCode::None => {}
            // The log has it, but its copy in remote storage cannot be found. Clients do not expect
            // the error of the read here, and try again after this one.
            ErrorCode::OffsetOutOfRange
                if led.partition.reader().is_only_remote(reading.fetch_offset) =>
            {
                let failure = StateFailure::from(ErrorCode::KafkaStorageError);
                return error_answer(partition, failure.into());
            }
            // The log was truncated at its start. The next fetch starts there.
            ErrorCode::OffsetOutOfRange => {
                led.on_log_start_offset(led.partition.reader().log_start_offset());
                return empty_answer(partition);
            }
            code => return error_answer(partition, StateFailure::from(code).into()),
        }
        let Some(records) = read.records.as_ref().filter(|it| !it.is_empty()) else {
            return empty_answer(partition);
        };
        match self.acquire_from(reading, records, &read, remaining) {
            Ok(Some((acquired, records))) => {
                count_reread(self.broker, &led.partition, reading.fetch_offset, &records);
                led.partition
                    .topic_metrics
                    .add(TopicMetric::BytesOut, records.len());
                PartitionData {
                    records: Some(records),
                    acquired_records: acquired_on_wire(&acquired),
                    ..empty_answer(partition)
                }
            }
            Ok(None) => empty_answer(partition),
            Err(error) => {
                let name = &led.partition.topic_partition;
                self.broker.context.failed_reads.say(name, || {
                    tracing::error!(partition = %name, "the records that were read cannot be parsed: {error}");
                });
                error_answer(
                    partition,
                    StateFailure::from(ErrorCode::KafkaStorageError).into(),
                )
            }
        }
    }

    fn acquire_from(
        &self,
        reading: &Reading,
        records: &Records,
        read: &fetch_response::PartitionData,
        remaining: &mut i64,
    ) -> std::io::Result<Option<(AcquiredRecords, Records)>> {
        let located = located_batches(records)?;
        let batches: Vec<FetchedBatch> = located.iter().map(|it| it.batch).collect();
        let aborted = match self.settings.isolation {
            Isolation::LastStableOffset => aborted_of(read),
            Isolation::HighWatermark | Isolation::LogEnd => Vec::new(),
        };
        let acquired = reading.led().acquire(AcquireRequest {
            member: &self.member,
            mode: self.limits.mode,
            batch_size: self.limits.batch_size,
            max_records: i32::try_from(*remaining).unwrap_or(i32::MAX),
            fetch_offset: reading.fetch_offset,
            batches: &batches,
            aborted_transactions: &aborted,
            now_ms: self.broker.now_ms(),
        });
        let (Some(first), Some(last)) = (acquired.batches.first(), acquired.batches.last()) else {
            return Ok(None);
        };
        *remaining = (*remaining - acquired.records).max(0);
        let records = slice(records, &located, first.first_offset.0, last.last_offset.0);
        Ok(Some((acquired, records)))
    }
}

impl Drop for Fetching<'_> {
    fn drop(&mut self) {
        self.take_out();
    }
}

fn aborted_of(read: &fetch_response::PartitionData) -> Vec<AbortedTransaction> {
    let aborted = read.aborted_transactions.iter().flatten();
    let aborted = aborted.map(|transaction| AbortedTransaction {
        producer_id: ProducerId(transaction.producer_id),
        first_offset: Offset(transaction.first_offset),
    });
    aborted.collect()
}

fn acquired_on_wire(acquired: &AcquiredRecords) -> Vec<share_fetch_response::AcquiredRecords> {
    let batches = acquired.batches.iter();
    let batches = batches.map(|batch| share_fetch_response::AcquiredRecords {
        first_offset: batch.first_offset.0,
        last_offset: batch.last_offset.0,
        delivery_count: batch.delivery_count,
        ..Default::default()
    });
    batches.collect()
}
