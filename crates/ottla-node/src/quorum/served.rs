//! What the thread of the quorum gives to those who ask it: batches of the log and parts of snapshots, as regions of
//! their files, and the quorum as its leader sees it.

use ottla_protocol::Records;
use ottla_raft::{ReplicaState, VoterSet};
use ottla_types::{BrokerId, LeaderEpoch, Offset};

/// What goes with an answer.
#[derive(Clone, PartialEq, Debug, Default)]
pub enum ServedData {
    #[default]
    None,
    /// Whole batches, the last of which may be cut off; or a part of a snapshot.
    Records(Records),
}

impl ServedData {
    /// Kafka never leaves them out.
    pub fn into_records(self) -> Records {
        match self {
            ServedData::None => Records::from(bytes::Bytes::new()),
            ServedData::Records(records) => records,
        }
    }
}

/// The quorum as its leader sees it.
#[derive(Clone, Debug)]
pub struct QuorumDescription {
    pub leader: BrokerId,
    pub epoch: LeaderEpoch,
    /// -1 where it is not known yet.
    pub high_watermark: Offset,
    pub voters: VoterSet,
    /// Times are of the wall clock.
    pub voter_states: Vec<ReplicaState>,
    pub observer_states: Vec<ReplicaState>,
}
