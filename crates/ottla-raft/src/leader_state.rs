//! The leader's view of the other replicas, and the state derived from it: the high watermark,
//! whether a majority still fetches, and the pending change of voters.
//!
//! Invariants:
//! 1. An offset is committed when a majority of the voters has everything before it on disk,
//!    including a record of this epoch, which fences the records of earlier leaders.
//! 2. The high watermark never decreases, not even when the voters change.
//! 3. At most one change of the voters is pending, and none starts before the previous one is
//!    committed.
//!
//! Kafka: `LeaderState`, `LeaderState.ReplicaState`, `AddVoterHandlerState`,
//! `RemoveVoterHandlerState`, `KRaftVersionUpgrade`.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use ottla_types::{BrokerId, Offset};

use crate::planted::{self, Bug};
use crate::{FetchRequest, KRaftVersion, ReplicaKey, RequestId, Voter, VoterEndpoint, VoterSet};

/// Time after which an observer that does not fetch is forgotten, in milliseconds.
const OBSERVER_SESSION_TIMEOUT_MS: u64 = 300_000;
/// To become a voter, a replica must have been at the log end once and have fetched within this
/// time, in milliseconds.
const CAUGHT_UP_WITHIN_MS: u64 = 3_600_000;
/// Maximum number of observers: their keys come from the network.
const MAX_OBSERVERS: usize = 10_000;

/// A Fetch that waits for new records.
#[derive(Clone, Debug)]
pub(crate) struct DelayedFetch {
    pub request_id: RequestId,
    pub request: FetchRequest,
    pub deadline_ms: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct LeaderState {
    local: Voter,
    pub epoch_start_offset: Offset,
    pub granting_voters: BTreeSet<BrokerId>,
    voters: BTreeMap<BrokerId, ReplicaState>,
    observers: BTreeMap<ReplicaKey, ReplicaState>,
    /// Exclusive; `None` until a record of this epoch is committed.
    pub high_watermark: Option<Offset>,
    /// The voters that have fetched since the last restart of the quorum check.
    fetched_voters: BTreeSet<BrokerId>,
    check_quorum_timeout_ms: u64,
    check_quorum_deadline_ms: u64,
    begin_quorum_epoch_timeout_ms: u64,
    pub begin_quorum_epoch_deadline_ms: u64,
    pub is_resign_requested: bool,
    pub pending_change: Option<PendingVoterChange>,
    pub kraft_version_upgrade: KRaftVersionUpgrade,
}

/// The leader's state of one replica.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReplicaState {
    pub key: ReplicaKey,
    pub endpoints: Vec<VoterEndpoint>,
    /// The log end offset that the replica has on disk, exclusive.
    pub end_offset: Option<Offset>,
    /// On the caller's clock, like the next field.
    pub last_fetch_ms: Option<u64>,
    pub last_caught_up_ms: Option<u64>,
    /// The leader's log end offset at that fetch.
    last_fetch_leader_end_offset: Option<Offset>,
}

/// A requested change of the voters that is not committed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct PendingVoterChange {
    pub kind: VoterChange,
    /// The waiting request; `None` once it is answered.
    pub request_id: Option<RequestId>,
    pub deadline_ms: u64,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum VoterChange {
    /// The new voter was asked for its supported versions.
    AddAsked {
        voter: ReplicaKey,
        endpoints: Vec<VoterEndpoint>,
        ack_when_committed: bool,
    },
    /// The record with the new voter is at this offset.
    AddAppended { offset: Offset },
    /// The record without the removed voter is at this offset.
    RemoveAppended { offset: Offset },
}

/// The upgrade of `kraft.version` from 0 to 1 (KIP-853).
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum KRaftVersionUpgrade {
    /// Nothing to do.
    None,
    /// The configured voters, with the data each has reported so far.
    Voters(VoterSet),
    /// Appended in this epoch.
    Requested(KRaftVersion),
}

impl ReplicaState {
    fn new(key: ReplicaKey, endpoints: Vec<VoterEndpoint>) -> ReplicaState {
        ReplicaState {
            key,
            endpoints,
            end_offset: None,
            last_fetch_ms: None,
            last_caught_up_ms: None,
            last_fetch_leader_end_offset: None,
        }
    }

    /// A voter with an unknown directory matches by ID.
    fn matches(&self, key: ReplicaKey) -> bool {
        self.key.id == key.id
            && (self.key.directory_id.is_none() || self.key.directory_id == key.directory_id)
    }

    fn on_fetch(&mut self, now_ms: u64, offset: Offset, leader_end_offset: Offset) {
        if offset >= leader_end_offset {
            self.last_caught_up_ms = self.last_caught_up_ms.max(Some(now_ms));
        } else if self
            .last_fetch_leader_end_offset
            .is_some_and(|end| end > Offset::ZERO && offset >= end)
        {
            // The replica now has all records that the leader had at the replica's previous fetch.
            self.last_caught_up_ms = self.last_caught_up_ms.max(self.last_fetch_ms);
        }
        self.last_fetch_leader_end_offset = Some(leader_end_offset);
        self.last_fetch_ms = self.last_fetch_ms.max(Some(now_ms));
        self.end_offset = Some(offset);
    }
}

impl LeaderState {
    pub fn new(
        local: Voter,
        epoch_start_offset: Offset,
        voters: &VoterSet,
        kraft_version: KRaftVersion,
        granting_voters: BTreeSet<BrokerId>,
        fetch_timeout_ms: u64,
        now_ms: u64,
    ) -> LeaderState {
        let upgrade = if kraft_version.is_reconfig_supported() {
            KRaftVersionUpgrade::None
        } else {
            voters
                .updated_ignoring_directory_id(local.clone())
                .map_or(KRaftVersionUpgrade::None, KRaftVersionUpgrade::Voters)
        };
        // Includes time for a delayed fetch.
        let check_quorum_timeout_ms = fetch_timeout_ms + fetch_timeout_ms / 2;
        LeaderState {
            local,
            epoch_start_offset,
            granting_voters,
            voters: voters
                .voters()
                .map(|voter| {
                    let state = ReplicaState::new(voter.key, voter.endpoints.clone());
                    (voter.key.id, state)
                })
                .collect(),
            observers: BTreeMap::new(),
            high_watermark: None,
            fetched_voters: BTreeSet::new(),
            check_quorum_timeout_ms,
            check_quorum_deadline_ms: now_ms + check_quorum_timeout_ms,
            begin_quorum_epoch_timeout_ms: fetch_timeout_ms / 2,
            begin_quorum_epoch_deadline_ms: now_ms,
            is_resign_requested: false,
            pending_change: None,
            kraft_version_upgrade: upgrade,
        }
    }

    pub fn voter_states(&self) -> impl Iterator<Item = &ReplicaState> {
        self.voters.values()
    }

    pub fn observer_states(&self, now_ms: u64) -> impl Iterator<Item = &ReplicaState> {
        self.observers
            .values()
            .filter(move |state| self.is_active_observer(state, now_ms))
    }

    fn is_active_observer(&self, state: &ReplicaState, now_ms: u64) -> bool {
        state.key == self.local.key
            || state
                .last_fetch_ms
                .is_some_and(|at| now_ms.saturating_sub(at) < OBSERVER_SESSION_TIMEOUT_MS)
    }

    fn replica(&mut self, key: ReplicaKey, now_ms: u64) -> &mut ReplicaState {
        let is_voter = self
            .voters
            .get(&key.id)
            .is_some_and(|state| state.matches(key));
        if is_voter {
            return self.voters.get_mut(&key.id).expect("was found");
        }
        if !self.observers.contains_key(&key) && self.observers.len() >= MAX_OBSERVERS {
            let inactive: Vec<ReplicaKey> = self
                .observers
                .values()
                .filter(|state| !self.is_active_observer(state, now_ms))
                .map(|state| state.key)
                .collect();
            for key in inactive {
                self.observers.remove(&key);
            }
            if self.observers.len() >= MAX_OBSERVERS {
                // All observers are recent: forget the observer whose last fetch is oldest.
                let oldest = self
                    .observers
                    .values()
                    .filter(|state| state.key != self.local.key)
                    .min_by_key(|state| state.last_fetch_ms)
                    .map(|state| state.key);
                self.observers.remove(&oldest.expect("there are many"));
            }
        }
        self.observers
            .entry(key)
            .or_insert_with(|| ReplicaState::new(key, Vec::new()))
    }

    /// The leader's own log is on disk up to `flushed_offset`. Returns whether the high watermark
    /// advanced.
    pub fn on_local_flush(&mut self, flushed_offset: Offset, now_ms: u64) -> bool {
        let key = self.local.key;
        self.replica(key, now_ms).end_offset = Some(flushed_offset);
        self.update_high_watermark()
    }

    /// A replica fetches from `offset`, so it has everything before. Returns whether the high
    /// watermark advanced.
    pub fn on_fetch(
        &mut self,
        key: ReplicaKey,
        offset: Offset,
        leader_end_offset: Offset,
        now_ms: u64,
    ) -> bool {
        self.replica(key, now_ms)
            .on_fetch(now_ms, offset, leader_end_offset);
        self.update_check_quorum(key, now_ms);
        self.is_voter(key) && self.update_high_watermark()
    }

    fn is_voter(&self, key: ReplicaKey) -> bool {
        self.voters
            .get(&key.id)
            .is_some_and(|state| state.matches(key))
    }

    fn update_high_watermark(&mut self) -> bool {
        let mut ends: Vec<Option<Offset>> =
            self.voters.values().map(|state| state.end_offset).collect();
        // An unknown end sorts as the smallest.
        ends.sort_by_key(|end| Reverse(*end));
        let Some(Some(replicated)) = ends.get(ends.len() / 2).copied() else {
            return false;
        };
        // After a voter was added, a majority may have less than the high watermark, which does not
        // decrease.
        let is_news = self
            .high_watermark
            .is_none_or(|current| replicated > current);
        let has_record_of_epoch =
            replicated > self.epoch_start_offset || planted::has(Bug::CommitEarlierEpochs);
        if is_news && has_record_of_epoch {
            self.high_watermark = Some(replicated);
        }
        is_news && has_record_of_epoch
    }

    /// A voter fetched, possibly a snapshot. The quorum check restarts when a majority has.
    pub fn update_check_quorum(&mut self, key: ReplicaKey, now_ms: u64) {
        if self.is_voter(key) {
            self.fetched_voters.insert(key.id);
        }
        let mut majority = self.voters.len() / 2 + 1;
        if self.voters.contains_key(&self.local.key.id) {
            // The leader counts as having fetched.
            majority -= 1;
        }
        if self.fetched_voters.len() >= majority {
            self.fetched_voters.clear();
            self.check_quorum_deadline_ms = now_ms + self.check_quorum_timeout_ms;
        }
    }

    /// When the leader must resign unless a majority fetches before.
    pub fn check_quorum_deadline_ms(&self) -> u64 {
        match self.voters.len() {
            1 => u64::MAX,
            _ => self.check_quorum_deadline_ms,
        }
    }

    pub fn reset_begin_quorum_epoch_timer(&mut self, now_ms: u64) {
        self.begin_quorum_epoch_deadline_ms = now_ms + self.begin_quorum_epoch_timeout_ms;
    }

    /// Voters that have not fetched for a while and may not know the leader.
    pub fn need_begin_quorum_epoch(&self, now_ms: u64) -> Vec<ReplicaKey> {
        self.voters
            .values()
            .filter(|state| {
                state.key.id != self.local.key.id
                    && state.last_fetch_ms.is_none_or(|at| {
                        now_ms.saturating_sub(at) >= self.begin_quorum_epoch_timeout_ms
                    })
            })
            .map(|state| state.key)
            .collect()
    }

    /// The other voters, those with the longest log first.
    pub fn successors(&self) -> Vec<ReplicaKey> {
        let mut others: Vec<&ReplicaState> = self
            .voters
            .values()
            .filter(|state| !state.matches(self.local.key))
            .collect();
        others.sort_by_key(|state| (Reverse(state.end_offset), state.key));
        others.iter().map(|state| state.key).collect()
    }

    /// Whether the observer has been at the log end and still fetches.
    pub fn is_caught_up(&self, key: ReplicaKey, now_ms: u64) -> bool {
        self.observers.get(&key).is_some_and(|state| {
            state.last_caught_up_ms.is_some()
                && state
                    .last_fetch_ms
                    .is_some_and(|at| now_ms.saturating_sub(at) < CAUGHT_UP_WITHIN_MS)
        })
    }

    /// Replaces the voters; the state of each replica is kept.
    pub fn set_voters(&mut self, voters: &VoterSet) {
        let mut before = std::mem::take(&mut self.voters);
        for voter in voters.voters() {
            let known = match before.get(&voter.key.id) {
                Some(state) if state.matches(voter.key) => before.remove(&voter.key.id),
                _ => self.observers.remove(&voter.key),
            };
            let mut state = known.unwrap_or_else(|| ReplicaState::new(voter.key, Vec::new()));
            state.key = voter.key;
            state.endpoints = voter.endpoints.clone();
            self.voters.insert(voter.key.id, state);
        }
        for (_, mut state) in before {
            state.endpoints.clear();
            self.observers.entry(state.key).or_insert(state);
        }
        self.fetched_voters
            .retain(|id| self.voters.contains_key(id));
    }
}

#[cfg(test)]
mod tests;
