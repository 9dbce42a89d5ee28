//! The state machine of one node of the quorum.
//!
//! Owns the election state, the role, the voter set and the high watermark. Every event returns effects;
//! the shell carries them out in order, and nothing that a later effect relies on may happen before an
//! earlier one is done. An append is answered by an event: `on_log_flushed`, once it is on disk.
//!
//! Invariants:
//! 1. No vote and no leadership is acted on before it is in `quorum-state`.
//! 2. The high watermark never passes what is flushed, and does not move before a record of the
//!    leader's own epoch is flushed, so that it covers what earlier leaders committed.
//! 3. Every start raises the epoch: a record is named by its offset and epoch, and what was written but
//!    not flushed before a crash may be gone.
//!
//! In Kafka: `QuorumState`, `LeaderState`, and the parts of `KafkaRaftClient` that act on them.

use std::collections::BTreeSet;

use ottla_protocol::raft_records::{KRaftVersionRecord, LeaderChangeMessage, VotersRecord};
use ottla_types::{BrokerId, LeaderEpoch, Offset};

use crate::{ElectionState, KRaftVersion, ReplicaKey, Voter, VoterSet};

/// The end of the log: the next offset, and the epoch of the record before it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogEnd {
    pub offset: Offset,
    pub epoch: LeaderEpoch,
}

/// What a node starts with.
#[derive(Clone, PartialEq, Debug)]
pub struct QuorumOptions {
    /// This node as a voter: key, endpoints of its controller listeners, supported versions.
    pub local: Voter,
    pub kraft_version: KRaftVersion,
    /// With `kraft.version` 1 the last set in snapshot and log, else the configured one.
    pub voters: VoterSet,
    /// Whether `voters` stands in the log or in a snapshot of it, as opposed to the bootstrap snapshot
    /// or the configuration. A set that the log does not hold yet is written by the first leader.
    pub are_voters_in_log: bool,
    /// What `quorum-state` says, if the file exists.
    pub election: Option<ElectionState>,
    pub log_end: LogEnd,
}

#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum QuorumError {
    #[error("node {0} is not one of the voters of the metadata quorum")]
    NotAVoter(BrokerId),
    #[error(
        "the metadata quorum has {0} voters; this release leads a quorum of one: \
         give controller.quorum.voters one entry, or format with --standalone"
    )]
    MoreThanOneVoter(usize),
    #[error("the last epoch of the metadata log is {0}, and there is none after it")]
    NoEpochLeft(LeaderEpoch),
}

/// A control record of the metadata log.
#[derive(Clone, PartialEq, Debug)]
pub enum ControlRecord {
    LeaderChange(LeaderChangeMessage),
    KRaftVersion(KRaftVersionRecord),
    Voters(VotersRecord),
}

/// What the shell has to do.
#[derive(Clone, PartialEq, Debug)]
pub enum Effect {
    /// Write `quorum-state` durably.
    PersistElectionState(ElectionState),
    /// Note in the leader-epoch checkpoint that `epoch` begins at `start_offset`, then append the
    /// records as one control batch, flush, and call `on_log_flushed`.
    StartEpoch {
        epoch: LeaderEpoch,
        start_offset: Offset,
        records: Vec<ControlRecord>,
    },
    /// Everything below is committed: it may be applied and answered.
    AdvanceHighWatermark(Offset),
    /// This node leads and everything of earlier epochs is committed: requests may be served.
    ActivateLeader(LeaderEpoch),
}

/// What the node is at the moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// Neither votes nor leads yet.
    Unattached,
    /// Leads the current epoch.
    Leader {
        /// Where the leader's own records begin.
        epoch_start_offset: Offset,
        /// Whether a record of the epoch is committed.
        active: bool,
    },
}

/// One node of the quorum.
#[derive(Clone, Debug)]
pub struct Quorum {
    local: Voter,
    kraft_version: KRaftVersion,
    voters: VoterSet,
    are_voters_in_log: bool,
    election: ElectionState,
    role: Role,
    log_end: LogEnd,
    /// Exclusive; `None` until this leader's epoch has a committed record.
    high_watermark: Option<Offset>,
}

impl Quorum {
    pub fn new(options: QuorumOptions) -> Result<Quorum, QuorumError> {
        let QuorumOptions {
            local,
            kraft_version,
            voters,
            are_voters_in_log,
            election,
            log_end,
        } = options;
        if !voters.is_voter(local.key) {
            return Err(QuorumError::NotAVoter(local.key.id));
        }
        if voters.len() > 1 {
            return Err(QuorumError::MoreThanOneVoter(voters.len()));
        }
        let mut election = election.unwrap_or_else(ElectionState::initial);
        if election.epoch < log_end.epoch {
            // The file was lost or is older than the log: what it says of leader and vote is void.
            election = ElectionState {
                epoch: log_end.epoch,
                ..ElectionState::initial()
            };
        }
        if election.epoch.value() == i32::MAX {
            return Err(QuorumError::NoEpochLeft(election.epoch));
        }
        election.voters = voters
            .voters()
            .map(|voter| voter.key.id)
            .collect::<BTreeSet<_>>();
        Ok(Quorum {
            local,
            kraft_version,
            voters,
            are_voters_in_log,
            election,
            role: Role::Unattached,
            log_end,
            high_watermark: None,
        })
    }

    /// Begins the election. The only voter leads at once: vote and leadership go into `quorum-state`
    /// together, since nobody else could have voted in between.
    pub fn start(&mut self) -> Vec<Effect> {
        self.election.epoch = LeaderEpoch(self.election.epoch.value() + 1);
        self.election.leader = None;
        self.election.voted = Some(self.local.key);
        self.become_leader()
    }

    fn become_leader(&mut self) -> Vec<Effect> {
        let start_offset = self.log_end.offset;
        self.election.leader = Some(self.local.key.id);
        self.role = Role::Leader {
            epoch_start_offset: start_offset,
            active: false,
        };
        vec![
            Effect::PersistElectionState(self.election.clone()),
            Effect::StartEpoch {
                epoch: self.election.epoch,
                start_offset,
                records: self.start_of_epoch_records(),
            },
        ]
    }

    /// The leader's first batch says who leads and, when the log does not say it yet or this node's
    /// endpoints changed, who votes.
    fn start_of_epoch_records(&mut self) -> Vec<ControlRecord> {
        let voters: Vec<_> = self
            .voters
            .voters()
            .map(|voter| voter.key.to_leader_change_voter())
            .collect();
        let mut records = vec![ControlRecord::LeaderChange(LeaderChangeMessage {
            version: 0,
            leader_id: self.local.key.id.value(),
            granting_voters: voters.clone(),
            voters,
            ..Default::default()
        })];
        if !self.kraft_version.is_reconfig_supported() {
            return records;
        }
        let updated = self.voters.updated(&self.local);
        if !self.are_voters_in_log || updated.is_some() {
            if let Some(updated) = updated {
                self.voters = updated;
            }
            self.are_voters_in_log = true;
            records.push(ControlRecord::KRaftVersion(KRaftVersionRecord {
                version: 0,
                kraft_version: self.kraft_version.feature_level(),
                ..Default::default()
            }));
            records.push(ControlRecord::Voters(self.voters.to_record()));
        }
        records
    }

    /// The log is on disk up to `end`, exclusive.
    pub fn on_log_flushed(&mut self, end: Offset) -> Vec<Effect> {
        let Role::Leader {
            epoch_start_offset,
            active,
        } = &mut self.role
        else {
            return Vec::new();
        };
        self.log_end = LogEnd {
            offset: end,
            epoch: self.election.epoch,
        };
        // With one voter the flushed end is what a majority has.
        if end <= *epoch_start_offset || self.high_watermark.is_some_and(|current| end <= current) {
            return Vec::new();
        }
        self.high_watermark = Some(end);
        let mut effects = vec![Effect::AdvanceHighWatermark(end)];
        if !*active {
            *active = true;
            effects.push(Effect::ActivateLeader(self.election.epoch));
        }
        effects
    }

    pub fn role(&self) -> Role {
        self.role
    }

    pub fn epoch(&self) -> LeaderEpoch {
        self.election.epoch
    }

    pub fn leader(&self) -> Option<BrokerId> {
        self.election.leader
    }

    pub fn local_key(&self) -> ReplicaKey {
        self.local.key
    }

    pub fn voters(&self) -> &VoterSet {
        &self.voters
    }

    pub fn kraft_version(&self) -> KRaftVersion {
        self.kraft_version
    }

    pub fn high_watermark(&self) -> Option<Offset> {
        self.high_watermark
    }

    /// What was last reported as flushed.
    pub fn log_end(&self) -> LogEnd {
        self.log_end
    }
}

#[cfg(test)]
mod tests;
