//! One replica: its role, and the step from an event to effects.

use std::sync::Arc;

use ottla_types::{BrokerId, ErrorCode, LeaderEpoch, Offset, PartitionEpoch};

use crate::follower::Follower;
use crate::leader::Leader;
use crate::log_state::LogState;
use crate::registration::check_leader_epoch;
use crate::{
    AckOutcome, Effect, Event, FetchRefusal, FollowerFetch, ReadCandidate, ReplicaConfig,
    ReplicaSettings,
};

/// One replica of a partition on one broker.
#[derive(Debug)]
pub struct Replica<Ack> {
    /// Shared by the replicas of a broker.
    config: Arc<ReplicaConfig>,
    role: Role<Ack>,
    log: LogState,
}

#[derive(Debug)]
enum Role<Ack> {
    Leader(Box<Leader<Ack>>),
    Follower(Box<Follower>),
    /// No role has been assigned yet.
    Offline,
    /// The log is gone. No event leaves this state: whatever the metadata says, nothing may be
    /// acknowledged into a failed directory. A restart creates a new replica.
    Lost,
}

impl<Ack> Replica<Ack> {
    /// A replica without a role, whose log ends at `log_end_offset` with records of `latest_epoch`
    /// and is on disk below `recovery_point`. The high watermark is that of the checkpoint, limited
    /// to the log end offset.
    pub fn new(
        config: impl Into<Arc<ReplicaConfig>>,
        log_end_offset: Offset,
        high_watermark: Offset,
        recovery_point: Offset,
        latest_epoch: Option<LeaderEpoch>,
    ) -> Self {
        Replica {
            config: config.into(),
            role: Role::Offline,
            log: LogState {
                log_end_offset,
                high_watermark: high_watermark.min(log_end_offset),
                flushed_end: recovery_point.min(log_end_offset),
                latest_epoch,
                doubtful_from: Offset(i64::MAX),
            },
        }
    }

    /// Has the replica fetch again from this offset on when it follows a leader that answers: a crash
    /// may have taken records there, though later ones are in the log. A leader keeps what it has.
    #[must_use]
    pub fn doubtful_from(mut self, offset: Option<Offset>) -> Self {
        self.log.doubtful_from = offset.unwrap_or(Offset(i64::MAX));
        self
    }

    /// Whether a follower has yet to fetch again what a crash may have taken.
    pub fn is_in_doubt(&self) -> bool {
        self.log.is_in_doubt()
    }

    pub fn log_end_offset(&self) -> Offset {
        self.log.log_end_offset
    }

    /// The offset of the next append, after those being written.
    pub fn next_offset(&self) -> Offset {
        match &self.role {
            Role::Leader(leader) => leader.next_offset(),
            Role::Follower(_) | Role::Offline | Role::Lost => self.log.log_end_offset,
        }
    }

    pub fn high_watermark(&self) -> Offset {
        self.log.high_watermark
    }

    pub fn is_leader(&self) -> bool {
        matches!(self.role, Role::Leader(_))
    }

    /// Whether the log was lost.
    pub fn is_lost(&self) -> bool {
        matches!(self.role, Role::Lost)
    }

    /// The leader, as far as this replica knows.
    pub fn leader(&self) -> BrokerId {
        match &self.role {
            Role::Leader(_) => self.config.broker_id,
            Role::Follower(follower) => follower.leader(),
            Role::Offline | Role::Lost => BrokerId::NONE,
        }
    }

    pub fn leader_epoch(&self) -> LeaderEpoch {
        match &self.role {
            Role::Leader(leader) => leader.leader_epoch(),
            Role::Follower(follower) => follower.leader_epoch(),
            Role::Offline | Role::Lost => LeaderEpoch::UNKNOWN,
        }
    }

    /// The partition epoch of the newest known registration, from the metadata or from the
    /// controller's response.
    pub fn partition_epoch(&self) -> PartitionEpoch {
        match &self.role {
            Role::Leader(leader) => leader.partition_epoch(),
            Role::Follower(follower) => follower.partition_epoch(),
            Role::Offline | Role::Lost => PartitionEpoch(-1),
        }
    }

    /// When `ClockTicked` is needed: a parked acknowledgement times out, or a fetch is retried.
    pub fn next_deadline_ms(&self) -> Option<u64> {
        match &self.role {
            Role::Leader(leader) => leader.next_deadline_ms(),
            Role::Follower(follower) => follower.next_deadline_ms(),
            Role::Offline | Role::Lost => None,
        }
    }

    /// Gives the memory of empty queues back. To be called now and then: an append needs it again.
    pub fn free_room(&mut self) {
        if let Role::Leader(leader) = &mut self.role {
            leader.free_room();
        }
    }

    /// Checks the leader epoch of a request against the current one (KIP-320); `None` is accepted.
    pub fn check_leader_epoch(&self, named: Option<LeaderEpoch>) -> Result<(), ErrorCode> {
        check_leader_epoch(self.leader_epoch(), named)
    }

    /// Checks whether a follower's fetch can be served; otherwise returns the error or the point of
    /// divergence. To be called before `Event::FollowerFetched`, which has no result.
    pub fn check_follower_fetch(&self, fetch: &FollowerFetch) -> Result<(), FetchRefusal> {
        match &self.role {
            Role::Leader(leader) => leader.check_follower_fetch(fetch),
            Role::Follower(_) | Role::Offline => {
                self.check_leader_epoch(fetch.leader_epoch)
                    .map_err(FetchRefusal::Error)?;
                Err(FetchRefusal::Error(ErrorCode::NotLeaderOrFollower))
            }
            Role::Lost => Err(FetchRefusal::Error(ErrorCode::KafkaStorageError)),
        }
    }

    /// The committed ISR; empty if this replica does not lead.
    pub fn isr(&self) -> &[BrokerId] {
        match &self.role {
            Role::Leader(leader) => leader.isr().committed(),
            Role::Follower(_) | Role::Offline | Role::Lost => &[],
        }
    }

    /// The start offset of this leader's epoch. While the high watermark is below it, the leader
    /// does not know what its predecessor had committed, and ListOffsets returns
    /// `OFFSET_NOT_AVAILABLE` to consumers.
    pub fn leader_epoch_start_offset(&self) -> Option<Offset> {
        match &self.role {
            Role::Leader(leader) => Some(leader.leader_epoch_start_offset()),
            Role::Follower(_) | Role::Offline | Role::Lost => None,
        }
    }

    /// The smallest log start offset of the live replicas, which DeleteRecords waits for and
    /// returns (`Partition.lowWatermarkIfLeader`). `None` if this replica does not lead.
    pub fn low_watermark(&self, log_start_offset: Offset) -> Option<Offset> {
        match &self.role {
            Role::Leader(leader) => {
                let of_followers = leader.low_watermark_of_followers();
                Some(of_followers.map_or(log_start_offset, |of| of.min(log_start_offset)))
            }
            Role::Follower(_) | Role::Offline | Role::Lost => None,
        }
    }

    /// The followers that a consumer may read from at this offset, for `select_read_replica`. Only
    /// in-sync replicas: a consumer of a lagging one would be redirected back and forth.
    pub fn read_candidates(
        &self,
        fetch_offset: Offset,
        now_ms: u64,
    ) -> impl Iterator<Item = ReadCandidate> {
        let leader = match &self.role {
            Role::Leader(leader) => Some(leader),
            Role::Follower(_) | Role::Offline | Role::Lost => None,
        };
        leader.into_iter().flat_map(move |leader| {
            let followers = leader.followers().iter().filter(move |follower| {
                leader.isr().contains(follower.broker_id)
                    && follower.log_end_offset >= fetch_offset
                    && follower.log_start_offset <= fetch_offset
            });
            followers.map(move |follower| ReadCandidate {
                broker_id: follower.broker_id,
                log_end_offset: follower.log_end_offset,
                ms_since_caught_up: follower.ms_since_caught_up(now_ms).unwrap_or(u64::MAX),
            })
        })
    }

    /// The follower's lag behind the leader's high watermark at the last fetch response, in
    /// records.
    pub fn fetch_lag(&self) -> Option<i64> {
        match &self.role {
            Role::Follower(follower) => follower.lag(),
            Role::Leader(_) | Role::Offline | Role::Lost => None,
        }
    }

    /// Whether the follower was fenced and waits for metadata with the newer leader epoch.
    pub fn has_failed_fetching(&self) -> bool {
        matches!(&self.role, Role::Follower(follower) if follower.has_failed())
    }

    /// Processes one event and appends the resulting effects to `effects`.
    pub fn step(&mut self, event: Event<Ack>, effects: &mut Vec<Effect<Ack>>) {
        let is_truncating = matches!(&self.role, Role::Follower(f) if f.is_truncating());
        assert!(
            !is_truncating || is_allowed_while_truncating(&event),
            "something came between the truncation of a log and its end"
        );
        match event {
            Event::LeaderElected { leadership, now_ms } => {
                self.on_leader_elected(leadership, now_ms, effects);
            }
            Event::FollowerOf {
                leader,
                leader_epoch,
                partition_epoch,
                settings,
            } => self.on_follower_of(leader, leader_epoch, partition_epoch, settings, effects),
            Event::SettingsChanged(settings) => match &mut self.role {
                Role::Leader(leader) => leader.on_settings_changed(settings, effects),
                Role::Follower(follower) => follower.set_settings(settings),
                Role::Offline | Role::Lost => {}
            },
            Event::BrokersChanged(brokers) => self.on_leader(effects, |leader, effects| {
                leader.on_brokers_changed(&brokers, effects)
            }),
            Event::LogLost => self.resign(Role::Lost, AckOutcome::StorageError, effects),
            Event::Append(append) => match &mut self.role {
                Role::Leader(leader) => leader.on_append(append, effects),
                Role::Follower(_) | Role::Offline => effects.push(Effect::ReleaseAck {
                    ack: append.ack,
                    outcome: AckOutcome::NotLeader,
                }),
                Role::Lost => effects.push(Effect::ReleaseAck {
                    ack: append.ack,
                    outcome: AckOutcome::StorageError,
                }),
            },
            Event::LogWritten { log_end_offset } => self.on_log_written(log_end_offset, effects),
            Event::WriteRefused { log_end_offset } => {
                self.log.log_end_offset = log_end_offset;
                match &mut self.role {
                    Role::Leader(leader) => leader.on_write_refused(log_end_offset, effects),
                    Role::Follower(follower) => follower.on_write_refused(&mut self.log, effects),
                    Role::Offline | Role::Lost => {}
                }
            }
            Event::Flushed { up_to } => self.on_flushed(up_to, effects),
            Event::FollowerFetched(fetch) => self.on_leader(effects, |leader, effects| {
                leader.on_follower_fetch(&fetch, effects)
            }),
            Event::PartitionAltered { proposal, result } => {
                self.on_leader(effects, |leader, effects| {
                    leader.on_partition_altered(&proposal, result, effects)
                });
            }
            Event::FetchAnswered {
                order,
                result,
                now_ms,
            } => {
                if let Role::Follower(follower) = &mut self.role {
                    follower.on_fetch_answered(&order, result, now_ms, &mut self.log, effects);
                }
            }
            Event::LeaderOffsetsListed {
                leader_epoch,
                result,
                now_ms,
            } => {
                if let Role::Follower(follower) = &mut self.role {
                    let log = &self.log;
                    follower.on_leader_offsets_listed(leader_epoch, result, now_ms, log, effects);
                }
            }
            Event::RemoteStateFetched {
                leader_epoch,
                result,
                now_ms,
            } => {
                if let Role::Follower(follower) = &mut self.role {
                    let log = &self.log;
                    follower.on_remote_state_fetched(leader_epoch, result, now_ms, log, effects);
                }
            }
            Event::LogTruncated {
                log_start_offset,
                log_end_offset,
                latest_epoch,
            } => {
                self.log.log_end_offset = log_end_offset;
                self.log.flushed_end = self.log.flushed_end.min(log_end_offset);
                self.log.latest_epoch = latest_epoch;
                // In doubt, a follower truncates nothing but what is doubtful.
                self.log.doubtful_from = Offset(i64::MAX);
                let high_watermark = self.log.high_watermark.max(log_start_offset);
                self.log.high_watermark = high_watermark.min(log_end_offset);
                if let Role::Follower(follower) = &mut self.role {
                    follower.on_log_truncated(&mut self.log, effects);
                }
            }
            Event::TruncationRefused => {
                if let Role::Follower(follower) = &mut self.role {
                    follower.on_truncation_refused();
                }
            }
            Event::ClockTicked { now_ms } => match &mut self.role {
                Role::Leader(leader) => leader.on_clock_ticked(now_ms, effects),
                Role::Follower(follower) => follower.on_clock_ticked(now_ms, &self.log, effects),
                Role::Offline | Role::Lost => {}
            },
        }
        if let Role::Leader(leader) = &self.role {
            self.log.high_watermark = leader.high_watermark();
            self.log.latest_epoch = Some(leader.leader_epoch());
        }
    }

    fn on_leader_elected(
        &mut self,
        leadership: crate::Leadership,
        now_ms: u64,
        effects: &mut Vec<Effect<Ack>>,
    ) {
        match &mut self.role {
            Role::Leader(leader) => leader.on_registration_changed(leadership, now_ms, effects),
            Role::Follower(follower) if leadership.partition_epoch < follower.partition_epoch() => {
            }
            Role::Follower(_) | Role::Offline => {
                if matches!(self.role, Role::Follower(_)) {
                    effects.push(Effect::StopFetching);
                }
                self.log.doubtful_from = Offset(i64::MAX);
                self.role = Role::Leader(Box::new(Leader::elected(
                    Arc::clone(&self.config),
                    leadership,
                    &self.log,
                    now_ms,
                    effects,
                )));
            }
            Role::Lost => {}
        }
    }

    fn on_follower_of(
        &mut self,
        leader: BrokerId,
        leader_epoch: LeaderEpoch,
        partition_epoch: PartitionEpoch,
        settings: ReplicaSettings,
        effects: &mut Vec<Effect<Ack>>,
    ) {
        if self.is_lost() || partition_epoch < self.partition_epoch() {
            return;
        }
        if let Role::Follower(follower) = &mut self.role {
            if leader_epoch <= follower.leader_epoch() {
                follower.set_partition_epoch(partition_epoch);
                return;
            }
            if leader == BrokerId::NONE {
                effects.push(Effect::StopFetching);
            }
        }
        if let Role::Leader(leader) = std::mem::replace(&mut self.role, Role::Offline) {
            leader.release_all(AckOutcome::NotLeader, effects);
        }
        self.role = Role::Follower(Box::new(Follower::new(
            Arc::clone(&self.config),
            settings,
            leader,
            leader_epoch,
            partition_epoch,
            &self.log,
            effects,
        )));
    }

    fn on_log_written(&mut self, log_end_offset: Offset, effects: &mut Vec<Effect<Ack>>) {
        assert!(
            log_end_offset >= self.log.log_end_offset,
            "a write moved the log end from {} back to {log_end_offset}",
            self.log.log_end_offset
        );
        self.log.log_end_offset = log_end_offset;
        match &mut self.role {
            Role::Leader(leader) => leader.on_log_written(log_end_offset, effects),
            Role::Follower(follower) => follower.on_log_written(&mut self.log, effects),
            Role::Offline | Role::Lost => {}
        }
    }

    fn on_flushed(&mut self, up_to: Offset, effects: &mut Vec<Effect<Ack>>) {
        let flushed_end = self.log.flushed_end.max(up_to);
        self.log.flushed_end = flushed_end.min(self.log.log_end_offset);
        match &mut self.role {
            Role::Leader(leader) => leader.on_flushed(up_to, effects),
            Role::Follower(follower) => follower.on_flushed(&self.log, effects),
            Role::Offline | Role::Lost => {}
        }
    }

    /// Passes an event to the leader. Other roles ignore results of work that an earlier leadership
    /// started.
    fn on_leader(
        &mut self,
        effects: &mut Vec<Effect<Ack>>,
        handle: impl FnOnce(&mut Leader<Ack>, &mut Vec<Effect<Ack>>),
    ) {
        match &mut self.role {
            Role::Leader(leader) => handle(leader, effects),
            Role::Follower(_) | Role::Offline | Role::Lost => {}
        }
    }

    fn resign(&mut self, role: Role<Ack>, outcome: AckOutcome, effects: &mut Vec<Effect<Ack>>) {
        match std::mem::replace(&mut self.role, role) {
            Role::Leader(leader) => leader.release_all(outcome, effects),
            Role::Follower(_) => effects.push(Effect::StopFetching),
            Role::Offline | Role::Lost => {}
        }
    }
}

fn is_allowed_while_truncating<Ack>(event: &Event<Ack>) -> bool {
    match event {
        Event::LogTruncated { .. } | Event::TruncationRefused | Event::LogLost => true,
        // These change nothing: an append is refused, and a follower that truncates ignores the
        // others.
        Event::Append(_)
        | Event::SettingsChanged(_)
        | Event::BrokersChanged(_)
        | Event::FollowerFetched(_)
        | Event::PartitionAltered { .. }
        | Event::Flushed { .. }
        | Event::ClockTicked { .. }
        | Event::FetchAnswered { .. }
        | Event::LeaderOffsetsListed { .. }
        | Event::RemoteStateFetched { .. } => true,
        Event::LeaderElected { .. }
        | Event::FollowerOf { .. }
        | Event::LogWritten { .. }
        | Event::WriteRefused { .. } => false,
    }
}
