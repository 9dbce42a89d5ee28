//! One replica: in which role it is, and the step that turns an event into effects.

use ottla_types::{BrokerId, ErrorCode, LeaderEpoch, Offset};

use crate::leader::Leader;
use crate::{AckOutcome, Effect, Event};

/// One replica of a partition on one broker.
#[derive(Debug)]
pub struct Replica<Ack> {
    broker_id: BrokerId,
    role: Role<Ack>,
    /// Exclusive end of what the file holds; moved by `LogWritten`.
    log_end_offset: Offset,
    /// Exclusive end of what consumers may read.
    high_watermark: Offset,
}

#[derive(Debug)]
enum Role<Ack> {
    Leader(Box<Leader<Ack>>),
    Follower {
        leader: BrokerId,
        leader_epoch: LeaderEpoch,
    },
    /// No role was given yet.
    Offline,
    /// The log is gone. No event leads out of this: whatever the metadata says, nothing may be
    /// acknowledged into a directory that failed. A restart begins with a new replica.
    Lost,
}

impl<Ack> Replica<Ack> {
    /// A replica whose log ends at `log_end_offset`, before the metadata has given it a role. The high
    /// watermark is the one of the checkpoint, and cannot lie beyond the end.
    pub fn new(broker_id: BrokerId, log_end_offset: Offset, high_watermark: Offset) -> Self {
        Replica {
            broker_id,
            role: Role::Offline,
            log_end_offset,
            high_watermark: high_watermark.min(log_end_offset),
        }
    }

    pub fn log_end_offset(&self) -> Offset {
        self.log_end_offset
    }

    /// The offset that the next append gets, behind those that are being written.
    pub fn next_offset(&self) -> Offset {
        match &self.role {
            Role::Leader(leader) => leader.next_offset(),
            Role::Follower { .. } | Role::Offline | Role::Lost => self.log_end_offset,
        }
    }

    pub fn high_watermark(&self) -> Offset {
        self.high_watermark
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
            Role::Leader(_) => self.broker_id,
            Role::Follower { leader, .. } => *leader,
            Role::Offline | Role::Lost => BrokerId::NONE,
        }
    }

    pub fn leader_epoch(&self) -> LeaderEpoch {
        match &self.role {
            Role::Leader(leader) => leader.leader_epoch(),
            Role::Follower { leader_epoch, .. } => *leader_epoch,
            Role::Offline | Role::Lost => LeaderEpoch::UNKNOWN,
        }
    }

    /// When the first parked acknowledgement gives up, if one waits.
    pub fn next_deadline_ms(&self) -> Option<u64> {
        match &self.role {
            Role::Leader(leader) => leader.next_deadline_ms(),
            Role::Follower { .. } | Role::Offline | Role::Lost => None,
        }
    }

    /// Whether a request that names a leader epoch means the one in force (KIP-320). A request that
    /// names none is taken.
    pub fn check_leader_epoch(&self, named: Option<LeaderEpoch>) -> Result<(), ErrorCode> {
        check_leader_epoch(self.leader_epoch(), named)
    }

    /// Takes one event; what has to be done is added to `effects`.
    pub fn step(&mut self, event: Event<Ack>, effects: &mut Vec<Effect<Ack>>) {
        match event {
            Event::LeaderElected(leadership) => match &mut self.role {
                Role::Leader(leader) => leader.on_registration_changed(leadership, effects),
                Role::Follower { .. } | Role::Offline => {
                    self.role = Role::Leader(Box::new(Leader::elected(
                        self.broker_id,
                        leadership,
                        self.log_end_offset,
                        self.high_watermark,
                        effects,
                    )));
                }
                Role::Lost => {}
            },
            Event::SettingsChanged(settings) => self.on_leader(effects, |leader, effects| {
                leader.on_settings_changed(settings, effects)
            }),
            Event::FollowerOf {
                leader,
                leader_epoch,
            } => {
                let follower = Role::Follower {
                    leader,
                    leader_epoch,
                };
                self.resign(follower, AckOutcome::NotLeader, effects);
            }
            Event::LogLost => self.resign(Role::Lost, AckOutcome::StorageError, effects),
            Event::Append(append) => match &mut self.role {
                Role::Leader(leader) => leader.on_append(append, effects),
                Role::Follower { .. } | Role::Offline => effects.push(Effect::ReleaseAck {
                    ack: append.ack,
                    outcome: AckOutcome::NotLeader,
                }),
                Role::Lost => effects.push(Effect::ReleaseAck {
                    ack: append.ack,
                    outcome: AckOutcome::StorageError,
                }),
            },
            Event::LogWritten { log_end_offset } => {
                assert!(
                    log_end_offset >= self.log_end_offset,
                    "a write moved the log end from {} back to {log_end_offset}",
                    self.log_end_offset
                );
                self.log_end_offset = log_end_offset;
                self.on_leader(effects, |leader, effects| {
                    leader.on_log_written(log_end_offset, effects)
                });
            }
            Event::WriteRefused { log_end_offset } => {
                self.log_end_offset = log_end_offset;
                self.on_leader(effects, |leader, effects| {
                    leader.on_write_refused(log_end_offset, effects)
                });
            }
            Event::Flushed { up_to } => {
                self.on_leader(effects, |leader, effects| leader.on_flushed(up_to, effects));
            }
            Event::FollowerFetched {
                follower,
                log_end_offset,
            } => self.on_leader(effects, |leader, effects| {
                leader.on_follower_fetched(follower, log_end_offset, effects)
            }),
            Event::ClockTicked { now_ms } => {
                self.on_leader(effects, |leader, effects| {
                    leader.on_clock_ticked(now_ms, effects)
                });
            }
        }
        if let Role::Leader(leader) = &self.role {
            self.high_watermark = leader.high_watermark();
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
            Role::Follower { .. } | Role::Offline | Role::Lost => {}
        }
    }

    fn resign(&mut self, role: Role<Ack>, outcome: AckOutcome, effects: &mut Vec<Effect<Ack>>) {
        if self.is_lost() {
            return;
        }
        if let Role::Leader(leader) = std::mem::replace(&mut self.role, role) {
            leader.release_all(outcome, effects);
        }
    }
}

pub(crate) fn check_leader_epoch(
    in_force: LeaderEpoch,
    named: Option<LeaderEpoch>,
) -> Result<(), ErrorCode> {
    match named {
        None => Ok(()),
        Some(named) if named < in_force => Err(ErrorCode::FencedLeaderEpoch),
        Some(named) if named > in_force => Err(ErrorCode::UnknownLeaderEpoch),
        Some(_) => Ok(()),
    }
}
