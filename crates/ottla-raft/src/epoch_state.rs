//! The roles of a node within an epoch, except the leader's, which has its own file.
//!
//! A role is a value with only its own data: the leader, the votes, the timeouts. `Quorum` switches
//! between them.
//!
//! Kafka: `EpochState`, `UnattachedState`, `ProspectiveState`, `CandidateState`, `FollowerState`,
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

/// The current role of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// Looks for the leader; as a voter also waits for its election timeout. May have voted.
    Unattached,
    /// Asks whether it would be elected (KIP-996).
    Prospective,
    /// Asks for votes.
    Candidate,
    /// Leads the epoch; active once a record of its epoch is committed.
    Leader { is_active: bool },
    /// Fetches from the leader, as a voter or as an observer.
    Follower,
    /// Led the epoch and has resigned.
    Resigned,
}

#[derive(Clone, Debug)]
pub(crate) struct UnattachedState {
    /// The leader, known without its endpoints.
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
    /// When to check that the voter set describes this node correctly.
    pub update_voter_set_deadline_ms: u64,
    /// Whether it has fetched from the leader; until then it may grant pre-votes.
    pub has_fetched_from_leader: bool,
    /// With `kraft.version` 0, whether this voter has sent its directory and endpoints to the
    /// leader.
    pub has_updated_leader: bool,
    pub fetching_snapshot: Option<SnapshotDownload>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SnapshotDownload {
    pub snapshot: SnapshotId,
    /// Number of bytes received so far.
    pub position: i64,
}

#[derive(Clone, Debug)]
pub(crate) struct ResignedState {
    /// Voters that have not acknowledged the leader's end yet.
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

    /// Records a vote. Later answers of the same voter, and answers of non-voters, do not count.
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

    /// Whether a majority is no longer possible.
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

    /// Whether the node has voted for another in this epoch, and does not know its leader.
    pub fn has_voted(&self) -> bool {
        match self {
            EpochState::Unattached(state) => state.voted.is_some(),
            EpochState::Prospective(state) => state.voted.is_some(),
            EpochState::Candidate(_)
            | EpochState::Leader(_)
            | EpochState::Follower(_)
            | EpochState::Resigned(_) => false,
        }
    }

    /// The leader of the epoch, if known.
    pub fn leader(&self, local: BrokerId) -> Option<BrokerId> {
        match self {
            EpochState::Unattached(state) => state.leader,
            EpochState::Prospective(state) => state.leader,
            EpochState::Candidate(_) => None,
            EpochState::Leader(_) | EpochState::Resigned(_) => Some(local),
            EpochState::Follower(state) => Some(state.leader),
        }
    }

    /// This node's vote in the epoch. A leader's vote for itself is not recorded separately.
    pub fn voted(&self, local: ReplicaKey) -> Option<ReplicaKey> {
        match self {
            EpochState::Unattached(state) => state.voted,
            EpochState::Prospective(state) => state.voted,
            EpochState::Candidate(_) => Some(local),
            EpochState::Follower(state) => state.voted,
            EpochState::Leader(_) | EpochState::Resigned(_) => None,
        }
    }

    /// Whether this node can vote for the requester; with `is_pre_vote`, whether it would.
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
                    // It may have missed the response and asks again.
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
