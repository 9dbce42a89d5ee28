//! UpdateRaftVoter (KIP-853): a voter tells the leader of its directory, endpoints and versions.
//!
//! Kafka: `KafkaRaftClient.handleUpdateVoterRequest`, `RaftUtil.updateVoterResponse`.

use std::sync::Arc;

use bytestring::ByteString;
use ottla_protocol::messages::update_raft_voter_response::CurrentLeader;
use ottla_protocol::messages::{UpdateRaftVoterRequest, UpdateRaftVoterResponse};
use ottla_raft::{ReplicaKey, Voter};
use ottla_types::{BrokerId, ErrorCode, LeaderEpoch};

use super::raft_responses::{NamedLeader, ask, check_cluster_id, voter_endpoints};
use ottla_net::RequestContext;

use crate::Broker;

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: UpdateRaftVoterRequest,
) -> UpdateRaftVoterResponse {
    let refused = |error: ErrorCode| UpdateRaftVoterResponse {
        error_code: error.code(),
        ..Default::default()
    };
    match ask(broker, request, read).await {
        Ok((ottla_raft::Response::UpdateVoter(answer), _)) => {
            write(&answer, &context.listener().name)
        }
        Ok(_) => refused(ErrorCode::BrokerNotAvailable),
        Err(error) => refused(error),
    }
}

pub(crate) fn read(
    request: UpdateRaftVoterRequest,
    cluster_id: &ByteString,
) -> Result<ottla_raft::Request, ErrorCode> {
    check_cluster_id(request.cluster_id.as_ref(), cluster_id)?;
    let supported = &request.kraft_version_feature;
    Ok(ottla_raft::Request::UpdateVoter(
        ottla_raft::UpdateVoterRequest {
            current_leader_epoch: LeaderEpoch(request.current_leader_epoch),
            voter: Voter {
                key: ReplicaKey::new(BrokerId(request.voter_id), request.voter_directory_id),
                supported_kraft_versions: (
                    supported.min_supported_version,
                    supported.max_supported_version,
                ),
                endpoints: voter_endpoints!(request.listeners),
            },
        },
    ))
}

pub(crate) fn write(
    answer: &ottla_raft::QuorumEpochResponse,
    listener_name: &str,
) -> UpdateRaftVoterResponse {
    let leader = NamedLeader::at(listener_name, &answer.current_leader);
    let (host, port) = leader.address.unwrap_or_default();
    UpdateRaftVoterResponse {
        error_code: answer.error.code(),
        current_leader: CurrentLeader {
            leader_id: leader.id,
            leader_epoch: leader.epoch,
            host,
            port: port.into(),
            ..Default::default()
        },
        ..Default::default()
    }
}
