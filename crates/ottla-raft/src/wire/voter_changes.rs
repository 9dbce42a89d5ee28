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

/// The responses to AddRaftVoter and RemoveRaftVoter, which differ only in their types.
macro_rules! voter_change_response {
    ($Response:ident) => {
        impl From<VoterChangeResponse> for $Response {
            fn from(change: VoterChangeResponse) -> $Response {
                $Response {
                    error_code: change.error.code(),
                    error_message: error_message(change),
                    ..Default::default()
                }
            }
        }

        impl From<$Response> for VoterChangeResponse {
            fn from(response: $Response) -> VoterChangeResponse {
                VoterChangeResponse {
                    error: ErrorCode::from_code(response.error_code),
                    message: response.error_message.map(|message| message.to_string()),
                }
            }
        }
    };
}

voter_change_response!(AddRaftVoterResponse);
voter_change_response!(RemoveRaftVoterResponse);

/// The part of [`QuorumApi`] with these responses.
macro_rules! voter_change_answer {
    ($Response:ident, $Change:ident) => {
        type Answer = $Response;

        fn refuse(error: ErrorCode) -> $Response {
            let message = None;
            VoterChangeResponse { error, message }.into()
        }

        fn answer(response: Response, _: AnswerParts<'_>) -> Option<$Response> {
            match response {
                Response::$Change(change) => Some(change.into()),
                _ => None,
            }
        }
    };
}

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
    voter_change_answer!(AddRaftVoterResponse, AddVoter);

    fn read(self, cluster_id: &ByteString) -> Result<Request, AddRaftVoterResponse> {
        check_cluster_id_in_words(self.cluster_id.as_ref(), cluster_id)?;
        Ok(Request::AddVoter(AddVoterRequest {
            voter: ReplicaKey::new(BrokerId(self.voter_id), self.voter_directory_id),
            endpoints: voter_endpoints!(self.listeners),
            ack_when_committed: self.ack_when_committed,
        }))
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
    voter_change_answer!(RemoveRaftVoterResponse, RemoveVoter);

    fn read(self, cluster_id: &ByteString) -> Result<Request, RemoveRaftVoterResponse> {
        check_cluster_id_in_words(self.cluster_id.as_ref(), cluster_id)?;
        Ok(Request::RemoveVoter(RemoveVoterRequest {
            voter: ReplicaKey::new(BrokerId(self.voter_id), self.voter_directory_id),
        }))
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
