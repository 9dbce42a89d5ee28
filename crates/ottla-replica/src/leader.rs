//! The leader of a partition: assigns offsets, tracks followers, proposes ISR changes, computes the
//! high watermark, parks and releases acknowledgements.
//!
//! Three offsets follow each other through the log, and each append passes them in this order:
//!
//! ```text
//! next_offset    assigned: handed to `WriteLog`
//! settled_end    in the file, and on the disk where `flush.messages` demands it: acks=1 is released
//! high_watermark on every replica that may be in sync: acks=all is released
//! ```
//!
//! The replicas that "may be in sync" are the committed ISR, a replica proposed to join, and a
//! replica that has caught up recently and will be proposed: otherwise it would have to catch up
//! with a high watermark that runs ahead of it.
//!
//! Kafka: `Partition.appendRecordsToLeader`, `updateFollowerFetchState`, `maybeExpandIsr`,
//! `maybeShrinkIsr`, `maybeIncrementLeaderHW`, `checkEnoughReplicasReachOffset`.

use std::sync::Arc;

use ottla_types::{BrokerEpoch, BrokerId, ErrorCode, LeaderEpoch, Offset, PartitionEpoch};

use crate::isr::{Isr, Settled};
use crate::log_state::LogState;
use crate::parked_acks::{Parked, ParkedAcks};
use crate::planted::{self, Bug};
use crate::registration::check_leader_epoch;
use crate::remote_replica::RemoteReplica;
use crate::{
    AckOutcome, AlterPartition, AlteredPartition, Append, Effect, FetchRefusal, FollowerFetch,
    Leadership, ProducerVerdict, ReplicaBroker, ReplicaConfig, ReplicaSettings, RequiredAcks,
};

#[cfg(test)]
mod isr_tests;
#[cfg(test)]
mod tests;

/// The state of a leader.
#[derive(Debug)]
pub(crate) struct Leader<Ack> {
    config: Arc<ReplicaConfig>,
    settings: ReplicaSettings,
    leader_epoch: LeaderEpoch,
    /// Start offset of this leader epoch: a replica with less may lack committed records.
    leader_epoch_start_offset: Offset,
    isr: Isr,
    /// All replicas except this one.
    followers: Box<[RemoteReplica]>,
    /// This broker's registered epoch.
    broker_epoch: BrokerEpoch,
    /// The latest time of any event.
    now_ms: u64,
    /// The offset of the next append. Equal to the log end offset unless a write is in progress.
    next_offset: Offset,
    /// Exclusive end of the file.
    log_end_offset: Offset,
    /// Exclusive end of the records that are in the file and need not wait for a flush.
    settled_end: Offset,
    /// Exclusive end of the last requested flush.
    flush_requested_end: Offset,
    /// Exclusive end of the records on disk, as far as flushes are awaited.
    flushed_end: Offset,
    high_watermark: Offset,
    parked: ParkedAcks<Ack>,
}

impl<Ack> Leader<Ack> {
    pub(crate) fn elected(
        config: Arc<ReplicaConfig>,
        leadership: Leadership,
        log: &LogState,
        now_ms: u64,
        effects: &mut Vec<Effect<Ack>>,
    ) -> Self {
        let (log_end_offset, high_watermark) = (log.log_end_offset, log.high_watermark);
        effects.push(Effect::AssignLeaderEpoch {
            leader_epoch: leadership.leader_epoch,
            start_offset: log_end_offset,
        });
        // An unfinished flush of the follower must complete first.
        let unflushed = log_end_offset.since(log.flushed_end);
        let is_flush_due = unflushed > 0 && unflushed >= leadership.settings.flush_messages;
        let flushed_end = match is_flush_due {
            true => log.flushed_end.max(high_watermark),
            false => log_end_offset,
        };
        if is_flush_due {
            effects.push(Effect::Flush {
                up_to: log_end_offset,
            });
        }
        let mut leader = Leader {
            config,
            settings: leadership.settings,
            leader_epoch: leadership.leader_epoch,
            leader_epoch_start_offset: log_end_offset,
            isr: Isr::new(leadership.isr, leadership.partition_epoch),
            followers: Box::default(),
            broker_epoch: BrokerEpoch::UNKNOWN,
            now_ms,
            next_offset: log_end_offset,
            log_end_offset,
            settled_end: flushed_end,
            flush_requested_end: log_end_offset,
            flushed_end,
            high_watermark,
            parked: ParkedAcks::new(),
        };
        leader.follow_replicas(&leadership.replicas);
        leader.register_brokers(&leadership.brokers);
        leader.advance_high_watermark(effects);
        leader
    }

    pub(crate) fn leader_epoch(&self) -> LeaderEpoch {
        self.leader_epoch
    }

    pub(crate) fn partition_epoch(&self) -> PartitionEpoch {
        self.isr.partition_epoch()
    }

    pub(crate) fn leader_epoch_start_offset(&self) -> Offset {
        self.leader_epoch_start_offset
    }

    pub(crate) fn isr(&self) -> &Isr {
        &self.isr
    }

    pub(crate) fn followers(&self) -> &[RemoteReplica] {
        &self.followers
    }

    pub(crate) fn next_offset(&self) -> Offset {
        self.next_offset
    }

    pub(crate) fn high_watermark(&self) -> Offset {
        self.high_watermark
    }

    pub(crate) fn next_deadline_ms(&self) -> Option<u64> {
        self.parked.next_deadline_ms()
    }

    pub(crate) fn free_room(&mut self) {
        self.parked.free_room();
    }

    /// A changed ISR, changed replicas, or a new epoch of the same leader. Parked appends of the
    /// old epoch stay parked, because they are this leader's own.
    pub(crate) fn on_registration_changed(
        &mut self,
        leadership: Leadership,
        now_ms: u64,
        effects: &mut Vec<Effect<Ack>>,
    ) {
        if leadership.partition_epoch < self.isr.partition_epoch() {
            return;
        }
        self.see_time(now_ms);
        self.settings = leadership.settings;
        let is_new_leader_epoch = leadership.leader_epoch > self.leader_epoch;
        self.isr.on_registration(
            leadership.isr,
            leadership.partition_epoch,
            is_new_leader_epoch,
        );
        self.follow_replicas(&leadership.replicas);
        self.register_brokers(&leadership.brokers);
        if is_new_leader_epoch {
            self.leader_epoch = leadership.leader_epoch;
            self.start_leader_epoch_at(self.next_offset, effects);
            for follower in &mut self.followers {
                let is_in_sync = self.isr.contains(follower.broker_id);
                follower.on_leader_reelected(self.next_offset, is_in_sync, now_ms);
            }
        }
        self.advance_high_watermark(effects);
        self.release_due(effects);
    }

    pub(crate) fn on_settings_changed(
        &mut self,
        settings: ReplicaSettings,
        effects: &mut Vec<Effect<Ack>>,
    ) {
        self.settings = settings;
        self.advance_high_watermark(effects);
        self.release_due(effects);
    }

    pub(crate) fn on_brokers_changed(
        &mut self,
        brokers: &[ReplicaBroker],
        effects: &mut Vec<Effect<Ack>>,
    ) {
        let low_watermark = self.low_watermark_of_followers();
        self.register_brokers(brokers);
        self.tell_low_watermark(low_watermark, effects);
        // A replica awaited because it had caught up may be fenced now.
        self.advance_high_watermark(effects);
        self.release_due(effects);
    }

    pub(crate) fn on_append(&mut self, append: Append<Ack>, effects: &mut Vec<Effect<Ack>>) {
        let Append {
            mut batch,
            required_acks,
            expected_leader_epoch,
            deadline_ms,
            verdict,
            ack,
        } = append;

        match check_leader_epoch(self.leader_epoch, expected_leader_epoch) {
            Ok(()) => {}
            Err(code) => {
                let outcome = if code == ErrorCode::FencedLeaderEpoch {
                    AckOutcome::FencedLeaderEpoch
                } else {
                    AckOutcome::UnknownLeaderEpoch
                };
                effects.push(Effect::ReleaseAck { ack, outcome });
                return;
            }
        }
        let needs_min_isr = matches!(
            required_acks,
            RequiredAcks::All | RequiredAcks::LeaderWithMinIsr
        );
        if needs_min_isr && self.is_under_min_isr() {
            effects.push(Effect::ReleaseAck {
                ack,
                outcome: AckOutcome::NotEnoughReplicas,
            });
            return;
        }

        let parked = |until, outcome| Parked {
            until,
            required_acks,
            deadline_ms,
            outcome,
            ack,
        };
        match verdict {
            ProducerVerdict::InSequence => {
                let base_offset = self.next_offset;
                batch.assign_offset(base_offset, self.leader_epoch);
                self.next_offset = batch.header.next_offset();
                let outcome = AckOutcome::Appended { base_offset };
                self.parked.push_writing(parked(self.next_offset, outcome));
                effects.push(Effect::WriteLog { batch });
            }
            // Earlier appends of the producer may not be acknowledged yet: a duplicate must not be
            // acknowledged before its first copy, and a gap may exist only because an earlier
            // append failed.
            ProducerVerdict::Duplicate {
                base_offset,
                last_offset,
                log_append_time,
            } => {
                let outcome = AckOutcome::Duplicate {
                    base_offset,
                    log_append_time,
                };
                self.parked.park(parked(last_offset.plus(1), outcome));
                self.release_due(effects);
            }
            ProducerVerdict::Refused(code) => {
                let outcome = AckOutcome::RefusedForProducer(code);
                self.parked.park(parked(self.next_offset, outcome));
                self.release_due(effects);
            }
        }
    }

    pub(crate) fn on_log_written(
        &mut self,
        log_end_offset: Offset,
        effects: &mut Vec<Effect<Ack>>,
    ) {
        self.log_end_offset = log_end_offset;
        self.parked.on_written(log_end_offset);
        let unflushed = log_end_offset.since(self.flush_requested_end);
        if unflushed >= self.settings.flush_messages {
            self.flush_requested_end = log_end_offset;
            effects.push(Effect::Flush {
                up_to: log_end_offset,
            });
        }
        self.settle(effects);
    }

    /// The log ends at `log_end_offset`. Later appends are refused in order, and their offsets are
    /// assigned again.
    pub(crate) fn on_write_refused(
        &mut self,
        log_end_offset: Offset,
        effects: &mut Vec<Effect<Ack>>,
    ) {
        self.on_log_written(log_end_offset, effects);
        self.next_offset = log_end_offset;
        self.parked.on_write_refused(log_end_offset, effects);
        if self.leader_epoch_start_offset > log_end_offset {
            // The epoch started after the refused records.
            self.start_leader_epoch_at(log_end_offset, effects);
        }
        self.release_due(effects);
    }

    pub(crate) fn on_flushed(&mut self, up_to: Offset, effects: &mut Vec<Effect<Ack>>) {
        self.flushed_end = self.flushed_end.max(up_to);
        self.settle(effects);
    }

    /// Checks whether this leader serves a follower's fetch.
    pub(crate) fn check_follower_fetch(&self, fetch: &FollowerFetch) -> Result<(), FetchRefusal> {
        check_leader_epoch(self.leader_epoch, fetch.leader_epoch).map_err(FetchRefusal::Error)?;
        let Some(follower) = self.follower(fetch.replica_id) else {
            // With a leader epoch, one of the two has older metadata, and the follower should
            // retry; without one, it is unknown which.
            let error = match fetch.leader_epoch {
                Some(_) => ErrorCode::UnknownLeaderEpoch,
                None => ErrorCode::NotLeaderOrFollower,
            };
            return Err(FetchRefusal::Error(error));
        };
        if !planted::has(Bug::TrustFetchOffset) {
            fetch.check_offset(self.log_end_offset)?;
        }
        match follower.is_stale(fetch.broker_epoch) {
            true => Err(FetchRefusal::Error(ErrorCode::NotLeaderOrFollower)),
            false => Ok(()),
        }
    }

    /// Records a follower's position. A refused fetch is ignored.
    pub(crate) fn on_follower_fetch(
        &mut self,
        fetch: &FollowerFetch,
        effects: &mut Vec<Effect<Ack>>,
    ) {
        if self.check_follower_fetch(fetch).is_err() {
            return;
        }
        self.see_time(fetch.now_ms);
        let low_watermark = self.low_watermark_of_followers();
        let log_end_offset = self.log_end_offset;
        let mut followers = self.followers.iter_mut();
        let Some(follower) = followers.find(|f| f.broker_id == fetch.replica_id) else {
            return;
        };
        let has_moved = follower.log_end_offset != fetch.fetch_offset;
        follower.on_fetch(fetch, log_end_offset);
        self.tell_low_watermark(low_watermark, effects);
        self.expand_isr(fetch.replica_id, effects);
        if has_moved {
            self.advance_high_watermark(effects);
            self.release_due(effects);
        }
    }

    pub(crate) fn on_partition_altered(
        &mut self,
        proposal: &AlterPartition,
        result: Result<AlteredPartition, ErrorCode>,
        effects: &mut Vec<Effect<Ack>>,
    ) {
        match self.isr.on_answer(proposal, result) {
            Settled::Changed => {
                self.advance_high_watermark(effects);
                self.release_due(effects);
            }
            Settled::Unchanged => {}
            Settled::Retry => effects.push(Effect::AlterPartition(proposal.clone())),
        }
    }

    pub(crate) fn on_clock_ticked(&mut self, now_ms: u64, effects: &mut Vec<Effect<Ack>>) {
        self.see_time(now_ms);
        self.parked.expire(now_ms, effects);
        self.shrink_isr(effects);
        // A replica awaited because it had caught up recently may not count any more.
        self.advance_high_watermark(effects);
        self.release_due(effects);
    }

    /// Ends the leadership: all waiting appends get `outcome`.
    pub(crate) fn release_all(self, outcome: AckOutcome, effects: &mut Vec<Effect<Ack>>) {
        self.parked.release_all(outcome, effects);
    }

    /// `Partition.lowWatermarkIfLeader` without the leader's own log: the smallest log start offset
    /// of the live followers. A follower that has not fetched yet counts as -1.
    pub(crate) fn low_watermark_of_followers(&self) -> Option<Offset> {
        let alive = self.followers.iter().filter(|follower| follower.is_alive());
        alive.map(|follower| follower.log_start_offset).min()
    }

    fn follower(&self, broker_id: BrokerId) -> Option<&RemoteReplica> {
        let mut followers = self.followers.iter();
        followers.find(|follower| follower.broker_id == broker_id)
    }

    fn see_time(&mut self, now_ms: u64) {
        self.now_ms = self.now_ms.max(now_ms);
    }

    fn start_leader_epoch_at(&mut self, start_offset: Offset, effects: &mut Vec<Effect<Ack>>) {
        self.leader_epoch_start_offset = start_offset;
        effects.push(Effect::AssignLeaderEpoch {
            leader_epoch: self.leader_epoch,
            start_offset,
        });
    }

    /// `Partition.effectiveMinIsr`: at most the number of replicas.
    fn effective_min_isr(&self) -> usize {
        let replicas = self.followers.len() + 1;
        self.settings.min_insync_replicas.min(replicas)
    }

    fn is_under_min_isr(&self) -> bool {
        self.isr.committed().len() < self.effective_min_isr()
    }

    /// Keeps one entry per follower.
    fn follow_replicas(&mut self, replicas: &[BrokerId]) {
        let mut followers = std::mem::take(&mut self.followers).into_vec();
        followers.retain(|follower| replicas.contains(&follower.broker_id));
        for &broker_id in replicas {
            let is_known = followers.iter().any(|it| it.broker_id == broker_id);
            if broker_id != self.config.broker_id && !is_known {
                let is_in_sync = self.isr.contains(broker_id);
                followers.push(RemoteReplica::new(broker_id, is_in_sync, self.now_ms));
            }
        }
        self.followers = followers.into();
    }

    fn register_brokers(&mut self, brokers: &[ReplicaBroker]) {
        for follower in &mut self.followers {
            follower.set_registration(brokers);
        }
        let mut brokers = brokers.iter();
        if let Some(own) = brokers.find(|broker| broker.broker_id == self.config.broker_id) {
            self.broker_epoch = own.broker_epoch;
        }
    }

    fn tell_low_watermark(&self, before: Option<Offset>, effects: &mut Vec<Effect<Ack>>) {
        if let Some(of_followers) = self.low_watermark_of_followers()
            && before.is_some_and(|before| of_followers > before)
        {
            effects.push(Effect::MoveLowWatermark { of_followers });
        }
    }

    /// Proposes a follower for the ISR once it has every record that may be committed: everything
    /// below the high watermark, and everything that existed at this leader's election, because it
    /// is unknown how much its predecessor had committed.
    fn expand_isr(&mut self, broker_id: BrokerId, effects: &mut Vec<Effect<Ack>>) {
        if self.isr.is_proposal_pending() || self.isr.contains(broker_id) {
            return;
        }
        let Some(follower) = self.follower(broker_id) else {
            return;
        };
        let has_epoch_start = follower.log_end_offset >= self.leader_epoch_start_offset
            || planted::has(Bug::JoinBelowLeaderEpochStart);
        let is_in_sync = follower.log_end_offset >= self.high_watermark && has_epoch_start;
        if is_in_sync && follower.is_isr_eligible() {
            let epochs = broker_epochs(&self.followers, self.config.broker_id, self.broker_epoch);
            let proposal = self
                .isr
                .propose_expansion(broker_id, self.leader_epoch, epochs);
            effects.push(Effect::AlterPartition(proposal));
        }
    }

    /// Proposes to remove replicas that have not caught up for `replica.lag.time.max.ms`.
    fn shrink_isr(&mut self, effects: &mut Vec<Effect<Ack>>) {
        if self.isr.is_proposal_pending() {
            return;
        }
        let (log_end_offset, now_ms) = (self.log_end_offset, self.now_ms);
        let lag_max_ms = self.config.replica_lag_time_max_ms;
        let mut out_of_sync = Vec::new();
        for &member in self.isr.committed() {
            let is_out_of_sync = self
                .follower(member)
                .is_none_or(|follower| !follower.is_caught_up(log_end_offset, now_ms, lag_max_ms));
            if member != self.config.broker_id && is_out_of_sync {
                out_of_sync.push(member);
            }
        }
        if !out_of_sync.is_empty() {
            let epochs = broker_epochs(&self.followers, self.config.broker_id, self.broker_epoch);
            let proposal = self
                .isr
                .propose_shrinking(&out_of_sync, self.leader_epoch, epochs);
            effects.push(Effect::AlterPartition(proposal));
        }
    }

    /// Updates `settled_end`: the end of the file without a pending flush, otherwise the flushed
    /// end.
    fn settle(&mut self, effects: &mut Vec<Effect<Ack>>) {
        self.settled_end = if self.flush_requested_end <= self.flushed_end {
            self.log_end_offset
        } else {
            self.settled_end.max(self.flushed_end)
        };
        self.advance_high_watermark(effects);
        self.release_due(effects);
    }

    fn advance_high_watermark(&mut self, effects: &mut Vec<Effect<Ack>>) {
        if self.is_under_min_isr() && !planted::has(Bug::AdvanceUnderMinIsr) {
            return;
        }
        let mut high_watermark = self.settled_end;
        for follower in &self.followers {
            if follower.log_end_offset < high_watermark && self.is_waited_for(follower) {
                high_watermark = follower.log_end_offset;
            }
        }
        let has_fallen = high_watermark < self.high_watermark && high_watermark.0 >= 0;
        if high_watermark > self.high_watermark
            || has_fallen && planted::has(Bug::LowerHighWatermark)
        {
            self.high_watermark = high_watermark;
            effects.push(Effect::AdvanceHighWatermark { high_watermark });
        }
    }

    fn is_waited_for(&self, follower: &RemoteReplica) -> bool {
        self.isr.maximal_contains(follower.broker_id)
            || follower.is_isr_eligible()
                && follower.is_caught_up(
                    self.log_end_offset,
                    self.now_ms,
                    self.config.replica_lag_time_max_ms,
                )
    }

    fn release_due(&mut self, effects: &mut Vec<Effect<Ack>>) {
        let is_under_min_isr = self.isr.maximal_len() < self.effective_min_isr();
        let high_watermark = match planted::has(Bug::AcknowledgeWhenWritten) {
            true => self.settled_end,
            false => self.high_watermark,
        };
        self.parked
            .release_due(self.settled_end, high_watermark, is_under_min_isr, effects);
    }
}

/// The broker epochs of a proposed ISR.
fn broker_epochs(
    followers: &[RemoteReplica],
    own_id: BrokerId,
    own_epoch: BrokerEpoch,
) -> impl Fn(BrokerId) -> BrokerEpoch {
    move |broker_id| {
        if broker_id == own_id {
            return own_epoch;
        }
        let mut followers = followers.iter();
        let follower = followers.find(|follower| follower.broker_id == broker_id);
        follower.map_or(BrokerEpoch::UNKNOWN, RemoteReplica::broker_epoch)
    }
}
