//! The status of the metadata quorum on this node.

use bytestring::ByteString;
use ottla_raft::{KRaftVersion, Quorum, VoterSet};
use ottla_types::{BrokerId, LeaderEpoch, Offset, Timestamp};

/// The status of the metadata quorum on this node.
#[derive(Clone, PartialEq, Debug)]
pub struct QuorumStatus {
    /// The state of this node ([`Quorum::state_name`]).
    pub state_name: &'static str,
    pub leader: Option<BrokerId>,
    /// Host and port of the leader's controller listener.
    pub leader_endpoint: Option<(ByteString, u16)>,
    pub epoch: LeaderEpoch,
    /// Exclusive.
    pub high_watermark: Offset,
    pub log_end_offset: Offset,
    pub kraft_version: KRaftVersion,
    pub voters: VoterSet,
    /// Whether this node is the active controller and decides requests.
    pub is_active: bool,
    /// Whether this node has caught up with the leader's high watermark once since its start.
    pub is_caught_up: bool,
    /// Why no leader is followed, as far as is known: a sentence for log messages, without a full
    /// stop.
    pub trouble: Option<String>,
    /// Whether all configured bootstrap servers belong to another cluster.
    pub is_of_other_cluster: bool,
    /// When the status was taken.
    pub updated: Timestamp,
}

impl QuorumStatus {
    pub fn of(quorum: &Quorum, updated: Timestamp) -> QuorumStatus {
        QuorumStatus {
            state_name: quorum.state_name(),
            leader: quorum.leader(),
            leader_endpoint: quorum.leader_node().map(|node| (node.host, node.port)),
            epoch: quorum.epoch(),
            high_watermark: quorum.high_watermark().unwrap_or(Offset(-1)),
            log_end_offset: quorum.log_end().offset,
            kraft_version: quorum.kraft_version(),
            voters: quorum.voters().clone(),
            is_active: quorum.is_active_leader(),
            is_caught_up: false,
            trouble: None,
            is_of_other_cluster: false,
            updated,
        }
    }
}

#[cfg(test)]
impl QuorumStatus {
    pub fn without_quorum() -> QuorumStatus {
        QuorumStatus {
            state_name: "unattached",
            leader: None,
            leader_endpoint: None,
            epoch: LeaderEpoch(0),
            high_watermark: Offset(-1),
            log_end_offset: Offset::ZERO,
            kraft_version: KRaftVersion::V0,
            voters: VoterSet::empty(),
            is_active: false,
            is_caught_up: false,
            trouble: None,
            is_of_other_cluster: false,
            updated: Timestamp(0),
        }
    }
}
