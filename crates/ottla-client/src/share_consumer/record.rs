//! The record type of share consumers.

use super::session::TopicIdAndPartition;
use crate::consumer::ConsumerRecord;

/// The broker and the partition of a record.
pub(super) type Source = (i32, TopicIdAndPartition);

/// A record that is locked for this member until it is acknowledged or the lock expires.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ShareRecord {
    pub record: ConsumerRecord,
    /// The number of deliveries to any member, including this one.
    pub delivery_count: i16,
    pub(super) source: Source,
}
