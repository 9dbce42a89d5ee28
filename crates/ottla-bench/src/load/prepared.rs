//! Produce requests that are built, with their memory touched, before the clock starts.

use anyhow::{Result, ensure};
use ottla_protocol::Records;
use ottla_protocol::messages::produce_request::{
    PartitionProduceData, ProduceRequest, TopicProduceData,
};
use ottla_records::{Compression, RecordBatchBuilder};
use ottla_types::Timestamp;

use super::topic::Topic;
use super::wire::{Connection, frame};
use crate::workload::values::Values;

/// The first version of Produce that identifies topics by ID (KIP-516).
pub(super) const FIRST_VERSION_WITH_TOPIC_ID: i16 = 13;
pub(super) const PRODUCE_TIMEOUT_MS: i32 = 30_000;

/// The content of a batch.
#[derive(Clone, Copy, Debug)]
pub struct BatchShape {
    /// Uncompressed size of the batch including its header, filled with as many records as fit.
    pub batch_bytes: usize,
    /// Value size of each record.
    pub record_bytes: usize,
    pub compression: Compression,
}

/// A request with one batch for one partition, which can be sent repeatedly.
#[derive(Clone, Debug)]
pub struct PreparedProduce {
    pub frame: Vec<u8>,
    pub records: u64,
    /// Size of the batch on the wire.
    pub batch_bytes: u64,
    /// Total size of the record values.
    pub payload_bytes: u64,
}

/// The Produce version to use on this connection.
pub fn produce_version(connection: &Connection) -> Result<i16> {
    connection.version::<ProduceRequest>()
}

/// A batch of this shape with the next of these values, whose size matches the shape.
pub(super) fn filled(shape: BatchShape, now: Timestamp, values: &mut Values) -> RecordBatchBuilder {
    let mut builder = RecordBatchBuilder::new(shape.compression).capacity(shape.batch_bytes);
    loop {
        let value = values.next(0);
        let size = builder.uncompressed_size_with(now, None, Some(value), &[]);
        if !builder.is_empty() && size > shape.batch_bytes {
            return builder;
        }
        builder.append(now, None, Some(value), &[]);
    }
}

/// Prepares a request with a batch of this shape.
pub fn prepare(
    connection: &Connection,
    topic: &Topic,
    partition: i32,
    shape: BatchShape,
    acks: i16,
    now: Timestamp,
    values: &mut Values,
) -> Result<PreparedProduce> {
    let builder = filled(shape, now, values);
    let records = builder.record_count() as u64;
    let batch = builder.build();
    let version = produce_version(connection)?;
    let by_id = version >= FIRST_VERSION_WITH_TOPIC_ID;
    ensure!(
        !by_id || !topic.id.is_zero(),
        "the broker did not give topic {} an id",
        topic.name
    );
    let request = ProduceRequest {
        acks,
        timeout_ms: PRODUCE_TIMEOUT_MS,
        topic_data: vec![TopicProduceData {
            name: if by_id {
                Default::default()
            } else {
                topic.name.clone().into()
            },
            topic_id: if by_id { topic.id } else { Default::default() },
            partition_data: vec![PartitionProduceData {
                index: partition,
                records: Some(Records::Bytes(batch.to_bytes())),
                ..Default::default()
            }],
            ..Default::default()
        }],
        ..Default::default()
    };
    Ok(PreparedProduce {
        frame: frame(&request, version)?,
        records,
        batch_bytes: batch.size_in_bytes() as u64,
        payload_bytes: records * shape.record_bytes as u64,
    })
}
