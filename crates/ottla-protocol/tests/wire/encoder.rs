use std::sync::Arc;

use bytes::Bytes;

use ottla_protocol::messages::FetchRequest;
use ottla_protocol::messages::fetch_response::{
    FetchResponse, FetchableTopicResponse, PartitionData,
};
use ottla_protocol::messages::produce_request::{
    PartitionProduceData, ProduceRequest, TopicProduceData,
};
use ottla_protocol::{Chunk, EncodeError, Encoder, FileRegion, Message, RawTaggedField, Records};

/// Records of at least this length are not copied.
const SPLICE_FROM: usize = 4 * 1024;

fn fetch_response(records: Vec<Option<Records>>) -> FetchResponse {
    let partitions = records
        .into_iter()
        .map(|records| PartitionData {
            records,
            ..Default::default()
        })
        .collect();
    let topic = FetchableTopicResponse {
        partitions,
        ..Default::default()
    };
    FetchResponse {
        responses: vec![topic],
        ..Default::default()
    }
}

#[test]
fn a_length_is_written_when_it_is_known() {
    for records in [Bytes::from_static(b"small"), vec![1; SPLICE_FROM].into()] {
        let mut out = Encoder::new();
        out.i32(0);
        out.records(false, &Records::Bytes(records.clone()))
            .unwrap();
        out.overwrite_start(7);
        let bytes = out.finish().into_bytes();
        assert_eq!(bytes[..4], 7_i32.to_be_bytes());
        assert_eq!(bytes[8..], records);
    }
}

#[test]
fn records_are_spliced_in_where_they_are() {
    let large = Bytes::from(vec![1u8; SPLICE_FROM]);
    let small = Bytes::from(vec![2u8; SPLICE_FROM - 1]);
    let file = Arc::new(std::fs::File::open(std::env::current_exe().unwrap()).unwrap());
    let region = FileRegion {
        file,
        position: 10,
        len: 1 << 32 >> 3,
    };
    let response = fetch_response(vec![
        Some(Records::Bytes(large.clone())),
        Some(Records::Bytes(small)),
        Some(Records::File(region.clone())),
        None,
    ]);
    let mut out = Encoder::new();
    response.encode(&mut out, 16).unwrap();
    let length = out.len();
    let encoded = out.finish();
    assert_eq!(encoded.len(), length);

    let [
        Chunk::Bytes(_),
        Chunk::Bytes(shared),
        Chunk::Bytes(between),
        Chunk::File(sent),
        Chunk::Bytes(_),
    ] = &encoded.chunks[..]
    else {
        panic!(
            "{:?}",
            encoded.chunks.iter().map(Chunk::len).collect::<Vec<_>>()
        );
    };
    assert_eq!(shared.as_ptr(), large.as_ptr());
    assert!(between.len() >= SPLICE_FROM - 1);
    assert_eq!(sent, &region);
    assert_eq!(encoded.try_into_bytes(), Err(EncodeError::FileRegion));
}

#[test]
fn an_empty_file_region_is_no_chunk_but_its_length_is_said() {
    let file = Arc::new(std::fs::File::open(std::env::current_exe().unwrap()).unwrap());
    let empty = Records::File(FileRegion {
        file,
        position: 0,
        len: 0,
    });
    let with_file = fetch_response(vec![Some(empty)])
        .encode_to_bytes(12)
        .unwrap();
    let with_bytes = fetch_response(vec![Some(Bytes::new().into())])
        .encode_to_bytes(12)
        .unwrap();
    assert_eq!(with_file, with_bytes);
}

#[test]
fn decoded_records_and_strings_are_slices_of_the_request() {
    let partition = PartitionProduceData {
        records: Some(Bytes::from(vec![3u8; 100]).into()),
        ..Default::default()
    };
    let topic = TopicProduceData {
        name: "orders".into(),
        partition_data: vec![partition],
        ..Default::default()
    };
    let request = ProduceRequest {
        topic_data: vec![topic],
        ..Default::default()
    };
    let bytes = request.encode_to_bytes(9).unwrap();
    let decoded = ProduceRequest::decode_all(&bytes, 9).unwrap();
    assert_eq!(decoded, request);
    let within = bytes.as_ptr_range();
    let topic = &decoded.topic_data[0];
    assert!(within.contains(&topic.name.as_bytes().as_ptr()));
    let records = topic.partition_data[0]
        .records
        .as_ref()
        .and_then(Records::as_bytes)
        .unwrap();
    assert!(within.contains(&records.as_ptr()));
}

#[test]
fn fields_missing_in_a_version_are_refused_unless_ignorable() {
    let nested = FetchRequest {
        topics: vec![ottla_protocol::messages::fetch_request::FetchTopic {
            partitions: vec![ottla_protocol::messages::fetch_request::FetchPartition {
                last_fetched_epoch: 5,
                ..Default::default()
            }],
            ..Default::default()
        }],
        ..Default::default()
    };
    assert!(nested.encode_to_bytes(12).is_ok());
    assert_eq!(
        nested.encode_to_bytes(11),
        Err(EncodeError::NotRepresentable {
            field: "FetchPartition.LastFetchedEpoch",
            version: 11
        })
    );
    // Ignorable fields are dropped without an error.
    let with_session = FetchRequest {
        session_id: 9,
        ..Default::default()
    };
    assert_eq!(
        with_session.encode_to_bytes(6).unwrap(),
        FetchRequest::default().encode_to_bytes(6).unwrap()
    );
    assert_eq!(
        FetchRequest::default().encode_to_bytes(3),
        Err(EncodeError::UnsupportedVersion {
            message: "FetchRequest",
            version: 3
        })
    );
}

#[test]
fn null_where_the_version_has_none_is_refused() {
    let response = ottla_protocol::messages::FetchSnapshotResponse {
        topics: vec![
            ottla_protocol::messages::fetch_snapshot_response::TopicSnapshot {
                partitions: vec![Default::default()],
                ..Default::default()
            },
        ],
        ..Default::default()
    };
    assert_eq!(
        response.encode_to_bytes(0),
        Err(EncodeError::NullNotAllowed {
            field: "PartitionSnapshot.UnalignedRecords",
            version: 0
        })
    );
}

#[test]
fn unknown_tagged_fields_are_kept_between_the_known_ones() {
    let raw = |tag, byte| RawTaggedField {
        tag,
        data: Bytes::from(vec![byte; 3]),
    };
    let request = FetchRequest {
        cluster_id: Some("c".into()),
        unknown_tagged_fields: [raw(7, 1), raw(300, 2)].into_iter().collect(),
        ..Default::default()
    };
    let bytes = request.encode_to_bytes(12).unwrap();
    assert_eq!(FetchRequest::decode_all(&bytes, 12).unwrap(), request);
    assert!(bytes.ends_with(b"\x03\x00\x02\x02c\x07\x03\x01\x01\x01\xac\x02\x03\x02\x02\x02"));

    for unknown in [
        vec![raw(300, 1), raw(7, 1)],
        vec![raw(7, 1), raw(7, 1)],
        vec![raw(0, 1)],
    ] {
        let request = FetchRequest {
            unknown_tagged_fields: unknown.into_iter().collect(),
            ..request.clone()
        };
        assert!(matches!(
            request.encode_to_bytes(12),
            Err(EncodeError::TagOrder { .. })
        ));
    }
    assert!(matches!(
        request.encode_to_bytes(11),
        Err(EncodeError::NotRepresentable { .. })
    ));
}

#[test]
fn a_known_tagged_field_ends_at_its_size() {
    let request = FetchRequest {
        cluster_id: Some("c".into()),
        ..Default::default()
    };
    let bytes = request.encode_to_bytes(12).unwrap().to_vec();
    let size = bytes.len() - 3;
    assert_eq!(bytes[size], 2);
    for wrong in [1, 3] {
        let mut bent = bytes.clone();
        bent[size] = wrong;
        bent.extend([0; 4]);
        assert!(FetchRequest::decode_all(&bent.into(), 12).is_err());
    }
}
