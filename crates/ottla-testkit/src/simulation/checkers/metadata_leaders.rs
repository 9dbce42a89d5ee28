//! One leader an epoch of the metadata quorum, one vote a voter and epoch, and who begins to lead has everything that is
//! committed.

use std::collections::BTreeMap;

use ottla_raft::ReplicaKey;
use ottla_types::LeaderEpoch;

use super::Finding;
use super::metadata_committed::MetadataCommitted;
use crate::simulation::metadata_log::MetadataLog;

#[derive(Default)]
pub(crate) struct MetadataLeaders {
    leaders: BTreeMap<LeaderEpoch, (i32, u64)>,
    votes: BTreeMap<(ReplicaKey, LeaderEpoch), ReplicaKey>,
    pub(super) finding: Finding,
}

impl MetadataLeaders {
    pub(crate) fn on_leader(
        &mut self,
        id: i32,
        life: u64,
        epoch: LeaderEpoch,
        committed: &MetadataCommitted,
        log: &MetadataLog,
    ) {
        let leader = (id, life);
        let known = *self.leaders.entry(epoch).or_insert(leader);
        if known != leader {
            self.finding
                .report(|| format!("epoch {epoch} is led by {known:?} and by {leader:?}"));
        }
        if let Some(offset) = committed.first_missing(log) {
            self.finding.report(|| {
                format!("controller {id} leads epoch {epoch} and lacks offset {offset}, which is committed")
            });
        }
    }

    pub(crate) fn on_vote(&mut self, voter: ReplicaKey, epoch: LeaderEpoch, candidate: ReplicaKey) {
        let known = *self.votes.entry((voter, epoch)).or_insert(candidate);
        // Where the sender could not say the directory, the id tells enough.
        if known.id != candidate.id {
            self.finding.report(|| {
                format!("{voter:?} votes for {known:?} and for {candidate:?} in epoch {epoch}")
            });
        }
    }

    /// Epochs that had a leader.
    pub(crate) fn epochs(&self) -> usize {
        self.leaders.len()
    }
}
