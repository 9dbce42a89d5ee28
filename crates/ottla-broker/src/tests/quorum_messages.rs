//! The messages of the quorum in both directions, and an observer beside a node that leads.

mod observer;

use bytes::Bytes;
use bytestring::ByteString;
use ottla_protocol::{Encoder, Message, Records};
use ottla_raft::{
    CurrentLeader, FetchData, LogEnd, ReplicaKey, Request, Response, SnapshotId, Voter,
    VoterEndpoint,
};
use ottla_types::{BrokerId, ErrorCode, LeaderEpoch, Offset, Uuid};

use crate::api;
use ottla_node::quorum::outgoing::{Payload, Unusable, WireRequest, WireResponse};
use ottla_node::quorum::served::ServedData;

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

/// What the node that is asked reads.
fn received(request: Request) -> Result<Request, ErrorCode> {
    match WireRequest::new(request, &CLUSTER_ID) {
        WireRequest::Vote(it) => api::vote::read(over_the_wire(&it, 2), &CLUSTER_ID),
        WireRequest::BeginQuorumEpoch(it) => {
            api::begin_quorum_epoch::read(over_the_wire(&it, 1), &CLUSTER_ID)
        }
        WireRequest::EndQuorumEpoch(it) => {
            api::end_quorum_epoch::read(over_the_wire(&it, 1), &CLUSTER_ID)
        }
        WireRequest::Fetch(it) => {
            api::fetch_metadata_log::read(over_the_wire(&it, 18), &CLUSTER_ID)
        }
        WireRequest::FetchSnapshot(it) => {
            api::fetch_snapshot::read(over_the_wire(&it, 1), &CLUSTER_ID)
        }
        WireRequest::UpdateVoter(it) => {
            api::update_raft_voter::read(over_the_wire(&it, 0), &CLUSTER_ID)
        }
        WireRequest::AddVoter(it) => Ok(api::add_raft_voter::read(over_the_wire(&it, 1))),
        WireRequest::RemoveVoter(it) => Ok(api::remove_raft_voter::read(&over_the_wire(&it, 0))),
        WireRequest::ApiVersions(_) => Ok(Request::ApiVersions),
    }
}

#[test]
fn a_request_arrives_as_it_was_meant() {
    let log_end = LogEnd {
        offset: Offset(42),
        epoch: LeaderEpoch(4),
    };
    let snapshot = SnapshotId {
        end_offset: Offset(40),
        epoch: LeaderEpoch(3),
    };
    for request in [
        Request::Vote(ottla_raft::VoteRequest {
            epoch: LeaderEpoch(5),
            candidate: key(1),
            voter: Some(key(2)),
            log_end,
            pre_vote: true,
        }),
        Request::BeginQuorumEpoch(ottla_raft::BeginQuorumEpochRequest {
            leader: BrokerId(1),
            epoch: LeaderEpoch(5),
            endpoints: endpoints(1),
            voter: Some(key(2)),
        }),
        Request::EndQuorumEpoch(ottla_raft::EndQuorumEpochRequest {
            leader: BrokerId(1),
            epoch: LeaderEpoch(5),
            endpoints: endpoints(1),
            preferred_successors: vec![key(3), key(2)],
        }),
        Request::Fetch(ottla_raft::FetchRequest {
            replica: key(1),
            current_leader_epoch: LeaderEpoch(5),
            log_end,
            high_watermark: Offset(41),
            max_bytes: 1000,
            max_wait_ms: 500,
        }),
        Request::FetchSnapshot(ottla_raft::FetchSnapshotRequest {
            replica: key(1),
            current_leader_epoch: LeaderEpoch(5),
            snapshot,
            position: 77,
            max_bytes: 1000,
        }),
        Request::UpdateVoter(ottla_raft::UpdateVoterRequest {
            current_leader_epoch: LeaderEpoch(5),
            voter: Voter {
                key: key(1),
                endpoints: endpoints(1),
                supported_kraft_versions: (0, 1),
            },
        }),
        Request::AddVoter(ottla_raft::AddVoterRequest {
            voter: key(1),
            endpoints: endpoints(1),
            ack_when_committed: false,
        }),
        Request::RemoveVoter(ottla_raft::RemoveVoterRequest { voter: key(1) }),
    ] {
        assert_eq!(received(request.clone()), Ok(request));
    }
}

#[test]
fn a_voter_of_version_0_is_known_by_its_id() {
    let request = Request::EndQuorumEpoch(ottla_raft::EndQuorumEpochRequest {
        leader: BrokerId(1),
        epoch: LeaderEpoch(5),
        endpoints: endpoints(1),
        preferred_successors: vec![key(3), key(2)],
    });
    let WireRequest::EndQuorumEpoch(wire) = WireRequest::new(request, &CLUSTER_ID) else {
        panic!("another request");
    };
    let read = api::end_quorum_epoch::read(over_the_wire(&wire, 0), &CLUSTER_ID);
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
fn an_answer_arrives_as_it_was_meant() {
    let (error, current_leader) = (ErrorCode::FencedLeaderEpoch, leader());
    let epoch = ottla_raft::QuorumEpochResponse {
        error,
        current_leader,
    };
    let vote = ottla_raft::VoteResponse {
        error,
        current_leader: leader(),
        is_granted: true,
    };
    let wire = api::vote::write(&vote, &LISTENER, 2);
    let read = WireResponse::Vote(over_the_wire(&wire, 2)).read(&LISTENER);
    assert_eq!(read.expect("is read").response, Response::Vote(vote));

    let wire = api::begin_quorum_epoch::write(&epoch, &LISTENER, 1);
    let read = WireResponse::BeginQuorumEpoch(over_the_wire(&wire, 1)).read(&LISTENER);
    let expected = Response::BeginQuorumEpoch(epoch.clone());
    assert_eq!(read.expect("is read").response, expected);

    let wire = api::end_quorum_epoch::write(&epoch, &LISTENER, 1);
    let read = WireResponse::EndQuorumEpoch(over_the_wire(&wire, 1)).read(&LISTENER);
    let expected = Response::EndQuorumEpoch(epoch.clone());
    assert_eq!(read.expect("is read").response, expected);

    let wire = api::update_raft_voter::write(&epoch, &LISTENER);
    let read = WireResponse::UpdateVoter(over_the_wire(&wire, 0)).read(&LISTENER);
    let expected = Response::UpdateVoter(epoch);
    assert_eq!(read.expect("is read").response, expected);
}

fn fetch_response(data: FetchData) -> ottla_raft::FetchResponse {
    ottla_raft::FetchResponse {
        error: ErrorCode::None,
        current_leader: leader(),
        log_start_offset: Offset(3),
        high_watermark: Some(Offset(41)),
        data,
    }
}

#[test]
fn a_fetch_is_answered_with_nothing_a_divergence_or_a_snapshot() {
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
        let wire = api::fetch_metadata_log::write(&answer, ServedData::None, &LISTENER, 18);
        let read = WireResponse::Fetch(over_the_wire(&wire, 18)).read(&LISTENER);
        assert_eq!(read.expect("is read").response, Response::Fetch(answer));
    }
}

#[test]
fn a_leader_at_another_listener_is_named_without_an_address() {
    let vote = ottla_raft::VoteResponse {
        error: ErrorCode::None,
        current_leader: leader(),
        is_granted: false,
    };
    let wire = api::vote::write(&vote, "OTHER", 2);
    assert!(wire.node_endpoints.is_empty());
    assert_eq!(wire.topics[0].partitions[0].leader_id, 7);
    // And the oldest version has no room for one.
    assert!(
        api::vote::write(&vote, &LISTENER, 0)
            .node_endpoints
            .is_empty()
    );
}

#[test]
fn bytes_that_are_no_batches_are_refused_and_a_batch_cut_off_is_left_out() {
    use ottla_protocol::metadata_records::{MetadataRecord, NoOpRecord};
    use ottla_storage::metadata::record_batches::records_batch;
    let batch = |offset| {
        records_batch(
            Offset(offset),
            LeaderEpoch(5),
            ottla_types::Timestamp(1),
            &[MetadataRecord::NoOp(NoOpRecord::default())],
            ottla_metadata::MetadataVersion::LATEST_PRODUCTION,
        )
        .expect("a batch")
        .to_bytes()
    };
    let answered = |bytes: Vec<u8>| {
        let data = ServedData::Records(Records::from(Bytes::from(bytes)));
        let answer = fetch_response(FetchData::Empty);
        let wire = api::fetch_metadata_log::write(&answer, data, &LISTENER, 18);
        WireResponse::Fetch(over_the_wire(&wire, 18)).read(&LISTENER)
    };
    let mut two = [batch(42), batch(43)].concat();
    let read = answered(two.clone()).expect("is read");
    assert!(matches!(&read.payload, Payload::Batches(batches) if batches.len() == 2));
    let Response::Fetch(ottla_raft::FetchResponse {
        data: FetchData::Batches(batches),
        ..
    }) = read.response
    else {
        panic!("no batches");
    };
    let offsets: Vec<_> = batches
        .iter()
        .map(|batch| (batch.base_offset.value(), batch.epoch.value()))
        .collect();
    assert_eq!(offsets, [(42, 5), (43, 5)]);

    let cut = two[..two.len() - 3].to_vec();
    let read = answered(cut).expect("is read");
    assert!(matches!(&read.payload, Payload::Batches(batches) if batches.len() == 1));

    *two.last_mut().expect("bytes") ^= 1;
    assert!(matches!(answered(two), Err(Unusable::Corrupt(_))));
}

/// It is neither left out nor asked for again: this node does not know what its cluster has become.
#[test]
fn a_record_of_a_newer_release_is_named() {
    let newer = b"\x01\x63\x02";
    let mut batch = ottla_records::RecordBatchBuilder::new(ottla_records::Compression::None)
        .base_offset(Offset(42))
        .partition_leader_epoch(LeaderEpoch(5));
    batch.append(ottla_types::Timestamp(1), None, Some(newer), &[]);
    let data = ServedData::Records(Records::from(batch.build_in_place()));
    let answer = fetch_response(FetchData::Empty);
    let wire = api::fetch_metadata_log::write(&answer, data, &LISTENER, 18);
    let read = WireResponse::Fetch(over_the_wire(&wire, 18)).read(&LISTENER);
    let Err(refused @ Unusable::Undecodable(_)) = read else {
        panic!("{read:?}");
    };
    let sentence = refused.to_string();
    for words in ["record type 99 version 2", "newer release"] {
        assert!(sentence.contains(words), "{sentence}");
    }
}

#[test]
fn an_answer_about_something_else_is_none() {
    let wire = ottla_protocol::messages::VoteResponse::default();
    let read = WireResponse::Vote(wire).read(&LISTENER);
    assert!(matches!(read, Err(Unusable::OtherPartition)));
    let wire = ottla_protocol::messages::FetchResponse {
        error_code: ErrorCode::InconsistentClusterId.code(),
        ..Default::default()
    };
    let read = WireResponse::Fetch(wire).read(&LISTENER);
    assert!(matches!(
        read,
        Err(Unusable::Refused(ErrorCode::InconsistentClusterId))
    ));
}
