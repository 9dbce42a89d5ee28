//! A record as a share consumer hands it out.

use super::session::TopicIdAndPartition;
use crate::consumer::ConsumerRecord;

/// The broker that has given a record, and of what.
pub(super) type Source = (i32, TopicIdAndPartition);

/// A record that is locked for this member until it says what has become of it, or the lock runs out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ShareRecord {
    pub record: ConsumerRecord,
    /// How often it has been delivered to anybody, this time included.
    pub delivery_count: i16,
    pub(super) source: Source,
}
