//! The coordinator of the groups in one partition of `__consumer_offsets`: its state, and the
//! handling of committed and failed writes.
//!
//! Each file in this directory handles one request or event. A handler decides on the latest state,
//! adds its records to [`Effects`], and the state changes at once. Reads without `require_stable`
//! see the committed state. Invariants: `journal` and `deferred` are ordered by write and contain
//! only outstanding writes; a failed write also fails all later ones, because they were decided on
//! a state that no longer exists. Source: `CoordinatorRuntime`, `GroupCoordinatorShard`,
//! `GroupMetadataManager`.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;

use bytestring::ByteString;
use ottla_protocol::coordinator_records::{GroupRecordKey, GroupRecordValue};
use ottla_types::{ErrorCode, Timestamp};

use super::classic_group::ClassicGroup;
use super::config::GroupCoordinatorConfig;
use super::consumer::ConsumerGroup;
use super::membership::{SetTimer, set_member_timers};
use super::modern::{GroupError, GroupsMetadata};
use super::offsets::{
    OffsetAndMetadata, Offsets, PendingOffset, PendingOffsets, TopicAndPartition,
};
use super::outcome::{Command, Outcome, Reply, ReplyTo, Response, TimerKey, WriteId};
use super::record::CoordinatorRecord;
use super::recorded_kind::recorded_group_of;
use super::refused::Refused;
use super::share::ShareGroup;
use super::streams::{StreamsGroup, UnwrittenStates};
use crate::planted::{self, Bug};
use crate::runtime::{
    Coordinator, LogEntry, Timeline, TransactionalProducer, WriteKind, error_after_append,
};

pub(super) use super::effects::{Context, Deferred, Effects};

/// The retry delay after the records of a timer could not be written. Source:
/// `CoordinatorTimer.schedule`.
const TIMER_RETRY_MS: i32 = 500;

/// A group of a kind that is served.
#[derive(Debug)]
#[allow(
    clippy::large_enum_variant,
    reason = "groups live in a map, where the size of the larger kind is no matter"
)]
pub(super) enum Group {
    Classic(ClassicGroup),
    Consumer(ConsumerGroup),
    Share(ShareGroup),
    Streams(StreamsGroup),
}

pub struct GroupCoordinator {
    pub(super) config: Arc<GroupCoordinatorConfig>,
    /// The groups' knowledge of the cluster's topics.
    pub(super) metadata: GroupsMetadata,
    /// Groups whose regular expressions are being resolved.
    pub(super) resolving: HashSet<ByteString>,
    /// Groups whose target assignment is being computed, with the number of the order.
    pub(super) computing: HashMap<ByteString, u64>,
    /// The number of the next such order.
    pub(super) next_target: u64,
    /// By group id. A deleted group stays until its tombstone is committed.
    pub(super) groups: BTreeMap<ByteString, Timeline<Group>>,
    /// The share groups among them, and groups that were share groups.
    pub(super) share_group_ids: BTreeSet<ByteString>,
    /// State of streams groups that is not written to the log.
    pub(super) unwritten: UnwrittenStates,
    /// Since when the share coordinators delete state of share groups, in ms.
    pub(super) share_deletions: BTreeMap<ByteString, i64>,
    /// Groups of types that are not served, known from their records.
    pub(super) offsets: Offsets,
    /// The last group that the current tick of the expiration has looked at; `None` between ticks.
    pub(super) expired_through: Option<ByteString>,
    /// The change of each outstanding write, to commit it or to roll it back.
    pub(super) journal: VecDeque<(WriteId, Change)>,
    /// What follows when a write is committed or fails.
    deferred: VecDeque<(WriteId, Deferred)>,
    outstanding: VecDeque<WriteId>,
    next_write: WriteId,
    /// While uncommitted records are replayed: the write that they belong to.
    pub(super) replaying: Option<WriteId>,
    /// The expected offset of the next record in the log.
    pub(super) next_record_offset: i64,
}

/// One change of versioned state.
pub(super) enum Change {
    Group(ByteString),
    Offset(ByteString, TopicAndPartition),
    /// An offset pends on the end of a transaction. Contains the pending offset that it replaces.
    Pending(PendingOffset, Option<OffsetAndMetadata>),
    /// A tombstone removed pending offsets of open transactions.
    PendingForgotten(Vec<(PendingOffset, OffsetAndMetadata)>),
    /// A producer's transaction ended, and its pending offsets were removed.
    TransactionEnded(i64, PendingOffsets),
}

impl GroupCoordinator {
    /// An empty coordinator: replay the log, then call `on_loaded`.
    pub fn new(config: Arc<GroupCoordinatorConfig>) -> Self {
        Self {
            config,
            metadata: GroupsMetadata::default(),
            resolving: HashSet::new(),
            computing: HashMap::new(),
            next_target: 0,
            groups: BTreeMap::new(),
            share_group_ids: BTreeSet::new(),
            unwritten: UnwrittenStates::default(),
            share_deletions: BTreeMap::new(),
            offsets: Offsets::default(),
            expired_through: None,
            journal: VecDeque::new(),
            deferred: VecDeque::new(),
            outstanding: VecDeque::new(),
            next_write: WriteId(1),
            replaying: None,
            next_record_offset: 0,
        }
    }
}

impl Coordinator for GroupCoordinator {
    type Record = CoordinatorRecord;
    type Response = Response;
    type TimerKey = TimerKey;
    type Command = Command;

    const AWAITS_COMMITTED_LOG: bool = false;
    // Kafka: `CoordinatorPartitionWriter.append` requires only the leader's acknowledgement.
    const REQUIRES_MIN_ISR: bool = false;

    fn replay(&mut self, entry: LogEntry<'_>, now: Timestamp) -> Result<(), String> {
        match entry {
            LogEntry::Record {
                offset,
                producer_id,
                key,
                value,
            } => self
                .replay(offset, producer_id, key, value, now)
                .map_err(|error| error.to_string()),
            LogEntry::EndTransaction {
                producer_id,
                is_commit,
            } => {
                self.replay_end_transaction_marker(producer_id, is_commit);
                Ok(())
            }
        }
    }

    /// Starts the replay of uncommitted records, as after a fail-over while too few replicas are in
    /// sync. Decisions are based on them, but no response depends on them before
    /// `on_records_committed` for the returned write.
    fn begin_uncommitted(&mut self) -> Option<WriteId> {
        let write = self.next_write;
        self.next_write = WriteId(write.0 + 1);
        self.outstanding.push_back(write);
        self.replaying = Some(write);
        Some(write)
    }

    /// Sets the timers of the loaded groups.
    fn on_loaded(&mut self, now: Timestamp) -> Outcome {
        self.replaying = None;
        let mut effects = self.effects();
        let config = Arc::clone(&self.config);
        let cx = Context {
            config: &config,
            now_ms: now.value(),
        };
        for group in self.groups.values_mut().filter_map(Timeline::latest_mut) {
            if let Group::Classic(group) = group {
                group.on_loaded(cx, &mut effects);
            }
        }
        for group in self.groups.values().filter_map(Timeline::latest) {
            self.set_member_timers(group, Effects::set_timer, &mut effects);
        }
        self.on_share_groups_loaded(now);
        self.schedule_expiration(&mut effects);
        self.finish(effects)
    }

    fn on_unloaded(&mut self) -> Outcome {
        let mut effects = self.effects();
        for (_, deferred) in std::mem::take(&mut self.deferred) {
            if let Deferred::Reply(reply)
            | Deferred::ReplyAndTimers(reply, _)
            | Deferred::ReplyAndInitialize(reply, _) = deferred
            {
                effects.send(reply.failed(ErrorCode::NotCoordinator));
            }
        }
        self.journal.clear();
        self.outstanding.clear();
        for slot in std::mem::take(&mut self.groups).into_values() {
            for mut group in slot.into_values() {
                refuse_parked(&mut group, ErrorCode::NotCoordinator, &mut effects);
            }
        }
        self.share_group_ids.clear();
        self.computing.clear();
        self.offsets = Offsets::default();
        self.unwritten = UnwrittenStates::default();
        self.finish(effects)
    }

    fn on_records_committed(&mut self, write: WriteId, now: Timestamp) -> Outcome {
        while self.outstanding.front().is_some_and(|id| *id <= write) {
            self.outstanding.pop_front();
        }
        while let Some((_, change)) = self.journal.pop_front_if(|(id, _)| *id <= write) {
            match change {
                Change::Group(group_id) => {
                    if let Some(slot) = self.groups.get_mut(&group_id) {
                        slot.commit(write);
                        self.drop_vacant_group(&group_id);
                    }
                }
                Change::Offset(group_id, partition) => {
                    self.offsets.commit(write, &group_id, &partition);
                }
                Change::Pending(..)
                | Change::PendingForgotten(_)
                | Change::TransactionEnded(..) => {}
            }
        }
        let mut effects = self.effects();
        while let Some((_, deferred)) = self.deferred.pop_front_if(|(id, _)| *id <= write) {
            self.settle(deferred, Ok(()), now, &mut effects);
        }
        self.finish(effects)
    }

    fn on_write_failed(&mut self, write: WriteId, error: ErrorCode, now: Timestamp) -> Outcome {
        let mut effects = self.effects();
        let mut restored = BTreeSet::new();
        while self.outstanding.back().is_some_and(|id| *id >= write) {
            self.outstanding.pop_back();
        }
        while let Some((_, change)) = self.journal.pop_back_if(|(id, _)| *id >= write) {
            match change {
                Change::Group(group_id) => {
                    // It may be of the state that is lost.
                    self.computing.remove(&group_id);
                    let slot = self.groups.get_mut(&group_id);
                    if let Some(mut lost) = slot.and_then(|slot| slot.revert(write)) {
                        // Parked requests are newer than the refused write.
                        refuse_parked(&mut lost, error_of_successors(error), &mut effects);
                    }
                    self.drop_vacant_group(&group_id);
                    restored.insert(group_id);
                }
                Change::Offset(group_id, partition) => {
                    self.offsets.revert(write, &group_id, &partition);
                }
                Change::Pending(pending, replaced) => {
                    self.offsets.take_back_pending(&pending, replaced);
                }
                Change::PendingForgotten(forgotten) => {
                    for (pending, offset) in forgotten {
                        self.offsets.add_pending(&pending, offset);
                    }
                }
                Change::TransactionEnded(producer_id, offsets) => {
                    self.offsets.reopen_transaction(producer_id, offsets);
                }
            }
        }
        let first_failed = self.deferred.partition_point(|(id, _)| *id < write);
        for (id, deferred) in self.deferred.split_off(first_failed) {
            let error = if id == write {
                error
            } else {
                error_of_successors(error)
            };
            self.settle(deferred, Err(error), now, &mut effects);
        }
        // Timers are cancelled with the decision, before its write. Otherwise:
        // 1. A member leaves. Its session timer is cancelled.
        // 2. The log refuses the write, so the member is back in the group, but its client is gone.
        // 3. Nothing removes the member, which keeps its partitions until the next election, as in
        //    Kafka.
        // The retries of timers above are due earlier.
        for group_id in &restored {
            if let Some(Group::Classic(group)) = self.group_mut(group_id) {
                group.on_restored(&mut effects);
            } else if let Some(group) = self.group(group_id) {
                self.set_member_timers(group, Effects::set_timer_if_absent, &mut effects);
            }
        }
        self.finish(effects)
    }

    fn on_write_timed_out(&mut self, write: WriteId, now: Timestamp) -> Outcome {
        let first = self.deferred.partition_point(|(id, _)| *id < write);
        let after = self.deferred.partition_point(|(id, _)| *id <= write);
        let late: Vec<_> = self.deferred.drain(first..after).collect();
        let mut effects = self.effects();
        for (_, deferred) in late {
            if let Deferred::ReplyAndTimers(_, timers) = &deferred {
                // The write may still be committed. The member would then be in the group without a
                // session timer.
                effects.set_missing_timers(timers);
            }
            self.settle(deferred, Err(ErrorCode::RequestTimedOut), now, &mut effects);
        }
        self.finish(effects)
    }

    fn on_timer(&mut self, key: TimerKey, now: Timestamp) -> Outcome {
        let mut effects = self.effects();
        match key {
            TimerKey::Expiration => self.expire(now, &mut effects),
            TimerKey::Session {
                ref group_id,
                ref member_id,
            } if self.classic_group(group_id).is_some() => {
                self.with_classic_group(group_id, now, &mut effects, |group, cx, effects| {
                    group.on_session_expired(member_id, cx, effects);
                });
            }
            TimerKey::InitialRebalance { group_id } => {
                self.on_streams_initial_rebalance(&group_id, now, &mut effects);
            }
            // Left over from an earlier group with this id: no other kind has members of the
            // classic protocol.
            TimerKey::Rejoin { ref group_id, .. } | TimerKey::MemberSync { ref group_id, .. }
                if self.consumer_group(group_id).is_none() => {}
            TimerKey::Session { .. }
            | TimerKey::Rejoin { .. }
            | TimerKey::MemberSync { .. }
            | TimerKey::Revocation { .. } => self.on_member_timer(key, now, &mut effects),
            TimerKey::Join { group_id } => {
                self.with_classic_group(&group_id, now, &mut effects, |group, cx, effects| {
                    group.on_join_timeout(cx, effects);
                });
            }
            TimerKey::Sync { group_id } => {
                self.with_classic_group(&group_id, now, &mut effects, |group, cx, effects| {
                    group.on_sync_timeout(cx, effects);
                });
            }
        }
        self.finish(effects)
    }
}

impl GroupCoordinator {
    /// Whether any decision has records that are not committed.
    pub fn has_outstanding_writes(&self) -> bool {
        !self.outstanding.is_empty()
    }

    /// Sets the timers of the members of a consumer, share or streams group.
    fn set_member_timers(&self, group: &Group, set: SetTimer, effects: &mut Effects) {
        match group {
            Group::Classic(_) => {}
            Group::Consumer(group) => {
                let session_ms = self.consumer_session_timeout_ms(&group.group_id);
                set_member_timers(group, session_ms, set, effects);
            }
            Group::Share(group) => {
                let session_ms = self.share_session_timeout_ms(&group.group_id);
                set_member_timers(group, session_ms, set, effects);
            }
            Group::Streams(group) => {
                let session_ms = self.streams_session_timeout_ms(&group.group_id);
                set_member_timers(group, session_ms, set, effects);
            }
        }
    }

    fn settle(
        &mut self,
        deferred: Deferred,
        result: Result<(), ErrorCode>,
        now: Timestamp,
        effects: &mut Effects,
    ) {
        match deferred {
            Deferred::Nothing => {}
            Deferred::Reply(reply) => effects.send(reply.settled(result)),
            Deferred::ReplyAndTimers(reply, timers) => {
                effects.send(reply.settled(result));
                if result.is_ok() {
                    effects.change_timers(timers);
                }
            }
            Deferred::ReplyAndInitialize(reply, initialize) => {
                effects.send(reply.settled(result));
                if result.is_ok() {
                    effects.command(Command::InitializeShareState(initialize));
                }
            }
            Deferred::Timer(key) => {
                if result.is_err() {
                    effects.set_timer_if_absent(key, TIMER_RETRY_MS);
                }
            }
            Deferred::Assignment {
                group_id,
                generation_id,
                assignments,
            } => {
                self.with_classic_group(&group_id, now, effects, |group, cx, effects| {
                    let result = result.map_err(error_after_append);
                    group.on_assignment_settled(generation_id, assignments, result, cx, effects);
                });
            }
            Deferred::StaticMemberReplaced(replaced) => {
                let group_id = replaced.group_id.clone();
                self.with_classic_group(&group_id, now, effects, |group, _, effects| {
                    let result = result.map_err(error_after_append);
                    group.on_static_member_settled(replaced, result, effects);
                });
            }
        }
    }

    // For the handlers

    pub(super) fn effects(&self) -> Effects {
        Effects {
            outcome: Outcome::default(),
            deferred: Vec::new(),
            next_write: self.next_write,
        }
    }

    pub(super) fn finish(&mut self, effects: Effects) -> Outcome {
        for write in &effects.outcome.writes {
            self.outstanding.push_back(write.id);
            // A marker is one record.
            self.next_record_offset += write.records.len().max(1) as i64;
        }
        self.next_write = effects.next_write;
        self.deferred.extend(effects.deferred);
        effects.outcome
    }

    /// Handles one request. If the decision is an error, it is refused at once.
    pub(super) fn answer<T: Refused>(
        &mut self,
        to: ReplyTo<T>,
        decide: impl FnOnce(&mut Self, &mut Effects) -> Result<(), GroupError>,
    ) -> Outcome
    where
        Response: From<T>,
    {
        let mut effects = self.effects();
        if let Err(error) = decide(self, &mut effects) {
            effects.refuse(to, error);
        }
        self.finish(effects)
    }

    /// Sends a reply that reports the latest state when that state is committed.
    pub(super) fn reply_when_committed<T>(&self, to: ReplyTo<T>, response: T, effects: &mut Effects)
    where
        Response: From<T>,
    {
        self.send_when_committed(to.with(response), effects);
    }

    fn send_when_committed(&self, reply: Reply, effects: &mut Effects) {
        match self.last_write(effects) {
            None => effects.send(reply),
            Some(id) => effects.deferred.push((id, Deferred::Reply(reply))),
        }
    }

    /// The same for any consequence of the latest state.
    pub(super) fn defer_until_committed(
        &mut self,
        deferred: Deferred,
        now: Timestamp,
        effects: &mut Effects,
    ) {
        match self.last_write(effects) {
            None => self.settle(deferred, Ok(()), now, effects),
            Some(id) => effects.deferred.push((id, deferred)),
        }
    }

    /// The last uncommitted write.
    fn last_write(&self, effects: &Effects) -> Option<WriteId> {
        let last_of_event = effects.outcome.writes.last().map(|write| write.id);
        last_of_event.or(self.outstanding.back().copied())
    }

    /// Applies `records` to the state and appends them. Without records, only the reply is sent.
    pub(super) fn apply_and_write(
        &mut self,
        records: Vec<CoordinatorRecord>,
        deferred: Deferred,
        now: Timestamp,
        effects: &mut Effects,
    ) {
        if records.is_empty() {
            if let Deferred::Reply(reply) = deferred {
                self.send_when_committed(reply, effects);
            }
            return;
        }
        self.apply_all(None, &records, now, effects);
        effects.write(records, deferred);
    }

    /// The same for offsets that count when the transaction of `producer` is committed.
    pub(super) fn apply_and_write_transactional(
        &mut self,
        producer: TransactionalProducer,
        guard: Option<u64>,
        records: Vec<CoordinatorRecord>,
        deferred: Deferred,
        now: Timestamp,
        effects: &mut Effects,
    ) {
        self.apply_all(Some(producer), &records, now, effects);
        effects.write_as(
            WriteKind::Transactional { producer, guard },
            records,
            deferred,
        );
    }

    fn apply_all(
        &mut self,
        producer: Option<TransactionalProducer>,
        records: &[CoordinatorRecord],
        now: Timestamp,
        effects: &Effects,
    ) {
        let written_before: usize = effects
            .outcome
            .writes
            .iter()
            .map(|it| it.records.len())
            .sum();
        let first = self.next_record_offset + written_before as i64;
        for (record_offset, record) in (first..).zip(records) {
            self.apply(effects.next_write, producer, record_offset, record, now);
        }
    }

    /// Ends a producer's transaction as part of `write`.
    pub(super) fn apply_transaction_end(
        &mut self,
        write: WriteId,
        producer_id: i64,
        is_commit: bool,
    ) {
        let ended = self.offsets.close_transaction(producer_id);
        if is_commit || planted::has(Bug::CommitOffsetsOfAborted) {
            for (group_id, partition, offset) in ended.iter() {
                let is_newer = self
                    .offsets
                    .latest(group_id, partition)
                    .is_none_or(|existing| offset.record_offset > existing.record_offset);
                if is_newer {
                    self.offsets
                        .set(write, group_id, partition, Some(offset.clone()));
                    self.journal
                        .push_back((write, Change::Offset(group_id.clone(), partition.clone())));
                }
            }
        }
        if !ended.is_empty() {
            self.journal
                .push_back((write, Change::TransactionEnded(producer_id, ended)));
        }
    }

    fn apply(
        &mut self,
        write: WriteId,
        producer: Option<TransactionalProducer>,
        record_offset: i64,
        record: &CoordinatorRecord,
        now: Timestamp,
    ) {
        match (&record.key, &record.value) {
            (GroupRecordKey::OffsetCommit(key), value) => {
                let offset = match value {
                    Some(GroupRecordValue::OffsetCommit(value)) => {
                        self.create_group(&key.group, write, now);
                        Some(OffsetAndMetadata::from_record(record_offset, value))
                    }
                    _ => None,
                };
                let partition = (key.topic.clone(), key.partition);
                if let (Some(producer), Some(offset)) = (producer, &offset) {
                    let pending = PendingOffset {
                        producer_id: producer.id.value(),
                        group_id: key.group.clone(),
                        partition,
                    };
                    let replaced = self.offsets.add_pending(&pending, offset.clone());
                    self.journal
                        .push_back((write, Change::Pending(pending, replaced)));
                    return;
                }
                if offset.is_none() {
                    let forgotten = self.offsets.forget_pending(&key.group, &partition);
                    if !forgotten.is_empty() {
                        self.journal
                            .push_back((write, Change::PendingForgotten(forgotten)));
                    }
                }
                self.offsets.set(write, &key.group, &partition, offset);
                self.journal
                    .push_back((write, Change::Offset(key.group.clone(), partition)));
            }
            (GroupRecordKey::GroupMetadata(key), None) => {
                if let Some(slot) = self.groups.get_mut(&key.group) {
                    slot.set(write, None);
                    self.journal
                        .push_back((write, Change::Group(key.group.clone())));
                }
            }
            (key, value) => {
                let Some(group) = recorded_group_of(key) else {
                    unreachable!("records of type {} are not applied here", key.record_type())
                };
                self.apply_to_group(Some(write), group, key, value.as_ref(), now);
            }
        }
    }

    /// Creates the group if it does not exist, as part of `write`. Returns whether it was created.
    pub(super) fn create_group(
        &mut self,
        group_id: &ByteString,
        write: WriteId,
        now: Timestamp,
    ) -> bool {
        if self.group(group_id).is_some() {
            return false;
        }
        let group = ClassicGroup::empty(group_id.clone(), now.value());
        self.put_group(write, group_id, Some(Group::Classic(group)));
        true
    }

    /// Applies an offset record of the log.
    pub(super) fn replay_offset_as(
        &mut self,
        group_id: &ByteString,
        partition: &TopicAndPartition,
        offset: Option<OffsetAndMetadata>,
    ) {
        let Some(write) = self.replaying else {
            return self.offsets.set_committed(group_id, partition, offset);
        };
        self.offsets.set(write, group_id, partition, offset);
        let change = Change::Offset(group_id.clone(), partition.clone());
        self.journal.push_back((write, change));
    }

    pub(super) fn with_classic_group(
        &mut self,
        group_id: &str,
        now: Timestamp,
        effects: &mut Effects,
        act: impl FnOnce(&mut ClassicGroup, Context<'_>, &mut Effects),
    ) {
        let config = Arc::clone(&self.config);
        let cx = Context {
            config: &config,
            now_ms: now.value(),
        };
        if let Some(Group::Classic(group)) = self.group_mut(group_id) {
            act(group, cx, effects);
        }
    }

    pub(super) fn drop_vacant_group(&mut self, group_id: &str) {
        if self.groups.get(group_id).is_some_and(Timeline::is_vacant) {
            self.groups.remove(group_id);
            self.share_group_ids.remove(group_id);
            self.metadata.forget_group(group_id);
            self.unwritten.forget(group_id);
        }
    }
}

/// The error for writes that failed only because an earlier write was refused for its producer.
/// Nothing is wrong with them, so the clients should retry.
fn error_of_successors(error: ErrorCode) -> ErrorCode {
    match error {
        ErrorCode::InvalidProducerEpoch
        | ErrorCode::InvalidTxnState
        | ErrorCode::OutOfOrderSequenceNumber
        | ErrorCode::TransactionCoordinatorFenced => ErrorCode::NotEnoughReplicas,
        error => error,
    }
}

/// Refuses the requests that are parked in a removed group.
pub(super) fn refuse_parked(group: &mut Group, error: ErrorCode, effects: &mut Effects) {
    let Group::Classic(group) = group else {
        return;
    };
    let error = error_after_append(error);
    let (joins, syncs) = group.take_all_parked();
    for (member_id, to) in joins {
        effects.refuse_join(to, &member_id, error);
    }
    for to in syncs {
        effects.refuse(to, error);
    }
}
