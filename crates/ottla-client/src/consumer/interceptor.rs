//! Whoever sees, and may change, what a consumer hands out
//! (`org.apache.kafka.clients.consumer.ConsumerInterceptor`).

use std::collections::BTreeMap;

use super::{CommitOffset, ConsumerRecord, FetchedBatch, Partition};

/// Sees everything that polls hand out, and what is committed. Called on the owner's thread, from within
/// `poll`, a commit or `close`. Of several each gets what the one before has made of the records.
///
/// Positions move by what was read, whatever becomes of the records here. Kafka catches what an interceptor
/// throws; a panic here is the caller's.
pub trait ConsumerInterceptor: Send {
    /// Before [`Consumer::poll`](super::Consumer::poll) returns: records may be changed, left out and added.
    fn on_consume(&mut self, records: Vec<ConsumerRecord>) -> Vec<ConsumerRecord> {
        records
    }

    /// Before [`Consumer::poll_batches`](super::Consumer::poll_batches) returns. Records are looked at where they are, and batches may be
    /// left out; to change records, poll for records.
    fn on_consume_batches(&mut self, batches: Vec<FetchedBatch>) -> Vec<FetchedBatch> {
        batches
    }

    /// The group has these offsets now.
    fn on_commit(&mut self, _offsets: &BTreeMap<Partition, CommitOffset>) {}
}
