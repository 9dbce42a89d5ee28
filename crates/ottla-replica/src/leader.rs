//! The leader of a partition: assigns offsets, computes the high watermark, parks and releases
//! acknowledgements.
//!
//! Three ends follow each other through the log, and each append passes them in this order:
//!
//! ```text
//! next_offset    assigned: handed to `WriteLog`
//! settled_end    in the file, and on the disk where `flush.messages` demands it: acks=1 is released
//! high_watermark on every in-sync replica: acks=all is released
//! ```
//!
//! Kafka does the same in `Partition.appendRecordsToLeader`, `maybeIncrementLeaderHW` and
//! `checkEnoughReplicasReachOffset`, with the purgatory for what is parked here.

use std::collections::VecDeque;

use ottla_types::{BrokerId, ErrorCode, LeaderEpoch, Offset};

use crate::replica::check_leader_epoch;
use crate::{
    AckOutcome, Append, Effect, Leadership, ProducerVerdict, ReplicaSettings, RequiredAcks,
};

#[cfg(test)]
mod tests;

/// The state of a leader.
#[derive(Debug)]
pub(crate) struct Leader<Ack> {
    broker_id: BrokerId,
    leadership: Leadership,
    /// The offset that the next append gets. Equal to the log end offset unless a write is under way.
    next_offset: Offset,
    /// Exclusive end of what is in the file.
    log_end_offset: Offset,
    /// Exclusive end of what is in the file and not held back by a flush that is under way.
    settled_end: Offset,
    /// Exclusive end of what the last `Flush` asked for.
    flush_requested_end: Offset,
    /// Exclusive end of what is known to be on the disk since this leadership began.
    flushed_end: Offset,
    high_watermark: Offset,
    followers: Vec<Follower>,
    /// Appends whose write was asked for and not answered, in the order of their offsets.
    writing: VecDeque<Parked<Ack>>,
    /// Acknowledgements that wait for `settled_end`, in the order of their offsets.
    awaiting_settled: VecDeque<Parked<Ack>>,
    /// Acknowledgements that wait for `high_watermark`, in the order of their offsets.
    awaiting_high_watermark: VecDeque<Parked<Ack>>,
}

/// What is known of another replica.
#[derive(Debug)]
struct Follower {
    broker_id: BrokerId,
    /// Exclusive; -1 until its first fetch.
    log_end_offset: Offset,
}

/// An acknowledgement that waits.
#[derive(Debug)]
struct Parked<Ack> {
    /// The end that has to be reached, exclusive.
    until: Offset,
    required_acks: RequiredAcks,
    deadline_ms: u64,
    /// What it will be told.
    outcome: AckOutcome,
    ack: Ack,
}

impl<Ack> Leader<Ack> {
    pub(crate) fn elected(
        broker_id: BrokerId,
        leadership: Leadership,
        log_end_offset: Offset,
        high_watermark: Offset,
        effects: &mut Vec<Effect<Ack>>,
    ) -> Self {
        effects.push(Effect::AssignLeaderEpoch {
            leader_epoch: leadership.leader_epoch,
            start_offset: log_end_offset,
        });
        let mut leader = Leader {
            broker_id,
            followers: Vec::new(),
            leadership,
            next_offset: log_end_offset,
            log_end_offset,
            settled_end: log_end_offset,
            flush_requested_end: log_end_offset,
            flushed_end: log_end_offset,
            high_watermark,
            writing: VecDeque::new(),
            awaiting_settled: VecDeque::new(),
            awaiting_high_watermark: VecDeque::new(),
        };
        leader.follow_replicas();
        leader.advance_high_watermark(effects);
        leader
    }

    pub(crate) fn leader_epoch(&self) -> LeaderEpoch {
        self.leadership.leader_epoch
    }

    pub(crate) fn next_offset(&self) -> Offset {
        self.next_offset
    }

    pub(crate) fn high_watermark(&self) -> Offset {
        self.high_watermark
    }

    pub(crate) fn next_deadline_ms(&self) -> Option<u64> {
        let parked = self.awaiting_settled.iter();
        let parked = parked.chain(&self.awaiting_high_watermark);
        parked.map(|parked| parked.deadline_ms).min()
    }

    /// A new ISR, or a new epoch of the same leader. The appends of the older epoch are
    /// this leader's own, so they stay parked.
    pub(crate) fn on_registration_changed(
        &mut self,
        leadership: Leadership,
        effects: &mut Vec<Effect<Ack>>,
    ) {
        if leadership.leader_epoch > self.leadership.leader_epoch {
            effects.push(Effect::AssignLeaderEpoch {
                leader_epoch: leadership.leader_epoch,
                start_offset: self.next_offset,
            });
            // What was known of the followers was learned under the older epoch; they fetch anew.
            self.followers.clear();
        }
        self.leadership = leadership;
        self.follow_replicas();
        self.advance_high_watermark(effects);
        self.release_due(effects);
    }

    pub(crate) fn on_settings_changed(
        &mut self,
        settings: ReplicaSettings,
        effects: &mut Vec<Effect<Ack>>,
    ) {
        self.leadership.settings = settings;
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

        match check_leader_epoch(self.leadership.leader_epoch, expected_leader_epoch) {
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
        if required_acks == RequiredAcks::All && self.is_under_min_isr() {
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
                batch.assign_offset(base_offset, self.leadership.leader_epoch);
                self.next_offset = batch.header.next_offset();
                self.writing.push_back(parked(
                    self.next_offset,
                    AckOutcome::Appended { base_offset },
                ));
                effects.push(Effect::WriteLog { batch });
            }
            // What the producer sent before may not be safe yet: as a success it would be told earlier
            // than the first copy was, and a gap may be one only because an append ahead of it failed.
            ProducerVerdict::Duplicate {
                base_offset,
                last_offset,
                log_append_time,
            } => {
                let outcome = AckOutcome::Duplicate {
                    base_offset,
                    log_append_time,
                };
                let parked = parked(last_offset.plus(1), outcome);
                self.park(parked);
                self.release_due(effects);
            }
            ProducerVerdict::Refused(code) => {
                let parked = parked(self.next_offset, AckOutcome::RefusedForProducer(code));
                self.park(parked);
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
        while let Some(written) = self.writing.pop_front_if(|w| w.until <= log_end_offset) {
            self.park(written);
        }
        let unflushed = log_end_offset.since(self.flush_requested_end);
        if unflushed >= self.leadership.settings.flush_messages {
            self.flush_requested_end = log_end_offset;
            effects.push(Effect::Flush {
                up_to: log_end_offset,
            });
        }
        self.settle(effects);
    }

    /// The file ends at `log_end_offset`. What was assigned beyond it is refused in order, and its
    /// offsets are free again.
    pub(crate) fn on_write_refused(
        &mut self,
        log_end_offset: Offset,
        effects: &mut Vec<Effect<Ack>>,
    ) {
        self.on_log_written(log_end_offset, effects);
        self.next_offset = log_end_offset;
        for refused in self.writing.drain(..) {
            effects.push(Effect::ReleaseAck {
                ack: refused.ack,
                outcome: AckOutcome::StorageError,
            });
        }
        // What waited for the appends that are now gone: a refusal still holds, but a duplicate's first
        // copy was lost.
        for queue in [
            &mut self.awaiting_settled,
            &mut self.awaiting_high_watermark,
        ] {
            for parked in queue.iter_mut() {
                if parked.until > log_end_offset {
                    parked.until = log_end_offset;
                    if parked.outcome.error_code() == ErrorCode::None {
                        parked.outcome = AckOutcome::StorageError;
                    }
                }
            }
        }
        self.release_due(effects);
    }

    pub(crate) fn on_flushed(&mut self, up_to: Offset, effects: &mut Vec<Effect<Ack>>) {
        self.flushed_end = self.flushed_end.max(up_to);
        self.settle(effects);
    }

    pub(crate) fn on_follower_fetched(
        &mut self,
        follower: BrokerId,
        log_end_offset: Offset,
        effects: &mut Vec<Effect<Ack>>,
    ) {
        let known = self
            .followers
            .iter_mut()
            .find(|known| known.broker_id == follower);
        // A broker that is no replica (any more) reads as a consumer would: it moves nothing.
        if let Some(known) = known {
            known.log_end_offset = log_end_offset;
            self.advance_high_watermark(effects);
            self.release_due(effects);
        }
    }

    pub(crate) fn on_clock_ticked(&mut self, now_ms: u64, effects: &mut Vec<Effect<Ack>>) {
        for queue in [
            &mut self.awaiting_settled,
            &mut self.awaiting_high_watermark,
        ] {
            // Deadlines do not follow the order of the offsets.
            for _ in 0..queue.len() {
                let Some(parked) = queue.pop_front() else {
                    break;
                };
                if parked.deadline_ms > now_ms {
                    queue.push_back(parked);
                } else {
                    effects.push(Effect::ReleaseAck {
                        ack: parked.ack,
                        outcome: AckOutcome::RequestTimedOut,
                    });
                }
            }
        }
    }

    /// Ends the leadership: everybody who waits is told `outcome`.
    pub(crate) fn release_all(self, outcome: AckOutcome, effects: &mut Vec<Effect<Ack>>) {
        let parked = self.awaiting_high_watermark.into_iter();
        let parked = parked.chain(self.awaiting_settled).chain(self.writing);
        for parked in parked {
            effects.push(Effect::ReleaseAck {
                ack: parked.ack,
                outcome,
            });
        }
    }

    /// `Partition.effectiveMinIsr`: a topic with fewer replicas than `min.insync.replicas` needs all.
    fn effective_min_isr(&self) -> usize {
        let replicas = self.leadership.replicas.len();
        self.leadership.settings.min_insync_replicas.min(replicas)
    }

    fn is_under_min_isr(&self) -> bool {
        self.leadership.isr.len() < self.effective_min_isr()
    }

    /// Keeps one entry for each other replica.
    fn follow_replicas(&mut self) {
        let replicas = &self.leadership.replicas;
        self.followers
            .retain(|follower| replicas.contains(&follower.broker_id));
        for &broker_id in replicas {
            let is_known = self.followers.iter().any(|f| f.broker_id == broker_id);
            if broker_id != self.broker_id && !is_known {
                self.followers.push(Follower {
                    broker_id,
                    log_end_offset: Offset::UNKNOWN,
                });
            }
        }
    }

    /// Moves `settled_end`: to the end of the file when no flush is under way, else to what is flushed.
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
        if self.is_under_min_isr() {
            return;
        }
        let mut high_watermark = self.settled_end;
        for follower in &self.followers {
            if self.leadership.isr.contains(&follower.broker_id) {
                high_watermark = high_watermark.min(follower.log_end_offset);
            }
        }
        if high_watermark > self.high_watermark {
            self.high_watermark = high_watermark;
            effects.push(Effect::AdvanceHighWatermark { high_watermark });
        }
    }

    /// Puts an acknowledgement behind all that wait for the same end or an earlier one.
    fn park(&mut self, parked: Parked<Ack>) {
        let queue = match parked.required_acks {
            RequiredAcks::None | RequiredAcks::Leader => &mut self.awaiting_settled,
            RequiredAcks::All => &mut self.awaiting_high_watermark,
        };
        let place = queue.partition_point(|waiting| waiting.until <= parked.until);
        queue.insert(place, parked);
    }

    fn release_due(&mut self, effects: &mut Vec<Effect<Ack>>) {
        let settled_end = self.settled_end;
        while let Some(parked) = self
            .awaiting_settled
            .pop_front_if(|parked| parked.until <= settled_end)
        {
            effects.push(Effect::ReleaseAck {
                ack: parked.ack,
                outcome: parked.outcome,
            });
        }
        let is_under_min_isr = self.is_under_min_isr();
        let high_watermark = self.high_watermark;
        while let Some(parked) = self
            .awaiting_high_watermark
            .pop_front_if(|parked| parked.until <= high_watermark)
        {
            let is_success = parked.outcome.error_code() == ErrorCode::None;
            let outcome = if is_success && is_under_min_isr {
                AckOutcome::NotEnoughReplicasAfterAppend
            } else {
                parked.outcome
            };
            effects.push(Effect::ReleaseAck {
                ack: parked.ack,
                outcome,
            });
        }
    }
}
