//! One replica: in which role it is, and the step that turns an event into effects.

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
    config: ReplicaConfig,
    role: Role<Ack>,
    log: LogState,
}

#[derive(Debug)]
enum Role<Ack> {
    Leader(Box<Leader<Ack>>),
    Follower(Box<Follower>),
    /// No role was given yet.
    Offline,
    /// The log is gone. No event leads out of this: whatever the metadata says, nothing may be
    /// acknowledged into a directory that failed. A restart begins with a new replica.
    Lost,
}

impl<Ack> Replica<Ack> {
    /// A replica whose log ends at `log_end_offset` with records of `latest_epoch` and is on the disk before
    /// `recovery_point`, before the metadata has given it a role. The high watermark is the one of the checkpoint, and
    /// cannot lie beyond the end.
    pub fn new(
        config: ReplicaConfig,
        log_end_offset: Offset,
        high_watermark: Offset,
        recovery_point: Offset,
        latest_epoch: Option<LeaderEpoch>,
    ) -> Self {
        Replica {
            config,
            role: Role::Offline,
            log: LogState {
                log_end_offset,
                high_watermark: high_watermark.min(log_end_offset),
                flushed_end: recovery_point.min(log_end_offset),
                latest_epoch,
            },
        }
    }

    pub fn log_end_offset(&self) -> Offset {
        self.log.log_end_offset
    }

    /// The offset that the next append gets, behind those that are being written.
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

    /// Whether the log is gone.
    pub fn is_lost(&self) -> bool {
        matches!(self.role, Role::Lost)
    }

    /// The broker that leads, as far as this replica knows.
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

    /// Of the newest registration that is known: from the metadata, or from the controller's answer.
    pub fn partition_epoch(&self) -> PartitionEpoch {
        match &self.role {
            Role::Leader(leader) => leader.partition_epoch(),
            Role::Follower(follower) => follower.partition_epoch(),
            Role::Offline | Role::Lost => PartitionEpoch(-1),
        }
    }

    /// When the clock has to be told: the first parked acknowledgement gives up, or a fetch is tried again.
    pub fn next_deadline_ms(&self) -> Option<u64> {
        match &self.role {
            Role::Leader(leader) => leader.next_deadline_ms(),
            Role::Follower(follower) => follower.next_deadline_ms(),
            Role::Offline | Role::Lost => None,
        }
    }

    /// Whether a request that names a leader epoch means the one in force (KIP-320). A request that
    /// names none is taken.
    pub fn check_leader_epoch(&self, named: Option<LeaderEpoch>) -> Result<(), ErrorCode> {
        check_leader_epoch(self.leader_epoch(), named)
    }

    /// Whether another replica's fetch can be served, and what to answer if not. To be asked before
    /// `Event::FollowerFetched`, which says nothing.
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

    /// The replicas that the controller has committed as in sync; none where this one does not lead.
    pub fn isr(&self) -> &[BrokerId] {
        match &self.role {
            Role::Leader(leader) => leader.isr().committed(),
            Role::Follower(_) | Role::Offline | Role::Lost => &[],
        }
    }

    /// Where this leader's epoch started. While the high watermark lies before it, this leader does not know
    /// what its predecessor had committed, and ListOffsets answers `OFFSET_NOT_AVAILABLE` to consumers.
    pub fn leader_epoch_start_offset(&self) -> Option<Offset> {
        match &self.role {
            Role::Leader(leader) => Some(leader.leader_epoch_start_offset()),
            Role::Follower(_) | Role::Offline | Role::Lost => None,
        }
    }

    /// The offset before which no live replica has records: what a DeleteRecords waits for, and is told
    /// (`Partition.lowWatermarkIfLeader`). `None` where this replica does not lead.
    pub fn low_watermark(&self, log_start_offset: Offset) -> Option<Offset> {
        match &self.role {
            Role::Leader(leader) => {
                let of_followers = leader.low_watermark_of_followers();
                Some(of_followers.map_or(log_start_offset, |of| of.min(log_start_offset)))
            }
            Role::Follower(_) | Role::Offline | Role::Lost => None,
        }
    }

    /// The followers from which a consumer may read at this offset, for `select_read_replica`. Only such as
    /// are in sync: a consumer of one that lags would be sent back and forth.
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

    /// How far a follower was behind the leader's high watermark when it last heard of it.
    pub fn fetch_lag(&self) -> Option<i64> {
        match &self.role {
            Role::Follower(follower) => follower.lag(),
            Role::Leader(_) | Role::Offline | Role::Lost => None,
        }
    }

    /// Whether a follower was fenced and waits for the metadata to tell of the newer leader epoch.
    pub fn has_failed_fetching(&self) -> bool {
        matches!(&self.role, Role::Follower(follower) if follower.has_failed())
    }

    /// Takes one event; what has to be done is added to `effects`.
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
            Event::LogTruncated {
                log_start_offset,
                log_end_offset,
                latest_epoch,
            } => {
                self.log.log_end_offset = log_end_offset;
                self.log.flushed_end = self.log.flushed_end.min(log_end_offset);
                self.log.latest_epoch = latest_epoch;
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
                self.role = Role::Leader(Box::new(Leader::elected(
                    self.config,
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
            self.config,
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

    /// Passes an event on if this replica leads. What reports on work that an earlier leadership
    /// started means nothing to another role.
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
        // They change nothing: the first is refused, and the others mean nothing to a follower.
        Event::Append(_)
        | Event::SettingsChanged(_)
        | Event::BrokersChanged(_)
        | Event::FollowerFetched(_)
        | Event::PartitionAltered { .. }
        | Event::Flushed { .. }
        | Event::ClockTicked { .. }
        | Event::FetchAnswered { .. }
        | Event::LeaderOffsetsListed { .. } => true,
        Event::LeaderElected { .. }
        | Event::FollowerOf { .. }
        | Event::LogWritten { .. }
        | Event::WriteRefused { .. } => false,
    }
}
