//! The messages of the quorum as Kafka's requests and responses, on both sides: the client builds
//! requests and reads responses, the server reads requests and builds responses.
//!
//! The state machine does not know the cluster ID, topic and partition. They are added and checked
//! here, and a message about anything else is refused. Record batches and snapshot bytes are passed
//! beside the messages: the caller decodes received ones and supplies those to send.
//!
//! Each file holds one API, or the three APIs that change voters; `envelope` holds the shared
//! parts. The version of an API is chosen by the caller, which passes only whether it can carry the
//! leader's endpoint.
//!
//! Kafka: `RaftUtil`, `KafkaRaftClient.build*Request`, and the first lines of
//! `KafkaRaftClient.handle*Request` and `KafkaRaftClient.handle*Response`.

mod envelope;

mod begin_quorum_epoch;
mod end_quorum_epoch;
mod fetch;
mod fetch_snapshot;
mod kraft_versions;
mod vote;
mod voter_changes;

pub use envelope::{AnswerParts, METADATA_PARTITION, METADATA_TOPIC, QuorumApi, Unusable};

use bytes::Bytes;
use bytestring::ByteString;
use ottla_protocol::messages::{
    AddRaftVoterRequest, AddRaftVoterResponse, ApiVersionsRequest, ApiVersionsResponse,
    BeginQuorumEpochRequest, BeginQuorumEpochResponse, EndQuorumEpochRequest,
    EndQuorumEpochResponse, FetchRequest, FetchResponse, FetchSnapshotRequest,
    FetchSnapshotResponse, RemoveRaftVoterRequest, RemoveRaftVoterResponse, UpdateRaftVoterRequest,
    UpdateRaftVoterResponse, VoteRequest, VoteResponse,
};

use crate::message::{LogBatch, Request, Response};

/// A request to send.
#[derive(Clone, PartialEq, Debug)]
pub enum WireRequest {
    Vote(VoteRequest),
    BeginQuorumEpoch(BeginQuorumEpochRequest),
    EndQuorumEpoch(EndQuorumEpochRequest),
    Fetch(FetchRequest),
    FetchSnapshot(FetchSnapshotRequest),
    UpdateVoter(UpdateRaftVoterRequest),
    AddVoter(AddRaftVoterRequest),
    RemoveVoter(RemoveRaftVoterRequest),
    ApiVersions(ApiVersionsRequest),
}

/// A received response.
#[derive(Clone, PartialEq, Debug)]
pub enum WireResponse {
    Vote(VoteResponse),
    BeginQuorumEpoch(BeginQuorumEpochResponse),
    EndQuorumEpoch(EndQuorumEpochResponse),
    Fetch(FetchResponse),
    FetchSnapshot(FetchSnapshotResponse),
    UpdateVoter(UpdateRaftVoterResponse),
    AddVoter(AddRaftVoterResponse),
    RemoveVoter(RemoveRaftVoterResponse),
    ApiVersions(ApiVersionsResponse),
}

impl WireRequest {
    pub fn new(request: Request, cluster_id: &ByteString) -> WireRequest {
        let cluster_id = Some(cluster_id.clone());
        match request {
            Request::Vote(it) => WireRequest::Vote(vote::request(it, cluster_id)),
            Request::BeginQuorumEpoch(it) => {
                WireRequest::BeginQuorumEpoch(begin_quorum_epoch::request(it, cluster_id))
            }
            Request::EndQuorumEpoch(it) => {
                WireRequest::EndQuorumEpoch(end_quorum_epoch::request(&it, cluster_id))
            }
            Request::Fetch(it) => WireRequest::Fetch(fetch::request(it, cluster_id)),
            Request::FetchSnapshot(it) => {
                WireRequest::FetchSnapshot(fetch_snapshot::request(it, cluster_id))
            }
            Request::UpdateVoter(it) => {
                WireRequest::UpdateVoter(voter_changes::update_request(it, cluster_id))
            }
            Request::AddVoter(it) => {
                WireRequest::AddVoter(voter_changes::add_request(it, cluster_id))
            }
            Request::RemoveVoter(it) => {
                WireRequest::RemoveVoter(voter_changes::remove_request(it, cluster_id))
            }
            Request::ApiVersions => WireRequest::ApiVersions(kraft_versions::request()),
        }
    }
}

impl WireResponse {
    /// Converts the response for the state machine, and returns the snapshot bytes that came with
    /// it, if any.
    ///
    /// `listener_name` is the listener that the nodes of the quorum use among themselves: a
    /// response contains the leader's address at the listener that was asked. `read_batches`
    /// decodes the batches of a Fetch; a cut-off last batch is ignored and fetched again.
    pub fn read(
        self,
        listener_name: &ByteString,
        read_batches: impl FnOnce(Bytes) -> Result<Vec<LogBatch>, Unusable>,
    ) -> Result<(Response, Bytes), Unusable> {
        let response = match self {
            WireResponse::Vote(it) => Response::Vote(vote::read_response(it, listener_name)?),
            WireResponse::BeginQuorumEpoch(it) => {
                Response::BeginQuorumEpoch(begin_quorum_epoch::read_response(it, listener_name)?)
            }
            WireResponse::EndQuorumEpoch(it) => {
                Response::EndQuorumEpoch(end_quorum_epoch::read_response(it, listener_name)?)
            }
            WireResponse::Fetch(it) => {
                Response::Fetch(fetch::read_response(it, listener_name, read_batches)?)
            }
            WireResponse::FetchSnapshot(it) => {
                let (response, bytes) = fetch_snapshot::read_response(it, listener_name)?;
                return Ok((Response::FetchSnapshot(response), bytes));
            }
            WireResponse::UpdateVoter(it) => {
                Response::UpdateVoter(voter_changes::read_update_response(it, listener_name))
            }
            WireResponse::AddVoter(it) => Response::AddVoter(it.into()),
            WireResponse::RemoveVoter(it) => Response::RemoveVoter(it.into()),
            WireResponse::ApiVersions(it) => {
                Response::ApiVersions(kraft_versions::read_response(&it))
            }
        };
        Ok((response, Bytes::new()))
    }
}

#[cfg(test)]
mod tests;
