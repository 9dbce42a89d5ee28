//! The batches in a Fetch response of the metadata log, and an observer of a leading node.

mod observer;

use bytes::Bytes;
use bytestring::ByteString;
use ottla_protocol::Records;
use ottla_protocol::messages::FetchRequest;
use ottla_raft::wire::{AnswerParts, QuorumApi, Unusable, WireResponse};
use ottla_raft::{CurrentLeader, FetchData, Response};
use ottla_types::{BrokerId, ErrorCode, LeaderEpoch, Offset};

use ottla_node::quorum::outgoing::{Payload, read};

const LISTENER: ByteString = ByteString::from_static("CONTROLLER");

/// The response to a Fetch, with these bytes.
fn fetched(bytes: Bytes) -> WireResponse {
    let response = ottla_raft::FetchResponse {
        error: ErrorCode::None,
        current_leader: CurrentLeader {
            leader: Some(BrokerId(7)),
            epoch: LeaderEpoch(5),
            endpoints: Vec::new(),
        },
        log_start_offset: Offset(3),
        high_watermark: Some(Offset(41)),
        data: FetchData::Empty,
    };
    let parts = AnswerParts {
        listener_name: &LISTENER,
        has_endpoints: true,
        records: Records::from(bytes),
    };
    let response = FetchRequest::answer(Response::Fetch(response), parts);
    WireResponse::Fetch(response.expect("a fetch"))
}

#[test]
fn invalid_bytes_are_refused_and_a_truncated_batch_is_omitted() {
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
    let answered = |bytes: Vec<u8>| read(fetched(Bytes::from(bytes)), &LISTENER);
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

/// It is neither skipped nor fetched again, because this node does not know the state of its
/// cluster.
#[test]
fn the_error_names_a_record_of_a_newer_release() {
    let newer = b"\x01\x63\x02";
    let mut batch = ottla_records::RecordBatchBuilder::new(ottla_records::Compression::None)
        .base_offset(Offset(42))
        .partition_leader_epoch(LeaderEpoch(5));
    batch.append(ottla_types::Timestamp(1), None, Some(newer), &[]);
    let read = read(fetched(batch.build_in_place()), &LISTENER);
    let Err(refused @ Unusable::Undecodable(_)) = read else {
        panic!("{read:?}");
    };
    let sentence = refused.to_string();
    for words in ["record type 99 version 2", "newer release"] {
        assert!(sentence.contains(words), "{sentence}");
    }
}
