//! Conversion of metadata records and control records to and from record batches.
//!
//! Kafka: `BatchBuilder`, `MetadataRecordSerde`, `RecordsIterator`.

use bytes::Bytes;
use ottla_metadata::{MetadataDelta, MetadataLoader, MetadataVersion, Provenance};
use ottla_protocol::metadata_records::MetadataRecord;
use ottla_protocol::raft_records::{
    KRaftVersionRecord, LeaderChangeMessage, SnapshotFooterRecord, SnapshotHeaderRecord,
    VotersRecord,
};
use ottla_protocol::{DecodeError, EncodeError, Message};
use ottla_records::control::{ControlRecordType, kraft_control_batch};
use ottla_records::{BatchError, Compression, RecordBatch, RecordBatchBuilder};
use ottla_types::{LeaderEpoch, Offset, Timestamp};

/// Maximum size of the records of a metadata batch; Kafka writes none above 8 MiB.
const MAX_BATCH_BYTES: usize = 64 * 1024 * 1024;

/// Why a batch of the metadata log or of a snapshot cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum MetadataReadError {
    #[error("the batch at offset {offset} is not whole: {error}")]
    Batch { offset: Offset, error: BatchError },
    #[error("the record at offset {offset} cannot be decoded: {error}")]
    Record { offset: Offset, error: DecodeError },
    #[error("the record at offset {0} has no value")]
    NoValue(Offset),
}

/// The value of a control record of the metadata log or of a snapshot.
#[derive(Clone, PartialEq, Debug)]
pub enum ControlValue {
    LeaderChange(LeaderChangeMessage),
    SnapshotHeader(SnapshotHeaderRecord),
    SnapshotFooter(SnapshotFooterRecord),
    KRaftVersion(KRaftVersionRecord),
    Voters(VotersRecord),
}

impl From<ottla_raft::ControlRecord> for ControlValue {
    fn from(record: ottla_raft::ControlRecord) -> ControlValue {
        match record {
            ottla_raft::ControlRecord::LeaderChange(value) => ControlValue::LeaderChange(value),
            ottla_raft::ControlRecord::KRaftVersion(value) => ControlValue::KRaftVersion(value),
            ottla_raft::ControlRecord::Voters(value) => ControlValue::Voters(value),
        }
    }
}

impl ControlValue {
    /// All in version 0, as written by Kafka 4.3.
    fn encode(&self) -> Result<(ControlRecordType, Bytes), EncodeError> {
        Ok(match self {
            ControlValue::LeaderChange(value) => {
                (ControlRecordType::LeaderChange, value.encode_to_bytes(0)?)
            }
            ControlValue::SnapshotHeader(value) => {
                (ControlRecordType::SnapshotHeader, value.encode_to_bytes(0)?)
            }
            ControlValue::SnapshotFooter(value) => {
                (ControlRecordType::SnapshotFooter, value.encode_to_bytes(0)?)
            }
            ControlValue::KRaftVersion(value) => {
                (ControlRecordType::KRaftVersion, value.encode_to_bytes(0)?)
            }
            ControlValue::Voters(value) => {
                (ControlRecordType::KRaftVoters, value.encode_to_bytes(0)?)
            }
        })
    }

    /// `None` for an unknown type, which is skipped as in Kafka.
    fn decode(key: &[u8], value: &Bytes) -> Result<Option<ControlValue>, ControlDecodeError> {
        let Some(kind) = ControlRecordType::parse_key(key).map_err(ControlDecodeError::Batch)?
        else {
            return Ok(None);
        };
        let decoded = match kind {
            ControlRecordType::LeaderChange => {
                ControlValue::LeaderChange(Message::decode_all(value, 0)?)
            }
            ControlRecordType::SnapshotHeader => {
                ControlValue::SnapshotHeader(Message::decode_all(value, 0)?)
            }
            ControlRecordType::SnapshotFooter => {
                ControlValue::SnapshotFooter(Message::decode_all(value, 0)?)
            }
            ControlRecordType::KRaftVersion => {
                ControlValue::KRaftVersion(Message::decode_all(value, 0)?)
            }
            ControlRecordType::KRaftVoters => ControlValue::Voters(Message::decode_all(value, 0)?),
            ControlRecordType::Abort | ControlRecordType::Commit => return Ok(None),
        };
        Ok(Some(decoded))
    }
}

enum ControlDecodeError {
    Batch(BatchError),
    Value(DecodeError),
}

impl From<DecodeError> for ControlDecodeError {
    fn from(error: DecodeError) -> Self {
        ControlDecodeError::Value(error)
    }
}

/// One batch of the metadata log or of a snapshot, decoded.
#[derive(Clone, PartialEq, Debug)]
pub struct MetadataBatch {
    pub base_offset: Offset,
    /// Inclusive.
    pub last_offset: Offset,
    pub epoch: LeaderEpoch,
    /// When the leader appended it.
    pub append_time: Timestamp,
    pub size_bytes: u64,
    pub content: MetadataBatchContent,
}

#[derive(Clone, PartialEq, Debug)]
pub enum MetadataBatchContent {
    Control(Vec<ControlValue>),
    Records(Vec<MetadataRecord>),
}

impl MetadataBatch {
    pub fn read(batch: &RecordBatch) -> Result<MetadataBatch, MetadataReadError> {
        let header = &batch.header;
        let broken = |error| MetadataReadError::Batch {
            offset: header.base_offset,
            error,
        };
        batch.verify_crc().map_err(broken)?;
        let records = batch.records(MAX_BATCH_BYTES).map_err(broken)?;
        let mut controls = Vec::new();
        let mut values = Vec::new();
        for view in records.iter() {
            let view = view.map_err(broken)?;
            let offset = view.offset;
            let undecodable = |error| MetadataReadError::Record { offset, error };
            let value = view.value.ok_or(MetadataReadError::NoValue(offset))?;
            let value = Bytes::copy_from_slice(value);
            if header.attributes.is_control() {
                let control = ControlValue::decode(view.key.unwrap_or_default(), &value);
                controls.extend(control.map_err(|error| match error {
                    ControlDecodeError::Batch(error) => MetadataReadError::Batch { offset, error },
                    ControlDecodeError::Value(error) => undecodable(error),
                })?);
            } else {
                values.push(MetadataRecord::decode(&value).map_err(undecodable)?);
            }
        }
        Ok(MetadataBatch {
            base_offset: header.base_offset,
            last_offset: header.last_offset(),
            epoch: header.partition_leader_epoch,
            append_time: header.max_timestamp,
            size_bytes: batch.size_in_bytes() as u64,
            content: if header.attributes.is_control() {
                MetadataBatchContent::Control(controls)
            } else {
                MetadataBatchContent::Records(values)
            },
        })
    }
}

impl MetadataBatch {
    /// Whether the batch sets `metadata.version`.
    pub fn sets_metadata_version(&self) -> bool {
        let MetadataBatchContent::Records(records) = &self.content else {
            return false;
        };
        records.iter().any(|record| {
            matches!(record, MetadataRecord::FeatureLevel(feature)
                if &*feature.name == MetadataVersion::FEATURE_NAME)
        })
    }

    /// The metadata records in it.
    pub fn records(&self) -> &[MetadataRecord] {
        match &self.content {
            MetadataBatchContent::Records(records) => records,
            MetadataBatchContent::Control(_) => &[],
        }
    }

    /// Applies the batch as the next of the log. The error is a sentence.
    pub fn load_into(self, loader: &mut MetadataLoader) -> Result<Option<MetadataDelta>, String> {
        let provenance = Provenance {
            last_contained_offset: self.last_offset,
            last_contained_epoch: self.epoch,
            last_contained_log_time: self.append_time,
        };
        let records = match self.content {
            MetadataBatchContent::Records(records) => records,
            // Only advances the offset of the image.
            MetadataBatchContent::Control(_) => Vec::new(),
        };
        loader.load_batch(records, provenance).map_err(|error| {
            format!(
                "the batch at offset {} cannot be applied: {error}",
                self.base_offset
            )
        })
    }
}

/// Records as one batch, each in the version required by `metadata_version`.
pub fn records_batch(
    base_offset: Offset,
    epoch: LeaderEpoch,
    now: Timestamp,
    records: &[MetadataRecord],
    metadata_version: MetadataVersion,
) -> Result<RecordBatch, EncodeError> {
    let mut builder = RecordBatchBuilder::new(Compression::None);
    for record in records {
        let value = record.encode_version(metadata_version.record_version(record))?;
        builder.append(now, None, Some(&value), &[]);
    }
    let mut batch = builder.build();
    batch.assign_offset(base_offset, epoch);
    Ok(batch)
}

/// Control records as one batch.
pub fn control_batch(
    base_offset: Offset,
    epoch: LeaderEpoch,
    now: Timestamp,
    records: &[ControlValue],
) -> Result<RecordBatch, EncodeError> {
    let records: Vec<_> = records
        .iter()
        .map(ControlValue::encode)
        .collect::<Result<_, _>>()?;
    Ok(kraft_control_batch(base_offset, epoch, now, &records))
}

#[cfg(test)]
mod tests {
    use ottla_protocol::metadata_records::{FeatureLevelRecord, NoOpRecord};

    use super::*;

    #[test]
    fn batches_round_trip() {
        let records = vec![
            MetadataRecord::FeatureLevel(FeatureLevelRecord {
                name: "metadata.version".into(),
                feature_level: 30,
                ..Default::default()
            }),
            MetadataRecord::NoOp(NoOpRecord::default()),
        ];
        let batch = records_batch(
            Offset(7),
            LeaderEpoch(3),
            Timestamp(1000),
            &records,
            MetadataVersion::LATEST_PRODUCTION,
        )
        .unwrap();
        let read = MetadataBatch::read(&batch).unwrap();
        assert_eq!((read.base_offset, read.last_offset), (Offset(7), Offset(8)));
        assert_eq!(
            (read.epoch, read.append_time),
            (LeaderEpoch(3), Timestamp(1000))
        );
        assert_eq!(read.content, MetadataBatchContent::Records(records));

        let controls = vec![
            ControlValue::SnapshotHeader(SnapshotHeaderRecord {
                last_contained_log_timestamp: 5,
                ..Default::default()
            }),
            ControlValue::KRaftVersion(KRaftVersionRecord {
                kraft_version: 1,
                ..Default::default()
            }),
        ];
        let batch = control_batch(Offset(0), LeaderEpoch(0), Timestamp(1), &controls).unwrap();
        assert_eq!(
            MetadataBatch::read(&batch).unwrap().content,
            MetadataBatchContent::Control(controls)
        );
    }

    #[test]
    fn a_damaged_batch_is_an_error() {
        let noop = [MetadataRecord::NoOp(NoOpRecord::default())];
        let batch = records_batch(
            Offset(0),
            LeaderEpoch(0),
            Timestamp(0),
            &noop,
            MetadataVersion::LATEST_PRODUCTION,
        )
        .unwrap();
        let mut bytes = batch.to_bytes().to_vec();
        *bytes.last_mut().unwrap() ^= 1;
        let bent = RecordBatch::read(&mut bytes.into()).unwrap();
        assert!(matches!(
            MetadataBatch::read(&bent),
            Err(MetadataReadError::Batch { .. })
        ));
    }
}
