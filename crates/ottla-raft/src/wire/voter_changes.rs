//! AddRaftVoter, RemoveRaftVoter and UpdateRaftVoter (KIP-853): changes of the voters.

use bytestring::ByteString;
use ottla_protocol::messages::add_raft_voter_request::Listener as AddedListener;
use ottla_protocol::messages::update_raft_voter_request::{
    KRaftVersionFeature, Listener as UpdatedListener,
};
use ottla_protocol::messages::update_raft_voter_response::CurrentLeader as WireLeader;
use ottla_protocol::messages::{
    AddRaftVoterRequest, AddRaftVoterResponse, RemoveRaftVoterRequest, RemoveRaftVoterResponse,
    UpdateRaftVoterRequest, UpdateRaftVoterResponse,
};
use ottla_types::{BrokerId, ErrorCode, LeaderEpoch};

use super::envelope::{
    AnswerParts, NamedLeader, QuorumApi, check_cluster_id, directory, voter_endpoints,
    wire_endpoints,
};
use crate::message::{
    self, AddVoterRequest, CurrentLeader, QuorumEpochResponse, RemoveVoterRequest, Request,
    Response, UpdateVoterRequest, VoterChangeResponse,
};
use crate::voter_set::{ReplicaKey, Voter, VoterEndpoint};

/// The time that the leader may take to commit a change requested by this node, in milliseconds.
/// The commit needs this node's own fetches.
const VOTER_CHANGE_TIMEOUT_MS: i32 = 30_000;

pub(super) fn add_request(
    add: AddVoterRequest,
    cluster_id: Option<ByteString>,
) -> AddRaftVoterRequest {
    AddRaftVoterRequest {
        cluster_id,
        timeout_ms: VOTER_CHANGE_TIMEOUT_MS,
        voter_id: add.voter.id.value(),
        voter_directory_id: directory(add.voter.directory_id),
        listeners: wire_endpoints!(add.endpoints, AddedListener),
        ack_when_committed: add.ack_when_committed,
        ..Default::default()
    }
}

impl QuorumApi for AddRaftVoterRequest {
    type Answer = AddRaftVoterResponse;

    fn read(self, cluster_id: &ByteString) -> Result<Request, AddRaftVoterResponse> {
        check_cluster_id_in_words(self.cluster_id.as_ref(), cluster_id).map_err(answer_add)?;
        Ok(Request::AddVoter(AddVoterRequest {
            voter: ReplicaKey::new(BrokerId(self.voter_id), self.voter_directory_id),
            endpoints: voter_endpoints!(self.listeners),
            ack_when_committed: self.ack_when_committed,
        }))
    }

    fn refuse(error: ErrorCode) -> AddRaftVoterResponse {
        answer_add(VoterChangeResponse {
            error,
            message: None,
        })
    }

    fn answer(response: Response, _: AnswerParts<'_>) -> Option<AddRaftVoterResponse> {
        match response {
            Response::AddVoter(change) => Some(answer_add(change)),
            _ => None,
        }
    }
}

fn answer_add(change: VoterChangeResponse) -> AddRaftVoterResponse {
    AddRaftVoterResponse {
        error_code: change.error.code(),
        error_message: error_message(change),
        ..Default::default()
    }
}

pub(super) fn read_add_response(add: AddRaftVoterResponse) -> VoterChangeResponse {
    VoterChangeResponse {
        error: ErrorCode::from_code(add.error_code),
        message: add.error_message.map(|message| message.to_string()),
    }
}

pub(super) fn remove_request(
    remove: RemoveVoterRequest,
    cluster_id: Option<ByteString>,
) -> RemoveRaftVoterRequest {
    RemoveRaftVoterRequest {
        cluster_id,
        voter_id: remove.voter.id.value(),
        voter_directory_id: directory(remove.voter.directory_id),
        ..Default::default()
    }
}

impl QuorumApi for RemoveRaftVoterRequest {
    type Answer = RemoveRaftVoterResponse;

    fn read(self, cluster_id: &ByteString) -> Result<Request, RemoveRaftVoterResponse> {
        check_cluster_id_in_words(self.cluster_id.as_ref(), cluster_id).map_err(answer_remove)?;
        Ok(Request::RemoveVoter(RemoveVoterRequest {
            voter: ReplicaKey::new(BrokerId(self.voter_id), self.voter_directory_id),
        }))
    }

    fn refuse(error: ErrorCode) -> RemoveRaftVoterResponse {
        answer_remove(VoterChangeResponse {
            error,
            message: None,
        })
    }

    fn answer(response: Response, _: AnswerParts<'_>) -> Option<RemoveRaftVoterResponse> {
        match response {
            Response::RemoveVoter(change) => Some(answer_remove(change)),
            _ => None,
        }
    }
}

fn answer_remove(change: VoterChangeResponse) -> RemoveRaftVoterResponse {
    RemoveRaftVoterResponse {
        error_code: change.error.code(),
        error_message: error_message(change),
        ..Default::default()
    }
}

pub(super) fn read_remove_response(remove: RemoveRaftVoterResponse) -> VoterChangeResponse {
    VoterChangeResponse {
        error: ErrorCode::from_code(remove.error_code),
        message: remove.error_message.map(|message| message.to_string()),
    }
}

pub(super) fn update_request(
    update: UpdateVoterRequest,
    cluster_id: Option<ByteString>,
) -> UpdateRaftVoterRequest {
    let (min, max) = update.voter.supported_kraft_versions;
    UpdateRaftVoterRequest {
        cluster_id,
        current_leader_epoch: update.current_leader_epoch.value(),
        voter_id: update.voter.key.id.value(),
        voter_directory_id: directory(update.voter.key.directory_id),
        listeners: wire_endpoints!(update.voter.endpoints, UpdatedListener),
        kraft_version_feature: KRaftVersionFeature {
            min_supported_version: min,
            max_supported_version: max,
            ..Default::default()
        },
        ..Default::default()
    }
}

impl QuorumApi for UpdateRaftVoterRequest {
    type Answer = UpdateRaftVoterResponse;

    fn read(self, cluster_id: &ByteString) -> Result<Request, UpdateRaftVoterResponse> {
        check_cluster_id(self.cluster_id.as_ref(), cluster_id).map_err(Self::refuse)?;
        let supported = &self.kraft_version_feature;
        Ok(Request::UpdateVoter(UpdateVoterRequest {
            current_leader_epoch: LeaderEpoch(self.current_leader_epoch),
            voter: Voter {
                key: ReplicaKey::new(BrokerId(self.voter_id), self.voter_directory_id),
                supported_kraft_versions: (
                    supported.min_supported_version,
                    supported.max_supported_version,
                ),
                endpoints: voter_endpoints!(self.listeners),
            },
        }))
    }

    fn answer(response: Response, parts: AnswerParts<'_>) -> Option<UpdateRaftVoterResponse> {
        let Response::UpdateVoter(update) = response else {
            return None;
        };
        let leader = NamedLeader::at(parts.listener_name, &update.current_leader);
        let (host, port) = leader.address.unwrap_or_default();
        Some(UpdateRaftVoterResponse {
            error_code: update.error.code(),
            current_leader: WireLeader {
                leader_id: leader.id,
                leader_epoch: leader.epoch,
                host,
                port: port.into(),
                ..Default::default()
            },
            ..Default::default()
        })
    }
}

pub(super) fn read_update_response(
    update: UpdateRaftVoterResponse,
    listener_name: &ByteString,
) -> message::QuorumEpochResponse {
    let leader = update.current_leader;
    let id = (leader.leader_id >= 0).then_some(BrokerId(leader.leader_id));
    let port = u16::try_from(leader.port).ok().filter(|port| *port > 0);
    let endpoints = match (id, port) {
        (Some(_), Some(port)) if !leader.host.is_empty() => vec![VoterEndpoint {
            name: listener_name.clone(),
            host: leader.host,
            port,
        }],
        _ => Vec::new(),
    };
    QuorumEpochResponse {
        error: ErrorCode::from_code(update.error_code),
        current_leader: CurrentLeader {
            leader: id,
            epoch: LeaderEpoch(leader.leader_epoch),
            endpoints,
        },
    }
}

/// The message of an error response: its own, or Kafka's text for the code.
fn error_message(change: VoterChangeResponse) -> Option<ByteString> {
    match change.message {
        Some(message) => Some(ByteString::from(message)),
        None if change.error == ErrorCode::None => None,
        None => Some(ByteString::from_static(change.error.message())),
    }
}

/// As [`check_cluster_id`], with the message of Kafka's responses to voter changes.
fn check_cluster_id_in_words(
    requested: Option<&ByteString>,
    cluster_id: &ByteString,
) -> Result<(), VoterChangeResponse> {
    check_cluster_id(requested, cluster_id).map_err(|error| {
        let given = requested.map_or("", |given| given);
        let message =
            format!("The given id \"{given}\" doesn't match the cluster id \"{cluster_id}\"");
        VoterChangeResponse {
            error,
            message: Some(message),
        }
    })
}
