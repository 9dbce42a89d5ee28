//! The coordinator of one partition of an internal topic, with everybody who waits for it.
//!
//! All that is decided is in [`CoordinatorRuntime`], as in the broker. Mirrors `runtime/load.rs` (`load`, `read_log`, `replay`)
//! and `runtime/outbox.rs` (`build`, `append_of`).
//! What differs between groups and transactions is said by [`Coordinated`], as it is there by `Served`.

use std::sync::Arc;

use bytes::Bytes;
use ottla_coordinator::group::{GroupCoordinator, GroupCoordinatorConfig};
use ottla_coordinator::share_state::{ShareCoordinator, ShareCoordinatorConfig};
use ottla_coordinator::transaction::{TransactionCoordinator, TransactionCoordinatorConfig};
use ottla_coordinator::{
    Coordinator, CoordinatorRuntime, LogEntry, Outcome, PendingWrite, StepContext, WriteId,
    WriteKind,
};
use ottla_metadata::MetadataImage;
use ottla_records::control::{ControlRecordType, EndTxnMarker, end_txn_batch};
use ottla_records::{Compression, RecordBatch, RecordBatchBuilder};
use ottla_replica::{AckOutcome, RequiredAcks};
use ottla_types::{LeaderEpoch, Offset, ProducerId, Sequence, Timestamp, TopicIdPartition};

use super::partition_log::PartitionLog;
use super::planted::{self, Bug};
use super::replica_shell::{Ack, Arriving, OfTransaction};

pub(crate) const OFFSETS_TOPIC: &str = "__consumer_offsets";
pub(crate) const TRANSACTION_TOPIC: &str = "__transaction_state";
pub(crate) const SHARE_STATE_TOPIC: &str = "__share_group_state";

/// `offsets.commit.timeout.ms`, and `request.timeout.ms` of brokers.
const COMMIT_TIMEOUT_MS: u64 = 2_000;
/// Nothing is larger.
const MAX_DECOMPRESSED_BYTES: usize = 1024 * 1024;

/// What this shell has to know of a kind of coordinator besides its state machine.
pub(crate) trait Coordinated: Coordinator {
    fn new(leader_epoch: LeaderEpoch) -> Self;
    fn begin(&mut self, image: &MetadataImage);
}

impl Coordinated for GroupCoordinator {
    fn new(_: LeaderEpoch) -> Self {
        let mut config = GroupCoordinatorConfig::default();
        let set = |setting: &mut ottla_coordinator::group::BoundedSetting, value| {
            (setting.value, setting.min) = (value, value);
        };
        set(&mut config.group_consumer_session_timeout_ms, 2_500);
        set(&mut config.group_consumer_heartbeat_interval_ms, 400);
        set(&mut config.group_consumer_assignment_interval_ms, 0);
        set(&mut config.group_share_session_timeout_ms, 2_500);
        set(&mut config.group_share_heartbeat_interval_ms, 400);
        set(&mut config.group_share_assignment_interval_ms, 0);
        config.group_share_initialize_retry_interval_ms = 2_000;
        GroupCoordinator::new(Arc::new(config))
    }

    fn begin(&mut self, image: &MetadataImage) {
        self.begin(Arc::new(image.clone()));
    }
}

impl Coordinated for TransactionCoordinator {
    fn new(leader_epoch: LeaderEpoch) -> Self {
        let config = TransactionCoordinatorConfig {
            transaction_abort_timed_out_transaction_cleanup_interval_ms: 500,
            ..TransactionCoordinatorConfig::default()
        };
        TransactionCoordinator::new(Arc::new(config), leader_epoch.0, TRANSACTION_VERSION)
    }

    fn begin(&mut self, _: &MetadataImage) {}
}

impl Coordinated for ShareCoordinator {
    fn new(_: LeaderEpoch) -> Self {
        ShareCoordinator::new(Arc::new(ShareCoordinatorConfig {
            snapshot_update_records_per_snapshot: 8,
            cold_partition_snapshot_interval_ms: 3_000,
            // The simulated logs keep all that they have.
            state_topic_prune_interval_ms: u64::from(u32::MAX),
        }))
    }

    fn begin(&mut self, _: &MetadataImage) {}
}

/// The `transaction.version` of the cluster and of all clients.
pub(crate) const TRANSACTION_VERSION: i16 = 2;

pub(crate) struct CoordinatorShell<C: Coordinator, W> {
    pub key: TopicIdPartition,
    leader_epoch: LeaderEpoch,
    /// While it loads, the log is to be read up to here.
    log_end_offset: Offset,
    pub runtime: CoordinatorRuntime<C, W>,
}

/// A step at this time.
pub(crate) fn at(now_ms: u64, now: Timestamp) -> StepContext<'static> {
    StepContext {
        now_ms,
        now,
        commit_timeout_ms: COMMIT_TIMEOUT_MS,
        // Nothing is as large.
        max_message_bytes: usize::MAX,
        fits: &|_| true,
    }
}

impl<C: Coordinated, W> CoordinatorShell<C, W> {
    pub(crate) fn new(
        key: TopicIdPartition,
        leader_epoch: LeaderEpoch,
        log_end_offset: Offset,
    ) -> Self {
        CoordinatorShell {
            key,
            leader_epoch,
            log_end_offset,
            runtime: CoordinatorRuntime::loading(),
        }
    }

    pub(crate) fn leader_epoch(&self) -> LeaderEpoch {
        self.leader_epoch
    }

    /// Reads the log, once it may, and then begins to answer.
    pub(crate) fn load(
        &mut self,
        log: &PartitionLog,
        image: &MetadataImage,
        now_ms: u64,
        now: Timestamp,
    ) -> bool {
        let end = self.log_end_offset;
        if !self.runtime.is_loading() || (C::AWAITS_COMMITTED_LOG && log.high_watermark() < end) {
            return false;
        }
        let mut coordinator = C::new(self.leader_epoch);
        let mut uncommitted = None;
        for batch in log.batches_from(log.start()) {
            if batch.header.base_offset >= end {
                break;
            }
            let is_committed = batch.header.next_offset() <= log.high_watermark();
            if uncommitted.is_none() && !is_committed {
                uncommitted = coordinator.begin_uncommitted().map(|write| (write, end));
            }
            for_each_entry(batch, |entry| {
                let replayed = coordinator.replay(entry, now);
                replayed.expect("what a coordinator wrote can be read");
            });
        }
        coordinator.begin(image);
        self.runtime
            .on_loaded(coordinator, uncommitted, &at(now_ms, now));
        true
    }

    /// Tells the coordinator that something has happened. One that is loading reads it in its log.
    pub(crate) fn tell(&mut self, at: &StepContext<'_>, tell: impl FnOnce(&mut C) -> Outcome<C>) {
        let _ = self.runtime.tell(at, tell);
    }

    /// Does what is due: what was committed meanwhile, what a timer was set for, what takes long.
    pub(crate) fn advance(&mut self, high_watermark: Offset, now_ms: u64, now: Timestamp) -> bool {
        let at = at(now_ms, now);
        let mut has_moved = self.runtime.on_high_watermark(high_watermark, &at);
        while self.runtime.fire_due_timer(&at) || self.runtime.tell_of_delay(&at) {
            has_moved = true;
        }
        has_moved
    }

    /// The next batch that may be appended.
    pub(crate) fn next_append(&mut self, now_ms: u64, now: Timestamp) -> Option<Arriving> {
        let outbound = self.runtime.next_append(&at(now_ms, now))?;
        Some(Arriving {
            required_acks: match C::REQUIRES_MIN_ISR {
                true => RequiredAcks::LeaderWithMinIsr,
                false => RequiredAcks::Leader,
            },
            expected_leader_epoch: Some(self.leader_epoch),
            of_transaction: match outbound.kind() {
                WriteKind::Plain => OfTransaction::No,
                WriteKind::Transactional { guard, .. } => OfTransaction::Verified(guard),
                WriteKind::EndTransaction { marker, .. } => {
                    OfTransaction::Marker(marker.transaction_version)
                }
            },
            deadline_ms: u64::MAX,
            ack: Ack::Coordinator {
                leader_epoch: self.leader_epoch,
                first: outbound.first(),
            },
            batch: build(outbound.writes(), now),
        })
    }

    /// A batch is in the log of the leader, or could not be written.
    pub(crate) fn on_written(
        &mut self,
        first: WriteId,
        outcome: AckOutcome,
        high_watermark: Offset,
        at: &StepContext<'_>,
    ) {
        let written = match outcome {
            AckOutcome::Appended { base_offset } | AckOutcome::Duplicate { base_offset, .. } => {
                Ok(base_offset)
            }
            refused => Err(refused.error_code()),
        };
        let high_watermark = match planted::has(Bug::AnswerBeforeReplication) {
            true => Offset(i64::MAX),
            false => high_watermark,
        };
        self.runtime.on_written(first, written, high_watermark, at);
    }
}

/// The batch of one write of a transaction, or of plain ones together.
fn build(writes: &[PendingWrite], now: Timestamp) -> RecordBatch {
    let mut builder = RecordBatchBuilder::new(Compression::None);
    for write in writes {
        match write.kind {
            WriteKind::Plain => {}
            WriteKind::Transactional { producer, .. } => {
                builder = builder
                    .producer(producer.id, producer.epoch, Sequence::NONE)
                    .transactional(true);
            }
            WriteKind::EndTransaction { producer, marker } => {
                let kind = match marker.is_commit {
                    true => ControlRecordType::Commit,
                    false => ControlRecordType::Abort,
                };
                let coordinator_epoch = marker.coordinator_epoch;
                let marker = EndTxnMarker { coordinator_epoch };
                return end_txn_batch(producer.id, producer.epoch, kind, marker, now);
            }
        }
        for (key, value) in &write.records {
            builder.append(now, Some(key), value.as_deref(), &[]);
        }
    }
    builder.build()
}

/// What a batch of an internal topic tells a coordinator.
pub(crate) fn for_each_entry(batch: &RecordBatch, mut tell: impl FnMut(LogEntry<'_>)) {
    let header = &batch.header;
    let records = batch.records(MAX_DECOMPRESSED_BYTES);
    let records = records.expect("what a coordinator wrote can be read");
    let producer_id = match header.is_transactional() {
        true => header.producer_id,
        false => ProducerId::NONE,
    };
    for record in records.iter() {
        let record = record.expect("what a coordinator wrote can be read");
        let key = record.key.unwrap_or_default();
        if header.is_control() {
            let kind = ControlRecordType::parse_key(key).expect("a marker");
            tell(LogEntry::EndTransaction {
                producer_id: header.producer_id,
                is_commit: kind == Some(ControlRecordType::Commit),
            });
            continue;
        }
        let key = Bytes::copy_from_slice(key);
        let value = record.value.map(Bytes::copy_from_slice);
        tell(LogEntry::Record {
            offset: record.offset,
            producer_id,
            key: &key,
            value: value.as_ref(),
        });
    }
}
