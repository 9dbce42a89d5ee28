//! The records that a redrive sends, and its options.

use bytes::Bytes;
use ottla_client::{FetchedBatch, ProducerRecord};
use ottla_records::{RecordHeader, RecordView};

use crate::records::ranges::{self, Ranges};

pub(super) struct Plan {
    /// The request, as the preview and the redrive must both have it.
    pub(super) what: String,
    pub(super) topic_id: String,
    pub(super) to: String,
    /// Where the records are.
    pub(super) ranges: Ranges,
    pub(super) limit: u64,
    pub(super) keep_partition: bool,
    pub(super) keep_timestamp: bool,
}

impl Plan {
    pub(super) fn wants(&self, batch: &FetchedBatch, record: &RecordView<'_>) -> bool {
        ranges::contain(&self.ranges, batch.partition, record.offset.0)
    }

    pub(super) fn converted(
        &self,
        batch: &FetchedBatch,
        record: &RecordView<'_>,
    ) -> ProducerRecord {
        let copied = |bytes: Option<&[u8]>| bytes.map(Bytes::copy_from_slice);
        let headers = record.headers.iter();
        let header = |(key, value): (&[u8], Option<&[u8]>)| {
            RecordHeader::new(Bytes::copy_from_slice(key), copied(value))
        };
        ProducerRecord {
            topic: self.to.clone(),
            partition: self.keep_partition.then_some(batch.partition),
            key: copied(record.key),
            value: copied(record.value),
            headers: headers.map(header).collect(),
            timestamp: Some(record.timestamp.0).filter(|it| self.keep_timestamp && *it >= 0),
        }
    }
}
