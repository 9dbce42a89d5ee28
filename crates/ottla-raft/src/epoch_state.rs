//! The roles of a node within an epoch, but for the leader's, which has a file of its own.
//!
//! A role is a value with what belongs to it and nothing else: who is followed, which votes came in, when it
//! has lasted too long. `Quorum` moves from one to the next.
//!
//! In Kafka: `EpochState`, `UnattachedState`, `ProspectiveState`, `CandidateState`, `FollowerState`,
//! `ResignedState`, `EpochElection`.

use std::collections::{BTreeMap, BTreeSet};

use ottla_types::BrokerId;

use crate::leader_state::LeaderState;
use crate::{ReplicaKey, SnapshotId, VoterEndpoint, VoterSet};

#[derive(Clone, Debug)]
pub(crate) enum EpochState {
    Unattached(UnattachedState),
    Prospective(ProspectiveState),
    Candidate(CandidateState),
    Leader(Box<LeaderState>),
    Follower(FollowerState),
    Resigned(ResignedState),
}

/// What a node is at the moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// Looks for the leader, and if it is a voter waits for its election timeout. May have voted.
    Unattached,
    /// Asks whether it would be voted for (KIP-996).
    Prospective,
    /// Asks for votes.
    Candidate,
    /// Leads the epoch; `is_active` with a committed record of its own.
    Leader { is_active: bool },
    /// Fetches from the leader. As a voter or as an observer.
    Follower,
    /// Led the epoch and does not any more.
    Resigned,
}

#[derive(Clone, Debug)]
pub(crate) struct UnattachedState {
    /// Known without a way to reach it.
    pub leader: Option<BrokerId>,
    pub voted: Option<ReplicaKey>,
    pub election_deadline_ms: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct ProspectiveState {
    pub leader: Option<BrokerId>,
    pub leader_endpoints: Vec<VoterEndpoint>,
    pub voted: Option<ReplicaKey>,
    pub election: EpochElection,
    pub election_deadline_ms: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct CandidateState {
    pub election: EpochElection,
    pub election_deadline_ms: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct FollowerState {
    pub leader: BrokerId,
    /// Never empty.
    pub leader_endpoints: Vec<VoterEndpoint>,
    pub voted: Option<ReplicaKey>,
    /// When the leader counts as lost.
    pub fetch_deadline_ms: u64,
    /// When the voter set is looked at for whether it names this node rightly.
    pub update_voter_set_deadline_ms: u64,
    /// Until then this node may say that it would vote for another.
    pub has_fetched_from_leader: bool,
    /// With `kraft.version` 0, whether the leader was told of this voter's directory and endpoints.
    pub has_updated_leader: bool,
    pub fetching_snapshot: Option<SnapshotDownload>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SnapshotDownload {
    pub snapshot: SnapshotId,
    /// What is there already, in bytes.
    pub position: i64,
}

#[derive(Clone, Debug)]
pub(crate) struct ResignedState {
    /// Those that have not confirmed that they know.
    pub unacked_voters: BTreeSet<BrokerId>,
    pub preferred_successors: Vec<ReplicaKey>,
    pub election_deadline_ms: u64,
}

/// The votes of one election.
#[derive(Clone, Debug)]
pub(crate) struct EpochElection {
    votes: BTreeMap<BrokerId, (ReplicaKey, Option<bool>)>,
}

impl EpochElection {
    /// The election in which `local` votes for itself.
    pub fn new(voters: &VoterSet, local: BrokerId) -> EpochElection {
        let mut election = EpochElection {
            votes: voters
                .voters()
                .map(|voter| (voter.key.id, (voter.key, None)))
                .collect(),
        };
        election.record_vote(local, true);
        election
    }

    /// A voter that has said one thing is not asked again; what others say does not count.
    pub fn record_vote(&mut self, voter: BrokerId, is_granted: bool) {
        if let Some((_, vote @ None)) = self.votes.get_mut(&voter) {
            *vote = Some(is_granted);
        }
    }

    fn majority(&self) -> usize {
        self.votes.len() / 2 + 1
    }

    fn count(&self, wanted: Option<bool>) -> usize {
        self.votes
            .values()
            .filter(|(_, vote)| *vote == wanted)
            .count()
    }

    pub fn is_vote_granted(&self) -> bool {
        self.count(Some(true)) >= self.majority()
    }

    /// Whether no majority can be won any more.
    pub fn is_vote_rejected(&self) -> bool {
        self.count(Some(true)) + self.count(None) < self.majority()
    }

    pub fn unrecorded_voters(&self) -> Vec<ReplicaKey> {
        self.votes
            .values()
            .filter(|(_, vote)| vote.is_none())
            .map(|&(key, _)| key)
            .collect()
    }

    pub fn granting_voters(&self) -> BTreeSet<BrokerId> {
        self.votes
            .iter()
            .filter(|(_, (_, vote))| *vote == Some(true))
            .map(|(&id, _)| id)
            .collect()
    }
}

impl EpochState {
    pub fn role(&self) -> Role {
        match self {
            EpochState::Unattached(_) => Role::Unattached,
            EpochState::Prospective(_) => Role::Prospective,
            EpochState::Candidate(_) => Role::Candidate,
            EpochState::Leader(state) => Role::Leader {
                is_active: state.high_watermark.is_some(),
            },
            EpochState::Follower(_) => Role::Follower,
            EpochState::Resigned(_) => Role::Resigned,
        }
    }

    /// Who leads the epoch, as far as is known.
    pub fn leader(&self, local: BrokerId) -> Option<BrokerId> {
        match self {
            EpochState::Unattached(state) => state.leader,
            EpochState::Prospective(state) => state.leader,
            EpochState::Candidate(_) => None,
            EpochState::Leader(_) | EpochState::Resigned(_) => Some(local),
            EpochState::Follower(state) => Some(state.leader),
        }
    }

    /// Whom this node has voted for in the epoch. A leader voted for itself, which need not be said.
    pub fn voted(&self, local: ReplicaKey) -> Option<ReplicaKey> {
        match self {
            EpochState::Unattached(state) => state.voted,
            EpochState::Prospective(state) => state.voted,
            EpochState::Candidate(_) => Some(local),
            EpochState::Follower(state) => state.voted,
            EpochState::Leader(_) | EpochState::Resigned(_) => None,
        }
    }

    /// Whether a node that asks may have this node's vote, now or with `is_pre_vote` if it asked for it.
    pub fn can_grant_vote(
        &self,
        candidate: ReplicaKey,
        is_log_up_to_date: bool,
        is_pre_vote: bool,
    ) -> bool {
        match self {
            EpochState::Unattached(UnattachedState { leader, voted, .. })
            | EpochState::Prospective(ProspectiveState { leader, voted, .. }) => {
                match (is_pre_vote, voted) {
                    (true, _) => is_log_up_to_date,
                    // It may not have heard the answer, and asks again.
                    (false, Some(voted)) => {
                        voted.id == candidate.id
                            && (voted.directory_id.is_none()
                                || voted.directory_id == candidate.directory_id)
                    }
                    (false, None) => leader.is_none() && is_log_up_to_date,
                }
            }
            EpochState::Candidate(_) | EpochState::Resigned(_) => is_pre_vote && is_log_up_to_date,
            EpochState::Follower(state) => {
                is_pre_vote && !state.has_fetched_from_leader && is_log_up_to_date
            }
            EpochState::Leader(_) => false,
        }
    }
}
