use bytes::Bytes;
use ottla_protocol::DecodeError;
use ottla_types::{BrokerId, Offset, PartitionIndex, Timestamp, Uuid};

use crate::{
    CustomMetadata, LeaderEpochs, RemoteLogMetadata, RemoteLogMetadataError,
    RemoteLogSegmentMetadata, RemoteLogSegmentMetadataUpdate, RemoteLogSegmentState,
    RemotePartition, RemotePartitionDeleteMetadata, RemotePartitionDeleteState, RemoteSegment,
    RemoteSegmentError, RemoteSegmentUpdate,
};

fn partition() -> RemotePartition {
    RemotePartition {
        topic_id: Uuid::from_u128(0x0102),
        topic: "orders".into(),
        partition: PartitionIndex(3),
    }
}

fn segment() -> RemoteSegment {
    RemoteSegment {
        id: Uuid::from_u128(0x0304),
        start_offset: Offset(100),
        end_offset: Offset(250),
        max_timestamp: Timestamp(1_700_000_000_000),
        broker_id: BrokerId(2),
        event_timestamp: Timestamp(1_700_000_000_500),
        segment_size_bytes: 4096,
        custom_metadata: Some(CustomMetadata(Bytes::from_static(b"where"))),
        state: RemoteLogSegmentState::CopySegmentStarted,
        segment_leader_epochs: LeaderEpochs::from([(4, 100), (6, 200)]),
        is_txn_index_empty: true,
    }
}

fn messages() -> Vec<RemoteLogMetadata> {
    vec![
        RemoteLogMetadata::Segment(RemoteLogSegmentMetadata {
            partition: partition(),
            segment: segment(),
        }),
        RemoteLogMetadata::SegmentUpdate(RemoteLogSegmentMetadataUpdate {
            partition: partition(),
            update: RemoteSegmentUpdate {
                id: Uuid::from_u128(0x0304),
                event_timestamp: Timestamp(7),
                custom_metadata: None,
                state: RemoteLogSegmentState::CopySegmentFinished,
                broker_id: BrokerId(2),
            },
        }),
        RemoteLogMetadata::PartitionDelete(RemotePartitionDeleteMetadata {
            partition: partition(),
            state: RemotePartitionDeleteState::DeletePartitionStarted,
            event_timestamp: Timestamp(8),
            broker_id: BrokerId(1),
        }),
        RemoteLogMetadata::SegmentSnapshot(segment()),
    ]
}

#[test]
fn messages_round_trip() {
    for (record_type, message) in messages().into_iter().enumerate() {
        let bytes = message.encode().unwrap();
        assert_eq!(&bytes[..3], [1, record_type as u8, 0]);
        assert_eq!(RemoteLogMetadata::decode(&bytes).unwrap(), message);
    }
}

#[test]
fn a_segment_has_kafkas_bytes() {
    let bytes = messages()[0].encode().unwrap();
    let expected = [
        &b"\x01\x00\x00"[..],
        b"\x07orders",
        &[0; 14],
        b"\x01\x02",
        b"\x00\x00\x00\x03\x00",
        &[0; 14],
        b"\x03\x04\x00",
        &100i64.to_be_bytes(),
        &250i64.to_be_bytes(),
        b"\x00\x00\x00\x02",
        &1_700_000_000_000i64.to_be_bytes(),
        &1_700_000_000_500i64.to_be_bytes(),
        b"\x03",
        b"\x00\x00\x00\x04",
        &100i64.to_be_bytes(),
        b"\x00",
        b"\x00\x00\x00\x06",
        &200i64.to_be_bytes(),
        b"\x00",
        b"\x00\x00\x10\x00",
        b"\x06where",
        b"\x00",
        b"\x01\x00\x01\x01",
    ]
    .concat();
    assert_eq!(bytes, expected);
}

fn decode_changed(
    change: impl Fn(&mut RemoteSegment),
) -> Result<RemoteLogMetadata, RemoteLogMetadataError> {
    let mut segment = segment();
    change(&mut segment);
    let message = RemoteLogMetadata::Segment(RemoteLogSegmentMetadata {
        partition: partition(),
        segment,
    });
    RemoteLogMetadata::decode(&message.encode().unwrap())
}

#[test]
fn segments_that_kafka_refuses_are_errors() {
    let id = segment().id;
    let refused = |error| Err(RemoteLogMetadataError::Segment(error));
    assert_eq!(
        decode_changed(|segment| segment.start_offset = Offset(-1)),
        refused(RemoteSegmentError::NegativeStart {
            id,
            start_offset: Offset(-1)
        })
    );
    assert_eq!(
        decode_changed(|segment| segment.end_offset = Offset(99)),
        refused(RemoteSegmentError::EndBeforeStart {
            id,
            start_offset: Offset(100),
            end_offset: Offset(99)
        })
    );
    assert_eq!(
        decode_changed(|segment| segment.segment_leader_epochs = LeaderEpochs::default()),
        refused(RemoteSegmentError::NoLeaderEpochs { id })
    );
}

#[test]
fn unknown_states_and_records_are_named() {
    let mut bytes = messages()[1].encode().unwrap().to_vec();
    // The state is the last byte before the tagged fields.
    let state = bytes.len() - 2;
    bytes[state] = 9;
    assert_eq!(
        RemoteLogMetadata::decode(&bytes.into()),
        Err(RemoteLogMetadataError::UnknownSegmentState(9))
    );
    let decode = |bytes: &'static [u8]| RemoteLogMetadata::decode(&Bytes::from_static(bytes));
    assert_eq!(
        decode(b"\x01\x04\x00"),
        Err(RemoteLogMetadataError::Decode(DecodeError::UnknownRecord {
            record_type: 4,
            version: 0
        }))
    );
    assert!(decode(b"").is_err());
}
