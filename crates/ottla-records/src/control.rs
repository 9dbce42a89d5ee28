//! Control records: records that brokers and controllers write between the records of clients.
//!
//! The key contains the type, `version i16 | type i16`; the value depends on the type. The marker that
//! ends a transaction is defined here; the values of the KRaft types are messages of the protocol.
//! Kafka: `ControlRecordType`, `EndTransactionMarker`, `MemoryRecords.withEndTransactionMarker`.

use bytes::Bytes;
use ottla_types::{
    LeaderEpoch, Offset, ProducerEpoch, ProducerId, Sequence, Timestamp, named_enum,
};

use crate::{BatchError, Compression, RecordBatch, RecordBatchBuilder};

named_enum! {
    /// The kind of a control record.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
    #[repr(i16)]
    pub enum ControlRecordType {
        Abort = 0 => "ABORT",
        Commit = 1 => "COMMIT",
        LeaderChange = 2 => "LEADER_CHANGE",
        SnapshotHeader = 3 => "SNAPSHOT_HEADER",
        SnapshotFooter = 4 => "SNAPSHOT_FOOTER",
        KRaftVersion = 5 => "KRAFT_VERSION",
        KRaftVoters = 6 => "KRAFT_VOTERS",
    }
}

const KEY_VERSION: i16 = 0;
const END_TXN_MARKER_VERSION: i16 = 0;

impl ControlRecordType {
    /// The type with this number; `None` for an unknown one, which Kafka skips.
    pub fn from_type_id(type_id: i16) -> Option<ControlRecordType> {
        Self::ALL.into_iter().find(|it| it.type_id() == type_id)
    }

    pub const fn type_id(self) -> i16 {
        self as i16
    }

    /// The record key of this kind.
    pub fn to_key(self) -> [u8; 4] {
        let [v0, v1] = KEY_VERSION.to_be_bytes();
        let [t0, t1] = self.type_id().to_be_bytes();
        [v0, v1, t0, t1]
    }

    /// The type in a record key; `Ok(None)` for an unknown number. Of a key of a later version, the
    /// known prefix is read.
    pub fn parse_key(key: &[u8]) -> Result<Option<ControlRecordType>, BatchError> {
        let Some(&[v0, v1, t0, t1]) = key.first_chunk::<4>() else {
            return Err(BatchError::MalformedControlRecord(format!(
                "its key has {} bytes, but needs 4",
                key.len()
            )));
        };
        let version = i16::from_be_bytes([v0, v1]);
        if version < 0 {
            return Err(BatchError::MalformedControlRecord(format!(
                "its key has version {version}"
            )));
        }
        Ok(Self::from_type_id(i16::from_be_bytes([t0, t1])))
    }
}

/// The value of the marker that ends a transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EndTxnMarker {
    /// The epoch of the transaction coordinator that wrote it, which fences older ones.
    pub coordinator_epoch: i32,
}

impl EndTxnMarker {
    pub fn to_bytes(self) -> [u8; 6] {
        let mut bytes = [0; 6];
        bytes[..2].copy_from_slice(&END_TXN_MARKER_VERSION.to_be_bytes());
        bytes[2..].copy_from_slice(&self.coordinator_epoch.to_be_bytes());
        bytes
    }

    /// Reads the value. Of a later version, the known fields are read.
    pub fn parse(value: &[u8]) -> Result<EndTxnMarker, BatchError> {
        let Some(&[v0, v1, e0, e1, e2, e3]) = value.first_chunk::<6>() else {
            return Err(BatchError::MalformedControlRecord(format!(
                "the end of a transaction has a value of {} bytes, but needs 6",
                value.len()
            )));
        };
        let version = i16::from_be_bytes([v0, v1]);
        if version < END_TXN_MARKER_VERSION {
            return Err(BatchError::MalformedControlRecord(format!(
                "the end of a transaction has version {version}"
            )));
        }
        Ok(EndTxnMarker {
            coordinator_epoch: i32::from_be_bytes([e0, e1, e2, e3]),
        })
    }
}

/// The batch that ends a producer's transaction in one partition. `control_type` is `Commit` or
/// `Abort`. The log assigns offset and leader epoch.
pub fn end_txn_batch(
    producer_id: ProducerId,
    producer_epoch: ProducerEpoch,
    control_type: ControlRecordType,
    marker: EndTxnMarker,
    now: Timestamp,
) -> RecordBatch {
    assert!(
        matches!(
            control_type,
            ControlRecordType::Commit | ControlRecordType::Abort
        ),
        "a transaction ends with COMMIT or ABORT"
    );
    let mut builder = RecordBatchBuilder::new(Compression::None)
        .producer(producer_id, producer_epoch, Sequence::NONE)
        .transactional(true)
        .control(true);
    builder.append(
        now,
        Some(&control_type.to_key()),
        Some(&marker.to_bytes()),
        &[],
    );
    builder.build()
}

/// A control batch of the KRaft types at a known offset in the metadata log or a snapshot. The
/// records keep the given order.
pub fn kraft_control_batch(
    base_offset: Offset,
    leader_epoch: LeaderEpoch,
    now: Timestamp,
    records: &[(ControlRecordType, Bytes)],
) -> RecordBatch {
    let mut builder = RecordBatchBuilder::new(Compression::None).control(true);
    for (control_type, value) in records {
        builder.append(now, Some(&control_type.to_key()), Some(value), &[]);
    }
    let mut batch = builder.build();
    batch.assign_offset(base_offset, leader_epoch);
    batch
}

#[cfg(test)]
mod tests {
    use ottla_types::{ProducerEpoch, ProducerId, Sequence, Timestamp};

    use super::{ControlRecordType, EndTxnMarker, end_txn_batch};

    #[test]
    fn keys_round_trip_and_unknown_kinds_differ_from_broken_keys() {
        for type_id in 0..7 {
            let control_type = ControlRecordType::from_type_id(type_id).unwrap();
            assert_eq!(control_type.type_id(), type_id);
            assert_eq!(
                ControlRecordType::parse_key(&control_type.to_key()),
                Ok(Some(control_type))
            );
        }
        assert_eq!(ControlRecordType::parse_key(&[0, 0, 0, 7]), Ok(None));
        assert_eq!(
            ControlRecordType::parse_key(&[0, 9, 0, 1, 5, 5]),
            Ok(Some(ControlRecordType::Commit))
        );
        assert!(ControlRecordType::parse_key(&[0, 0, 0]).is_err());
        assert!(ControlRecordType::parse_key(&[0xff, 0xff, 0, 1]).is_err());
    }

    #[test]
    fn markers_come_back() {
        let marker = EndTxnMarker {
            coordinator_epoch: 77,
        };
        assert_eq!(marker.to_bytes(), [0, 0, 0, 0, 0, 77]);
        assert_eq!(EndTxnMarker::parse(&marker.to_bytes()), Ok(marker));
        assert!(EndTxnMarker::parse(&[0, 0, 0, 0, 0]).is_err());
        assert!(EndTxnMarker::parse(&[0xff, 0xff, 0, 0, 0, 1]).is_err());
    }

    #[test]
    fn a_transaction_ends_with_a_control_batch() {
        let batch = end_txn_batch(
            ProducerId(9),
            ProducerEpoch(3),
            ControlRecordType::Abort,
            EndTxnMarker {
                coordinator_epoch: 4,
            },
            Timestamp(1000),
        );
        assert!(batch.header.is_control() && batch.header.is_transactional());
        assert_eq!(batch.header.base_sequence, Sequence::NONE);
        assert_eq!(batch.verify_crc(), Ok(()));
        let record = batch.records(1024).unwrap().next().unwrap().unwrap();
        let control_type = ControlRecordType::parse_key(&record.key.unwrap());
        assert_eq!(control_type, Ok(Some(ControlRecordType::Abort)));
        assert_eq!(
            EndTxnMarker::parse(&record.value.unwrap())
                .unwrap()
                .coordinator_epoch,
            4
        );
    }
}
