//! The share partitions of the partitions that a broker leads: their state machines, what of them is being persisted, and who waits
//! for that.
//!
//! All that is decided is in [`LedSharePartition`], as in the broker. Mirrors `share_groups/led_partitions.rs` (`get_or_open`,
//! `forget`, `follow_leadership`) and of `api` what ShareFetch and ShareAcknowledge come to for one partition. There are no sessions: the one thing of theirs that matters to others, that what a
//! member holds is given back when its connection closes, a client that ends asks for.

use std::collections::BTreeMap;

use bytestring::ByteString;
use ottla_coordinator::persister::{ReadState, SharePartitionKey, StateFailure, StateRead};
use ottla_coordinator::share_partition::{
    AcquireRequest, AcquiredRecords, FetchedBatch, LedSharePartition, MemberId, SharePartition,
    SharePartitionSettings, StateWriteId, request_of, restore,
};
use ottla_metadata::LocalReplicaChanges;
use ottla_types::{ErrorCode, LeaderEpoch, Offset, PartitionIndex, TopicIdPartition};

use super::broker_shell::BrokerShell;
use super::coordinators::{Caller, ForShare, answer};
use super::message::{ClientResponse, ShareAcknowledge, ShareFetch, ShareStateRequest};
use super::node::{Stopped, Surroundings};

/// What one read brings at most.
const FETCH_MAX_BATCHES: usize = 8;

pub(crate) const SHARE_SETTINGS: SharePartitionSettings = SharePartitionSettings {
    record_lock_duration_ms: 1_500,
    delivery_count_limit: 3,
    partition_max_record_locks: 40,
    renew_acknowledge_enable: true,
};

/// By what the share coordinators know them.
pub(crate) type SharePartitions = BTreeMap<SharePartitionKey, LedPartition>;

pub(crate) struct LedPartition {
    leader_epoch: LeaderEpoch,
    machine: LedSharePartition<Caller>,
}

pub(crate) fn key_of(group_id: &ByteString, partition: TopicIdPartition) -> SharePartitionKey {
    SharePartitionKey {
        group_id: group_id.clone(),
        topic_id: partition.topic_id,
        partition: partition.partition.0,
    }
}

fn partition_of(key: &SharePartitionKey) -> TopicIdPartition {
    TopicIdPartition {
        topic_id: key.topic_id,
        partition: PartitionIndex(key.partition),
    }
}

/// Goes on where the persisted state ends; a group that has read nothing yet begins with the log.
pub(crate) fn restored(read: &StateRead, leader_epoch: LeaderEpoch) -> SharePartition {
    let start_offset = read.start_offset.max(Offset(0));
    let restored = restore(read, start_offset, SHARE_SETTINGS, leader_epoch);
    restored.expect("what was persisted can be taken up")
}

impl BrokerShell {
    // What members ask for

    pub(crate) fn on_share_fetch(
        &mut self,
        caller: Caller,
        request: ShareFetch,
        around: &mut Surroundings<'_>,
    ) -> Result<(), Stopped> {
        let replica = self.replicas.get(&request.partition);
        let Some(replica) = replica.filter(|replica| replica.replica.is_leader()) else {
            let response = ClientResponse::ShareFetched(Err(ErrorCode::NotLeaderOrFollower));
            answer(caller, response, around);
            return Ok(());
        };
        let leader_epoch = replica.replica.leader_epoch();
        let key = key_of(&request.group_id, request.partition);
        let acquired = match self.share_partitions.get_mut(&key) {
            Some(led) => led.acquire(&request, around),
            None => {
                let led = LedPartition {
                    leader_epoch,
                    machine: LedSharePartition::default(),
                };
                self.share_partitions.insert(key.clone(), led);
                let read = ReadState {
                    key: key.clone(),
                    leader_epoch,
                };
                let whom = ForShare::Loading(key, leader_epoch);
                self.persist(ShareStateRequest::Read(read), whom, around)?;
                AcquiredRecords::default()
            }
        };
        let response = ClientResponse::ShareFetched(Ok(acquired.batches));
        answer(caller, response, around);
        Ok(())
    }

    pub(crate) fn on_share_acknowledge(
        &mut self,
        caller: Caller,
        request: ShareAcknowledge,
        around: &mut Surroundings<'_>,
    ) {
        let key = key_of(&request.group_id, request.partition);
        let taken = match self.share_partitions.get_mut(&key) {
            None => Err(ErrorCode::UnknownTopicOrPartition),
            Some(led) => {
                let (member, now_ms) = (&*request.member_id, around.now_ms);
                let start_offset = led.machine.start_offset();
                let batches = &request.batches;
                let taken =
                    led.machine
                        .acknowledge(member, batches, SHARE_SETTINGS, now_ms, || caller);
                if taken.is_ok() {
                    let of = (request.partition, led.leader_epoch);
                    for batch in batches
                        .iter()
                        .filter(|it| Some(it.last_offset) >= start_offset)
                    {
                        let checkers = &mut *around.checkers;
                        checkers.share_deliveries.on_acknowledged(of.0, batch);
                        let locks = &mut checkers.share_locks;
                        locks.on_acknowledged(of, member, batch, now_ms);
                    }
                }
                taken.map_err(|failure| failure.code)
            }
        };
        let error = match taken {
            // When it is persisted.
            Ok(true) => return,
            Ok(false) => ErrorCode::None,
            Err(error) => error,
        };
        answer(caller, ClientResponse::ShareAcknowledged(error), around);
    }

    /// A member is gone: what it holds is for the others.
    pub(crate) fn on_share_member_gone(
        &mut self,
        group_id: &ByteString,
        member: &str,
        around: &mut Surroundings<'_>,
    ) {
        for (key, led) in &mut self.share_partitions {
            if key.group_id != *group_id {
                continue;
            }
            if led.machine.release(member, None::<fn() -> Caller>).is_ok() {
                let of = (partition_of(key), led.leader_epoch);
                around.checkers.share_locks.on_gone(of, member);
            }
        }
    }

    // What is due

    /// Frees what is locked no longer, and has written what is to be: one write of a share partition at a time.
    pub(super) fn run_share_partitions(
        &mut self,
        around: &mut Surroundings<'_>,
    ) -> Result<bool, Stopped> {
        let mut writes = Vec::new();
        for (key, led) in &mut self.share_partitions {
            led.machine.on_lock_timeouts(around.now_ms);
            if let Some(write) = led.machine.next_write() {
                writes.push((key.clone(), led.leader_epoch, write));
            }
        }
        let has_moved = !writes.is_empty();
        for (key, leader_epoch, write) in writes {
            let whom = ForShare::Writing(key.clone(), leader_epoch, write.id);
            let request = ShareStateRequest::Write(request_of(key, write));
            self.persist(request, whom, around)?;
        }
        Ok(has_moved)
    }

    /// What was persisted has been read.
    pub(super) fn on_share_state_read(
        &mut self,
        key: &SharePartitionKey,
        leader_epoch: LeaderEpoch,
        read: Result<StateRead, ErrorCode>,
    ) {
        let led = self.share_partitions.get_mut(key);
        let Some(led) = led.filter(|led| led.leader_epoch == leader_epoch) else {
            return;
        };
        match read {
            Ok(read) => {
                led.machine.on_loaded(restored(&read, leader_epoch));
            }
            // Whoever asks next has it loaded anew.
            Err(_) => {
                self.share_partitions.remove(key);
            }
        }
    }

    pub(super) fn on_share_state_written(
        &mut self,
        key: &SharePartitionKey,
        (leader_epoch, id): (LeaderEpoch, StateWriteId),
        error: ErrorCode,
        around: &mut Surroundings<'_>,
    ) {
        let led = self.share_partitions.get_mut(key);
        let led = led.filter(|led| led.leader_epoch == leader_epoch);
        let Some(led) = led else {
            return;
        };
        let written = match error {
            ErrorCode::None => Ok(()),
            error => Err(StateFailure::from(error)),
        };
        let written = led.machine.on_written(id, written);
        if let Some((caller, answered)) = written.answer {
            let error = answered.err().map_or(ErrorCode::None, |it| it.code);
            answer(caller, ClientResponse::ShareAcknowledged(error), around);
        }
        if written.fenced.is_some() {
            self.close_share_partitions(around, |it, _| it == key);
        }
    }

    /// Partitions whose lead has changed are others' to hand out, or have to be taken up anew.
    pub(super) fn follow_share_leadership(
        &mut self,
        changes: &LocalReplicaChanges,
        around: &mut Surroundings<'_>,
    ) {
        let is_of = |key: &SharePartitionKey, it: &ottla_metadata::LocalReplica| {
            it.topic_id == key.topic_id && it.partition.0 == key.partition
        };
        for gone in changes.deleted.iter().chain(&changes.followers) {
            self.close_share_partitions(around, |key, _| is_of(key, gone));
        }
        for led in &changes.leaders {
            let epoch = led.registration.leader_epoch;
            self.close_share_partitions(around, |key, known| is_of(key, led) && known != epoch);
        }
    }

    fn close_share_partitions(
        &mut self,
        around: &mut Surroundings<'_>,
        is_over: impl Fn(&SharePartitionKey, LeaderEpoch) -> bool,
    ) {
        let keys = self.share_partitions.iter();
        let over = keys.filter(|(key, led)| is_over(key, led.leader_epoch));
        let over: Vec<_> = over.map(|(key, _)| key.clone()).collect();
        for key in over {
            let Some(mut closed) = self.share_partitions.remove(&key) else {
                continue;
            };
            // It may be taken up anew in the same epoch, where a write was refused: with what was persisted, as by a new leader.
            let of = (partition_of(&key), closed.leader_epoch);
            around.checkers.share_locks.on_closed(of);
            around.checkers.share_delivery_counts.on_closed(of);
            let reason = StateFailure::from(ErrorCode::NotLeaderOrFollower);
            for caller in closed.machine.close(reason) {
                let response = ClientResponse::ShareAcknowledged(ErrorCode::NotLeaderOrFollower);
                answer(caller, response, around);
            }
        }
    }
}

impl LedPartition {
    /// Reads the log where the share partition goes on, and gives the member what it can have of that.
    fn acquire(&mut self, request: &ShareFetch, around: &mut Surroundings<'_>) -> AcquiredRecords {
        let Some(fetch_offset) = self.machine.begin_reading(SHARE_SETTINGS) else {
            return AcquiredRecords::default();
        };
        let log = &around.disk.partitions[&request.partition];
        let batches = log.batches_from(fetch_offset).iter();
        let committed = batches.take_while(|it| it.header.next_offset() <= log.high_watermark());
        let batches = committed.take(FETCH_MAX_BATCHES).map(|it| FetchedBatch {
            base_offset: it.header.base_offset,
            last_offset: it.header.last_offset(),
            producer_id: it.header.producer_id,
            is_transactional: it.header.is_transactional(),
            is_abort_marker: false,
        });
        let batches: Vec<FetchedBatch> = batches.collect();
        let member = MemberId::from(&*request.member_id);
        let now_ms = around.now_ms;
        let acquired = self.machine.acquire(AcquireRequest {
            member: &member,
            mode: request.mode,
            batch_size: request.batch_size,
            max_records: request.max_records,
            fetch_offset,
            batches: &batches,
            aborted_transactions: &[],
            now_ms,
        });
        self.machine.end_reading();
        let of = (request.partition, self.leader_epoch);
        for batch in &acquired.batches {
            let checkers = &mut *around.checkers;
            checkers.share_locks.on_acquired(of, &member, batch, now_ms);
            checkers.share_delivery_counts.on_acquired(of, batch);
            checkers.share_deliveries.on_acquired(of.0, batch);
        }
        acquired
    }
}
