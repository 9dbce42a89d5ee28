//! The messages of the metadata quorum between simulated nodes, in the form in which they are sent.
//!
//! Batches and snapshots are not bytes here: they travel beside the messages.

use bytes::Bytes;
use bytestring::ByteString;
use ottla_protocol::Records;
use ottla_protocol::messages::{
    AddRaftVoterRequest, BeginQuorumEpochRequest, EndQuorumEpochRequest, FetchRequest,
    FetchSnapshotRequest, RemoveRaftVoterRequest, UpdateRaftVoterRequest, VoteRequest,
};
use ottla_raft::wire::{AnswerParts, QuorumApi, WireRequest, WireResponse};
use ottla_raft::{Request, Response};

use super::deciding::CLUSTER_ID;

pub(super) fn request(request: Request) -> WireRequest {
    WireRequest::new(request, &ByteString::from_static(CLUSTER_ID))
}

/// What the node that is asked reads. It is of the same cluster, so nothing is refused.
pub(super) fn read(request: WireRequest) -> Request {
    fn of<R: QuorumApi>(request: R) -> Request {
        let read = request.read(&ByteString::from_static(CLUSTER_ID));
        read.unwrap_or_else(|_| panic!("a request of a node of this cluster is refused"))
    }
    match request {
        WireRequest::Vote(it) => of(it),
        WireRequest::BeginQuorumEpoch(it) => of(it),
        WireRequest::EndQuorumEpoch(it) => of(it),
        WireRequest::Fetch(it) => of(it),
        WireRequest::FetchSnapshot(it) => of(it),
        WireRequest::UpdateVoter(it) => of(it),
        WireRequest::AddVoter(it) => of(it),
        WireRequest::RemoveVoter(it) => of(it),
        WireRequest::ApiVersions(_) => Request::ApiVersions,
    }
}

pub(super) fn response(response: Response, listener_name: &str) -> WireResponse {
    fn of<R: QuorumApi>(response: Response, listener_name: &str) -> R::Answer {
        let parts = AnswerParts {
            listener_name,
            has_endpoints: true,
            records: Records::from(Bytes::new()),
        };
        R::answer(response, parts).expect("the response is of this API")
    }
    match &response {
        Response::Vote(_) => WireResponse::Vote(of::<VoteRequest>(response, listener_name)),
        Response::BeginQuorumEpoch(_) => {
            WireResponse::BeginQuorumEpoch(of::<BeginQuorumEpochRequest>(response, listener_name))
        }
        Response::EndQuorumEpoch(_) => {
            WireResponse::EndQuorumEpoch(of::<EndQuorumEpochRequest>(response, listener_name))
        }
        Response::Fetch(_) => WireResponse::Fetch(of::<FetchRequest>(response, listener_name)),
        Response::FetchSnapshot(_) => {
            WireResponse::FetchSnapshot(of::<FetchSnapshotRequest>(response, listener_name))
        }
        Response::UpdateVoter(_) => {
            WireResponse::UpdateVoter(of::<UpdateRaftVoterRequest>(response, listener_name))
        }
        Response::AddVoter(_) => {
            WireResponse::AddVoter(of::<AddRaftVoterRequest>(response, listener_name))
        }
        Response::RemoveVoter(_) => {
            WireResponse::RemoveVoter(of::<RemoveRaftVoterRequest>(response, listener_name))
        }
        Response::ApiVersions(_) => panic!("no node answers ApiVersions here"),
    }
}
