//! What this node gives to the others of the quorum beside its answers: batches of its log and parts of its
//! snapshots, as regions of their files; and how an answer names the leader.

use bytestring::ByteString;
use ottla_protocol::Records;
use ottla_raft::{CurrentLeader, ReplicaState, VoterSet};
use ottla_types::{BrokerId, ErrorCode, LeaderEpoch, Offset};

/// What goes with an answer.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) enum ServedData {
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

/// The leader as an answer names it.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct NamedLeader {
    /// -1 for nobody.
    pub id: i32,
    pub epoch: i32,
    /// Where it is reached at the listener that was asked.
    pub address: Option<(ByteString, u16)>,
}

impl NamedLeader {
    pub fn at(listener_name: &str, leader: &CurrentLeader) -> NamedLeader {
        let endpoint = leader
            .endpoints
            .iter()
            .find(|endpoint| &*endpoint.name == listener_name)
            .filter(|_| leader.leader.is_some());
        NamedLeader {
            id: leader.leader.map_or(-1, BrokerId::value),
            epoch: leader.epoch.value(),
            address: endpoint.map(|endpoint| (endpoint.host.clone(), endpoint.port)),
        }
    }
}

/// Whether a request is meant for this cluster; one that names none is.
pub(crate) fn check_cluster_id(
    requested: Option<&ByteString>,
    cluster_id: &ByteString,
) -> Result<(), ErrorCode> {
    match requested {
        Some(requested) if requested != cluster_id => Err(ErrorCode::InconsistentClusterId),
        Some(_) | None => Ok(()),
    }
}

/// The quorum as its leader sees it.
#[derive(Clone, Debug)]
pub(crate) struct QuorumDescription {
    pub leader: BrokerId,
    pub epoch: LeaderEpoch,
    /// -1 where it is not known yet.
    pub high_watermark: Offset,
    pub voters: VoterSet,
    /// Times are of the wall clock.
    pub voter_states: Vec<ReplicaState>,
    pub observer_states: Vec<ReplicaState>,
}
