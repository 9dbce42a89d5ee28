//! The messages of the quorum in both directions: one side builds a message, the other side reads
//! it.

use ottla_protocol::{Encoder, Message, Records};
use ottla_types::{BrokerId, ErrorCode, LeaderEpoch, Offset, Uuid};

use super::*;
use crate::{
    CurrentLeader, FetchData, LogEnd, ReplicaKey, SnapshotId, Voter, VoterChangeResponse,
    VoterEndpoint,
};

const CLUSTER_ID: ByteString = ByteString::from_static("a cluster");
const LISTENER: ByteString = ByteString::from_static("CONTROLLER");

fn key(id: i32) -> ReplicaKey {
    ReplicaKey::new(BrokerId(id), Uuid::from_u128(100 + id as u128))
}

fn endpoints(id: i32) -> Vec<VoterEndpoint> {
    vec![VoterEndpoint {
        name: LISTENER,
        host: ByteString::from(format!("host-{id}")),
        port: 9000 + id as u16,
    }]
}

fn leader() -> CurrentLeader {
    CurrentLeader {
        leader: Some(BrokerId(7)),
        epoch: LeaderEpoch(5),
        endpoints: endpoints(7),
    }
}

fn over_the_wire<M: Message>(message: &M, version: i16) -> M {
    let mut encoder = Encoder::new();
    message.encode(&mut encoder, version).expect("can be said");
    M::decode_all(&encoder.finish().into_bytes(), version).expect("was said")
}

/// The server's view of a request; the error of the response if it refuses it.
fn received(request: Request, cluster_id: &ByteString) -> Result<Request, i16> {
    match WireRequest::new(request, &CLUSTER_ID) {
        WireRequest::Vote(it) => over_the_wire(&it, 2)
            .read(cluster_id)
            .map_err(|refusal| refusal.error_code),
        WireRequest::BeginQuorumEpoch(it) => over_the_wire(&it, 1)
            .read(cluster_id)
            .map_err(|refusal| refusal.error_code),
        WireRequest::EndQuorumEpoch(it) => over_the_wire(&it, 1)
            .read(cluster_id)
            .map_err(|refusal| refusal.error_code),
        WireRequest::Fetch(it) => over_the_wire(&it, 18)
            .read(cluster_id)
            .map_err(|refusal| refusal.error_code),
        WireRequest::FetchSnapshot(it) => over_the_wire(&it, 1)
            .read(cluster_id)
            .map_err(|refusal| refusal.error_code),
        WireRequest::UpdateVoter(it) => over_the_wire(&it, 0)
            .read(cluster_id)
            .map_err(|refusal| refusal.error_code),
        WireRequest::AddVoter(it) => over_the_wire(&it, 1)
            .read(cluster_id)
            .map_err(|refusal| refusal.error_code),
        WireRequest::RemoveVoter(it) => over_the_wire(&it, 0)
            .read(cluster_id)
            .map_err(|refusal| refusal.error_code),
        WireRequest::ApiVersions(_) => Ok(Request::ApiVersions),
    }
}

fn parts(listener_name: &str, has_endpoints: bool) -> AnswerParts<'_> {
    AnswerParts {
        listener_name,
        has_endpoints,
        records: Records::from(Bytes::new()),
    }
}

/// The client's view of a response without batches.
fn read(response: WireResponse) -> Result<Response, Unusable> {
    let (response, snapshot_bytes) = response.read(&LISTENER, |bytes| {
        assert!(bytes.is_empty());
        Ok(Vec::new())
    })?;
    assert!(snapshot_bytes.is_empty());
    Ok(response)
}

#[test]
fn requests_round_trip() {
    let log_end = LogEnd {
        offset: Offset(42),
        epoch: LeaderEpoch(4),
    };
    let snapshot = SnapshotId {
        end_offset: Offset(40),
        epoch: LeaderEpoch(3),
    };
    for request in [
        Request::Vote(crate::VoteRequest {
            epoch: LeaderEpoch(5),
            candidate: key(1),
            voter: Some(key(2)),
            log_end,
            pre_vote: true,
        }),
        Request::BeginQuorumEpoch(crate::BeginQuorumEpochRequest {
            leader: BrokerId(1),
            epoch: LeaderEpoch(5),
            endpoints: endpoints(1),
            voter: Some(key(2)),
        }),
        Request::EndQuorumEpoch(crate::EndQuorumEpochRequest {
            leader: BrokerId(1),
            epoch: LeaderEpoch(5),
            endpoints: endpoints(1),
            preferred_successors: vec![key(3), key(2)],
        }),
        Request::Fetch(crate::FetchRequest {
            replica: key(1),
            current_leader_epoch: LeaderEpoch(5),
            log_end,
            high_watermark: Offset(41),
            max_bytes: 1000,
            max_wait_ms: 500,
        }),
        Request::FetchSnapshot(crate::FetchSnapshotRequest {
            replica: key(1),
            current_leader_epoch: LeaderEpoch(5),
            snapshot,
            position: 77,
            max_bytes: 1000,
        }),
        Request::UpdateVoter(crate::UpdateVoterRequest {
            current_leader_epoch: LeaderEpoch(5),
            voter: Voter {
                key: key(1),
                endpoints: endpoints(1),
                supported_kraft_versions: (0, 1),
            },
        }),
        Request::AddVoter(crate::AddVoterRequest {
            voter: key(1),
            endpoints: endpoints(1),
            ack_when_committed: false,
        }),
        Request::RemoveVoter(crate::RemoveVoterRequest { voter: key(1) }),
    ] {
        let other = ByteString::from_static("another cluster");
        let refused = received(request.clone(), &other);
        assert_eq!(refused, Err(ErrorCode::InconsistentClusterId.code()));
        assert_eq!(received(request.clone(), &CLUSTER_ID), Ok(request));
    }
}

#[test]
fn version_0_identifies_a_voter_by_its_id() {
    let request = Request::EndQuorumEpoch(crate::EndQuorumEpochRequest {
        leader: BrokerId(1),
        epoch: LeaderEpoch(5),
        endpoints: endpoints(1),
        preferred_successors: vec![key(3), key(2)],
    });
    let WireRequest::EndQuorumEpoch(wire) = WireRequest::new(request, &CLUSTER_ID) else {
        panic!("another request");
    };
    let read = over_the_wire(&wire, 0).read(&CLUSTER_ID);
    let Ok(Request::EndQuorumEpoch(read)) = read else {
        panic!("is not read: {read:?}");
    };
    assert!(read.endpoints.is_empty());
    let ids: Vec<_> = read
        .preferred_successors
        .iter()
        .map(|key| (key.id.value(), key.directory_id))
        .collect();
    assert_eq!(ids, [(3, None), (2, None)]);
}

#[test]
fn responses_round_trip() {
    let (error, current_leader) = (ErrorCode::FencedLeaderEpoch, leader());
    let epoch = crate::QuorumEpochResponse {
        error,
        current_leader,
    };
    let vote = crate::VoteResponse {
        error,
        current_leader: leader(),
        is_granted: true,
    };
    let expected = Response::Vote(vote);
    let wire = VoteRequest::answer(expected.clone(), parts(&LISTENER, true)).expect("a vote");
    assert_eq!(
        read(WireResponse::Vote(over_the_wire(&wire, 2))),
        Ok(expected)
    );

    let expected = Response::BeginQuorumEpoch(epoch.clone());
    assert_eq!(
        VoteRequest::answer(expected.clone(), parts(&LISTENER, true)),
        None
    );
    let wire = BeginQuorumEpochRequest::answer(expected.clone(), parts(&LISTENER, true));
    let wire = over_the_wire(&wire.expect("of this API"), 1);
    assert_eq!(read(WireResponse::BeginQuorumEpoch(wire)), Ok(expected));

    let expected = Response::EndQuorumEpoch(epoch.clone());
    let wire = EndQuorumEpochRequest::answer(expected.clone(), parts(&LISTENER, true));
    let wire = over_the_wire(&wire.expect("of this API"), 1);
    assert_eq!(read(WireResponse::EndQuorumEpoch(wire)), Ok(expected));

    let expected = Response::UpdateVoter(epoch);
    let wire = UpdateRaftVoterRequest::answer(expected.clone(), parts(&LISTENER, true));
    let wire = over_the_wire(&wire.expect("of this API"), 0);
    assert_eq!(read(WireResponse::UpdateVoter(wire)), Ok(expected));

    let change = VoterChangeResponse {
        error,
        message: Some("why".to_owned()),
    };
    let expected = Response::AddVoter(change.clone());
    let wire = AddRaftVoterRequest::answer(expected.clone(), parts(&LISTENER, true));
    let wire = over_the_wire(&wire.expect("of this API"), 0);
    assert_eq!(read(WireResponse::AddVoter(wire)), Ok(expected));

    let expected = Response::RemoveVoter(change);
    let wire = RemoveRaftVoterRequest::answer(expected.clone(), parts(&LISTENER, true));
    let wire = over_the_wire(&wire.expect("of this API"), 0);
    assert_eq!(read(WireResponse::RemoveVoter(wire)), Ok(expected));
}

/// Kafka's tools print the message.
#[test]
fn a_refused_voter_change_has_an_error_message() {
    let without_words = AddRaftVoterRequest::refuse(ErrorCode::NotController);
    assert_eq!(
        without_words.error_message.as_deref(),
        Some(ErrorCode::NotController.message())
    );
    assert_eq!(
        RemoveRaftVoterRequest::refuse(ErrorCode::None).error_message,
        None
    );
    let elsewhere = AddRaftVoterRequest {
        cluster_id: Some("another".into()),
        ..Default::default()
    };
    let refusal = elsewhere.read(&CLUSTER_ID).expect_err("another cluster");
    assert_eq!(
        refusal.error_message.as_deref(),
        Some("The given id \"another\" doesn't match the cluster id \"a cluster\"")
    );
}

fn fetch_response(data: FetchData) -> crate::FetchResponse {
    crate::FetchResponse {
        error: ErrorCode::None,
        current_leader: leader(),
        log_start_offset: Offset(3),
        high_watermark: Some(Offset(41)),
        data,
    }
}

#[test]
fn fetch_responses_carry_divergence_or_snapshot() {
    for data in [
        FetchData::Empty,
        FetchData::Diverging(LogEnd {
            offset: Offset(9),
            epoch: LeaderEpoch(2),
        }),
        FetchData::Snapshot(SnapshotId {
            end_offset: Offset(40),
            epoch: LeaderEpoch(3),
        }),
    ] {
        let answer = fetch_response(data);
        let expected = Response::Fetch(answer);
        let wire = FetchRequest::answer(expected.clone(), parts(&LISTENER, true));
        let wire = over_the_wire(&wire.expect("a fetch"), 18);
        assert_eq!(read(WireResponse::Fetch(wire)), Ok(expected));
    }
}

#[test]
fn batches_and_snapshot_parts_are_passed_through() {
    let with_bytes = || AnswerParts {
        listener_name: "CONTROLLER",
        has_endpoints: true,
        records: Records::from(Bytes::from_static(b"bytes")),
    };
    let answer = Response::Fetch(fetch_response(FetchData::Empty));
    let wire = FetchRequest::answer(answer, with_bytes()).expect("a fetch");
    let batch = LogBatch {
        base_offset: Offset(41),
        last_offset: Offset(42),
        epoch: LeaderEpoch(5),
        control_records: Vec::new(),
    };
    let read_batches = |bytes: Bytes| {
        assert_eq!(&*bytes, b"bytes");
        Ok(vec![batch.clone()])
    };
    let response = WireResponse::Fetch(over_the_wire(&wire, 18));
    let (read, _) = response
        .clone()
        .read(&LISTENER, read_batches)
        .expect("is read");
    let expected = fetch_response(FetchData::Batches(vec![batch.clone()]));
    assert_eq!(read, Response::Fetch(expected));
    let corrupt = Unusable::Corrupt("torn".to_owned());
    let failed = response.read(&LISTENER, |_| Err(corrupt.clone()));
    assert_eq!(failed, Err(corrupt));

    let part = Response::FetchSnapshot(crate::FetchSnapshotResponse {
        error: ErrorCode::None,
        current_leader: leader(),
        snapshot: Some(SnapshotId {
            end_offset: Offset(40),
            epoch: LeaderEpoch(3),
        }),
        size_bytes: 77,
        position: 11,
        length_bytes: 5,
    });
    let wire = FetchSnapshotRequest::answer(part.clone(), with_bytes()).expect("a part");
    let response = WireResponse::FetchSnapshot(over_the_wire(&wire, 1));
    let read = response.read(&LISTENER, |_| panic!("no batches"));
    assert_eq!(read, Ok((part, Bytes::from_static(b"bytes"))));
}

#[test]
fn a_leader_without_the_listener_has_no_address() {
    let vote = Response::Vote(crate::VoteResponse {
        error: ErrorCode::None,
        current_leader: leader(),
        is_granted: false,
    });
    let wire = VoteRequest::answer(vote.clone(), parts("OTHER", true)).expect("a vote");
    assert!(wire.node_endpoints.is_empty());
    assert_eq!(wire.topics[0].partitions[0].leader_id, 7);
    // The oldest version has no field for it.
    let wire = VoteRequest::answer(vote, parts(&LISTENER, false)).expect("a vote");
    assert!(wire.node_endpoints.is_empty());
}

#[test]
fn a_response_about_another_partition_is_ignored() {
    let wire = VoteResponse::default();
    assert_eq!(
        read(WireResponse::Vote(wire)),
        Err(Unusable::OtherPartition)
    );
    let wire = FetchResponse {
        error_code: ErrorCode::InconsistentClusterId.code(),
        ..Default::default()
    };
    assert_eq!(
        read(WireResponse::Fetch(wire)),
        Err(Unusable::Refused(ErrorCode::InconsistentClusterId))
    );
}
