//! How this node answers the others of the quorum: what its handlers in `api/` share. An answer carries batches of the log
//! or parts of a snapshot as regions of their files; `ottla_raft::wire` has the rest of it.

use ottla_protocol::Records;
use ottla_raft::wire::{AnswerParts, QuorumApi};
use ottla_raft::{ReplicaState, VoterSet};
use ottla_types::{BrokerId, ErrorCode, LeaderEpoch, Offset};

use super::handle::QuorumHandle;

/// Has this node's part in the quorum answer a request. `has_endpoints` says whether the version that is spoken can carry
/// the leader's endpoint at the listener that was asked.
pub(crate) async fn answer<R: QuorumApi>(
    quorum: Option<&QuorumHandle>,
    request: R,
    listener_name: &str,
    has_endpoints: bool,
) -> R::Answer {
    let Some(quorum) = quorum else {
        return R::refuse(ErrorCode::BrokerNotAvailable);
    };
    let request = match request.read(quorum.cluster_id()) {
        Ok(request) => request,
        Err(refusal) => return refusal,
    };
    let answered = quorum.ask(request).await;
    let answer = answered.and_then(|(response, data)| {
        let parts = AnswerParts {
            listener_name,
            has_endpoints,
            records: data.into_records(),
        };
        R::answer(response, parts)
    });
    answer.unwrap_or_else(|| R::refuse(ErrorCode::BrokerNotAvailable))
}

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
