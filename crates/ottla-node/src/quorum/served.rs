//! Responses of the quorum thread: batches of the log and parts of snapshots as regions of their
//! files, and the description of the quorum by its leader.

use ottla_protocol::Records;
use ottla_raft::{ReplicaState, VoterSet};
use ottla_types::{BrokerId, LeaderEpoch, Offset};

/// The payload of a response.
#[derive(Clone, PartialEq, Debug, Default)]
pub enum ServedData {
    #[default]
    None,
    /// Complete batches (the last may be cut off), or a part of a snapshot.
    Records(Records),
}

impl ServedData {
    /// The records; empty ones if there are none, because Kafka never sends null.
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
    /// -1 if it is not known yet.
    pub high_watermark: Offset,
    pub voters: VoterSet,
    /// Times are of the wall clock.
    pub voter_states: Vec<ReplicaState>,
    pub observer_states: Vec<ReplicaState>,
}
