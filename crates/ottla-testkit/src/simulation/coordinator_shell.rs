//! The coordinator of one partition of an internal topic, with everybody who waits for it.
//!
//! Mirrors `coordination/shard.rs` of the broker (`on_loaded`, `step`, `enact`, `run_timers`, `close`), `coordination/load.rs`
//! (`load`, `read_log`, `replay`) and `coordination/outbox.rs` (`next_batch`, `build`, `on_written`, `on_refused`, `await_commit`).
//! What differs between groups and transactions is said by [`Coordinated`], as it is there by `Served`.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use ottla_coordinator::group::{GroupCoordinator, GroupCoordinatorConfig};
use ottla_coordinator::share_state::{ShareCoordinator, ShareCoordinatorConfig};
use ottla_coordinator::transaction::{TransactionCoordinator, TransactionCoordinatorConfig};
use ottla_coordinator::{
    Coordinator, EncodeRecord, Outcome, ReplyTo, TimerQueue, Write, WriteId, WriteKind,
};
use ottla_metadata::MetadataImage;
use ottla_records::control::{ControlRecordType, EndTxnMarker, end_txn_batch};
use ottla_records::{Compression, RecordBatch, RecordBatchBuilder};
use ottla_replica::{AckOutcome, RequiredAcks};
use ottla_types::{
    ErrorCode, LeaderEpoch, Offset, ProducerId, Sequence, Timestamp, TopicIdPartition,
};

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

/// What a coordinator is told of its log.
pub(crate) enum LogEntry<'a> {
    Record {
        offset: Offset,
        /// Of a transactional batch, and none otherwise.
        producer_id: ProducerId,
        key: &'a Bytes,
        value: Option<&'a Bytes>,
    },
    EndTransaction {
        producer_id: ProducerId,
        is_commit: bool,
    },
}

/// What the shell has to know of a kind of coordinator besides its state machine.
pub(crate) trait Coordinated: Coordinator {
    /// Whether nobody is answered before all that is in the log at the election is committed.
    const AWAITS_COMMITTED_LOG: bool;

    fn new(leader_epoch: LeaderEpoch) -> Self;
    fn replay(&mut self, entry: LogEntry<'_>, now: Timestamp);
    fn begin(&mut self, image: &MetadataImage);
    fn begin_uncommitted(&mut self) -> Option<WriteId>;

    /// The records of these writes stand in the log from `base_offset` on.
    fn on_appended(&mut self, _first: WriteId, _last: WriteId, _base_offset: Offset) {}
}

impl Coordinated for GroupCoordinator {
    const AWAITS_COMMITTED_LOG: bool = false;

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

    fn replay(&mut self, entry: LogEntry<'_>, now: Timestamp) {
        match entry {
            LogEntry::Record {
                offset,
                producer_id,
                key,
                value,
            } => {
                let replayed = self.replay(offset, producer_id, key, value, now);
                replayed.expect("what a coordinator wrote can be read");
            }
            LogEntry::EndTransaction {
                producer_id,
                is_commit,
            } => self.replay_end_transaction_marker(producer_id, is_commit),
        }
    }

    fn begin(&mut self, image: &MetadataImage) {
        self.begin(Arc::new(image.clone()));
    }

    fn begin_uncommitted(&mut self) -> Option<WriteId> {
        Some(self.begin_uncommitted())
    }
}

impl Coordinated for TransactionCoordinator {
    const AWAITS_COMMITTED_LOG: bool = true;

    fn new(leader_epoch: LeaderEpoch) -> Self {
        let config = TransactionCoordinatorConfig {
            transaction_abort_timed_out_transaction_cleanup_interval_ms: 500,
            ..TransactionCoordinatorConfig::default()
        };
        TransactionCoordinator::new(Arc::new(config), leader_epoch.0, TRANSACTION_VERSION)
    }

    fn replay(&mut self, entry: LogEntry<'_>, _: Timestamp) {
        if let LogEntry::Record {
            offset, key, value, ..
        } = entry
        {
            let replayed = self.replay(offset, key, value);
            replayed.expect("what a coordinator wrote can be read");
        }
    }

    fn begin(&mut self, _: &MetadataImage) {}

    fn begin_uncommitted(&mut self) -> Option<WriteId> {
        None
    }
}

impl Coordinated for ShareCoordinator {
    const AWAITS_COMMITTED_LOG: bool = true;

    fn new(_: LeaderEpoch) -> Self {
        ShareCoordinator::new(Arc::new(ShareCoordinatorConfig {
            snapshot_update_records_per_snapshot: 8,
            cold_partition_snapshot_interval_ms: 3_000,
            // The simulated logs keep all that they have.
            state_topic_prune_interval_ms: u64::from(u32::MAX),
        }))
    }

    fn replay(&mut self, entry: LogEntry<'_>, _: Timestamp) {
        if let LogEntry::Record {
            offset, key, value, ..
        } = entry
        {
            let replayed = self.replay(offset, key, value);
            replayed.expect("what a coordinator wrote can be read");
        }
    }

    fn begin(&mut self, _: &MetadataImage) {}

    fn begin_uncommitted(&mut self) -> Option<WriteId> {
        None
    }

    fn on_appended(&mut self, first: WriteId, last: WriteId, base_offset: Offset) {
        self.on_records_appended(first, last, base_offset);
    }
}

/// The `transaction.version` of the cluster and of all clients.
pub(crate) const TRANSACTION_VERSION: i16 = 2;

pub(crate) struct CoordinatorShell<C: Coordinator, W> {
    pub key: TopicIdPartition,
    leader_epoch: LeaderEpoch,
    state: State<C, W>,
    /// Who is to be told what.
    pub replies: Vec<(W, C::Response)>,
    pub commands: Vec<C::Command>,
}

enum State<C: Coordinator, W> {
    /// The log is to be read up to here.
    Loading(Offset),
    Active(Box<Active<C, W>>),
}

struct Active<C: Coordinator, W> {
    coordinator: C,
    timers: TimerQueue<C::TimerKey>,
    waiting: BTreeMap<ReplyTo, W>,
    next_reply: u64,
    outbox: VecDeque<Write<C::Record>>,
    /// A batch is on its way into the log.
    is_appending: bool,
    /// In the log of the leader, and not committed.
    uncommitted: VecDeque<Uncommitted>,
}

struct Uncommitted {
    first: WriteId,
    last: WriteId,
    end: Offset,
    /// When those who wait are told that it takes long, again and again.
    late_at_ms: u64,
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
            state: State::Loading(log_end_offset),
            replies: Vec::new(),
            commands: Vec::new(),
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
        let State::Loading(end) = self.state else {
            return false;
        };
        if C::AWAITS_COMMITTED_LOG && log.high_watermark() < end {
            return false;
        }
        let mut coordinator = C::new(self.leader_epoch);
        let mut uncommitted = VecDeque::new();
        for batch in log.batches_from(log.start()) {
            if batch.header.base_offset >= end {
                break;
            }
            let is_committed = batch.header.next_offset() <= log.high_watermark();
            if uncommitted.is_empty()
                && !is_committed
                && let Some(write) = coordinator.begin_uncommitted()
            {
                uncommitted.push_back(Uncommitted {
                    first: write,
                    last: write,
                    end,
                    late_at_ms: now_ms + COMMIT_TIMEOUT_MS,
                });
            }
            for_each_entry(batch, |entry| coordinator.replay(entry, now));
        }
        coordinator.begin(image);
        let outcome = coordinator.on_loaded(now);
        self.state = State::Active(Box::new(Active {
            coordinator,
            timers: TimerQueue::default(),
            waiting: BTreeMap::new(),
            next_reply: 0,
            outbox: VecDeque::new(),
            is_appending: false,
            uncommitted,
        }));
        self.enact(outcome, now_ms);
        true
    }

    /// Has the coordinator decide on a request; `waiting` is told in `replies`, or at once that it cannot be asked.
    pub(crate) fn request(
        &mut self,
        waiting: W,
        now_ms: u64,
        decide: impl FnOnce(&mut C, ReplyTo) -> Outcome<C>,
    ) -> Result<(), (W, ErrorCode)> {
        let State::Active(active) = &mut self.state else {
            return Err((waiting, ErrorCode::CoordinatorLoadInProgress));
        };
        let to = ReplyTo(active.next_reply);
        active.next_reply += 1;
        active.waiting.insert(to, waiting);
        let outcome = decide(&mut active.coordinator, to);
        self.enact(outcome, now_ms);
        Ok(())
    }

    /// Tells the coordinator that something has happened. One that is loading reads it in its log.
    pub(crate) fn tell(&mut self, now_ms: u64, tell: impl FnOnce(&mut C) -> Outcome<C>) {
        if let State::Active(active) = &mut self.state {
            let outcome = tell(&mut active.coordinator);
            self.enact(outcome, now_ms);
        }
    }

    /// Has the coordinator do what is due: what was committed meanwhile, what takes long, what a timer was set for.
    pub(crate) fn advance(&mut self, high_watermark: Offset, now_ms: u64, now: Timestamp) -> bool {
        let mut has_moved = false;
        while let State::Active(active) = &mut self.state {
            let is_committed = |it: &Uncommitted| it.end <= high_watermark;
            let outcome =
                if let Some(write) = active.uncommitted.pop_front_if(|it| is_committed(it)) {
                    active.coordinator.on_records_committed(write.last, now)
                } else if let Some(key) = active.timers.pop_due(now_ms) {
                    active.coordinator.on_timer(key, now)
                } else {
                    has_moved |= self.tell_of_delay(now_ms, now);
                    break;
                };
            has_moved = true;
            self.enact(outcome, now_ms);
        }
        has_moved
    }

    fn tell_of_delay(&mut self, now_ms: u64, now: Timestamp) -> bool {
        let State::Active(active) = &mut self.state else {
            return false;
        };
        let mut late = Vec::new();
        for write in &mut active.uncommitted {
            if write.late_at_ms <= now_ms {
                write.late_at_ms = now_ms + COMMIT_TIMEOUT_MS;
                late.extend(write.first.0..=write.last.0);
            }
        }
        let is_late = !late.is_empty();
        for id in late {
            self.tell(now_ms, |it| it.on_write_timed_out(WriteId(id), now));
        }
        is_late
    }

    /// The next batch that may be appended: decisions that piled up share one, except for those of a transaction.
    pub(crate) fn next_append(&mut self, now: Timestamp) -> Option<Arriving> {
        let State::Active(active) = &mut self.state else {
            return None;
        };
        if active.is_appending {
            return None;
        }
        let is_plain = |write: &&Write<C::Record>| write.kind == WriteKind::Plain;
        let plain = active.outbox.iter().take_while(is_plain).count();
        let writes: Vec<_> = active
            .outbox
            .drain(..plain.max(1).min(active.outbox.len()))
            .collect();
        let (first, last) = (writes.first()?, writes.last()?);
        let batch = build(&writes, now);
        active.is_appending = true;
        Some(Arriving {
            required_acks: RequiredAcks::Leader,
            expected_leader_epoch: Some(self.leader_epoch),
            of_transaction: match first.kind {
                WriteKind::Plain => OfTransaction::No,
                WriteKind::Transactional { guard, .. } => OfTransaction::Verified(guard),
                WriteKind::EndTransaction { marker, .. } => {
                    OfTransaction::Marker(marker.transaction_version)
                }
            },
            deadline_ms: u64::MAX,
            ack: Ack::Coordinator {
                leader_epoch: self.leader_epoch,
                first: first.id,
                last: last.id,
                records: batch.header.record_count,
            },
            batch,
        })
    }

    /// A batch is in the log of the leader, or could not be written.
    pub(crate) fn on_written(
        &mut self,
        (first, last): (WriteId, WriteId),
        records: i32,
        outcome: AckOutcome,
        now_ms: u64,
        now: Timestamp,
    ) {
        let State::Active(active) = &mut self.state else {
            return;
        };
        active.is_appending = false;
        match outcome {
            AckOutcome::Appended { base_offset } | AckOutcome::Duplicate { base_offset, .. } => {
                active.coordinator.on_appended(first, last, base_offset);
                let end = match planted::has(Bug::AnswerBeforeReplication) {
                    true => Offset(0),
                    false => base_offset.plus(i64::from(records)),
                };
                active.uncommitted.push_back(Uncommitted {
                    first,
                    last,
                    end,
                    late_at_ms: now_ms + COMMIT_TIMEOUT_MS,
                });
            }
            refused => {
                // What was decided on top of it goes with it.
                active.outbox.clear();
                let error = refused.error_code();
                self.tell(now_ms, |it| it.on_write_failed(first, error, now));
            }
        }
    }

    /// Answers everything that is parked: the partition is led elsewhere.
    pub(crate) fn close(&mut self) {
        let State::Active(active) = &mut self.state else {
            return;
        };
        let outcome = active.coordinator.on_unloaded();
        self.replies.extend(replies(&mut active.waiting, outcome));
    }

    fn enact(&mut self, mut outcome: Outcome<C>, now_ms: u64) {
        let State::Active(active) = &mut self.state else {
            return;
        };
        for change in outcome.timers.drain(..) {
            active.timers.apply(change, now_ms);
        }
        active.outbox.extend(outcome.writes.drain(..));
        self.commands.append(&mut outcome.commands);
        self.replies.extend(replies(&mut active.waiting, outcome));
    }
}

fn replies<C: Coordinator, W>(
    waiting: &mut BTreeMap<ReplyTo, W>,
    outcome: Outcome<C>,
) -> Vec<(W, C::Response)> {
    let of = |reply: ottla_coordinator::Reply<C::Response>| {
        let waiting = waiting.remove(&reply.to);
        Some((waiting?, reply.response))
    };
    outcome.replies.into_iter().filter_map(of).collect()
}

/// The batch of one write of a transaction, or of plain ones together.
fn build<R: EncodeRecord>(writes: &[Write<R>], now: Timestamp) -> RecordBatch {
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
        for record in &write.records {
            let (key, value) = record.encode().expect("no string is too long");
            builder.append(now, Some(&key), value.as_deref(), &[]);
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
