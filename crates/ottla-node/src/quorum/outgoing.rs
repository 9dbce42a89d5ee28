//! Payloads of the responses to this node's own requests: decoded batches of the metadata log, and
//! parts of snapshots. They are kept for the effect that uses them. `ottla_raft::wire` reads the
//! responses themselves.
//!
//! In Kafka: `KafkaRaftClient.handleFetchResponse`, `KafkaRaftClient.handleFetchSnapshotResponse`.

use bytes::Bytes;
use bytestring::ByteString;
use ottla_raft::wire::{Unusable, WireResponse};
use ottla_raft::{ControlRecord, LogBatch, Response};
use ottla_records::RecordBatch;

use ottla_storage::metadata::record_batches::{
    ControlValue, MetadataBatch, MetadataBatchContent, MetadataReadError,
};

/// A response for the state machine, and its payload.
#[derive(Debug)]
pub struct Received {
    pub response: Response,
    pub payload: Payload,
}

#[derive(Debug, Default)]
pub enum Payload {
    #[default]
    None,
    /// In the order of the log, each as it is written and as it is applied.
    Batches(Vec<(RecordBatch, MetadataBatch)>),
    /// A part of a snapshot.
    SnapshotBytes(Bytes),
}

/// `listener_name` is the controller listener.
pub fn read(response: WireResponse, listener_name: &ByteString) -> Result<Received, Unusable> {
    let mut batches = Vec::new();
    let (response, snapshot_bytes) = response.read(listener_name, |bytes| {
        batches = read_batches(bytes)?;
        Ok(batches.iter().map(|(_, batch)| log_batch(batch)).collect())
    })?;
    let payload = match &response {
        Response::FetchSnapshot(_) => Payload::SnapshotBytes(snapshot_bytes),
        _ if !batches.is_empty() => Payload::Batches(batches),
        _ => Payload::None,
    };
    Ok(Received { response, payload })
}

/// Decodes the complete batches. A batch that is cut off at the end is fetched again.
fn read_batches(bytes: Bytes) -> Result<Vec<(RecordBatch, MetadataBatch)>, Unusable> {
    let mut batches = Vec::new();
    for batch in RecordBatch::read_all(bytes) {
        let batch = batch.map_err(|error| Unusable::Corrupt(error.to_string()))?;
        let decoded = MetadataBatch::read(&batch).map_err(|error| match error {
            MetadataReadError::Batch { .. } => Unusable::Corrupt(error.to_string()),
            MetadataReadError::Record { .. } | MetadataReadError::NoValue(_) => {
                Unusable::Undecodable(error.to_string())
            }
        })?;
        batches.push((batch, decoded));
    }
    Ok(batches)
}

/// The fields of a batch that the state machine needs.
fn log_batch(batch: &MetadataBatch) -> LogBatch {
    let mut control_records = Vec::new();
    if let MetadataBatchContent::Control(values) = &batch.content {
        let mut offset = batch.base_offset;
        for value in values {
            if let Some(record) = control_record(value) {
                control_records.push((offset, record));
            }
            offset = offset.plus(1);
        }
    }
    LogBatch {
        base_offset: batch.base_offset,
        last_offset: batch.last_offset,
        epoch: batch.epoch,
        control_records,
    }
}

/// The control record, if the quorum uses values of this type.
pub fn control_record(value: &ControlValue) -> Option<ControlRecord> {
    match value {
        ControlValue::LeaderChange(record) => Some(ControlRecord::LeaderChange(record.clone())),
        ControlValue::KRaftVersion(record) => Some(ControlRecord::KRaftVersion(record.clone())),
        ControlValue::Voters(record) => Some(ControlRecord::Voters(record.clone())),
        ControlValue::SnapshotHeader(_) | ControlValue::SnapshotFooter(_) => None,
    }
}
